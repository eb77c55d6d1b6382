"""What runs of a search say, side by side: speed-ups, shares of the best, and when they are there.

Symbols: the *best latency known* of a workload is the lowest reading of any side, of all seeds or
of the same one, whose readings were interleaved; a run *is near* once its best has a share of it
(``NEAR``).

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

from foretune.bench import Side, best_at, geometric_mean, side_name, side_of, trial_budgets

NEAR = (0.9, 0.95, 0.99)
"""Shares of the best latency known at which a run is near it."""

Run = Mapping[str, Any]


def present(runs: Sequence[Run]) -> list[Side]:
    """The sides that made runs, in the order of these."""
    return list(dict.fromkeys(side_of(run) for run in runs))


def label(side: Side) -> str:
    """What a side is called in the tables; weights by the name of their file."""
    if side.is_peer:
        return side.strategy
    batch = "" if side.batch is None else f" @{side.batch}"
    return f"{side.strategy} + {Path(side.cost_model).name}{batch}"


def best_known(runs: Sequence[Run], together: bool) -> dict[tuple[str, int], float]:
    """Lowest seconds per call that any side found, for every workload and seed.

    Args:
        runs: Of all sides.
        together: Only among runs of the same seed, whose readings were interleaved; otherwise of
            all seeds.
    """
    lowest: dict[tuple[str, int], float] = {}
    for run in runs:
        found = [seconds for _, _, seconds in run["curve"]]
        key = (run["key"], run["seed"])
        lowest[key] = min([lowest.get(key, math.inf), *found])
    if together:
        return lowest
    of_all: dict[str, float] = {}
    for (workload, _), seconds in lowest.items():
        of_all[workload] = min(of_all.get(workload, math.inf), seconds)
    return {key: of_all[key[0]] for key in lowest}


def arrival(run: Run, seconds: float) -> tuple[float, float] | None:
    """Trials and seconds after which a run has a program that takes at most so long.

    Seconds count from the start of the run's process. None: it never has one.
    """
    return next(
        (
            (float(count), float(elapsed))
            for count, elapsed, best in run["curve"]
            if best <= seconds
        ),
        None,
    )


def speedups(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """How much faster the programs of one side are than those of another, at each budget."""
    rng = np.random.default_rng(0)
    rows = []
    for one, other, both in pairs(runs):
        for budget in trial_budgets(trials):
            ratios = log_ratios(
                both, lambda mine, its, n=budget: (best_at(its, n), best_at(mine, n))
            )
            if ratios:
                rows.append(_named(one, other, {"trials": budget}, ratios, rng))
    return rows


def shares(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """Best latency known / what a side has found at each budget, geometric mean over runs."""
    known = best_known(runs, together=False)
    rng = np.random.default_rng(0)
    rows = []
    for side in present(runs):
        for budget in trial_budgets(trials):
            found: dict[str, list[float]] = {}
            for run in runs:
                best = best_at(run, budget)
                if side_of(run) == side and best and math.isfinite(known[run["key"], run["seed"]]):
                    share = known[run["key"], run["seed"]] / best
                    found.setdefault(run["key"], []).append(math.log(share))
            if found:
                rows.append({"side": label(side), "trials": budget} | mean_ratio(found, rng))
    return rows


def reached(runs: Sequence[Run], together: bool) -> list[dict[str, Any]]:
    """Per side, how many of its runs get near, and after how much in the median.

    Returns:
        ``side, near, reached`` (a share of runs), ``trials, seconds`` (medians over all runs,
        infinite where half of them never get there).
    """
    known = best_known(runs, together)
    rows = []
    for side in present(runs):
        own = [run for run in runs if side_of(run) == side]
        for near in NEAR:
            points = [arrival(run, known[run["key"], run["seed"]] / near) for run in own]
            there = [point or (math.inf, math.inf) for point in points]
            trials, seconds = np.median(there, axis=0).tolist()
            rows.append(
                {
                    "side": label(side),
                    "near": near,
                    "reached": sum(point is not None for point in points) / len(points),
                    "trials": trials,
                    "seconds": seconds,
                }
            )
    return rows


def trials_to_near(runs: Sequence[Run], trials: int, together: bool) -> list[dict[str, Any]]:
    """Trials of one side until it is near the best latency known, over those of another.

    Args:
        runs: Of all sides.
        trials: Of a run. One of the side in question that never gets there counts as twice as
            many, one of the other side as so many.
        together: See ``best_known``.
    """
    known = best_known(runs, together)

    def spent(mine: Run, its: Run, near: float) -> tuple[float, float]:
        bound = known[mine["key"], mine["seed"]] / near
        first, second = arrival(mine, bound), arrival(its, bound)
        return first[0] if first else 2.0 * trials, second[0] if second else float(trials)

    return _to_near(runs, spent)


def seconds_to_near(runs: Sequence[Run], together: bool) -> list[dict[str, Any]]:
    """How many times sooner one side is near the best latency known than another.

    A run of the side in question that never gets there counts as twice the longer one of the two,
    as its own might be the shorter one by far; a run of the other side as its own seconds.
    """
    known = best_known(runs, together)

    def spent(mine: Run, its: Run, near: float) -> tuple[float, float]:
        bound = known[mine["key"], mine["seed"]] / near
        first, second = arrival(mine, bound), arrival(its, bound)
        never = 2.0 * max(mine["elapsed_s"], its["elapsed_s"])
        return second[1] if second else its["elapsed_s"], first[1] if first else never

    return _to_near(runs, spent)


def _to_near(
    runs: Sequence[Run], spent: Callable[[Run, Run, float], tuple[float, float]]
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        _named(one, other, {"near": near}, ratios, rng)
        for one, other, both in pairs(runs)
        for near in NEAR
        if (ratios := log_ratios(both, lambda mine, its, near=near: spent(mine, its, near)))
    ]


def changes(runs: Sequence[Run], full: Side, trials: int) -> list[dict[str, Any]]:
    """What the other sides of ours lose against one: the world model paper's figure 9.

    Returns:
        At each budget ``side, over, trials, ratio, low, high, pairs``, where a ratio above 1 is a
        slower program than that of ``full``; and over workloads, each the geometric mean of its
        seeds, their ``median``, their number and how many are ``slower``.
    """
    rng = np.random.default_rng(0)
    rows = []
    for one, other, both in pairs(runs):
        if one != full or other.is_peer:
            continue
        for budget in trial_budgets(trials):
            ratios = log_ratios(
                both, lambda mine, its, n=budget: (best_at(its, n), best_at(mine, n))
            )
            if ratios:
                each = np.array([np.mean(own) for own in ratios.values()])
                row = _named(other, full, {"trials": budget}, ratios, rng)
                row |= {"median": float(np.exp(np.median(each))), "workloads": len(each)}
                rows.append(row | {"slower": int((each > 0).sum())})
    return rows


def made(runs: Sequence[Run]) -> str:
    """When runs were made, which later calls only find again; empty if no run says so."""
    began = [run["began"] for run in runs if "began" in run]
    if not began:
        return ""
    ended = max(run["began"] + run["elapsed_s"] for run in runs if "began" in run)
    first, last = (
        time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at)) for at in (min(began), ended)
    )
    undated = f"; {len(runs) - len(began)} others have no date" if len(began) < len(runs) else ""
    return f"Runs were made between {first} and {last}{undated}."


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What is to be said of the sides that ran, and which runs failed."""
    notes = [f"- {name}: {note}." for name, note in result["notes"].items()]
    failed = [
        f"- failed: {f['workload']} {side_name(f)} seed {f['seed']}: {f['error'][:200]}"
        for f in result["failures"]
    ]
    return ["\n".join(notes), "\n".join(failed)]


def pairs(
    runs: Sequence[Run],
) -> Iterator[tuple[Side, Side, list[tuple[Run, Run]]]]:
    """One of ours, another side, and their runs of the same workload and seed."""
    by_side: dict[Side, dict[tuple[str, int], Run]] = {}
    for run in runs:
        by_side.setdefault(side_of(run), {})[run["key"], run["seed"]] = run
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


def _named(
    one: Side,
    other: Side,
    at: Mapping[str, Any],
    ratios: Mapping[str, Sequence[float]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {"side": label(one), "over": label(other), **at, **mean_ratio(ratios, rng)}


def mean_ratio(ratios: Mapping[str, Sequence[float]], rng: np.random.Generator) -> dict[str, Any]:
    mean, low, high = geometric_mean(ratios, rng)
    return {"ratio": mean, "low": low, "high": high, "pairs": sum(map(len, ratios.values()))}
