"""Who learns from what, and who is tested on what.

Data is split by workload, never by row: programs of one workload share their computation, so a
model that has seen some of them knows much about the others. Workloads that differ in nothing but
their epilogue are one family (``foretune.evaluate.families``) and stay together. So do all hardware
variants of a workload, except in the one split that says otherwise in its name.

=================  ===============================================================================
``workload``       k folds of workloads, with every operator kind spread over the folds
``kind``           k folds of operator kinds: a test kind has no workload in training; families
                   that have several kinds are left out of training where one of them is tested
``hardware``       each device in turn is tested, on workloads that no other device showed either
``hardware_seen``  the same with the device's workloads in training on other devices: as published
                   (TLP, LLMTuner); easier, and named so
=================  ===============================================================================

Every group is tested exactly once. Validation groups, for early stopping, are carved from training,
by family as well. The same data and seed give the same splits, in whatever order groups come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import BadInputError, unknown_name
from foretune.evaluate.families import families

if TYPE_CHECKING:
    from foretune.dataset import Group

FOLDS = 5
VALIDATION_SHARE = 0.1
_PUBLISHED = {"rows", "row", "within_task", "published_rows", "random"}


@dataclass(frozen=True)
class Split:
    """One division of groups.

    Attributes:
        name: What is tested, in words.
        train: Groups to learn from.
        validation: Groups to stop early by, of other families of workloads than ``train``.
        test: Groups to be judged on.
        seen_workloads: Whether tested workloads may have been seen on other hardware.
    """

    name: str
    train: tuple[Group, ...]
    validation: tuple[Group, ...]
    test: tuple[Group, ...]
    seen_workloads: bool = False

    def __post_init__(self) -> None:
        learned = (*self.train, *self.validation)
        if not learned:
            return
        family_of = families((*learned, *self.test))
        train, validation, test = (
            {family_of[g.workload] for g in groups}
            for groups in (self.train, self.validation, self.test)
        )
        if train & validation or (not self.seen_workloads and test & (train | validation)):
            raise ValueError(f"split {self.name}: a family of workloads is on two sides")
        if {g.key for g in self.test} & {g.key for g in learned}:
            raise ValueError(f"split {self.name}: a group is on two sides")


def names() -> list[str]:
    """Names that ``cross_validation`` accepts."""
    return sorted(_MAKERS)


def check_name(by: str) -> None:
    """Refuses what is not one of ``names()``.

    Raises:
        BadInputError: It is unknown, or a split by row, with the reason why there is none.
    """
    if by in _PUBLISHED:
        raise BadInputError(
            f"data is never split by row, but got split {by!r}: programs of one workload on both "
            "sides make every model look good on workloads it has seen; choose one of "
            f"{', '.join(names())}"
        )
    if by not in _MAKERS:
        raise unknown_name("split", by, names())


def cross_validation(
    groups: Sequence[Group],
    by: str = "workload",
    folds: int | None = None,
    seed: int = 0,
    validation: float = VALIDATION_SHARE,
) -> list[Split]:
    """All splits of a cross-validation; together they test every group once.

    Args:
        groups: The data.
        by: One of ``names()``.
        folds: Parts of the families (or kinds); 5, or as many as there are if fewer.
        seed: Deals workloads to folds.
        validation: Share of the training families that is held out for early stopping.

    Raises:
        BadInputError: Unknown name, or too few workloads, kinds or devices.
    """
    check_name(by)
    if seed < 0 or not 0 <= validation < 1:
        raise BadInputError(
            f"seed >= 0 and 0 <= validation < 1 must hold, but got seed={seed} and "
            f"validation={validation}"
        )
    parts = _MAKERS[by](list(groups), folds, seed)
    return [
        Split(name, *carve(train, validation, seed), tuple(test), by == "hardware_seen")
        for name, train, test in parts
    ]


def carve(
    groups: Iterable[Group], share: float = VALIDATION_SHARE, seed: int = 0
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Training and validation groups; some families of about every kind are held out.

    Fewer than three families are all trained on.
    """
    kept = tuple(groups)
    family_of = families(kept)
    ordered = _by_kind(_kinds(kept, family_of), seed)
    if share <= 0 or len(ordered) < 3:
        return kept, ()
    count = max(1, round(share * len(ordered)))
    places = ((np.arange(count) + 0.5) * len(ordered) / count).astype(int)
    held = {ordered[i] for i in places.tolist()}
    train = tuple(g for g in kept if family_of[g.workload] not in held)
    return train, tuple(g for g in kept if family_of[g.workload] in held)


_Part = tuple[str, "list[Group]", "list[Group]"]
"""Name, training groups, test groups."""


