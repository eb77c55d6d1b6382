"""Reading and checking a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, MissingDependencyError


def load(path: Path) -> Any:
    """The ``ModelProto`` of a file, with its external data, nodes in an order that can be run.

    Raises:
        BadInputError: It is no valid ONNX model, truncated, or cannot be read.
        MissingDependencyError: onnx is not installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingDependencyError("an ONNX file needs onnx: pip install onnx") from None
    try:
        proto = onnx.load(str(path))
        if is_sorted(proto.graph):
            onnx.checker.check_model(str(path))
        else:
            proto = _sorted(proto)
            onnx.checker.check_model(proto)
    except DecodeError:
        raise BadInputError(
            f"{path} is not an ONNX file or is truncated: export or download it again"
        ) from None
    except (onnx.checker.ValidationError, FileNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInputError(
            f"{path} is not a valid ONNX model ({reason}): check that it and its external data "
            "are complete"
        ) from None
    except OSError as error:
        raise BadInputError(
            f"{error.filename or path} cannot be read ({error.strerror or error}): check its "
            "permissions"
        ) from error
    return proto


def is_sorted(graph: Any) -> bool:
    """Whether every node stands behind those that it reads from."""
    made = {name for node in graph.node for name in node.output}
    seen: set[str] = set()
    for node in graph.node:
        if any(name in made and name not in seen for name in read_by(node)):
            return False
        seen.update(node.output)
    return True


def read_by(node: Any) -> list[str]:
    """Names that a node reads: its inputs, and what its subgraphs take from around them."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            inner = {value.name for value in graph.input}
            inner |= {tensor.name for tensor in graph.initializer}
            for child in graph.node:
                names += [name for name in read_by(child) if name not in inner]
                inner.update(child.output)
            names += [value.name for value in graph.output if value.name not in inner]
    return names


def _sorted(proto: Any) -> Any:
    import onnx_ir
    from onnx_ir.passes.common import TopologicalSortPass

    try:
        return onnx_ir.to_proto(TopologicalSortPass()(onnx_ir.from_proto(proto)).model)
    except ValueError:  # a cycle: the check of the whole model says so
        return proto
