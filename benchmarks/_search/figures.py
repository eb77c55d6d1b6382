"""What runs of a search say, side by side: speed-ups, shares of the best, and when they are there.

Symbols: the *best latency known* of a workload is the lowest reading of any side and seed, whose
readings were interleaved; a run *is near* once its best has a share of it (``NEAR``).

What is not known speaks against the side in question: a run of its that never gets near counts as
twice what it could have spent, one of the side that it is compared with as what it did spend.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretune.bench import Side, best_at, geometric_mean, side_name, side_of, sitting, went_to

NEAR = (0.9, 0.95, 0.99)
"""Shares of the best latency known at which a run is near it."""

Run = Mapping[str, Any]
Rows = list[dict[str, Any]]


def present(runs: Sequence[Run]) -> list[Side]:
    """The sides that made runs, in the order of these."""
    return list(dict.fromkeys(side_of(run) for run in runs))


def label(side: Side) -> str:
    """What a side is called in the tables; weights by the name of their file."""
    if side.is_peer:
        return side.strategy
    batch = "" if side.batch is None else f" @{side.batch}"
    return f"{side.strategy} + {Path(side.cost_model).name}{batch}"


def best_known(runs: Sequence[Run]) -> dict[str, float]:
    """Lowest seconds per call that any side found with any seed, for every workload's key."""
    lowest: dict[str, float] = {}
    for run in runs:
        found = [seconds for _, _, seconds in run["curve"]]
        lowest[run["key"]] = min([lowest.get(run["key"], math.inf), *found])
    return lowest


def arrival(run: Run, seconds: float) -> tuple[float, float] | None:
    """Trials and seconds after which a run has a program that takes at most so long.

    Seconds count from the start of the run's process. None: it never has one.
    """
    points = ((float(n), float(elapsed)) for n, elapsed, best in run["curve"] if best <= seconds)
    return next(points, None)


def speedups(runs: Sequence[Run], budgets: Sequence[int]) -> Rows:
    """How much faster the programs of one side are than those of another, at each budget."""

    def times(mine: Run, its: Run, at: int) -> tuple[float | None, float | None]:
        both = went_to(mine, at) and went_to(its, at)
        return (best_at(its, at), best_at(mine, at)) if both else (None, None)

    return _compared(runs, "trials", budgets, times)


def shares(runs: Sequence[Run], budgets: Sequence[int]) -> Rows:
    """Best latency known / what a side has found at each budget, geometric mean over runs."""
    known = best_known(runs)
    rng = np.random.default_rng(0)
    rows = []
    for side in present(runs):
        for budget in budgets:
            found: dict[str, list[float]] = {}
            for run in runs:
                best = best_at(run, budget)
                if side_of(run) == side and best and math.isfinite(known[run["key"]]):
                    found.setdefault(run["key"], []).append(math.log(known[run["key"]] / best))
            if found:
                rows.append({"side": label(side), "trials": budget} | mean_ratio(found, rng))
    return rows


def reached(runs: Sequence[Run]) -> Rows:
    """Per side, how many of its runs get near, and after how much in the median.

    Returns:
        ``side, near, reached`` (a share of runs), ``trials, seconds`` (medians over all runs,
        infinite where half of them never get there).
    """
    known = best_known(runs)
    rows = []
    for side in present(runs):
        own = [run for run in runs if side_of(run) == side]
        for near in NEAR:
            points = [arrival(run, known[run["key"]] / near) for run in own]
            there = [point or (math.inf, math.inf) for point in points]
            trials, seconds = np.median(there, axis=0).tolist()
            share = sum(point is not None for point in points) / len(points)
            rows.append({"side": label(side), "near": near, "reached": share,
                         "trials": trials, "seconds": seconds})  # fmt: skip
    return rows


