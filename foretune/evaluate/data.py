"""Measured data from anywhere, as groups: read, selected, and kept away from what must stay unseen.

A path is a data set of our own (``foretune collect --pack``) or what another tool wrote, which the
readers of ``foretune.dataset.readers`` recognise. Whatever is left out is counted with its reason.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.errors import BadInputError
from foretune.evaluate.metrics import judgeable

if TYPE_CHECKING:
    from foretune.dataset import Group

FEW_TIMES = "group with fewer than two different times"
_SHOWN = 8
"""Names that a message lists at most."""


@dataclass(frozen=True)
class MeasuredData:
    """What was read.

    Attributes:
        groups: In the order of the files.
        skipped: Reason to the number of records or groups that were left out.
        paths: Where from, as given.
    """

    groups: tuple[Group, ...]
    skipped: Counter[str]
    paths: tuple[str, ...]


def read_data(paths: Sequence[str | Path]) -> MeasuredData:
    """Reads data sets and foreign logs.

    Raises:
        BadInputError: A path does not exist, or nothing usable is in it.
        RecordError: A file is damaged or of another version.
    """
    groups: list[Group] = []
    skipped: Counter[str] = Counter()
    for path in dict.fromkeys(paths):
        found, left_out = _read(Path(path))
        skipped.update(left_out)
        if not found:
            reasons = ", ".join(f"{n} {reason}" for reason, n in left_out.most_common(_SHOWN))
            raise BadInputError(
                f"no measurement in {path} can be used ({reasons or 'it is empty'}): "
                "give a data set of `foretune collect` or a log of a known format"
            )
        groups += found
    return MeasuredData(tuple(groups), skipped, tuple(map(str, paths)))


def _read(path: Path) -> tuple[Sequence[Group], Counter[str]]:
    from foretune import dataset

    if not path.exists():
        raise BadInputError(f"there is no data at {path}: give a data set directory or a log file")
    if dataset.is_dataset(path):
        stored = dataset.read_dataset(path)
        # Grouping counts what it leaves out.
        groups = stored.groups()
        return groups, Counter(stored.skipped)
    from foretune.dataset import readers

    reading = readers.read(path)
    return reading.groups, Counter(reading.skipped)


def keep_judgeable(groups: Iterable[Group]) -> tuple[list[Group], Counter[str]]:
    """The groups in which there is an order to find, and how many others there are."""
    given = list(groups)
    kept = [group for group in given if judgeable(group.seconds)]
    dropped = len(given) - len(kept)
    return kept, Counter({FEW_TIMES: dropped} if dropped else {})


def select(
    groups: Sequence[Group], hardware: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[Group]:
    """The groups of some hardware, without some workloads.

    Args:
        groups: To choose from.
        hardware: Keys; all if empty.
        exclude: Keys or names of workloads, or operator kinds; ``*`` and ``?`` stand for others.

    Raises:
        BadInputError: An entry matches nothing, or nothing is left.
    """
    known = sorted({group.hardware for group in groups})
    for key in hardware:
        if key not in known:
            raise BadInputError(
                f"no group was measured on hardware {key!r}: choose of {_listed(known)}"
            )
    for pattern in exclude:
        if not any(_matches(group, pattern) for group in groups):
            kinds = sorted({group.kind for group in groups})
            raise BadInputError(
                f"nothing in the data matches {pattern!r}, which was to be left out: give keys or "
                f"names of workloads, or operator kinds ({_listed(kinds)})"
            )
    kept = [
        group
        for group in groups
        if (not hardware or group.hardware in hardware)
        and not any(_matches(group, pattern) for pattern in exclude)
    ]
    if not kept:
        raise BadInputError("no group is left: choose more hardware, or leave out less")
    return kept


def _matches(group: Group, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase(name, pattern) for name in (group.workload, group.name, group.kind)
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
