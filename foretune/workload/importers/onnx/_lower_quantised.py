"""Operators on quantised numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.workload.importers.onnx._lower_layers import convolution
from foretune.workload.importers.onnx._node import Lowering, Node, NotLoweredError
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
    parameters: list[Any] = []
    for at in (1, 2):
        value = node.optional(at)
        if value is None:
            parameters.append(None)
        elif block:
            parameters.append(_spread(node, value, data.shape, axis, block))
        else:
            parameters.append(_along(node, value, len(data.shape), axis))
    return parameters[0], parameters[1]


def _quantize(node: Node) -> Any:
    """``saturate(round(x / scale) + zero)``, half to even."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    expected, point = node.outputs[0], node.optional(2)
    known = None if expected is None else expected.dtype
    dtype = known or ("uint8" if point is None else point.dtype)
    if not node.attribute("block_size", 0) and node.value(0).dtype == "float32":
        axis = int(node.attribute("axis", 1))
        operands = _scaled(node, node.value(0), node.value(1), point, axis, dtype)
        return op.quantize(node[0], *operands[:2], axis=operands[2], out_dtype=dtype)
    scale, zero = _parameters(node)
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
    dtype = node.value(1).dtype
    if not node.attribute("block_size", 0) and dtype == "float32":
        return _real(node, 0, 1, 2, int(node.attribute("axis", 1)))
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


def _real(node: Node, at: int, scale_at: int, zero_at: int, axis: int = -1) -> Any:
    """What a quantised input stands for, in float32: one graph pass sees all quantised forms."""
    value = node.value(at)
    scale, zero, axis = _scaled(
        node, value, node.value(scale_at), node.optional(zero_at), axis, value.dtype
    )
    op = _tvm.tvm.relax.op
    return node.emit(op.dequantize(value.expression, scale, zero, axis=axis, out_dtype="float32"))


def _scaled(
    node: Node, value: Value, scale: Value, zero: Value | None, axis: int, dtype: str
) -> tuple[Any, Any, int]:
    """Scale, zero point (in the type of the bytes) and axis as Relax's operators want them."""
    if scale.shape in ((), (1,)) and (zero is None or zero.shape in ((), (1,))):
        return _single(scale), _zero(zero, dtype), -1
    if len(scale.shape) != 1 or (zero is not None and len(zero.shape) > 1):
        raise NotLoweredError("a scale of several axes")
    point = zero.expression if zero is not None and zero.shape == scale.shape else None
    if point is None:
        point = _tvm.tvm.relax.op.broadcast_to(_zero(zero, dtype), scale.shape)
    return scale.expression, node.emit(point), axis % max(1, len(value.shape))


def _single(value: Value) -> Any:
    """A scale or zero point of rank 0."""
    if value.array is not None:
        return _tvm.tvm.relax.const(value.array.reshape(()), value.dtype)
    return _tvm.tvm.relax.op.reshape(value.expression, ())


def _zero(value: Value | None, dtype: str) -> Any:
    return _tvm.tvm.relax.const(0, dtype) if value is None else _single(value)


def _rounded(node: Node, value: Any, scale_at: int, zero_at: int, like: int = 0) -> Any:
    """``value`` quantised with the scale and zero point at those inputs."""
    scale, zero = node.value(scale_at), node.optional(zero_at)
    dtype = node.value(like).dtype if zero is None else zero.dtype
    return _tvm.tvm.relax.op.quantize(
        node.emit(value), _single(scale), _zero(zero, dtype), out_dtype=dtype
    )


