"""Functions of one or two numbers that TVM has not, has in low accuracy, or has without NaN.

Each takes and returns TE tensors; operands are broadcast. Functions of the C library are called by
their name, which CUDA has too: element by element, exact to the last places. Formulas with a source
name it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from foretune import _tvm
from foretune.operators._read import value_at


def elementwise(function: Callable[..., Any], *operands: Any) -> Any:
    """A tensor whose elements are ``function`` of the operands' elements, broadcast."""
    te = _tvm.tvm.te
    rank = max(len(operand.shape) for operand in operands)
    shape = [1] * rank
    for operand in operands:
        for back, extent in enumerate(reversed(operand.shape), 1):
            shape[rank - back] = int(extent) if int(extent) != 1 else shape[rank - back]

    def element(*at: Any) -> Any:
        return function(*(_pick(operand, at) for operand in operands))

    return te.compute(shape, element)


def _pick(operand: Any, at: tuple[Any, ...]) -> Any:
    own = at[len(at) - len(operand.shape) :]
    sizes = zip(own, operand.shape, strict=True)
    return value_at(operand, *(0 if int(n) == 1 else i for i, n in sizes))


def _library(name: str) -> Callable[..., Any]:
    """A function of the C library, by its name for doubles."""

    def call(*operands: Any) -> Any:
        tirx = _tvm.tvm.tirx

        def element(*values: Any) -> Any:
            dtype = str(values[0].ty.dtype)
            suffix = "" if dtype == "float64" else "f"
            return tirx.call_pure_extern(dtype, name + suffix, *values)

        return elementwise(element, *operands)

    return call


acos = _library("acos")
acosh = _library("acosh")
asin = _library("asin")
asinh = _library("asinh")
atan = _library("atan")
atan2 = _library("atan2")
atanh = _library("atanh")
copysign = _library("copysign")
cosh = _library("cosh")
erfc = _library("erfc")
exp2 = _library("exp2")
expm1 = _library("expm1")
fmod = _library("fmod")
hypot = _library("hypot")
lgamma = _library("lgamma")
log10 = _library("log10")
log1p = _library("log1p")
log2 = _library("log2")
nextafter = _library("nextafter")
sinh = _library("sinh")
tan = _library("tan")


def _same(value: Any, number: float) -> Any:
    return _tvm.tvm.tirx.const(number, str(value.ty.dtype))


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    return _tvm.tvm.tirx.Select(condition, yes, no)


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return elementwise(lambda a: _same(a, 1) / a, x)


def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, as PyTorch."""

    def element(a: Any) -> Any:
        zero = _same(a, 0)
        below = zero if str(a.ty.dtype).startswith("uint") else _same(a, -1)
        return _choose(a > zero, _same(a, 1), _choose(a < zero, below, zero))

    return elementwise(element, x)


def signbit(x: Any) -> Any:
    """Whether the sign bit is set: of -0.0 it is."""
    tirx = _tvm.tvm.tirx

    def element(a: Any) -> Any:
        dtype = str(a.ty.dtype)
        if not _is_float(a):
            return a < _same(a, 0)
        bits = tirx.reinterpret(f"int{dtype[-2:]}", a)
        return bits < tirx.const(0, f"int{dtype[-2:]}")

    return elementwise(element, x)


def maximum(x: Any, y: Any) -> Any:
    """The larger; NaN where either is."""
    return elementwise(lambda a, b: _nan_first(a, b, _tvm.tvm.tirx.max(a, b)), x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller; NaN where either is."""
    return elementwise(lambda a, b: _nan_first(a, b, _tvm.tvm.tirx.min(a, b)), x, y)


def fmax(x: Any, y: Any) -> Any:
    """The larger; the other one where one is NaN."""
    return elementwise(lambda a, b: _nan_last(a, b, _tvm.tvm.tirx.max(a, b)), x, y)


def fmin(x: Any, y: Any) -> Any:
    """The smaller; the other one where one is NaN."""
    return elementwise(lambda a, b: _nan_last(a, b, _tvm.tvm.tirx.min(a, b)), x, y)


def _nan_first(a: Any, b: Any, otherwise: Any) -> Any:
    isnan = _tvm.tvm.tirx.isnan
    if not _is_float(a):
        return otherwise
    return _choose(isnan(a), a, _choose(isnan(b), b, otherwise))


