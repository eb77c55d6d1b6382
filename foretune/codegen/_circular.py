"""Sine and cosine of every float32, the largest too."""

from __future__ import annotations

import math

from foretune.codegen._coefficients import cos_tail, sin_tail, two_over_pi
from foretune.codegen._expressions import (
    Expr,
    convert,
    equal,
    floor,
    number,
    polynomial,
    reinterpret,
    select,
)


def sin(x: Expr) -> Expr:
    """The sine."""
    # Negative zero stays: the sum of its parts loses the sign.
    return select(equal(x, number(x, 0.0)), x, _circular(x, quarter=0))


def cos(x: Expr) -> Expr:
    """The cosine: a sine a quarter of a turn on."""
    return _circular(x, quarter=1)


def _circular(x: Expr, quarter: int) -> Expr:
    """``sin(x + quarter * pi / 2)``.

    Every product of ``x`` with a part of ``2 / pi`` is exact in float64, and so is what whole turns
    leave of it (Payne and Hanek, 1983): the place in the quarter is known for the largest numbers.
    """
    wide = convert(x, "float64")
    half, turn = number(wide, 0.5, "float64"), number(wide, 4.0, "float64")
    parts: list[Expr] = []
    for share in two_over_pi():
        product = wide * number(wide, share, "float64")
        turns = floor(product * number(wide, 0.25, "float64") + half)
        parts.append(product - turns * turn)
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = total + part
    n = floor(total + half)
    left = parts[0] - n
    for part in parts[1:]:
        left = left + part
    angle = convert(left * number(n, math.pi / 2, "float64"), "float32")
    return _of_quarter(angle, convert(n, "int32") + number(n, quarter, "int32"))


def _of_quarter(r: Expr, q: Expr) -> Expr:
    """``sin(r + q pi / 2)`` for ``r`` up to a quarter of pi."""
    u = r * r
    sine = (r * u) * polynomial(u, sin_tail()) + r
    cosine = (u * u) * polynomial(u, cos_tail()) + (u * number(u, -0.5) + number(u, 1.0))
    is_cosine = equal(q & number(q, 1, "int32"), number(q, 1, "int32"))
    flip = (q & number(q, 2, "int32")) << number(q, 30, "int32")
    chosen = select(is_cosine, cosine, sine)
    return reinterpret(reinterpret(chosen, "int32") ^ flip, "float32")
