from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretune.symbolic import Algebra, Scalar
from foretune.symbolic.formulas._operators import Operators
from foretune.symbolic.formulas._tape import Tape

Build = Callable[[Algebra, Scalar, Scalar, Scalar], Scalar]

BUILDS: dict[str, Build] = {
    "sum": lambda _, a, b, c: a * 3 + b * -2 + c + 7,
    "product": lambda _, a, b, c: a * a * b * c * 5,
    "quotient": lambda _, a, b, c: a / (b * c) + 2,
    "less": lambda _, a, b, c: a.less(b) * c,
    "at_most": lambda _, a, b, c: a.at_most(b) * c,
    "equal": lambda _, a, b, c: a.equal(b) * c,
    "maximum": lambda _, a, b, c: a.maximum(b) * c,
    "minimum": lambda _, a, b, c: a.minimum(b) * c,
    "choose": lambda _, a, b, c: a.less(b).choose(c * a, b),
    "choose negated": lambda _, a, b, c: a.less(b).negated().choose(c, b * c),
    "negated": lambda _, a, b, c: a.less(b).negated() * c,
    "all": lambda g, a, b, c: g.all_of([a.less(b), b.at_most(c), a.equal(c).negated()]),
    "any": lambda g, a, b, c: g.any_of([a.less(b), b.less(c), c.less(a), a.equal(b)]),
    "long": lambda g, a, b, c: g.all_of([a.less(b * k) for k in range(2, 9)]) + c,
    "floor": lambda _, a, b, c: (a * b).floor_divided(c),
}

JUMPS = ("all", "any")
"""What has no derivative unless it is smooth: nothing in it but conditions."""

COMPARISONS = {"less": operator.lt, "at_most": operator.le, "equal": operator.eq,
               "minimum": min, "maximum": max}  # fmt: skip


def built(build: Build) -> Tape:
    algebra = Algebra()
    a, b, c = (algebra.variable(name) for name in "abc")
    return Tape(algebra, [a, b, c], [build(algebra, a, b, c)])


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("temperature", [0.3, 0.0])
def test_derivatives_are_those_of_finite_differences(name: str, temperature: float) -> None:
    tape = built(BUILDS[name])
    generator = torch.Generator().manual_seed(0)
    points = 1.1 + 4 * torch.rand(8, 3, generator=generator, dtype=torch.float64)
    if name == "floor" and temperature == 0:
        points = points.floor() + 0.5
    points.requires_grad_()
    operators = Operators(temperature)

    def at(x: torch.Tensor) -> torch.Tensor:
        return tape(x, operators)

    if at(points).requires_grad or temperature > 0:
        assert torch.autograd.gradcheck(at, (points,), eps=1e-6, atol=1e-5, rtol=1e-4)
    else:
        assert name in JUMPS


