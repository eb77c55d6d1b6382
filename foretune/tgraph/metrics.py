"""How well scores order the configurations of a graph.

Symbols: s the score of a configuration, higher is slower; r its run time; n configurations. P pairs
are in the order of their run times, Q in the other; pairs with equal scores or run times are in
neither.

=================  ==========================================================================
tau                (P - Q) / sqrt(pairs with different s · pairs with different r): Kendall's
                   tau-b, as the data set and the released code compute it
tau_a              (P - Q) / all pairs: equation 9 of the paper
opa                P / pairs with different r: ordered-pair accuracy of the data set
slowdownK          fastest of the K best-scored / fastest of all - 1
m_tile             2 - fastest of the 5 best-scored / fastest of all: equation 10
=================  ==========================================================================

Of equal scores the slower ones count as scored better, so that a model that says nothing, or a file
that is sorted by run time, flatters nobody. What is not defined, an order of equal run times, is
NaN.

Source: Tatarkhanov et al., TGraph (2025), section 2.5.2; Phothilimthana et al., TpuGraphs (2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from foretune._arrays import FloatArray, IndexArray

LAYOUT_PICKS = (1, 10, 100)
TILE_PICKS = (1, 5, 10)
_TILE_AT = 5
_RESAMPLES = 2000


def layout_metrics(scores: FloatArray, runtime: FloatArray) -> dict[str, float]:
    """``tau, tau_a, opa, slowdown1, slowdown10, slowdown100`` of one graph; both of shape (n,)."""
    tau, tau_a, opa = agreement(scores, runtime)
    picks = {f"slowdown{k}": slowdown(scores, runtime, k) for k in LAYOUT_PICKS}
    return {"tau": tau, "tau_a": tau_a, "opa": opa, **picks}


def tile_metrics(scores: FloatArray, runtime: FloatArray) -> dict[str, float]:
    """``m_tile, slowdown1, slowdown5, slowdown10, tau`` of one kernel; both of shape (n,)."""
    picks = {f"slowdown{k}": slowdown(scores, runtime, k) for k in TILE_PICKS}
    tau = agreement(scores, runtime)[0]
    return {"m_tile": 1.0 - slowdown(scores, runtime, _TILE_AT), **picks, "tau": tau}


def agreement(scores: FloatArray, runtime: FloatArray) -> tuple[float, float, float]:
    """tau-b, tau-a and ordered-pair accuracy, each NaN if all run times are equal.

    Args:
        scores: float64 of shape (n,), finite.
        runtime: float64 of shape (n,).
    """
    s, r = (np.unique(values, return_inverse=True)[1] for values in (scores, runtime))
    pairs = len(s) * (len(s) - 1) // 2
    differ_s, differ_r = pairs - _tied(s), pairs - _tied(r)
    if not differ_r:
        return float("nan"), float("nan"), float("nan")
    if not differ_s:
        return 0.0, 0.0, 0.0
    tau = float(stats.kendalltau(s, r).statistic)
    surplus = round(tau * np.sqrt(differ_s) * np.sqrt(differ_r))
    both = _tied(s * (r.max() + 1) + r)
    compared = differ_s + differ_r - pairs + both
    return tau, surplus / pairs, (compared + surplus) / 2 / differ_r


def slowdown(scores: FloatArray, runtime: FloatArray, picks: int) -> float:
    """Fastest of the ``picks`` best-scored over fastest of all, minus 1."""
    order = np.lexsort((-runtime, scores))
    return float(runtime[order[:picks]].min() / runtime.min() - 1.0)


def interval(values: Sequence[float], seed: int = 0) -> dict[str, float]:
    """``mean`` over graphs with ``low`` and ``high``, its 95 % bootstrap interval; NaN left out."""
    known = np.array([value for value in values if not np.isnan(value)])
    if not len(known):
        return dict.fromkeys(("mean", "low", "high"), float("nan"))
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(known), size=(_RESAMPLES, len(known)))
    low, high = np.percentile(known[drawn].mean(axis=1), [2.5, 97.5])
    return {"mean": float(known.mean()), "low": float(low), "high": float(high)}


def _tied(ranks: IndexArray) -> int:
    """Pairs of equal numbers."""
    counts = np.unique(ranks, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())
