from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune.describe import Nests, Statement, nests_of, nests_of_program
from foretune.describe._nests import SERIAL
from foretune.errors import IllegalCandidateError
from foretune.space import Candidate, Space, structure_of
from foretune.workload import Workload, catalog
from tests.describe.execution import elements, iterations, shape_of_path
from tests.space.programs import CPU, PROGRAMS, gpu, te


@functools.lru_cache(maxsize=32)
def made(name: str, on_gpu: bool = False) -> Space:
    workload = (
        Workload.from_module(PROGRAMS[name](), name) if name in PROGRAMS else catalog.get(name)
    )
    assert isinstance(workload, Workload)
    return Space.generate(workload, gpu() if on_gpu else CPU)


def legal(name: str, on_gpu: bool = False, most: int = 8) -> list[Candidate]:
    found = []
    drawn = made(name, on_gpu).sample(np.random.default_rng(0), 10 * most if on_gpu else most)
    for candidate in drawn:
        try:
            candidate.apply()
        except IllegalCandidateError:
            continue
        found.append(candidate)
        if len(found) == most:
            break
    return found


def serial_reductions(nests: Nests, statement: Statement, row: int) -> list[bool]:
    return [
        nests.reduction[loop]
        for loop in statement.path
        if nests.extents[row, loop] > 1 and nests.kinds[row, loop] == SERIAL
    ]


def check(nests: Nests, row: int, program: Nests) -> None:
    """A row is what is read from the program, but for how many loops a fused one is."""
    assert len(nests.statements) == len(program.statements)
    assert nests.gpu == program.gpu
    for mine, other in zip(nests.statements, program.statements, strict=True):
        assert iterations(nests, mine, row) == pytest.approx(iterations(program, other))
        assert shape_of_path(nests, mine, row) == shape_of_path(program, other)
        assert serial_reductions(nests, mine, row) == serial_reductions(program, other, 0)
        assert mine.reduces == other.reduces
        for number in ("operations", "calls", "selects", "unroll"):
            assert getattr(mine, number)[row] == getattr(other, number)[0]
        for access, same in zip(mine.accesses, other.accesses, strict=True):
            a, b = nests.buffers[access.buffer], program.buffers[same.buffer]
            assert (a.scope, a.bytes, a.parameter) == (b.scope, b.bytes, b.parameter)
            assert a.shape[row].tolist() == b.shape[0].tolist()
            assert access.store == same.store
            if not program.approximate[0]:
                np.testing.assert_array_equal(
                    elements(nests, mine, access, row), elements(program, other, same)
                )


@pytest.mark.parametrize(
    ("name", "on_gpu"),
    [("matmul", False), ("softmax", False), ("conv2d:1x6x6x4x16x3x1", False),
     ("matmul:127x13x22", False), ("layer_norm", False), ("pooling", False),
     pytest.param("flipped", False, marks=pytest.mark.slow),
     pytest.param("attention", False, marks=pytest.mark.slow),
     pytest.param("softmax", True, marks=pytest.mark.slow),
     pytest.param("avgpool2d", True, marks=pytest.mark.slow),
     pytest.param("matmul:32x32x16", True, marks=pytest.mark.slow),
     ("conv2d:1x6x6x4x16x3x1", True)],
)  # fmt: skip
def test_nests_are_those_of_the_programs(name: str, on_gpu: bool) -> None:
    candidates = legal(name, on_gpu)
    assert candidates
    found = nests_of(candidates)
    assert sorted(int(row) for rows, _ in found for row in rows) == list(range(len(candidates)))
    for rows, nests in found:
        for at, row in enumerate(rows.tolist()):
            candidate = candidates[row]
            check(nests, at, nests_of_program(candidate.apply(), candidate.hardware.target))


def test_no_program_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = legal("matmul")
    expected = {candidate: candidate.apply() for candidate in candidates}

    def refuse(_: Candidate) -> Any:
        raise AssertionError("a program was made")

    monkeypatch.setattr(Candidate, "apply", refuse)
    found = nests_of(candidates)
    structures = {(c.sketch, structure_of(c.sketch, c.decisions)) for c in expected}
    assert len(found) == len(structures)


def test_candidates_that_no_gpu_can_launch_are_left_out() -> None:
    drawn = made("matmul:32x32x16", True).sample(np.random.default_rng(0), 64)
    found = {int(row) for rows, _ in nests_of(drawn) for row in rows}
    legal_ = set()
    for row, candidate in enumerate(drawn):
        try:
            candidate.apply()
        except IllegalCandidateError:
            continue
        legal_.add(row)
    assert legal_ <= found
    assert len(found) < len(drawn)


def test_what_is_not_interpreted_is_read_from_programs(caplog: pytest.LogCaptureFixture) -> None:
    # Its post-processors change the layout of its weights.
    candidates = legal("conv2d_nhwc", most=4)
    found = nests_of(candidates)
    assert "RewriteLayout" in caplog.text
    assert sorted(int(row) for rows, _ in found for row in rows) == list(range(len(candidates)))
    for rows, nests in found:
        for at, row in enumerate(rows.tolist()):
            program = nests_of_program(candidates[row].apply())
            assert nests.take(np.array([at], np.intp)).structure == program.structure
            np.testing.assert_array_equal(nests.extents[at], program.extents[0])


def test_rows_of_a_batch_do_not_depend_on_each_other() -> None:
    candidates = legal("matmul")
    alone = [nests_of([candidate])[0][1] for candidate in candidates]
    for rows, nests in nests_of(candidates):
        for at, row in enumerate(rows.tolist()):
            np.testing.assert_array_equal(nests.extents[at], alone[row].extents[0])
            pairs = itertools.chain.from_iterable(
                zip(a.accesses, b.accesses, strict=True)
                for a, b in zip(nests.statements, alone[row].statements, strict=True)
            )
            for mine, other in pairs:
                for term, same in zip(mine.terms, other.terms, strict=True):
                    assert term.coefficient[at] == same.coefficient[0]


def test_nothing_gives_nothing() -> None:
    assert nests_of([]) == []


def grouped_heads() -> Any:
    """Queries of eight heads times keys of two."""
    q, k = te.placeholder((8, 6, 4), name="Q"), te.placeholder((2, 6, 4), name="K")
    d = te.reduce_axis((0, 4), name="d")
    out = te.compute(
        (8, 6, 6),
        lambda h, i, j: te.sum(q[h, i, d] * k[_tvm.tvm.tirx.floordiv(h, 4), j, d], axis=d),
        name="S",
    )
    return te.create_prim_func([q, k, out])


def test_divided_indices_are_exact_where_digits_meet_the_divisor() -> None:
    workload = Workload.from_module(grouped_heads(), "grouped")
    candidates = Space.generate(workload, CPU).sample(np.random.default_rng(0), 8)
    for rows, nests in nests_of(candidates):
        for at, row in enumerate(rows.tolist()):
            program = nests_of_program(candidates[row].apply())
            assert nests.approximate[at] == program.approximate[0]
            check(nests, at, program)
