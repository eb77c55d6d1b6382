"""Each of Ansor's steps makes the loops that its documentation says, worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretune.describe import THREAD, Nests

from .ansor_programs import BLOCK, PARALLEL, UNROLLED, VECTORIZED, VTHREAD, loops, nests_of
from .ansor_programs import THREAD as THREADS
from .running import run

RELU = '["relu_layer",6,8]'
PRODUCT = '["matmul_layer",8,6,4]'
PADDED = '["conv2d_ansor",[1,2,4,4],[3,2,3,3]]'
SUM = '["reduction_layer",[4,12],1,false]'


def index(nests: Nests, at: int, access: int, row: int = 0) -> list[list[tuple[float, ...]]]:
    """Of each dimension: loop (by its extent), coefficient, values, every."""
    statement = nests.statements[at]
    found = statement.accesses[access]
    out: list[list[tuple[float, ...]]] = [
        [] for _ in range(nests.buffers[found.buffer].shape.shape[1])
    ]
    for t in found.terms:
        extent = nests.extents[row, statement.path[t.place]]
        out[t.dimension].append((extent, t.coefficient[row], t.values[row], t.every[row]))
    return out


def test_no_step_at_all():
    nests = nests_of(RELU, [])
    assert loops(nests, 0) == ["serial 6", "serial 8"]
    assert [b.parameter for b in nests.buffers] == [True, True]
    assert nests.statements[0].selects.tolist() == [1.0]
    assert not nests.gpu and not nests.approximate.any()


def test_split_by_lengths_of_the_inner_parts():
    nests = nests_of(RELU, [["SP", 1, 1, 8, [2, 2], 1]])
    assert loops(nests, 0) == ["serial 6", "serial 2", "serial 2", "serial 2"]
    assert index(nests, 0, 1) == [[(6, 1, 6, 1)], [(2, 4, 2, 1), (2, 2, 2, 1), (2, 1, 2, 1)]]


def test_split_by_lengths_of_the_outer_parts():
    nests = nests_of(RELU, [["SP", 1, 1, 8, [4], 0]])
    assert loops(nests, 0) == ["serial 6", "serial 4", "serial 2"]


def test_a_split_that_leaves_a_rest_is_guarded():
    nests = nests_of(RELU, [["SP", 1, 1, 8, [3], 1]])
    assert loops(nests, 0) == ["serial 6", "serial 3", "serial 3"]
    assert nests.statements[0].executed == pytest.approx(8 / 9)


def test_a_split_longer_than_its_loop_is_one_loop_unless_it_is_bound_to_threads():
    assert loops(nests_of(RELU, [["SP", 1, 1, 8, [32], 1]]), 0) == ["serial 6", "serial 8"]
    bound = nests_of(RELU, [["SP", 1, 1, 8, [32], 1], ["AN", 1, 0, BLOCK], ["AN", 1, 2, THREADS]])
    assert loops(bound, 0) == ["block.x 6", "thread.x 32"]
    assert bound.statements[0].executed == pytest.approx(8 / 32)


def test_follow_split():
    # Three parts of a split in five: the last takes the product of what is left, 2 * 2.
    steps = [
        ["CHW", 2, "local"],
        ["SP", 2, 0, 8, [1, 2, 2, 2], 1],
        ["FSP", 3, 0, 1, 3],
        ["FSP", 3, 4, 1, 1],
    ]
    nests = nests_of(PRODUCT, steps)
    # Lengths 1, 2, 2 * 2 of 8 leave one iteration; of the 4 columns one length, 1 * 2 * 2 * 2, is
    # longer than the loop.
    assert loops(nests, 1) == ["serial 2", "serial 4", "serial 4"]


def test_follow_fused_split():
    # Threads as many as both splits have at their second level: 2 * 3.
    steps = [
        ["SP", 1, 0, 6, [1, 2, 1], 1],
        ["SP", 1, 4, 8, [1, 3, 1], 1],
        ["FU", 1, [0, 1, 2, 3, 4, 5, 6, 7]],
        ["FFSP", 1, 0, [0, 1], 1, 1],
    ]
    nests = nests_of(RELU, steps)
    # 8 is split by 3 with a rest: 6 * 9 iterations in all.
    assert loops(nests, 0) == ["serial 9", "serial 6"]
    assert nests.statements[0].executed == pytest.approx(48 / 54)


def test_fuse():
    nests = nests_of(RELU, [["FU", 1, [0, 1]]])
    assert loops(nests, 0) == ["serial 48"]
    assert index(nests, 0, 1) == [[(48, 1, 6, 8)], [(48, 1, 8, 1)]]


def test_fused_and_split_again():
    # i = (4 o + n) // 8, j = (4 o + n) % 8: rows change with every second o.
    nests = nests_of(RELU, [["FU", 1, [0, 1]], ["SP", 1, 0, 48, [4], 1]])
    assert loops(nests, 0) == ["serial 12", "serial 4"]
    assert index(nests, 0, 1) == [[(12, 1, 6, 2)], [(12, 4, 2, 1), (4, 1, 4, 1)]]
    assert not nests.approximate.any()
    uneven = nests_of(RELU, [["FU", 1, [0, 1]], ["SP", 1, 0, 48, [3], 1]])
    assert uneven.approximate.tolist() == [True]


def test_reorder():
    nests = nests_of(PRODUCT, [["RE", 2, [2, 1, 0]]])
    assert loops(nests, 0) == ["serial 6 sum", "serial 4", "serial 8"]


def test_annotations():
    steps = [
        ["SP", 1, 0, 6, [2], 1],
        ["SP", 1, 2, 8, [2], 1],
        ["AN", 1, 0, PARALLEL],
        ["AN", 1, 1, UNROLLED],
        ["AN", 1, 3, VECTORIZED],
    ]
    assert loops(nests_of(RELU, steps), 0) == [
        "parallel 3", "unrolled 2", "serial 4", "vectorized 2",
    ]  # fmt: skip
    steps[2:] = [["AN", 1, 0, BLOCK], ["AN", 1, 1, VTHREAD], ["AN", 1, 2, THREADS], ["AN", 1, 3, 8]]
    nests = nests_of(RELU, steps)
    assert loops(nests, 0) == ["block.x 3", "vthread 2", "thread.x 4", "thread.y 2"]
    assert nests.gpu


def test_pragma_holds_for_what_is_inside_its_loop():
    # At the outer loop of the tile of one stage, not at the copy out of its cache.
    steps = [
        ["CHW", 2, "local"],
        ["CA", 2, 3, 0],
        ["PR", 2, 0, "auto_unroll_max_step$16"],
    ]
    nests = nests_of(PRODUCT, steps)
    assert [s.unroll.tolist() for s in nests.statements] == [[16.0], [0.0]]
    ones = nests_of('["matmul_layer",1,6,4]', [["PR", 2, 0, "auto_unroll_max_step$64"]])
    assert ones.statements[0].unroll.tolist() == [64.0]


def test_storage_align():
    # Rows of 6 elements, aligned to 1 more than a multiple of 4: 9 apart.
    steps = [["SA", 1, 2, 4, 1]]
    nests = nests_of(PADDED, steps)
    (padded,) = [b for b in nests.buffers if b.name == "padded"]
    assert padded.shape.tolist() == [[1, 2, 6, 9]]


def test_compute_at_and_compute_root():
    # Inside the channel of the output everything of the input is needed, padded: 2 x 6 x 6.
    inside = [["CA", 1, 3, 1], ["CA", 1, 3, 2]]
    nests = nests_of(PADDED, inside[:1])
    assert loops(nests, 0) == ["serial 3", "serial 2", "serial 6", "serial 6"]
    # Inside a row of the output three rows are.
    nests = nests_of(PADDED, inside[1:])
    assert loops(nests, 0) == ["serial 3", "serial 4", "serial 2", "serial 3", "serial 6"]
    assert nests.buffers[nests.statements[0].accesses[-1].buffer].shape.tolist() == [[1, 2, 3, 6]]
    # The place of the last step is the one that holds, and the program itself is one.
    nests = nests_of(PADDED, [*inside[:1], ["CR", 1]])
    assert loops(nests, 0) == ["serial 2", "serial 6", "serial 6"]


def test_a_loop_moves_with_what_is_split_and_fused_around_it():
    # The padding stays where it was put: inside the fused outer loops, and the inner part.
    steps = [["CA", 1, 3, 1], ["FU", 3, [0, 1]], ["SP", 3, 1, 4, [2], 1]]
    nests = nests_of(PADDED, steps)
    assert loops(nests, 0) == ["serial 3", "serial 2", "serial 6", "serial 6"]
    steps = [["CA", 1, 3, 2], ["SP", 3, 2, 4, [2], 1]]
    nests = nests_of(PADDED, steps)
    assert loops(nests, 0)[:3] == ["serial 3", "serial 2", "serial 2"]


def test_compute_inline():
    nests = nests_of(PADDED, [["CI", 1]])
    (statement,) = nests.statements
    assert [nests.buffers[a.buffer].name for a in statement.accesses] == [
        "convolution", "data", "weight", "convolution",
    ]  # fmt: skip
    # The choice between an element and the border is made at every read.
    assert statement.selects.tolist() == [1.0] and statement.operations.tolist() == [2.0]
    assert index(nests, 0, 1)[2] == [(4, 1, 4, 1), (3, 1, 3, 1)]


def test_cache_write():
    nests = nests_of(PRODUCT, [["CHW", 2, "local"], ["CA", 2, 3, 0]])
    assert loops(nests, 0) == ["serial 8", "serial 4", "serial 6 sum"]
    assert loops(nests, 1) == ["serial 8", "serial 4"]
    cache = nests.buffers[nests.statements[0].accesses[-1].buffer]
    assert (cache.scope, cache.parameter, cache.shape.tolist()) == ("local", False, [[1, 4]])
    # Inside the row its index is that of the column alone.
    assert index(nests, 0, 3) == [[], [(4, 1, 4, 1)]]
    assert index(nests, 1, 1) == [[(8, 1, 8, 1)], [(4, 1, 4, 1)]]


def test_cache_read_is_shared_by_the_threads_of_a_block():
    # Two rows a thread, four threads a block of eight rows: the block holds 8 x 3 of the left.
    steps = [
        ["SP", 2, 0, 8, [2], 1],
        ["SP", 2, 3, 6, [3], 1],
        ["RE", 2, [0, 3, 1, 2, 4]],
        ["CHR", 0, "shared", [2]],
        ["CA", 1, 3, 1],
        ["AN", 3, 0, THREADS],
        ["FU", 1, [0, 1]],
        ["SP", 1, 0, 6, [4], 1],
        ["AN", 1, 1, THREADS],
    ]
    nests = nests_of(PRODUCT, steps)
    copy, compute = nests.statements
    tile = nests.buffers[copy.accesses[-1].buffer]
    assert (tile.scope, tile.shape.tolist()) == ("shared", [[8, 3]])
    # The threads that copy are those that compute: six elements each.
    assert loops(nests, 0) == ["thread.x 4", "serial 2 sum", "serial 6"]
    assert loops(nests, 1) == ["thread.x 4", "serial 2 sum", "serial 2", "serial 4", "serial 3 sum"]
    assert copy.path[:2] == compute.path[:2]


def test_factored_reduction():
    # Twelve in three of four, each of the four summed by itself, then the four.
    steps = [["SP", 1, 1, 12, [4], 1], ["RF", 1, 2, 1]]
    nests = nests_of(SUM, steps)
    assert loops(nests, 0) == ["serial 4", "serial 4", "serial 3 sum"]
    assert loops(nests, 1) == ["serial 4", "serial 4 sum"]
    partial = nests.buffers[nests.statements[0].accesses[-1].buffer]
    assert (partial.shape.tolist(), partial.parameter) == ([[4, 4]], False)
    assert index(nests, 0, 1) == [[(4, 1, 4, 1)], [(4, 1, 4, 1), (3, 4, 3, 1)]]
    front = nests_of(SUM, [*steps[:1], ["RF", 1, 2, 0], ["CA", 1, 2, 0]])
    # Inside a row, four sums of it.
    assert loops(front, 0) == ["serial 4", "serial 4", "serial 3 sum"]
    assert front.buffers[front.statements[0].accesses[-1].buffer].shape.tolist() == [[4, 1]]


def test_factored_part_of_a_fused_reduction():
    key = '["reduction_layer",[5,4,6],[1,2],false]'
    nests = nests_of(key, [["FU", 1, [1, 2]], ["SP", 1, 1, 24, [3], 1], ["RF", 1, 1, 1]])
    # The outer part of the 24 is its own axis; the inner 3 are summed.
    assert loops(nests, 0) == ["serial 5", "serial 8", "serial 3 sum"]
    assert loops(nests, 1) == ["serial 5", "serial 8 sum"]
    # 3 o + n of rows of 6: the row changes with every second o.
    assert index(nests, 0, 1)[1:] == [[(8, 1, 4, 2)], [(8, 3, 2, 1), (3, 1, 3, 1)]]


def test_factored_reductions_sum_all():
    data = np.random.default_rng(0).normal(size=(4, 12))
    steps = [["SP", 1, 1, 12, [4], 1], ["RF", 1, 2, 1]]
    for more in ([], [["CA", 1, 2, 0]], [["RE", 1, [2, 1, 0]]]):
        nests = nests_of(SUM, [*steps, *more])
        arrays = run(nests, 0, {0: data})
        assert arrays[nests.statements[-1].accesses[-1].buffer] == pytest.approx(data.sum(axis=1))


def test_bias_and_relu_inlined_into_their_reader():
    key = json.dumps(["conv2d_layer", 1, 4, 4, 3, 2, 3, 3, [1, 1], [1, 1]])
    nests = nests_of(key, [["CI", 5], ["CI", 1]])
    compute, last = nests.statements
    assert compute.operations.tolist() == [2.0]
    assert (last.operations.tolist(), last.selects.tolist()) == ([1.0], [1.0])
    assert [nests.buffers[a.buffer].name for a in last.accesses] == ["convolution", "bias", "relu"]
    # The convolution inside a row of the output: what it sums there is one row.
    nests = nests_of(key, [["CI", 5], ["CI", 1], ["CA", 3, 6, 2]])
    assert nests.buffers[nests.statements[0].accesses[-1].buffer].shape.tolist() == [[1, 1, 1, 4]]


def test_threads_sum_together():
    steps = [["SP", 1, 1, 12, [4], 1], ["AN", 1, 0, BLOCK], ["AN", 1, 2, THREADS]]
    nests = nests_of(SUM, steps)
    assert loops(nests, 0) == ["block.x 4", "thread.x 4 sum", "serial 3 sum"]
    assert loops(nests, 1) == ["block.x 4", "thread.x 4 sum"]
    # One of the four threads stores.
    assert nests.statements[1].executed.tolist() == [0.25]
    assert nests.buffers[nests.statements[0].accesses[-1].buffer].scope == "local"


def test_average_pooling_is_two_kernels():
    key = json.dumps(["pool_layer", "avg", 2, 4, 6, 6, 3, 3, 2, 1])
    steps = [["CI", 1]]
    for stage in (3, 2):
        steps += [["FU", stage, [0, 1, 2, 3]], ["SP", stage, 0, 72, [16], 1],
                  ["AN", stage, 0, BLOCK], ["AN", stage, 1, THREADS]]  # fmt: skip
    nests = nests_of(key, steps)
    assert loops(nests, 0) == ["block.x 5", "thread.x 16", "serial 3 sum", "serial 3 sum"]
    assert loops(nests, 1) == ["block.x 5", "thread.x 16"]
    assert nests.statements[1].calls.tolist() == [1.0]
    total = nests.buffers[nests.statements[0].accesses[-1].buffer]
    assert total.shape.tolist() == [[2, 4, 3, 3]] and not total.parameter


def test_numbers_may_differ_within_a_batch():
    nests = nests_of(
        PRODUCT,
        [["SP", 2, 0, 8, [2], 1], ["AN", 2, 0, PARALLEL]],
        [["SP", 2, 0, 8, [8], 1], ["AN", 2, 0, PARALLEL]],
    )
    assert loops(nests, 0, 0)[:2] == ["parallel 4", "serial 2"]
    assert loops(nests, 0, 1)[:2] == ["parallel 1", "serial 8"]
    assert np.all(nests.kinds != THREAD)