def _by_workload(groups: list[Group], folds: int | None, seed: int) -> list[_Part]:
    fold_of, count = _deal(groups, folds, seed)
    return [
        (
            f"workloads {fold + 1}/{count}",
            [g for g in groups if fold_of[g.workload] != fold],
            [g for g in groups if fold_of[g.workload] == fold],
        )
        for fold in range(count)
    ]


def _by_operator_kind(groups: list[Group], folds: int | None, seed: int) -> list[_Part]:
    del seed  # the heaviest kind goes to the lightest fold: nothing is left to chance
    sizes = Counter(kind for kind, _ in {(g.kind, g.workload) for g in groups})
    count = _fold_count(folds, len(sizes), "operator kinds")
    loads = [0] * count
    fold_of: dict[str, int] = {}
    for kind, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        fold_of[kind] = loads.index(min(loads))
        loads[fold_of[kind]] += size
    family_of = families(groups)
    parts = []
    for fold in range(count):
        name = ", ".join(sorted(kind for kind in fold_of if fold_of[kind] == fold))
        test = [g for g in groups if fold_of[g.kind] == fold]
        # A product with one row is a convolution of one pixel as well: rare, and not to be seen.
        tested = {family_of[g.workload] for g in test}
        others = (g for g in groups if fold_of[g.kind] != fold)
        train = [g for g in others if family_of[g.workload] not in tested]
        if not train:
            raise BadInputError(
                f"other kinds than {name} have no other computations to learn from: give more "
                "data, or split by workload"
            )
        parts.append((name, train, test))
    return parts


def _by_hardware(groups: list[Group], folds: int | None, seed: int) -> list[_Part]:
    devices = _devices(groups)
    fold_of, count = _deal(groups, folds, seed)
    parts = []
    for device in devices:
        for fold in range(count):
            test = [g for g in groups if g.hardware == device and fold_of[g.workload] == fold]
            train = [g for g in groups if g.hardware != device and fold_of[g.workload] != fold]
            if test and not train:
                raise BadInputError(
                    f"no other hardware than {device} has workloads outside fold {fold + 1}: "
                    "give more data, or split by workload"
                )
            if test:
                parts.append((f"{device}, workloads {fold + 1}/{count}", train, test))
    return parts


def _by_hardware_seen(groups: list[Group], folds: int | None, seed: int) -> list[_Part]:
    del seed
    if folds is not None:
        raise BadInputError(
            f"split 'hardware_seen' has one part per device and no folds, but got folds={folds}: "
            "leave it out"
        )
    return [
        (
            f"{device}, workloads seen",
            [g for g in groups if g.hardware != device],
            [g for g in groups if g.hardware == device],
        )
        for device in _devices(groups)
    ]


_MAKERS: Mapping[str, Callable[[list[Group], int | None, int], list[_Part]]] = {
    "workload": _by_workload,
    "kind": _by_operator_kind,
    "hardware": _by_hardware,
    "hardware_seen": _by_hardware_seen,
}


def _deal(groups: Sequence[Group], folds: int | None, seed: int) -> tuple[dict[str, int], int]:
    """The fold of every workload, and the number of folds.

    Families are dealt like cards, kind after kind: folds differ by at most one family, and by at
    most one family of each kind.
    """
    family_of = families(groups)
    ordered = _by_kind(_kinds(groups, family_of), seed)
    alone = len(ordered) == len(family_of)
    count = _fold_count(folds, len(ordered), "workloads" if alone else "families of workloads")
    fold_of = {name: i % count for i, name in enumerate(ordered)}
    return {workload: fold_of[name] for workload, name in family_of.items()}, count


def _kinds(groups: Sequence[Group], family_of: Mapping[str, str]) -> dict[str, str]:
    """The operator kind of every family, whatever the order of the groups."""
    kinds: dict[str, str] = {}
    for group in groups:
        name = family_of[group.workload]
        kinds[name] = min(kinds.get(name, group.kind), group.kind)
    return kinds


def _by_kind(kind_of: Mapping[str, str], seed: int) -> list[str]:
    """Families, kind after kind, in random order within a kind."""
    names = sorted(kind_of)
    order = np.random.default_rng(seed).permutation(len(names))
    return sorted((names[i] for i in order.tolist()), key=lambda name: kind_of[name])


def _fold_count(folds: int | None, available: int, what: str) -> int:
    count = min(FOLDS, available) if folds is None else folds
    if not 2 <= count <= available:
        raise BadInputError(
            f"`2 <= folds <= {what}` must hold, but got {count} folds and {available} {what}: "
            "give more data, or fewer folds"
        )
    return count


def _devices(groups: Sequence[Group]) -> list[str]:
    devices = sorted({g.hardware for g in groups})
    if len(devices) < 2:
        raise BadInputError(
            f"a split by hardware needs two devices, but the data is of {', '.join(devices)} "
            "alone: give data of another one, or split by workload"
        )
    return devices
