"""How well scores order the measured programs of one workload on one hardware.

Three definitions of "top-k" circulate in the literature; all stand here under names of their own,
because their values differ by several points on the same predictions:

``top_pooled``
    sum of weight x best over sum of weight x best of the first k picks, over all groups: equation 5
    of the LLMTuner paper, and TLP's evaluation. Heavy workloads decide it. Where picks are a matter
    of chance, the sum below is its expectation.
``top_per_network``
    the same ratio for each network, then averaged: TenSet's evaluation on whole networks. A group
    of no network is one of its own, and has its plain ratio.
``top_running``
    mean over the first k picks of best / best so far, averaged over groups by their number of
    programs: TenSet's peak score.

Beside them stands the plain mean over groups of best / best of the first k picks, which the command
line reports as ``top1`` and ``top5``: every group counts alike.

Symbols: a group has n programs with seconds of shape (n,), NaN where one failed; its label is
fastest / seconds, 0 for a failure (TenSet). A *pick* is the program a ranker would measure next;
"after k picks" is what a tuner would have that measured the k best-scored programs. A pick that
failed is a wasted one; where all k failed, the ratio is 0, and where seconds are needed, the
group's slowest program stands in, as infinite seconds would be all that a sum shows.

Equal scores, and NaN, which ranks last, say nothing about order, and neither must the order of the
file, which is often sorted by time: programs are shuffled first, and where scores are equal, the
figures are means over several shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from foretune._arrays import FloatArray, IndexArray
from foretune.dataset import judgeable

PICKS = (1, 2, 4, 5, 8, 16, 32, 64)
"""Numbers of picks at which a group is judged."""
NDCG_AT = 16
_SHUFFLES = 32


@dataclass(frozen=True)
class GroupMetrics:
    """One group, judged. Vectors have one entry for each of ``PICKS``.

    Attributes:
        programs: Number of programs, failures included.
        best_s: Seconds of the fastest one.
        picked_s: Seconds of the fastest of the first k picks, expected over equal scores.
        ratio: Fastest / that, in [0, 1].
        running: Mean over the first k picks of the ratio so far.
        pair_accuracy: Share of pairs with different seconds that the scores order rightly; a pair
            of equal scores counts one half.
        kendall_tau: Kendall's tau-b; 0 where all scores are equal.
        ndcg16: Normalised discounted cumulative gain of the first 16 picks, with the label as gain
            and 1 / log2(rank + 1) as discount.
    """

    programs: int
    best_s: float
    picked_s: FloatArray
    ratio: FloatArray
    running: FloatArray
    pair_accuracy: float
    kendall_tau: float
    ndcg16: float


def labels(seconds: FloatArray) -> FloatArray:
    """Fastest / seconds, float64 of shape (n,); 0 for a failure."""
    return np.asarray(np.nan_to_num(np.nanmin(seconds) / seconds, nan=0.0), dtype=np.float64)


def ranking(scores: FloatArray, rng: np.random.Generator) -> IndexArray:
    """Indices of the programs, the best-scored first; equal scores in random order, NaN last."""
    shuffled = rng.permutation(len(scores))
    order = np.argsort(-_ordered(scores)[shuffled], kind="stable")
    return np.asarray(shuffled[order], dtype=np.intp)


def judge(
    scores: FloatArray, seconds: FloatArray, rng: np.random.Generator, shuffles: int = _SHUFFLES
) -> GroupMetrics:
    """Judges the scores of one group.

    Args:
        scores: float64 of shape (n,), higher is faster.
        seconds: float64 of shape (n,), NaN for a failure.
        rng: Orders equal scores.
        shuffles: Over how many orders of equal scores the figures are averaged.

    Raises:
        ValueError: Shapes differ, or the group is not ``judgeable``.
    """
    if scores.shape != seconds.shape or seconds.ndim != 1:
        raise ValueError(f"one score per program is needed: {scores.shape} and {seconds.shape}")
    if not judgeable(seconds):
        raise ValueError("a group needs two programs with different seconds to be judged")
    distinct = len(np.unique(_ordered(scores))) == len(scores)
    orders = np.stack([ranking(scores, rng) for _ in range(1 if distinct else shuffles)])
    best = float(np.nanmin(seconds))
    # NaN until a pick ran.
    so_far = np.fmin.accumulate(seconds[orders], axis=1)[:, : PICKS[-1]]
    picked = np.nan_to_num(so_far, nan=float(np.nanmax(seconds)))
    accuracy, tau = agreement(scores, seconds)
    return from_curves(
        seconds,
        picked.mean(axis=0),
        np.nan_to_num(best / so_far, nan=0.0).mean(axis=0),
        accuracy,
        tau,
        float(gain(labels(seconds)[orders]).mean() / ideal_gain(seconds)),
    )


def from_curves(
    seconds: FloatArray,
    picked_s: FloatArray,
    ratio: FloatArray,
    pair_accuracy: float,
    kendall_tau: float,
    ndcg16: float,
) -> GroupMetrics:
    """The metrics of a group from what it has after 1, 2, 3... picks.

    Args:
        seconds: float64 of shape (n,).
        picked_s: Seconds of the best pick so far, shape (min(n, PICKS[-1]),) or longer.
        ratio: Fastest / best pick so far, the same shape.
        pair_accuracy, kendall_tau, ndcg16: As they are.
    """
    at = np.minimum(PICKS, len(picked_s)) - 1
    running = np.cumsum(ratio) / np.arange(1, len(ratio) + 1)
    return GroupMetrics(
        len(seconds),
        float(np.nanmin(seconds)),
        picked_s[at],
        ratio[at],
        running[at],
        pair_accuracy,
        kendall_tau,
        ndcg16,
    )


def average(judged: Sequence[GroupMetrics]) -> GroupMetrics:
    """The mean of several judgements of one group, by models of different seeds."""
    return GroupMetrics(
        judged[0].programs,
        judged[0].best_s,
        np.mean([one.picked_s for one in judged], axis=0),
        np.mean([one.ratio for one in judged], axis=0),
        np.mean([one.running for one in judged], axis=0),
        float(np.mean([one.pair_accuracy for one in judged])),
        float(np.mean([one.kendall_tau for one in judged])),
        float(np.mean([one.ndcg16 for one in judged])),
    )


def agreement(scores: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """Pair accuracy and tau-b of scores, shape (n,); failures are slower than all that ran."""
    given = _ranks(_ordered(scores))
    truth = _ranks(_ordered(-seconds))
    untied_given, untied_truth = _untied(given), _untied(truth)
    if not untied_given:
        return 0.5, 0.0
    tau = float(stats.kendalltau(given, truth).statistic)
    # Pairs in order minus pairs out of order; those with equal scores are in neither.
    surplus = tau * np.sqrt(untied_given) * np.sqrt(untied_truth)
    return float((1 + surplus / untied_truth) / 2), tau


def gain(label: FloatArray) -> FloatArray:
    """Discounted cumulative gain of labels in the order of the picks, shape (..., n) -> (...)."""
    first = label[..., :NDCG_AT]
    return np.asarray(first @ discounts(first.shape[-1]), dtype=np.float64)


def ideal_gain(seconds: FloatArray) -> float:
    """The same of the right order."""
    return float(gain(np.sort(labels(seconds))[::-1]))


def discounts(count: int) -> FloatArray:
    """What a gain at rank 1, 2... ``count`` is multiplied by."""
    return np.asarray(1.0 / np.log2(np.arange(2, count + 2)), dtype=np.float64)


# Over groups. ``draws``, float64 of shape (r, g), says how often each of g groups counts in each of
# r resamples; one row of ones gives the plain figure. Every function returns shape (r,).


def mean_of(values: FloatArray, draws: FloatArray) -> FloatArray:
    """The mean over groups of ``values``, shape (g,)."""
    return np.asarray(draws @ values / draws.sum(axis=1), dtype=np.float64)


def top_pooled(
    best_s: FloatArray, picked_s: FloatArray, weight: FloatArray, draws: FloatArray
) -> FloatArray:
    """Sum of weight x best over sum of weight x best pick; vectors have shape (g,)."""
    bottom = draws @ (weight * picked_s)
    return np.asarray(draws @ (weight * best_s) / bottom, dtype=np.float64)


def top_per_network(
    best_s: FloatArray,
    picked_s: FloatArray,
    ratio: FloatArray,
    weight: FloatArray,
    networks: Sequence[Sequence[str]],
    draws: FloatArray,
) -> FloatArray:
    """``top_pooled`` of each network, then the mean over networks.

    Seconds are expected ones where scores are equal or several models were judged, so that the sum
    of a network is what it takes on average. A group of no network is not summed with anything: it
    has the expected ratio, as in the plain mean. Best over expected seconds would be less.

    Args:
        best_s, picked_s, ratio, weight: Of shape (g,).
        networks: Of each group, the networks it counts for; none for a network of its own.
        draws: Of shape (r, g). A network whose groups are not drawn is left out of that mean; a
            group that is its own network counts as often as it is drawn.
    """
    names = sorted({name for each in networks for name in each})
    member = np.array([[name in each for name in names] for each in networks], dtype=np.float64)
    top = draws @ (member * (weight * best_s)[:, None])
    bottom = draws @ (member * (weight * picked_s)[:, None])
    present = bottom > 0
    ratios = np.divide(top, bottom, out=np.zeros_like(top), where=present)
    alone = draws * np.array([not each for each in networks])
    total = ratios.sum(axis=1) + alone @ ratio
    return np.asarray(total / (present.sum(axis=1) + alone.sum(axis=1)), dtype=np.float64)


def top_running(running: FloatArray, programs: FloatArray, draws: FloatArray) -> FloatArray:
    """The mean of ``running`` by number of programs; vectors have shape (g,)."""
    return np.asarray(draws @ (running * programs) / (draws @ programs), dtype=np.float64)


def _ordered(values: FloatArray) -> FloatArray:
    return np.where(np.isnan(values), -np.inf, values)


def _ranks(values: FloatArray) -> IndexArray:
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.intp)


def _untied(ranks: IndexArray) -> int:
    """The number of pairs whose ranks differ."""
    n, counts = len(ranks), np.bincount(ranks)
    return int(n * (n - 1) // 2 - (counts * (counts - 1) // 2).sum())
