"""Programs of AutoTVM's templates for Arm compute the operator."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.describe import KIND_NAMES
from foretune_research.logs import nests_of_programs

from .running import conv, executed, program, run, workload

PLAIN = ([1, 3, 6, 8], [4, 3, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])
STRIDED = ([2, 3, 9, 9], [4, 3, 3, 2], [2, 1], [0, 1, 0, 0], [1, 1])
DILATED = ([1, 2, 8, 9], [4, 2, 3, 2], [1, 2], [0, 1, 0, 0], [2, 1])
DEPTHWISE = ([1, 8, 9, 8], [8, 1, 3, 3], [2, 1], [1, 1, 1, 1], [1, 1])
ORDERS = [[*range(10)], [0, 1, 2, 3, 4, 5, 6, 9, 7, 8]]


def operands(shape):
    """Data with its border, weights, and what comes out."""
    data, weights, stride, pad, dilation = shape
    draw = np.random.default_rng(1)
    x, w = draw.normal(size=data), draw.normal(size=weights)
    x = np.pad(x, [(0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])])
    return x, w, conv(x, w, stride, dilation)


def run_all(key, programs):
    for rows, nests in nests_of_programs(programs, key, "", "conv2d"):
        assert not nests.approximate.any()
        yield from ((row, nests, at) for at, row in enumerate(rows.tolist()))


@pytest.mark.parametrize("shape", [PLAIN, STRIDED, DILATED])
def test_a_convolution_in_spatial_tiles(shape):
    x, w, right = operands(shape)
    _, _, oh, ow = right.shape
    tiles = [(2, oh, 1), (1, 1, ow), (4, 2 - oh % 2, 2 - ow % 2), (4, oh, ow)]
    configs = [(*tile, order) for tile in tiles for order in ORDERS]
    programs = [
        program(
            tile_co=(co,), tile_oh=(h,), tile_ow=(v,), reorder_0=order,
            ann_reduce=["unroll", "none"], ann_spatial=["none", "unroll", "vec"],
        )
        for co, h, v, order in configs
    ]  # fmt: skip
    key = workload("conv2d_nchw_spatial_pack.arm_cpu", *shape, "float32")
    seen = []
    for row, nests, at in run_all(key, programs):
        co = configs[row][0]
        kernel = w.reshape(-1, co, *w.shape[1:]).transpose(0, 2, 3, 4, 1)
        data, _, weights, _, out = range(5)
        # Packing takes whole strides, so that the last tile reads beyond what it uses.
        beyond = np.pad(x, [(0, 0), (0, 0), (0, shape[2][0] - 1), (0, shape[2][1] - 1)])
        made = run(nests, at, {data: beyond, weights: kernel})[out]
        np.testing.assert_allclose(made, right, atol=1e-9)
        seen.append(row)
        total = next(s for s in nests.statements if s.reduces)
        assert executed(nests, total)[at] == right.size * w[0].size
        words = [KIND_NAMES[nests.kinds[at, loop]] for loop in total.path]
        inner = ["serial", "unrolled", "vectorized"]
        order = [each - 7 for each in configs[row][3][7:]]
        assert words[4:] == ["serial", "unrolled", "serial", *(inner[each] for each in order)]
    assert sorted(seen) == list(range(len(configs)))


def test_a_depthwise_convolution():
    x, w, right = operands(DEPTHWISE)
    oh, ow = right.shape[2:]
    configs = [(2, oh, 1), (1, 1, ow), (4, 1, 2), (8, oh, ow)]
    programs = [
        program(tile_c=(c,), tile_h=(h,), tile_w=(v,), ann=["none", "vec", "unroll"])
        for c, h, v in configs
    ]
    key = workload("depthwise_conv2d_nchw.arm_cpu", *DEPTHWISE, "float32")
    seen = []
    for row, nests, at in run_all(key, programs):
        made = run(nests, at, {0: x, 1: w})[-1]
        np.testing.assert_allclose(made, right, atol=1e-9)
        seen.append(row)
    assert sorted(seen) == list(range(len(configs)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"reorder_0": [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]},
        {"reorder_0": [0, 1, 2]},
        {"ann_spatial": ["vec", "none"]},
        {"tile_co": (2, 2)},
        {"tile_oh": ("two",)},
        {"tile_ow": (float("nan"),)},
    ],
)
def test_knobs_that_are_not_the_templates_have_no_nests(wrong):
    knobs = {
        "tile_co": (4,), "tile_oh": (2,), "tile_ow": (2,), "reorder_0": ORDERS[0],
        "ann_reduce": ["none", "none"], "ann_spatial": ["none", "none", "none"],
    }  # fmt: skip
    key = workload("conv2d_nchw_spatial_pack.arm_cpu", *PLAIN, "float32")
    programs = [program(**knobs), program(**{**knobs, **wrong}), program(**knobs)]
    made = nests_of_programs(programs, key, "", "conv2d")
    assert [rows.tolist() for rows, _ in made] == [[0, 2]]
