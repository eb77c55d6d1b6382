"""A loss over whole workloads: what the model puts on top is to be what is fastest.

Idea: scores become a distribution over the programs of a workload, and so do their speeds; the loss
is the cross entropy of the two. Pairs of slow programs pull at each other however low they are
scored; here a program pulls by how much of the distribution it holds, now and in truth, so that
trees are spent on what would be measured next.

Symbols: ``q`` is the target, proportional to (fastest / seconds) ** sharpness, 0 for a failure;
``p = softmax(scores)``; both have shape (n,) and sum to 1 in every workload.

Source: ListNet's top-one probability (Cao et al., 2007). Deviation: the target is sharpened, as a
search measures a few programs out of thousands. A workload counts as many times as it has programs,
as in ``foretune.cost._lambdarank``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array, FloatArray, IndexArray
from foretune.cost._lambdarank import Gradients, Objective

SHARPNESS = 4.0
"""Twice as slow is 16 times less likely to be the pick."""
_MIN_HESSIAN = 1e-2


def list_target(
    labels: FloatArray, sharpness: float = SHARPNESS, trust: FloatArray | None = None
) -> FloatArray:
    """The distribution ``q`` of a workload, shape (n,).

    Args:
        labels: Fastest / seconds, 0 for a failure, shape (n,); one of them positive.
        sharpness: Exponent.
        trust: Factor of each program's share, shape (n,); ignored where it leaves nothing.
    """
    share = labels**sharpness
    trusted = share if trust is None else share * trust
    kept = trusted if trusted.sum() > 0 else share
    target: FloatArray = kept / kept.sum()
    return target


def list_objective(targets: Sequence[FloatArray]) -> Objective:
    """An XGBoost objective over the rows of several workloads, one after the other.

    Args:
        targets: ``q`` of each workload, shape (n_i,).

    Returns:
        A function from scores, shape (sum n_i,), to gradients and Hessians of that shape.
    """
    q, starts, sizes = _joined(targets)
    count = np.repeat(sizes, sizes).astype(np.float64)

    def objective(scores: Array, _data: Any) -> Gradients:
        p = np.exp(_log_softmax(scores, starts, sizes))
        return count * (p - q), np.maximum(count * p * (1.0 - p), _MIN_HESSIAN)

    return objective


def cross_entropy(
    targets: Sequence[FloatArray],
) -> Callable[[Array, Any], tuple[str, float]]:
    """A metric of XGBoost's: minus the sum of ``q log p``, the mean over workloads."""
    q, starts, sizes = _joined(targets)

    def metric(scores: Array, _data: Any) -> tuple[str, float]:
        return "cross_entropy", -float(q @ _log_softmax(scores, starts, sizes)) / len(sizes)

    return metric


def _joined(
    targets: Sequence[FloatArray],
) -> tuple[FloatArray, IndexArray, IndexArray]:
    """All targets in a row, and where each begins and how long it is."""
    sizes = np.array([len(target) for target in targets], dtype=np.intp)
    return np.concatenate(targets), np.cumsum(sizes) - sizes, sizes


def _log_softmax(scores: Array, starts: IndexArray, sizes: IndexArray) -> FloatArray:
    s = scores.astype(np.float64)
    s = s - np.repeat(np.maximum.reduceat(s, starts), sizes)
    logs: FloatArray = s - np.repeat(np.log(np.add.reduceat(np.exp(s), starts)), sizes)
    return logs
