"""What many paired runs say: geometric-mean ratios with bootstrap intervals.

Runs are paired: two strategies are compared on the same workload with the same seed, in readings
that were interleaved. The interval comes from a two-level bootstrap, workloads first and seeds
within each, because the seeds of one workload are not independent evidence about other workloads.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune._interval import interval

Pairs = Mapping[str, Sequence[float]]
"""Workload key to the log ratios of its seeds."""

RESAMPLES = 2000


def trial_budgets(trials: int) -> list[int]:
    """The trial counts at which strategies are compared: 8, 16, 32... and ``trials`` itself."""
    budgets = [8 << i for i in range(20) if 8 << i < trials]
    return [*budgets, trials]


def best_at(run: Mapping[str, Any], trials: int) -> float | None:
    """Seconds per call of what a run would have returned after ``trials`` trials.

    Before its first valid candidate a run returns the untuned program.
    """
    best = run["untuned_s"]
    for count, _elapsed, seconds in run["curve"]:
        if count > trials:
            break
        best = seconds
    return None if best is None else float(best)


def went_to(run: Mapping[str, Any], trials: int) -> bool:
    """Whether a run was given so many trials: beyond its own it is compared with nobody."""
    return trials <= int(run.get("budget", trials))


def geometric_mean(
    pairs: Pairs, rng: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Geometric mean of ratios with its 95 % two-level bootstrap interval.

    Args:
        pairs: Log ratios by workload, at least one.
        rng: Source of the resamples.
        resamples: How many.

    Returns:
        Mean, low, high.
    """
    sizes = np.array([len(values) for values in pairs.values()])
    padded = np.zeros((len(sizes), sizes.max()))
    for row, values in zip(padded, pairs.values(), strict=True):
        row[: len(values)] = values
    mean = float(np.exp(padded.sum() / sizes.sum()))
    # All resamples at once, as tables have hundreds of these: groups, then seeds of each.
    groups = rng.integers(0, len(sizes), (resamples, len(sizes)))
    drawn = sizes[groups][..., np.newaxis]
    seeds = rng.integers(0, drawn, (*groups.shape, sizes.max()))
    taken = padded[groups[..., np.newaxis], seeds] * (np.arange(sizes.max()) < drawn)
    means = taken.sum(axis=(1, 2)) / drawn.sum(axis=(1, 2))
    low, high = np.exp(interval(means))
    return mean, float(low), float(high)


def sitting(run: Mapping[str, Any]) -> tuple[str, int, float]:
    """Workload, seed, and when the run's programs were measured side by side with others'.

    Runs that have all three in common may be compared. Those of another call, perhaps of another
    machine, may have the same workload and seed, but their seconds are no match.
    """
    return run["key"], run["seed"], float(run.get("compared", 0.0))


def side_name(run: Mapping[str, Any], crossed: bool = False) -> str:
    """What a run's side is called.

    Its strategy, with the cost model where several are crossed, and ``@N`` where it was given a
    batch of ``N``.
    """
    batch = f"@{run['batch']}" if "batch" in run else ""
    model = f"+{run['cost_model']}" if crossed else ""
    return f"{run['strategy']}{model}{batch}"


def summarise(
    runs: Sequence[Mapping[str, Any]], trials: int, rng: np.random.Generator
) -> dict[str, Any]:
    """The ``summary`` of the bench's JSON object.

    Returns:
        ``speedup``: list of ``strategy, over, trials, ratio, low, high, pairs``, where a ratio
        above 1 means that ``strategy`` found faster programs than ``over``; ``trials_per_s``: the
        same for measured trials per second; ``over_untuned``: list of ``strategy, trials, ratio,
        low, high, pairs`` against the untuned programs.
    """
    models: dict[str, set[str]] = {}
    for run in runs:
        models.setdefault(run["strategy"], set()).add(run["cost_model"])
    crossed = any(len(known) > 1 for known in models.values())
    table: dict[str, dict[tuple[str, int, float], Mapping[str, Any]]] = {}
    for run in runs:
        table.setdefault(side_name(run, crossed), {})[sitting(run)] = run
    speedup, rates, over_untuned = [], [], []
    for one, other in itertools.permutations(table, 2):
        both = sorted(table[one].keys() & table[other].keys())
        for budget in trial_budgets(trials):
            ratios = _log_ratios(
                [(k[0], best_at(table[other][k], budget), best_at(table[one][k], budget))
                 for k in both if all(went_to(table[side][k], budget) for side in (one, other))]
            )  # fmt: skip
            speedup += _row({"strategy": one, "over": other, "trials": budget}, ratios, rng)
        ratios = _log_ratios(
            [(k[0], table[one][k]["trials_per_s"], table[other][k]["trials_per_s"]) for k in both]
        )
        rates += _row({"strategy": one, "over": other}, ratios, rng)
    for side, by_key in table.items():
        for budget in trial_budgets(trials):
            ratios = _log_ratios(
                [(k[0], run["untuned_s"], best_at(run, budget))
                 for k, run in by_key.items() if went_to(run, budget)]
            )  # fmt: skip
            over_untuned += _row({"strategy": side, "trials": budget}, ratios, rng)
    return {"speedup": speedup, "trials_per_s": rates, "over_untuned": over_untuned}


def _log_ratios(
    triples: Sequence[tuple[str, float | None, float | None]],
) -> dict[str, list[float]]:
    ratios: dict[str, list[float]] = {}
    for workload, above, below in triples:
        if above and below:
            ratios.setdefault(workload, []).append(float(np.log(above / below)))
    return ratios


def _row(names: dict[str, Any], ratios: Pairs, rng: np.random.Generator) -> list[dict[str, Any]]:
    if not ratios:
        return []
    mean, low, high = geometric_mean(ratios, rng)
    pairs = sum(len(values) for values in ratios.values())
    return [{**names, "ratio": mean, "low": low, "high": high, "pairs": pairs}]
