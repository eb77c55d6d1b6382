"""Operators that treat each element alone.

Element types follow PyTorch's promotion: ``torch._prims_common.elementwise_dtypes`` says in which
type the operator computes and which one it returns. Arithmetic that rounds once is done in the
type of the result; transcendental functions of half-precision numbers are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from foretune import _tvm
from foretune.operators import special
from foretune.workload.importers.torch._node import (
    Lowering,
    Node,
    NotLoweredError,
    dtype_name,
    wide,
)

_FLOATS = ("float", "bfloat")


def _relax(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        operators: Any = _tvm.tvm.relax.op
        for part in name.split("."):
            operators = getattr(operators, part)
        return operators(*arguments)

    return call


def _types(node: Node, names: tuple[str, ...], kind: str) -> tuple[str, str]:
    """In which type to compute, and the type of the result."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
    from torch._prims_common import elementwise_dtypes

    given = [node.raw[name] for name in names]
    compute, result = elementwise_dtypes(*given, type_promotion_kind=getattr(KINDS, kind))
    if compute.is_complex or result.is_complex:
        raise NotLoweredError("complex numbers")
    return dtype_name(compute), dtype_name(result)


def _operand(node: Node, name: str, dtype: str) -> Any:
    value = node[name]
    return (
        node.const(value, dtype)
        if isinstance(value, (bool, int, float))
        else node.cast(value, dtype)
    )


def _unary(function: Callable[..., Any], kind: str = "INT_TO_FLOAT") -> Lowering:
    def lower(node: Node) -> Any:
        compute, result = _types(node, ("self",), kind)
        value = node.emit(function(_operand(node, "self", compute)))
        return node.cast(value, result)

    return lower


def _exact(function: Callable[..., Any]) -> Lowering:
    """An operator that rounds nothing, in the type it is given; integers have no fraction."""

    def lower(node: Node) -> Any:
        if not node.dtype.startswith(_FLOATS):
            return node["self"]
        return node.emit(function(node["self"]))

    return lower


def _plain(function: Callable[..., Any]) -> Lowering:
    return lambda node: node.emit(function(node["self"]))


def _binary(
    function: Callable[..., Any], kind: str = "DEFAULT", *, once: bool = True, of_bool: str = ""
) -> Lowering:
    """``once``: rounds once, so that half precision needs no detour."""

    def lower(node: Node) -> Any:
        names = ("self", "other") if "other" in node.raw else ("self", "exponent")
        compute, result = _types(node, names, kind)
        dtype = result if once and kind == "DEFAULT" else compute
        call = _relax(of_bool) if dtype == "bool" and of_bool else function
        left, right = (_operand(node, name, dtype) for name in names)
        return node.cast(node.emit(call(left, right)), node.dtype)

    return lower


def _scaled(function: Callable[..., Any]) -> Lowering:
    """``self + alpha * other`` and its like."""

    def lower(node: Node) -> Any:
        relax = _tvm.tvm.relax
        _, dtype = _types(node, ("self", "other"), "DEFAULT")
        left, right = _operand(node, "self", dtype), _operand(node, "other", dtype)
        alpha = node["alpha"]
        if alpha != 1:
            right = node.emit(relax.op.multiply(right, node.const(alpha, dtype)))
        if dtype == "bool":
            return node.emit(relax.op.logical_or(left, right))
        return node.emit(function(left, right))

    return lower


def _compare(name: str) -> Lowering:
    function = _relax(name)

    def lower(node: Node) -> Any:
        _, result = _types(node, ("self", "other"), "DEFAULT")
        left, right = _operand(node, "self", result), _operand(node, "other", result)
        if result == "bool":
            left, right = node.cast(left, "int8"), node.cast(right, "int8")
        return node.emit(function(left, right))

    return lower


def _logical(name: str) -> Lowering:
    function = _relax(name)

    def lower(node: Node) -> Any:
        names = [name for name in ("self", "other") if name in node.raw]
        return node.emit(function(*(node.cast(node[name], "bool") for name in names)))

    return lower


def _bitwise(name: str) -> Lowering:
    def lower(node: Node) -> Any:
        _, dtype = _types(node, ("self", "other"), "DEFAULT")
        operands = [_operand(node, given, dtype) for given in ("self", "other")]
        if dtype == "bool":
            return node.emit(_relax(f"logical_{name}")(*operands))
        return node.emit(_relax(f"bitwise_{name}")(*operands))

    return lower


