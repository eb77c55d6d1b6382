"""The nodes of an original's graph, and the model cut at some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune.workload.model import Model, OnnxSource, TorchSource


@dataclass(frozen=True)
class GraphNode:
    """An operator of the original's graph.

    Attributes:
        operator: Its name in the original's framework.
        outputs: Names of the tensors it computes; ``cut_model`` takes them.
        reads: Names of the tensors it reads, those of graphs inside of it included.
    """

    operator: str
    outputs: tuple[str, ...]
    reads: tuple[str, ...]


def graph_nodes(model: Model) -> list[GraphNode]:
    """The nodes that an input reaches, each after those it reads from.

    What depends on constants alone is not listed: importers fold it. Empty if there is no original
    with a graph.
    """
    if isinstance(model.source, TorchSource):
        from foretune.workload.importers.torch import exported

        return _torch_nodes(exported(model.source, model.name).graph.nodes)
    if not isinstance(model.source, OnnxSource):
        return []
    from foretune.workload.importers.onnx import read_by

    graph = model.source.proto().graph
    held = {tensor.name for tensor in graph.initializer} | set(model.source.constants)
    reached = {value.name for value in graph.input} - held
    listed = []
    for node in graph.node:
        reads = tuple(read_by(node))
        if reached.isdisjoint(reads):
            continue
        outputs = tuple(name for name in node.output if name)
        reached.update(outputs)
        listed.append(GraphNode(str(node.op_type), outputs, reads))
    return listed


def _torch_nodes(nodes: Iterable[Any]) -> list[GraphNode]:
    """Those that compute a tensor. What computes several hands on what it read to their users."""
    reads: dict[Any, tuple[str, ...]] = {}
    listed = []
    for node in nodes:
        is_tensor = hasattr(node.meta.get("val"), "dtype")
        if node.op == "placeholder":
            reads[node] = (str(node.name),)
            continue
        names = tuple(dict.fromkeys(n for read in node.all_input_nodes for n in reads[read]))
        reads[node] = (str(node.name),) if is_tensor else names
        if node.op == "call_function" and is_tensor and names:
            listed.append(GraphNode(str(node.target), (str(node.name),), names))
    return listed


def cut_model(model: Model, until: Sequence[str]) -> Model:
    """The part of a model that computes these tensors, imported anew; they are its outputs.

    Raises:
        BadInputError: There is no tensor of such a name.
        UnsupportedModelError: That part cannot be imported.
        ValueError: The model has no original with a graph.
    """
    if isinstance(model.source, TorchSource):
        from foretune.workload.importers.torch import import_part

        return import_part(model.source, model.name, until)
    if not isinstance(model.source, OnnxSource):
        raise ValueError(f"{model.name} has no graph to cut")
    from foretune.workload.importers.onnx import import_onnx

    source = model.source
    return import_onnx(Path(source.path), source.shapes, until=until, constants=source.constants)
