"""What a ranker must beat: picking at random.

The figures of a random order are expectations, computed exactly. Drawn without replacement, the
best of k of n programs is the i-th fastest with the probability that the others drawn are slower:
C(n - i, k - 1) / C(n, k). After k picks, random order has the best of k random draws: the curve of
this floor says how many random measurements the first pick of a model is worth.

The order in which a data set stores its programs is no floor: files are often sorted by time.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from foretune.evaluate.metrics import (
    NDCG_AT,
    PICKS,
    FloatArray,
    GroupMetrics,
    discounts,
    from_curves,
    ideal_gain,
    labels,
)


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