def _shift(name: str) -> Lowering:
    def lower(node: Node) -> Any:
        _, dtype = _types(node, ("self", "other"), "DEFAULT")
        operands = [_operand(node, given, dtype) for given in ("self", "other")]
        return node.emit(_relax(name)(*operands))

    return lower


def _bitwise_not(node: Node) -> Any:
    name = "logical_not" if node.dtype == "bool" else "bitwise_not"
    return node.emit(_relax(name)(node["self"]))


def _divide(node: Node) -> Any:
    relax, mode = _tvm.tvm.relax, node["rounding_mode"] if "rounding_mode" in node.raw else None
    kind = "INT_TO_FLOAT" if mode is None else "DEFAULT"
    compute, dtype = _types(node, ("self", "other"), kind)
    if mode is None:
        left, right = _operand(node, "self", dtype), _operand(node, "other", dtype)
        if isinstance(node["other"], (int, float)) and node["other"] == 0:
            # TVM folds a division by 0 into an error; this gives NaN and infinities too.
            sign = math.copysign(math.inf, node["other"])
            return node.emit(relax.op.multiply(left, node.const(sign, dtype)))
        return node.emit(relax.op.divide(left, right))
    left, right = _operand(node, "self", compute), _operand(node, "other", compute)
    if not dtype.startswith(_FLOATS):
        kernel = special.floor_divide_integers if mode == "floor" else special.truncate_divide
        return node.te(kernel, left, right)
    if mode == "floor":
        return node.cast(node.te(special.floor_divide, left, right), dtype)
    return node.cast(node.emit(relax.op.trunc(node.emit(relax.op.divide(left, right)))), dtype)


def _remainder(kernel: Callable[..., Any], integers: Callable[..., Any]) -> Lowering:
    def lower(node: Node) -> Any:
        compute, dtype = _types(node, ("self", "other"), "DEFAULT")
        left, right = _operand(node, "self", compute), _operand(node, "other", compute)
        chosen = kernel if dtype.startswith(_FLOATS) else integers
        return node.cast(node.te(chosen, left, right), dtype)

    return lower


def _power(node: Node) -> Any:
    relax = _tvm.tvm.relax
    compute, dtype = _types(node, ("self", "exponent"), "BOOL_TO_LONG")
    base, exponent = node["self"], node["exponent"]
    if not dtype.startswith(_FLOATS):
        base, exponent = (_operand(node, name, dtype) for name in ("self", "exponent"))
        return node.te(special.integer_power, base, exponent)
    if isinstance(exponent, (int, float)):
        base = node.cast(base, dtype)
        if exponent == 2:
            return node.emit(relax.op.multiply(base, base))
        if exponent == 1:
            return base
        if exponent == 0.5:
            return node.emit(relax.op.sqrt(base))
        if exponent == 3:
            return node.emit(relax.op.multiply(relax.op.multiply(base, base), base))
    operands = [_operand(node, name, compute) for name in ("self", "exponent")]
    return node.cast(node.emit(relax.op.power(*operands)), dtype)


def _clamp(node: Node) -> Any:
    names = [name for name in ("min", "max") if node.raw.get(name) is not None]
    _, dtype = _types(node, ("self", *names), "DEFAULT")
    value, relax = node.cast(node["self"], dtype), _tvm.tvm.relax
    bounds = [node[name] for name in ("min", "max") if name in node.raw]
    if all(bound is None or isinstance(bound, (bool, int, float)) for bound in bounds):
        low = -math.inf if node["min"] is None else node["min"]
        high = math.inf if node["max"] is None else node["max"]
        if dtype.startswith(_FLOATS):
            return node.emit(relax.op.clip(value, float(min(low, high)), float(high)))
    for name, function in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if name in names:
            value = node.emit(function(value, _operand(node, name, dtype)))
    return node.broadcast(value, node.shape)


def _hardtanh(node: Node) -> Any:
    low, high = float(node["min_val"]), float(node["max_val"])
    return node.emit(_tvm.tvm.relax.op.clip(node["self"], low, high))


def _where(node: Node) -> Any:
    _, dtype = _types(node, ("self", "other"), "DEFAULT")
    left, right = _operand(node, "self", dtype), _operand(node, "other", dtype)
    condition = node.cast(node["condition"], "bool")
    value = node.emit(_tvm.tvm.relax.op.where(condition, left, right))
    return node.broadcast(value, node.shape)


