"""Which integer inputs of a network are numbers: neither indices nor masks nor counts of bits.

A model that comes without examples must be tried on more than 0 and 1. But a mask of attention that
is neither 0 nor 1 drowns what it is added to, and then rounding alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_SHIFTS = ("relax.left_shift", "relax.right_shift")
_CONVERTING = ("relax.astype", "relax.call_tir")
_MASK_RANK = 2
"""Rank from which integers that become floats are taken for a mask: (batch, length). Time steps and
lengths have less."""


def number_inputs(module: IRModule, limits: Callable[[], Mapping[int, int]]) -> dict[int, bool]:
    """Position of each integer input that may be any number: whether it becomes a float.

    Args:
        module: Relax, with a ``main``.
        limits: Positions of inputs that are indices; asked only where it matters.

    Returns:
        Without those that are called a mask, become floats with the rank of one, or say how far
        bits are shifted. What is calculated on the way is not looked at.
    """
    parameters = list(module["main"].params)
    found = {
        at: _converted(module["main"], parameter)
        for at, parameter in enumerate(parameters)
        if _is_integer(parameter.ty) and "mask" not in str(parameter.name).lower()
    }
    numbers = {
        at: converted
        for at, converted in found.items()
        if converted is not None
        and not (converted and len(parameters[at].ty.shape or ()) >= _MASK_RANK)
    }
    indices = limits() if numbers else {}
    return {at: converted for at, converted in numbers.items() if at not in indices}


def _is_integer(ty: Any) -> bool:
    return str(getattr(ty, "dtype", "")).startswith(("int", "uint"))


def _converted(main: Any, parameter: Any) -> bool | None:
    """Whether a parameter becomes a float; None where it is no number, or nobody can say."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    if not isinstance(main.body, relax.SeqExpr):
        return None
    integers, converted = {parameter}, False
    for binding in (b for block in main.body.blocks for b in block.bindings):
        value = binding.value
        if integers.isdisjoint(relax.analysis.free_vars(value)):
            continue
        if isinstance(value, relax.If):
            return None
        name = str(getattr(getattr(value, "op", None), "name", ""))
        if name in _SHIFTS and value.args[1] in integers:
            return None
        parts = list(getattr(binding.var.ty, "fields", None) or [binding.var.ty])
        if any(_is_integer(part) for part in parts):
            integers.add(binding.var)
        elif name in _CONVERTING:
            converted |= any("float" in str(getattr(part, "dtype", "")) for part in parts)
    return converted
