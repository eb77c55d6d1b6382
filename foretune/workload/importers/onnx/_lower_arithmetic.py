"""Element-wise operators, reductions and products."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.operators import extremes, special
from foretune.workload.element_types import element_type
from foretune.workload.importers.onnx._node import (
    Lowering,
    Node,
    NotLoweredError,
    UseConverterError,
)


def _variadic(name: str) -> Lowering:
    """Chains a binary operator; one input alone is the result."""

    def lowering(node: Node) -> Any:
        op = getattr(_tvm.tvm.relax.op, name)
        values = [node[at] for at in range(len(node.inputs))]
        return reduce(op, values)

    return lowering


def _mean(node: Node) -> Any:
    relax = _tvm.tvm.relax
    total = _variadic("add")(node)
    return relax.op.divide(total, relax.const(len(node.inputs), node.value(0).dtype))


def _axes(node: Node) -> tuple[list[int], bool]:
    """Axes of a reduction, ascending, and whether they stay."""
    rank = len(node.value(0).shape)
    axes = node.integers("axes", 1)
    keep = bool(node.attribute("keepdims", 1))
    if not axes:
        if node.attribute("noop_with_empty_axes", 0):
            return [], keep
        axes = list(range(rank))
    return sorted(axis % rank for axis in axes), keep


def _extreme(largest: bool) -> Lowering:
    def lowering(node: Node) -> Any:
        op = _tvm.tvm.relax.op
        value = node.value(0)
        axes, keep = _axes(node)
        if not axes:
            return value.expression
        if value.dtype in ("float16", "float32", "float64", "bfloat16"):
            return node.te(lambda x: extremes.extreme(x, axes, keep, largest), value.expression)
        function = op.max if largest else op.min
        if value.dtype != "bool":
            if 0 in value.shape:
                info = np.iinfo(value.dtype)
                edge = info.min if largest else info.max
                return _filled(node, edge)
            return function(value.expression, axes, keep)
        wide = op.astype(value.expression, "uint8")
        return op.astype(function(wide, axes, keep), "bool")

    return lowering


def _filled(node: Node, value: float) -> Any:
    relax = _tvm.tvm.relax
    dtype = node.output_dtype()
    return relax.op.full(node.output_shape(), relax.const(value, dtype), dtype)


def _dropout(node: Node) -> Any:
    mode = node.optional(2)
    training = bool(node.constant(2, np.array(False)).reshape(-1)[0]) if mode is not None else False
    ratio = float(node.constant(1, np.array(0.5)).reshape(-1)[0]) if training else 0.0
    if training and ratio:
        raise NotLoweredError("it draws random numbers")
    if not node.wants(1):
        return [node[0]]
    mask = np.ones(node.output_shape(1), dtype=node.output_dtype(1))
    return [node[0], _tvm.tvm.relax.const(mask, node.output_dtype(1))]


def _pow(node: Node) -> Any:
    relax = _tvm.tvm.relax
    base, exponent = node.value(0), node.value(1)
    if "float" in base.dtype:
        return relax.op.power(base.expression, relax.op.astype(exponent.expression, base.dtype))
    if exponent.array is not None and exponent.array.size == 1 and _is_small(exponent.array):
        count = int(exponent.array.reshape(-1)[0])
        if count == 0:
            return _filled(node, 1)
        return reduce(relax.op.multiply, [base.expression] * count)
    # Exact as far as the mantissa of float64 goes, as ONNX Runtime's own.
    real = relax.op.power(
        relax.op.astype(base.expression, "float64"), relax.op.astype(exponent.expression, "float64")
    )
    return relax.op.astype(real, base.dtype)


def _is_small(array: Any) -> bool:
    value = float(array.reshape(-1)[0])
    return value == int(value) and 0 <= value <= 8


def _lp_normalization(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, axis = node.value(0), int(node.attribute("axis", -1))
    if int(node.attribute("p", 2)) == 1:
        norm = op.sum(op.abs(value.expression), [axis], keepdims=True)
    else:
        norm = op.sqrt(op.sum(op.square(value.expression), [axis], keepdims=True))
    zero, one = relax.const(0, value.dtype), relax.const(1, value.dtype)
    norm = node.emit(norm)
    empty = op.equal(norm, zero)
    return op.where(
        empty, op.multiply(zero, norm), op.divide(value.expression, op.where(empty, one, norm))
    )


def _scan(name: str, neutral: int) -> Lowering:
    """Cumulative sum or product, from either end, with or without the element itself.

    In steps of doubling distance (Hillis and Steele): element-wise operators that every target has.
    """

    def lowering(node: Node) -> Any:
        relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
        value = node.value(0)
        axis = int(node.constant(1).reshape(-1)[0]) % len(value.shape)
        extent, data = value.shape[axis], value.expression

        def shifted(part: Any, by: int) -> Any:
            shape = list(value.shape)
            shape[axis] = min(by, extent)
            ahead = np.full(shape, neutral, dtype=element_type(value.dtype))
            if by >= extent:
                return relax.const(ahead, value.dtype)
            cut = op.strided_slice(part, [axis], [0], [extent - by])
            return node.emit(op.concat([relax.const(ahead, value.dtype), cut], axis))

        backward = bool(node.attribute("reverse", 0))
        if backward:
            data = node.emit(op.flip(data, axis))
        if bool(node.attribute("exclusive", 0)):
            data = shifted(data, 1)
        distance = 1
        while distance < extent:
            data = node.emit(getattr(op, name)(data, shifted(data, distance)))
            distance *= 2
        return op.flip(data, axis) if backward else data

    return lowering


def _softplus(node: Node) -> Any:
    """``max(x, 0) + log1p(exp(-|x|))``; ``log1p(u) = u log(1 + u) / ((1 + u) - 1)`` (Kahan)."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    dtype = node.value(0).dtype
    one, zero = relax.const(1, dtype), relax.const(0, dtype)
    rest = node.emit(op.exp(op.negative(op.abs(node[0]))))
    above = node.emit(op.add(one, rest))
    gap = node.emit(op.subtract(above, one))
    lost = node.emit(op.equal(gap, zero))
    exact = op.divide(op.multiply(rest, op.log(above)), op.where(lost, one, gap))
    return op.add(op.maximum(node[0], zero), op.where(lost, rest, exact))


