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
from foretune.records import Journal, Record, Standings, Trial, in_order, with_candidates
from foretune.search.portfolio import Portfolio, shipped
from foretune.space import Candidate, Space
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
    records: tuple[Trial[Candidate], ...] = ()


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
    records: list[Trial[Candidate]] = []
    for place in work_dirs:
        with Journal(Path(place) / JOURNAL, read_only=True) as journal:
            for group in _with_candidates(journal, hardware):
                records += [record for record in group.trials if record.hardware == hardware.key]
                for record in group.trials:
                    seconds, candidate = record.measurement.best_s, record.candidate
                    fast = record.measurement.ok and not group.known.is_wrong(record.candidate_key)
                    if fast and seconds is not None:
                        portfolio.add(candidate, seconds)
    return Experience(portfolio, tuple(records))


@dataclass(frozen=True)
class _Group:
    """What a journal holds of one program on one hardware.

    Attributes:
        trials: Those that can be made again, each with its candidate.
        known: What all its records say.
    """

    trials: Sequence[Trial[Candidate]]
    known: Standings[Record]


def _with_candidates(journal: Journal, hardware: Hardware) -> list[_Group]:
    """The programs of a journal, on hardware of the same kind."""
    machines = {k: m for k, m in journal.hardware().items() if m.kind == hardware.kind}
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in in_order(journal.records()):
        if record.hardware in machines:
            groups.setdefault((record.workload, record.hardware), []).append(record)
    made: list[_Group] = []
    for (workload, machine), records in groups.items():
        program = journal.workloads().get(workload)
        if program is None or not any(record.is_counted for record in records):
            continue
        try:
            space = Space.generate(program, machines[machine])
        except BadInputError as error:
            logger.warning("nothing is learned from %s: %s", program.name, error)
            continue
        trials = with_candidates([record for record in records if record.is_counted], space)
        made.append(_Group(trials, Standings(records)))
    return made
