from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretune import _tvm
from foretune.space import Space, Structure, structure_of
from foretune.symbolic import (
    Algebra,
    Digit,
    Evaluator,
    Scalar,
    SymbolicProgram,
    UnsupportedTraceError,
    symbolic_program,
)
from foretune.symbolic.formulas._operators import Operators
from foretune.symbolic.formulas._tape import Tape
from foretune.workload import Workload, catalog
from tests.space.programs import CPU, gpu, softmax, space, te


def value(scalar: Scalar, point: dict[int, float]) -> float:
    """A polynomial's value at numbers of its variables."""
    total = 0.0
    for monomial, coefficient in scalar.terms.items():
        term = float(coefficient)
        for symbol, power in monomial:
            term *= point[symbol] ** power
        total += term
    return total


def test_ranges_of_nested_tiles_collapse_to_their_product() -> None:
    a, b, c = Algebra().tile("abc", 60)
    assert ((a - 1) * b * c + (b - 1) * c + (c - 1) + 1).constant == 60
    assert ((b - 1) * c + (c - 1) + 1).same(b * c)


def test_quotients_of_tiles_are_products_of_the_other_factors() -> None:
    a, b, c = Algebra().tile("abc", 60)
    assert (c.algebra.number(60) / (b * c)).same(a)
    assert (b * c / c).same(b)


def test_what_holds_for_all_decisions_is_decided() -> None:
    algebra = Algebra()
    a, b, c = algebra.tile("abc", 60)
    free = algebra.variable("limit", 64)
    assert (b * c).at_most(60).constant == 1
    assert (b * c).minimum(60).same(b * c)
    assert a.less(a * b).constant is None
    assert algebra.number(65).less(free).constant == 0
    assert algebra.all_of([b.less(c), algebra.number(0)]).constant == 0


@given(
    st.sampled_from([(3, 4, 5), (60, 1, 1), (1, 2, 30)]),
    st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 2)), min_size=1, max_size=6),
)
def test_polynomials_compute_what_numbers_do(
    tile: tuple[int, int, int], steps: list[tuple[str, int]]
) -> None:
    algebra = Algebra()
    factors = algebra.tile("abc", 60)
    scalar, expected = algebra.number(1), 1
    for operation, which in steps:
        if operation == "*" and len(scalar.terms) <= 1:
            scalar, expected = scalar * factors[which], expected * tile[which]
        elif operation == "+":
            scalar, expected = scalar + factors[which], expected + tile[which]
        else:
            scalar, expected = scalar - factors[which], expected - tile[which]
    point = {f.symbol.index: float(t) for f, t in zip(factors, tile, strict=True)}
    assert value(scalar, point) == pytest.approx(expected)


def program(name: str, sketch: int = 0) -> SymbolicProgram:
    here = replace(space(name), sketches=(space(name).sketches[sketch],))
    (candidate,) = here.sample(np.random.default_rng(1), 1)
    return symbolic_program(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))


def test_a_matmul_has_the_loops_of_its_trace() -> None:
    plain = next(
        program("matmul", i)
        for i, s in enumerate(space("matmul").sketches)
        if "CacheWrite" not in s.trace
    )
    (store,) = plain.stores
    assert len(store.levels) == 4 + 4 + 2
    total = plain.algebra.number(1)
    for level in store.levels:
        total = total * level.extent
    assert total.constant == 64 * 128 * 96


def test_buffers_are_narrowed_to_what_is_alive() -> None:
    cached = next(
        program("matmul", i)
        for i, s in enumerate(space("matmul").sketches)
        if "CacheWrite" in s.trace
    )
    (narrow,) = (a for b, a in cached.allocations.items() if b.name.endswith("_global"))
    whole = narrow.shape[0] * narrow.shape[1] * narrow.outside
    assert whole.constant == 64 * 128


def test_halos_follow_from_tiles() -> None:
    workload = catalog.get("conv2d:1x28x28x16x32x3x1")
    assert isinstance(workload, Workload)
    here = Space.generate(workload, CPU)
    sketch = next(s for s in here.sketches if s.location_order)
    at = sketch.location_order[0]
    drawn = replace(here, sketches=(sketch,)).sample(np.random.default_rng(0), 200)
    candidate = next(c for c in drawn if c.decisions[at] == 6)
    found = symbolic_program(sketch, structure_of(sketch, candidate.decisions))
    (padded,) = (a for b, a in found.allocations.items() if b.name == "pad_temp")
    numbers = Tape(found.algebra, found.variables, padded.shape)
    (_, height, _, _) = numbers(torch.tensor([found.point(candidate.decisions)]), Operators())
    tile = next(i for i, v in enumerate(sketch.variables) if v.name.endswith("yy"))
    inner = np.prod(candidate.decisions[tile][2:])  # type: ignore[index]
    assert int(height) == inner + 2


