"""Exponentials and what is made of them, in float32.

A number is taken apart as ``n * ln 2 + rest`` (Cody and Waite, Software Manual for the Elementary
Functions, 1980); a polynomial takes the rest, and ``2**n`` is put together from its bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from foretune.codegen._coefficients import (
    LN2,
    LOG10_2,
    TAIL,
    erf_tail,
    exp_tail,
    expm1_tail,
    log_erfc,
    scaled_tail,
    tanh_tail,
)
from foretune.codegen._expressions import (
    Expr,
    at_least,
    at_most,
    convert,
    floor,
    magnitude,
    number,
    polynomial,
    power_of_two,
    reciprocal,
    reinterpret,
    scaled,
    select,
    with_sign_of,
)

Scale = Callable[[Expr, Expr], Expr]


def exp(x: Expr) -> Expr:
    """``e**x``; far below 0 it is 0, without products that underflow, which are slow."""
    if x.code.avx512:
        return exp_near(_within(x, -104.0, 89.0), scaled)
    vanishes = x < number(x, -104.0)
    reduced = select(vanishes, number(x, 0.0), at_most(x, 89.0))
    return select(vanishes, number(x, 0.0), exp_near(reduced, scaled))


def exp2(x: Expr) -> Expr:
    """``2**x``."""
    c = _within(x, -151.0, 129.0)
    n = floor(c + number(c, 0.5))
    return exp_of_rest((c - n) * number(c, math.log(2)), n, scaled)


def exp10(x: Expr) -> Expr:
    """``10**x``."""
    c = _within(x, -46.0, 39.0)
    n = floor(c * number(c, math.log2(10)) + number(c, 0.5))
    rest = (c - n * number(n, LOG10_2[0])) - n * number(n, LOG10_2[1])
    return exp_of_rest(rest * number(c, math.log(10)), n, scaled)


def expm1(x: Expr) -> Expr:
    """``e**x - 1``: a polynomial up to 1, the difference beyond."""
    small = with_sign_of(magnitude((x * x) * polynomial(x, expm1_tail()) + x), x)
    large = exp(x) - number(x, 1.0)
    return select(magnitude(x) < number(x, 1.0), small, large)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent: a polynomial around 0, ``1 - 2 / (e**2x + 1)`` elsewhere."""
    a, u, one = magnitude(x), x * x, number(x, 1.0)
    small = magnitude((x * u) * polynomial(u, tanh_tail()) + x)
    doubled = exp_near(at_most(a, 9.1) * number(a, 2.0), scaled_once)
    large = one - number(x, 2.0) * reciprocal(doubled + one)
    return with_sign_of(select(a < number(a, 0.625), small, large), x)


def sigmoid(x: Expr) -> Expr:
    """``1 / (1 + e**-x)``."""
    e = _exp_below(number(x, 0.0) - magnitude(x))
    return _share(e, x < number(x, 0.0))


def erf(x: Expr) -> Expr:
    """The error function: a polynomial up to 1, ``1 - exp(polynomial)`` beyond."""
    a, u = magnitude(x), x * x
    small = magnitude(x * polynomial(u, erf_tail()) + x)
    c = at_most(a, 4.0)
    large = number(x, 1.0) - exp_near(polynomial(c, log_erfc()), scaled_once)
    return with_sign_of(select(a < number(a, 1.0), small, large), x)


def normal_cdf(x: Expr) -> Expr:
    """How likely a number of the standard normal distribution is to be below ``x``.

    ``erfcx(|x| / sqrt 2) exp(-x**2 / 2) / 2`` for the lower half, where ``erfcx`` is smooth in
    ``1 / (1 + |x|)``. The square is taken in two parts, so that the tail keeps its places.
    """
    a, one = at_most(magnitude(x), 14.5), number(x, 1.0)
    head = reinterpret(reinterpret(a, "int32") & number(a, ~0xFFF, "int32"), "float32")
    # x**2 = head**2 + (a - head)(a + head); the first is exact.
    square = head * head * number(a, -0.5)
    rest = (a - head) * (a + head) * number(a, -0.5)
    t = reciprocal(one + a * number(a, TAIL))
    low = exp_near(square, scaled, rest) * (t * polynomial(t, scaled_tail()))
    return select(x > number(x, 0.0), one - low, low)


def logistic_cubic(x: Expr, linear: Expr, cubic: Expr) -> Expr:
    """``sigmoid(linear * x + cubic * x**3)``: what GELU's approximation by ``tanh`` comes to.

    The exponent, and the factors, are float64, so that tails keep their places.
    """
    wide = convert(x, "float64")
    v, zero = wide * (linear + cubic * (wide * wide)), number(wide, 0.0, "float64")
    e = _exp_wide(select(v > zero, zero - v, v))
    return _share(e, v < zero)


def exp_near(x: Expr, scale: Scale, more: Expr | None = None) -> Expr:
    """``e**(x + more)`` from -104 to 89, where ``more`` is small; both are names."""
    total = x if more is None else x + more
    n = floor(total * number(x, 1 / math.log(2)) + number(x, 0.5))
    rest = (x - n * number(n, LN2[0])) - n * number(n, LN2[1])
    return exp_of_rest(rest if more is None else rest + more, n, scale)


def exp_of_rest(rest: Expr, n: Expr, scale: Scale) -> Expr:
    """``2**n * e**rest`` for rests up to half of ln 2."""
    near_one = ((rest * rest) * polynomial(rest, exp_tail()) + rest) + number(rest, 1.0)
    return scale(near_one, n)


def scaled_once(p: Expr, n: Expr) -> Expr:
    """``p * 2**n`` for whole ``n`` where that is a normal number."""
    return scaled(p, n) if p.code.avx512 else p * power_of_two(convert(n, "int32"))


def _share(e: Expr, is_below: Expr) -> Expr:
    """``1 / (1 + e)``, and ``e / (1 + e)`` where the number is below 0."""
    share = reciprocal(number(e, 1.0) + e)
    return select(is_below, e * share, share)


def _exp_below(x: Expr) -> Expr:
    """``e**x`` where ``x`` is not above 0."""
    return exp_near(at_least(x, -104.0), scaled) if x.code.avx512 else exp(x)


def _within(x: Expr, least: float, most: float) -> Expr:
    return at_least(at_most(x, most), least)


def _exp_wide(x: Expr) -> Expr:
    """``e**x`` in float32 of a float64 that is not above 0."""
    c = at_least(x, -104.0, "float64")
    halves = c * number(c, 1 / math.log(2), "float64") + number(c, 0.5, "float64")
    n = floor(halves)
    rest = convert(c - n * number(n, math.log(2), "float64"), "float32")
    return exp_of_rest(rest, convert(n, "float32"), scaled)
