"""Writes down the evaluation set, which no model may learn from: ``python -m benchmarks.excluded``.

The set is every subgraph and kernel of the catalog and every task of the networks that the papers
name, as this machine extracts them: with all passes, and without those that compute an operator in
another form. Run again when the catalog or the graph simplification changes: a slow test says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import say
from foretune.bench import write_json
from foretune.graph import extract
from foretune.hardware import Hardware, probe
from foretune.workload import Model, Workload, catalog, training

_OUTSIDE = ("efficientnet_b0", "unet", "detr", "wav2vec2")
"""Networks of the catalog that came after the training workloads: four of those compute what a task
of EfficientNet or DETR does, so that these networks say nothing of a model on unseen programs."""


_CHOOSING = ("layouts", "packed-weights", "algorithms", "transposed-convolutions", "attention",
             "normalizations", "reshapes", "transposes")  # fmt: skip
"""Passes without which a task is the operator as papers and other tuners know it."""


def networks() -> tuple[str, ...]:
    """Names of the networks whose tasks are in the set."""
    return tuple(name for name in catalog.names("network") if name not in _OUTSIDE)


def single() -> Iterator[dict[str, Any]]:
    """Entries of the subgraphs and kernels."""
    for name in (*catalog.names("subgraph"), *catalog.names("kernel")):
        workload = catalog.get(name)
        assert isinstance(workload, Workload)
        yield entry(workload, None)


def of_networks(hardware: Hardware, names: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """Entries of the tasks of networks, of all in the set if none are named."""
    for name in networks() if names is None else names:
        model = catalog.get(name)
        assert isinstance(model, Model)
        found: dict[str, Workload] = {}
        for without in ((), _CHOOSING):
            for workload in extract(model, hardware, without).workloads:
                found.setdefault(workload.key, workload)
        say(f"{name}: {len(found)} workloads")
        yield from (entry(workload, name) for workload in found.values())


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
    entries = [*single(), *of_networks(probe())]
    write_json(options.output, {"schema": training.EXCLUDED_SCHEMA, "workloads": entries})
    keys, signatures = ({e[field] for e in entries} for field in ("key", "signature"))
    say(f"{len(entries)} entries, {len(keys)} keys, {len(signatures)} signatures")


if __name__ == "__main__":
    main()
