"""Special functions of one variable as polynomials: rules of our own, traced by PyTorch.

PyTorch ends in primitives that nothing lowers (``prims.bessel_j0`` and the like). Here such a
function is a few polynomials, each on a piece of its range, through values that SciPy computes at
Chebyshev's points; logarithms, oscillations and exponential growth are split off first, so that
what is interpolated is smooth. They are summed in float64, which leaves float32 its last place and
float64 about ten digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_DEGREE, _PIECES = 14, 4
_FAR = 8.0
"""From here on the asymptotic forms are interpolated, as functions of the inverse."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFTS = 12
_NEAR_ZERO = 1e-3


def special_rules() -> dict[Any, Callable[..., Any]]:
    """Operator -> the function that it is replaced by."""
    import torch

    aten = torch.ops.aten
    return {
        aten.i0.default: _of_floats(lambda x: _i(0, x) * x.abs().exp()),
        aten.special_i0e.default: _of_floats(lambda x: _i(0, x)),
        aten.special_i1.default: _of_floats(lambda x: _i(1, x) * x.abs().exp()),
        aten.special_i1e.default: _of_floats(lambda x: _i(1, x)),
        aten.special_modified_bessel_i0.default: _of_floats(lambda x: _i(0, x) * x.abs().exp()),
        aten.special_modified_bessel_i1.default: _of_floats(lambda x: _i(1, x) * x.abs().exp()),
        aten.special_modified_bessel_k0.default: _of_floats(lambda x: _k(0, x) * (-x).exp()),
        aten.special_modified_bessel_k1.default: _of_floats(lambda x: _k(1, x) * (-x).exp()),
        aten.special_scaled_modified_bessel_k0.default: _of_floats(lambda x: _k(0, x)),
        aten.special_scaled_modified_bessel_k1.default: _of_floats(lambda x: _k(1, x)),
        aten.special_bessel_j0.default: _of_floats(lambda x: _j(0, x)),
        aten.special_bessel_j1.default: _of_floats(lambda x: _j(1, x)),
        aten.special_bessel_y0.default: _of_floats(lambda x: _y(0, x)),
        aten.special_bessel_y1.default: _of_floats(lambda x: _y(1, x)),
        aten.special_spherical_bessel_j0.default: _of_floats(_spherical_j0),
        aten.special_erfcx.default: _of_floats(_erfcx),
        aten.special_log_ndtr.default: _of_floats(_log_ndtr),
        aten.special_ndtri.default: _of_floats(_ndtri),
    }


def polygamma(n: int, self: Any) -> Any:
    """The ``n``-th derivative of digamma, ``n >= 1``; left of a half by reflection."""
    import torch

    sign = 1.0 if n % 2 else -1.0

    def of(x: Any) -> Any:
        left = x < 0.5
        turned = torch.where(left, 1 - x, x)
        value = sign * math.factorial(n) * _zeta(n + 1, turned)
        cotangent = 1 / torch.tan(math.pi * x)
        reflected = -_cotangent_derivative(n)(cotangent) + (value if n % 2 == 0 else -value)
        pole = left & (x == x.floor())
        result = torch.where(left, reflected, value)
        return torch.where(pole, math.inf if n % 2 else math.nan, result)

    return _of_floats(of)(self)


