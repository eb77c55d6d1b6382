"""Operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretune import _tvm
from foretune.operators.indexing import (
    columns_to_image,
    one_hot,
    pad_by_index,
    pad_with_value,
)
from foretune.workload.element_types import element_type
from foretune.workload.importers.onnx._node import Lowering, Node, NotLoweredError


def _one_hot(node: Node) -> Any:
    depth = int(node.constant(1).reshape(-1)[0])
    rank = len(node.value(0).shape) + 1
    axis = int(node.attribute("axis", -1)) % rank
    return one_hot(node.builder, node[0], node[2], depth, axis)


def _pad(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value = node.value(0)
    rank = len(value.shape)
    pads = node.integers("pads", 1) or []
    axes = [int(axis) % rank for axis in node.constant(3, np.arange(rank)).reshape(-1)]
    before, after = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[at + len(axes)]
    mode = str(node.attribute("mode", "constant"))
    if mode != "constant":
        return pad_by_index(value.expression, before, after, mode)
    filling = node.optional(2)
    if filling is None:
        number = float(node.attribute("value", 0.0))
        constant = relax.const(np.array(number).astype(element_type(value.dtype)), value.dtype)
    elif filling.array is not None:
        number, constant = float(filling.array.reshape(-1)[0]), filling.expression
    else:
        number, constant = np.nan, filling.expression
    if min([*before, *after]) >= 0 and value.dtype == "float32" and np.isfinite(number):
        widths = [width for pair in zip(before, after, strict=True) for width in pair]
        return op.nn.pad(value.expression, widths, "constant", number)
    return pad_with_value(node.builder, value.expression, before, after, constant)


def _constant_of_shape(node: Node) -> Any:
    relax = _tvm.tvm.relax
    shape, dtype = node.output_shape(), node.output_dtype()
    tensor = node.attribute("value")
    number = 0
    if tensor is not None:
        import onnx

        number = onnx.numpy_helper.to_array(tensor).reshape(-1)[0]
    return relax.op.full(
        shape, relax.const(np.array(number).astype(element_type(dtype)), dtype), dtype
    )


def _expand(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    return op.broadcast_to(node[0], node.output_shape())


def _column_image(node: Node) -> Any:
    image = [int(v) for v in node.constant(1).reshape(-1)]
    block = [int(v) for v in node.constant(2).reshape(-1)]
    rank = len(image)
    pads = node.integers("pads") or [0] * (2 * rank)
    return columns_to_image(
        node.builder,
        node[0],
        image,
        block,
        node.integers("strides") or [1] * rank,
        node.integers("dilations") or [1] * rank,
        pads[:rank],
        pads[rank:],
    )


def _trilu(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value = node.value(0)
    if 0 in value.shape:
        return value.expression
    offset = int(node.constant(1, np.array(0)).reshape(-1)[0])
    rows, columns = value.shape[-2:]
    whole = np.ones((rows, columns), dtype=bool)
    mask = np.triu(whole, offset) if int(node.attribute("upper", 1)) else np.tril(whole, offset)
    zero = relax.const(np.zeros((), dtype=element_type(value.dtype)), value.dtype)
    return op.where(relax.const(mask, "bool"), value.expression, zero)


def _compress(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, chosen = node.value(0), np.flatnonzero(node.constant(1))
    places = relax.const(chosen.astype("int64"), "int64")
    axis = node.attribute("axis")
    if axis is None:
        return op.take(op.reshape(value.expression, (-1,)), places, 0)
    return op.take(value.expression, places, int(axis) % len(value.shape))


def _max_unpool(node: Node) -> Any:
    """Writes each element at its place; the rest is zero."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value = node.value(0)
    kernel = node.integers("kernel_shape") or []
    rank = len(kernel)
    strides = node.integers("strides") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    inferred = [
        (extent - 1) * strides[at] + kernel[at] - pads[at] - pads[at + rank]
        for at, extent in enumerate(value.shape[2:])
    ]
    shape = [*value.shape[:2], *inferred]
    result = [int(v) for v in node.constant(2, np.array(shape)).reshape(-1)]
    # Places count within the shape that the pooling had, as ONNX's reference has them.
    places = op.reshape(node[1], (-1,))
    flat = relax.op.zeros((int(np.prod(shape)),), value.dtype)
    written = op.scatter_elements(flat, places, op.reshape(value.expression, (-1,)), 0)
    image = op.reshape(written, shape)
    if result == shape:
        return image
    widths = [w for s, r in zip(shape, result, strict=True) for w in (0, r - s)]
    if min(widths) < 0:
        raise NotLoweredError("the result is smaller than what was pooled")
    return op.nn.pad(image, widths, "constant", 0.0)


def _reverse_sequence(node: Node) -> Any:
    """Gathers along the time axis at ``length - 1 - t`` for the first ``length`` steps."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, lengths = node.value(0), node[1]
    batch, time = int(node.attribute("batch_axis", 1)), int(node.attribute("time_axis", 0))
    rank, steps = len(value.shape), value.shape[time]
    row, column = [1] * rank, [1] * rank
    row[time], column[batch] = steps, value.shape[batch]
    at = relax.const(np.arange(steps).astype("int64").reshape(row), "int64")
    lengths = op.reshape(op.astype(lengths, "int64"), column)
    back = op.subtract(op.subtract(lengths, relax.const(1, "int64")), at)
    places = op.where(op.less(at, lengths), back, at)
    return op.gather_elements(value.expression, op.broadcast_to(places, value.shape), time)


def _concat(node: Node) -> Any:
    """Empty tensors are left out."""
    op = _tvm.tvm.relax.op
    values = [value for value in node.inputs if value is not None and 0 not in value.shape]
    axis = int(node.attribute("axis", 1)) % len(node.value(0).shape)
    if len(values) == 1:
        return values[0].expression
    return op.concat([value.expression for value in values], axis)


def _reshape(node: Node) -> Any:
    return _tvm.tvm.relax.op.reshape(node[0], node.output_shape())


def _split(node: Node) -> Any:
    """Slices of the sizes that ONNX infers; one that is empty is made by nobody."""
    op = _tvm.tvm.relax.op
    value = node.value(0)
    axis = int(node.attribute("axis", 0)) % len(value.shape)
    parts, begin = [], 0
    for at in range(len(node.outputs)):
        size = node.output_shape(at)[axis]
        parts.append(op.strided_slice(value.expression, [axis], [begin], [begin + size]))
        begin += size
    return parts


def _space_to_depth(node: Node) -> Any:
    """Blocks of pixels become channels: ahead of the channels there are (``DCR``), or behind."""
    op = _tvm.tvm.relax.op
    batch, channels, height, width = node.value(0).shape
    size = int(node.attribute("blocksize"))
    parts = [batch, channels, height // size, size, width // size, size]
    behind = str(node.attribute("mode", "DCR")) == "CRD"
    order = [0, 1, 3, 5, 2, 4] if behind else [0, 3, 5, 1, 2, 4]
    return op.reshape(op.permute_dims(op.reshape(node[0], parts), order), node.output_shape())


TABLE: dict[str, Lowering] = {
    "Col2Im": _column_image,
    "Compress": _compress,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Trilu": _trilu,
}
"""Operator to lowering."""
