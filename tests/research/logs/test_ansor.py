"""Nests of Ansor's programs compute the operator, and count as it does."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import THREAD, Nests
from foretune.features.tokens._names import ANSOR_KINDS
from foretune_research.logs import _ansor

from .ansor_programs import (
    copied_plainly,
    nests_of,
    parts,
    program,
    tiled_for_threads,
    touched,
)
from .running import conv, executed, run

CONVOLUTION = '["conv2d_layer",2,4,6,6,8,3,3,{stride},1]'
DEPTHWISE = '["depthwise_conv2d_layer",2,8,6,6,3,3,1,1]'
PRODUCT = '["matmul_layer",16,8,8]'


def named(nests: Nests, name: str) -> int:
    return [buffer.name for buffer in nests.buffers].index(name)


def drawn(key: str, seed: int) -> list[list]:
    """Steps with drawn lengths, as Ansor has for GPUs."""
    draw = np.random.default_rng(seed)
    operator, *sizes = json.loads(key)
    if operator == "matmul_layer":
        rows, inner, columns = sizes
        return tiled_for_threads(draw, [rows, columns], [inner], [(1, 2), (0, 2)])
    batch, channels, height = sizes[:3]
    side = (height + 2 - 3) // sizes[-2] + 1
    if operator == "conv2d_layer":
        return tiled_for_threads(
            draw, [batch, sizes[4], side, side], [channels, 3, 3], [(2, 4), (1, 4)], [1]
        )
    return tiled_for_threads(draw, [batch, channels, side, side], [3, 3], [(2, 4), (1, 4)], [1])


def inputs(nests: Nests, key: str) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Arrays by buffer, those that are padded with their border, and what comes out."""
    draw = np.random.default_rng(1)
    if "matmul" in key:
        left, right = draw.normal(size=(16, 8)), draw.normal(size=(8, 8))
        return {named(nests, "left"): left, named(nests, "right"): right}, left @ right
    weight = nests.buffers[named(nests, "weight")].shape[0].astype(int)
    data = nests.buffers[named(nests, "data")].shape[0].astype(int)
    x, w = np.zeros(data + np.array([0, 0, 2, 2])), draw.normal(size=weight)
    x[:, :, 1:-1, 1:-1] = draw.normal(size=data)
    stride = json.loads(key)[-2]
    given = {named(nests, "data"): x, named(nests, "weight"): w}
    return given, conv(x, w, (stride, stride), (1, 1))


@pytest.mark.parametrize(
    ("key", "result"),
    [
        (PRODUCT, "product"),
        (CONVOLUTION.format(stride=1), "convolution"),
        (CONVOLUTION.format(stride=2), "convolution"),
        (DEPTHWISE, "convolution"),
    ],
)
def test_tiles_of_gpus_compute_the_operator(key, result):
    for seed in range(12):
        nests = nests_of(key, drawn(key, seed))
        arrays, right = inputs(nests, key)
        arrays = run(copied_plainly(nests), 0, arrays)
        assert arrays[named(nests, result)] == pytest.approx(right), seed


def test_what_threads_copy_together_is_all_that_they_read():
    computed = 0
    for seed in range(60):
        nests = nests_of(PRODUCT, drawn(PRODUCT, seed))
        if not nests.approximate.any() and (nests.kinds == THREAD).any():
            arrays, right = inputs(nests, PRODUCT)
            product = run(nests, 0, arrays)[named(nests, "product")]
            assert product == pytest.approx(right), seed
            computed += 1
    assert computed >= 20


@pytest.mark.parametrize("key", [PRODUCT, CONVOLUTION.format(stride=2), DEPTHWISE])
def test_every_program_does_the_work_of_its_operator_and_fits_what_it_allocates(key):
    programs = [drawn(key, seed) for seed in range(25)]
    for steps in programs:
        nests = nests_of(key, steps)
        work = sum(executed(nests, s) * s.operations for s in nests.statements)
        _, right = inputs(nests, key)
        terms = 8 if "matmul" in key else 36 if "conv2d_layer" in key[:15] else 9
        assert work == pytest.approx(2 * right.size * terms)
        # What the sum reads of tiles in shared memory is what they hold, and no more.
        (compute,) = [at for at, s in enumerate(nests.statements) if s.reduces]
        for at, access in enumerate(nests.statements[compute].accesses):
            buffer = nests.buffers[access.buffer]
            if buffer.scope == "shared":
                seen = touched(nests, compute, at).max(axis=0) + 1
                assert seen.tolist() == buffer.shape[0].tolist()


