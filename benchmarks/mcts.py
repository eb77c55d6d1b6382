"""Tree search and its proposers on the four kernels of the Reasoning Compiler paper.

Table 1 in shape: speed-up over the unoptimised program after so many samples (measured programs)
of evolutionary search and of tree search with each proposer. Tables 3 and 4: history depth, which
needs a language model, and branching. All sides have the same batches and the same cost model,
which is pretrained, so that nobody has a warm-up. Every program that was the best of a run is
measured again, those of all sides of one kernel and seed interleaved.

``--llm MODEL@URL`` (or another form of ``foretune tune --llm``) adds the language model's rows::

    python -m benchmarks.mcts --llm qwen3@http://localhost:11434/v1 --write

Runs are kept in the work directory; called again, it goes on where it was interrupted, at the run,
so that none was ever resumed half-way. All of it takes hours. Programs are tuned for the cores that
the process may use, so processes with a core each, as in the paper, share the work, and a last call
on one core finds all runs::

    for core in 0 1; do taskset -c $core python -m benchmarks.mcts & done; wait
    taskset -c 0 python -m benchmarks.mcts --write

``--workloads`` and ``--seed-list`` do a part of it, in several sessions for example.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._search.figures import remarks
from benchmarks.results import conditions, publish, say, table
from benchmarks.sources import state_of_side
from foretune import cost, search
from foretune.bench import best_at, geometric_mean, run_bench
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Record
from foretune.search.mcts import Mcts
from foretune.space import Space
from foretune.workload import load_input

KERNELS = ("llama3_attention", "deepseek_moe", "flux_attention", "flux_conv")
SAMPLES = (18, 36, 72, 144, 200, 600)
EVOLUTION = "evolutionary"
SIDES = (EVOLUTION, "mcts:random", "mcts:heuristic", "mcts:learned")
BRANCHING = ("mcts:learned:branching=4", "mcts:learned:branching=0")
"""Beside ``mcts:learned``, which has 2; 0 is progressive widening."""
HISTORY = ("mcts:llm:history=3",)
"""Beside ``mcts:llm``, which has 2."""
LLM = "mcts:llm"
EARLY = 36
"""Samples within which the best of ours is to reach what evolutionary search has at the end."""
_TITLE = "Tree search and its proposers on the kernels of the Reasoning Compiler paper"

Run = Mapping[str, Any]


def overhead(workload: str, hardware: Hardware, side: str, batch: int = 16) -> dict[str, float]:
    """Milliseconds of processor time per expansion, with the default cost model.

    Programs are not run: the model of another seed stands in for measurements. What making the
    proposed programs takes (TVM, for any strategy) is in ``all_ms``, but not in ``search_ms``.
    """
    space = Space.generate(load_input(workload), hardware)
    model = cost.create("gbdt", rng=0, hardware=hardware)
    truth = cost.create("gbdt", rng=1, hardware=hardware)
    strategy = search.create(side, space, model, 0)
    assert isinstance(strategy, Mcts)
    strategy.ask(batch)
    before, asking, making = strategy.expanded, 0.0, 0.0
    for _ in range(8):
        began = time.process_time()
        asked = strategy.ask(batch)
        asking += time.process_time() - began
        began = time.process_time()
        for candidate in asked:
            candidate.schedule()
        making += time.process_time() - began
        records = []
        for candidate, score in zip(asked, truth.predict(asked).score.tolist(), strict=True):
            measurement = Measurement(Status.OK, (1e-3 * 2.0**-score,), (True,))
            records.append(
                Record(
                    workload=candidate.workload.key,
                    hardware=candidate.hardware.key,
                    candidate_key=candidate.key,
                    decisions=candidate.to_json(),
                    measurement=measurement,
                    origin="overhead",
                    candidate=candidate,
                )
            )
        model.update(records)
        strategy.tell(records)
    count = strategy.expanded - before
    return {
        "expansions": count,
        "all_ms": 1e3 * asking / count,
        "search_ms": 1e3 * max(0.0, asking - making) / count,
    }


def speedups(runs: Sequence[Run], samples: Sequence[int]) -> list[dict[str, Any]]:
    """Speed-up over the untuned program by kernel, side and samples, with intervals over seeds."""
    rng = np.random.default_rng(0)
    rows = []
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run["workload"], run["strategy"]), []).append(run)
    for (workload, side), found in cells.items():
        for count in samples:
            values = [
                run["untuned_s"] / best
                for run in found
                if run["untuned_s"] and (best := best_at(run, count))
            ]
            if not values:
                continue
            drawn = rng.choice(values, (2000, len(values))).mean(axis=1)
            low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
            rows.append(
                {"workload": workload, "side": side, "samples": count, "seeds": len(values),
                 "mean": float(np.mean(values)), "low": low, "high": high}
            )  # fmt: skip
    return rows


def early(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """Seconds of evolutionary search at the end / those of each side after ``EARLY`` samples.

    At least 1 where the goal is reached. Pairs of the same kernel and seed; geometric mean.
    """
    ends = {
        (run["key"], run["seed"]): best_at(run, trials)
        for run in runs
        if run["strategy"] == EVOLUTION
    }
    rng = np.random.default_rng(0)
    rows = []
    for side in dict.fromkeys(run["strategy"] for run in runs):
        pairs: dict[str, list[float]] = {}
        for run in runs:
            end, best = ends.get((run["key"], run["seed"])), best_at(run, EARLY)
            if run["strategy"] == side and end and best:
                pairs.setdefault(run["key"], []).append(math.log(end / best))
        if pairs:
            mean, low, high = geometric_mean(pairs, rng)
            rows.append({"side": side, "ratio": mean, "low": low, "high": high})
    return rows


def reaching(runs: Sequence[Run], trials: int) -> list[dict[str, Any]]:
    """Samples after which each side has what evolutionary search has at the end.

    Over pairs of the same kernel and seed: ``reached``, the share that get there at all, and
    ``samples``, the median, where one that does not counts as more than any; None if that is it.
    """
    ends = {
        (run["key"], run["seed"]): best_at(run, trials)
        for run in runs
        if run["strategy"] == EVOLUTION
    }
    found: dict[str, list[float]] = {}
    for run in runs:
        end = ends.get((run["key"], run["seed"]))
        if end:
            within = [count for count, _, best in run["curve"] if count <= trials and best <= end]
            found.setdefault(run["strategy"], []).append(min(within, default=math.inf))
    rows = []
    for side, counts in found.items():
        middle = float(np.median(counts))
        rows.append(
            {"side": side, "reached": float(np.mean(np.isfinite(counts))), "pairs": len(counts),
             "samples": middle if math.isfinite(middle) else None}
        )  # fmt: skip
    return rows


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(KERNELS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--ablations", default=",".join(BRANCHING), help="table 4")
    parser.add_argument("--llm", default="", metavar="MODEL@URL", help="adds the language model")
    parser.add_argument("--cost-model", default="default")
    parser.add_argument("--trials", type=int, default=SAMPLES[-1])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed-list", type=_numbers, metavar="S[,S...]", help="these very seeds")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for a single run")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/mcts"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    seeds = options.seed_list or list(range(options.seeds))
    where = conditions("mcts", seeds)
    sides = [side for side in options.sides.split(",") if side]
    ablations = [side for side in options.ablations.split(",") if side]
    if options.llm:
        sides.append(LLM)
        ablations += HISTORY
    kernels = options.workloads.split(",")
    result = run_bench(
        kernels,
        [*sides, *ablations],
        options.trials,
        seeds,
        cost_models=[options.cost_model],
        hardware=where.hardware,
        work_dir=options.work_dir,
        timeout_s=options.timeout,
        state=state_of_side,
        llm=options.llm,
        progress=say,
    )
    costs = {
        side: overhead(kernels[-1], where.hardware, side)
        for side in sides
        # A call that only runs a part of it leaves this to the one that writes the page.
        if options.write and side.startswith("mcts") and side != LLM
    }
    for side, found in costs.items():
        say(f"{side}: {found['search_ms']:.2f} ms per expansion, {found['all_ms']:.2f} with making")
    samples = [count for count in SAMPLES if count < options.trials] + [options.trials]
    result["mcts"] = {
        "samples": samples,
        "speedups": speedups(result["runs"], samples),
        "early": early(result["runs"], options.trials),
        "reaching": reaching(result["runs"], options.trials),
        "overhead": costs,
    }
    publish("mcts", _TITLE, _body(result, sides, ablations), result, where.end(), options.write)


def _body(result: Mapping[str, Any], sides: Sequence[str], ablations: Sequence[str]) -> str:
    found = result["mcts"]
    history = [side for side in ablations if "history" in side]
    parts = [
        "Speed-up over the untuned program, mean over seeds with its 95 % bootstrap interval:",
        _speedups(found, sides),
        "History depth (table 3):" if history else
        "History depth (table 3) needs a language model: give one with `--llm`.",
        _speedups(found, [LLM, *history]) if history else "",
        "Branching (table 4):",
        _speedups(found, ["mcts:learned", *(side for side in ablations if side not in history)]),
        f"What evolutionary search has after {result['trials']} samples, over what each side has "
        f"after {EARLY}: 1 or more reaches the goal.",
        table(
            ["side", "ratio", "95 % interval"],
            [
                [row["side"], f"{row['ratio']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}"]
                for row in found["early"]
            ],
        ),
        f"Samples after which each side has what evolutionary search has after {result['trials']}:",
        table(
            ["side", "median", "share of the pairs that get there"],
            [
                [
                    row["side"],
                    "never" if row["samples"] is None else f"{row['samples']:g}",
                    f"{row['reached']:.0%} of {row['pairs']}",
                ]
                for row in found["reaching"]
            ],
        ),
        "Processor time per expansion of the tree, with the default cost model:"
        if found["overhead"] else "",
        table(
            ["side", "search, ms", "with making the programs, ms"],
            [
                [side, f"{row['search_ms']:.2f}", f"{row['all_ms']:.2f}"]
                for side, row in found["overhead"].items()
            ],
        ) if found["overhead"] else "",
        "\n".join(
            f"- {run['workload']} {run['strategy']} seed {run['seed']}: {run['llm']['calls']} "
            f"calls, {run['llm']['prompt_tokens']} + {run['llm']['completion_tokens']} tokens, "
            f"{run['llm']['invalid']} invalid answers, {run['llm']['hits']} of "
            f"{run['llm']['judged']} judged proposals are hits"
            for run in result["runs"]
            if "llm" in run
        ),
        *remarks(result),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def _speedups(found: Mapping[str, Any], sides: Sequence[str]) -> str:
    cell = {
        (row["workload"], row["side"], row["samples"]):
        f"{row['mean']:.2f} ({row['low']:.2f}–{row['high']:.2f})"
        for row in found["speedups"]
    }  # fmt: skip
    kernels = list(dict.fromkeys(row["workload"] for row in found["speedups"]))
    return table(
        ["kernel", "side", *map(str, found["samples"])],
        [
            [kernel, side, *(cell.get((kernel, side, n), "–") for n in found["samples"])]
            for kernel in kernels
            for side in sides
        ],
    )


if __name__ == "__main__":
    main()
