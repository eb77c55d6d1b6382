"""Who is judged on a device that nobody learned from: floors, rankers, and controls.

A rival orders the programs of each tested group; what it may see of the device is its data sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from foretune.cost import rankers
from foretune.cost._ranker import Ranker, score_group
from foretune.dataset import Group
from foretune.describe import behaviours
from foretune.describe.logged import nests_of_group
from foretune.evaluate.data import thinned
from foretune.evaluate.splits import carve
from foretune.hardware import FACTORS, Device

Floats = npt.NDArray[np.float64]

PROGRAMS = 48
"""Of each group, that rankers learn from, as the published leave-one-out figures have it."""


@dataclass(frozen=True)
class Case:
    """One device left out.

    Attributes:
        device: Its name in the data.
        train: Groups of the other devices, all their programs.
        common: The same with the programs that all devices ran, where there are enough.
        test: Groups of the device, with the programs that are judged.
        elsewhere: Of each tested group, log seconds of its programs on each other device, by name.
        seed: Of what is random.
    """

    device: str
    train: tuple[Group, ...]
    common: tuple[Group, ...]
    test: tuple[Group, ...]
    elsewhere: Mapping[str, Mapping[str, Floats]]
    seed: int


Scores = dict[str, Floats]
Rival = Callable[[Case], Scores]


def best_elsewhere(case: Case) -> Scores:
    """The floor: minus the mean log seconds on the other devices."""
    return {key: -np.mean(list(logs.values()), axis=0) for key, logs in case.elsewhere.items()}


def nearest_device(case: Case) -> Scores:
    """Minus log seconds on the device whose data sheet is nearest."""
    devices = {group.hardware: group.device for group in (*case.train, *case.test)}
    own = devices[case.device]
    others = [name for name in devices if name != case.device]
    near = min(others, key=lambda name: distance(own, devices[name]))
    return {key: -logs[near] for key, logs in case.elsewhere.items()}


def distance(first: Device | None, second: Device | None) -> float:
    """Mean difference of the logarithms of the factors that both data sheets have."""
    if first is None or second is None:
        return np.inf
    names = [f.name for f in FACTORS if first.kind in f.kinds and second.kind in f.kinds]
    gaps = [
        abs(np.log2(1 + first.factors[n]) - np.log2(1 + second.factors[n]))
        for n in names
        if n in first.factors and n in second.factors
    ]
    return float(np.mean(gaps)) if gaps else np.inf


def ranked(name: str, whole: bool = False, view: str = "", **options: Any) -> Rival:
    """A ranker that learned from the other devices.

    Args:
        name: Of the ranker.
        whole: Whether it learns from all programs that every device ran, instead of some of each
            group: what other devices took is then known of all that are judged.
        view: What is done to the tested device's data sheet: ``"swapped"`` for that of the device
            that is least like it.
        options: Of the ranker.
    """

    def score(case: Case) -> Scores:
        ranker = trained(name, whole, case, tuple(sorted(options.items())))
        tested = [_swapped(group, case) for group in case.test] if view else case.test
        return {
            given.key: np.asarray(score_group(ranker, group), np.float64)
            for given, group in zip(case.test, tested, strict=True)
        }

    return score


_TRAINED: dict[tuple[Any, ...], tuple[Case, Ranker]] = {}
"""Of the case at hand: controls ask the very ranker that was judged before."""


def trained(name: str, whole: bool, case: Case, options: tuple[tuple[str, Any], ...]) -> Ranker:
    """A ranker that learned from the groups of a case; once for all who ask."""
    if any(known is not case for known, _ in _TRAINED.values()):
        _TRAINED.clear()
    key = (name, whole, repr(options))
    if key not in _TRAINED:
        ranker = rankers.create(name, seed=case.seed, **dict(options))
        train, validation = carve(case.common if whole else case.train)
        if not whole:
            train, validation = (
                tuple(thinned(groups, PROGRAMS, case.seed)) for groups in (train, validation)
            )
        ranker.fit(train, validation)
        _TRAINED[key] = (case, ranker)
    return _TRAINED[key][1]


def _swapped(group: Group, case: Case) -> Group:
    """The same group as if it were of the training device that is least like its own."""
    others = {g.hardware: g for g in case.train}
    far = max(others.values(), key=lambda other: distance(group.device, other.device))
    return replace(group, device=far.device, machine=far.machine)


def formulas(case: Case) -> Scores:
    """What the data sheet and the loops say, nothing learned."""
    return {group.key: predicted(group) for group in case.test}


def predicted(group: Group) -> Floats:
    """Minus the logarithm of predicted seconds; NaN where a program cannot be described."""
    scores = np.full(len(group), np.nan)
    assert group.device is not None
    for rows, nests in nests_of_group(group):
        scores[rows] = -np.log(behaviours(nests, group.device).seconds)
    return scores


def operator_unseen(rival: Rival) -> Rival:
    """The rival, which did not learn from the operator that it is asked about either."""

    def score(case: Case) -> Scores:
        found: Scores = {}
        for kind in sorted({group.kind for group in case.test}):
            part = replace(
                case,
                train=tuple(g for g in case.train if g.kind != kind),
                common=tuple(g for g in case.common if g.kind != kind),
                test=tuple(g for g in case.test if g.kind == kind),
            )
            found |= rival(part)
        return found

    return score


def parameter_trees(case: Case) -> Scores:
    """Trees over parameters, where configurations have nothing else: a rival of Kernel Tuner's."""
    rows = [(g, i) for g in case.train for i in np.flatnonzero(g.valid).tolist()]
    names = sorted({n for g, i in rows for n in (g.programs[i].configuration or {})})
    x = np.array([_parameters(g, i, names) for g, i in rows])
    means = {g.key: np.nanmean(np.log(g.seconds)) for g in case.train}
    y = np.array([np.log(g.seconds[i]) - means[g.key] for g, i in rows])
    booster = xgboost.train(
        {"eta": 0.1, "max_depth": 8, "subsample": 0.8, "seed": case.seed, "nthread": 1},
        xgboost.DMatrix(x, y),
        300,
    )
    return {
        g.key: -booster.predict(
            xgboost.DMatrix(np.array([_parameters(g, i, names) for i in range(len(g))]))
        ).astype(np.float64)
        for g in case.test
    }


def _parameters(group: Group, row: int, names: Sequence[str]) -> list[float]:
    configuration = group.programs[row].configuration or {}
    values = [configuration.get(name, np.nan) for name in names]
    return [
        np.log2(1 + v) if isinstance(v, (int, float)) and v > -1 else float("nan") for v in values
    ]
