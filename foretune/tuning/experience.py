"""What earlier runs found, for a new one: ``--learn-from WORK_DIR``.

Fast schedules go into the portfolio, from which tasks of other programs are told of them. What was
measured on this very hardware also teaches the cost model, before it has measurements of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.records import Journal, Record, is_trial, with_candidates
from foretune.search.portfolio import Portfolio, shipped
from foretune.space import Space
from foretune.tuning.work_dir import JOURNAL

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experience:
    """What is known before a run.

    Attributes:
        portfolio: Fast schedules of other programs; the run adds its own.
        records: Measured on the hardware of the run, with their candidates.
    """

    portfolio: Portfolio
    records: tuple[Record, ...] = ()


def require_journals(work_dirs: Iterable[str | Path], emptied: str | Path | None = None) -> None:
    """Refuses directories that hold no journal, before anything takes time.

    Args:
        work_dirs: To be learned from.
        emptied: The directory in which the run starts afresh, if it does.

    Raises:
        BadInputError: One of them holds none, or is the one that is emptied.
    """
    for place in work_dirs:
        if emptied is not None and Path(place).resolve() == Path(emptied).resolve():
            raise BadInputError(
                f"--learn-from must name another directory than --work-dir where --fresh is given, "
                f"but both are {place}: choose another --work-dir, or leave --fresh out to go on "
                "from what is there"
            )
        if not (Path(place) / JOURNAL).is_file():
            raise BadInputError(
                f"--learn-from takes work directories of `foretune tune`, but {place} holds no "
                f"{JOURNAL}: give the --work-dir of an earlier run"
            )


def experience(hardware: Hardware, work_dirs: Iterable[str | Path] = ()) -> Experience:
    """What comes with the package, and what earlier runs measured.

    Args:
        hardware: What the run is for.
        work_dirs: Work directories of ``foretune tune``. Programs whose space TVM does not make
            any more are left out, and records of another kind of target.

    Raises:
        RecordError: A journal cannot be read.
    """
    portfolio = Portfolio(shipped(hardware.kind))
    records: list[Record] = []
    for place in work_dirs:
        with Journal(Path(place) / JOURNAL, read_only=True) as journal:
            for record in _with_candidates(journal, hardware):
                assert record.candidate is not None
                seconds = record.measurement.best_s
                if record.measurement.ok and seconds is not None:
                    portfolio.add(record.candidate, seconds)
                if record.hardware == hardware.key:
                    records.append(record)
    return Experience(portfolio, tuple(records))


def _with_candidates(journal: Journal, hardware: Hardware) -> Sequence[Record]:
    """The trials of a journal that can be made again, each with its candidate."""
    machines = {k: m for k, m in journal.hardware().items() if m.kind == hardware.kind}
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in journal.records():
        if is_trial(record) and record.hardware in machines:
            groups.setdefault((record.workload, record.hardware), []).append(record)
    found: list[Record] = []
    for (workload, machine), records in groups.items():
        program = journal.workloads().get(workload)
        if program is None:
            continue
        try:
            space = Space.generate(program, machines[machine])
        except BadInputError as error:
            logger.warning("nothing is learned from %s: %s", program.name, error)
            continue
        found += with_candidates(records, space)
    return found
