"""Small words for expressions of float32 and of its bits, in vectors or alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm

Expr = Any
"""A TVM expression: one number, or a vector of them."""


def number(like: Expr, value: float, kind: str = "float32") -> Expr:
    """A constant with as many lanes as ``like``."""
    tirx = _tvm.tvm.tirx
    constant, lanes = tirx.const(value, kind), _lanes(like)
    return constant if lanes == 1 else tirx.Broadcast(constant, lanes)


def constant_of(value: Expr) -> float | None:
    """The number that a constant is in every lane; None for anything else."""
    tirx = _tvm.tvm.tirx
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return float(value.value) if isinstance(value, tirx.FloatImm) else None


def root(value: Expr) -> Expr:
    """The square root, which processors have."""
    return _tvm.tvm.tirx.sqrt(value)


def convert(value: Expr, kind: str) -> Expr:
    """The same numbers in another type."""
    return _tvm.tvm.tirx.Cast(_typed(value, kind), value)


def reinterpret(value: Expr, kind: str) -> Expr:
    """The same bits in another type of that size."""
    return _tvm.tvm.tirx.reinterpret(_typed(value, kind), value)


class Names:
    """Names for values that are computed once, in the order in which they are given.

    The values hold names and no others' definitions: TVM looks at the definitions inside of a
    definition twice, and again at each level.
    """

    def __init__(self) -> None:
        self._bound: list[tuple[Any, Expr]] = []

    def __call__(self, value: Expr) -> Expr:
        """A name for ``value``, a number; what is a name already stays."""
        tirx = _tvm.tvm.tirx
        if isinstance(value, tirx.Var):
            return value
        name = tirx.Var(f"m{len(self._bound)}", value.ty.dtype)
        self._bound.append((name, value))
        return name

    def around(self, result: Expr) -> Expr:
        """``result`` with the definitions of the names in it."""
        for name, value in reversed(self._bound):
            result = _tvm.tvm.tirx.Let(name, value, result)
        return result


def select(condition: Expr, one: Expr, other: Expr) -> Expr:
    """``one`` where the condition holds; both are computed."""
    return _tvm.tvm.tirx.Select(condition, one, other)


def equal(one: Expr, other: Expr) -> Expr:
    """Whether two numbers are equal."""
    return _tvm.tvm.tirx.EQ(one, other)


def both(one: Expr, other: Expr) -> Expr:
    """Whether both hold."""
    return _tvm.tvm.tirx.And(one, other)


def either(one: Expr, other: Expr) -> Expr:
    """Whether one of them holds."""
    return _tvm.tvm.tirx.Or(one, other)


def opposite(one: Expr) -> Expr:
    """Whether it does not hold."""
    return _tvm.tvm.tirx.Not(one)


def floor(value: Expr) -> Expr:
    """The next integer below, in the same type."""
    return _tvm.tvm.tirx.floor(value)


def polynomial(x: Expr, coefficients: Sequence[float], kind: str = "float32") -> Expr:
    """Horner's rule, the constant coefficient first."""
    total = number(x, coefficients[-1], kind)
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + number(x, coefficient, kind)
    return total


def at_most(x: Expr, most: float, kind: str = "float32") -> Expr:
    """The smaller of ``x`` and a constant; NaN stays."""
    return select(x > number(x, most, kind), number(x, most, kind), x)


def at_least(x: Expr, least: float, kind: str = "float32") -> Expr:
    """The larger of ``x`` and a constant; NaN stays."""
    return select(x < number(x, least, kind), number(x, least, kind), x)


def magnitude(x: Expr) -> Expr:
    """``x`` without its sign."""
    return reinterpret(reinterpret(x, "int32") & number(x, 0x7FFFFFFF, "int32"), "float32")


def with_sign_of(value: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of another; of zeros, too."""
    sign = reinterpret(x, "int32") & number(x, -0x80000000, "int32")
    return reinterpret(reinterpret(value, "int32") | sign, "float32")


def opposite_sign(x: Expr) -> Expr:
    """``-x``, of zeros too."""
    sign = number(x, -0x80000000, "int32")
    return reinterpret(reinterpret(x, "int32") ^ sign, "float32")


def is_nan(x: Expr) -> Expr:
    """By the bits: TVM folds a comparison of ``x`` with itself."""
    return reinterpret(magnitude(x), "int32") > number(x, 0x7F800000, "int32")


def power_of_two(n: Expr) -> Expr:
    """``2**n`` in float32 for integers of 32 bits from -126 to 127."""
    biased = (n + number(n, 127, "int32")) << number(n, 23, "int32")
    return reinterpret(biased, "float32")


def _lanes(value: Expr) -> int:
    dtype = str(value.ty.dtype)
    return int(dtype.partition("x")[2]) if "x" in dtype else 1


def _typed(value: Expr, kind: str) -> str:
    lanes = _lanes(value)
    return kind if lanes == 1 else f"{kind}x{lanes}"
