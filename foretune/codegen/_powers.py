"""Powers: roots and products where the exponent is known and small, through float64 elsewhere."""

from __future__ import annotations

import math

from foretune.codegen._expressions import (
    Expr,
    at_least,
    at_most,
    both,
    constant_of,
    convert,
    either,
    equal,
    floor,
    is_nan,
    magnitude,
    number,
    opposite,
    opposite_sign,
    polynomial,
    reinterpret,
    root,
    scaled,
    select,
)
from foretune.codegen._logarithms import split

_INFINITY, _NAN = float("inf"), float("nan")
_WHOLE = 8
"""Powers up to this one, and reciprocals of those up to half of it, are products."""
_FAR = 1e300
"""The logarithm of infinity: finite, so that it times zero is zero."""


def power(x: Expr, y: Expr) -> Expr:
    """``x**y`` as the C library has it."""
    wide = convert(y, "float64")
    finite = at_least(at_most(wide, 1e30, "float64"), -1e30, "float64")
    size = _exp2_wide(finite * _log2_wide(magnitude(x)))
    return _signed_power(x, y, size)


def is_short(exponent: float) -> bool:
    """Whether a power is a root or a product of a few numbers."""
    return abs(exponent) == 0.5 or _is_product(exponent)


def _is_product(exponent: float) -> bool:
    return exponent == math.floor(exponent) and -_WHOLE // 2 <= exponent <= _WHOLE


def short_power(x: Expr, y: Expr) -> Expr:
    """A root, or a small whole power: ``y`` is a constant that ``is_short``."""
    exponent = constant_of(y)
    assert exponent is not None
    if abs(exponent) == 0.5:
        # The C library has no negative zero here, and infinity for its opposite.
        positive = select(equal(x, number(x, -_INFINITY)), number(x, _INFINITY), x)
        value = magnitude(root(positive))
        return value if exponent > 0 else number(x, 1.0) / value
    base = (number(x, 1.0) / x) if exponent < 0 else x
    return _product(base, abs(int(exponent)))


def _product(x: Expr, exponent: int) -> Expr:
    """``x * x * ...``, by squares."""
    if exponent == 0:
        return number(x, 1.0)
    if exponent == 1:
        return x
    half = _product(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


def _log2_wide(a: Expr) -> Expr:
    """The logarithm of a float32 that is not negative, in float64, to 34 bits."""
    m, e = split(a)
    wide, one = convert(m, "float64"), number(a, 1.0, "float64")
    s = (wide - one) / (wide + one)
    series = [2 / math.log(2) / (2 * k + 1) for k in range(7)]
    finite = s * polynomial(s * s, series, "float64") + convert(e, "float64")
    far = number(a, _FAR, "float64")
    infinite = select(equal(a, number(a, _INFINITY)), far, finite)
    return select(equal(a, number(a, 0.0)), number(a, -_FAR, "float64"), infinite)


def _exp2_wide(x: Expr) -> Expr:
    """``2**x`` in float32 of a float64."""
    c = at_least(at_most(x, 200.0, "float64"), -200.0, "float64")
    n = floor(c + number(c, 0.5, "float64"))
    series = [math.log(2) ** k / math.factorial(k) for k in range(9)]
    p = convert(polynomial(c - n, series, "float64"), "float32")
    return scaled(p, convert(n, "float32"))


def _signed_power(x: Expr, y: Expr, size: Expr) -> Expr:
    """``|x|**y`` with the sign that ``x**y`` has, and what is not a number."""
    half = y * number(y, 0.5)
    # Infinity is an even integer.
    whole, even = equal(floor(y), y), equal(floor(half), half)
    below = reinterpret(x, "int32") < number(x, 0, "int32")
    signed = select(both(below, both(whole, opposite(even))), opposite_sign(size), size)
    finite = both(x < number(x, 0.0), x > number(x, -_INFINITY))
    known = select(both(finite, opposite(whole)), number(x, _NAN), signed)
    known = select(either(is_nan(x), is_nan(y)), number(x, _NAN), known)
    one = either(equal(x, number(x, 1.0)), equal(y, number(y, 0.0)))
    return select(one, number(x, 1.0), known)
