"""The first trials of a search on 22 subgraphs: the pretrained default against TVM MetaSchedule.

Two sides in one run with every seed: foretune with its default cost model, which comes pretrained,
and TVM's own tuner. With the first seed two controls beside them: foretune with a model that starts
from nothing, and TVM's own tuner with its warm-up lowered, so that a gain is not an artefact of its
random start. TVM's tuner is spared the import of intrinsics that it does not use, as it would cost
the benchmark hours and no trial; on a single core its builders would time out over it.

Runs are kept in the work directory; called again, it goes on where it was interrupted. Those of
foretune count only for the code and the weights that made them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from benchmarks.sources import state_of_ours
from foretune.bench import Side, best_at, geometric_mean, run_bench, sides, trial_budgets
from foretune.metaschedule import PEERS
from foretune.workload import catalog

PAGE = "search22"
STRATEGY = "evolutionary"
COST_MODEL, CONTROL = "default", "gbdt:scratch"
PEER, EARLY_PEER = "metaschedule-quick-start", "metaschedule-early"
MODULES = {"gradient": "foretune.search.gradient"}
"""Where strategies begin that runs of the default do not depend on."""
GOALS = {8: 1.4, 16: 1.25, 64: 1.05}
"""Trials to the speed-up of the default over TVM MetaSchedule that is to be reached."""
NEAR = 0.95
"""A run is there once its best has this share of the best latency known."""
SHARE_GOAL = 0.25
"""Trials that the default is to need to get there, as a share of TVM MetaSchedule's."""
_TITLE = "The first trials on 22 subgraphs: foretune and TVM MetaSchedule"
_SHOWN = (8, 16, 64)

Run = Mapping[str, Any]


def side_of(run: Run) -> Side:
    """The side that made a run."""
    return Side(run["strategy"], run["cost_model"])


def label(side: Side) -> str:
    """What a side is called in the tables."""
    return side.strategy if side.is_peer else f"{side.strategy} + {side.cost_model}"


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


def trials_until(run: Run, seconds: float) -> int | None:
    """Trials after which a run has a program that takes at most so long; None: it never has."""
    return next((int(count) for count, _, best in run["curve"] if best <= seconds), None)


def paired(
    runs: Sequence[Run], one: Side, other: Side, value: Callable[[Run], float | None]
) -> dict[str, list[float]]:
    """Log of ``other``'s value over ``one``'s, by workload, for every seed that both ran."""
    found: dict[Side, dict[tuple[str, int], float]] = {one: {}, other: {}}
    for run in runs:
        figure = value(run)
        if side_of(run) in found and figure:
            found[side_of(run)][run["key"], run["seed"]] = figure
    pairs: dict[str, list[float]] = {}
    for key in sorted(found[one].keys() & found[other].keys()):
        pairs.setdefault(key[0], []).append(math.log(found[other][key] / found[one][key]))
    return pairs


