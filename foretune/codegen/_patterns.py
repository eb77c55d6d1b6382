"""``1 + erf(..)`` and ``1 + tanh(..)``, where both nearly cancel for negative numbers.

As sums they lose all places in their tails; as functions of their own they keep them, and take no
longer. Sums are found in the forms in which frameworks write GELU.
"""

from __future__ import annotations

import math
from typing import Any

from foretune import _tvm

_CLOSE = 1e-6

Found = tuple[float, str, list[Any]]
"""A factor, the function it multiplies, and that function's arguments."""


def match_one_plus(value: Any) -> Found | None:
    """What ``c + c * erf(z)`` or ``c + c * tanh(u)`` is in other words, in float32; or None.

    Args:
        value: A sum.
    """
    if str(value.ty.dtype) != "float32":
        return None
    for one, other in ((value.a, value.b), (value.b, value.a)):
        constant = _constant(one)
        if not constant:
            continue
        factor, rest = _factored(other)
        name = str(getattr(getattr(rest, "op", None), "name", ""))
        if factor != constant or name not in ("tirx.erf", "tirx.tanh"):
            continue
        return _of_erf(constant, rest.args[0]) if name == "tirx.erf" else _of_tanh(constant, rest)
    return None


def _of_erf(constant: float, z: Any) -> Found | None:
    factor, x = _factored(z)
    if abs(factor * math.sqrt(2) - 1) > _CLOSE:
        return None
    return 2 * constant, "normal_cdf", [x]


def _of_tanh(constant: float, call: Any) -> Found:
    tirx = _tvm.tvm.tirx
    found = _odd_cubic(call.args[0])
    if found is None:
        doubled = tirx.const(2.0, "float32") * call.args[0]
        return 2 * constant, "sigmoid", [doubled]
    x, linear, cubic = found
    factors = [tirx.const(2 * value, "float64") for value in (linear, cubic)]
    return 2 * constant, "logistic_cubic", [x, *factors]


def _odd_cubic(value: Any) -> tuple[Any, float, float] | None:
    """``x``, ``a`` and ``b`` where the value is ``a * x + b * x**3``."""
    found = _terms(value)
    if found is None:
        return None
    x, terms = found
    return None if x is None or set(terms) != {1, 3} else (x, terms[1], terms[3])


def _terms(value: Any) -> tuple[Any, dict[int, float]] | None:
    """A polynomial of one expression: that, and coefficients by power; None for anything else."""
    tirx = _tvm.tvm.tirx
    constant = _constant(value)
    if constant is not None:
        return None, {0: constant}
    if isinstance(value, tirx.Add):
        return _combined(value, lambda a, b: {k: a.get(k, 0.0) + b.get(k, 0.0) for k in a | b})
    if isinstance(value, tirx.Mul):
        return _combined(value, _product)
    if str(getattr(getattr(value, "op", None), "name", "")) == "tirx.pow":
        exponent = _constant(value.args[1])
        base = _terms(value.args[0])
        if base is not None and exponent in (2.0, 3.0) and base[1] == {1: 1.0}:
            return base[0], {int(exponent): 1.0}
    return value, {1: 1.0}


def _combined(value: Any, combine: Any) -> tuple[Any, dict[int, float]] | None:
    one, other = _terms(value.a), _terms(value.b)
    if one is not None and other is not None:
        same = one[0] is None or other[0] is None or _equal(one[0], other[0])
        terms = combine(one[1], other[1])
        if same and max(terms) <= 3:
            return (other[0] if one[0] is None else one[0]), terms
    return value, {1: 1.0}


def _product(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    terms: dict[int, float] = {}
    for i, a in one.items():
        for j, b in other.items():
            terms[i + j] = terms.get(i + j, 0.0) + a * b
    return terms


def _equal(one: Any, other: Any) -> bool:
    return bool(one.same_as(other) or _tvm.structural_equal(one, other))


def _constant(value: Any) -> float | None:
    return float(value.value) if isinstance(value, _tvm.tvm.tirx.FloatImm) else None


def _factored(value: Any) -> tuple[float, Any]:
    """A constant factor of an expression, and the rest."""
    tirx = _tvm.tvm.tirx
    if isinstance(value, tirx.Mul):
        for one, other in ((value.a, value.b), (value.b, value.a)):
            constant = _constant(one)
            if constant is not None:
                factor, rest = _factored(other)
                return constant * factor, rest
    if isinstance(value, tirx.Div) and _constant(value.b):
        factor, rest = _factored(value.a)
        return factor / float(value.b.value), rest
    return 1.0, value
