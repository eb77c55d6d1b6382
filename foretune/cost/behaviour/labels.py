"""Which programs of a group are good, which are learned from, and what an error weighs (stage 1).

LLMTuner (section on the classifier) calls the fastest ``max(32, 10 %)`` of a workload's valid
programs good and the rest bad, keeps at most twice as many bad ones as good ones, and weighs the
square of an error by ``w = N / N_y``, the number of programs over that of their class. ``N`` and
``N_y`` are counted over all groups that are learned from.

What differs: programs that failed are bad ones and never *valid*; ``"good_borderline_bad"`` is a
sampling of our own. Where bad programs are drawn from everything, most of them are far from the
border, and a model sees few of those that it will have to tell apart; those just behind the good
ones are therefore drawn first.

Symbols: n programs of a group; ``seconds`` of shape (n,), NaN for a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import BoolArray, FloatArray, IndexArray
from foretune.errors import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    from foretune.dataset import Group


LEAST_GOOD = 32
ONE_IN = 10
"""Of larger groups the share that is good."""
MOST_BAD = 2
"""Bad programs per good one, at most."""

SAMPLINGS = ("paper", "good_borderline_bad", "good_only")
"""Which programs of a group are learned from.

``"paper"``: all good ones, and of the bad ones a random part, at most twice as many.
``"good_borderline_bad"``: all good ones, as many of those right behind them, and half as many of
the rest: 2 : 2 : 1. ``"good_only"``: what the paper's second stage is taught with.
"""


def good(seconds: FloatArray) -> BoolArray:
    """The fastest ``max(32, 10 %)`` of the valid programs, shape (n,).

    Ten percent are rounded up; of equal ones the first. All that are valid, where there are no more
    than 32.
    """
    valid = int((~np.isnan(seconds)).sum())
    count = min(valid, max(LEAST_GOOD, -(-valid // ONE_IN)))
    flags = np.zeros(len(seconds), dtype=bool)
    flags[_fastest(seconds)[:count]] = True
    return flags


def sampled(seconds: FloatArray, sampling: str, rng: np.random.Generator) -> IndexArray:
    """Indices of the programs that are learned from, in their order.

    Args:
        seconds: Of a group.
        sampling: One of ``SAMPLINGS``.
        rng: Draws.

    Raises:
        BadInputError: No such sampling.
    """
    if sampling not in SAMPLINGS:
        raise unknown_name("sampling", sampling, SAMPLINGS)
    are_good = good(seconds)
    chosen = np.flatnonzero(are_good)
    count = len(chosen)
    if sampling == "paper":
        chosen = np.concatenate([chosen, _drawn(np.flatnonzero(~are_good), MOST_BAD * count, rng)])
    elif sampling == "good_borderline_bad":
        behind = _fastest(seconds)[count : 2 * count]
        rest = np.ones(len(seconds), dtype=bool)
        rest[chosen] = rest[behind] = False
        far = _drawn(np.flatnonzero(rest), -(-count // 2), rng)
        chosen = np.concatenate([chosen, behind, far])
    return np.sort(chosen)


def lesson(group: Group, sampling: str, seed: int) -> tuple[Group, BoolArray]:
    """The programs of a group that are learned from, and which of these are good.

    Args:
        group: Failures included.
        sampling: One of ``SAMPLINGS``.
        seed: With the group's key it fixes what is drawn.
    """
    rng = np.random.default_rng([seed, *group.key.encode()])
    rows = sampled(group.seconds, sampling, rng)
    return group.subset(rows), good(group.seconds)[rows]


def _fastest(seconds: FloatArray) -> IndexArray:
    """Valid programs, the fastest first."""
    order = np.argsort(seconds, kind="stable")
    return order[: int((~np.isnan(seconds)).sum())]


def _drawn(rows: IndexArray, most: int, rng: np.random.Generator) -> IndexArray:
    return rows if len(rows) <= most else rng.choice(rows, most, replace=False)


@dataclass(frozen=True)
class ClassWeights:
    """``N / N_y`` of both classes; 1 where a class has no program.

    Attributes:
        bad, good: Weights of an error on such a program.
    """

    bad: float = 1.0
    good: float = 1.0

    @classmethod
    def of(cls, labels: Sequence[BoolArray] | BoolArray) -> ClassWeights:
        """Counted over the labels of all groups."""
        joined = np.concatenate([np.atleast_1d(each) for each in labels]).astype(bool)
        total, good_ones = len(joined), int(joined.sum())
        each = (total / count if count else 1.0 for count in (total - good_ones, good_ones))
        return cls(*each)

    def mse(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The mean of ``w (label - score)^2`` of each list, as published: the score itself.

        Args:
            scores, labels, mask: Of shape (lists, longest); labels are 0 and 1.

        Returns:
            Shape (lists,).
        """
        square = self._of(labels) * (scores - labels) ** 2 * mask
        return square.sum(dim=1) / mask.sum(dim=1)

    def bce(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The mean of w times the cross entropy of sigmoid(score), of each list, shape (lists,)."""
        from torch.nn import functional

        lost = functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        return (self._of(labels) * lost * mask).sum(dim=1) / mask.sum(dim=1)

    def _of(self, labels: Tensor) -> Tensor:
        return self.bad + (self.good - self.bad) * labels
