"""Files of a collection: graphs of networks, and what is measured of their plans.

``write_layout`` writes what TpuGraphs calls a layout file: the keys and shapes of its ``.npz``
files, and ``schema``. See docs/formats.md.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune._files import write_bytes
from foretune.errors import RecordError

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


def write_layout(
    file: Path,
    graph: NetworkGraph,
    configurable: npt.NDArray[np.int32],
    configurations: npt.NDArray[np.float32],
    nanoseconds: npt.NDArray[np.int64],
) -> None:
    """Writes the plans of a network as a layout file of TpuGraphs.

    Args:
        file: Ends in ``.npz``; its folder is made if missing.
        graph: The network.
        configurable: Nodes with choices, shape (nc,).
        configurations: Of each plan, shape (c, nc, 18).
        nanoseconds: What each takes, shape (c,).
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    count = len(graph.features)
    arrays = {
        "node_feat": graph.features,
        "node_opcode": graph.opcode,
        "edge_index": graph.edges,
        "node_config_ids": configurable,
        "node_config_feat": configurations,
        "config_runtime": nanoseconds,
        "node_splits": np.array([0, count], np.int32),
        "schema": np.array(SCHEMA),
    }
    write_bytes(file, _packed(arrays))


def _packed(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
