"""Who is judged on a device that nobody learned from: families of devices, rivals, figures.

A rival orders the programs of each tested group; what it may see of the device is its data sheet.
The code of this module is part of what finished cells are kept under.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from benchmarks.results import ROOT
from foretune.cost import Ranker, rankers, score_group
from foretune.dataset import Group
from foretune.describe import behaviours
from foretune.describe.logged import nests_of_group
from foretune.evaluate import Bootstrap, carve, keep_judgeable, read_data, thinned
from foretune.evaluate.floors import COMMON_PROGRAMS
from foretune.hardware import FACTORS, Device

Floats = npt.NDArray[np.float64]
Entries = list[dict[str, Any]]
"""Of each tested group its workload and kind, and the best over the best of the first picks."""

SHARED = ROOT.parent / "shared" / "data"
PROGRAMS = 48
"""Of each group, that rankers learn from, as the published leave-one-out figures have it."""
_X86 = ("cpu-ryzen-3700x", "cpu-i5-1035g1", "cpu-i7-3770")
_CARDS = ("A100", "A4000", "A6000", "W7800")


@dataclass(frozen=True)
class Family:
    """Devices that are compared with each other.

    Attributes:
        files: Below ``../shared/data``.
        least: Programs that a workload needs on all devices.
        picks: The number of first choices by which it is judged, beside the first and five.
        by_workload: Whether workloads are left out instead of devices, because there is one device.
    """

    files: tuple[str, ...]
    least: int = COMMON_PROGRAMS
    picks: int = 1
    by_workload: bool = False

    def groups(self) -> list[Group]:
        """What was measured, on all devices."""
        paths: list[str | Path] = [SHARED / file for file in self.files]
        return keep_judgeable(read_data(paths).groups)[0]


def _logs(*devices: str) -> tuple[str, ...]:
    return tuple(f"devices/{device}.jsonl.gz" for device in devices)


def _solvers(*devices: str) -> tuple[str, ...]:
    return tuple(f"devices/miopen/{device}.parquet" for device in devices)


FAMILIES: Mapping[str, Family] = {
    "cpus": Family(_logs("cpu-cortex-a7", *_X86)),
    "x86": Family(_logs(*_X86)),
    "gtx1650, by workload": Family(_logs("gpu-gtx1650"), by_workload=True),
    "convolution": Family(tuple(f"kernel-tuner/{c}.json.gz" for c in _CARDS), picks=10),
    "dedispersion": Family(
        tuple(f"kernel-tuner/dedispersion/{c}.json.gz" for c in _CARDS), picks=10
    ),
    "k80, mi50": Family(("ansor/k80.tar.gz", "ansor/mi50.tar.gz"), least=5),
    "gfx900, gfx906": Family(_solvers("gfx900", "gfx906"), least=2),
    "gfx908, gfx90a": Family(_solvers("gfx908", "gfx90a"), least=2),
}
"""Tables by name. Least numbers of common programs are those of the floors' own page, but for K80
and MI50, whose searches went different ways and met seldom."""


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


def ranked(name: str, whole: bool = False, swapped: bool = False, **options: Any) -> Rival:
    """A ranker that learned from the other devices.

    Args:
        name: Of the ranker.
        whole: Whether it learns from all programs that every device ran, instead of some of each
            group: what other devices took is then known of all that are judged.
        swapped: Whether it is told, in place of the tested device, of the one least like it.
        options: Of the ranker.
    """

    def score(case: Case) -> Scores:
        ranker = _trained(name, whole, case, options)
        tested = [_swapped(group, case) for group in case.test] if swapped else case.test
        return {
            given.key: np.asarray(score_group(ranker, group), np.float64)
            for given, group in zip(case.test, tested, strict=True)
        }

    return score


_TRAINED: dict[str, tuple[Case, Ranker]] = {}
"""Of the case at hand: controls ask the very ranker that was judged before."""


def _trained(name: str, whole: bool, case: Case, options: Mapping[str, Any]) -> Ranker:
    if any(known is not case for known, _ in _TRAINED.values()):
        _TRAINED.clear()
    key = repr((name, whole, sorted(options.items())))
    if key not in _TRAINED:
        ranker = rankers.create(name, seed=case.seed, **options)
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


def told_nothing(rival: Rival) -> Rival:
    """The rival, to which all variants are the same machine."""

    def score(case: Case) -> Scores:
        one = case.train[0]

        def alike(groups: Sequence[Group]) -> tuple[Group, ...]:
            return tuple(replace(g, machine=one.machine, device=one.device) for g in groups)

        return rival(replace(case, train=alike(case.train), common=(), test=alike(case.test)))

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


# Figures


def judged(scores: Mapping[str, Floats], case: Case, picks: int) -> Entries:
    """Of each tested group, the best over the best of the first picks."""
    found = []
    for group in case.test:
        rng = np.random.default_rng([case.seed, zlib.crc32(group.key.encode())])
        shuffled = rng.permutation(len(group))
        keys = np.nan_to_num(scores[group.key], nan=-np.inf)[shuffled]
        order = shuffled[np.argsort(-keys, kind="stable")]
        best = float(group.seconds.min())
        ratios = {
            f"top{k}": best / float(group.seconds[order[:k]].min()) for k in sorted({1, 5, picks})
        }
        found.append({"workload": group.workload, "kind": group.kind, **ratios})
    return found


Cells = Mapping[str, Mapping[str, Mapping[str, Entries]]]
"""Rival -> device -> seed -> what was judged."""


def figures(cells: Cells, metric: str) -> dict[str, dict[str, float]]:
    """Rival -> device -> mean over seeds and workloads; ``"mean"`` of devices, and its spread."""
    found: dict[str, dict[str, float]] = {}
    for name, by_device in cells.items():
        rows = {
            device: [float(np.mean([one[metric] for one in own])) for own in seeds.values()]
            for device, seeds in by_device.items()
        }
        whole = np.mean(list(rows.values()), axis=0)
        found[name] = {
            **{device: float(np.mean(values)) for device, values in rows.items()},
            "mean": float(np.mean(whole)),
            "spread": float(np.ptp(whole)),
        }
    return found


def gain(cells: Cells, name: str, other: str, metric: str) -> dict[str, float]:
    """By how much one rival is better than another: mean over all, interval over workloads."""
    sides: list[dict[tuple[str, str], float]] = []
    for rival in (name, other):
        every: dict[tuple[str, str], list[float]] = {}
        for device, seeds in cells[rival].items():
            for one in (one for own in seeds.values() for one in own):
                every.setdefault((one["workload"], device), []).append(one[metric])
        sides.append({key: float(np.mean(values)) for key, values in every.items()})
    keys = sorted(sides[0])
    found = Bootstrap([workload for workload, _ in keys])
    return found.mean([sides[0][key] - sides[1][key] for key in keys])


def by_operator(cells: Cells, metric: str) -> dict[str, dict[str, float]]:
    """Rival -> operator kind -> mean over workloads, seeds and devices."""
    found: dict[str, dict[str, float]] = {}
    for name, by_device in cells.items():
        each: dict[str, list[float]] = {}
        for seeds in by_device.values():
            for one in (one for own in seeds.values() for one in own):
                each.setdefault(one["kind"], []).append(one[metric])
        found[name] = {kind: float(np.mean(values)) for kind, values in sorted(each.items())}
    return found
