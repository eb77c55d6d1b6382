"""Coefficients of polynomials, made when they are first needed, and constants in parts.

Polynomials interpolate a function at Chebyshev's nodes, in float64, and are rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from foretune._arrays import FloatArray

# ln 2 and log10(2) in two parts: products of the first with exponents are exact.
LN2 = (0.693359375, -2.12194440054690583e-4)
LOG10_2 = (0.30078125, 2.48745663981195213739e-4)


def _fit(
    function: Callable[[FloatArray], FloatArray], low: float, high: float, degree: int
) -> list[float]:
    """Coefficients in float32, the constant one first."""
    from numpy.polynomial import Chebyshev, Polynomial

    fitted = Chebyshev.interpolate(function, degree, [low, high])
    return [float(np.float32(c)) for c in fitted.convert(kind=Polynomial).coef]


def _series(terms: Callable[[int], float], count: int = 24) -> Callable[[FloatArray], FloatArray]:
    """A power series as a function: exact around 0, where the closed form loses places."""
    coefficients = [terms(k) for k in range(count)]
    return lambda x: np.asarray(np.polynomial.polynomial.polyval(x, coefficients), np.float64)


def exp_tail() -> list[float]:
    """``(e**r - 1 - r) / r**2``."""
    half = math.log(2) / 2 * 1.001
    return _fit(_series(lambda k: 1 / math.factorial(k + 2)), -half, half, 4)


def expm1_tail() -> list[float]:
    """``(e**x - 1 - x) / x**2`` from -1 to 1."""
    return _fit(_series(lambda k: 1 / math.factorial(k + 2)), -1.0, 1.0, 8)


def log_tail() -> list[float]:
    """``(log(1 + f) - f + f**2 / 2) / f**3``."""

    def tail(f: FloatArray) -> FloatArray:
        wide = np.asarray(np.where(np.abs(f) < 1e-3, 1e-3, f), np.longdouble)
        return np.asarray((np.log1p(wide) - wide + wide * wide / 2) / wide**3, np.float64)

    return _fit(tail, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8)


def tanh_tail() -> list[float]:
    """``(tanh(s) / s - 1) / u`` of ``u = s**2``."""

    def tail(u: FloatArray) -> FloatArray:
        wide = np.asarray(np.maximum(u, 1e-5), np.longdouble)
        root = np.sqrt(wide)
        return np.asarray((np.tanh(root) / root - 1) / wide, np.float64)

    return _fit(tail, 0.0, 0.625**2, 5)


def erf_tail() -> list[float]:
    """``erf(s) / s - 1`` of ``u = s**2``."""
    from scipy.special import erf

    def tail(u: FloatArray) -> FloatArray:
        root = np.sqrt(np.maximum(u, 1e-12))
        return np.asarray(erf(root) / root - 1)

    return _fit(tail, 0.0, 1.0, 7)


def log_erfc() -> list[float]:
    """``log(1 - erf(a))``."""
    from scipy.special import log_ndtr

    return _fit(lambda a: math.log(2) + log_ndtr(-a * math.sqrt(2)), 1.0, 4.0, 9)


TAIL = 0.35
"""Of ``t = 1 / (1 + 0.35 |x|)``, in which the scaled tail is smooth."""


def scaled_tail() -> list[float]:
    """``erfcx(a / sqrt 2) / 2 / t`` of ``t``."""
    from scipy.special import erfcx

    def tail(t: FloatArray) -> FloatArray:
        return np.asarray(erfcx((1 / t - 1) / TAIL / math.sqrt(2)) / 2 / t)

    return _fit(tail, 1 / (1 + TAIL * 14.5), 1.0, 8)


def sin_tail() -> list[float]:
    """``(sin(r) - r) / r**3`` of ``r**2``."""
    terms = _series(lambda k: (-1) ** (k + 1) / math.factorial(2 * k + 3), 12)
    return _fit(terms, 0.0, (math.pi / 4) ** 2 * 1.001, 3)


def cos_tail() -> list[float]:
    """``(cos(r) - 1 + r**2 / 2) / r**4`` of ``r**2``."""
    terms = _series(lambda k: (-1) ** k / math.factorial(2 * k + 4), 12)
    return _fit(terms, 0.0, (math.pi / 4) ** 2 * 1.001, 3)


def two_over_pi() -> tuple[float, ...]:
    """``2 / pi`` in seven parts of 28 bits each, whose products with a float32 are exact."""
    bits, parts = 7 * 28, []
    whole = _two_over_pi_bits(bits)
    for at in range(7):
        chunk = (whole >> (bits - 28 * (at + 1))) & ((1 << 28) - 1)
        parts.append(math.ldexp(chunk, -28 * (at + 1)))
    return tuple(parts)


def _two_over_pi_bits(bits: int) -> int:
    """The first binary digits of ``2 / pi`` (Machin's formula, in integers)."""
    one = 1 << (bits + 64)

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * one * (1 << bits)) // pi


def in_two_parts(value: float) -> tuple[float, float]:
    """A constant as a sum of two float32."""
    high = float(np.float32(value))
    return high, value - high