@pytest.mark.parametrize("name", COMPARISONS)
def test_operators_on_whole_numbers_are_exact_and_smooth_ones_tend_to_them(name: str) -> None:
    algebra = Algebra()
    a, b = algebra.variable("a"), algebra.variable("b")
    tape = Tape(algebra, [a, b], [algebra.make(name, a, b)])
    numbers = torch.arange(1, 9, dtype=torch.float64)
    pairs = torch.cartesian_prod(numbers, numbers)
    expected = [[float(COMPARISONS[name](x, y)) for x, y in pairs.tolist()]]
    exact = tape(pairs, Operators())
    assert exact.tolist() == expected
    smooth = tape(pairs, Operators(1e-8))
    torch.testing.assert_close(smooth, exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("temperature", [pytest.param(0.1, marks=pytest.mark.slow), 1.0])
def test_smooth_operators_are_convolutions_of_the_exact_ones(temperature: float) -> None:
    t = torch.linspace(-4000, 4000, 4_000_001, dtype=torch.float64)
    kernel = 0.5 * (1 + t * t) ** -1.5
    algebra = Algebra()
    a, b = algebra.variable("a"), algebra.variable("b")
    names = ("less", "at_most", "maximum", "minimum")
    tape = Tape(algebra, [a, b], [algebra.make(name, a, b) for name in names])
    points = torch.tensor([[3.0, 3.0], [2.0, 3.0], [5.0, 3.0], [4.0, 40.0]], dtype=torch.float64)
    found = tape(points, Operators(temperature)).tolist()
    for at, (x, y) in enumerate(points.tolist()):

        def mean(exact: Callable[[torch.Tensor], torch.Tensor], distance: float) -> float:
            """Of what is exact around a distance of logarithms."""
            return float(torch.trapezoid(kernel * exact(distance - temperature * t), t))

        # Thresholds lie between two whole numbers.
        less = mean(lambda d: (d > 0).double(), math.log((y - 0.5) / x))
        at_most = mean(lambda d: (d > 0).double(), math.log((y + 0.5) / x))
        # Of sizes beyond the second one.
        maximum = y * math.exp(mean(lambda d: d.clamp(min=0), math.log(x / y)))
        minimum = y * math.exp(mean(lambda d: d.clamp(max=0), math.log(x / y)))
        expected = [less, at_most, maximum, minimum]
        assert [row[at] for row in found] == pytest.approx(expected, rel=5e-3, abs=2e-3)


def test_sizes_that_are_the_same_share_the_slope_of_their_maximum() -> None:
    tape = built(BUILDS["maximum"])
    points = torch.tensor([[3.0, 3.0, 1.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(tape(points, Operators()).sum(), points)
    assert slope.tolist() == [[0.5, 0.5, 3.0]]


def test_equal_parts_are_computed_once() -> None:
    algebra = Algebra()
    a, b = algebra.variable("a"), algebra.variable("b")
    once = Tape(algebra, [a, b], [a.less(b).choose(a, b)])
    twice = Tape(algebra, [a, b], [a.less(b).choose(a, b)] * 2)
    assert len(once) == len(twice) == 2


def test_operations_of_a_kind_that_wait_for_nothing_are_one_instruction() -> None:
    algebra = Algebra()
    variables = [algebra.variable(str(at)) for at in range(6)]
    outputs = [a.maximum(b) for a in variables for b in variables if a is not b]
    assert Tape(algebra, variables, outputs).instructions == 1


def test_constants_and_variables_need_no_instruction() -> None:
    algebra = Algebra()
    a = algebra.variable("a")
    tape = Tape(algebra, [a], [a, algebra.number(5), algebra.number(0)])
    points = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    assert tape(points, Operators()).tolist() == [[3, 4], [5, 5], [0, 0]]
    assert tape.instructions == len(tape) == 0


@st.composite
def expressions(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Operations, each on earlier results; the first three are variables."""
    kinds = ("add", "multiply", "less", "minimum", "maximum", "choose", "any", "not")
    places = [st.integers(0, 2 + at) for at in range(draw(st.integers(1, 12)))]
    return [(draw(st.sampled_from(kinds)), draw(p), draw(p), draw(p)) for p in places]


def applied(kind: str, a: Any, b: Any, c: Any, by_hand: bool) -> Any:
    """One operation on numbers or on scalars."""
    if kind in ("add", "multiply"):
        return a + b if kind == "add" else a * b
    if by_hand:
        below = a < b
        if kind == "choose":
            return c if below else b
        if kind in ("less", "not", "any"):
            return {"less": below, "not": not below, "any": below or b < c}[kind] + 1
        return (min if kind == "minimum" else max)(a, b)
    if kind == "choose":
        return a.less(b).choose(c, b)
    if kind == "any":
        return a.algebra.any_of([a.less(b), b.less(c)]) + 1
    if kind in ("less", "not"):
        return (a.less(b) if kind == "less" else a.less(b).negated()) + 1
    return getattr(a, kind)(b)


@given(expressions(), st.lists(st.tuples(*[st.integers(1, 9)] * 3), min_size=1, max_size=4))
def test_exact_values_are_those_of_python(
    steps: list[tuple[str, int, int, int]], rows: list[tuple[int, int, int]]
) -> None:
    algebra = Algebra()
    scalars = [algebra.variable(name) for name in "abc"]
    for kind, a, b, c in steps:
        scalars.append(applied(kind, scalars[a], scalars[b], scalars[c], by_hand=False))
    found = Tape(algebra, scalars[:3], scalars[3:])(
        torch.tensor(rows, dtype=torch.float64), Operators()
    )
    for row, got in zip(rows, found.T.tolist(), strict=True):
        numbers: list[float] = [float(each) for each in row]
        for kind, a, b, c in steps:
            numbers.append(float(applied(kind, numbers[a], numbers[b], numbers[c], by_hand=True)))
        if max(map(abs, numbers)) < 2**53 and math.isfinite(numbers[-1]):
            np.testing.assert_array_equal(got, numbers[3:])