def _gelu(node: Node) -> Any:
    name = "nn.gelu_tanh" if node["approximate"] == "tanh" else "nn.gelu"
    compute, result = _types(node, ("self",), "DEFAULT")
    return node.cast(node.emit(_relax(name)(node.cast(node["self"], compute))), result)


def _leaky_relu(node: Node) -> Any:
    relax = _tvm.tvm.relax
    return node.emit(relax.op.nn.leakyrelu(node["self"], float(node["negative_slope"])))


def _elu(node: Node) -> Any:
    compute, result = _types(node, ("self",), "DEFAULT")
    factors = [float(node[name]) for name in ("alpha", "scale", "input_scale")]
    value = node.cast(node["self"], compute)
    return node.cast(node.te(lambda x: special.elu(x, *factors), value), result)


def _copy(node: Node) -> Any:
    return node.broadcast(node.cast(node["src"], node.dtype), node.shape)


def _cast(node: Node) -> Any:
    name = "self" if "self" in node.raw else "a"
    return node.cast(node[name], node.dtype)


def _same(node: Node) -> Any:
    return node[next(iter(node.raw))]


def _constant(value: float | None = None) -> Lowering:
    """A tensor of one value in the shape of another."""

    def lower(node: Node) -> Any:
        return node.full(node.shape, node["fill_value"] if value is None else value, node.dtype)

    return lower


def _fill(node: Node) -> Any:
    value = node["value"]
    if isinstance(value, (bool, int, float)):
        return node.full(node.shape, value, node.dtype)
    return node.broadcast(node.cast(value, node.dtype), node.shape)


def _round(node: Node) -> Any:
    if not node.dtype.startswith(_FLOATS):
        return node["self"]
    decimals = node["decimals"] if "decimals" in node.raw else 0
    relax, scale = _tvm.tvm.relax, 10.0 ** abs(decimals)
    if not decimals:
        return node.emit(relax.op.round(node["self"]))
    there, back = relax.op.multiply, relax.op.divide
    if decimals < 0:
        there, back = back, there
    factor = node.const(scale, node.dtype)
    return node.emit(back(relax.op.round(there(node["self"], factor)), factor))


def _absolute(node: Node) -> Any:
    return node["self"] if node.dtype == "bool" else node.emit(_relax("abs")(node["self"]))


def _test(name: str, otherwise: bool) -> Lowering:
    """Tests that only numbers with a fraction can pass, or fail."""

    def lower(node: Node) -> Any:
        if not node.dtype_of("self").startswith(_FLOATS):
            return node.full(node.shape, otherwise, "bool")
        return node.emit(_relax(name)(node.cast(node["self"], wide(node.dtype_of("self")))))

    return lower


def of_numbers(function: Callable[..., Any]) -> Lowering:
    def lower(node: Node) -> Any:
        compute, result = _types(node, ("self",), "INT_TO_FLOAT")
        return node.cast(node.te(function, _operand(node, "self", compute)), result)

    return lower


def _te_binary(function: Callable[..., Any], kind: str = "DEFAULT") -> Lowering:
    def lower(node: Node) -> Any:
        compute, result = _types(node, ("self", "other"), kind)
        left, right = _operand(node, "self", compute), _operand(node, "other", compute)
        return node.cast(node.te(function, left, right), result)

    return lower


def _extreme(name: str, function: Callable[..., Any]) -> Lowering:
    """Against a constant TVM's own operator, which graph passes know: ReLU6 becomes a clip."""
    general = _te_binary(function)

    def lower(node: Node) -> Any:
        compute, result = _types(node, ("self", "other"), "DEFAULT")
        operands = [_operand(node, side, compute) for side in ("self", "other")]
        values = [getattr(operand, "value", None) for operand in operands]
        known = [v.numpy() for v in values if v is not None and hasattr(v, "numpy")]
        if not any((array == array).all() for array in known):
            return general(node)
        return node.cast(getattr(_tvm.tvm.relax.op, name)(*operands), result)

    return lower


def _sign(node: Node) -> Any:
    if node.dtype == "bool":
        return node["self"]
    return node.te(special.sign, node["self"])


_TRANSCENDENTAL = ("cos", "erf", "exp", "log", "sigmoid", "sin", "sqrt", "rsqrt", "tanh")
_SPECIAL = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cosh",
    "sinh",
    "tan",
    "expm1",
    "log1p",
    "log2",
    "log10",
    "erfc",
    "reciprocal",
    "exp2",
    "erfinv",
    "lgamma",
    "digamma",
)
"""Functions of ``operators.special`` by their own name."""