def _of_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of float64 for every type: whole numbers and flags give float32."""

    def rule(self: Any) -> Any:
        import torch

        wanted = self.dtype if self.is_floating_point() else torch.get_default_dtype()
        return function(self.to(torch.float64)).to(wanted)

    return rule


@cache
def _series(name: str, order: int, low: float, high: float) -> tuple[tuple[float, ...], ...]:
    """Coefficients of one of ``_smooth``, of each power a number for each piece of a range.

    Interpolated at Chebyshev's points. As powers, because each step of Horner's rule uses the last
    one once: operators are written into each other, and a second use doubles the program.
    """
    smooth = _smooth()[name]
    edges = np.linspace(low, high, _PIECES + 1)
    pieces = []
    for begin, end in itertools.pairwise(edges):

        def value(place: Any, begin: float = begin, end: float = end) -> Any:
            return smooth(order, begin + (np.asarray(place) + 1) / 2 * (end - begin))

        chebyshev = np.polynomial.chebyshev.chebinterpolate(value, _DEGREE)
        pieces.append(np.polynomial.chebyshev.cheb2poly(chebyshev))
    powers = np.zeros((_PIECES, _DEGREE + 1))
    for row, piece in zip(powers, pieces, strict=True):
        row[: len(piece)] = piece
    return tuple(tuple(map(float, column)) for column in powers.T)


def _sum(name: str, order: int, low: float, high: float, x: Any) -> Any:
    """A series at ``x``, which is first brought into its range."""
    import torch

    place = (x.clamp(low, high) - low) * (_PIECES / (high - low))
    piece = place.floor().clamp(max=_PIECES - 1)
    inside = (place - piece) * 2 - 1

    def chosen(numbers: tuple[float, ...]) -> Any:
        picked = torch.full_like(x, numbers[-1])
        for at in reversed(range(_PIECES - 1)):
            picked = torch.where(piece == at, numbers[at], picked)
        return picked

    *lower, highest = _series(name, order, low, high)
    total = chosen(highest)
    for numbers in reversed(lower):
        total = total * inside + chosen(numbers)
    return total


def _smooth() -> dict[str, Callable[[int, Any], Any]]:
    """What is interpolated: of ``x`` near zero, of an inverse far from it."""
    from scipy import special

    def scaled(function: Callable[..., Any]) -> Callable[[int, Any], Any]:
        def far(order: int, inverse: Any) -> Any:
            x = 1 / np.maximum(inverse, 1e-12)
            return function(order, x) * np.sqrt(x)

        return far

    def phases(order: int, square: Any) -> tuple[Any, Any]:
        """P and Q of the asymptotic form of Bessel functions, of the inverse square."""
        x = 1 / np.sqrt(np.maximum(square, 1e-8))
        angle = x - (2 * order + 1) * math.pi / 4
        j, y = special.jv(order, x), special.yv(order, x)
        root = np.sqrt(math.pi * x / 2)
        p = root * (j * np.cos(angle) + y * np.sin(angle))
        return p, root * (y * np.cos(angle) - j * np.sin(angle)) * x

    def no_log(order: int, x: Any) -> Any:
        """``y`` without its logarithm and, of order one, its pole."""
        x = np.maximum(x, 1e-4)
        pole = 2 / math.pi / x if order else 0.0
        return special.yv(order, x) - 2 / math.pi * np.log(x) * special.jv(order, x) + pole

    def k_no_log(order: int, x: Any) -> Any:
        x = np.maximum(x, 1e-4)
        sign = -1 if order else 1
        rest = special.kv(order, x) + sign * np.log(x / 2) * special.iv(order, x)
        return rest - (1 / x if order else 0.0)

    def power(order: int, x: Any) -> Any:
        """Odd functions over ``x``, so that a series of small numbers keeps its digits."""
        x = np.maximum(x, 1e-9)
        return special.ive(order, x) / (x if order else 1.0)

    return {
        "i near": power,
        "i far": scaled(special.ive),
        "j near": lambda n, x: (
            special.jv(n, np.maximum(x, 1e-9)) / (np.maximum(x, 1e-9) if n else 1.0)
        ),
        "p far": lambda n, square: phases(n, square)[0],
        "q far": lambda n, square: phases(n, square)[1],
        "y near": no_log,
        "k near": k_no_log,
        "k far": scaled(special.kve),
        "erfcx near": lambda _n, x: special.erfcx(x),
        "erfcx far": lambda _n, inverse: (
            special.erfcx(1 / np.maximum(inverse, 1e-7)) / np.maximum(inverse, 1e-7)
        ),
        "ndtri tail": lambda _n, root: special.ndtri_exp(-(root**2)) / root,
        "ndtri middle": lambda _n, x: (
            (special.ndtri(0.5 + np.maximum(x, 1e-9))) / np.maximum(x, 1e-9)
        ),
    }


def _i(order: int, x: Any) -> Any:
    """``exp(-|x|) I(x)``."""
    import torch

    size = x.abs()
    near = _sum("i near", order, 0.0, _FAR, size) * (size if order else 1.0)
    far = _sum("i far", order, 0.0, 1 / _FAR, 1 / size) / size.sqrt()
    value = torch.where(size < _FAR, near, far)
    return torch.where(x < 0, -value, value) if order else value


def _k(order: int, x: Any) -> Any:
    """``exp(x) K(x)``, infinite at zero, NaN below."""
    import torch

    sign = -1 if order else 1
    log = (x / 2).log() * _i(order, x) * x.exp()
    near = _sum("k near", order, 0.0, 2.0, x) - sign * log
    near = (near + (1 / x if order else 0.0)) * x.exp()
    far = _sum("k far", order, 0.0, 0.5, 1 / x) / x.sqrt()
    value = torch.where(x < 2, near, far)
    return torch.where(x == 0, math.inf, torch.where(x < 0, math.nan, value))


def _asymptotic(order: int, size: Any, second: bool) -> Any:
    square = 1 / (size * size)
    p = _sum("p far", order, 0.0, 1 / _FAR**2, square)
    q = _sum("q far", order, 0.0, 1 / _FAR**2, square) / size
    angle = size - (2 * order + 1) * math.pi / 4
    wave = p * angle.sin() + q * angle.cos() if second else p * angle.cos() - q * angle.sin()
    return (2 / math.pi / size).sqrt() * wave


def _j(order: int, x: Any) -> Any:
    import torch

    size = x.abs()
    near = _sum("j near", order, 0.0, _FAR, size) * (size if order else 1.0)
    value = torch.where(size < _FAR, near, _asymptotic(order, size, second=False))
    value = torch.where(size == math.inf, 0.0, value)
    return torch.where(x < 0, -value, value) if order else value


def _y(order: int, x: Any) -> Any:
    import torch

    near = _sum("y near", order, 0.0, _FAR, x) + 2 / math.pi * x.log() * _j(order, x)
    near = near - (2 / math.pi / x if order else 0.0)
    value = torch.where(x < _FAR, near, _asymptotic(order, x, second=True))
    value = torch.where(x == math.inf, 0.0, value)
    return torch.where(x == 0, -math.inf, torch.where(x < 0, math.nan, value))


def _spherical_j0(x: Any) -> Any:
    import torch

    small = x.abs() < _NEAR_ZERO
    value = torch.where(small, 1 - x * x / 6, x.sin() / torch.where(small, 1.0, x))
    return torch.where(x.abs() == math.inf, 0.0, value)


def _erfcx(x: Any) -> Any:
    """``exp(x^2) erfc(x)``."""
    import torch

    near = _sum("erfcx near", 0, 0.0, 3.0, x.abs())
    inverse = 1 / x.abs()
    far = _sum("erfcx far", 0, 0.0, 1 / 3.0, inverse) * inverse
    right = torch.where(x.abs() < 3, near, far)
    return torch.where(x < 0, 2 * (x * x).exp() - right, right)


def _log_ndtr(x: Any) -> Any:
    import torch

    scaled = -x * math.sqrt(0.5)
    left = (_erfcx(scaled.clamp(min=0)) / 2).log() - x * x / 2
    right = torch.log1p(-torch.erfc(x.clamp(min=-1) * math.sqrt(0.5)) / 2)
    return torch.where(x < -1, left, right)


def _ndtri(x: Any) -> Any:
    """The quantile of the normal distribution: in the tails of the root of a logarithm."""
    import torch

    tail = torch.minimum(x, 1 - x)
    root = (-tail.clamp(min=1e-300).log()).sqrt()
    middle = _sum("ndtri middle", 0, 0.0, 0.4, 0.5 - tail) * (0.5 - tail)
    outer = -root * torch.where(
        root < 4,
        _sum("ndtri tail", 0, 1.4, 4.0, root),
        _sum("ndtri tail", 0, 4.0, 27.0, root),
    )
    size = torch.where(tail > 0.1, middle, outer)
    value = torch.where(x < 0.5, -size, size)
    value = torch.where(x == 0, -math.inf, torch.where(x == 1, math.inf, value))
    return torch.where((x < 0) | (x > 1), math.nan, value)


def _zeta(s: int, q: Any) -> Any:
    """Hurwitz zeta of ``q >= 0.5``: some terms, and the rest by Euler and Maclaurin."""
    total = q * 0
    for n in range(_SHIFTS):
        total = total + (q + n) ** -s
    a = q + _SHIFTS
    total = total + a ** (1 - s) / (s - 1) + 0.5 * a**-s
    factor = float(s)
    for k, number in enumerate(_BERNOULLI, start=1):
        total = total + number / math.factorial(2 * k) * factor * a ** (1 - s - 2 * k)
        factor *= (s + 2 * k - 1) * (s + 2 * k)
    return total


def _cotangent_derivative(n: int) -> Callable[[Any], Any]:
    """``pi`` times the ``n``-th derivative of ``cot(pi x)``, of the cotangent."""
    polynomial = np.polynomial.Polynomial([0.0, math.pi])
    for _ in range(n):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-math.pi, 0.0, -math.pi])
    coefficients = [float(c) for c in polynomial.coef]

    def value(cotangent: Any) -> Any:
        total = cotangent * 0
        for coefficient in reversed(coefficients):
            total = total * cotangent + coefficient
        return total

    return value
