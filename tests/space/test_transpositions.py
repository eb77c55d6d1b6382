"""What moves elements to another order: tiled in both directions, and the same elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.hardware import probe
from foretune.space import default_schedule

tvm = _tvm.tvm
te, topi = tvm.te, tvm.topi
HARDWARE = probe()


def scheduled(make, *shapes):
    inputs = [te.placeholder(shape, "float32", name=f"x{at}") for at, shape in enumerate(shapes)]
    return default_schedule(te.create_prim_func([*inputs, make(*inputs)]), HARDWARE).mod


def computed(module, shape, *arrays):
    function = tvm.compile(module, HARDWARE.code_target()).jit()["main"]
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, np.zeros(shape, "float32"))]
    function(*tensors)
    return tensors[-1].numpy()


def loops(module):
    """Extents of the loops around the last block, the outermost first."""
    schedule = tvm.s_tir.Schedule(module)
    (*_, block) = schedule.get_child_blocks(schedule.get_sblock("root"))
    return [int(schedule.get(loop).extent) for loop in schedule.get_loops(block)]


@settings(max_examples=25, derandomize=True, deadline=None, database=None)
@given(st.data())
def test_moved_elements_are_the_same(data):
    shape = data.draw(st.lists(st.sampled_from([1, 3, 4, 5, 16, 33]), min_size=2, max_size=4))
    axes = data.draw(st.permutations(range(len(shape))))
    at = data.draw(st.integers(0, len(shape) - 1))
    moved = [shape[axis] for axis in axes]
    # Some axes become one, as what is flattened behind a transposition has them.
    merged = [*moved[:at], int(np.prod(moved[at:]))]
    column = data.draw(st.booleans())

    def make(x, y):
        found = topi.reshape(topi.transpose(x, axes), merged)
        return topi.add(found, y) if column else topi.multiply(found, found)

    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype("float32")
    y = rng.standard_normal(merged[-1:]).astype("float32")
    wanted = x.transpose(axes).reshape(merged)
    wanted = wanted + y if column else wanted * wanted
    module = scheduled(make, shape, merged[-1:])
    np.testing.assert_array_equal(computed(module, merged, x, y), wanted)


@pytest.mark.parametrize(
    ("shape", "axes", "merged"),
    [
        ((199, 512), (1, 0), (199 * 512,)),
        ((3, 199, 64), (0, 2, 1), (3, 64, 199)),
        ((1, 8, 48, 64), (0, 2, 1, 3), (1, 48, 512)),
        ((49, 1280), (1, 0), (1, 1280, 7, 7)),
    ],
)
def test_both_directions_are_tiled(shape, axes, merged):
    vector = HARDWARE.simd_bits // 32

    def make(x):
        return topi.reshape(topi.transpose(x, axes), merged)

    module = scheduled(make, shape)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(computed(module, merged, x), x.transpose(axes).reshape(merged))
    *_, column, inner = loops(module)
    if axes[-1] == len(shape) - 1:
        assert inner == vector, "rows stay rows"
        return
    assert inner == vector
    assert 4 <= column <= 512


def test_what_is_read_in_rows_keeps_vectors_of_rows():
    def make(x, y):
        return topi.add(topi.transpose(x, (1, 0)), y)

    vector = HARDWARE.simd_bits // 32
    assert loops(scheduled(make, (96, 64), (64, 96))) == [64 * 96 // vector, vector]


def test_a_column_that_is_added_does_not_keep_a_transposition_from_its_tile():
    def make(x, y):
        return topi.add(topi.transpose(x, (1, 0)), y)

    assert len(loops(scheduled(make, (96, 64), (96,)))) == 3
