"""Programs of AutoTVM's templates for CUDA compute the operator, and count as it does.

Of programs drawn at random those are executed whose copies to shared memory divide evenly: what is
only close cannot compute anything. The others are counted.
"""

from __future__ import annotations

import numpy as np
import pytest

from foretune.describe import KIND_NAMES
from foretune_research.logs import nests_of_programs

from .running import conv, executed, program, run, workload

THREE = ([1, 4, 10, 8], [8, 4, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])
STRIDED = ([2, 4, 9, 10], [4, 4, 3, 2], [2, 1], [0, 1, 0, 0], [1, 2])
ONE = ([1, 8, 6, 8], [8, 8, 1, 1], [1, 1], [0, 0, 0, 0], [1, 1])
DEPTHWISE = ([2, 8, 8, 8], [8, 1, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])
DEPTHWISE_STRIDED = ([1, 4, 9, 9], [4, 1, 3, 3], [2, 2], [1, 1, 1, 1], [1, 1])


def factors(draw: np.random.Generator, extent: int, parts: int) -> tuple[int, ...]:
    """Inner parts of a split, drawn."""
    made = []
    for _ in range(parts - 1):
        choices = [f for f in range(1, extent + 1) if extent % f == 0]
        made.append(int(draw.choice(choices)))
        extent //= made[-1]
    return tuple(int(f) for f in draw.permutation(made))


def drawn(draw: np.random.Generator, extents: dict, count: int) -> list:
    return [
        program(
            **{name: factors(draw, extent, parts) for name, (extent, parts) in extents.items()},
            auto_unroll_max_step=int(draw.choice([0, 512])), unroll_explicit=1,
        )
        for _ in range(count)
    ]  # fmt: skip


def compared(key, programs, given, right, at_least):
    """Executes those that can be; counts all."""
    ((rows, nests),) = nests_of_programs(programs, key, "", "")
    assert rows.tolist() == list(range(len(programs)))
    assert nests.gpu
    even = np.all([statement.executed == 1 for statement in nests.statements], axis=0)
    good = np.flatnonzero(even & ~nests.approximate)
    assert len(good) >= at_least
    for row in good[:at_least].tolist():
        made = run(nests, row, given)
        np.testing.assert_allclose(made[-1], right, atol=1e-9)
    total = next(s for s in nests.statements if s.operations.any())
    return nests, total


@pytest.mark.parametrize("shape", [THREE, STRIDED, ONE])
def test_a_direct_convolution(shape):
    data, weights, stride, pad, dilation = shape
    draw = np.random.default_rng(3)
    x, w = draw.normal(size=data), draw.normal(size=weights)
    x = np.pad(x, [(0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])])
    right = conv(x, w, stride, dilation)
    extents = {
        "tile_f": (right.shape[1], 4), "tile_y": (right.shape[2], 4), "tile_x": (right.shape[3], 4),
        "tile_rc": (weights[1], 2), "tile_ry": (weights[2], 2), "tile_rx": (weights[3], 2),
    }  # fmt: skip
    programs = drawn(draw, extents, 60)
    key = workload("conv2d_nchw.cuda", *shape, "float32")
    nests, total = compared(key, programs, {0: x, 1: w}, right, 5)
    np.testing.assert_allclose(executed(nests, total), right.size * w[0].size)
    # Each block copies each element of its tile once per step of the reduction.
    for statement in (s for s in nests.statements if s.accesses[-1].store and len(s.accesses) == 2):
        buffer = nests.buffers[statement.accesses[-1].buffer]
        if buffer.scope == "shared":
            blocks_and_steps = executed(nests, statement) / buffer.shape.prod(axis=1)
            np.testing.assert_allclose(blocks_and_steps, np.round(blocks_and_steps))


