"""Measured trials per second, ours and TVM MetaSchedule's, start-up included.

Every run is a fresh process, timed from its start to its end. The sides alternate, and the order
changes with every repeat. MetaSchedule runs as a user runs it; a second row shows it without the
import of every tensor intrinsic, which costs tens of seconds in the tuning process and again in
each builder worker.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.pages import Section
from benchmarks.results import conditions, say, table
from foretune.bench import Side, run_side
from foretune.cost import DEFAULT_MODEL
from foretune.hardware import Hardware
from foretune.metaschedule import PeerOptions, run_peer
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3")
OURS, PEER, QUICK_PEER = "foretune", "metaschedule", "metaschedule, import trap removed"
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


def overhead(elapsed_s: float, spent_s: Any) -> float:
    """Share of a run that neither compiled nor ran candidates.

    ``build_s`` is wall time waiting for builds, ``measure_s`` checking and timing, ``canary_s``
    the noise watch, which is part of timing.
    """
    useful = sum(float(spent_s.get(name, 0.0)) for name in ("build_s", "measure_s", "canary_s"))
    return 1.0 - useful / elapsed_s


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
                rate = run["trials"] / run["elapsed_s"]
                runs.append(
                    {"workload": name, "side": side, "seed": repeat, "trials_per_s": rate, **run}
                )
                say(f"{name}  {side}: {rate:.2f} trials/s, {run['failed']} failed")
    pages.publish("throughput", section, {"runs": runs}, where.end(), options.write)


def section(data: Mapping[str, Any]) -> Section:
    """How many times the trials a second of the peer, and what a run spends on what."""
    runs = data["runs"]
    workloads = list(dict.fromkeys(run["workload"] for run in runs))

    def median(key: str, side: str, name: str) -> float:
        return float(
            np.median([r[key] for r in runs if (r["side"], r["workload"]) == (side, name)])
        )

    rows, times = [], {}
    for side in SIDES:
        rates = [median("trials_per_s", side, name) for name in workloads]
        ratios = [
            median("trials_per_s", OURS, n) / r for n, r in zip(workloads, rates, strict=True)
        ]
        times[side] = f"{math.exp(float(np.mean(np.log(ratios)))):.2f}"
        failed = sum(run["failed"] for run in runs if run["side"] == side)
        each = " ".join(f"{ratio:.1f}" for ratio in ratios)
        rows.append([side, *(f"{rate:.2f}" for rate in rates), each, times[side], str(failed)])
    header = ["trials per second", *workloads, "ours / this", "geometric mean", "failed trials"]
    own = [run for run in runs if run["side"] == OURS]
    shares = ["framework overhead", *(f"{median('overhead', OURS, n):.1%}" for n in workloads)]
    spent = {key for run in own for key in run["spent_s"]} - {"untuned_s", "tuned_s"}
    split = ", ".join(
        f"{key} {np.mean([run['spent_s'].get(key, 0.0) for run in own]):.2f}"
        for key in sorted(spent)
    )
    return Section(
        "How many trials does a second have?",
        f"{times[PEER]} times as many as with MetaSchedule as it comes, {times[QUICK_PEER]} times "
        "as many as without its imports (geometric mean).",
        table(header, rows),
        f"{own[0]['trials']} trials per run, {sum(r['workload'] == workloads[0] for r in own)} "
        "run(s) each, medians; every run a fresh process timed from start to end. MetaSchedule: "
        "its own builder, runner and defaults (64 per batch), its runtime given all threads.\n\n"
        "Framework overhead of foretune: the share of a run that neither compiles nor runs "
        "candidates, the start of processes and imports included.\n\n"
        f"{table(['', *workloads], [shares])}\n\n"
        f"Seconds of its runs, mean: {split}.",
    )


if __name__ == "__main__":
    main()