def speedups(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """How much faster the programs of one side are than those of another, at each budget."""
    present = list(dict.fromkeys(side_of(run) for run in runs))
    rng = np.random.default_rng(0)
    rows = []
    for one in present:
        for other in present:
            for budget in trial_budgets(trials):
                pairs = paired(runs, one, other, lambda run, n=budget: best_at(run, n))
                if one != other and not one.is_peer and pairs:
                    rows.append(
                        {"side": label(one), "over": label(other), "trials": budget}
                        | _ratio(pairs, rng)
                    )
    return rows


def shares(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """Best latency known / what a side has found at each budget, geometric mean over runs."""
    known = best_known(runs, together=False)
    rng = np.random.default_rng(0)
    rows = []
    for side in dict.fromkeys(side_of(run) for run in runs):
        for budget in trial_budgets(trials):
            found: dict[str, list[float]] = {}
            for run in runs:
                best = best_at(run, budget)
                if side_of(run) == side and best and math.isfinite(known[run["key"], run["seed"]]):
                    share = known[run["key"], run["seed"]] / best
                    found.setdefault(run["key"], []).append(math.log(share))
            if found:
                rows.append({"side": label(side), "trials": budget} | _ratio(found, rng))
    return rows


def trials_to_near(runs: Sequence[Run], trials: int, together: bool) -> list[dict[str, Any]]:
    """Trials of each side until it is near the best latency known, and ours over the peers'.

    A run of ours that never gets there counts as twice its trials, one of a peer's as its trials:
    what is not known speaks against us.
    """
    known = best_known(runs, together)
    rng = np.random.default_rng(0)

    def spent(run: Run) -> float:
        count = trials_until(run, known[run["key"], run["seed"]] / NEAR)
        never = trials if side_of(run).is_peer else 2 * trials
        return float(never if count is None else count)

    present = list(dict.fromkeys(side_of(run) for run in runs))
    rows = []
    for side in present:
        own = [run for run in runs if side_of(run) == side]
        there = [trials_until(run, known[run["key"], run["seed"]] / NEAR) for run in own]
        row: dict[str, Any] = {
            "side": label(side),
            "reached": sum(count is not None for count in there) / len(there),
            "median": float(np.median([math.inf if c is None else c for c in there])),
        }
        for other in present:
            # Trials of this side over those of the other one: the pair the other way round.
            pairs = paired(runs, other, side, spent)
            if other.is_peer and not side.is_peer and pairs:
                row[other.strategy] = _ratio(pairs, rng)
        rows.append(row)
    return rows


def _ratio(pairs: Mapping[str, Sequence[float]], rng: np.random.Generator) -> dict[str, Any]:
    mean, low, high = geometric_mean(pairs, rng)
    return {"ratio": mean, "low": low, "high": high, "pairs": sum(map(len, pairs.values()))}


def summarise(result: Mapping[str, Any], default: Side) -> dict[str, Any]:
    """Everything the tables show.

    Args:
        result: What ``run_bench`` gave.
        default: The side that is to reach the goals.
    """
    runs, trials = result["runs"], result["trials"]
    return {
        "default": label(default),
        "speedups": speedups(runs, trials),
        "shares": shares(runs, trials),
        "trials_to_near": trials_to_near(runs, trials, together=False),
        "trials_to_near_of_one_comparison": trials_to_near(runs, trials, together=True),
    }


def goals(summary: Mapping[str, Any], trials: int) -> list[str]:
    """One line for each goal: what was reached and whether that is enough."""
    lines = []
    for budget, goal in GOALS.items():
        for row in summary["speedups"]:
            names = (row["side"], row["over"], row["trials"])
            if names == (summary["default"], PEER, budget):
                lines.append(
                    f"- Goal: at least {goal}x over {PEER} at {budget} trials: {row['ratio']:.3f}, "
                    f"{'met' if row['ratio'] >= goal else 'not met'}."
                )
    for row in summary["trials_to_near"]:
        if row["side"] == summary["default"] and PEER in row:
            ratio = row[PEER]["ratio"]
            lines.append(
                f"- Goal: at most {SHARE_GOAL} of the trials of {PEER} to {NEAR:.0%} of the best "
                f"latency known: {ratio:.3f}, {'met' if ratio <= SHARE_GOAL else 'not met'}."
            )
    missing = [budget for budget in GOALS if budget > trials]
    return lines + [f"- Goal at {n} trials: not judged with {trials} trials." for n in missing]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(catalog.names("subgraph")))
    parser.add_argument("--strategies", default=f"{STRATEGY},{PEER}")
    parser.add_argument("--cost-models", default=COST_MODEL)
    parser.add_argument("--controls", default=f"{CONTROL},{EARLY_PEER}", help="models and peers")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--control-seeds", type=int, default=1, help="the first so many")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for a single run")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/search22"))
    parser.add_argument("--page", default=PAGE, help="name of what --write writes")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("search22", list(range(options.seeds)))
    strategies, models = options.strategies.split(","), options.cost_models.split(",")
    controls = [name for name in options.controls.split(",") if name]
    more = [name for name in controls if name in PEERS]
    state = state_of_ours(more=[MODULES[name] for name in strategies if name in MODULES])

    def run(strategies: list[str], models: list[str], seeds: int) -> dict[str, Any]:
        return run_bench(
            options.workloads.split(","),
            strategies,
            options.trials,
            seeds,
            cost_models=models,
            hardware=where.hardware,
            work_dir=options.work_dir,
            timeout_s=options.timeout,
            state=state,
            progress=say,
        )

    results = []
    if options.control_seeds and controls:
        unlike = [name for name in controls if name not in PEERS]
        results.append(run(strategies + more, models + unlike, options.control_seeds))
    if options.seeds > options.control_seeds or not results:
        results.append(run(strategies, models, options.seeds))
    result = joined(results)
    (default,) = sides(strategies[:1], models[:1])
    result["search22"] = {**summarise(result, default), "state": state}
    publish(options.page, _TITLE, _body(result), result, where.end(), options.write)


