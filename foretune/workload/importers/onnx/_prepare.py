"""From a checked model to one with fixed input shapes and an operator set of today."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.errors import BadInputError, UnsupportedModelError

_OLD = 13
"""Operator sets below it mean something else by several operators (axes of Softmax, broadcasts)."""
_NEW = 18
_LARGE = 1024
"""Bytes from which an initialiser is kept out of what libraries serialise."""


def prepare(
    proto: Any,
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Array],
) -> Any:
    """A copy whose inputs are those a caller gives, with fixed shapes.

    Args:
        proto: The model, cut where it is to be cut.
        path: For messages.
        shapes: Fixed shapes by input name.
        constants: Values of inputs that become initialisers.

    Raises:
        BadInputError: A name is no input, or a shape does not fit.
        UnsupportedModelError: A dimension is dynamic.
    """
    import onnx

    held = {tensor.name for tensor in proto.graph.initializer}
    held |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    inputs = [value for value in proto.graph.input if value.name not in held]
    names = [value.name for value in inputs]
    for name in (*shapes, *constants):
        if name not in names:
            known = ", ".join(names) or "none"
            raise BadInputError(f"{path} has no input {name!r}: its inputs are {known}")
    fixed = []
    for value in inputs:
        if value.name in constants:
            continue
        extents = _shape(value, path, shapes.get(value.name))
        kind = value.type.tensor_type.elem_type
        fixed.append(onnx.helper.make_tensor_value_info(value.name, kind, extents))
    result = specialise(proto, constants)
    del result.graph.input[:], result.graph.value_info[:]
    result.graph.input.extend(fixed)
    return _modernised(result)


def specialise(proto: Any, constants: Mapping[str, Array]) -> Any:
    """A copy of a model in which these inputs are initialisers."""
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(proto)
    inputs = [value for value in result.graph.input if value.name not in constants]
    del result.graph.input[:]
    result.graph.input.extend(inputs)
    for name, array in constants.items():
        result.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    if constants:
        result.ir_version = max(result.ir_version, 4)  # before, every initialiser is an input
    return result


def cut(proto: Any, path: Path, until: Sequence[str]) -> Any:
    """The part of a model that computes the tensors named ``until``; they are its outputs.

    Raises:
        BadInputError: There is no tensor of that name.
    """
    import onnx_ir

    graph = proto.graph
    names = [value.name for value in graph.input]
    names += [name for node in graph.node for name in node.output if name]
    for name in until:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=5, cutoff=0.3) or names[-5:]
            raise BadInputError(
                f"{path} has no tensor {name!r} to cut at: the nearest names are {', '.join(close)}"
            )
    model = onnx_ir.from_proto(proto)
    values = list(model.graph.inputs)
    part = onnx_ir.convenience.extract(model.graph, values, list(dict.fromkeys(until)))
    wanted = set(until)
    unused = [v for v in part.inputs if not v.uses() and v.name not in wanted]
    for value in unused:
        part.inputs.remove(value)
    result = onnx_ir.to_proto(
        onnx_ir.Model(
            part,
            ir_version=model.ir_version,
            producer_name=model.producer_name,
            functions=list(model.functions.values()),
        )
    )
    return result


def _shape(value: Any, path: Path, wanted: Sequence[int] | None) -> list[int]:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value")
        raise UnsupportedModelError(
            f"{path}: input {value.name!r} is a {str(kind).removesuffix('_type')}, and inputs must "
            "be tensors: cut that part off the model"
        )
    declared = value.type.tensor_type.shape.dim
    if wanted is not None and not value.type.tensor_type.HasField("shape"):
        return [int(extent) for extent in wanted]
    if wanted is not None and len(wanted) != len(declared):
        raise BadInputError(
            f"{path}: input {value.name!r} has {len(declared)} dimensions, but the shape given "
            f"has {len(wanted)}: {list(wanted)}"
        )
    if not value.type.tensor_type.HasField("shape"):
        raise UnsupportedModelError(
            f"{path}: input {value.name!r} has no shape: fix it, for example "
            f"--shape {value.name}=1,3,224,224"
        )
    extents: list[int] = []
    for axis, dim in enumerate(declared):
        static = dim.HasField("dim_value") and dim.dim_value >= 0
        if wanted is None and not static:
            example = ",".join(str(d.dim_value) if d.dim_value > 0 else "1" for d in declared)
            raise UnsupportedModelError(
                f"{path}: input {value.name!r} dimension {axis} is dynamic "
                f"({dim.dim_param or '?'}): fix it, for example --shape {value.name}={example}"
            )
        if wanted is not None and static and wanted[axis] != dim.dim_value:
            raise BadInputError(
                f"{path}: input {value.name!r} dimension {axis} is {dim.dim_value} in the model, "
                f"but the shape given says {wanted[axis]}"
            )
        extents.append(int(dim.dim_value if wanted is None else wanted[axis]))
    return extents


def _modernised(proto: Any) -> Any:
    """The model in operator set ``_NEW`` if it has an old one; as it is where that fails.

    Large initialisers are inputs meanwhile: the library serialises the model, of 2 GB at most.
    """
    import onnx

    version = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if not 0 < version < _OLD or proto.functions:
        return proto
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    light.ir_version = max(light.ir_version, 8)
    kept = [t for t in light.graph.initializer if _elements(t) * 4 >= _LARGE]
    small = [t for t in light.graph.initializer if _elements(t) * 4 < _LARGE]
    del light.graph.initializer[:]
    light.graph.initializer.extend(small)
    for tensor in kept:
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        light.graph.input.append(value)
    try:
        result = onnx.version_converter.convert_version(light, _NEW)
    except Exception:  # the library has no adapter for some operators and raises several kinds
        return proto
    names = {tensor.name for tensor in kept}
    inputs = [value for value in result.graph.input if value.name not in names]
    del result.graph.input[:]
    result.graph.input.extend(inputs)
    result.graph.initializer.extend(kept)
    return result


def _elements(tensor: Any) -> int:
    count = 1
    for extent in tensor.dims:
        count *= int(extent)
    return count
