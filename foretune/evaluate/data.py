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

import numpy as np

from foretune.dataset import judgeable
from foretune.errors import BadInputError, listed

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.hardware import Devices

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


def read_data(paths: Sequence[str | Path], devices: Devices | None = None) -> MeasuredData:
    """Reads data sets and foreign logs.

    Hardware that goes by the name of its file is told apart where two files have the same one.

    Args:
        paths: Where they are.
        devices: Data sheets that come before those of foretune's table.

    Raises:
        BadInputError: A path does not exist, nothing usable is in it, or two paths hold the same
            workload on the same hardware.
        RecordError: A file is damaged or of another version.
    """
    groups: list[Group] = []
    came_from: dict[str, str | Path] = {}
    skipped: Counter[str] = Counter()
    places = {Path(path).resolve(): path for path in paths}
    for path, name in zip(places.values(), _names(places), strict=True):
        fresh, left_out = _read(Path(path), name, devices)
        skipped.update(left_out)
        if not fresh:
            reasons = ", ".join(f"{n} {reason}" for reason, n in left_out.most_common(_SHOWN))
            raise BadInputError(
                f"no measurement in {path} can be used ({reasons or 'it is empty'}): "
                "give a data set of `foretune collect` or a log of a known format"
            )
        for group in fresh:
            if came_from.setdefault(group.key, path) != path:
                raise BadInputError(
                    f"a workload is read once for each hardware, but {came_from[group.key]} and "
                    f"{path} both hold {group.name} on {group.hardware}: give one of them, join "
                    "data sets with `foretune collect --pack`, or give the folder with all logs "
                    "of that hardware"
                )
        groups += fresh
    return MeasuredData(tuple(groups), skipped, tuple(map(str, paths)))


def _names(places: Iterable[Path]) -> list[str]:
    """What hardware is called after in each place; data sets of our own know theirs."""
    from foretune.dataset import is_dataset
    from foretune.dataset.readers import names_of

    places = list(places)
    foreign = [place for place in places if not is_dataset(place)]
    name_of = dict(zip(foreign, names_of(foreign), strict=True))
    return [name_of.get(place, "") for place in places]


def _read(path: Path, name: str, devices: Devices | None) -> tuple[Sequence[Group], Counter[str]]:
    from foretune import dataset

    if dataset.is_dataset(path):
        stored = dataset.read_dataset(path)
        # Grouping counts what it leaves out.
        groups = stored.groups(devices)
        return groups, Counter(stored.skipped)
    if not path.exists():
        raise BadInputError(f"there is no data at {path}: give a data set directory or a log file")
    from foretune.dataset import readers

    reading = readers.read(path, name=name, devices=devices)
    return reading.groups, Counter(reading.skipped)


def keep_judgeable(groups: Iterable[Group]) -> tuple[list[Group], Counter[str]]:
    """The groups in which there is an order to find, and how many others there are."""
    given = list(groups)
    kept = [group for group in given if judgeable(group.seconds)]
    dropped = len(given) - len(kept)
    return kept, Counter({FEW_TIMES: dropped} if dropped else {})


def measured_everywhere(groups: Sequence[Group]) -> list[Group]:
    """The groups whose workload was measured on all hardware that occurs.

    With them, splits by hardware test the same groups whether or not other hardware has shown their
    workloads.

    Raises:
        BadInputError: No workload was measured on all of it.
    """
    everywhere = {group.hardware for group in groups}
    measured_on: dict[str, set[str]] = {}
    for group in groups:
        measured_on.setdefault(group.workload, set()).add(group.hardware)
    kept = [group for group in groups if measured_on[group.workload] == everywhere]
    if groups and not kept:
        raise BadInputError(
            f"no workload was measured on all of {listed(sorted(everywhere))}: choose less "
            "hardware, or leave out --on-all-hardware"
        )
    return kept


def thinned(groups: Sequence[Group], programs: int, seed: int = 0) -> list[Group]:
    """The same groups with at most so many programs each, drawn uniformly.

    One that would be left with fewer than two programs that ran stays whole.

    Args:
        groups: To be learned from.
        programs: Of each group, at least 2.
        seed: Seeds the draws, one group after the other.

    Raises:
        BadInputError: ``programs`` is below 2.
    """
    if programs < 2:
        raise BadInputError(f"`programs >= 2` must hold, but got programs={programs}")
    rng = np.random.default_rng(seed)
    return [_some(group, programs, rng) for group in groups]


def _some(group: Group, programs: int, rng: np.random.Generator) -> Group:
    if len(group) <= programs:
        return group
    fewer = group.subset(np.sort(rng.choice(len(group), programs, replace=False)))
    return fewer if fewer.valid.sum() >= 2 else group


def select(
    groups: Sequence[Group], hardware: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[Group]:
    """The groups of some hardware, without some workloads.

    Args:
        groups: To choose from.
        hardware: Keys; all if empty.
        exclude: Keys or names of workloads, or operator kinds, whole or with ``*`` and ``?`` for
            any text and any character.

    Raises:
        BadInputError: An entry matches nothing, or nothing is left.
    """
    known = sorted({group.hardware for group in groups})
    for key in hardware:
        if key not in known:
            raise BadInputError(
                f"no group was measured on hardware {key!r}: choose of {listed(known)}"
            )
    for pattern in exclude:
        if not any(_matches(group, pattern) for group in groups):
            kinds = sorted({group.kind for group in groups})
            raise BadInputError(
                f"nothing in the data matches {pattern!r}, which was to be left out: give keys or "
                f"names of workloads, or operator kinds ({listed(kinds)}); one that has commas is "
                "given whole and by itself"
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


def called(group: Group) -> tuple[str, str, str]:
    """What a group goes by when it is left out: key and name of its workload, operator kind."""
    return group.workload, group.name, group.kind


def _matches(group: Group, pattern: str) -> bool:
    names = called(group)
    # Names that others gave have brackets, which would be read as a choice of characters.
    literal = pattern.replace("[", "[[]")
    return pattern in names or any(fnmatch.fnmatchcase(name, literal) for name in names)
