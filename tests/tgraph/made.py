"""Files of TpuGraphs' form that are made here, with run times that a known function gives.

A layout of a node costs more the more axes are out of order; a node whose input layout differs from
the output layout of the node that it consumes costs a copy. So both a node's own configuration and
edges matter, and a model can learn the order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.tgraph import COLUMNS, LayoutGraph, Nodes, TileGraph
from foretune.tgraph.configurations import packed

Arrays = dict[str, npt.NDArray[Any]]

CONVOLUTION, PARAMETER, ADD = 26, 63, 2
_LAST = 64
_FIRST_DIMENSION = COLUMNS.index("shape_dimensions_0")
_FIRST_AXIS = COLUMNS.index("layout_minor_to_major_0")


def layout_arrays(
    seed: int = 0, *, configurable: int = 4, configurations: int = 60, isolated: bool = False
) -> Arrays:
    """A chain ``parameter <- convolution <- add <- parameter <- ...`` with layouts of rank 3.

    Args:
        seed: Draws shapes and configurations, and says what the last node does: graphs are told
            apart by their operations.
        configurable: Convolutions.
        configurations: Different or not: few nodes have few.
        isolated: Whether the last convolution has no edge.
    """
    rng = np.random.default_rng(seed)
    n = 3 * configurable
    node_feat = np.zeros((n, len(COLUMNS)), dtype=np.float32)
    dims = rng.integers(2, 512, size=(n, 3))
    node_feat[:, _FIRST_DIMENSION : _FIRST_DIMENSION + 3] = dims
    node_feat[:, _FIRST_AXIS : _FIRST_AXIS + 3] = [2, 1, 0]
    ids = np.arange(configurable) * 3 + 1
    edges = np.array([(i, i - 1) for i in range(1, n)])
    if isolated:
        edges = edges[(edges != ids[-1]).all(axis=1)]
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]])
    chosen = rng.integers(len(orders), size=(configurations, configurable, 3))
    feat = np.full((configurations, configurable, 18), -1, dtype=np.int8)
    for part in range(3):
        feat[:, :, 6 * part : 6 * part + 3] = orders[chosen[:, :, part]]
    opcode = np.tile([PARAMETER, CONVOLUTION, ADD], configurable).astype(np.uint8)
    opcode[-1] = _LAST + seed % 50
    return {
        "node_feat": node_feat,
        "node_opcode": opcode,
        "edge_index": edges.astype(np.int64),
        "node_config_ids": ids.astype(np.int64),
        "node_config_feat": feat,
        "config_runtime": layout_runtime(feat),
        "node_splits": np.array([[0, n]]),
    }


def layout_runtime(feat: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Nanoseconds of configurations of shape (c, nc, 18)."""
    outputs, inputs = feat[:, :, 0:3].astype(int), feat[:, :, 6:9].astype(int)
    own = (outputs[..., 0] == 0) * 3 + (feat[:, :, 12] == 2) * 1
    copies = (inputs[:, 1:] != outputs[:, :-1]).any(axis=-1).sum(axis=1)
    found: npt.NDArray[np.int64] = 1_000_000 + 40_000 * own.sum(axis=1) + 25_000 * copies
    return found.astype(np.int64)


def tile_arrays(seed: int = 0, configurations: int = 12) -> Arrays:
    """A kernel of two nodes; a tile is fast if its sides are alike."""
    rng = np.random.default_rng(seed)
    node_feat = np.zeros((2, len(COLUMNS)), dtype=np.float32)
    node_feat[:, _FIRST_DIMENSION : _FIRST_DIMENSION + 2] = rng.integers(8, 512, size=2)
    bounds = rng.integers(1, 64, size=(configurations, 2))
    feat = np.zeros((configurations, 24), dtype=np.float32)
    feat[:, 8:10] = bounds
    feat[:, 14], feat[:, 15] = bounds.sum(axis=1), bounds.prod(axis=1)
    runtime = 1000 + 50 * np.abs(bounds[:, 0] - bounds[:, 1]) + rng.integers(5, size=configurations)
    return {
        "node_feat": node_feat,
        "node_opcode": np.array([63, 75], dtype=np.uint8),
        "edge_index": np.array([[1, 0]]),
        "config_feat": feat,
        "config_runtime": runtime.astype(np.int64),
        "config_runtime_normalizers": np.full(configurations, 1000),
    }


def write(path: Path, arrays: Arrays) -> Path:
    """An ``.npz`` file of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def layout_graph(seed: int = 0, **options: Any) -> LayoutGraph:
    """A graph that was not in a file."""
    made = layout_arrays(seed, **options)
    feat = made["node_config_feat"]
    return LayoutGraph(
        f"made{seed}",
        nodes_of(made),
        made["node_config_ids"],
        packed([feat], len(feat), feat.shape[1]),
        made["config_runtime"],
    )


def tile_graph(seed: int = 0, configurations: int = 12) -> TileGraph:
    """The same with tiles."""
    made = tile_arrays(seed, configurations)
    runtime = made["config_runtime"] / made["config_runtime_normalizers"]
    return TileGraph(f"tile{seed}", nodes_of(made), made["config_feat"], runtime)


def nodes_of(made: Arrays) -> Nodes:
    """The nodes of made arrays."""
    opcode = made["node_opcode"].astype(np.int64)
    return Nodes(made["node_feat"], opcode, made["edge_index"].astype(np.int64))