def _determinant(node: Node) -> Any:
    """By Laplace's expansion along the first row: matrices are small where this operator is."""
    op = _tvm.tvm.relax.op
    value = node.value(0)
    size, rank = value.shape[-1], len(value.shape)
    if not 1 <= size <= 5:
        raise NotLoweredError("the matrix is too large for an expansion")

    def element(row: int, column: int) -> Any:
        cut = op.strided_slice(
            value.expression, [rank - 2, rank - 1], [row, column], [row + 1, column + 1]
        )
        return node.emit(op.squeeze(cut, [rank - 2, rank - 1]))

    cells = [[element(row, column) for column in range(size)] for row in range(size)]

    def expand(row: int, columns: tuple[int, ...]) -> Any:
        if len(columns) == 1:
            return cells[row][columns[0]]
        total: Any = None
        for at, column in enumerate(columns):
            rest = expand(row + 1, columns[:at] + columns[at + 1 :])
            term = op.multiply(cells[row][column], rest)
            if total is None:
                total = term
            else:
                total = op.add(total, term) if at % 2 == 0 else op.subtract(total, term)
        return total

    return expand(0, tuple(range(size)))


def _hardmax(node: Node) -> Any:
    op = _tvm.tvm.relax.op
    value = node.value(0)
    axis = int(node.attribute("axis", -1 if node.version >= 13 else 1))
    if node.version < 13:
        raise UseConverterError
    relax = _tvm.tvm.relax
    axis %= len(value.shape)
    places = np.arange(value.shape[axis]).astype("int64")
    wanted = [1] * len(value.shape)
    wanted[axis] = -1
    row = relax.const(places.reshape(wanted), "int64")
    best = op.argmax(value.expression, axis, keepdims=True)
    return op.astype(op.equal(row, op.astype(best, "int64")), value.dtype)