def _nan_last(a: Any, b: Any, otherwise: Any) -> Any:
    isnan = _tvm.tvm.tirx.isnan
    return _choose(isnan(a), b, _choose(isnan(b), a, otherwise)) if _is_float(a) else otherwise


def elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """``scale * x`` above zero, ``scale * alpha * (exp(input_scale * x) - 1)`` below.

    ``exp(u) - 1`` is ``2 t / (1 - t)`` with ``t = tanh(u / 2)``, in which nothing cancels.
    """
    tirx = _tvm.tvm.tirx

    def element(a: Any) -> Any:
        # Not of numbers above zero, where t becomes 1.
        half = tirx.tanh(tirx.min(a, _same(a, 0)) * _same(a, input_scale / 2))
        below = _same(a, 2) * half / (_same(a, 1) - half)
        return _choose(a > _same(a, 0), a * _same(a, scale), below * _same(a, alpha * scale))

    return elementwise(element, x)


def _other_sign(remainder: Any, divisor: Any) -> Any:
    tirx, zero = _tvm.tvm.tirx, _same(divisor, 0)
    below, above = divisor < zero, divisor > zero
    return tirx.any(tirx.all(below, remainder > zero), tirx.all(above, remainder < zero))


def remainder(x: Any, y: Any) -> Any:
    """The rest of a division rounded down: it has the divisor's sign."""
    rest = fmod(x, y)
    return elementwise(lambda r, b: _choose(_other_sign(r, b), r + b, r), rest, y)


def floor_divide(x: Any, y: Any) -> Any:
    """A division rounded down, exact where quotients are close to integers.

    The quotient of what is left after ``fmod`` is an integer up to rounding, as in PyTorch's
    ``div_floor_floating`` and Python's ``float.__floordiv__``.
    """
    tirx, rest = _tvm.tvm.tirx, fmod(x, y)

    def element(a: Any, b: Any, r: Any) -> Any:
        quotient = (a - r) / b
        quotient = _choose(_other_sign(r, b), quotient - _same(a, 1), quotient)
        down = tirx.floor(quotient)
        near = _choose(quotient - down > _same(a, 0.5), down + _same(a, 1), down)
        return _choose(b == _same(b, 0), a / b, near)

    return elementwise(element, x, y, rest)


def _safe(a: Any, b: Any) -> tuple[Any, Any]:
    """A divisor that no processor traps at, and whether it is -1: the smallest integer by it."""
    if str(b.ty.dtype).startswith("uint"):
        return _choose(b == _same(b, 0), _same(b, 1), b), None
    negative = b == _same(b, -1)
    trapped = _tvm.tvm.tirx.any(b == _same(b, 0), negative)
    return _choose(trapped, _same(b, 1), b), negative


def truncate_divide(x: Any, y: Any) -> Any:
    """A division of integers rounded towards zero; a divisor of zero gives anything, no trap."""

    def element(a: Any, b: Any) -> Any:
        divisor, negative = _safe(a, b)
        quotient = _tvm.tvm.tirx.truncdiv(a, divisor)
        return quotient if negative is None else _choose(negative, _same(a, 0) - a, quotient)

    return elementwise(element, x, y)


def integer_fmod(x: Any, y: Any) -> Any:
    """The rest of a division rounded towards zero; a divisor of zero gives anything, no trap."""

    def element(a: Any, b: Any) -> Any:
        divisor, negative = _safe(a, b)
        rest = a - _tvm.tvm.tirx.truncdiv(a, divisor) * divisor
        return rest if negative is None else _choose(negative, _same(a, 0), rest)

    return elementwise(element, x, y)


def floor_divide_integers(x: Any, y: Any) -> Any:
    """A division of integers rounded down; a divisor of zero gives anything, no trap."""
    quotient, rest = truncate_divide(x, y), integer_fmod(x, y)
    return elementwise(
        lambda q, r, b: _choose(_other_sign(r, b), q - _same(q, 1), q), quotient, rest, y
    )


def integer_remainder(x: Any, y: Any) -> Any:
    """The rest of a division of integers rounded down; no trap at zero."""
    rest = integer_fmod(x, y)
    return elementwise(lambda r, b: _choose(_other_sign(r, b), r + b, r), rest, y)


