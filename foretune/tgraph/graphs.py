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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretune.errors import BadInputError, listed
from foretune.tgraph._npz import NpzFile
from foretune.tgraph.configurations import FEATURES, Configurations, packed

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

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

    features: Floats
    opcode: Integers
    edges: Integers

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
    configurable: Integers
    configurations: Configurations
    runtime: Integers | None
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
    configurations: Floats
    runtime: npt.NDArray[np.float64] | None

    kind = TILE


Graph = LayoutGraph | TileGraph


def read_graphs(path: Path) -> list[Graph]:
    """The graphs of a file, or of all ``.npz`` files in a folder and the folders in it.

    Args:
        path: A folder, an ``.npz`` file, or a raw ``.pb`` file.

    Returns:
        Graphs of one kind, by name. Collections of ours of one network are one graph, where they
        were measured with the same; of official ones nobody says so.

    Raises:
        BadInputError: There is no such file, one is not a file of TpuGraphs, or there are graphs of
            both kinds.
    """
    if path.is_dir():
        files = sorted(path.rglob("*.npz"))
        if not files:
            raise BadInputError(
                f"a folder must hold .npz files of TpuGraphs, but {path} has none: give another one"
            )
        graphs = _joined(
            [read_graph(f, f.relative_to(path).with_suffix("").as_posix()) for f in files]
        )
    elif not path.is_file():
        raise BadInputError(f"there is no file or folder {path}: give one of TpuGraphs")
    elif path.suffix == ".pb":
        from foretune.tgraph.raw import read_raw

        graphs = read_raw(path)
    else:
        graphs = [read_graph(path)]
    by_kind = {graph.kind: graph.name for graph in graphs}
    if len(by_kind) > 1:
        raise BadInputError(
            f"{path} must hold graphs of one kind, but holds both, for example "
            f"{by_kind[LAYOUT]} (layout) and {by_kind[TILE]} (tile): give one collection"
        )
    return graphs


def _joined(graphs: Sequence[Graph]) -> list[Graph]:
    """The same with graphs of ours as one where they are of one network, measured alike."""
    found: list[Graph] = []
    places: dict[tuple[str, str], int] = {}
    for graph in graphs:
        if not isinstance(graph, LayoutGraph) or not graph.made:
            found.append(graph)
            continue
        name = graph.name.rpartition("/")[2]
        at = places.setdefault((name, graph.made), len(found))
        if at == len(found):
            found.append(graph)
            continue
        first = found[at]
        assert isinstance(first, LayoutGraph)
        found[at] = _together(name, first, graph)
    return found


def _together(name: str, one: LayoutGraph, other: LayoutGraph) -> LayoutGraph:
    if (one.runtime is None) != (other.runtime is None) or one.configurable.tolist() != (
        other.configurable.tolist()
    ):
        raise BadInputError(
            f"{one.name} and {other.name} must be collections of one network, but have different "
            "nodes: give files that `foretune graph collect --pack` wrote"
        )
    runtime = None
    if one.runtime is not None and other.runtime is not None:
        runtime = np.concatenate([one.runtime, other.runtime])
    codes, keys = (
        np.concatenate([getattr(one.configurations, part), getattr(other.configurations, part)])
        for part in ("codes", "keys")
    )
    return replace(one, name=name, configurations=Configurations(codes, keys), runtime=runtime)


def read_graph(path: Path, name: str = "") -> Graph:
    """The graph of an ``.npz`` file.

    Args:
        path: The file.
        name: What to call it; its stem if empty.

    Raises:
        BadInputError: It is not a file of TpuGraphs; the message says what is wrong with it.
    """
    with NpzFile(path) as file:
        nodes = _nodes(file)
        if "node_config_feat" in file.keys:
            return _layout(file, name or path.stem, nodes)
        file.require("config_feat")
        return _tile(file, name or path.stem, nodes)


def measured(runtime: Integers, where: str) -> Integers | None:
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


def require_configurable(ids: Integers, nodes: int, where: str) -> None:
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


def _nodes(file: NpzFile) -> Nodes:
    features = file.numbers("node_feat", (None, None)).astype(np.float32)
    count = len(features)
    if not count or not features.shape[1]:
        raise file.wrong("node_feat", "at least one node and one column", str(features.shape))
    return Nodes(
        features,
        file.integers("node_opcode", (count,), high=OPCODES),
        file.integers("edge_index", (None, 2), high=count),
    )


def _layout(file: NpzFile, name: str, nodes: Nodes) -> LayoutGraph:
    ids = file.integers("node_config_ids", (None,), high=len(nodes))
    require_configurable(ids, len(nodes), file.name)
    configurations = _configurations(file, "node_config_feat", len(ids))
    runtime = _runtime(file, len(configurations))
    known = ANCHORS_KEY in file.keys
    anchors = _configurations(file, ANCHORS_KEY, len(ids)) if known else None
    made = file.text(MADE_KEY) if MADE_KEY in file.keys else ""
    return LayoutGraph(name, nodes, ids, configurations, runtime, anchors, made)


def _configurations(file: NpzFile, key: str, nodes: int) -> Configurations:
    count = file.header(key, (None, nodes, FEATURES))[0]
    if not count:
        raise file.wrong(key, "at least one configuration", "none")
    try:
        return packed(file.rows(key), count, nodes)
    except BadInputError as error:
        raise BadInputError(f"{file.name}: {key}: {error}") from error


def _tile(file: NpzFile, name: str, nodes: Nodes) -> TileGraph:
    features = file.numbers("config_feat", (None, TILE_FEATURES)).astype(np.float32)
    runtime = _runtime(file, len(features))
    per = file.integers("config_runtime_normalizers", (len(features),))
    if runtime is not None and (per == 0).any():
        raise file.wrong("config_runtime_normalizers", "positive numbers", "zero")
    return TileGraph(name, nodes, features, None if runtime is None else runtime / per)


def _runtime(file: NpzFile, count: int) -> Integers | None:
    if not count:
        raise file.wrong("config_runtime", "at least one configuration", "none")
    return measured(file.integers("config_runtime", (count,)), file.name)


def graph_names(graphs: Sequence[Graph]) -> str:
    """Names for a message."""
    return listed([graph.name for graph in graphs], 4)