def trials_to_near(runs: Sequence[Run], trials: int) -> Rows:
    """Trials of one side until it is near the best latency known, over those of another.

    Args:
        runs: Of all sides.
        trials: Of a run. One of the side in question that never gets there counts as twice as
            many, one of the other side as so many.
    """
    known = best_known(runs)

    def spent(mine: Run, its: Run, near: float) -> tuple[float, float]:
        bound = known[mine["key"]] / near
        first, second = arrival(mine, bound), arrival(its, bound)
        return first[0] if first else 2.0 * trials, second[0] if second else float(trials)

    return _compared(runs, "near", NEAR, spent)


def seconds_to_near(runs: Sequence[Run]) -> Rows:
    """How many times sooner one side is near the best latency known than another.

    A run of the side in question that never gets there counts as twice the longer one of the two,
    as its own might be the shorter one by far; a run of the other side as its own seconds.
    """
    known = best_known(runs)

    def spent(mine: Run, its: Run, near: float) -> tuple[float, float]:
        bound = known[mine["key"]] / near
        first, second = arrival(mine, bound), arrival(its, bound)
        never = 2.0 * max(mine["elapsed_s"], its["elapsed_s"])
        return second[1] if second else its["elapsed_s"], first[1] if first else never

    return _compared(runs, "near", NEAR, spent)


def _compared(
    runs: Sequence[Run],
    name: str,
    values: Sequence[float],
    of: Callable[[Run, Run, Any], tuple[float | None, float | None]],
) -> Rows:
    """One side over another at each value of ``name``: ``side, over, ratio, low, high, pairs``."""
    rng = np.random.default_rng(0)
    return [
        {"side": label(one), "over": label(other), name: value, **mean_ratio(ratios, rng)}
        for one, other, both in pairs(runs)
        for value in values
        if (ratios := log_ratios(both, lambda mine, its, at=value: of(mine, its, at)))
    ]


def pairs(runs: Sequence[Run]) -> Iterator[tuple[Side, Side, list[tuple[Run, Run]]]]:
    """One of ours, another side, and their runs that were measured side by side."""
    by_side: dict[Side, dict[Any, Run]] = {}
    for run in runs:
        by_side.setdefault(side_of(run), {})[sitting(run)] = run
    for one, own in by_side.items():
        for other, its in by_side.items():
            if one != other and not one.is_peer:
                yield one, other, [(own[key], its[key]) for key in sorted(own.keys() & its.keys())]


def log_ratios(
    both: Sequence[tuple[Run, Run]],
    values: Callable[[Run, Run], tuple[float | None, float | None]],
) -> dict[str, list[float]]:
    """Log of the first value over the second, by workload; pairs without one are left out."""
    found: dict[str, list[float]] = {}
    for mine, its in both:
        above, below = values(mine, its)
        if above and below:
            found.setdefault(mine["key"], []).append(math.log(above / below))
    return found


def mean_ratio(ratios: Mapping[str, Sequence[float]], rng: np.random.Generator) -> dict[str, Any]:
    """Geometric mean of ratios with its interval, and of how many pairs."""
    mean, low, high = geometric_mean(ratios, rng)
    return {"ratio": mean, "low": low, "high": high, "pairs": sum(map(len, ratios.values()))}


def interval(row: Mapping[str, Any]) -> str:
    """``ratio (low to high)`` of a row."""
    return f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def remarks(result: Mapping[str, Any]) -> str:
    """When runs were made, which later calls only find again; of the sides; which runs failed."""
    lines = [f"- {name}: {note}." for name, note in result["notes"].items()]
    lines += [
        f"- failed: {f['workload']} {side_name(f)} seed {f['seed']}: {f['error'][:200]}"
        for f in result["failures"]
    ]
    lines += [
        f"- {run['workload']} {side_name(run)} seed {run['seed']}: went on without its language "
        f"model, as {run['llm']['left_out']}"
        for run in result["runs"]
        if (run.get("llm") or {}).get("left_out")
    ]
    dated = [run for run in result["runs"] if "began" in run]
    if dated:
        ends = (min(r["began"] for r in dated), max(r["began"] + r["elapsed_s"] for r in dated))
        first, last = (time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at)) for at in ends)
        lines.append(f"- Runs were made between {first} and {last}.")
    return "\n".join(lines)
