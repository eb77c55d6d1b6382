"""Quality after 64 trials: evolutionary search with gradient boosting against TVM MetaSchedule.

Ten workloads of the catalog, three seeds each. Runs are kept in the work directory; called again,
it goes on where it was interrupted. Those of foretune count only for the code and the weights that
made them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.results import conditions, publish, say, table
from benchmarks.sources import state_of_ours
from foretune.bench import run_bench
from foretune.cost import DEFAULT_MODEL

WORKLOADS = (
    "matmul_512",
    "conv2d_3x3",
    "depthwise_3x3",
    "conv2d_pad_relu",
    "conv2d_stride_relu",
    "conv2d_add_relu",
    "depthwise_relu",
    "ffn",
    "attention_qk",
    "softmax",
)
STRATEGIES = ("evolutionary", "metaschedule")
_TITLE = "Quality at equal trials: foretune and TVM MetaSchedule"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/search64"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("search64", list(range(options.seeds)))
    state = state_of_ours()
    result = run_bench(
        options.workloads.split(","),
        options.strategies.split(","),
        options.trials,
        options.seeds,
        cost_models=[DEFAULT_MODEL],
        hardware=where.hardware,
        work_dir=options.work_dir,
        state=state,
        progress=say,
    )
    result["state"] = state
    publish("search64", _TITLE, _body(result), result, where.end(), options.write)


def _body(result: dict[str, Any]) -> str:
    summary = result["summary"]
    speedup = table(
        ["strategy", "over", "trials", "speed-up (geometric mean)", "95 % interval", "pairs"],
        [_row(row, "strategy", "over", "trials") for row in summary["speedup"]],
    )
    rates = table(
        ["strategy", "over", "trials/s ratio", "95 % interval", "pairs"],
        [_row(row, "strategy", "over") for row in summary["trials_per_s"]],
    )
    best: dict[tuple[str, str], list[float]] = {}
    for run in result["runs"]:
        if run["curve"]:
            key = (run["workload"], run["strategy"])
            best.setdefault(key, []).append(run["curve"][-1][2] * 1e3)
    sides = list(dict.fromkeys(side for _, side in best))
    names = list(dict.fromkeys(name for name, _ in best))
    per_workload = table(
        ["workload", *(f"{side}: ms per seed" for side in sides)],
        [
            [name, *(" ".join(f"{ms:.4f}" for ms in best.get((name, side), [])) for side in sides)]
            for name in names
        ],
    )
    notes = "\n".join(f"- {name}: {note}." for name, note in result["notes"].items())
    failures = "\n".join(
        f"- failed: {f['workload']} {f['strategy']} seed {f['seed']}: {f['error'][:200]}"
        for f in result["failures"]
    )
    return "\n\n".join(
        part
        for part in (
            speedup,
            "A ratio above 1 means faster programs. Every program that was the best of a run was "
            "measured again, those of both sides interleaved by one measurer; intervals are from "
            "a bootstrap over workloads and seeds. MetaSchedule returns its candidates in batches "
            "of 64, counted here in the order of measurement.",
            notes,
            failures,
            per_workload,
            rates,
        )
        if part
    )


def _row(row: dict[str, Any], *names: str) -> list[str]:
    return [*(str(row[name]) for name in names), f"{row['ratio']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}", str(row["pairs"])]  # fmt: skip


if __name__ == "__main__":
    main()
