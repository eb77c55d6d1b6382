"""Writes down the evaluation set, which no model may learn from: ``python -m benchmarks.excluded``.

The set is every subgraph, kernel and task of a network of the catalog: with all passes, for vectors
of three widths, and without those that compute an operator in another form. Run again when the
catalog or the graph simplification changes: a slow test says so.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import say
from foretune.bench import write_json
from foretune.graph import extract
from foretune.hardware import probe
from foretune.workload import Model, Workload, catalog, training

_TARGETS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""Vectors of three widths: weights are packed by them, so that a task has other shapes."""


_CHOOSING = ("layouts", "packed-weights", "algorithms", "transposed-convolutions", "attention",
             "normalizations", "reshapes", "transposes")  # fmt: skip
"""Passes without which a task is the operator as papers and other tuners know it."""


def networks() -> tuple[str, ...]:
    """Names of the networks whose tasks are in the set."""
    return catalog.names("network")


def single() -> Iterator[dict[str, Any]]:
    """Entries of the subgraphs and kernels."""
    for name in (*catalog.names("subgraph"), *catalog.names("kernel")):
        workload = catalog.get(name)
        assert isinstance(workload, Workload)
        yield entry(workload, None)


def of_networks(names: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """Entries of the tasks of networks, of all in the set if none are named.

    Each extraction has a process of its own: what it leaves in memory adds up otherwise.
    """
    chosen = networks() if names is None else names
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        for name in chosen:
            found: dict[str, dict[str, Any]] = {}
            for target, without in itertools.product(_TARGETS, ((), _CHOOSING)):
                for each in pool.apply(_tasks, (name, target, without)):
                    found.setdefault(each["key"], each)
            say(f"{name}: {len(found)} workloads")
            yield from found.values()


def _tasks(name: str, target: str, without: tuple[str, ...]) -> list[dict[str, Any]]:
    model = catalog.get(name)
    assert isinstance(model, Model)
    machine = probe(f"llvm -mcpu={target}", threads=1)
    return [entry(workload, name) for workload in extract(model, machine, without).workloads]


def entry(workload: Workload, network: str | None) -> dict[str, Any]:
    """One workload as it stands in the file; ``network`` is None for a single program."""
    return {
        "name": workload.name,
        "network": network,
        "key": workload.key,
        "signature": training.signature(workload),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=training.EXCLUDED_FILE)
    options = parser.parse_args(arguments)
    entries = [*single(), *of_networks()]
    write_json(options.output, {"schema": training.EXCLUDED_SCHEMA, "workloads": entries})
    keys, signatures = ({e[field] for e in entries} for field in ("key", "signature"))
    say(f"{len(entries)} entries, {len(keys)} keys, {len(signatures)} signatures")


if __name__ == "__main__":
    main()
