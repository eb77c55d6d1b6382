"""The door to the readers: finds out the format, reads, and says what was left out."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretune.dataset._group import Group
from foretune.dataset.readers import (
    _streams,
    ansor,
    autotvm,
    kernel_tuner,
    metaschedule,
    miopen,
    tenset,
)
from foretune.dataset.readers._gathering import Gathering, hardware_names, sheets_of
from foretune.errors import BadInputError, unknown_name
from foretune.hardware import Devices

_GATHER: dict[str, Callable[[Path, Gathering], None]] = {
    "ansor": ansor.gather,
    "autotvm": autotvm.gather,
    "kernel_tuner": kernel_tuner.gather,
    "metaschedule": metaschedule.gather,
    "miopen": miopen.gather,
    "tenset": tenset.gather,
}
FORMATS = tuple(_GATHER)
"""Names of the formats that can be read."""

_NAME_DEVICES = frozenset(("kernel_tuner", "miopen", "tenset"))
"""Formats that say on which device they measured, not only for which target."""
_SNIFFED_LINES = 100_000
_SUFFIXES = re.compile(r"(\.(tar|tgz|gz|jsonl?|log|parquet|txt))+$")


@dataclass(frozen=True)
class Reading:
    """What was read, and what was not.

    Attributes:
        groups: One per workload and hardware, in the order of appearance. Each has at least two
            programs, one of which ran.
        skipped: Reason to number of lines that are in no group, the most frequent first.
        lines: Lines that are not empty (of a Kernel Tuner cache: entries; of a Parquet file: rows).
            As many as the records of all groups and the lines skipped together.
        format: One of ``FORMATS``.
    """

    groups: list[Group]
    skipped: dict[str, int]
    lines: int
    format: str

    @property
    def records(self) -> int:
        """Number of records in all groups."""
        return sum(map(len, self.groups))

    @property
    def text(self) -> str:
        """One line that says it all."""
        valid = sum(int(group.valid.sum()) for group in self.groups)
        reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
        skipped = f"; skipped {sum(self.skipped.values())} ({reasons})" if reasons else ""
        return (
            f"{self.format}: {self.lines} lines, {self.records} records ({valid} valid) in "
            f"{len(self.groups)} groups{skipped}"
        )


def read(
    path: str | os.PathLike[str],
    format: str | None = None,
    limit_per_group: int | None = None,
    hardware: str | None = None,
    seed: int = 0,
    name: str | None = None,
    devices: Devices | None = None,
) -> Reading:
    """Reads measurements of others.

    A record that says it failed, or whose seconds are the 1e10 that stands for it, is kept with
    NaN. Several readings of one program count with their mean. A line that cannot be used is left
    out and counted: torn or foreign ones, seconds that are zero, negative or not a number, programs
    measured twice (the lowest seconds stay), groups of one record or of failures alone.

    Args:
        path: A file, a folder or an archive.
        format: One of ``FORMATS``; found out by names and content if not given.
        limit_per_group: How many programs of each group to keep, drawn uniformly; all if None.
        hardware: What the hardware is called. If not given, what the format says of it, else the
            name of the file. Where one file holds records of several, each has its own addition.
        seed: Of the draws; the same one keeps the same programs, in whatever order they come.
        name: What is said for the name of the file, see ``names_of``.
        devices: Devices that come before those of foretune's table. Hardware whose name is in
            neither has no data sheet.

    Raises:
        BadInputError: There is no such path, its format is not known, or it is not what its format
            demands.
        RecordError: A file or an archive is damaged, cut off or cannot be read.
    """
    where = Path(path)
    if not where.exists():
        raise BadInputError(f"there is no file or folder {str(path)!r}: check the path")
    if limit_per_group is not None and limit_per_group < 2:
        raise BadInputError(
            "limit_per_group is at least 2, for a group of one is left out, but it is "
            f"{limit_per_group}"
        )
    if format is None:
        format = _recognised(where)
    elif format not in _GATHER:
        raise unknown_name("format", format, FORMATS)
    gathering = Gathering(limit_per_group, seed)
    _GATHER[format](where, gathering)
    stem = name or names_of([where])[0]
    exact = format in _NAME_DEVICES
    names = hardware_names(gathering.devices, stem, hardware, exact)
    groups = gathering.groups(names, sheets_of(names, hardware, exact, devices))
    return Reading(groups, dict(gathering.skipped.most_common()), gathering.lines, format)


def names_of(paths: Sequence[Path]) -> list[str]:
    """What to say for the names of files that are read together, so that no two say the same.

    That is the name without what says its format (with it, where two files differ in nothing else),
    and of a database that of its folder; with as many folders in front as no other path shares:
    ``lab/log.json`` and ``farm/log.json`` are ``lab/log`` and ``farm/log``. Two paths of one
    database have one name.
    """
    wholes = [_whole(path) for path in paths]
    parts = {whole: (*whole.parts[1:-1], _stem(whole)) for whole in wholes}
    if len(set(parts.values())) < len(parts):
        parts = {whole: whole.parts[1:] for whole in parts}
    every = set(parts.values())
    return ["/".join(_distinct(parts[w], every - {parts[w]})) for w in wholes]


def _distinct(own: Sequence[str], others: Collection[Sequence[str]]) -> Sequence[str]:
    """The shortest end of a path that no other one has."""
    lengths = range(1, len(own) + 1)
    return next((own[-n:] for n in lengths if all(o[-n:] != own[-n:] for o in others)), own)


def _whole(path: Path) -> Path:
    """Where the measurements are: a file, a folder, and of a database its folder."""
    whole = path.resolve()
    return whole.parent if whole.is_file() and metaschedule.find(path) is not None else whole


def _stem(whole: Path) -> str:
    return _SUFFIXES.sub("", whole.name) or whole.name


def _recognised(path: Path) -> str:
    if metaschedule.find(path) is not None:
        return "metaschedule"
    if tenset.recognises_folder(path):
        return "tenset"
    left = _SNIFFED_LINES
    for _, file in _streams.files(path):
        recognised = _format_of_file(file)
        if recognised is not None:
            return recognised
        for _, line in itertools.islice(_streams.lines(file), left):
            left -= 1
            recognised = _format_of(line)
            if recognised is not None:
                return recognised
    raise BadInputError(
        f"{path} holds no measurements that can be recognised: the formats are "
        f"{', '.join(FORMATS)}; what `foretune collect` is working on is packed first (--pack)"
    )


def _format_of_file(path: Path) -> str | None:
    """The format of a file that is not one of lines."""
    if kernel_tuner.recognises_file(path):
        return "kernel_tuner"
    if autotvm.recognises_file(path):
        return "autotvm"
    return "miopen" if miopen.recognises_file(path) else None


def _format_of(line: bytes) -> str | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if ansor.recognises(record):
        return "ansor"
    return "autotvm" if autotvm.recognises(record) else None
