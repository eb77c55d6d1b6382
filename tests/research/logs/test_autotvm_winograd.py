"""Winograd's three kernels move and count what the algorithm says."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.describe import KIND_NAMES
from foretune_research.logs import nests_of_programs
from foretune_research.logs._autotvm_winograd import nonzero_shares

from .running import executed, program, run, workload

# Sizes that fill blocks of 128 threads, so that the program can be executed without guards.
SHAPE = ([4, 8, 8, 8], [8, 8, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])


def test_every_step_reads_and_writes_where_it_should():
    """With transforms of ones all that is left are the tiles: each output of a tile is the sum of
    its 6 x 6 inputs, times the sum of the weights' 36 places."""
    data = SHAPE[0]
    draw = np.random.default_rng(7)
    x, w = draw.normal(size=data), draw.normal(size=(36, 8, 8))
    one = program(
        tile_b=(1, 1, 1), tile_y=(2, 2, 1), tile_x=(1, 4, 2), tile_rc=(4,),
        auto_unroll_max_step=128, unroll_explicit=0,
    )  # fmt: skip
    key = workload("conv2d_nchw_winograd.cuda", *SHAPE, "float32")
    ((_, nests),) = nests_of_programs([one], key, "", "conv2d")
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    made = run(nests, 0, {0: padded, 1: w})[2]
    np.testing.assert_allclose(made, summed(padded, w))
    assert nests.approximate.all()


def summed(padded, w):
    """Outputs with transforms of ones."""
    right = np.zeros((4, 8, 8, 8))
    for down in (0, 4):
        for across in (0, 4):
            tiles = padded[:, :, down : down + 6, across : across + 6].sum(axis=(2, 3))
            sums = np.einsum("nc,bco->no", tiles, w)
            right[:, :, down : down + 4, across : across + 4] = sums[:, :, None, None]
    return right


def test_every_step_of_the_template_for_arm():
    draw = np.random.default_rng(8)
    x, w = draw.normal(size=SHAPE[0]), draw.normal(size=(36, 8, 8))
    key = workload("conv2d_nchw_winograd.arm_cpu", *SHAPE, "float32")
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    for p, k, c in ((2, 4, 2), (1, 1, 8), (8, 2, 1)):
        one = program(
            tile_p=(p,), tile_k=(k,), tile_c=(c,), ann_reduce=["unroll"],
            ann_spatial=["none", "vec"],
        )  # fmt: skip
        ((_, nests),) = nests_of_programs([one], key, "", "conv2d")
        weights = w.reshape(6, 6, 8, 8 // k, k).transpose(0, 1, 3, 2, 4)
        made = run(nests, 0, {0: padded, 1: weights})[2]
        np.testing.assert_allclose(made, summed(padded, w))
        product = next(s for s in nests.statements if len(s.accesses) == 4)
        assert executed(nests, product) == 4 * 36 * 4 * 8 * 8
        kinds = [KIND_NAMES[nests.kinds[0, at]] for at in product.path]
        assert kinds == ["parallel"] * 2 + ["serial"] * 5 + ["unrolled", "vectorized"]


@pytest.mark.parametrize("size", [8, 14, 27])
def test_products_are_those_of_the_tiles(size):
    tile = 4 if size == 8 else 2
    tiles = ((size + tile - 1) // tile) ** 2
    shape = ([1, 8, size, size], [16, 8, 3, 3], [1, 1], [1, 1, 1, 1], [1, 1])
    one = program(
        tile_b=(1, 1, 1), tile_y=(2, 2, 1), tile_x=(1, 1, 1), tile_rc=(4,),
        auto_unroll_max_step=128, unroll_explicit=0,
    )  # fmt: skip
    key = workload("conv2d_nchw_winograd.cuda", *shape, "float32")
    ((_, nests),) = nests_of_programs([one], key, "", "conv2d")
    product = next(s for s in nests.statements if s.reduces and s.accesses[1].buffer != 0
                   and len(s.accesses) == 4)  # fmt: skip
    assert executed(nests, product) == pytest.approx((tile + 2) ** 2 * tiles * 8 * 16)
    assert executed(nests, nests.statements[-1]) == pytest.approx(16 * size * size)
    assert executed(nests, nests.statements[2]) == pytest.approx((tile + 2) ** 2 * tiles * 8)


def test_shares_of_the_matrices_of_lavin_and_gray():
    # Of F(2x2, 3x3), written out in their paper: B has 8 entries of 16, A 6 of 8.
    assert nonzero_shares(4, 2) == (8 / 16, 6 / 8)


def test_what_the_template_has_no_tiles_for_is_not_claimed():
    strided = ([1, 8, 8, 8], [16, 8, 3, 3], [2, 2], [1, 1, 1, 1], [1, 1])
    one = program(
        tile_b=(1, 1, 1), tile_y=(2, 2, 1), tile_x=(1, 1, 1), tile_rc=(4,), auto_unroll_max_step=0
    )
    key = workload("conv2d_nchw_winograd.cuda", *strided, "float32")
    assert nests_of_programs([one], key, "", "conv2d") == []