def test_all_threads_of_a_kernel_are_around_it() -> None:
    here = Space.generate(Workload.from_module(softmax(), "softmax"), gpu())
    launched = set()
    for candidate in here.sample(np.random.default_rng(0), 20):
        found = symbolic_program(
            candidate.sketch, structure_of(candidate.sketch, candidate.decisions)
        )
        shared: dict[int, set[int]] = {}
        for store in found.stores:
            blocks, threads = (level.loop for level in store.levels[:2])
            shared.setdefault(blocks, set()).add(threads)
            bound = [bool(level.thread) for level in store.levels]
            assert bound == sorted(bound, reverse=True)
            launched.add(tuple(level.thread for level in store.levels if level.thread))
            mentioned = {d.loop for i in store.indices for d in i.atoms() if isinstance(d, Digit)}
            assert mentioned <= {level.loop for level in store.levels}
        assert all(len(threads) == 1 for threads in shared.values())
    assert launched == {("blockIdx.x", "threadIdx.x")}


def test_layout_rewriting_is_not_known() -> None:
    sketch = space("batch_matmul").sketches[0]
    with pytest.raises(UnsupportedTraceError, match="RewriteLayout"):
        symbolic_program(sketch, Structure())


def test_an_unknown_instruction_is_named() -> None:
    sketch = space("matmul").sketches[0]
    strange = replace(sketch, trace=sketch.trace.replace('"Reorder"', '"Blockize"'))
    with pytest.raises(UnsupportedTraceError, match="Blockize") as caught:
        symbolic_program(strange, structure_of(sketch, space("matmul").sample(
            np.random.default_rng(0), 1)[0].decisions))  # fmt: skip
    assert caught.value.what == "instruction Blockize"


def scheduled(change: str) -> Workload:
    """Rows that are doubled, with something that is no plain serial loop."""
    schedule = _tvm.Schedule(_tvm.IRModule({"main": doubled()}))
    block = schedule.get_sblock("doubled")
    row, column = schedule.get_loops(block)
    if change == "guarded":
        schedule.split(column, [None, 5])
    elif change == "annotated":
        schedule.annotate(row, "pragma_auto_unroll_max_step", 16)
    else:
        getattr(schedule, change)(row if change == "parallel" else column)
    return Workload.from_module(schedule.mod["main"], change)


def doubled() -> Any:
    a = te.placeholder((16, 32), name="A")
    return te.create_prim_func([a, te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="doubled")])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("parallel", "no plain serial loop"),
        ("vectorize", "no plain serial loop"),
        ("unroll", "no plain serial loop"),
        ("annotated", "no plain serial loop"),
        ("guarded", "has a predicate"),
    ],
)
def test_programs_that_are_scheduled_already_are_not_known(change: str, what: str) -> None:
    sketch = Space.generate(scheduled(change), CPU).sketches[0]
    with pytest.raises(UnsupportedTraceError, match=what):
        symbolic_program(sketch, Structure())


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=4, max_size=4))
def test_what_numpy_evaluates_is_what_the_tape_does(numbers: list[int]) -> None:
    algebra = Algebra()
    a, b, c, d = (algebra.variable(name, 12) for name in "abcd")
    scalars = [
        a * b + c - 2,
        (a + b) * (c + d) / d,
        a.minimum(b).maximum(c),
        (a * b).floor_divided(c),
        a.ceil_divided(d) * b,
        algebra.all_of([a.less(b), c.at_most(d)]),
        algebra.any_of([a.equal(b), c.divides(d)]).negated(),
        a.less(b).choose(c, d * 3),
        algebra.number(7),
    ]
    points = torch.tensor([numbers, [12, 3, 4, 1]], dtype=torch.float64)
    found = Evaluator(algebra, [a, b, c, d], scalars)(points.numpy())
    expected = Tape(algebra, [a, b, c, d], scalars)(points, Operators())
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["matmul", "softmax"])
def test_a_store_is_executed_as_often_as_its_loops_leave_something_to_do(name: str) -> None:
    made: dict[Any, list[Any]] = {}
    for candidate in space(name).sample(np.random.default_rng(0), 8):
        key = candidate.sketch, structure_of(candidate.sketch, candidate.decisions)
        made.setdefault(key, []).append(candidate.decisions)
    for key, decisions in made.items():
        program = symbolic_program(*key)
        shares = [s.executed for s in program.stores if s.executed is not None]
        evaluate = Evaluator(program.algebra, program.variables, shares)
        found = evaluate(np.array([program.point(each) for each in decisions]))
        assert ((found > 0) & (found <= 1)).all()
