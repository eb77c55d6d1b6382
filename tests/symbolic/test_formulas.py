from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from foretune import _tvm
from foretune.features import PER_STORE, columns, extract_per_store
from foretune.features.stores.formulas import extract_batch
from foretune.space import Candidate, Space, structure_of
from foretune.symbolic import limits, symbolic_program
from foretune.symbolic.formulas import Formulas, formulas
from foretune.symbolic.formulas._operators import Operators
from foretune.workload import Workload, catalog
from tests.space.programs import (
    CPU,
    average_pooling,
    global_pooling,
    gpu,
    matmul,
    pooling,
    softmax,
    te,
    two_matmuls,
)
from tests.symbolic.drawn import here, sampled

_CONVOLUTION = "conv2d:1x14x14x16x32x3x1"


def compared(candidates: list[Candidate]) -> list[tuple[Candidate, Formulas]]:
    """Those of which formulas are certain, once their columns have been found to be TVM's."""
    found = []
    for candidate, expected in zip(candidates, extract_per_store(candidates), strict=True):
        made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
        points = made.points([candidate.decisions])
        if made.certain(points).all():
            assert expected is not None
            np.testing.assert_allclose(made(points)[0].numpy(), expected, rtol=1e-3, atol=1e-6)
            found.append((candidate, made))
    return found


def compiled(name: str) -> tuple[Formulas, torch.Tensor]:
    """Formulas of the most frequent structure of a program, and points of it."""
    found: dict[tuple[object, object], list[Candidate]] = {}
    for candidate in here(name).sample(np.random.default_rng(3), 60):
        key = candidate.sketch, structure_of(candidate.sketch, candidate.decisions)
        found.setdefault(key, []).append(candidate)
    (sketch, structure), members = max(found.items(), key=lambda item: len(item[1]))
    made = formulas(sketch, structure)  # type: ignore[arg-type]
    return made, made.points([c.decisions for c in members])


@pytest.mark.parametrize(
    "name",
    ["matmul", _CONVOLUTION, pytest.param("depthwise:1x14x14x32x3x2", marks=pytest.mark.slow),
     "maxpool2d", "softmax", pytest.param("layer_norm", marks=pytest.mark.slow),
     # Primes above 7.
     "matmul:127x13x22"],
)  # fmt: skip
def test_exact_columns_are_tvms(name: str) -> None:
    assert len(compared(sampled(here(name), 8))) >= 2


def _bytes() -> Any:
    a, b = te.placeholder((16, 32), "uint8", name="A"), te.placeholder((24, 32), "int8", name="B")
    k = te.reduce_axis((0, 32), name="k")
    return te.create_prim_func(
        [a, b, te.compute((16, 24), lambda i, j: te.sum(
            a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="C")]
    )  # fmt: skip


def _whole_numbers() -> Any:
    a, b = (te.placeholder((12, 20), "int32", name=name) for name in "AB")
    c = te.compute(
        (12, 20), lambda i, j: a[i, j] * 3 - _tvm.tvm.tirx.max(b[i, j], a[i, j]) // 5, name="C"
    )
    return te.create_prim_func([a, b, c])


def _where_larger() -> Any:
    a, b = (te.placeholder((12, 20), "int32", name=name) for name in "AB")
    picked = _tvm.tvm.tirx.Select
    c = te.compute(
        (12, 20), lambda i, j: picked(a[i, j] + 1 < b[i, j], a[i, j], b[i, j] * i), name="C"
    )
    return te.create_prim_func([a, b, c])


@pytest.mark.parametrize("made", [_bytes, _whole_numbers, _where_larger])
def test_whole_numbers_that_are_data_are_counted_as_tvm_counts_them(
    made: Callable[[], Any],
) -> None:
    where = Space.generate(Workload.from_module(made(), made.__name__), CPU)
    assert compared(sampled(where, 8))


def test_a_product_of_two_extents_is_known_but_its_count_is_not_certain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = Space.generate(Workload.from_module(average_pooling(), "average_pooling"), CPU)
    candidates = sampled(where, 8)
    floating = [at for at, column in enumerate(columns()) if column.name.startswith("arith.float")]
    with caplog.at_level(logging.WARNING):
        for candidate, expected in zip(candidates, extract_per_store(candidates), strict=True):
            made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
            points = made.points([candidate.decisions])
            assert expected is not None and not made.certain(points).any()
            got = made(points)[0].numpy()
            np.testing.assert_allclose(got[:, floating], expected[:, floating], rtol=1e-3)
    assert floating and not caplog.records


def _sum_of_row(a: Any) -> Any:
    k = te.reduce_axis((0, 1), name="k")
    return te.compute((1,), lambda i: te.sum(a[i, k], axis=k), name="S")


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ((1, 1, 1), lambda a: te.compute((1, 1, 1), lambda i, j, k: 2.0 * a[i, j, k], name="B")),
        ((), lambda a: te.compute((), lambda *at: 2.0 * a(*at), name="B")),
        ((4, 3), lambda a: te.compute((1, 1), lambda i, j: 2.0 * a[i + 2, j + 1], name="B")),
        ((1, 1), _sum_of_row),
    ],
    ids=["one iteration", "no loops", "one of many", "a sum"],
)
def test_programs_that_run_once_have_the_rows_that_tvm_has(
    shape: tuple[int, ...], make: Callable[[Any], Any]
) -> None:
    a = te.placeholder(shape, name="A")
    workload = Workload.from_module(te.create_prim_func([a, make(a)]), "once")
    candidates = sampled(Space.generate(workload, CPU), 6)
    assert compared(candidates)
    expected = extract_per_store(candidates)
    for rows, right in zip(extract_batch(candidates), expected, strict=True):
        assert rows is not None and right is not None
        np.testing.assert_allclose(rows, right, rtol=1e-3, atol=1e-6)