def test_programs_that_differ_in_numbers_are_one_batch():
    programs = [drawn(PRODUCT, seed) for seed in range(30)]
    together = nests_of(PRODUCT, *programs)
    assert len(together) == 30
    alone = [nests_of(PRODUCT, steps) for steps in programs]
    for row, one in enumerate(alone):
        for a, b in zip(together.statements, one.statements, strict=True):
            assert executed(together, a)[row] == executed(one, b)[0]
        for a, b in zip(together.buffers, one.buffers, strict=True):
            assert a.shape[row].tolist() == b.shape[0].tolist()


def tiled_for_cores(draw: np.random.Generator, cached: bool) -> list[list]:
    """A product as Ansor's sketches for CPUs have it, with and without a cache for its tile."""
    steps: list[list] = [["CHW", 2, "local"]] if cached else []
    steps += [["SP", 2, 0, 16, parts(draw, 16, 3), 1], ["SP", 2, 4, 8, parts(draw, 8, 3), 1]]
    steps += [["SP", 2, 8, 8, parts(draw, 8, 1), 1], ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]]]
    if cached:
        first = len(steps) - 4
        steps += [["FSP", 3, 0, first, 1], ["FSP", 3, 2, first + 1, 1], ["RE", 3, [0, 2, 1, 3]]]
        steps += [["CA", 2, 3, 1], ["FU", 3, [0, 1]], ["AN", 3, 0, 3]]
    else:
        steps += [["FU", 2, [0, 1]], ["AN", 2, 0, 3]]
    return [*steps, ["PR", 2, 0, "auto_unroll_max_step$16"], ["AN", 2, 9 - (not cached), 2]]


@pytest.mark.parametrize("cached", [False, True])
def test_tiles_of_cpus_compute_the_operator(cached):
    for seed in range(20):
        nests = nests_of(PRODUCT, tiled_for_cores(np.random.default_rng(seed), cached))
        assert not nests.approximate.any() and not nests.gpu
        arrays, right = inputs(nests, PRODUCT)
        product = run(nests, 0, arrays)[named(nests, "product")]
        assert product == pytest.approx(right)


def with_border(nests: Nests) -> Nests:
    """With the border read from the input, which is given with it, in place of zeros."""
    made = []
    for statement in nests.statements:
        load, *others = statement.accesses
        if nests.buffers[load.buffer].name == "data":
            terms = [
                replace(term, values=nests.extents[:, statement.path[term.place]])
                for term in load.terms
            ]
            load = replace(load, terms=tuple(terms))
        made.append(replace(statement, accesses=(load, *others)))
    return replace(nests, statements=tuple(made))


def test_padding_that_is_computed_by_itself():
    key = '["conv2d_ansor",[1,2,4,4],[3,2,3,3]]'
    nests = nests_of(key, [["FU", 1, [0, 1]], ["AN", 1, 0, 3], ["AN", 3, 6, 1]])
    padded, weight = named(nests, "padded"), named(nests, "weight")
    assert nests.buffers[padded].shape[0].tolist() == [1, 2, 6, 6]
    assert not nests.buffers[padded].parameter
    draw = np.random.default_rng(2)
    x, w = draw.normal(size=(1, 2, 6, 6)), draw.normal(size=(3, 2, 3, 3))
    arrays = run(with_border(nests), 0, {named(nests, "data"): x, weight: w})
    assert arrays[named(nests, "convolution")] == pytest.approx(conv(x, w, (1, 1), (1, 1)))