def _is_inf(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value = node.value(0)
    either: Any = None
    for name, sign in (("detect_positive", 1), ("detect_negative", -1)):
        if not int(node.attribute(name, 1)):
            continue
        edge = relax.const(np.array(sign * math.inf, dtype=element_type(value.dtype)), value.dtype)
        one = op.equal(value.expression, edge)
        either = one if either is None else op.logical_or(either, one)
    return _filled(node, 0) if either is None else either


def _mod(node: Node) -> Any:
    """Remainder with the sign of the divisor, or with the dividend's (``fmod``).

    Of floats, both begin with C's ``fmod``, which is exact and knows infinities.
    """
    tvm = _tvm.tvm
    te, tirx, topi = tvm.te, tvm.tirx, tvm.topi
    if "float" not in node.value(0).dtype:
        raise UseConverterError
    truncated = bool(node.attribute("fmod", 0))

    def compute(first: Any, second: Any) -> Any:
        shape = node.output_shape()
        left, right = topi.broadcast_to(first, shape), topi.broadcast_to(second, shape)
        dtype = str(first.dtype)
        inner = "float32" if dtype in ("float16", "bfloat16") else dtype
        function = "fmodf" if inner == "float32" else "fmod"

        def element(*index: Any) -> Any:
            x, y = left(*index).astype(inner), right(*index).astype(inner)
            rest = tirx.call_pure_extern(inner, function, x, y)
            if not truncated:
                zero = tirx.const(0, inner)
                other_sign = tirx.Select(y < zero, rest > zero, rest < zero)
                rest = tirx.Select(other_sign, rest + y, rest)
            return rest.astype(dtype)

        return te.compute(shape, element, name="mod")

    return node.builder.emit_te(compute, node[0], node[1], primfunc_name_hint="mod")


def _bit_shift(node: Node) -> Any:
    """A shift by the width or more, or by a negative number, leaves nothing, or the sign."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, places = node.value(0), node.value(1)
    left = node.attribute("direction") == "LEFT"
    width = int(np.dtype(value.dtype).itemsize) * 8
    most, zero = relax.const(width - 1, value.dtype), relax.const(0, value.dtype)
    limited = op.minimum(op.maximum(places.expression, zero), most)
    shifted = (op.left_shift if left else op.right_shift)(value.expression, limited)
    over = op.greater(places.expression, most)
    if not left and np.dtype(value.dtype).kind == "i":
        gone = op.right_shift(value.expression, most)
    else:
        gone = op.multiply(value.expression, zero)
    result = op.where(over, gone, shifted)
    if np.dtype(value.dtype).kind == "i":
        negative = op.less(places.expression, zero)
        result = op.where(negative, gone, result)
    return result


def _elu(alpha: float, scale: float = 1.0, divides: bool = False) -> Lowering:
    """``Elu``, ``Selu`` and ``Celu`` with the values that their attributes have by default."""

    def lowering(node: Node) -> Any:
        relax = _tvm.tvm.relax
        dtype = node.value(0).dtype
        low = float(node.attribute("alpha", alpha))
        factors = low, float(node.attribute("gamma", scale)), 1 / low if divides else 1.0
        wide = node[0] if dtype == "float64" else relax.op.astype(node[0], "float32")
        raised = node.te(lambda x: special.elu(x, *factors), node.emit(wide))
        return relax.op.astype(raised, dtype)

    return lowering


def _mish(node: Node) -> Any:
    """``x * tanh(log(1 + e))``, ``e = exp(x)``: that is ``x * n / (n + 2)`` with ``n = e (e + 2)``.

    Nothing is lost near zero, and nothing overflows: from 20 on the factor is 1.
    """
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    dtype = node.value(0).dtype
    bound = 20.0 if dtype != "float16" else 5.0
    two = relax.const(2, dtype)
    power = node.emit(op.exp(op.minimum(node[0], relax.const(bound, dtype))))
    inner = node.emit(op.multiply(power, op.add(power, two)))
    return op.multiply(node[0], op.divide(inner, op.add(inner, two)))


def _prelu(node: Node) -> Any:
    """A slope for each channel, or of any shape that broadcasts."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, slope = node.value(0), node.value(1)
    factor, rank = slope.expression, len(value.shape)
    if len(slope.shape) == 1 and rank > 2 and slope.shape[0] not in (1, value.shape[-1]):
        # Before operator set 7 a single axis was that of the channels.
        factor = op.reshape(factor, [1, -1] + [1] * (rank - 2))
    below = op.less(value.expression, relax.const(0, value.dtype))
    return op.where(below, op.multiply(value.expression, factor), value.expression)


def _matmul(node: Node) -> Any:
    """A product of half precision is summed in single precision."""
    op = _tvm.tvm.relax.op
    dtype = node.value(0).dtype
    if dtype not in ("float16", "bfloat16"):
        raise UseConverterError
    return op.astype(op.matmul(node[0], node[1], out_dtype="float32"), dtype)


def _bit_cast(node: Node) -> Any:
    tvm = _tvm.tvm
    dtype = node.output_dtype()
    if np.dtype(dtype).itemsize != np.dtype(node.value(0).dtype).itemsize:
        raise NotLoweredError("another width")
    if "bool" in (dtype, node.value(0).dtype):
        # A truth value is one bit to the code generator, and its byte is 0 or 1.
        return node.emit(_tvm.tvm.relax.op.astype(node[0], dtype))

    def compute(source: Any) -> Any:
        shape = tuple(int(extent) for extent in source.shape)
        return tvm.te.compute(shape, lambda *i: tvm.tirx.reinterpret(dtype, source(*i)), "bits")

    return node.builder.emit_te(compute, node[0], primfunc_name_hint="bit_cast")


def _dft(node: Node) -> Any:
    """A product with the matrix of sines and cosines, in double precision."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value = node.value(0)
    rank = len(value.shape)
    axis = int(node.attribute("axis", 1))
    if node.version >= 20:
        axis = int(node.constant(2, np.array(-2)).reshape(-1)[0])
    axis %= rank
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    given = value.shape[axis]
    complex_input = value.shape[-1] == 2
    if inverse and onesided:
        length = int(node.constant(1, np.array(2 * (given - 1))).reshape(-1)[0])
        real, imaginary = _inverse_half(given, length)
    else:
        length = int(node.constant(1, np.array(given)).reshape(-1)[0])
        result = length // 2 + 1 if onesided else length
        turn = np.outer(np.arange(result), np.arange(min(given, length)))
        angle = 2 * np.pi * turn / length * (1 if inverse else -1)
        scale = 1 / length if inverse else 1.0
        real, imaginary = np.cos(angle) * scale, np.sin(angle) * scale
        if given > length:
            real, imaginary = (np.pad(m, ((0, 0), (0, given - length))) for m in (real, imaginary))
    emit = node.emit
    data = op.astype(value.expression, "float64")
    parts = [
        emit(op.strided_slice(data, [rank - 1], [at], [at + 1]))
        for at in range(2 if complex_input else 1)
    ]

    def product(part: Any, matrix: Any) -> Any:
        order = [a for a in range(rank) if a != axis] + [axis]
        moved = op.permute_dims(part, order)
        done = op.matmul(moved, relax.const(np.ascontiguousarray(matrix.T), "float64"))
        return emit(op.permute_dims(done, [int(a) for a in np.argsort(order)]))

    first = product(parts[0], real)
    second = product(parts[0], imaginary)
    if complex_input:
        first = emit(op.subtract(first, product(parts[1], imaginary)))
        second = emit(op.add(second, product(parts[1], real)))
    if inverse and onesided:
        return op.astype(first, value.dtype)
    return op.astype(op.concat([first, second], rank - 1), value.dtype)


def _inverse_half(given: int, length: int) -> tuple[Any, Any]:
    """Matrices from one half of a spectrum to a real signal: the other half is its conjugate."""
    at, frequency = np.arange(length)[:, None], np.arange(given)[None, :]
    twice = np.where((frequency == 0) | (frequency * 2 == length), 1.0, 2.0)
    angle = 2 * np.pi * at * frequency / length
    return np.cos(angle) * twice / length, np.sin(angle) * twice / length


TABLE: dict[str, Lowering] = {
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "CumProd": _scan("multiply", 1),
    "CumSum": _scan("add", 0),
    "DFT": _dft,
    "Det": _determinant,
    "Dropout": _dropout,
    "Hardmax": _hardmax,
    "IsInf": _is_inf,
    "LpNormalization": _lp_normalization,
    "Max": _variadic("maximum"),
    "Mean": _mean,
    "Min": _variadic("minimum"),
    "MatMul": _matmul,
    "Elu": _elu(1.0),
    "Selu": _elu(1.67326319217681884765625, 1.05070102214813232421875),
    "Celu": _elu(1.0, divides=True),
    "Mish": _mish,
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "ReduceMax": _extreme(largest=True),
    "ReduceMin": _extreme(largest=False),
    "Softplus": _softplus,
    "Sum": _variadic("add"),
}
"""Operator to lowering."""
