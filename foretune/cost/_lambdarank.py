"""RankNet's gradients for programs of several workloads, pairs weighted by their seconds.

Idea: a pair of programs of one workload pulls the scores apart with the force
``w_ij * sigmoid(s_j - s_i)``, where ``i`` is the faster of the two (RankNet; Burges, 2010, section
2). A pair weighs how many times slower the wrong choice would be,
``w_ij = min(|log2 t_i - log2 t_j|, cap)``: with a few dozen noisy measurements, pairs that differ
clearly are the ones to get right. Unlike LambdaRank's, these weights do not depend on the scores,
so that the loss does not look at what the model puts on top: ``foretune.cost._listwise`` does.

Symbols: ``t`` seconds, ``s`` scores, both of shape (n,); ``levels`` is minus log2 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array, FloatArray, IndexArray

_CAP = 2.0
"""Weight of a pair at most: beyond four times slower it is simply slower."""
_MIN_HESSIAN = 1e-6

Gradients = tuple[FloatArray, FloatArray]
Objective = Callable[[Array, Any], Gradients]


def lambda_objective(
    levels: Sequence[FloatArray],
    opponents: int,
    rng: np.random.Generator,
    importance: Sequence[FloatArray] | None = None,
    trust: Sequence[FloatArray] | None = None,
) -> Objective:
    """An XGBoost objective over the rows of several workloads, one after the other.

    Args:
        levels: Per workload minus log2 seconds, shape (n_i,).
        opponents: Pairs drawn per program; all pairs where a workload has no more programs.
        rng: Draws the pairs.
        importance: Per workload a factor of shape (n_i,); a pair weighs as much more as its faster
            program is important. All alike if None.
        trust: Per workload a factor of shape (n_i,) by how reliable a reading is; a pair has the
            product of its programs' and, other than by importance, counts the less for it. 1 if
            None.

    Returns:
        A function from scores, shape (sum n_i,), to gradients and Hessians of that shape.
    """
    faster, slower, weights = [], [], []
    start = 0
    for at, level in enumerate(levels):
        i, j = _pairs(len(level), opponents, rng)
        i, j = np.where(level[i] >= level[j], i, j), np.where(level[i] >= level[j], j, i)
        weight = np.minimum(level[i] - level[j], _CAP)
        if importance is not None:
            weight = weight * importance[at][i]
        # Every program counts the same on average, whatever the spread of its workload.
        total = weight.sum()
        weight = weight * (len(level) / total) if total > 0 else weight
        weights.append(weight if trust is None else weight * trust[at][i] * trust[at][j])
        faster.append(i + start)
        slower.append(j + start)
        start += len(level)
    i, j, w = np.concatenate(faster), np.concatenate(slower), np.concatenate(weights)

    def objective(scores: Array, _data: Any) -> Gradients:
        s = scores.astype(np.float64)
        wrong = 1.0 / (1.0 + np.exp(np.clip(s[i] - s[j], -30.0, 30.0)))
        force, curvature = w * wrong, w * wrong * (1.0 - wrong)
        gradient: FloatArray = np.subtract(
            np.bincount(j, force, start), np.bincount(i, force, start), dtype=np.float64
        )
        hessian = np.bincount(i, curvature, start) + np.bincount(j, curvature, start)
        return gradient, np.maximum(hessian, _MIN_HESSIAN)

    return objective


def _pairs(n: int, opponents: int, rng: np.random.Generator) -> tuple[IndexArray, IndexArray]:
    if n - 1 <= opponents:
        return np.triu_indices(n, 1)
    i = np.repeat(np.arange(n), max(1, opponents // 2))
    # An offset from 1 to n - 1 never pairs a program with itself.
    j = (i + rng.integers(1, n, size=len(i))) % n
    return i, j