def test_what_is_read_from_its_end_is_as_large_as_otherwise() -> None:
    # How TVM writes the negative terms of an index differs: multiplications of whole numbers.
    others = [at for at, column in enumerate(columns()) if column.name != "arith.int_mul"]
    candidates = sampled(here("flipped"), 8)
    for candidate, expected in zip(candidates, extract_per_store(candidates), strict=True):
        made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
        got = made(made.points([candidate.decisions]))[0].numpy()
        assert expected is not None
        np.testing.assert_allclose(got[:, others], expected[:, others], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["matmul:256x256x256", pytest.param(_CONVOLUTION, marks=pytest.mark.slow)]
)
def test_exact_columns_are_tvms_on_gpus(name: str) -> None:
    found = catalog.get(name)
    assert isinstance(found, Workload)
    candidates = sampled(Space.generate(found, gpu()), 8)
    assert candidates
    read = extract_per_store(candidates)
    for got, expected in zip(extract_batch(candidates), read, strict=True):
        assert got is not None
        assert expected is not None
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)
    # Where they are not certain, they come from programs above; by themselves they are close.
    for got, expected in zip(extract_batch(candidates, approximate=True), read, strict=True):
        assert got is not None
        assert expected is not None
        assert np.abs(np.log2(1 + np.abs(got)) - np.log2(1 + np.abs(expected))).mean() < 0.1


# Of the convolution's copies that are padded and vectorised, TVM writes some indices otherwise.
@pytest.mark.parametrize(("name", "draws"), [("matmul:256x256x256", 8), (_CONVOLUTION, 40)])
@pytest.mark.slow
def test_where_formulas_are_certain_on_gpus_they_are_tvms(name: str, draws: int) -> None:
    found = catalog.get(name)
    assert isinstance(found, Workload)
    assert compared(sampled(Space.generate(found, gpu()), draws))


def rows_sums() -> Any:
    """Sums of rows, and their roots."""
    x = te.placeholder((64, 768), name="X")
    k = te.reduce_axis((0, 768), name="k")
    total = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="total")
    return te.create_prim_func([x, te.compute((64,), lambda i: te.sqrt(total[i]), name="lengths")])


def together(made: Formulas) -> bool:
    """Whether threads reduce together."""
    return any(store.name.endswith("_write_back") for store in made.program.stores)


@pytest.mark.parametrize("program", [softmax, rows_sums])
@pytest.mark.slow
def test_exact_columns_are_tvms_where_threads_reduce_together(program: Callable[[], Any]) -> None:
    workload = Workload.from_module(program(), program.__name__)
    candidates = sampled(Space.generate(workload, gpu()), 40)
    shared = {c.decisions for c, made in compared(candidates) if together(made)}
    assert len(shared) >= 4


@pytest.mark.parametrize("program", [pytest.param(pooling, marks=pytest.mark.slow), global_pooling])
def test_axes_that_threads_share_by_halves_are_not_certain(program: Callable[[], Any]) -> None:
    # 3 x 3 and 7 x 7 elements, and 4 to 512 threads: a thread's part begins within an axis.
    workload = Workload.from_module(program(), program.__name__)
    shared = 0
    for candidate in sampled(Space.generate(workload, gpu()), 20):
        made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
        if together(made):
            assert not made.certain(made.points([candidate.decisions])).any()
            shared += 1
    assert shared >= 2


# Of the softmax, threads that reduce together may be fewer than a warp, and all drawn are legal.
# Of two products each has a kernel, and shared memory, of its own.
@pytest.mark.parametrize(
    ("program", "draws", "some_illegal"),
    [(matmul, 60, True), (softmax, 60, False), (two_matmuls, 400, True)],
)
@pytest.mark.slow
def test_what_gpus_accept_is_within_the_limits_and_most_of_the_rest_is_not(
    program: Callable[[], Any], draws: int, some_illegal: bool
) -> None:
    workload = Workload.from_module(program(), program.__name__)
    drawn = Space.generate(workload, gpu()).sample(np.random.default_rng(0), draws)
    legal = np.array([rows is not None for rows in extract_per_store(drawn)])
    excess = []
    for candidate in drawn:
        made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
        excess.append(float(made.excess(made.points([candidate.decisions]))[0]))
    within = np.array(excess) < 1e-9
    assert legal.any()
    assert within[legal].all()
    assert (~legal).any() == some_illegal
    assert not some_illegal or within[~legal].mean() < 0.5


