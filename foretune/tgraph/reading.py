"""Files of graphs: official ``.npz`` files of both kinds, raw protobufs, and files of ours.

Those of ours have the same keys and shapes, and some more (``ANCHORS_KEY``, ``MADE_KEY``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretune._arrays import IntArray
from foretune.errors import BadInputError
from foretune.tgraph._npz import NpzFile
from foretune.tgraph.configurations import FEATURES, Configurations, packed
from foretune.tgraph.graphs import (
    ANCHORS_KEY,
    LAYOUT,
    MADE_KEY,
    OPCODES,
    TILE,
    TILE_FEATURES,
    Graph,
    LayoutGraph,
    Nodes,
    TileGraph,
    measured,
    require_configurable,
)


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
    joined: list[Graph] = []
    places: dict[tuple[str, str], int] = {}
    for graph in graphs:
        if not isinstance(graph, LayoutGraph) or not graph.made:
            joined.append(graph)
            continue
        name = graph.name.rpartition("/")[2]
        at = places.setdefault((name, graph.made), len(joined))
        if at == len(joined):
            joined.append(graph)
            continue
        first = joined[at]
        assert isinstance(first, LayoutGraph)
        joined[at] = _together(name, first, graph)
    return joined


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


def _runtime(file: NpzFile, count: int) -> IntArray | None:
    if not count:
        raise file.wrong("config_runtime", "at least one configuration", "none")
    return measured(file.integers("config_runtime", (count,)), file.name)
