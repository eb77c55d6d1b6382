"""Logarithms in float32.

Of ``x = 2**e * (1 + f)`` the exponent is read from the bits, and a polynomial takes ``f``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from foretune.codegen._coefficients import LN2, LOG10_2, in_two_parts, log_tail
from foretune.codegen._expressions import (
    Expr,
    convert,
    equal,
    magnitude,
    number,
    polynomial,
    reinterpret,
    select,
    with_sign_of,
)

_SMALLEST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3
_INFINITY, _NAN = float("inf"), float("nan")


def log(x: Expr) -> Expr:
    """The natural logarithm."""

    def combined(f: Expr, rest: Expr, e: Expr) -> Expr:
        return e * number(f, LN2[0]) + (f + (e * number(f, LN2[1]) + rest))

    return _logarithm(x, combined)


def log2(x: Expr) -> Expr:
    """The logarithm to the base 2."""
    high, low = in_two_parts(1 / math.log(2))

    def combined(f: Expr, rest: Expr, e: Expr) -> Expr:
        small = f * number(f, low) + rest * number(f, high + low)
        return e + (f * number(f, high) + small)

    return _logarithm(x, combined)


def log10(x: Expr) -> Expr:
    """The logarithm to the base 10."""
    high, low = in_two_parts(1 / math.log(10))

    def combined(f: Expr, rest: Expr, e: Expr) -> Expr:
        small = e * number(f, LOG10_2[1]) + (f * number(f, low) + rest * number(f, high + low))
        return e * number(f, LOG10_2[0]) + (f * number(f, high) + small)

    return _logarithm(x, combined)


def log1p(x: Expr) -> Expr:
    """``log(1 + x)``, exact for small ``x``."""
    one = number(x, 1.0)
    y = one + x
    # What the sum lost, in units of y.
    lost = select(x < one, x - (y - one), one - (y - x))
    finite = with_sign_of(magnitude(log(y) + lost / y), x)
    infinite = select(equal(x, number(x, _INFINITY)), x, finite)
    return select(equal(x, number(x, -1.0)), number(x, -_INFINITY), infinite)


def split(x: Expr) -> tuple[Expr, Expr]:
    """``m`` around 1 and ``e`` of ``x = 2**e * m``, finite and above 0."""
    small = x < number(x, _SMALLEST_NORMAL)
    bits = reinterpret(select(small, x * number(x, 2.0**23), x), "int32")
    e = (bits - number(bits, _SQRT_HALF_BITS, "int32")) >> number(bits, 23, "int32")
    m = reinterpret(bits - (e << number(e, 23, "int32")), "float32")
    return m, convert(e, "float32") + select(small, number(x, -23.0), number(x, 0.0))


def _logarithm(x: Expr, combined: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    """From ``x = 2**e * (1 + f)``, with ``1 + f`` around 1, and ``rest = log(1 + f) - f``."""
    m, e = split(x)
    f = m - number(m, 1.0)
    z = f * f
    rest = (f * z) * polynomial(f, log_tail()) + z * number(f, -0.5)
    infinite = select(equal(x, number(x, _INFINITY)), x, combined(f, rest, e))
    zero_or_wrong = select(equal(x, number(x, 0.0)), number(x, -_INFINITY), number(x, _NAN))
    return select(x > number(x, 0.0), infinite, zero_or_wrong)