def test_shared_memory_is_that_of_one_kernel() -> None:
    workload = Workload.from_module(two_matmuls(), "two_matmuls")
    candidate = max(
        Space.generate(workload, gpu()).sample(np.random.default_rng(0), 8),
        key=lambda c: len(c.sketch.variables),
    )
    program = symbolic_program(
        candidate.sketch, structure_of(candidate.sketch, candidate.decisions)
    )
    names = [limit.name for limit in limits(program)]
    assert names.count("bytes of shared memory") == 2


def numbers() -> Any:
    """Elements that are computed from where they are, by sums only."""
    return te.create_prim_func([te.compute((64, 48), lambda i, j: i * 3 + j + 1, name="N")])


def quarters() -> Any:
    """The same by a division."""
    ones = te.compute((64, 48), lambda i, j: te.indexdiv(i, 4).astype("float32"), name="N")
    return te.create_prim_func([ones])


def test_stores_of_computed_integers_have_their_row() -> None:
    workload = Workload.from_module(numbers(), "numbers")
    candidates = sampled(Space.generate(workload, CPU), 6)
    assert compared(candidates)
    assert all(len(rows) == 1 for rows in extract_batch(candidates) if rows is not None)


def test_divisions_in_stored_values_are_not_certain() -> None:
    workload = Workload.from_module(quarters(), "quarters")
    for candidate in sampled(Space.generate(workload, CPU), 2):
        made = formulas(candidate.sketch, structure_of(candidate.sketch, candidate.decisions))
        assert not made.certain(made.points([candidate.decisions])).any()


def test_cpus_have_no_limits() -> None:
    made, points = compiled("matmul")
    assert not made.excess(points).any()


def test_gradients_are_those_of_finite_differences() -> None:
    made, points = compiled(_CONVOLUTION)
    # Between whole numbers: beside them no size is exactly equal to another one.
    generator = torch.Generator().manual_seed(0)
    shift = torch.rand(4, points.shape[1], generator=generator, dtype=torch.float64)
    logs = (points[:4].clamp(min=1).log() + 0.05 + 0.2 * shift).requires_grad_()
    weights = torch.randn(made.stores, PER_STORE, generator=generator, dtype=torch.float64)

    def score(logs: torch.Tensor) -> torch.Tensor:
        return (made(logs.exp(), temperature=0.5) * weights).sum((1, 2))

    (gradient,) = torch.autograd.grad(score(logs).sum(), logs)
    step = 1e-6
    for at in range(logs.shape[1]):
        move = torch.zeros_like(logs)
        move[:, at] = step
        with torch.no_grad():
            slope = (score(logs + move) - score(logs - move)) / (2 * step)
        torch.testing.assert_close(gradient[:, at], slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["matmul", "softmax", _CONVOLUTION])
def test_smooth_columns_tend_to_the_exact_ones(name: str) -> None:
    made, points = compiled(name)
    exact = made(points)
    errors = [float((made(points, t) - exact).abs().mean()) for t in (0.3, 1e-2, 1e-4, 1e-7)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 5e-3


@pytest.mark.parametrize("temperature", [pytest.param(0.1, marks=pytest.mark.slow), 1.0])
def test_steps_and_maxima_are_convolutions_with_a_kernel_of_mass_one(temperature: float) -> None:
    t = torch.linspace(-4000, 4000, 4_000_001, dtype=torch.float64)
    kernel = 0.5 * (1 + t * t) ** -1.5
    assert float(torch.trapezoid(kernel, t)) == pytest.approx(1, abs=1e-3)
    operators = Operators(temperature)
    for x in (-1.5, -0.2, 0.0, 0.7):
        at = torch.tensor(x, dtype=torch.float64)
        shifted = x - temperature * t
        step = torch.trapezoid(kernel * (shifted > 0), t)
        assert float(operators.step(at)) == pytest.approx(float(step), abs=1e-3)
        largest = operators.extreme(at.exp(), torch.ones_like(at), 1).log()
        relu = torch.trapezoid(kernel * shifted.clamp(min=0), t)
        assert float(largest) == pytest.approx(float(relu), abs=1e-3)


def test_columns_are_those_of_the_extractor() -> None:
    made, points = compiled("matmul")
    assert made(points).shape == (len(points), made.stores, len(columns()))


def test_large_batches_are_computed_in_parts_and_are_the_same() -> None:
    made, points = compiled("matmul")
    many = points.repeat(-(-4000 // len(points)), 1)
    torch.testing.assert_close(made(many)[: len(points)], made(points), rtol=0, atol=0)
    torch.testing.assert_close(made(many)[-len(points) :], made(points), rtol=0, atol=0)


def test_gradients_of_exact_columns_are_finite() -> None:
    made, points = compiled("softmax")
    logs = points.clamp(min=1).log().requires_grad_()
    (gradient,) = torch.autograd.grad(made(logs.exp()).sum(), logs)
    assert torch.isfinite(gradient).all()
    assert gradient.any()
