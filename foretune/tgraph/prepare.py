"""What is done to a graph before a network reads it: pruning, padding, scaling.

Idea: most nodes of a network are the same in all of its configurations. Only configurable nodes and
those near them are kept, which may leave several pieces; the network reads them as one graph.

Source: sections 2.2.1, 2.2.4 and 2.2.5 of Tatarkhanov et al., TGraph (2025). Deviations, each with
a switch: more hops; columns of a wide range on a logarithmic scale before they are standardised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import Array, BoolArray, Float32Array, FloatArray, IntArray
from foretune.tgraph._hlo_features import COLUMNS, DIMENSIONS, LAYOUT, RANK
from foretune.tgraph.graphs import Graph, LayoutGraph, Nodes

_WIDE = 100.0
"""A column whose largest training value is beyond this has a wide range."""


@dataclass(frozen=True)
class Prepared:
    """Nodes as a network reads them, but for scaling.

    Attributes:
        numbers: float32 of shape (n, F): columns of ``node_feat`` but those of the layout.
        layout: Minor to major, -1 where there is no axis, shape (n, 6); (n, 0) of a graph whose
            columns are not the official ones.
        opcode: Shape (n,).
        edges: Shape (m, 2): from a consumer to what it consumes.
        configurable: Numbers of the configurable nodes, shape (nc,).
    """

    numbers: Float32Array
    layout: IntArray
    opcode: IntArray
    edges: IntArray
    configurable: IntArray


def prepare(graph: Graph, hops: int | None, repadded: bool) -> Prepared:
    """Prunes a graph and takes its columns apart.

    Args:
        graph: Tile graphs are small, and not pruned.
        hops: See ``prune``.
        repadded: Whether the layout is filled up with -1 as configurations are; else with 0.
    """
    nodes, configurable = graph.nodes, np.empty(0, dtype=np.int64)
    if isinstance(graph, LayoutGraph):
        nodes, configurable = prune(graph.nodes, graph.configurable, hops)
    numbers, layout = nodes.features, np.empty((len(nodes), 0), dtype=np.int64)
    if nodes.features.shape[1] == len(COLUMNS):
        padded = repad(nodes.features) if repadded else np.maximum(nodes.features, 0)
        # An axis beyond the table of embeddings, from a damaged file, is as good as none.
        layout = np.clip(padded[:, LAYOUT], -1, RANK - 1).astype(np.int64)
        numbers = np.delete(nodes.features, np.r_[LAYOUT], axis=1)
    return Prepared(numbers, layout, nodes.opcode, nodes.edges, configurable)


def prune(nodes: Nodes, configurable: IntArray, hops: int | None) -> tuple[Nodes, IntArray]:
    """Keeps configurable nodes and what is near them.

    Before → after, for ``a - b - C - d - e`` of which ``C`` is configurable: with 1 hop
    ``b - C - d``, with none ``C`` alone.

    Args:
        nodes: The graph.
        configurable: Numbers of its configurable nodes.
        hops: Edges between a node and the nearest configurable one, in either direction, at most;
            None keeps everything. An edge is kept if it lies on such a way, so that with one hop
            every edge touches a configurable node, as in the released code.

    Returns:
        The pruned graph, and the new numbers of the configurable nodes in their order.
    """
    if hops is None:
        return nodes, configurable
    far = np.iinfo(np.int64).max
    distance = np.full(len(nodes), far)
    distance[configurable] = 0
    ends = nodes.edges.T
    for hop in range(hops):
        for here, there in (ends, ends[::-1]):
            reached = there[distance[here] == hop]
            distance[reached] = np.minimum(distance[reached], hop + 1)
    kept = np.flatnonzero(distance <= hops)
    number = np.full(len(nodes), -1)
    number[kept] = np.arange(len(kept))
    near = distance[nodes.edges]
    inside = near.max(axis=1) == 0 if hops == 0 else near.min(axis=1) < hops
    pruned = Nodes(nodes.features[kept], nodes.opcode[kept], number[nodes.edges[inside]])
    return pruned, number[configurable]


def repad(features: Float32Array) -> Float32Array:
    """Fills the layout of tensors up with -1: in official files it is 0, which is an axis.

    The number of axes is that of the leading dimensions that are not 0; tuples and scalars have
    none. Before → after, for a matrix: layout 1, 0, 0, 0, 0, 0 → 1, 0, -1, -1, -1, -1.

    Args:
        features: float32 of shape (n, 140).
    """
    axes = np.cumprod(features[:, DIMENSIONS] != 0, axis=1).sum(axis=1)
    mended: Float32Array = features.copy()
    mended[:, LAYOUT][np.arange(RANK) >= axes[:, None]] = -1
    return mended


@dataclass(frozen=True)
class Scaler:
    """Brings columns to mean 0 and deviation 1, as they are in the nodes that it was fitted to.

    Attributes:
        mean, scale: float32 of shape (F,); scale is 0 for a column that says nothing because it
            was the same in all nodes.
        wide: bool of shape (F,): columns that are taken as sign(x) log(1 + |x|).
    """

    mean: Float32Array
    scale: Float32Array
    wide: BoolArray

    @classmethod
    def fit(cls, tables: Sequence[Float32Array], logarithms: bool) -> Scaler:
        """Made for the columns of these tables, each of shape (rows, F)."""
        rows = np.concatenate(tables).astype(np.float64)
        wide = (np.abs(rows).max(axis=0) > _WIDE) & logarithms
        rows = _logarithmic(rows, wide)
        deviation = rows.std(axis=0)
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-9)
        return cls(rows.mean(axis=0).astype(np.float32), scale.astype(np.float32), wide)

    def __call__(self, table: Array) -> Float32Array:
        """Scaled columns, float32 of shape (rows, F)."""
        rows = _logarithmic(table.astype(np.float64), self.wide)
        return np.asarray((rows - self.mean) * self.scale, dtype=np.float32)


@dataclass(frozen=True)
class Scalers:
    """Of one member: of its nodes' columns, and of tile configurations (None for layouts)."""

    nodes: Scaler
    choices: Scaler | None

    @classmethod
    def fit(cls, graphs: Sequence[Graph], hops: int | None, logarithms: bool) -> Scalers:
        """Made for the graphs that a member learns from, pruned to so many hops."""
        tables = [prepare(graph, hops, True).numbers for graph in graphs]
        choices = [graph.configurations for graph in graphs if not isinstance(graph, LayoutGraph)]
        return cls(
            Scaler.fit(tables, logarithms),
            Scaler.fit(choices, logarithms) if choices else None,
        )


def _logarithmic(rows: FloatArray, wide: BoolArray) -> FloatArray:
    return np.where(wide, np.sign(rows) * np.log1p(np.abs(rows)), rows)


def graph_key(graph: Graph) -> str:
    """A digest of a graph without its configurations, equal for a network in two collections."""
    nodes = graph.nodes
    # Layouts are padded with 0 or -1, depending on where a file is from.
    parts = (np.maximum(nodes.features, 0), nodes.opcode, nodes.edges)
    digest = hashlib.sha256(repr([part.shape for part in parts]).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def family(graph: Graph) -> str:
    """A digest that networks share which differ in sizes alone; ``graph_key`` of a kernel.

    Kernels of two or three operations often have the same ones, and are different programs.
    """
    if not isinstance(graph, LayoutGraph):
        return graph_key(graph)
    digest = hashlib.sha256(b"operations and edges")
    for part in (graph.nodes.opcode, graph.nodes.edges):
        digest.update(f"{part.shape}".encode())
        digest.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
    return digest.hexdigest()[:16]
