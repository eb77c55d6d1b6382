"""Reading MetaSchedule JSON databases, tolerant of bad lines.

A database is two files. ``database_workload.json`` holds one ``[hash, base64 of the module]`` a
line; ``database_tuning_record.json`` one ``[workload line, [trace, seconds, target, arguments]]``,
where a trace is ``[instructions, decisions]`` and ends with what post-processors did.

TVM refuses a whole database for one bad line, so the lines are read here: a trace whose
instructions (in the normal form of ``trace_form``) are those of one of our sketches becomes a
candidate of that sketch; everything else is skipped and reported.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, ForetuneError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records._record import Trial
from foretune.records.store import SkippedLine
from foretune.records.trace_form import TraceMatcher, matchers_of, trace_form
from foretune.space import Candidate, Space
from foretune.workload import Workload

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
ORIGIN = "metaschedule"
"""Origin of imported records."""

_FAILED_S = 1e9
"""MetaSchedule writes 1e10 seconds for a candidate that failed, whatever the reason."""


@dataclass(frozen=True)
class ImportOutcome:
    """What was imported.

    Attributes:
        workloads: The workloads that could be read.
        records: Their records, each with its ``candidate``, in the order of the file.
        skipped_workloads: Unreadable lines of the workload file.
        skipped: Lines of the record file that gave no record, with the reason.
        unmatched: Number of those lines whose trace is none of our sketches'.
    """

    workloads: tuple[Workload, ...]
    records: tuple[Trial[Candidate], ...]
    skipped_workloads: tuple[SkippedLine, ...]
    skipped: tuple[SkippedLine, ...]
    unmatched: int

    def __str__(self) -> str:
        lines = [f"{len(self.records)} records of {len(self.workloads)} workloads read"]
        for what, skipped in (("workloads", self.skipped_workloads), ("records", self.skipped)):
            counts = Counter(line.reason for line in skipped)
            first = {line.reason: line.line for line in reversed(skipped)}
            lines += [
                f"  skipped {n} {what}, the first in line {first[reason]}: {reason}"
                for reason, n in counts.most_common()
            ]
        return "\n".join(lines)


def import_metaschedule(
    directory: str | os.PathLike[str],
    hardware: Hardware,
    *,
    spaces: Mapping[str, Space] | None = None,
) -> ImportOutcome:
    """Reads a MetaSchedule database, tolerant of bad lines.

    Args:
        directory: Holds the two files, plain or gzip-compressed (``.gz``).
        hardware: What the records were measured on. Records of another target are skipped.
        spaces: Workload key to its space, where it was generated already.

    Returns:
        Records with ``Candidate`` decisions, and what was skipped and why.

    Raises:
        BadInputError: A file is missing or cannot be read.
    """
    base = Path(directory)
    programs, skipped_workloads = _read_workloads(_find(base, WORKLOADS))
    path = _find(base, RECORDS)
    reader = _RecordReader(programs, hardware, dict(spaces or {}), path.stat().st_mtime)
    records, skipped, unmatched = [], [], 0
    for number, line in _lines(path):
        try:
            records.append(reader.read(line))
        except _SkipError as reason:
            skipped.append(SkippedLine(number, str(reason)))
            unmatched += isinstance(reason, _UnmatchedError)
    return ImportOutcome(
        workloads=tuple({w.key: w for w in programs.values() if w is not None}.values()),
        records=tuple(records),
        skipped_workloads=tuple(skipped_workloads),
        skipped=tuple(skipped),
        unmatched=unmatched,
    )


class _SkipError(Exception):
    """A line gives no record; the message is the reason, the same for lines of the same kind."""


class _UnmatchedError(_SkipError):
    """A record was read, but this TVM does not generate its program."""


class _RecordReader:
    """Turns lines of a record file into records."""

    def __init__(
        self,
        programs: Mapping[int, Workload | None],
        hardware: Hardware,
        spaces: dict[str, Space],
        time: float,
    ) -> None:
        self._programs = programs
        self._hardware = hardware
        self._spaces = spaces
        self._time = time
        self._target = _target_identity(json.loads(hardware.target))
        self._matchers: dict[str, dict[str, TraceMatcher] | str] = {}

    def read(self, line: bytes) -> Trial[Candidate]:
        """The record of one line, or _SkipError."""
        # Looking up the workload first spares parsing the traces of unreadable ones.
        workload = self._workload(line)
        trace, run_secs, target, *_ = _record_fields(line)
        if _target_identity(target) != self._target:
            raise _SkipError("measured for another target")
        candidate = self._candidate(workload, trace)
        return Trial(
            workload=workload.key,
            hardware=self._hardware.key,
            candidate_key=candidate.key,
            decisions=candidate.to_json(),
            measurement=_measurement(run_secs),
            origin=ORIGIN,
            time=self._time,
            candidate=candidate,
        )

    def _workload(self, line: bytes) -> Workload:
        head = line[1 : line.find(b",")].strip()
        if not line.startswith(b"[") or not head.isdigit():
            raise _SkipError("not a tuning record")
        if int(head) not in self._programs:
            raise _SkipError("it refers to a workload that the database lacks")
        workload = self._programs[int(head)]
        if workload is None:
            raise _SkipError("its workload could not be read")
        return workload

    def _candidate(self, workload: Workload, trace: Any) -> Candidate:
        try:
            form = trace_form(trace)
        except BadInputError as error:
            raise _SkipError("not a tuning record") from error
        matcher = self._matchers_of(workload).get(form.skeleton)
        if matcher is None:
            raise _UnmatchedError("the trace is not one of a sketch of this TVM version")
        try:
            return matcher.candidate(form)
        except IllegalCandidateError as error:
            raise _UnmatchedError("the trace holds a decision outside its domain") from error

    def _matchers_of(self, workload: Workload) -> dict[str, TraceMatcher]:
        if workload.key not in self._matchers:
            self._matchers[workload.key] = self._generate(workload)
        matchers = self._matchers[workload.key]
        if isinstance(matchers, str):
            raise _SkipError(matchers)
        return matchers

    def _generate(self, workload: Workload) -> dict[str, TraceMatcher] | str:
        try:
            space = self._spaces.get(workload.key) or Space.generate(workload, self._hardware)
        except ForetuneError as error:
            return f"no space can be generated for its workload: {error}"
        return matchers_of((*space.sketches, space.untuned.sketch))


def _find(base: Path, name: str) -> Path:
    for path in (base / name, base / (name + ".gz")):
        if path.is_file():
            return path
    raise BadInputError(f"there is no {name} in {str(base)!r}: name the directory of a database")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers, from 1, and content of the lines that are not empty."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise BadInputError(f"cannot read {str(path)!r}: {error}: is the file whole?") from error


def _read_workloads(path: Path) -> tuple[dict[int, Workload | None], list[SkippedLine]]:
    """Workloads by the index that records use (None where unreadable), and what was skipped."""
    programs: dict[int, Workload | None] = {}
    skipped = []
    for index, (number, line) in enumerate(_lines(path)):
        try:
            programs[index] = _read_workload(line, name=f"workload {index}")
        except _SkipError as reason:
            programs[index] = None
            skipped.append(SkippedLine(number, str(reason)))
    return programs, skipped


def _read_workload(line: bytes, name: str) -> Workload:
    from foretune import _tvm

    try:
        _, encoded = json.loads(line)
        text = module_json(encoded)
    except (ValueError, TypeError, RecursionError) as error:
        raise _SkipError("not a workload") from error
    try:
        module = _tvm.load_json(text)
    except Exception as error:  # TVM's reader raises whatever its reflection comes across.
        raise _SkipError("the module was written by another TVM version, or damaged") from error
    try:
        return Workload.from_module(module, name)
    except (ForetuneError, AttributeError, TypeError) as error:
        raise _SkipError("the module is not one PrimFunc") from error


def module_json(encoded: str) -> str:
    """The JSON of a module, as ``database_workload.json`` holds it.

    Raises:
        ValueError, TypeError: It is none.
    """
    # TVM puts the length of the text, eight bytes, in front of it.
    return base64.b64decode(encoded, validate=True)[8:].decode()


def _record_fields(line: bytes) -> tuple[Any, ...]:
    try:
        _, (trace, run_secs, target, *rest) = json.loads(line)
        return trace, run_secs, target, *rest
    except (ValueError, TypeError, RecursionError) as error:
        raise _SkipError("not a tuning record") from error


def _target_identity(target: Any) -> tuple[Any, ...]:
    """What must agree between two targets for a time on one to be a time on the other."""
    if not isinstance(target, dict):
        raise _SkipError("not a tuning record")
    return tuple(target.get(name) for name in ("kind", "mcpu", "arch", "num-cores"))


def _measurement(run_secs: Any) -> Measurement:
    if not isinstance(run_secs, list) or not all(type(s) in (int, float) for s in run_secs):
        raise _SkipError("never measured")
    if not run_secs or max(run_secs) >= _FAILED_S:
        return Measurement(
            Status.RUN_ERROR, message="MetaSchedule recorded a failure; it does not say which"
        )
    if not all(math.isfinite(s) and s > 0 for s in run_secs):
        raise _SkipError("the seconds are not positive numbers")
    return Measurement(
        Status.OK, seconds=tuple(map(float, run_secs)), quiet=(False,) * len(run_secs)
    )
