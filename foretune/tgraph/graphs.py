"""Graphs of TpuGraphs with the configurations that were measured: what a model learns from.

Two kinds. In a *layout* graph, a whole network, a configuration says for each configurable node how
its tensors lie in memory. In a *tile* graph, one kernel, a configuration is 24 numbers for the
whole graph. ``read_graphs`` reads official ``.npz`` files of both, raw protobufs, and files of ours
that have the same keys and shapes.

Symbols: n nodes, m edges, nc configurable nodes, c configurations.

Source: Phothilimthana et al., TpuGraphs (2023); keys and columns as in the data set's README.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import Float32Array, FloatArray, IntArray
from foretune.errors import BadInputError, listed
from foretune.tgraph.configurations import Configurations

LAYOUT, TILE = "layout", "tile"
ANCHORS_KEY = "anchor_config_feat"
"""Where a file of ours has configurations that others are compared with."""
MADE_KEY = "made"
"""Where it says what configurations were measured with."""
OPCODES = 128
"""Numbers that operations may have: the official list ends at 120."""
TILE_FEATURES = 24


@dataclass(frozen=True)
class Nodes:
    """A graph without its configurations.

    Attributes:
        features: float32 of shape (n, F); official files have the 140 columns that
            ``foretune.tgraph.COLUMNS`` names.
        opcode: Numbers of the operations, shape (n,).
        edges: Shape (m, 2): from a consumer to what it consumes.
    """

    features: Float32Array
    opcode: IntArray
    edges: IntArray

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class LayoutGraph:
    """A network whose nodes have configurations.

    Attributes:
        name: The file's, without ``.npz``.
        nodes: The graph.
        configurable: Numbers of the configurable nodes, shape (nc,), at least one.
        configurations: Packed, c of them, at least one.
        runtime: Nanoseconds of each, int64 of shape (c,); None where none was measured, as in
            official test files.
        anchors: Configurations that others may be compared with, measured or not; None: some of
            ``configurations``, as in official files.
        made: What configurations were measured with, in words of the file; empty in official files.
    """

    name: str
    nodes: Nodes
    configurable: IntArray
    configurations: Configurations
    runtime: IntArray | None
    anchors: Configurations | None = None
    made: str = ""

    kind = LAYOUT


@dataclass(frozen=True)
class TileGraph:
    """A kernel that has configurations as a whole.

    Attributes:
        name: The file's, without ``.npz``.
        nodes: The graph.
        configurations: float32 of shape (c, 24): bounds of kernel, output and input.
        runtime: Each one's nanoseconds over those of a default configuration on the same machine,
            float64 of shape (c,); None where none was measured.
    """

    name: str
    nodes: Nodes
    configurations: Float32Array
    runtime: FloatArray | None

    kind = TILE


Graph = LayoutGraph | TileGraph


def measured(runtime: IntArray, where: str) -> IntArray | None:
    """Run times, or None where all are zero: official test files do not tell them.

    Raises:
        BadInputError: Some are zero.
    """
    there = runtime > 0
    if there.all():
        return runtime
    if there.any():
        raise BadInputError(
            f"{where}: run times must be positive, or all zero where none is told, but "
            f"{int((~there).sum())} of {len(there)} are zero: leave these configurations out"
        )
    return None


def require_configurable(ids: IntArray, nodes: int, where: str) -> None:
    """Refuses a layout graph whose configurable nodes are none, or not all different nodes of it.

    Raises:
        BadInputError: See above.
    """
    if not len(ids):
        raise BadInputError(
            f"{where}: a layout graph must have configurable nodes, but has none: leave it out"
        )
    outside = ids[(ids < 0) | (ids >= nodes)]
    if len(outside) or len(np.unique(ids)) != len(ids):
        what = f"{outside[0]} is none of its {nodes}" if len(outside) else "one occurs twice"
        raise BadInputError(
            f"{where}: node_config_ids must name nodes, each once, but {what}: give a whole file"
        )


def graph_names(graphs: Sequence[Graph]) -> str:
    """Names for a message."""
    return listed([graph.name for graph in graphs], 4)
