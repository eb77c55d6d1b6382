"""Raw files of TpuGraphs, ``.pb``: XLA modules with the configurations that were run.

A file holds one network with layouts (``ModuleTuningData``) or several kernels with tiles
(``TuningData``). Both become the graphs that the official ``.npz`` files of the same modules hold,
with features encoded here (``foretune.tgraph._hlo_features``). Runs that failed, or have no time,
are left out, as in the data set's own conversion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foretune.errors import BadInputError, first_line
from foretune.tgraph._hlo_features import encode_module, layout_features, tile_features
from foretune.tgraph._hlo_messages import message
from foretune.tgraph.configurations import packed
from foretune.tgraph.graphs import (
    Graph,
    LayoutGraph,
    Nodes,
    TileGraph,
    measured,
    require_configurable,
)

_SHORTEST = 2
"""Nanoseconds of a kernel's run that count as measured."""


def read_raw(path: Path) -> list[Graph]:
    """The graphs of a raw file.

    Args:
        path: A ``.pb`` file.

    Raises:
        BadInputError: It is not a raw file of TpuGraphs, or no module in it was run.
    """
    data = path.read_bytes()
    kernels = _parse("TuningData", data)
    graphs: list[Graph] = []
    if kernels is not None and any(_tiled(one) for one in kernels.modules):
        graphs += [_tile_graph(one, path) for one in kernels.modules if _tiled(one)]
    else:
        network = _parse("ModuleTuningData", data)
        if network is not None and network.module.computations and network.runs:
            graphs.append(_layout_graph(network, path))
    if not graphs:
        raise BadInputError(
            f"{path} must be a raw file of TpuGraphs with runs of an XLA module, but is not: give "
            "a file of pb/"
        )
    return graphs


def _parse(name: str, data: bytes) -> Any:
    """A message, or None if the bytes are none."""
    from google.protobuf.message import DecodeError

    parsed = message(name)()
    try:
        parsed.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        return None
    return parsed


def _tiled(one: Any) -> bool:
    """Whether a module is a kernel all of whose runs have a tile, more than one of them."""
    return len(one.runs) > 1 and all(r.op_config.HasField("tile_size_config") for r in one.runs)


def _nodes(module: Any, path: Path) -> Nodes:
    try:
        features, opcode, edges, _ = encode_module(module)
    except BadInputError as error:
        raise BadInputError(f"{path}: {first_line(error)}") from error
    return Nodes(features, opcode.astype(np.int64), edges)


def _layout_graph(data: Any, path: Path) -> LayoutGraph:
    name = data.module.name or path.stem
    nodes = _nodes(data.module, path)
    ids = np.array(data.config_index_to_node, dtype=np.int64)
    require_configurable(ids, len(nodes), f"{path}: {name}")
    runs = [
        run
        for run in data.runs
        if run.HasField("module_config") and run.HasField("profile") and not run.error
    ]
    features = [layout_features(run.module_config.layout_config) for run in runs]
    if not runs or any(len(one) != len(ids) for one in features):
        raise BadInputError(
            f"{path}: each run of {name} must have a layout for each of {len(ids)} configurable "
            "nodes, but has not: give a whole file"
        )
    block = np.array(features, dtype=np.int8)
    runtime = np.array([run.profile.compute_time_ns for run in runs], dtype=np.int64)
    return LayoutGraph(
        name, nodes, ids, packed([block], len(runs), len(ids)), measured(runtime, f"{path}: {name}")
    )


def _tile_graph(data: Any, path: Path) -> TileGraph:
    name = data.module.name or path.stem
    runs = [run for run in data.runs if run.profile.compute_time_ns >= _SHORTEST and not run.error]
    default = [run.profile.compute_time_ns for run in runs if run.is_default]
    if not default:
        raise BadInputError(
            f"{path}: kernel {name} must have a run of its default tile, but has none: leave it out"
        )
    features = [tile_features(run.op_config.tile_size_config) for run in runs]
    runtime = np.array([run.profile.compute_time_ns for run in runs], dtype=np.float64)
    return TileGraph(
        name, _nodes(data.module, path), np.array(features, dtype=np.float32), runtime / default[0]
    )
