"""Measured trials per second, ours and TVM MetaSchedule's, start-up included.

Every run is a fresh process, timed from its start to its end. The sides alternate, and the order
changes with every repeat. MetaSchedule runs as a user runs it; a second row shows it without the
import of every tensor intrinsic, which costs tens of seconds in the tuning process and again in
each builder worker.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from foretune.bench import Side, run_side
from foretune.cost import DEFAULT_MODEL
from foretune.hardware import Hardware
from foretune.metaschedule import PeerOptions, run_peer
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3")
OURS, PEER, QUICK_PEER = "foretune", "metaschedule", "metaschedule, import trap removed"
_TITLE = "Measured trials per second"
Run = Callable[[Workload, Hardware, int, int], dict[str, Any]]


def run_ours(workload: Workload, hardware: Hardware, trials: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="foretune-throughput-") as folder:
        side = Side("evolutionary", DEFAULT_MODEL)
        run = run_side(side, workload, hardware, trials, seed, Path(folder))
    return {
        "trials": run.trials,
        "failed": run.failed,
        "elapsed_s": run.elapsed_s,
        "spent_s": dict(run.spent_s),
        "overhead": overhead(run.elapsed_s, run.spent_s),
    }


def imports_s(workload: str, hardware: Hardware) -> float:
    """Seconds that the start of a process and the imports of a run take, in one of one trial."""
    script = str(Path(__file__).parent / "_search" / "imports.py")
    command = [sys.executable, script, str(time.time()), workload, str(hardware.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def overhead(elapsed_s: float, spent_s: Any, left_out_s: float = 0.0) -> float:
    """Share of a run that neither compiled nor ran candidates, without the seconds left out.

    ``build_s`` is wall time waiting for builds, ``measure_s`` checking and timing, ``canary_s``
    the noise watch, which is part of timing.
    """
    useful = sum(float(spent_s.get(name, 0.0)) for name in ("build_s", "measure_s", "canary_s"))
    return 1.0 - useful / (elapsed_s - left_out_s)


def run_theirs(remove_import_trap: bool) -> Run:
    def run(workload: Workload, hardware: Hardware, trials: int, seed: int) -> dict[str, Any]:
        options = PeerOptions(remove_import_trap=remove_import_trap)
        result = run_peer(workload, hardware, trials, seed, options)
        return {
            "trials": len(result.trials),
            "failed": sum(trial.best_s is None for trial in result.trials),
            "elapsed_s": result.elapsed_s,
        }

    return run


SIDES: dict[str, Run] = {OURS: run_ours, PEER: run_theirs(False), QUICK_PEER: run_theirs(True)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("throughput", list(range(options.repeats)))
    runs: list[dict[str, Any]] = []
    names = list(SIDES)
    turn = 0
    for repeat in range(options.repeats):
        for name in options.workloads.split(","):
            workload = load_input(name)
            assert isinstance(workload, Workload), f"{name} is a model: name a tensor program"
            shift = turn % len(names)
            turn += 1
            for side in [*names[shift:], *names[:shift]]:
                run = SIDES[side](workload, where.hardware, options.trials, repeat)
                if side == OURS:
                    start_s = imports_s(name, where.hardware) + run["spent_s"].get("start_s", 0.0)
                    left = overhead(run["elapsed_s"], run["spent_s"], start_s)
                    run = {**run, "process_start_s": start_s, "overhead_without_start": left}
                rate = run["trials"] / run["elapsed_s"]
                runs.append(
                    {"workload": name, "side": side, "seed": repeat, "trials_per_s": rate, **run}
                )
                say(f"{name}  {side}: {rate:.2f} trials/s, {run['failed']} failed")
    publish("throughput", _TITLE, _body(runs, options), {"runs": runs}, where.end(), options.write)


def _body(runs: list[dict[str, Any]], options: argparse.Namespace) -> str:
    workloads = options.workloads.split(",")
    median = {
        (side, name): float(
            np.median(
                [r["trials_per_s"] for r in runs if (r["side"], r["workload"]) == (side, name)]
            )
        )
        for side in SIDES
        for name in workloads
    }
    rows = []
    for side in SIDES:
        ratios = [median[OURS, name] / median[side, name] for name in workloads]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        failed = sum(r["failed"] for r in runs if r["side"] == side)
        rows.append(
            [side, *(f"{median[side, name]:.2f}" for name in workloads),
             " ".join(f"{ratio:.1f}" for ratio in ratios), f"{mean:.2f}", str(failed)]
        )  # fmt: skip
    header = ["trials per second", *workloads, "ours / this", "geometric mean", "failed trials"]
    own = [r for r in runs if r["side"] == OURS]
    shares = [
        [
            words,
            *(f"{np.median([r[key] for r in own if r['workload'] == n]):.1%}" for n in workloads),
        ]
        for words, key in (
            ("with the start of processes and imports", "overhead"),
            ("without these", "overhead_without_start"),
        )
    ]
    parts: dict[str, float] = {}
    for run in own:
        for key, seconds in run["spent_s"].items():
            if key not in ("untuned_s", "tuned_s"):
                parts[key] = parts.get(key, 0.0) + seconds / len(own)
    split = ", ".join(f"{key} {seconds:.2f}" for key, seconds in sorted(parts.items()))
    return (
        f"{table(header, rows)}\n\n"
        f"{options.trials} trials per run, {options.repeats} run(s) each, medians; every run a "
        "fresh process timed from start to end. MetaSchedule: its own builder, runner and "
        "defaults (64 per batch), its runtime given all threads.\n\n"
        "Framework overhead of foretune: the share of a run that neither compiles nor runs "
        "candidates. What starts and imports take was measured in runs of one trial beside "
        f"them.\n\n{table(['framework overhead', *workloads], shares)}\n\n"
        f"Seconds of its runs, mean: {split}."
    )


if __name__ == "__main__":
    main()