def test_padding_inside_a_loop_is_as_large_as_what_the_loop_needs():
    # Rows in two halves of two: a window of 3 rows over 2 needs 4, all 6 columns and 2 channels.
    key = '["conv2d_ansor",[1,2,4,4],[3,2,3,3]]'
    nests = nests_of(key, [["SP", 3, 2, 4, [2], 1], ["RE", 3, [0, 2, 1, 3, 4, 5, 6, 7]],
                           ["CA", 1, 3, 1]])  # fmt: skip
    assert nests.buffers[named(nests, "padded")].shape[0].tolist() == [1, 2, 4, 6]
    draw = np.random.default_rng(3)
    x, w = draw.normal(size=(1, 2, 6, 6)), draw.normal(size=(3, 2, 3, 3))
    given = {named(nests, "data"): x, named(nests, "weight"): w}
    arrays = run(with_border(nests), 0, given)
    assert arrays[named(nests, "convolution")] == pytest.approx(conv(x, w, (1, 1), (1, 1)))


def test_channels_of_a_depthwise_convolution_with_channels_last_are_digits():
    # Two channels with three outputs each; input NHWC, weights HWCM.
    key = '["ansor_depthwise",[1,3,4,2],[3,3,2,3],"float32"]'
    nests = nests_of(key, [["SP", 3, 3, 6, [3], 1]])
    draw = np.random.default_rng(4)
    x, w = draw.normal(size=(1, 5, 6, 2)), draw.normal(size=(3, 3, 2, 3))
    given = {named(nests, "data"): x, named(nests, "weight"): w}
    out = run(with_border(nests), 0, given)[named(nests, "convolution")]
    right = np.zeros((1, 3, 4, 6))
    for y in range(3):
        for z in range(3):
            for c in range(6):
                right[..., c] += x[:, y : y + 3, z : z + 4, c // 3] * w[y, z, c // 3, c % 3]
    assert out == pytest.approx(right)


NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([0.5, "local", "shared", None, 10**12]))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(ANSOR_KINDS),
        st.lists(st.integers(0, 4), max_size=1),
        st.lists(NUMBERS, max_size=6),
    ),
    max_size=6,
)


@pytest.mark.filterwarnings("error")
@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(0, 40))
def test_nonsense_is_never_an_error(nonsense, cut):
    # Steps that make sense, the rest of which does not; and numbers that make none.
    good = drawn(PRODUCT, cut % 3)
    steps = [*good[:cut], *([code, *stage, *rest] for code, stage, rest in nonsense)]
    reasons: Counter[str] = Counter()
    batches = _ansor.build([program(steps), program(good)], PRODUCT, reasons)
    described = sum(len(rows) for rows, _ in batches)
    assert described + sum(reasons.values()) == 2
    assert described >= 1
    for _, nests in batches:
        assert (nests.extents >= 1).all() and np.isfinite(nests.extents).all()
        assert all(((s.executed > 0) & (s.executed <= 1)).all() for s in nests.statements)


def test_what_is_odd_is_left_out_and_nothing_is_raised():
    good = drawn(PRODUCT, 0)
    odd = {
        "extents that are not the operator's": [["SP", 2, 0, 17, [4], 1]],
        "a step refers to what is not there": [["FU", 9, [0, 1]]],
        "arguments of a step": [["SP", 2, 0, 16, "four", 1]],
        "a stage is attached to what is not there": [["CHW", 2, "local"], ["CA", 2, 3, 0],
                                                     ["SP", 3, 0, 16, [4], 1], ["CI", 3]],
    }  # fmt: skip
    programs = [program(good), *(program(steps) for steps in odd.values())]
    reasons: Counter[str] = Counter()
    batches = _ansor.build(programs, PRODUCT, reasons)
    assert [rows.tolist() for rows, _ in batches] == [[0]]
    assert sum(reasons.values()) == len(odd)
    assert _ansor.build(programs, '["matmul_layer",16,"many",8]', reasons) == []
    assert not _ansor.matches(programs, '["5d8b3f8a0c2f4e6b9a7d1c3e5f708192",[1,2],[2,3]]')
