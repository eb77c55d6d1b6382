"""What is lost where only the first K programs of a group are looked at further.

A first stage keeps K programs of hundreds. If the fastest is not among them nothing behind brings
it back; but one that is hardly slower will do. So each K has two recalls: of the fastest, and of
any that is within a share of it; both with what K drawn at random have, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray

WITHIN = 0.02
"""Slower than the fastest by at most this share counts as good as it."""


@dataclass(frozen=True)
class Recall:
    """What the first K programs of a group hold.

    Attributes:
        kept: K.
        best: Whether the fastest is among them.
        near: Whether one within ``WITHIN`` of the fastest is.
        ratio: Fastest of the group over the fastest of them, in (0, 1]; 0 if all of them failed.
        random_best, random_near: How likely the same is for K drawn at random.
    """

    kept: int
    best: float
    near: float
    ratio: float
    random_best: float
    random_near: float


def recalls(
    scores: FloatArray, seconds: FloatArray, kept: Sequence[int], rng: np.random.Generator
) -> list[Recall]:
    """What is kept of a group by its scores.

    Args:
        scores: Of n programs, higher is better; NaN comes last.
        seconds: Shape (n,), NaN for a failure; at least one is a number.
        kept: Numbers of programs that are kept.
        rng: Orders equal scores.
    """
    n = len(seconds)
    shuffled = rng.permutation(n)
    keys = np.nan_to_num(scores, nan=-np.inf)[shuffled]
    order = shuffled[np.argsort(-keys, kind="stable")]
    fastest = float(np.nanmin(seconds))
    time = np.nan_to_num(seconds, nan=np.inf)
    near = int((time <= (1.0 + WITHIN) * fastest).sum())
    best = int((time <= fastest).sum())
    found = []
    for count in kept:
        first = float(time[order[:count]].min())
        found.append(
            Recall(
                kept=count,
                best=float(first <= fastest),
                near=float(first <= (1.0 + WITHIN) * fastest),
                ratio=fastest / first,
                random_best=_one_of(best, count, n),
                random_near=_one_of(near, count, n),
            )
        )
    return found


def _one_of(wanted: int, drawn: int, n: int) -> float:
    """How likely one of ``wanted`` is among ``drawn`` of n."""
    missed = 1.0
    for at in range(min(drawn, n)):
        missed *= max(0, n - wanted - at) / (n - at)
    return 1.0 - missed
