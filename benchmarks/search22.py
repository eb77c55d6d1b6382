"""The first trials of searches, side by side: on 22 subgraphs, the default against MetaSchedule.

A side is ``STRATEGY+COST_MODEL``, ``STRATEGY`` with each of ``--cost-models``, or a peer; ``@N``
behind it gives it batches of ``N``. Controls run with the first seeds only: foretune with a model
that starts from nothing, TVM's own tuner with its warm-up lowered, so that a gain is not an
artefact of its random start, and TVM's own tuner on foretune's space, so that space and search are
told apart. TVM's tuner is spared the import of intrinsics that it does not use, as it would cost
the benchmark hours and no trial; on a single core its builders would time out over it.

Whatever compares strategies, proposers or models in a search is a call of this one, under a page
of its own (docs/research.md has the ablations of the papers)::

    python -m benchmarks search22 --page NAME --question "Which is faster?" \\
        --strategies gradient+mlp:formulas,mcts:learned,evolutionary --controls '' --write

What a side is to reach goes by its names (``benchmarks._search.goals``). Runs are kept in
the work directory, and calls can share it (``benchmarks._search.runs``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks._search.figures import (
    NEAR,
    Rows,
    best_known,
    interval,
    label,
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
from benchmarks.pages import Section
from benchmarks.results import conditions, table
from foretune.bench import Side, best_at, sides, trial_budgets
from foretune.metaschedule import PEERS
from foretune.workload import catalog

PAGE = "search22"
STRATEGY = "evolutionary"
COST_MODEL, CONTROL = "default", "gbdt:scratch"
EARLY_PEER, SPACE_PEER = "metaschedule-early", "metaschedule-our-space"
QUESTION = "How fast are the programs of a search's first trials, beside TVM MetaSchedule's?"
_MIDDLE = 16
"""Trials after which several sides are compared in a sentence."""
_SPEED = (
    "A ratio above 1 means faster programs. Every program that was the best of a run was measured "
    "again, those of all sides and seeds of one workload interleaved by one measurer; intervals "
    "are from a bootstrap over workloads and seeds. MetaSchedule returns its candidates in "
    "batches, counted here in the order of measurement."
)
_NEAR_NOTE = (
    "Against the best of all sides and seeds. What is not known speaks against the side in the "
    "first column: a run of its that never gets there counts as twice the trials, and as twice the "
    "seconds of the longer of the two runs; one of the other side as all its trials and seconds. "
    "Seconds count from the start of a run's process until its tuner knew the reading, for ours "
    "with the measurement of the untuned program and the comparison of outputs; nobody's hold the "
    "final comparison. MetaSchedule learns the readings of a batch at once."
)


def summarise(result: Mapping[str, Any], default: Side) -> dict[str, Any]:
    """Everything the tables show.

    Args:
        result: What ``run_bench`` gave, perhaps with ``budgets``: trials at which to compare.
        default: The first side of ours.
    """
    runs, trials = result["runs"], result["trials"]
    budgets = result.get("budgets") or trial_budgets(trials)
    return {
        "default": label(default),
        "speedups": speedups(runs, budgets),
        "shares": shares(runs, budgets),
        "reached": reached(runs),
        "trials_to_near": trials_to_near(runs, trials),
        "seconds_to_near": seconds_to_near(runs),
    }


def main(arguments: list[str] | None = None) -> None:
    names = catalog.names("subgraph")
    parser = search_options(
        __doc__, page=PAGE, workloads=names, trials=64, seeds=3, timeout_s=1800.0
    )
    parser.add_argument("--strategies", default=f"{STRATEGY},{PEER}", help="sides, and peers")
    parser.add_argument("--cost-models", default=COST_MODEL, help="of sides that name none")
    controls = ",".join((CONTROL, EARLY_PEER, SPACE_PEER))
    parser.add_argument("--controls", default=controls, help="models and peers")
    parser.add_argument("--control-seeds", type=int, default=1, help="the first so many")
    parser.add_argument("--budgets", help="trials at which sides are compared; 8, 16, 32...")
    parser.add_argument("--question", default=QUESTION, help="the title of the page")
    parser.add_argument("--llm", default="", metavar="MODEL@URL", help="of sides that ask one")
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
        llm=options.llm,
    )
    if options.seed is not None:
        return
    judged = sides(strategies, models)
    judged_names = [label(side) for side in judged]
    result |= {"judged": judged_names, "question": options.question}
    if options.budgets:
        result["budgets"] = [int(budget) for budget in options.budgets.split(",")]
    ours = [side for side in judged if not side.is_peer]
    summary = summarise(result, ours[0]) | {"states": states_of(result["runs"])}
    result["search22"] = summary | {
        "goals": [line for side in ours if PEER in judged_names for line in goals(summary, side)]
    }
    pages.publish(options.page, section, result, where.end(), options.write)


def section(result: Mapping[str, Any]) -> Section:
    """What a comparison says: speed beside the peer's, or else beside the last side's."""
    summary, judged = result["search22"], result["judged"]
    over = next((name for name in judged if name in PEERS), judged[-1])
    rows: dict[tuple[str, str], Rows] = {}
    for row in summary["speedups"]:
        side, other = row["side"], row["over"]
        if (side in judged and other == over) or (side == summary["default"] != over and
                                                  other not in judged):  # fmt: skip
            rows.setdefault((side, other), []).append(row)
    budgets = [row["trials"] for row in next(iter(rows.values()), [])]
    cells = [
        [*names, *(interval(row) for row in found), str(max(row["pairs"] for row in found))]
        for names, found in rows.items()
    ]
    found = {
        f"{side} over {other}": [(r["trials"], r["ratio"], r["low"], r["high"]) for r in own]
        for (side, other), own in rows.items()
    }
    return Section(
        result["question"],
        _answer({side: own for (side, other), own in rows.items() if other == over}, over),
        table(["side", "over", *(f"after {n} trials" for n in budgets), "pairs"], cells),
        _details(result),
        lambda axes: pages.curves(axes, found, "trials", "times as fast"),
        "how many times as fast programs are, by trials",
    )


def _answer(rows: Mapping[str, Rows], over: str) -> str:
    if not rows:
        return "There is nothing to compare with: name several sides."
    if len(rows) == 1:
        ((side, found),) = rows.items()
        each = ", ".join(f"{interval(row)} after {row['trials']} trials" for row in found)
        return f"Programs of {side}, times as fast as those of {over}: {each}."
    near = {
        side: min(found, key=lambda row: abs(row["trials"] - _MIDDLE))
        for side, found in rows.items()
    }
    each = ", ".join(f"{interval(row)} of {side}" for side, row in near.items())
    after = next(iter(near.values()))["trials"]
    return f"Programs after {after} trials, times as fast as those of {over}: {each}."


def _details(result: Mapping[str, Any]) -> str:
    summary = result["search22"]
    parts = ["\n".join(summary.get("goals", ())), _SPEED]
    if "shares" in summary:
        parts += [
            "Share of the best latency known (of all sides and seeds) that a side has found:",
            _shares_table(summary["shares"]),
            f"#### Until {' / '.join(f'{near:.0%}' for near in NEAR)} of the best latency known",
            _NEAR_NOTE,
            *_near_tables(summary),
            "#### By workload",
            _per_workload(result),
        ]
    return "\n\n".join(part for part in [*parts, remarks(result)] if part)


def _shares_table(rows: Rows) -> str:
    budgets = list(dict.fromkeys(row["trials"] for row in rows))
    cell = {(row["side"], row["trials"]): interval(row) for row in rows}
    return table(
        ["side", *(f"after {budget} trials" for budget in budgets)],
        [
            [name, *(cell.get((name, budget), "–") for budget in budgets)]
            for name in dict.fromkeys(row["side"] for row in rows)
        ],
    )


def _near_tables(summary: Mapping[str, Any]) -> list[str]:
    """Who gets near when, and against each other side: trials over its, and how much sooner."""
    own: dict[str, Rows] = {}
    for row in summary["reached"]:
        own.setdefault(row["side"], []).append(row)
    against: dict[tuple[str, str], list[str]] = {}
    for name in ("trials_to_near", "seconds_to_near"):
        for row in summary[name]:
            against.setdefault((row["side"], row["over"]), []).append(interval(row))
    heads = [f"{what}, {near:.0%}" for what in ("trials / its", "times sooner") for near in NEAR]
    return [
        table(
            ["side", "runs that got there", "median trials", "median seconds"],
            [
                [
                    side,
                    " / ".join(f"{row['reached']:.0%}" for row in rows),
                    *(" / ".join(_or_never(row[n]) for row in rows) for n in ("trials", "seconds")),
                ]
                for side, rows in own.items()
            ],
        ),
        table(["side", "over", *heads], [[*names, *cells] for names, cells in against.items()]),
    ]


def _or_never(value: float | None) -> str:
    return "never" if value is None or math.isinf(value) else f"{value:.0f}"


def _per_workload(result: Mapping[str, Any]) -> str:
    """Per workload the medians over seeds of what each side has found, as share of the best."""
    runs, trials = result["runs"], result["trials"]
    known, everyone = best_known(runs), present(runs)
    budgets = [n for n in (8, _MIDDLE, 64) if n <= trials] or [trials]
    found: dict[tuple[str, Side, int], list[float]] = {}
    names: dict[str, str] = {}
    for run in runs:
        names[run["key"]] = run["workload"]
        for budget in budgets:
            if seconds := best_at(run, budget):
                key = (run["key"], side_of(run), budget)
                found.setdefault(key, []).append(known[run["key"]] / seconds)
    rows = [
        [name, f"{known[key] * 1e3:.4f}"]
        + [" / ".join(f"{np.median(found[key, side, n]):.2f}" if (key, side, n) in found else "–"
                      for n in budgets) for side in everyone]
        for key, name in names.items()
    ]  # fmt: skip
    after = " / ".join(map(str, budgets))
    heading = f"Share of the best latency known after {after} trials, median over seeds:"
    return f"{heading}\n\n" + table(["workload", "best, ms", *map(label, everyone)], rows)


if __name__ == "__main__":
    main()
