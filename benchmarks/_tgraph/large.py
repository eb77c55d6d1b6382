"""The largest official size, made here: is it trainable in 24 GiB, and how long does a step take?

``python -m benchmarks._tgraph.large FILE.npz`` reads a file, trains a few steps and prints a JSON
object; the benchmark calls it as a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.tgraph import COLUMNS, LayoutGraph, named, read_graph, train, whole
from foretune.tgraph.graphs import Nodes
from foretune.tgraph.prepare import prune

_BLOCK = 1000
_FIRST = COLUMNS.index("shape_dimensions_0")


def made_nodes(nodes: int, every: int) -> tuple[Nodes, npt.NDArray[np.int64]]:
    """A chain with branches, and its configurable nodes: one in ``every``."""
    rng = np.random.default_rng(0)
    features = np.zeros((nodes, len(COLUMNS)), dtype=np.float32)
    features[:, _FIRST : _FIRST + 3] = rng.integers(1, 1024, size=(nodes, 3))
    chain = [(at, at - 1) for at in range(1, nodes)]
    branch = rng.integers(0, np.arange(2, nodes, 2))
    edges = np.array(chain + list(zip(range(2, nodes, 2), branch.tolist(), strict=True)))
    opcode = rng.integers(1, 120, size=nodes)
    return Nodes(features, opcode, edges), np.arange(every // 2, nodes, every)


def make(path: Path, nodes: int, every: int, configurations: int) -> None:
    """Writes a layout file of a made network, some configurations at a time."""
    graph, ids = made_nodes(nodes, every)
    rng = np.random.default_rng(1)
    runtime = rng.integers(10**8, 2 * 10**8, size=configurations)
    arrays: dict[str, npt.NDArray[Any]] = {
        "node_feat": graph.features,
        "node_opcode": graph.opcode.astype(np.uint8),
        "edge_index": graph.edges,
        "node_config_ids": ids,
        "config_runtime": runtime,
        "node_splits": np.array([[0, nodes]]),
    }
    shape = (configurations, len(ids), 18)
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(array))
        with file.open("node_config_feat.npy", "w", force_zip64=True) as entry:
            header = {"descr": "|i1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(entry, header)
            for at in range(0, configurations, _BLOCK):
                count = min(_BLOCK, configurations - at)
                entry.write(rng.integers(-1, 6, size=(count, *shape[1:]), dtype=np.int8).tobytes())


def measure(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Reads a file and trains some steps on it: seconds, and peak memory in GiB."""
    began = time.perf_counter()
    graph = read_graph(path)
    assert isinstance(graph, LayoutGraph)
    read = time.perf_counter()
    config = named("corrected", {"epochs": 2, **options})
    part = whole(graph)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    train([part], config, validate=False)
    trained, trained_cpu = time.perf_counter(), time.process_time()
    pruned = prune(graph.nodes, graph.configurable, config.hops)[0]
    return {
        "nodes": len(graph.nodes),
        "pruned": len(pruned),
        "configurable": len(graph.configurable),
        "configurations": len(graph.configurations),
        "batch": config.batch,
        "steps": config.epochs,
        "read_s": read - began,
        # The spread of 128 scores, taken at the end, is in it.
        "train_s": trained - begun,
        "train_processor_s": trained_cpu - begun_cpu,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), json.loads(sys.argv[2]))))
