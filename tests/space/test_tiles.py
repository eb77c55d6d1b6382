"""Tiles of sums in registers: which are chosen, and that default schedules compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.hardware import probe
from foretune.operators.panels import convolution, product
from foretune.space import default_schedule
from foretune.space._tiles import tiles_of
from foretune.workload import walk

te, topi = _tvm.tvm.te, _tvm.tvm.topi
HARDWARE = probe()


def placeholder(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype=dtype, name=name)


def matmul(m, n, k, after=lambda x: x, dtype="float32"):
    a, b = placeholder("a", m, k, dtype=dtype), placeholder("b", k, n, dtype=dtype)
    r = te.reduce_axis((0, k), "r")
    sums = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="matmul")
    return [a, b, after(sums)]


def packed(m, k, n, lanes=16):
    a, w = placeholder("a", m, k), placeholder("w", -(-n // lanes), k, lanes)
    return [a, w, topi.nn.relu(product(a, w, n))]


def packed_conv(size, inner, outer, kernel=3, stride=1):
    pad = kernel // 2
    x = placeholder("x", 1, size, size, inner)
    w = placeholder("w", outer // 16, kernel, kernel, inner, 16)
    made = convolution(x, w, outer, [stride] * 2, [pad] * 4, [1] * 2)
    return [x, w, topi.nn.relu(made)]


def plain_conv(channels, size, outer, stride=1, groups=1):
    x = placeholder("x", 1, channels, size, size)
    w = placeholder("w", outer, channels // groups, 3, 3)
    made = topi.nn.group_conv2d_nchw(x, w, stride, 1, 1, groups)
    return [x, w, topi.nn.relu(made)]


def depthwise(size, channels):
    x, w = placeholder("x", 1, size, size, channels), placeholder("w", 3, 3, channels)
    padded = topi.nn.pad(x, [0, 1, 1, 0])
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    made = te.compute(
        (1, size, size, channels),
        lambda b, i, j, c: te.sum(padded[b, i + r, j + s, c] * w[r, s, c], axis=[r, s]),
        name="depthwise",
    )
    return [x, w, topi.nn.relu(made)]


def function(operands):
    return te.create_prim_func(operands).with_attr("global_symbol", "main")


def block(operands, name):
    schedule = _tvm.Schedule(_tvm.IRModule({"main": _tvm.rooted(function(operands))}))
    return schedule.get(schedule.get_sblock(name))


def run(module, arrays):
    with HARDWARE.code_target():
        library = _tvm.tvm.compile(module, HARDWARE.code_target())
    tensors = [_tvm.tvm.runtime.tensor(array) for array in arrays]
    library["main"](*tensors)
    return tensors[-1].numpy()


def draw(operands, rng):
    """Small whole numbers: their sums are exact in any order."""
    shapes = [tuple(int(e) for e in each.shape) for each in operands]
    return [
        rng.integers(-3, 4, shape).astype(str(each.dtype))
        for shape, each in zip(shapes, operands, strict=True)
    ]


def loops(module, kind):
    kinds = _tvm.tvm.tirx.ForKind
    return [
        node
        for node in walk(module["main"].body)
        if isinstance(node, _tvm.tvm.tirx.For) and node.kind == getattr(kinds, kind)
    ]


def agrees(operands):
    rng = np.random.default_rng(0)
    made = function(operands)
    arrays = draw(operands, rng)
    expected = run(_tvm.IRModule({"main": made}), arrays)
    scheduled = default_schedule(made, HARDWARE).mod
    assert loops(scheduled, "PARALLEL"), "a program that could not be scheduled stays as it was"
    np.testing.assert_array_equal(run(scheduled, arrays), expected)


def test_rows_and_vectors_use_what_is_loaded_most_often():
    (best, *others) = tiles_of(block(matmul(48, 64, 32), "matmul"), 512)
    assert (best.lanes, dict(best.factors)) == (16, {0: 12, 1: 2})
    assert all(tile.vectors <= 24 for tile in others)
    narrow = tiles_of(block(matmul(48, 64, 32), "matmul"), 256)[0]
    assert (narrow.lanes, dict(narrow.factors)) == (8, {0: 6, 1: 2})


def test_many_rows_come_before_many_vectors():
    """Three rows of four vectors were half as fast as 13 rows of one."""
    best = tiles_of(block(matmul(39, 512, 60), "matmul"), 512)[0]
    assert dict(best.factors) == {0: 13}


def test_rows_that_share_a_set_of_the_first_cache_are_few():
    """17 rows of 1,024 numbers each were less than half as fast as 10 of them."""
    assert dict(tiles_of(block(packed(48, 1000, 512), "matmul"), 512)[0].factors) == {0: 12, 1: 2}
    assert dict(tiles_of(block(packed(48, 1024, 512), "matmul"), 512)[0].factors) == {0: 6, 1: 4}


def test_the_larger_operand_is_read_once():
    wide = tiles_of(block(packed(50, 64, 512), "matmul"), 512)[0]
    assert (wide.once, wide.again) == ((1, 2), (0,)), "the weights"
    tall = tiles_of(block(packed(5000, 64, 32), "matmul"), 512)[0]
    assert (tall.once, tall.again) == ((0,), (1, 2)), "the data"


def test_rows_of_a_depthwise_convolution_share_weights():
    tile = tiles_of(block(depthwise(14, 32), "depthwise"), 512)[0]
    assert dict(tile.factors) == {2: 7, 3: 2}


def test_what_does_not_lie_in_a_row_is_no_vector():
    a, b = placeholder("a", 32, 64), placeholder("b", 48, 64)
    r = te.reduce_axis((0, 64), "r")
    made = te.compute((32, 48), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="dots")
    assert [(t.lanes, t.factors) for t in tiles_of(block([a, b, made], "dots"), 512)] == [(1, ())]


@pytest.mark.parametrize(
    "operands",
    [
        packed(50, 96, 128),
        packed(49, 60, 24),
        packed(1, 64, 100),
        packed_conv(14, 16, 32),
        packed_conv(13, 3, 16, 7, 2),
        plain_conv(8, 9, 24),
        plain_conv(16, 12, 32, 2, 4),
        depthwise(14, 32),
        depthwise(7, 20),
        matmul(17, 40, 9, topi.nn.relu),
        matmul(16, 48, 12, dtype="int32"),
        matmul(16, 48, 12, dtype="float64"),
    ],
    ids=["product", "odd product", "one row", "convolution", "strided", "channels first", "grouped",
         "depthwise", "odd depthwise", "plain product", "integers", "doubles"],
)  # fmt: skip
def test_default_schedules_compute_the_same(operands):
    agrees(operands)


@settings(max_examples=12, deadline=None)
@given(m=st.integers(1, 40), n=st.integers(1, 70), k=st.integers(1, 20), follows=st.integers(0, 2))
def test_products_of_any_size_are_the_same(m, n, k, follows):
    after = [lambda x: x, topi.nn.relu, lambda x: topi.sum(topi.nn.relu(x), axis=1)][follows]
    agrees(matmul(m, n, k, after))


FOLLOWERS = {
    "borders": lambda c: topi.nn.pad(c, [1, 1], [1, 1]),
    "gated": lambda c: te.compute((32, 24), lambda i, j: c[i, j] * c[i, j + 24]),
    "a part": lambda c: te.compute((16, 24), lambda i, j: c[i + 3, j + 2]),
    "every second": lambda c: te.compute((16, 24), lambda i, j: c[2 * i, 2 * j]),
    "one row": lambda c: te.compute((48,), lambda j: c[0, j]),
    "repeated": lambda c: te.compute((32, 48, 3), lambda i, j, _k: c[i, j] + 1.0),
    "diagonal": lambda c: te.compute((32,), lambda i: c[i, i]),
    "transposed": lambda c: te.compute((48, 32), lambda i, j: c[j, i] + 1.0),
    "in panels": lambda c: te.compute((32, 3, 16), lambda i, j, k: c[i, j * 16 + k] + 1.0),
    "flat": lambda c: te.compute((32 * 48,), lambda i: c[i // 48, i % 48] + 1.0),
    "wrapped": lambda c: te.compute((32 * 24,), lambda i: c[i // 24, i % 24] + 1.0),
}


@pytest.mark.parametrize("follows", FOLLOWERS)
def test_what_follows_may_read_sums_in_any_way(follows):
    agrees(matmul(32, 48, 20, FOLLOWERS[follows]))


def test_a_sum_over_everything_stays_as_it_is():
    a, r = placeholder("a", 4096), te.reduce_axis((0, 4096), "r")
    made = te.compute((), lambda: te.sum(a[r], axis=r), name="sum")
    scheduled = default_schedule(function([a, made]), HARDWARE).mod
    arrays = draw([a, made], np.random.default_rng(0))
    np.testing.assert_array_equal(run(scheduled, arrays), arrays[0].sum())


def test_sums_are_vectors_and_what_follows_is_computed_with_them():
    module = default_schedule(function(packed(48, 64, 128)), HARDWARE).mod
    assert len(loops(module, "PARALLEL")) == 1, "sums and what follows in one nest"
    assert len(loops(module, "VECTORIZED")) == 3, "the beginning, the sums, what follows"


def test_what_a_sum_reads_often_is_computed_once():
    a = placeholder("a", 32, 64)
    operands = matmul(32, 48, 64)
    b, r = operands[1], te.reduce_axis((0, 64), "r")
    wide = te.compute((32, 64), lambda i, j: te.exp(a[i, j]), name="wide")
    made = te.compute((32, 48), lambda i, j: te.sum(wide[i, r] * b[r, j], axis=r), name="sums")
    text = default_schedule(function([a, b, made]), HARDWARE).mod.script()
    assert text.count("T.exp") == 1 and 'T.sblock("wide")' in text
    moved = te.compute((64, 32), lambda i, j: a[j, i], name="moved")
    r = te.reduce_axis((0, 64), "r")
    made = te.compute((32, 48), lambda i, j: te.sum(moved[r, i] * b[r, j], axis=r), name="sums")
    text = default_schedule(function([a, b, made]), HARDWARE).mod.script()
    assert 'T.sblock("moved")' not in text, "what only moves elements is read where it is"
