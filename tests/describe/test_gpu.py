"""Behaviour on GPUs: numbers that can be counted by hand, and what must hold of all of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import METRICS, Behaviours
from foretune.describe._gpu_footprint import Footprint
from foretune.describe._gpu_launch import most_registers, residency
from foretune.describe.gpu import behaviours
from foretune.errors import BadInputError
from foretune.hardware import Device
from tests.describe.gpu_kernels import (
    A100,
    BLOCK,
    SERIAL,
    THREAD,
    UNROLLED,
    access,
    buffer,
    copy,
    nests,
    product,
    statement,
)


def score(found: Behaviours, name: str) -> float:
    return float(found.scores[0, [m.name for m in METRICS].index(f"{name}_score")])


def number(found: Behaviours, name: str) -> float:
    return float(found.numbers[name][0])


@pytest.mark.parametrize(
    ("threads", "registers", "shared_kib", "blocks", "limiter"),
    [
        # 2048 threads of a multiprocessor are 8 blocks of 256.
        (256, 32, 0, 8, "threads"),
        # 65,536 registers: 128 a thread are 32,768 a block.
        (256, 128, 0, 2, "registers"),
        # 33 are given as 40: 51 warps have room, and a block of 1,024 threads has 32.
        (1024, 33, 0, 1, "registers"),
        # 164 KiB hold three times 48.
        (128, 32, 48, 3, "shared"),
        # Blocks of one warp: 64 would fit, 32 are held.
        (32, 32, 0, 32, "blocks"),
    ],
)
def test_occupancy_of_an_a100(threads, registers, shared_kib, blocks, limiter):
    found = residency(
        np.array([float(threads)]), np.array([registers]), np.array([shared_kib * 1024.0]), A100
    )
    assert found.blocks[0] == blocks
    assert min(found.limits, key=lambda name: found.limits[name][0]) == limiter
    assert found.most_warps == 64


def test_a_large_block_leaves_few_registers_to_a_thread():
    assert most_registers(np.array([64.0, 256.0, 1024.0]), A100).tolist() == [255, 255, 64]


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (32, 32)])
def test_coalescing_by_stride(stride, sectors):
    """A warp stores 4 sectors of 32 bytes; what it loads depends on the stride."""
    found = behaviours(copy(stride), A100)
    assert score(found, "coalescing") == pytest.approx(2 * 128 / (32 * (4 + sectors)))
    assert number(found, "bytes_from_l1") == 1024 * 8 * 32 * (4 + sectors)


def test_a_broadcast_uses_one_sector_a_warp():
    loops = [(BLOCK, 64, "x"), (THREAD, 128, "x")]
    one = nests(
        loops,
        [buffer("a", "global", 64), buffer("b", "global", 64 * 128)],
        [statement((0, 1), [access(0, [{0: 1}], loops), access(1, [{0: 128, 1: 1}], loops, True)])],
    )
    assert number(behaviours(one, A100), "bytes_from_l1") == 64 * 4 * 32 * (1 + 4)


@pytest.mark.parametrize(
    ("stride", "passes"), [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (32, 32), (33, 1)]
)
def test_bank_conflicts_by_stride(stride, passes):
    found = behaviours(copy(stride, scope="shared") if stride else copy(1, scope="shared"), A100)
    if stride:
        assert number(found, "passes_per_shared_request") == passes
        assert score(found, "bank_conflict") == pytest.approx(1 / passes)


def test_threads_of_two_rows_meet_in_banks_unless_padded():
    """16 threads along x: the second half of a warp reads the next row."""

    def passes(width: int) -> float:
        loops = [(BLOCK, 8, "x"), (THREAD, 16, "y"), (THREAD, 16, "x")]
        one = nests(
            loops,
            [buffer("a", "shared", 16, width), buffer("b", "global", 8, 16, 16)],
            [
                statement(
                    (0, 1, 2),
                    [
                        access(0, [{1: 1}, {2: 1}], loops),
                        access(1, [{0: 1}, {1: 1}, {2: 1}], loops, True),
                    ],
                )
            ],
        )
        return number(behaviours(one, A100), "passes_per_shared_request")

    assert passes(16) == 1
    assert passes(32) == 2
    assert passes(48) == 1


@pytest.mark.parametrize(
    ("blocks", "balance", "utilization"),
    [
        (54, 0.5, 0.5),
        (108, 1.0, 1.0),
        (109, 109 / 216, 1.0),
        (864, 1.0, 1.0),
        (865, 865 / 1728, 1.0),
    ],
)
def test_waves_and_tails(blocks, balance, utilization):
    """108 multiprocessors hold 8 blocks of 256 threads: 864 in a wave."""
    found = behaviours(copy(1, blocks), A100)
    assert number(found, "blocks_per_unit") == 8
    assert score(found, "load_balance") == pytest.approx(balance)
    assert score(found, "unit_utilization") == pytest.approx(utilization)
    assert number(found, "waves") == pytest.approx(blocks / 864)
    assert number(found, "units_busy") == pytest.approx(balance), "idle units count once"


def test_a_copy_moves_its_bytes_and_is_bound_by_memory():
    found = behaviours(copy(1, 1 << 16), A100)
    assert number(found, "bytes_from_memory") == pytest.approx(2 * 4 * 256 << 16, rel=1e-3)
    assert found.bound == ["memory"]
    assert found.seconds[0] >= 2 * 4 * (256 << 16) / 1555e9
    assert score(found, "memory_traffic") == pytest.approx(1.0)


def test_reuse_in_registers_and_shared_memory():
    """A thread with 8 x 8 results loads 16 values for 64 multiply-adds, one with one loads two."""
    large, small = behaviours(product(2048, 8), A100), behaviours(product(2048, 1), A100)
    flops = 2 * 2048.0**3
    assert number(large, "operations") == number(small, "operations") == flops
    assert number(large, "bytes_from_shared") == flops / 2 / 64 * 16 * 4
    assert number(small, "bytes_from_shared") == flops / 2 * 2 * 4
    # Accumulators, eight of one operand, one of the other, and what every thread has.
    assert 64 + 8 <= number(large, "registers_per_thread") <= 64 + 16 + 32
    assert large.seconds[0] < small.seconds[0] / 2
    assert small.bound == ["shared"]
    # Two buffers of 16 x 128 floats.
    assert number(large, "shared_bytes_per_block") == 2 * 16 * 128 * 4
    # Before and after each of 128 fillings, but the last.
    assert number(large, "barriers_per_block") == 2 * 128 - 1


def test_a_tile_of_a_product_is_loaded_once_for_a_block():
    """Blocks of 128 x 128 results load 2 x 2048 x 128 floats each."""
    found = behaviours(product(2048, 8), A100)
    blocks = 16 * 16
    loads = blocks * 2 * 2048 * 128 * 4
    stores = 2048 * 2048 * 4
    assert number(found, "bytes_from_l2") == pytest.approx(loads + stores, rel=0.3)
    assert number(found, "bytes_compulsory") == pytest.approx(3 * 2048 * 2048 * 4, rel=0.05)


def test_too_many_accumulators_spill():
    wide = behaviours(product(2048, 16), A100)
    assert number(wide, "registers_per_thread") > 255
    assert score(wide, "register") < 1
    assert score(behaviours(product(2048, 8), A100), "register") == 1


def test_half_filled_warps_cost_lanes():
    found = behaviours(copy(1, 4096, 48), A100)
    assert score(found, "lane_efficiency") == pytest.approx(48 / 64)


def test_one_thread_waits_for_its_own_results():
    loops = [(BLOCK, 1, "x"), (SERIAL, 1 << 20, "")]
    alone = nests(
        loops,
        [buffer("a", "global", 1 << 20), buffer("s", "local", 1)],
        [
            statement(
                (0, 1),
                [access(0, [{1: 1}], loops), access(1, [{}], loops), access(1, [{}], loops, True)],
                operations=1.0,
                reduces=True,
            )
        ],
    )
    found = behaviours(alone, A100)
    assert found.bound == ["latency"]
    assert score(found, "instruction_parallelism") < 0.1
    assert score(found, "unit_utilization") == pytest.approx(1 / 108)


def test_two_kernels_take_the_time_of_both():
    single = copy(1, 4096)
    s = single.statements[0]
    second = replace(s, path=(2, 3))
    double = replace(
        single,
        kinds=np.tile(single.kinds, 2),
        extents=np.tile(single.extents, 2),
        axes=single.axes * 2,
        reduction=single.reduction * 2,
        statements=(s, second),
    )
    assert behaviours(double, A100).seconds[0] == pytest.approx(
        2 * behaviours(single, A100).seconds[0]
    )


@pytest.mark.parametrize(
    ("threads", "shared", "reason"),
    [
        (2048, 1024, "blocks_that_threads_allow"),
        (256, 60_000, "blocks_that_shared_memory_allows"),
        (256, 1024, None),
    ],
)
def test_a_kernel_that_cannot_be_launched_says_why(threads, shared, reason):
    """An A100 has 1,024 threads a block, and 164 KiB of shared memory."""
    loops = [(BLOCK, 1024, "x"), (THREAD, threads, "x")]
    buffers = [
        buffer("a", "global", 1024 * threads),
        buffer("s", "shared", shared),
        buffer("b", "global", 1024 * threads),
    ]
    whole = [{0: threads, 1: 1}]
    lines = [
        statement([0, 1], [access(0, whole, loops), access(1, [{1: 1}], loops, True)]),
        statement([0, 1], [access(1, [{1: 1}], loops), access(2, whole, loops, True)]),
    ]
    found = behaviours(nests(loops, buffers, lines), A100)
    assert number(found, "launchable") == (reason is None)
    for name in (
        "blocks_that_threads_allow",
        "blocks_that_registers_allow",
        "blocks_that_shared_memory_allows",
    ):
        assert (number(found, name) == 0) == (name == reason)
    assert np.isfinite(found.seconds[0])


def test_a_program_is_launchable_if_all_its_kernels_are():
    small, large = (BLOCK, 8, "x"), (THREAD, 2048, "x")
    loops = [small, (THREAD, 256, "x"), small, large]
    buffers = [buffer("a", "global", 2048 * 8), buffer("b", "global", 2048 * 8)]
    lines = [
        statement(
            [at, at + 1],
            [
                access(0, [{0: 2048, 1: 1}], loops[at : at + 2]),
                access(1, [{0: 2048, 1: 1}], loops[at : at + 2], True),
            ],
        )
        for at in (0, 2)
    ]
    found = behaviours(nests(loops, buffers, lines), A100)
    assert number(found, "launchable") == 0


def test_a_cpu_is_refused():
    factors = {
        "cores": 4,
        "simd_fp32_lanes": 8,
        "fp32_flop_per_cycle_per_core": 32,
        "l1d_kib_per_core": 32,
    }
    cpu = Device("c", "c", "cpu", factors)
    with pytest.raises(BadInputError, match="GPU"):
        behaviours(copy(1), cpu)


_TERM = st.tuples(st.integers(1, 6), st.integers(1, 5))


@given(st.lists(_TERM, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_distinct_elements_are_between_their_bounds(terms):
    """Against brute force: exact where steps are multiples, never above the product."""
    loops = [(SERIAL, extent, "") for _, extent in terms]
    one = access(0, [{i: by for i, (by, _) in enumerate(terms)}], loops)
    footprint = Footprint(one, buffer("a", "global", 1000))
    counts = np.array([[float(extent) for _, extent in terms]])
    values = {
        sum(by * i for (by, _), i in zip(terms, point, strict=True))
        for point in itertools.product(*(range(extent) for _, extent in terms))
    }
    found = footprint.elements(counts)[0]
    moving = sorted(by for by, extent in terms if extent > 1)
    if all(large % small == 0 for small, large in itertools.combinations(moving, 2)):
        assert found == len(values)
    assert len(values) * 0.5 <= found <= np.prod(counts)
    assert footprint.bytes_moved(counts, 32.0)[0] >= found * 4 * 0.99 or found * 4 > 32


@given(
    st.sampled_from([1, 2, 8, 32]),
    st.integers(1, 3000),
    st.sampled_from([32, 48, 64, 256, 1024]),
    st.sampled_from(["global", "shared"]),
)
@settings(max_examples=60, deadline=None)
def test_scores_and_times_hold_together(stride, blocks, threads, scope):
    found = behaviours(copy(stride, blocks, threads, scope), A100)
    known = ~np.isnan(found.scores)
    assert ((found.scores[known] >= 0) & (found.scores[known] <= 1)).all()
    missing = {m.name for m, k in zip(METRICS, known[0], strict=True) if not k}
    assert missing == {"l3_reuse_score"}
    assert all(np.isfinite(v).all() and (v >= 0).all() for v in found.limits_s.values())
    assert all(np.isfinite(v).all() for v in found.numbers.values())
    assert found.seconds[0] >= max(v[0] for v in found.limits_s.values())


@given(st.integers(1, 2000))
@settings(max_examples=30, deadline=None)
def test_a_larger_device_is_never_slower(blocks):
    factors = {**A100.factors, "units": 216, "fp32_lanes": 2 * 6912, "memory_gb_per_s": 3110}
    larger = Device("b", "b", "gpu", factors)
    one = copy(2, blocks)
    assert behaviours(one, larger).seconds[0] <= behaviours(one, A100).seconds[0] * (1 + 1e-9)


def test_batches_give_what_single_programs_do():
    from foretune.describe import stacked

    tiles = [product(1024, tile) for tile in (1, 2, 4, 8)]
    together = behaviours(stacked(tiles), A100)
    alone = [behaviours(tile, A100) for tile in tiles]
    assert together.seconds.tolist() == pytest.approx([b.seconds[0] for b in alone])
    assert together.bound == [b.bound[0] for b in alone]
    np.testing.assert_allclose(together.scores, np.concatenate([b.scores for b in alone]))


def wide(device: Device, **changes: float) -> Device:
    """A device with other factors."""
    return Device("w", "w", "gpu", {**device.factors, **changes})


def test_compilers_for_wide_wavefronts_leave_registers_for_the_largest_block():
    """65,536 registers for 1,024 threads are 64, however small the block is."""
    amd = wide(A100, warp=64)
    assert most_registers(np.array([64.0, 1024.0]), amd).tolist() == [64, 64]
    assert score(behaviours(product(2048, 8), amd), "register") < 1


def test_a_local_array_under_loops_that_are_not_unrolled_lies_in_memory():
    """512 accumulators in serial loops: known to the compiler only if the pragma unrolls them."""

    def accumulate(unroll: float) -> Behaviours:
        loops = [(BLOCK, 64, "x"), (THREAD, 64, "x"), (SERIAL, 100, ""), (SERIAL, 512, "")]
        one = nests(
            loops,
            [buffer("a", "global", 64 * 64 * 100), buffer("c", "local", 512)],
            [
                statement(
                    (0, 1, 2, 3),
                    [
                        access(1, [{3: 1}], loops),
                        access(0, [{0: 6400, 1: 1, 2: 64}], loops),
                        access(1, [{3: 1}], loops, True),
                    ],
                    operations=2.0,
                    reduces=True,
                    unroll=unroll,
                )
            ],
        )
        return behaviours(one, A100)

    looped, unrolled = accumulate(0), accumulate(1024)
    assert number(looped, "private_bytes_per_thread") == 512 * 4
    assert number(looped, "registers_per_thread") < 64
    # Unrolled they are registers, of which most do not fit.
    assert number(unrolled, "registers_per_thread") > 512
    assert 0 < number(unrolled, "private_bytes_per_thread") < 512 * 4


def test_neighbouring_loads_from_shared_memory_are_one_instruction_where_aligned():
    """Four values of a thread, at multiples of four words or one word beside them."""

    def instructions(row: int) -> float:
        loops = [(BLOCK, 64, "x"), (THREAD, 32, "x"), (UNROLLED, 4, "")]
        one = nests(
            loops,
            [buffer("a", "shared", 32, row), buffer("s", "local", 1)],
            [
                statement(
                    (0, 1, 2),
                    [
                        access(1, [{}], loops),
                        access(0, [{1: 1}, {2: 1}], loops),
                        access(1, [{}], loops, True),
                    ],
                    operations=1.0,
                    reduces=True,
                )
            ],
        )
        return number(behaviours(one, A100), "instructions_per_warp")

    assert instructions(5) - instructions(4) == 3


def test_loads_behind_conditions_wait_for_each_other():
    loops = [(BLOCK, 108, "x"), (THREAD, 32, "x"), (UNROLLED, 16, "")]
    plain = nests(
        loops,
        [buffer("a", "global", 108 * 512), buffer("b", "shared", 512)],
        [
            statement(
                (0, 1, 2),
                [
                    access(0, [{0: 512, 1: 1, 2: 32}], loops),
                    access(1, [{1: 1, 2: 32}], loops, True),
                ],
            )
        ],
    )
    padded = replace(plain, statements=(replace(plain.statements[0], selects=np.ones(1)),))
    waits = [behaviours(each, A100).limits_s["latency"][0] for each in (plain, padded)]
    # Sixteen loads at once, or eight times two.
    assert waits[1] > 3 * waits[0]


def test_starts_of_tiny_blocks_bound_a_kernel_on_wide_wavefronts():
    """A million blocks of one thread, four cycles from one to the next."""
    amd = wide(A100, warp=64)
    found = behaviours(copy(1, 1 << 20, 1), amd)
    assert found.bound == ["overhead"]
    assert found.seconds[0] >= 4 * (1 << 20) / 1.41e9