def integer_power(x: Any, y: Any) -> Any:
    """Powers of integers by squaring, wrapping around as PyTorch's do.

    Negative exponents give what is left of 1 / x**|y|: 0, or 1 or -1 for those bases.
    """
    tirx = _tvm.tvm.tirx
    base = elementwise(lambda a, b: a, x, y)
    exponent = elementwise(lambda a, b: b, x, y)
    result = elementwise(lambda a: _same(a, 1), base)
    power = base
    for bit in range(int(str(x.dtype).lstrip("uint")).bit_length()):
        result = elementwise(
            lambda r, p, e, bit=bit: _choose((e >> bit) & _same(e, 1) != _same(e, 0), r * p, r),
            result,
            power,
            exponent,
        )
        power = elementwise(lambda p: p * p, power)
    if str(x.dtype).startswith("uint"):
        return result

    def element(r: Any, a: Any, e: Any) -> Any:
        one, odd = _same(a, 1), (e & _same(e, 1)) != _same(e, 0)
        unit = _choose(tirx.all(a == _same(a, -1), odd), _same(a, -1), one)
        is_unit = tirx.any(a == one, a == _same(a, -1))
        return _choose(e < _same(e, 0), _choose(is_unit, unit, _same(a, 0)), r)

    return elementwise(element, result, base, exponent)


# M. Giles, Approximating the erfinv function, GPU Computing Gems (2010), single precision.
_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def erfinv(x: Any) -> Any:
    """The inverse of erf: Giles' polynomials, with two Newton steps for doubles."""
    tirx = _tvm.tvm.tirx

    def horner(w: Any, terms: tuple[float, ...]) -> Any:
        value = _same(w, terms[0])
        for term in terms[1:]:
            value = value * w + _same(w, term)
        return value

    def start(a: Any) -> Any:
        one = _same(a, 1)
        w = _same(a, 0) - tirx.log((one - a) * (one + a))
        tail = horner(tirx.sqrt(w) - _same(a, 3), _TAIL)
        value = a * _choose(w < _same(a, 5), horner(w - _same(a, 2.5), _CENTRE), tail)
        edge = a * _same(a, math.inf)
        return _choose(tirx.any(a == one, a == _same(a, -1)), edge, value)

    value = elementwise(start, x)
    if str(x.dtype) != "float64":
        return value

    def newton(y: Any, a: Any) -> Any:
        slope = _same(a, 2 / math.sqrt(math.pi)) * tirx.exp(_same(a, 0) - y * y)
        error = tirx.call_pure_extern("float64", "erf", y) - a
        inside = tirx.abs(a) < _same(a, 1)
        return _choose(inside, y - error / slope, y)

    return elementwise(newton, elementwise(newton, value, x), x)


# Abramowitz and Stegun 6.3.18: B(2n) / 2n.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_STEPS = 10


def digamma(x: Any) -> Any:
    """The derivative of ``lgamma``: reflection below 0, recurrence up to 10, then its series."""
    tirx = _tvm.tvm.tirx

    def above(a: Any) -> Any:
        # One sum, not a chain of steps: TVM's expressions are trees, and a chain doubles each time.
        far, zero, one = _same(a, _STEPS), _same(a, 0), _same(a, 1)
        total = zero
        for step in range(_STEPS):
            term = a + _same(a, step)
            total = total - _choose(term < far, one / term, zero)
        lifted = a + tirx.max(zero, tirx.ceil(far - a))
        square, series = one / (lifted * lifted), zero
        for number in reversed(_DIGAMMA):
            series = (series + _same(a, number)) * square
        return total + tirx.log(lifted) - _same(a, 0.5) / lifted - series

    mirrored = elementwise(lambda a: _choose(a <= _same(a, 0), _same(a, 1) - a, a), x)
    value = elementwise(above, mirrored)
    turn = elementwise(lambda a: (a - tirx.trunc(a)) * _same(a, math.pi), x)
    tangent = tan(turn)

    def reflect(v: Any, t: Any, a: Any) -> Any:
        below = v - _same(a, math.pi) / t
        pole = tirx.all(a < _same(a, 0), a == tirx.trunc(a))
        zero = tirx.all(a == _same(a, 0))
        result = _choose(a < _same(a, 0), below, v)
        result = _choose(pole, _same(a, math.nan), result)
        return _choose(zero, _same(a, -1) / a, result)

    return elementwise(reflect, value, tangent, x)
