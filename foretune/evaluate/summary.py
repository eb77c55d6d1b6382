"""From judged groups to figures with intervals.

Intervals come from a bootstrap over workloads: all hardware variants of a workload are drawn
together, because they are not independent evidence. Where every group has a workload of its own,
that is the ordinary bootstrap over groups. All metrics share the same resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._interval import interval
from foretune.evaluate import metrics
from foretune.evaluate.metrics import PICKS, GroupMetrics

if TYPE_CHECKING:
    from foretune.dataset import Group

RESAMPLES = 2000
REPORTED = (1, 5)
"""Numbers of picks of the top-k figures."""
CURVE = tuple(k for k in PICKS if k != 5)
"""Numbers of picks of the curve: powers of two."""
DEFINITIONS = {
    "topK": "best / best of the first K picks, mean over groups",
    "topK_pooled": "sum of weight x best / sum of weight x best of the first K picks",
    "topK_per_network": "topK_pooled of each network, mean over networks; a group without: topK",
    "topK_running": "mean over the first K picks of best / best so far, groups by their programs",
    "pair_accuracy": "share of pairs in the right order; equal scores count one half",
    "kendall_tau": "tau-b; failures are slower than everything that ran",
    "ndcg16": "gain = best / seconds (0 for a failure), discount log2, first 16 picks",
    "share_of_best": "best / best of the first picks, mean over groups",
    "regret": "seconds of the best of the first picks / best - 1, mean over groups",
    "low, high": "95 % bootstrap over workloads",
}
"""What the figures mean, for whoever reads the JSON object only."""
Statistic = Callable[[FloatArray], FloatArray]
"""Draws of shape (r, g) to r values."""


class Bootstrap:
    """Resamples of groups, drawn once.

    Args:
        workloads: Of each group, its workload.
        seed: Seeds the resamples.
        resamples: How many.
    """

    def __init__(self, workloads: Sequence[str], seed: int = 0, resamples: int = RESAMPLES) -> None:
        of_group = np.unique(list(workloads), return_inverse=True)[1]
        count = int(of_group.max()) + 1
        rng = np.random.default_rng(seed)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        self._draws = drawn[:, of_group].astype(np.float64)
        self._once = np.ones((1, len(of_group)))

    def interval(self, statistic: Statistic) -> dict[str, float]:
        """``mean`` (the figure itself) with ``low`` and ``high`` of its 95 % interval."""
        low, high = interval(statistic(self._draws))
        return {"mean": float(statistic(self._once)[0]), "low": low, "high": high}

    def mean(self, values: Sequence[float] | FloatArray) -> dict[str, float]:
        """The interval of a mean over groups, one value each."""
        array = np.asarray(values, dtype=np.float64)
        return self.interval(lambda draws: metrics.mean_of(array, draws))


def summarise(
    groups: Sequence[Group], judged: Sequence[GroupMetrics], bootstrap: Bootstrap
) -> dict[str, dict[str, float]]:
    """Every metric by name, as ``mean``, ``low`` and ``high``.

    Args:
        groups: At least one.
        judged: Of each group.
        bootstrap: Made for these groups.
    """
    metrics = {f"top{k}": bootstrap.mean(_at([one.ratio for one in judged], k)) for k in REPORTED}
    for name in ("pair_accuracy", "kendall_tau", "ndcg16"):
        metrics[name] = bootstrap.mean([getattr(one, name) for one in judged])
    for k in REPORTED:
        metrics |= _other_definitions(groups, judged, bootstrap, k)
    return metrics


def curve(judged: Sequence[GroupMetrics], bootstrap: Bootstrap) -> list[dict[str, Any]]:
    """What is found after n picks: list of ``picks, share_of_best, regret``.

    ``share_of_best`` is best / best so far; ``regret`` is seconds of the best so far / best - 1.
    """
    best = _best(judged)
    return [
        {
            "picks": k,
            "share_of_best": bootstrap.mean(_at([one.ratio for one in judged], k)),
            "regret": bootstrap.mean(_at([one.picked_s for one in judged], k) / best - 1),
        }
        for k in CURVE
    ]


def _other_definitions(
    groups: Sequence[Group], judged: Sequence[GroupMetrics], bootstrap: Bootstrap, k: int
) -> dict[str, dict[str, float]]:
    best, picked = _best(judged), _at([one.picked_s for one in judged], k)
    ratio = _at([one.ratio for one in judged], k)
    running = _at([one.running for one in judged], k)
    weight = np.array([group.weight for group in groups], dtype=np.float64)
    programs = np.array([len(group) for group in groups], dtype=np.float64)
    networks = [networks_of(group) for group in groups]
    return {
        f"top{k}_pooled": bootstrap.interval(
            lambda draws: metrics.top_pooled(best, picked, weight, draws)
        ),
        f"top{k}_per_network": bootstrap.interval(
            lambda draws: metrics.top_per_network(best, picked, ratio, weight, networks, draws)
        ),
        f"top{k}_running": bootstrap.interval(
            lambda draws: metrics.top_running(running, programs, draws)
        ),
    }


def _best(judged: Sequence[GroupMetrics]) -> FloatArray:
    return np.array([one.best_s for one in judged], dtype=np.float64)


def _at(vectors: Sequence[FloatArray], k: int) -> FloatArray:
    return np.array([vector[PICKS.index(k)] for vector in vectors], dtype=np.float64)


def networks_of(group: Group) -> tuple[str, ...]:
    """The networks a group counts for; none if it belongs to none that is known.

    The same network on other hardware is another one: its seconds have another scale.
    """
    return tuple(f"{name}@{group.hardware}" for name in group.networks)
