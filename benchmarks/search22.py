"""The first trials of a search on 22 subgraphs: the pretrained default against TVM MetaSchedule.

Two sides in one run with every seed: foretune with its default cost model, which comes pretrained,
and TVM's own tuner. With the first seed three controls beside them: foretune with a model that
starts from nothing, TVM's own tuner with its warm-up lowered, so that a gain is not an artefact of
its random start, and TVM's own tuner on foretune's space, so that space and search are told apart.
TVM's tuner is spared the import of intrinsics that it does not use, as it would cost the benchmark
hours and no trial; on a single core its builders would time out over it.

What a side is to reach goes by its names (``benchmarks._search.goals``). Runs are kept in
the work directory, and calls can share it (``benchmarks._search.runs``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._search.figures import (
    NEAR,
    Run,
    best_known,
    label,
    made,
    present,
    reached,
    remarks,
    seconds_to_near,
    shares,
    side_of,
    speedups,
    trials_to_near,
)
from benchmarks._search.goals import PEER, goals
from benchmarks._search.runs import hardware_of, search, search_options, seeds_of, states_of
from benchmarks.results import conditions, publish, table
from foretune.bench import Side, best_at, sides
from foretune.metaschedule import PEERS
from foretune.workload import catalog

PAGE = "search22"
STRATEGY = "evolutionary"
COST_MODEL, CONTROL = "default", "gbdt:scratch"
EARLY_PEER, SPACE_PEER = "metaschedule-early", "metaschedule-our-space"
_TITLE = "The first trials on 22 subgraphs: foretune and TVM MetaSchedule"
_SHOWN = (8, 16, 64)
_SECONDS = (
    "Seconds count from the start of a run's process until its tuner knew the reading: imports, "
    "making the space, starting workers, building, running and choosing are in it for all sides; "
    "for ours also measuring the untuned program and the default schedule and comparing outputs, "
    "which MetaSchedule does not do. The machine was probed before, for all sides alike. "
    "MetaSchedule learns the readings of a batch at once: each of its 64 default candidates comes "
    "with the last. Nobody's seconds hold the final comparison."
)


def summarise(result: Mapping[str, Any], default: Side) -> dict[str, Any]:
    """Everything the tables show.

    Args:
        result: What ``run_bench`` gave.
        default: The first side of ours.
    """
    runs, trials = result["runs"], result["trials"]
    return {
        "default": label(default),
        "speedups": speedups(runs, trials),
        "shares": shares(runs, trials),
        **_near(runs, trials, together=False),
        "of_one_comparison": _near(runs, trials, together=True),
    }


def _near(runs: Sequence[Run], trials: int, together: bool) -> dict[str, Any]:
    return {
        "reached": reached(runs, together),
        "trials_to_near": trials_to_near(runs, trials, together),
        "seconds_to_near": seconds_to_near(runs, together),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = search_options(
        __doc__,
        page=PAGE,
        workloads=catalog.names("subgraph"),
        trials=64,
        seeds=3,
        timeout_s=1800.0,
    )
    parser.add_argument("--strategies", default=f"{STRATEGY},{PEER}")
    parser.add_argument("--cost-models", default=COST_MODEL)
    controls = ",".join((CONTROL, EARLY_PEER, SPACE_PEER))
    parser.add_argument("--controls", default=controls, help="models and peers")
    parser.add_argument("--control-seeds", type=int, default=1, help="the first so many")
    options = parser.parse_args(arguments)
    seeds = seeds_of(options)
    where = conditions("search22", seeds, hardware_of(options))
    strategies, models = options.strategies.split(","), options.cost_models.split(",")
    controls = [name for name in options.controls.split(",") if name]
    more = [name for name in controls if name in PEERS]
    unlike = [f"{STRATEGY}+{name}" for name in controls if name not in PEERS]
    result = search(
        options,
        where.hardware,
        strategies + more + unlike,
        models,
        seeds,
        own_seeds=dict.fromkeys(more + unlike, options.control_seeds),
    )
    if options.seed is not None:
        return
    (default,) = sides(strategies[:1], models[:1])
    result["search22"] = summarise(result, default) | {"states": states_of(result["runs"])}
    judged = [side for side in sides(strategies, models) if not side.is_peer]
    body = _body(result, goals_of(result["search22"], judged))
    publish(options.page, _TITLE, body, result, where.end(), options.write)


def goals_of(summary: Mapping[str, Any], judged: Sequence[Side]) -> list[str]:
    """Lines of the goals of sides, under the name of the side where several have some.

    Args:
        summary: As for ``goals``.
        judged: Those that are to reach them, controls not among them.
    """
    found = {side: goals(summary, side) for side in judged}
    named = len([lines for lines in found.values() if lines]) > 1
    return [
        line.replace("- Goal", f"- {label(side)}, goal", 1) if named else line
        for side, lines in found.items()
        for line in lines
    ]


def _body(result: Mapping[str, Any], goal_lines: Sequence[str]) -> str:
    summary, trials = result["search22"], result["trials"]
    parts = [
        "\n".join(goal_lines),
        table(
            ["side", "over", "trials", "speed-up (geometric mean)", "95 % interval", "pairs"],
            [
                [row["side"], row["over"], str(row["trials"]), *_ratio_cells(row)]
                for row in summary["speedups"]
            ],
        ),
        "A ratio above 1 means faster programs. Every program that was the best of a run was "
        "measured again, those of all sides and seeds of one workload interleaved by one measurer; "
        "intervals are from a bootstrap over workloads and seeds. MetaSchedule returns its "
        "candidates in batches, counted here in the order of measurement.",
        "Share of the best latency known (of all sides and seeds) that a side has found:",
        _shares_table(summary["shares"]),
        f"## Until {' / '.join(f'{near:.0%}' for near in NEAR)} of the best latency known",
        _SECONDS,
        "What is not known speaks against the side in the first column. If a run of its never gets "
        f"there, it counts as {2 * trials} trials, and as twice the seconds of the longer one of "
        f"the two runs that are compared. One of the other side counts as {trials} trials, and as "
        "the seconds that it took. Medians are over all runs.",
        "Against the best of all seeds:",
        *_near_tables(summary),
        "Against the best of the same seed:",
        *_near_tables(summary["of_one_comparison"]),
        _per_workload(result),
        made(result["runs"]),
        *remarks(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _shares_table(rows: Sequence[Mapping[str, Any]]) -> str:
    budgets = list(dict.fromkeys(row["trials"] for row in rows))
    names = list(dict.fromkeys(row["side"] for row in rows))
    cell = {(row["side"], row["trials"]): _interval(row) for row in rows}
    return table(
        ["side", *(f"after {budget} trials" for budget in budgets)],
        [[name, *(cell.get((name, budget), "–") for budget in budgets)] for name in names],
    )


def _near_tables(found: Mapping[str, Any]) -> list[str]:
    """Who gets near when, and against each other side: trials over its, and how much sooner."""
    own: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["reached"]:
        own.setdefault(row["side"], []).append(row)
    against: dict[tuple[str, str], list[str]] = {}
    for name in ("trials_to_near", "seconds_to_near"):
        for row in found[name]:
            against.setdefault((row["side"], row["over"]), []).append(_interval(row))
    return [
        table(
            ["side", "runs that got there", "median trials", "median seconds"],
            [
                [
                    side,
                    " / ".join(f"{row['reached']:.0%}" for row in rows),
                    " / ".join(_or_never(row["trials"]) for row in rows),
                    " / ".join(_or_never(row["seconds"]) for row in rows),
                ]
                for side, rows in own.items()
            ],
        ),
        table(
            [
                "side",
                "over",
                *(f"trials / its, {near:.0%}" for near in NEAR),
                *(f"times sooner, {near:.0%}" for near in NEAR),
            ],
            [[*names, *cells] for names, cells in against.items()],
        ),
    ]


def _or_never(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.0f}"


def _per_workload(result: Mapping[str, Any]) -> str:
    """Per workload the medians over seeds of what each side has found, as share of the best."""
    runs = result["runs"]
    known = best_known(runs, together=False)
    budgets = [n for n in _SHOWN if n <= result["trials"]] or [result["trials"]]
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
    everyone = present(runs)
    rows = [
        [
            name,
            f"{lowest[name] * 1e3:.4f}",
            *(
                " / ".join(
                    f"{np.median(found[name, side, n]):.2f}" if (name, side, n) in found else "–"
                    for n in budgets
                )
                for side in everyone
            ),
        ]
        for name in lowest
    ]
    after = " / ".join(map(str, budgets))
    heading = f"Share of the best latency known after {after} trials, median over seeds:"
    return f"{heading}\n\n" + table(["workload", "best, ms", *map(label, everyone)], rows)


def _ratio_cells(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['ratio']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", str(row["pairs"])]


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f})"


if __name__ == "__main__":
    main()
