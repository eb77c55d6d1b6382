"""Files of a collection: graphs of networks, and what is measured of their plans.

``write_layout`` writes what TpuGraphs calls a layout file: the keys and shapes of its ``.npz``
files, and ``schema``. See docs/formats.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune._arrays import BoolArray, Float32Array, Int32Array, IntArray
from foretune._files import write_bytes
from foretune.errors import RecordError
from foretune.tgraph.graphs import ANCHORS_KEY, MADE_KEY

if TYPE_CHECKING:
    from foretune.plans.encode import NetworkGraph

SCHEMA = "foretune.plans/1"
_GRAPH = "graph.npz"


def identity_of(graph: NetworkGraph) -> str:
    """16 hex digits: a hash of a network's nodes and edges; weights do not count."""
    digest = hashlib.blake2b(digest_size=8)
    for array in (graph.features, graph.opcode, graph.edges):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_graph(folder: Path, graph: NetworkGraph) -> None:
    """Keeps the graph of a network in the folder of its collection."""
    write_bytes(folder / _GRAPH, _packed(vars(graph)))


def read_graph(folder: Path) -> NetworkGraph:
    """Reads what ``write_graph`` wrote.

    Raises:
        RecordError: The file is missing or damaged.
    """
    from foretune.plans.encode import NetworkGraph

    file = folder / _GRAPH
    try:
        with np.load(file, allow_pickle=False) as data:
            return NetworkGraph(**{key: data[key] for key in data.files})
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(
            f"{file} must hold the graph of a network, but cannot be read ({error}): delete its "
            "folder, and collect again"
        ) from error


@dataclass(frozen=True)
class PackedPlans:
    """The plans of a network as arrays. Symbols: c plans, nc nodes with choices.

    Attributes:
        configurable: Nodes with choices, int32 of shape (nc,).
        configurations: Of each plan, float32 of shape (c, nc, 18).
        nanoseconds: What each takes, int64 of shape (c,).
        alone: The same by the measurement of the plan alone, int64 of shape (c,).
        quiet: Quiet readings of each, int32 of shape (c,).
        compared: Whether each was measured beside the default plan, too, shape (c,).
        origin: Whose idea each was: ``default``, ``tvm``, ``random``, ``evolved``, shape (c,).
        default: Nanoseconds of the default plan, measurement by measurement.
        anchors: Configurations that others are compared with, shape (ANCHORS, nc, 18).
        tvm_is_default: Whether TVM's own plan is the default plan.
        made: What they were measured with.
    """

    configurable: Int32Array
    configurations: Float32Array
    nanoseconds: IntArray
    alone: IntArray
    quiet: Int32Array
    compared: BoolArray
    origin: npt.NDArray[np.str_]
    default: IntArray
    anchors: Float32Array
    tvm_is_default: bool
    made: Mapping[str, Any]


def write_layout(file: Path, graph: NetworkGraph, plans: PackedPlans) -> None:
    """Writes the plans of a network as a layout file of TpuGraphs.

    Args:
        file: Ends in ``.npz``; its folder is made if missing.
        graph: The network.
        plans: Its plans.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    count = len(graph.features)
    arrays = {
        "node_feat": graph.features,
        "node_opcode": graph.opcode,
        "edge_index": graph.edges,
        "node_config_ids": plans.configurable,
        "node_config_feat": plans.configurations,
        "config_runtime": plans.nanoseconds,
        "config_alone": plans.alone,
        "config_quiet": plans.quiet,
        "config_compared": plans.compared,
        "config_origin": plans.origin,
        "default_readings": plans.default,
        "tvm_is_default": np.array(plans.tvm_is_default),
        ANCHORS_KEY: plans.anchors,
        "node_splits": np.array([0, count], np.int32),
        "schema": np.array(SCHEMA),
        MADE_KEY: np.array(json.dumps(plans.made, sort_keys=True)),
    }
    write_bytes(file, _packed(arrays))


def _packed(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
