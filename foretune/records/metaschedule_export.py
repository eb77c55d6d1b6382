"""Writing records as a MetaSchedule JSON database; TVM itself writes the lines."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, IllegalCandidateError, RecordError
from foretune.records._record import Record, Trial
from foretune.records.metaschedule_import import RECORDS, WORKLOADS
from foretune.records.queries import top as fastest_first
from foretune.records.store import Store
from foretune.space import Candidate, Space


@dataclass(frozen=True)
class ExportOutcome:
    """What was exported.

    Attributes:
        directory: Where the two files are.
        workloads: Number of workloads written.
        records: Number of records written.
        left_out: Reason to number of ``ok`` candidates that could not be written.
    """

    directory: Path
    workloads: int
    records: int
    left_out: Mapping[str, int]

    def __str__(self) -> str:
        lines = [f"{self.directory}: {self.records} records of {self.workloads} workloads written"]
        lines += [f"  left out: {n} ({reason})" for reason, n in self.left_out.items()]
        return "\n".join(lines)


def export_metaschedule(
    source: Store | Iterable[Record],
    directory: str | os.PathLike[str],
    *,
    top: int | None = None,
    hardware: str | None = None,
    spaces: Mapping[str, Space] | None = None,
    overwrite: bool = False,
) -> ExportOutcome:
    """Writes records as a database that works with TVM's ``MetaScheduleApplyDatabase``.

    Only ``ok`` records are written, one per candidate, the seconds being the record's value, so
    that TVM ranks as we do.

    Args:
        source: A store, or records of which each has its ``candidate``.
        directory: Made if need be.
        top: Only the fastest ``top`` candidates of each workload; all if None.
        hardware: Key of the hardware whose records are written. Needed where ``source`` has
            several, because TVM's look-up does not tell them apart.
        spaces: Workload key to its space, where it was generated already.
        overwrite: Whether to replace a database that is there.

    Raises:
        BadInputError: Several hardware and none chosen.
        RecordError: There is a database already, or the directory cannot be written.
    """
    records = source.records() if isinstance(source, Store) else list(source)
    chosen = _one_hardware(records, hardware)
    target = Path(directory)
    if not overwrite and any((target / name).exists() for name in (WORKLOADS, RECORDS)):
        raise RecordError(f"{str(target)!r} holds a database already: choose an empty directory")
    left_out: Counter[str] = Counter()
    candidates = list(_candidates(source, chosen, top, dict(spaces or {}), left_out))
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            workloads, written = _write_database(Path(scratch), candidates, left_out)
            for name in (WORKLOADS, RECORDS):
                shutil.move(Path(scratch) / name, target / name)
    except OSError as error:
        raise RecordError(
            f"cannot write a database to {str(target)!r}: {error.strerror}: "
            "choose another directory"
        ) from error
    return ExportOutcome(target, workloads, written, dict(left_out))


def _one_hardware(records: list[Record], hardware: str | None) -> list[Record]:
    keys = list(dict.fromkeys(r.hardware for r in records))
    if hardware is None and len(keys) > 1:
        raise BadInputError(
            "a MetaSchedule database holds records of one hardware, but there are records of "
            f"{len(keys)}: choose one of {', '.join(keys)}"
        )
    if hardware is not None and hardware not in keys:
        raise BadInputError(
            f"there are no records of hardware {hardware!r}: choose one of {', '.join(keys)}"
        )
    return [r for r in records if hardware in (None, r.hardware)]


def _candidates(
    source: Store | Iterable[Record],
    records: list[Record],
    top: int | None,
    spaces: dict[str, Space],
    left_out: Counter[str],
) -> Iterator[tuple[Candidate, float]]:
    """The candidates to write with their seconds, workload by workload, fastest first."""
    programs = source.workloads() if isinstance(source, Store) else {}
    machines = source.hardware() if isinstance(source, Store) else {}
    by_workload: dict[str, list[Record]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    for key, own in by_workload.items():
        for record in fastest_first(own, top):
            if isinstance(record, Trial):
                candidate = record.candidate
            else:
                if key not in spaces and (key not in programs or record.hardware not in machines):
                    left_out["the store lacks the program or the hardware"] += 1
                    continue
                if key not in spaces:
                    spaces[key] = Space.generate(programs[key], machines[record.hardware])
                try:
                    candidate = spaces[key].candidate(record.decisions)
                except (IllegalCandidateError, BadInputError):
                    left_out["the decisions belong to no sketch of this TVM version"] += 1
                    continue
            seconds = record.measurement.best_s
            assert seconds is not None, "an ok measurement has at least one reading"
            yield candidate, seconds


def _write_database(
    directory: Path, candidates: Iterable[tuple[Candidate, float]], left_out: Counter[str]
) -> tuple[int, int]:
    from foretune import _tvm

    ms = _tvm.meta_schedule
    database = ms.database.JSONDatabase(work_dir=str(directory))
    programs: dict[str, Any] = {}
    written = 0
    for candidate, seconds in candidates:
        if not candidate.sketch.variables and not candidate.hardware.has_cores:
            # What counts as untuned on a GPU is a pass of TVM, not a trace.
            left_out["the untuned program of a GPU has no trace"] += 1
            continue
        try:
            trace = candidate.schedule().trace
        except IllegalCandidateError:
            left_out["TVM rejects the candidate"] += 1
            continue
        workload = candidate.workload
        if workload.key not in programs:
            programs[workload.key] = database.commit_workload(workload.module)
        database.commit_tuning_record(
            ms.database.TuningRecord(
                trace,
                programs[workload.key],
                run_secs=[seconds],
                target=candidate.hardware.tvm_target(),
                args_info=ms.arg_info.ArgInfo.from_prim_func(workload.module["main"]),
            )
        )
        written += 1
    return len(programs), written
