"""What a ranker must beat: picking at random, and picking what was best elsewhere.

The figures of a random order are expectations, computed exactly. Drawn without replacement, the
best of k of n programs is the i-th fastest with the probability that the others drawn are slower:
C(n - i, k - 1) / C(n, k). After k picks, random order has the best of k random draws: the curve of
this floor says how many random measurements the first pick of a model is worth.

The order in which a data set stores its programs is no floor: files are often sorted by time.

Where a workload was measured on several devices, its programs that ran on all of them have an order
without any model: that of the geometric mean of their seconds on the other devices. A model for
unseen hardware is worth what it knows beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from foretune._arrays import FloatArray, IndexArray
from foretune.evaluate.metrics import (
    NDCG_AT,
    PICKS,
    GroupMetrics,
    discounts,
    from_curves,
    ideal_gain,
    labels,
)

if TYPE_CHECKING:
    from foretune.dataset import Group

COMMON_PROGRAMS = 20
"""Of a workload, at least so many that all devices ran: of fewer, any order is good."""


def random_order(seconds: FloatArray) -> GroupMetrics:
    """The metrics that a random order has on average.

    Args:
        seconds: float64 of shape (n,), NaN for a failure; two of them valid and different.
    """
    chances = best_of_draws(len(seconds), min(len(seconds), PICKS[-1]))
    slowest = float(np.nanmax(seconds))
    label = labels(seconds)
    gain = float(label.mean() * discounts(min(len(seconds), NDCG_AT)).sum())
    return from_curves(
        seconds,
        # Failures behind all that ran, with the seconds that stand in for them.
        chances @ np.sort(np.nan_to_num(seconds, nan=slowest)),
        chances @ np.sort(label)[::-1],
        pair_accuracy=0.5,
        kendall_tau=0.0,
        ndcg16=gain / ideal_gain(seconds),
    )


def best_of_draws(programs: int, most: int) -> FloatArray:
    """Chances that the best of 1, 2... ``most`` random draws is the fastest, the second fastest...

    Returns:
        float64 of shape (most, programs), rows summing to 1.
    """
    drawn = np.arange(1, most + 1, dtype=np.float64)[:, None]
    slower = np.arange(programs - 1, -1, -1, dtype=np.float64)[None, :]
    possible = slower >= drawn - 1
    logs = _log_choose(np.where(possible, slower, drawn - 1), drawn - 1)
    chances = np.where(possible, np.exp(logs - _log_choose(float(programs), drawn)), 0.0)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True), dtype=np.float64)


def _log_choose(n: FloatArray | float, k: FloatArray) -> FloatArray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1), dtype=np.float64)


def common_programs(groups: Sequence[Group], least: int = COMMON_PROGRAMS) -> dict[str, IndexArray]:
    """The programs of each group that ran on all hardware that occurs.

    Args:
        groups: Of several devices; no two of one workload on one device.
        least: A workload with fewer such programs is left out.

    Returns:
        By the key of the group, numbers of its programs, shape (m,), the m-th of every group of a
        workload being the same program; empty where no workload has any.
    """
    devices = {group.hardware for group in groups}
    of_workload: dict[str, list[Group]] = {}
    for group in groups:
        of_workload.setdefault(group.workload, []).append(group)
    found = {}
    for same in of_workload.values():
        if {group.hardware for group in same} != devices:
            continue
        places = [
            {group.programs[i].key: i for i in np.flatnonzero(group.valid).tolist()}
            for group in same
        ]
        keys = [key for key in places[0] if all(key in place for place in places[1:])]
        if len(keys) < least:
            continue
        for group, place in zip(same, places, strict=True):
            found[group.key] = np.array([place[key] for key in keys], dtype=np.intp)
    return found


def best_elsewhere(
    groups: Sequence[Group], common: Mapping[str, IndexArray]
) -> dict[str, FloatArray]:
    """Scores by the other devices: minus the mean log seconds of the same program there.

    Args:
        groups: Those that ``common`` was made of.
        common: By ``common_programs``.

    Returns:
        By the key of the group, float64 of shape (m,), in the order of ``common``.
    """
    logs: dict[str, dict[str, FloatArray]] = {}
    for group in groups:
        if group.key in common:
            seconds = group.seconds[common[group.key]]
            logs.setdefault(group.workload, {})[group.hardware] = np.log(seconds)
    return {
        group.key: -np.mean(
            [s for device, s in logs[group.workload].items() if device != group.hardware], axis=0
        )
        for group in groups
        if group.key in common
    }
