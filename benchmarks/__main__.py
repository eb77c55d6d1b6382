"""``python -m benchmarks [NAME [OPTION ...]]``: what ``make bench`` runs.

Without a name the short ones run, and the table of all is printed with the page each has written.
With a name that benchmark runs, with its own options: ``python -m benchmarks networks --write``.
"""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

from benchmarks.results import RESULTS, ROOT


class Benchmark(NamedTuple):
    """One row of the table.

    Attributes:
        question: What it answers, in a few words.
        takes: How long, on two cores; whether it goes on where it was stopped.
        pages: The stems of its pages in docs/results.
    """

    question: str
    takes: str
    pages: tuple[str, ...] = ()


BENCHMARKS = {
    "networks": Benchmark("whole networks beside other engines", "3 h, resumable", ("networks",)),
    "company": Benchmark("does a comparison slow engines down", "45 min after networks"),
    "quantised": Benchmark("a network in bytes", "45 min"),
    "learned_from": Benchmark("what a tuned network brings the next", "1 h, resumable"),
    "tuners": Benchmark("whole networks by tuner", "11 h, resumable", ("tuners",)),
    "cuda": Benchmark("a GPU beside PyTorch", "15 min on a GPU", ("cuda",)),
    "coverage": Benchmark("does a model of mine work", "2 h, resumable", ("coverage",)),
    "search22": Benchmark(
        "searches side by side: first trials on 22 subgraphs beside MetaSchedule",
        "3 h, resumable",
        ("search", "strategies"),
    ),
    "long_search": Benchmark("32 trials beside 1,024", "3 h, resumable"),
    "proposers": Benchmark("trains the policy of proposed edits", "1 min"),
    "portfolio": Benchmark("fills the portfolio of schedules", "1 min"),
    "replay": Benchmark("strategies on tables of others", "20 min"),
    "throughput": Benchmark("trials per second, overhead", "15 min", ("speed",)),
    "models": Benchmark("what ranks best on unknown workloads", "2 h, resumable", ("models",)),
    "limits": Benchmark("what bounds a ranker", "10 min"),
    "own_variants": Benchmark("a variant of our processor, unseen", "1 h, resumable"),
    "unseen_devices": Benchmark("a device that nobody saw", "2 h, resumable", ("devices",)),
    "stages": Benchmark("what each stage of behaviour brings", "20 min, resumable"),
    "model_speed": Benchmark("what a score costs", "15 min"),
    "world": Benchmark("what a predicted state brings", "3 h, resumable", ("world",)),
    "world_start": Benchmark("does it depend on the start", "2 h, resumable"),
    "tgraph": Benchmark("TGraph on files of TpuGraphs", "some hours, resumable"),
    "plans": Benchmark("TGraph on networks never seen", "some hours, resumable"),
    "planned": Benchmark("networks with a proposed plan", "2 h, resumable"),
    "audit": Benchmark("does a label repeat", "2 min", ("labels",)),
    "stores": Benchmark("records that eight processes write", "5 min"),
    "pages": Benchmark("draws pages anew from kept readings", "1 min"),
    "plan_networks": Benchmark("writes the lists of networks whose plans are collected", "1 s"),
    "excluded": Benchmark("writes the list of evaluation workloads", "1 min"),
    "training_workloads": Benchmark("writes the list of training workloads", "20 min"),
}
#: what runs without a name, some minutes in all
SHORT = ("throughput", "audit")


def main(arguments: list[str]) -> None:
    """Runs the named benchmark, or the short ones and the table."""
    if arguments:
        name, *options = arguments
        if name not in BENCHMARKS:
            sys.exit(f"unknown benchmark {name!r}: choose from {', '.join(sorted(BENCHMARKS))}")
        _run(name, options)
        return
    for name in SHORT:
        print(f"\n--- {name} ---\n")
        _run(name, [])
    _list()


def _run(name: str, options: list[str]) -> None:
    importlib.import_module(f"benchmarks.{name}").main(options)


def _list() -> None:
    print("\nAll benchmarks, each with `python -m benchmarks NAME --help`:\n")
    for name, row in BENCHMARKS.items():
        print(f"{name:20s} {row.question} ({row.takes})")
        for page in row.pages:
            path = RESULTS / f"{page}.md"
            there = "" if path.exists() else " is missing: its results were never written"
            print(f"{'':20s}   {path.relative_to(ROOT)}{there}")


if __name__ == "__main__":
    main(sys.argv[1:])