def _qlinear_conv(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    data, weight = _real(node, 0, 1, 2), _real(node, 3, 4, 5, axis=0)
    total = node.emit(convolution(node, data, weight))
    if node.get(8) is not None:
        step = node.emit(op.multiply(_single(node.value(1)), node[4]))
        bias = node.emit(op.multiply(op.astype(node[8], "float32"), step))
        total = op.add(total, op.reshape(bias, [1, -1] + [1] * (len(node.value(0).shape) - 2)))
    return _rounded(node, total, 6, 7)


def _qlinear_matmul(node: Node) -> Any:
    first, second = _real(node, 0, 1, 2, axis=-2), _real(node, 3, 4, 5, axis=-1)
    return _rounded(node, _tvm.tvm.relax.op.matmul(first, second), 6, 7)


def _qgemm(node: Node) -> Any:
    """``alpha * (A * B + C)``, ``C`` in steps of both scales; floats without an output scale."""
    op, emit = _tvm.tvm.relax.op, node.emit
    first, second = _real(node, 0, 1, 2), _real(node, 3, 4, 5, axis=0 if _turned(node) else 1)
    if node.attribute("transA", 0):
        first = emit(op.permute_dims(first, [1, 0]))
    if _turned(node):
        second = emit(op.permute_dims(second, [1, 0]))
    alpha = _tvm.tvm.relax.const(float(node.attribute("alpha", 1.0)), "float32")
    total = emit(op.matmul(first, second))
    if node.get(6) is not None:
        step = emit(op.multiply(_single(node.value(1)), node[4]))
        bias = emit(op.multiply(op.astype(node[6], "float32"), step))
        total = emit(op.add(total, bias))
    total = op.multiply(total, alpha) if node.attribute("alpha", 1.0) != 1.0 else total
    return total if node.optional(7) is None else _rounded(node, total, 7, 8)


def _turned(node: Node) -> bool:
    return bool(node.attribute("transB", 0))


def _matmul_integer(node: Node) -> Any:
    emit = node.emit
    first, second = emit(_centred(node, 0, 2, -2)), emit(_centred(node, 1, 3, -1))
    return _tvm.tvm.relax.op.matmul(first, second)


def _dynamic(node: Node) -> list[Any]:
    """Bytes, their scale and their zero point, from the extremes of the data and zero."""
    relax, op, emit = _tvm.tvm.relax, _tvm.tvm.relax.op, node.emit
    zero = relax.const(0.0, "float32")
    highest = emit(op.maximum(op.max(node[0]), zero))
    lowest = emit(op.minimum(op.min(node[0]), zero))
    top = relax.const(255.0, "float32")
    scale = emit(op.divide(op.subtract(highest, lowest), top))
    # Zeros alone have no extent: ONNX Runtime takes a scale of 1.
    one = relax.const(1.0, "float32")
    scale = emit(op.where(op.equal(scale, zero), one, scale))
    point = emit(op.round(op.clip(op.divide(op.negative(lowest), scale), 0.0, 255.0)))
    value = op.add(op.round(op.divide(node[0], scale)), point)
    data = op.astype(op.clip(value, 0.0, 255.0), "uint8")
    return [emit(data), scale, emit(op.astype(point, "uint8"))]


def _qlinear(make: Callable[..., Any], operands: int = 1) -> Lowering:
    """An operator of ONNX Runtime's own on quantised tensors: each with its scale and zero point.

    Source: ContribOperators.md of ONNX Runtime.
    """

    def lowering(node: Node) -> Any:
        reals = [_real(node, 3 * at, 3 * at + 1, 3 * at + 2) for at in range(operands)]
        return _rounded(node, make(node, *reals), 3 * operands, 3 * operands + 1)

    return lowering


def _add(_node: Node, one: Any, other: Any) -> Any:
    return _tvm.tvm.relax.op.add(one, other)


def _multiply(_node: Node, one: Any, other: Any) -> Any:
    return _tvm.tvm.relax.op.multiply(one, other)


def _sigmoid(_node: Node, data: Any) -> Any:
    return _tvm.tvm.relax.op.sigmoid(data)


def _leaky(node: Node, data: Any) -> Any:
    return _tvm.tvm.relax.op.nn.leakyrelu(data, float(node.attribute("alpha", 0.01)))


def _global_average(node: Node, data: Any) -> Any:
    rank, last = len(node.value(0).shape), bool(node.attribute("channels_last", 0))
    axes = [axis for axis in range(1, rank) if axis != (rank - 1 if last else 1)]
    return _tvm.tvm.relax.op.mean(data, axes, keepdims=True)


def _qlinear_concat(node: Node) -> Any:
    parts = [_real(node, at, at + 1, at + 2) for at in range(2, len(node.inputs), 3)]
    joined = _tvm.tvm.relax.op.concat(parts, axis=int(node.attribute("axis")))
    return _rounded(node, joined, 0, 1, like=2)


TABLE: dict[str, Lowering] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
"""Operator to lowering."""


CONTRIBUTED: dict[str, Lowering] = {
    "DequantizeLinear": _dequantize,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear(_add, 2),
    "QLinearConcat": _qlinear_concat,
    "QLinearGlobalAveragePool": _qlinear(_global_average),
    "QLinearLeakyRelu": _qlinear(_leaky),
    "QLinearMul": _qlinear(_multiply, 2),
    "QLinearSigmoid": _qlinear(_sigmoid),
    "QuantizeLinear": _quantize,
}
"""The same of ONNX Runtime's own domain, ``com.microsoft``."""
