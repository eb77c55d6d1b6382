"""How often the conditions around a statement hold, by counting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import BoolArray, IntArray
from foretune.describe._affine import Sum, values

_COUNTED = 1 << 18
"""Iterations that are looked at one by one; of more, as many drawn at random."""


@dataclass(frozen=True)
class Condition:
    """A condition around a statement.

    Attributes:
        expression: TVM's expression.
        holds: Whether the statement is executed where it holds, or where it does not.
    """

    expression: Any
    holds: bool


@dataclass(frozen=True)
class _Compared:
    """``kind`` of a sum and 0, negated or not."""

    kind: str
    difference: Sum
    holds: bool


def share(
    conditions: Sequence[Condition],
    integer: Callable[[Any], Sum],
    extents: Mapping[int, int],
) -> tuple[float, bool]:
    """In which share of iterations all conditions hold, and whether that is exact.

    Args:
        conditions: Conjunctions, disjunctions and negations of comparisons of integers; what else
            there is counts as true and is not exact.
        integer: Makes a sum of an expression.
        extents: Iterations of loops.
    """
    compared: list[_Compared | tuple[_Compared, ...]] = []
    exact = all([_collect(c.expression, c.holds, integer, compared) for c in conditions])
    share_, groups = 1.0, _grouped([each for each in compared if not _always(each)])
    for group in groups:
        own, counted = _counted(group, extents)
        share_, exact = share_ * own, exact and counted
    return share_, exact


def always(condition: Any, integer: Callable[[Any], Sum]) -> bool:
    """Whether a condition is known to hold in every iteration."""
    compared: list[Any] = []
    return _collect(condition, True, integer, compared) and all(_always(each) for each in compared)


def _collect(node: Any, holds: bool, integer: Callable[[Any], Sum], compared: list[Any]) -> bool:
    kind = type(node).__name__
    if kind == "IntImm":
        if bool(node.value) != holds:
            compared.append(_Compared("LT", Sum(0), True))
        return True
    if kind == "Not":
        return _collect(node.a, not holds, integer, compared)
    if kind == "Call" and str(getattr(node.op, "name", "")).endswith("likely"):
        return _collect(node.args[0], holds, integer, compared)
    if kind == ("And" if holds else "Or"):
        parts = [_collect(each, holds, integer, compared) for each in (node.a, node.b)]
        return all(parts)
    if kind in ("And", "Or"):
        either: list[_Compared] = []
        parts = [_collect(each, holds, integer, either) for each in (node.a, node.b)]
        flat = all(parts) and len(either) == 2
        if flat:
            compared.append(tuple(either))
        return flat
    if kind in ("LT", "LE", "GT", "GE", "EQ", "NE"):
        difference = integer(node.a).plus(integer(node.b), -1)
        if difference.exact:
            compared.append(_Compared(kind, difference, holds))
        return difference.exact
    return False


_DECIDE: Mapping[str, Callable[[Any], Any]] = {
    "LT": lambda x: x < 0,
    "LE": lambda x: x <= 0,
    "GT": lambda x: x > 0,
    "GE": lambda x: x >= 0,
    "EQ": lambda x: x == 0,
    "NE": lambda x: x != 0,
}


def _always(each: Any) -> bool:
    """Whether a comparison holds whatever the loops are at."""
    if isinstance(each, tuple):
        return any(_always(part) for part in each)
    low, high = each.difference.bounds
    decide = _DECIDE[each.kind]
    ends = {bool(decide(low)), bool(decide(high))}
    if each.kind in ("EQ", "NE") and low <= 0 <= high and low < high:
        return False
    return ends == {bool(each.holds)}


def _loops(each: Any) -> set[int]:
    if isinstance(each, tuple):
        return {loop for part in each for loop in _loops(part)}
    return {digit[0] for digit in each.difference.digits}


def _grouped(compared: Sequence[Any]) -> list[list[Any]]:
    """Conditions that have loops in common."""
    groups: list[tuple[set[int], list[Any]]] = []
    for each in compared:
        loops, members = _loops(each), [each]
        apart = []
        for other_loops, others in groups:
            if other_loops & loops:
                loops, members = loops | other_loops, others + members
            else:
                apart.append((other_loops, others))
        groups = [*apart, (loops, members)]
    return [members for _, members in groups]


def _counted(group: Sequence[Any], extents: Mapping[int, int]) -> tuple[float, bool]:
    if len(group) == 1 and not isinstance(group[0], tuple):
        known = _of_mixed_radix(group[0], extents)
        if known is not None:
            return known, True
    loops = sorted({loop for each in group for loop in _loops(each)})
    sizes = [extents[loop] for loop in loops]
    total = int(np.prod(sizes, dtype=object)) if sizes else 1
    if total <= _COUNTED:
        at = np.indices(sizes).reshape(len(loops), -1) if loops else np.zeros((0, 1), np.int64)
    else:
        rng = np.random.default_rng(0)
        at = np.stack([rng.integers(0, size, _COUNTED) for size in sizes])
    iterations = dict(zip(loops, at, strict=True))
    held = functools.reduce(np.logical_and, [_held(each, iterations) for each in group])
    return float(np.mean(held)), total <= _COUNTED


def _held(each: Any, at: Mapping[int, IntArray]) -> BoolArray:
    if isinstance(each, tuple):
        parts = [_held(part, at) for part in each]
        return np.asarray(functools.reduce(np.logical_or, parts))
    value: Any = each.difference.constant
    for digit, coefficient in each.difference.digits.items():
        loop, low, _ = digit
        value = value + coefficient * (at[loop] // low % values(digit))
    return np.asarray(np.asarray(_DECIDE[each.kind](value)) == each.holds)


def _of_mixed_radix(each: _Compared, extents: Mapping[int, int]) -> float | None:
    """The share where the sum takes each value of a range equally often; None where it may not."""
    weight, low = 1.0, each.difference.constant
    for digit, coefficient in sorted(each.difference.digits.items(), key=lambda i: abs(i[1])):
        loop, first, end = digit
        if coefficient != weight or first != 1 or end != extents[loop]:
            return None
        weight *= values(digit)
    if each.kind not in ("LT", "LE"):
        return None
    below = -low + (each.kind == "LE")
    share = min(max(below / weight, 0.0), 1.0)
    return share if each.holds else 1.0 - share