def joined(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several calls of ``run_bench`` gave as one, every run once."""
    runs: dict[tuple[Any, ...], Run] = {}
    failures: dict[tuple[Any, ...], Run] = {}
    for result in results:
        for kept, rows in ((runs, result["runs"]), (failures, result["failures"])):
            for row in rows:
                kept.setdefault((row["key"], row["seed"], side_of(row)), row)
    notes = {name: note for result in results for name, note in result["notes"].items()}
    rest = {name: value for name, value in results[0].items() if name != "summary"}
    done, failed = list(runs.values()), list(failures.values())
    return {**rest, "runs": done, "failures": failed, "notes": notes}


def _body(result: Mapping[str, Any]) -> str:
    summary, trials = result["search22"], result["trials"]
    parts = [
        "\n".join(goals(summary, trials)),
        table(
            ["side", "over", "trials", "speed-up (geometric mean)", "95 % interval", "pairs"],
            [
                [row["side"], row["over"], str(row["trials"]), *_ratio_cells(row)]
                for row in summary["speedups"]
            ],
        ),
        "A ratio above 1 means faster programs. Every program that was the best of a run was "
        "measured again, those of all sides of one workload and seed interleaved by one measurer; "
        "intervals are from a bootstrap over workloads and seeds. MetaSchedule returns its "
        "candidates in batches, counted here in the order of measurement.",
        "Share of the best latency known (of all sides and seeds) that a side has found:",
        _shares_table(summary["shares"]),
        f"Trials until a run has {NEAR:.0%} of the best latency known. A run of ours that never "
        f"has counts as {2 * trials} trials, one of a peer's as {trials}; the median is over all "
        "runs. First against the best of all seeds, then against the best of the same seed, whose "
        "readings were interleaved:",
        _near_table(summary["trials_to_near"]),
        _near_table(summary["trials_to_near_of_one_comparison"]),
        _per_workload(result),
        "\n".join(f"- {name}: {note}." for name, note in result["notes"].items()),
        "\n".join(
            f"- failed: {f['workload']} {f['strategy']} seed {f['seed']}: {f['error'][:200]}"
            for f in result["failures"]
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _shares_table(rows: Sequence[Mapping[str, Any]]) -> str:
    budgets = list(dict.fromkeys(row["trials"] for row in rows))
    names = list(dict.fromkeys(row["side"] for row in rows))
    cell = {
        (row["side"], row["trials"]): f"{row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f})"
        for row in rows
    }
    return table(
        ["side", *(f"after {budget} trials" for budget in budgets)],
        [[name, *(cell.get((name, budget), "–") for budget in budgets)] for name in names],
    )


def _near_table(rows: Sequence[Mapping[str, Any]]) -> str:
    peers = [peer for peer in (PEER, EARLY_PEER) if any(peer in row for row in rows)]
    return table(
        ["side", "runs that got there", "median trials", *(f"trials / {p}'s" for p in peers)],
        [
            [
                row["side"],
                f"{row['reached']:.0%}",
                "never" if math.isinf(row["median"]) else f"{row['median']:.0f}",
                *(_interval(row[peer]) if peer in row else "" for peer in peers),
            ]
            for row in rows
        ],
    )


def _per_workload(result: Mapping[str, Any]) -> str:
    """Per workload the medians over seeds of what each side has found, as share of the best."""
    runs = result["runs"]
    known = best_known(runs, together=False)
    present = list(dict.fromkeys(side_of(run) for run in runs))
    budgets = [budget for budget in _SHOWN if budget <= result["trials"]]
    found: dict[tuple[str, Side, int], list[float]] = {}
    lowest: dict[str, float] = {}
    for run in runs:
        best = known[run["key"], run["seed"]]
        lowest[run["workload"]] = best
        for budget in budgets:
            seconds = best_at(run, budget)
            if seconds:
                key = (run["workload"], side_of(run), budget)
                found.setdefault(key, []).append(best / seconds)
    rows = [
        [
            name,
            f"{lowest[name] * 1e3:.4f}",
            *(
                " / ".join(
                    f"{np.median(found[name, side, n]):.2f}" if (name, side, n) in found else "–"
                    for n in budgets
                )
                for side in present
            ),
        ]
        for name in lowest
    ]
    after = " / ".join(map(str, budgets))
    heading = f"Share of the best latency known after {after} trials, median over seeds:"
    return f"{heading}\n\n" + table(["workload", "best, ms", *map(label, present)], rows)


def _ratio_cells(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['ratio']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", str(row["pairs"])]


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f})"


if __name__ == "__main__":
    main()
