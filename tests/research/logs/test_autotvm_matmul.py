"""Programs of AutoTVM's templates of matrix products for CPUs compute the product."""

from __future__ import annotations

import numpy as np
import pytest

from foretune_research.logs import nests_of_programs

from .running import executed, program, run, workload

M, N, K = 6, 8, 12


def operands(batch=()):
    draw = np.random.default_rng(2)
    return draw.normal(size=(*batch, M, K)), draw.normal(size=(*batch, N, K))


def test_a_dense_layer_with_packed_weights():
    x, w = operands()
    configs = [((1, 6), (2, 4), 3, 2), ((3, 2), (1, 8), 1, 1), ((2, 1), (2, 2), 12, 6)]
    programs = [
        program(tile_y=y, tile_x=x_, tile_k=(k,), tile_inner=(inner,))
        for y, x_, k, inner in configs
    ]
    key = workload("dense_pack.x86", [M, K], [N, K], None, "float32")
    ((rows, nests),) = nests_of_programs(programs, key, "", "dense")
    assert rows.tolist() == [0, 1, 2]
    for row in range(3):
        block = configs[row][1][-1]
        weights = w.reshape(-1, block, K).transpose(0, 2, 1)
        np.testing.assert_allclose(run(nests, row, {0: x, 1: weights})[-1], x @ w.T)
    assert executed(nests, nests.statements[0]) == pytest.approx(M * N * K)


def test_rows_that_the_inner_tile_does_not_divide_count_once():
    # 12 rows in fours, in a tile of 6: the space holds it, as it divides all rows, not a tile.
    key = workload("dense_pack.x86", [12, K], [N, K], None, "float32")
    one = program(tile_y=(1, 6), tile_x=(2, 4), tile_k=(3,), tile_inner=(4,))
    ((_, nests),) = nests_of_programs([one], key, "", "dense")
    assert executed(nests, nests.statements[0]) == pytest.approx(12 * N * K)


def test_a_dense_layer_by_lanes_of_the_reduction():
    x, w = operands()
    programs = [
        program(tile_y=(y,), tile_x=(x_,), tile_k=(k,))
        for y, x_, k in [(2, 4, 3), (6, 1, 12), (1, 8, 1)]
    ]
    key = workload("dense_nopack.x86", [M, K], [N, K], None, "float32")
    ((_, nests),) = nests_of_programs(programs, key, "", "dense")
    for row in range(3):
        np.testing.assert_allclose(run(nests, row, {0: x, 1: w})[-1], x @ w.T)


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_batch_of_products(transposed):
    x, w = operands((2,))
    second = w if transposed else w.transpose(0, 2, 1)
    programs = [
        program(tile_y=(y,), tile_x=(x_,), tile_k=(k,))
        for y, x_, k in [(2, 4, 3), (6, 1, 12), (1, 8, 1)]
    ]
    key = workload(
        "batch_matmul.x86", [2, M, K], list(second.shape), [2, M, N], "float32", 0, transposed
    )
    ((_, nests),) = nests_of_programs(programs, key, "", "batch_matmul")
    for row in range(3):
        made = run(nests, row, {0: x, 1: second})[-1]
        np.testing.assert_allclose(made, np.einsum("bmk,bnk->bmn", x, w))
    product = nests.statements[0]
    assert executed(nests, product) == pytest.approx(2 * M * N * K)
    assert (product.unroll == 16).all()


def test_a_layer_with_a_bias_is_not_claimed():
    one = program(tile_y=(1, 6), tile_x=(2, 4), tile_k=(3,), tile_inner=(1,))
    key = workload("dense_pack.x86", [M, K], [N, K], ["TENSOR", [N], "float32"], "float32")
    assert nests_of_programs([one], key, "", "dense") == []
