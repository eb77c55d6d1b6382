from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune import _tvm
from foretune.describe._affine import Sum, canonical, divided, of_loop, values
from foretune.describe._conditions import Condition, always, share

EXTENTS = {0: 4, 1: 6, 2: 5}
Point = Mapping[int, int]
Exact = Callable[[Point], int]
POINTS = [
    dict(zip(EXTENTS, at, strict=True)) for at in itertools.product(*map(range, EXTENTS.values()))
]


def value(given_: Sum, point: Point) -> float:
    total = given_.constant
    for digit, coefficient in given_.digits.items():
        loop, low, _ = digit
        total += coefficient * (point[loop] // low % values(digit))
    return total


@st.composite
def expressions(draw: Any, depth: int = 3) -> tuple[Sum, Exact]:
    """A sum as it is made from an expression, and the expression."""
    kind = draw(st.sampled_from(["loop", "number", "add", "scale", "divide", "remainder"]))
    if depth == 0 or kind == "loop":
        loop = draw(st.sampled_from(sorted(EXTENTS)))
        return of_loop(loop, EXTENTS[loop]), lambda point: point[loop]
    if kind == "number":
        number = draw(st.integers(-7, 30))
        return Sum(number), lambda _: number
    inner, exact = draw(expressions(depth - 1))
    if kind == "add":
        other, other_exact = draw(expressions(depth - 1))
        return inner.plus(other), lambda point: exact(point) + other_exact(point)
    factor = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 12]))
    if kind == "scale":
        return inner.times(factor), lambda point: exact(point) * factor
    quotient, rest = divided(inner, factor, EXTENTS)
    if kind == "divide":
        return quotient, lambda point: exact(point) // factor
    return rest, lambda point: exact(point) % factor


@given(expressions())
def test_sums_that_say_so_are_exact(made: tuple[Sum, Exact]) -> None:
    found, exact = made
    whole = canonical(found, EXTENTS)
    for point in POINTS:
        assert value(found, point) == value(whole, point)
        if found.exact:
            assert value(found, point) == exact(point)


@pytest.mark.parametrize(
    ("given_", "digits"),
    [
        (Sum(0, {(1, 2, 6): 2, (1, 1, 2): 1}), {(1, 1, 6): 1}),
        (Sum(0, {(0, 2, 4): -2, (0, 1, 4): 1}), {(0, 1, 2): 1}),
        (Sum(0, {(0, 1, 4): 1, (1, 1, 6): 4}), {(0, 1, 4): 1, (1, 1, 6): 4}),
        # Neither boundary divides the other.
        (Sum(0, {(1, 2, 6): 1, (1, 3, 6): 1}), {(1, 2, 6): 1, (1, 3, 6): 1}),
    ],
)
def test_digits_of_a_loop_are_put_together(given_: Sum, digits: dict[Any, float]) -> None:
    assert canonical(given_, EXTENTS).digits == digits


def test_a_fused_and_split_loop_has_its_digits_back() -> None:
    # (i * 6 + j) // 6 and % 6, of two loops and of one that was fused from them.
    both = of_loop(0, 4).times(6).plus(of_loop(1, 6))
    assert divided(both, 6, EXTENTS) == (of_loop(0, 4), of_loop(1, 6))
    assert divided(of_loop(3, 24), 6, {3: 24}) == (
        Sum(0, {(3, 6, 24): 1}),
        Sum(0, {(3, 1, 6): 1}),
    )


def test_what_no_digit_is_stays_close() -> None:
    # 128 * o + 4 * t in rows of 36: a row has nine different starts.
    both = of_loop(0, 4).times(128).plus(of_loop(1, 32).times(4))
    row, column = divided(both, 36, {0: 4, 1: 32})
    assert not row.exact
    assert not column.exact
    assert row.digits == {(0, 1, 4): 128 / 36, (1, 9, 32): 1}
    assert column.digits == {(0, 1, 4): 4, (1, 1, 9): 4}


def _sum_of(node: Any) -> Sum:
    """Loops are variables called i, j and k."""
    kind = type(node).__name__
    if kind == "Var":
        loop = "ijk".index(str(node.name))
        return of_loop(loop, EXTENTS[loop])
    if kind == "IntImm":
        return Sum(int(node.value))
    a, b = _sum_of(node.a), _sum_of(node.b)
    if kind == "Mul":
        return a.times(b.constant)
    if kind in ("Add", "Sub"):
        return a.plus(b, 1 if kind == "Add" else -1)
    quotient, rest = divided(a, int(b.constant), EXTENTS)
    return quotient if kind == "FloorDiv" else rest


_I, _J, _K = (_tvm.tvm.tirx.Var(name, "int32") for name in "ijk")
_T = _tvm.tvm.tirx


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (_I * 6 + _J < 13, lambda i, j, k: i * 6 + j < 13),
        (_T.all(_I * 6 + _J < 13, _K >= 2), lambda i, j, k: i * 6 + j < 13 and k >= 2),
        (_T.any(_I < 1, _J < 2), lambda i, j, k: i < 1 or j < 2),
        (_T.all(_I + _J < 5, _J > 1), lambda i, j, k: i + j < 5 and j > 1),
        (_T.Not(_I + _J < 5), lambda i, j, k: not i + j < 5),
        (_T.floormod(_J, 4).equal(_I), lambda i, j, k: j % 4 == i),
        (_I < 4, lambda i, j, k: True),
        (_K.equal(7), lambda i, j, k: False),
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_shares_are_counted(
    condition: Any, holds: Callable[[int, int, int], bool], wanted: bool
) -> None:
    expected = np.mean([holds(p[0], p[1], p[2]) == wanted for p in POINTS])
    found, exact = share([Condition(condition, wanted)], _sum_of, EXTENTS)
    assert exact
    assert found == pytest.approx(expected)
    assert not always(condition, _sum_of) or all(holds(p[0], p[1], p[2]) for p in POINTS)


def test_several_conditions_are_counted_together() -> None:
    conditions = [Condition(_I + _J < 5, True), Condition(_J < 2, False), Condition(_K < 2, True)]
    expected = np.mean([p[0] + p[1] < 5 and p[1] >= 2 and p[2] < 2 for p in POINTS])
    assert share(conditions, _sum_of, EXTENTS)[0] == pytest.approx(expected)


def test_of_many_iterations_some_are_looked_at() -> None:
    extents = {0: 1 << 12, 1: 1 << 12}

    def sums(node: Any) -> Sum:
        kind = type(node).__name__
        if kind == "Var":
            return of_loop("ijk".index(str(node.name)), 1 << 12)
        if kind == "IntImm":
            return Sum(int(node.value))
        return sums(node.a).plus(sums(node.b))

    found, exact = share([Condition(_I + _J < 1 << 12, True)], sums, extents)
    assert not exact
    assert found == pytest.approx(0.5, abs=0.01)
    # As many values as iterations, each once: no counting.
    assert always(_I + _J < 1 << 13, sums)