@pytest.mark.parametrize(
    "shape", [pytest.param(DEPTHWISE, marks=pytest.mark.slow), DEPTHWISE_STRIDED]
)
def test_a_depthwise_convolution(shape):
    data, weights, stride, pad, dilation = shape
    draw = np.random.default_rng(4)
    x, w = draw.normal(size=data), draw.normal(size=weights)
    x = np.pad(x, [(0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])])
    right = conv(x, w, stride, dilation)
    extents = {f"tile_{name}": (right.shape[at], 4) for at, name in ((1, "f"), (2, "y"), (3, "x"))}
    programs = drawn(draw, extents, 60)
    key = workload("depthwise_conv2d_nchw.cuda", *shape, "float32")
    nests, total = compared(key, programs, {0: x, 1: w}, right, 4)
    np.testing.assert_allclose(executed(nests, total), right.size * 9)


@pytest.mark.parametrize("transposed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_batch_of_products(transposed):
    m, n, k = 6, 8, 12
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(2, m, k)), draw.normal(size=(2, k, n))
    second = y.transpose(0, 2, 1) if transposed else y
    programs = drawn(draw, {"tile_y": (m, 3), "tile_x": (n, 3), "tile_k": (k, 2)}, 40)
    key = workload(
        "batch_matmul.cuda", [2, m, k], list(second.shape), [2, m, n], "float32", 0, transposed
    )
    nests, total = compared(key, programs, {0: x, 1: second}, x @ y, 6)
    np.testing.assert_allclose(executed(nests, total), 2 * m * n * k)


def test_a_dense_layer_of_a_small_batch():
    draw = np.random.default_rng(6)
    x, w = draw.normal(size=(2, 12)), draw.normal(size=(5, 12))
    key = workload("dense_small_batch.gpu", [2, 12], [5, 12], None, "float32")
    ((_, nests),) = nests_of_programs([program(tile_k=(4,))], key, "", "dense")
    assert nests.approximate.all()
    np.testing.assert_allclose(run(nests, 0, {0: x, 1: w})[-1], x @ w.T)
    assert executed(nests, nests.statements[0]) == 2 * 5 * 12


def test_threads_and_blocks_are_those_of_the_configuration():
    key = workload("conv2d_nchw.cuda", *THREE, "float32")
    one = program(
        tile_f=(1, 4, 2), tile_y=(2, 1, 5), tile_x=(1, 8, 1), tile_rc=(2,), tile_ry=(3,),
        tile_rx=(1,), auto_unroll_max_step=512, unroll_explicit=0,
    )  # fmt: skip
    ((_, nests),) = nests_of_programs([one], key, "", "conv2d")
    sizes = {
        kind: {nests.axes[at]: int(nests.extents[0, at])
               for at in nests.statements[0].path if KIND_NAMES[nests.kinds[0, at]] == kind}
        for kind in ("block", "thread")
    }  # fmt: skip
    assert sizes == {"block": {"z": 1, "y": 1, "x": 1}, "thread": {"z": 4, "y": 1, "x": 8}}
    shapes = {buffer.name: buffer.shape[0].tolist() for buffer in nests.buffers}
    # Two channels of ten rows and eight columns, with the border that three taps of a step need.
    assert shapes["data.shared"] == [2, 12, 8]
    assert shapes["weights.shared"] == [8, 2, 3, 1]
    assert shapes["total"] == [1, 2, 1, 2, 5, 1]
    assert all((statement.unroll == 512).all() for statement in nests.statements)


def test_a_dense_layer_of_a_large_batch():
    draw = np.random.default_rng(8)
    x, w = draw.normal(size=(16, 24)), draw.normal(size=(8, 24))
    programs = [
        program(tile_x=(2, 2, 2), tile_y=(1, 2, 2), tile_k=(2, 4)),
        program(tile_x=(1, 4, 1), tile_y=(2, 4, 1), tile_k=(4, 2)),
        program(tile_x=(4, 2, 2), tile_y=(1, 2, 4), tile_k=(1, 8)),
    ]
    key = workload("dense_large_batch.gpu", [16, 24], [8, 24], None, "float32")
    # Copies divide evenly in all of them, so that all are executed.
    nests, total = compared(key, programs, {0: x, 1: w}, x @ w.T, 3)
    np.testing.assert_allclose(executed(nests, total), 16 * 8 * 24)