POINTWISE: dict[str, Lowering] = {
    **{f"{name}.default": _unary(_relax(name)) for name in _TRANSCENDENTAL},
    **{f"{name}.default": _exact(_relax(name)) for name in ("floor", "ceil", "trunc")},
    **{f"{name}.default": of_numbers(getattr(special, name)) for name in _SPECIAL},
    **{
        f"{aten}.{overload}": _compare(name)
        for aten, name in {
            "eq": "equal",
            "ne": "not_equal",
            "lt": "less",
            "le": "less_equal",
            "gt": "greater",
            "ge": "greater_equal",
        }.items()
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"logical_{name}.default": _logical(f"logical_{name}")
        for name in ("and", "or", "xor", "not")
    },
    **{
        f"bitwise_{name}.{overload}": _bitwise(name)
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{
        f"bitwise_{name}_shift.{overload}": _shift(f"{name}_shift")
        for name in ("left", "right")
        for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"__{letter}shift__.{overload}": _shift(f"{name}_shift")
        for letter, name in (("l", "left"), ("r", "right"))
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"__{name}__.{overload}": _bitwise(name)
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar")
    },
    "bitwise_not.default": _bitwise_not,
    "abs.default": _absolute,
    "neg.default": _plain(_relax("negative")),
    "sign.default": _sign,
    "signbit.default": of_numbers(special.signbit),
    "round.default": _round,
    "round.decimals": _round,
    "relu.default": _plain(_relax("nn.relu")),
    "silu.default": _unary(_relax("nn.silu"), "DEFAULT"),
    "isinf.default": _test("isinf", False),
    "isnan.default": _test("isnan", False),
    "isfinite.default": _test("isfinite", True),
    "add.Tensor": _scaled(_relax("add")),
    "add.Scalar": _scaled(_relax("add")),
    "sub.Tensor": _scaled(_relax("subtract")),
    "sub.Scalar": _scaled(_relax("subtract")),
    "mul.Tensor": _binary(_relax("multiply"), of_bool="logical_and"),
    "mul.Scalar": _binary(_relax("multiply"), of_bool="logical_and"),
    "div.Tensor": _divide,
    "div.Scalar": _divide,
    "div.Tensor_mode": _divide,
    "div.Scalar_mode": _divide,
    "remainder.Tensor": _remainder(special.remainder, special.integer_remainder),
    "remainder.Scalar": _remainder(special.remainder, special.integer_remainder),
    "remainder.Scalar_Tensor": _remainder(special.remainder, special.integer_remainder),
    "fmod.Tensor": _remainder(special.fmod, special.integer_fmod),
    "fmod.Scalar": _remainder(special.fmod, special.integer_fmod),
    "pow.Tensor_Tensor": _power,
    "pow.Tensor_Scalar": _power,
    "pow.Scalar": _power,
    "atan2.default": _te_binary(special.atan2, "INT_TO_FLOAT"),
    "copysign.Tensor": _te_binary(special.copysign, "INT_TO_FLOAT"),
    "copysign.Scalar": _te_binary(special.copysign, "INT_TO_FLOAT"),
    "hypot.default": _te_binary(special.hypot),
    "maximum.default": _extreme("maximum", special.maximum),
    "minimum.default": _extreme("minimum", special.minimum),
    "fmax.default": _te_binary(special.fmax),
    "fmin.default": _te_binary(special.fmin),
    "clamp.default": _clamp,
    "clamp.Tensor": _clamp,
    "hardtanh.default": _hardtanh,
    "where.self": _where,
    "gelu.default": _gelu,
    "leaky_relu.default": _leaky_relu,
    "elu.default": _elu,
    "copy.default": _copy,
    "_to_copy.default": _cast,
    "convert_element_type.default": _cast,
    "alias.default": _same,
    "clone.default": _same,
    "detach.default": _same,
    "lift_fresh_copy.default": _same,
    "full_like.default": _constant(),
    "new_full.default": _constant(),
    **{f"{name}.default": _constant(0) for name in ("zeros_like", "new_zeros", "empty_like")},
    **{f"{name}.default": _constant(1) for name in ("ones_like", "new_ones")},
    "fill.Scalar": _fill,
    "fill.Tensor": _fill,
}
