"""Operators on quantised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretune import _tvm
from foretune.workload.importers.onnx._lower_layers import convolution
from foretune.workload.importers.onnx._node import Lowering, Node, UseConverterError
from foretune.workload.importers.onnx._values import Value


def _along(node: Node, value: Value, rank: int, axis: int) -> Any:
    """A scale or zero point of one number, or of one for each place along ``axis``."""
    op = _tvm.tvm.relax.op
    if len(value.shape) == 1 and value.shape[0] > 1:
        shape = [1] * rank
        shape[axis % rank] = value.shape[0]
        return op.reshape(value.expression, shape)
    return op.reshape(value.expression, ()) if value.shape == (1,) else value.expression


def _spread(node: Node, value: Value, shape: tuple[int, ...], axis: int, block: int) -> Any:
    """A scale or zero point for each block, repeated for its elements."""
    op = _tvm.tvm.relax.op
    repeated = op.repeat(value.expression, block, axis)
    return op.strided_slice(repeated, [axis], [0], [shape[axis]])


def _parameters(node: Node) -> tuple[Any, Any]:
    """Scale and zero point, in shapes that broadcast to the data."""
    data, block = node.value(0), int(node.attribute("block_size", 0))
    axis = int(node.attribute("axis", 1)) % max(1, len(data.shape))
    found: list[Any] = []
    for at in (1, 2):
        value = node.optional(at)
        if value is None:
            found.append(None)
        elif block:
            found.append(_spread(node, value, data.shape, axis, block))
        else:
            found.append(_along(node, value, len(data.shape), axis))
    return found[0], found[1]


def _quantize(node: Node) -> Any:
    """``saturate(round(x / scale) + zero)``, half to even."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    if not node.attribute("block_size", 0) and node.value(0).dtype == "float32":
        raise UseConverterError
    scale, zero = _parameters(node)
    dtype = node.output_dtype()
    info = np.iinfo(dtype)
    wide = "float32"
    value = op.divide(op.astype(node[0], wide), op.astype(scale, wide))
    value = op.round(value)
    if zero is not None:
        value = op.add(value, op.astype(zero, wide))
    limits = relax.const(float(info.min), wide), relax.const(float(info.max), wide)
    return op.astype(op.minimum(op.maximum(value, limits[0]), limits[1]), dtype)


def _dequantize(node: Node) -> Any:
    """``(x - zero) * scale``."""
    op = _tvm.tvm.relax.op
    dtype = node.output_dtype()
    if not node.attribute("block_size", 0) and dtype == "float32":
        raise UseConverterError
    scale, zero = _parameters(node)
    value = op.astype(node[0], "float32")
    if zero is not None:
        value = op.subtract(value, op.astype(zero, "float32"))
    return op.astype(op.multiply(value, op.astype(scale, "float32")), dtype)


def _centred(node: Node, at: int, zero_at: int, axis: int | None) -> Any:
    """An integer tensor without its zero point, in ``int32``."""
    op = _tvm.tvm.relax.op
    value, zero = node.value(at), node.optional(zero_at)
    wide = op.astype(value.expression, "int32")
    if zero is None:
        return wide
    shift = zero.expression
    if len(zero.shape) == 1 and zero.shape[0] > 1 and axis is not None:
        shift = _along(node, zero, len(value.shape), axis)
    elif zero.shape == (1,):
        shift = op.reshape(shift, ())
    return op.subtract(wide, op.astype(shift, "int32"))


def _conv_integer(node: Node) -> Any:
    emit = node.emit
    data, weight = emit(_centred(node, 0, 2, None)), emit(_centred(node, 1, 3, 0))
    return convolution(node, data, weight)


def _requantized(node: Node, total: Any, scales: tuple[Any, Any, Any], zero: Value) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    info = np.iinfo(zero.dtype)
    wide = [op.astype(scale, "float32") for scale in scales]
    factor = op.divide(op.multiply(wide[0], wide[1]), wide[2])
    value = op.round(op.multiply(op.astype(total, "float32"), factor))
    value = op.add(value, op.astype(op.reshape(zero.expression, ()), "float32"))
    limits = relax.const(float(info.min), "float32"), relax.const(float(info.max), "float32")
    return op.astype(op.minimum(op.maximum(value, limits[0]), limits[1]), zero.dtype)


def _qlinear_conv(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    emit = node.emit
    data, weight = emit(_centred(node, 0, 2, None)), emit(_centred(node, 3, 5, 0))
    total = convolution(node, data, weight)
    rank = len(node.value(0).shape)
    bias = node.get(8)
    if bias is not None:
        total = op.add(total, op.reshape(bias, [1, -1] + [1] * (rank - 2)))
    scales = (
        op.reshape(node[1], ()),
        _along(node, node.value(4), rank, 1),
        op.reshape(node[6], ()),
    )
    return _requantized(node, total, scales, node.value(7))


def _qlinear_matmul(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    emit = node.emit
    left, right = node.value(0), node.value(3)
    first = emit(_centred(node, 0, 2, -2))
    second = emit(_centred(node, 3, 5, -1))
    total = op.matmul(first, second)
    scales = (
        _along(node, node.value(1), len(left.shape), -2),
        _along(node, node.value(4), len(right.shape), -1),
        op.reshape(node[6], ()) if node.value(6).shape == (1,) else node[6],
    )
    return _requantized(node, total, scales, node.value(7))


TABLE: dict[str, Lowering] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
"""Operator to lowering."""
