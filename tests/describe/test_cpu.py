"""What bounds a kernel on a CPU, on kernels that are bound by construction."""

from __future__ import annotations

import collections
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import METRICS
from foretune.describe._cpu_machine import CONSTANTS, machine_of
from foretune.describe.cpu import behaviours
from foretune.errors import BadInputError
from foretune.hardware import Device, compiled_generic, device, known_devices
from tests.describe.nest_builder import DESKTOP, Line, program

MIB = 2**18  # elements


def _with(**factors):
    return replace(DESKTOP, factors={**DESKTOP.factors, **factors})


def _score(found, name, row=0):
    return found.scores[row, [m.name for m in METRICS].index(name + "_score")]


def _bound(nests, device=DESKTOP):
    return behaviours(nests, device).bound[0]


def _copy(elements, jobs=64):
    return program(
        {"i": (jobs, "parallel"), "j": (elements // jobs // 8, "serial"), "v": (8, "vectorized")},
        {"A": [elements], "B": [elements]},
        [
            Line(
                "i j v",
                f"B[{elements // jobs}*i+8*j+v]",
                [f"A[{elements // jobs}*i+8*j+v]"],
                operations=0,
            )
        ],
    )


def _sweep(kib):
    """Scales an array into another, both together of so many KiB, again and again."""
    blocks = kib * 128 // 64
    return program(
        {"again": (4000, "serial"), "j": (blocks, "serial"), "u": (8, "unrolled"),
         "v": (8, "vectorized")},
        {"A": [blocks * 64], "B": [blocks * 64]},
        [Line("again j u v", "B[64*j+8*u+v]", ["A[64*j+8*u+v]"], operations=1)],
    )  # fmt: skip


def _matmul(m=96, n=128, k=128, rows=6, columns=16, parallel=False, element=4):
    return program(
        {"io": (m // rows, "parallel" if parallel else "serial"), "jo": (n // columns, "serial"),
         "k": (k, "serial"), "ii": (rows, "unrolled"), "v": (columns, "vectorized")},
        {"A": [m, k], "B": [k, n], "C": [m, n]},
        [Line("io jo k ii v", f"C[{rows}*io+ii,{columns}*jo+v]",
              [f"A[{rows}*io+ii,k]", f"B[k,{columns}*jo+v]"], reduces=True)],
        element=element,
    )  # fmt: skip


def _chain(length=4096, rows=8):
    return program(
        {"i": (rows, "serial"), "k": (length, "serial")},
        {"A": [rows, length], "C": [rows]},
        [Line("i k", "C[i]", ["A[i,k]"], operations=1, reduces=True)],
    )


def test_a_stream_larger_than_the_last_cache_is_bound_by_memory():
    found = behaviours(_copy(64 * MIB), DESKTOP)
    assert found.bound == ["memory"]
    # One array is read; the other is brought, too, before it is written: STREAM's three transfers.
    assert found.numbers["bytes_from_memory"] == pytest.approx(3 * 64 * MIB * 4, rel=0.02)
    assert found.seconds == pytest.approx(3 * 64 * MIB * 4 / 50e9, rel=0.1)
    assert _score(found, "memory_traffic") == pytest.approx(1, abs=0.02)
    assert _score(found, "roofline") > 0.9


@pytest.mark.parametrize(
    ("kib", "bound"), [(8, "l1"), (128, "l2"), (4096, "l3"), (2**18, "memory")]
)
def test_a_sweep_is_bound_by_the_cache_that_holds_it(kib, bound):
    found = behaviours(_sweep(kib), DESKTOP)
    assert found.bound == [bound]
    order = ["l1", "l2", "l3", "memory"]
    for level, name in enumerate(order[:-1]):
        kept = _score(found, f"{name}_reuse")
        assert (kept > 0.9) == (level >= order.index(bound)), (name, kept)


def test_a_matmul_in_registers_is_bound_by_arithmetic():
    found = behaviours(_matmul(), DESKTOP)
    assert found.bound == ["arithmetic"]
    assert found.numbers["accumulators"] == 12
    assert found.numbers["flops"] == 2 * 96 * 128 * 128
    # Two multiply-adds of eight lanes per cycle.
    assert found.limits_s["arithmetic"] == pytest.approx(96 * 128 * 128 / 16 / 4e9)
    assert _score(found, "lane_efficiency") == _score(found, "vector_compute") == 1
    assert _score(found, "register") == 1


def test_sums_that_wait_for_each_other_are_bound_by_latency():
    found = behaviours(_chain(), DESKTOP)
    assert found.bound == ["latency"]
    assert found.limits_s["latency"] == pytest.approx(8 * 4096 * CONSTANTS.latency / 4e9)
    assert _score(found, "instruction_parallelism") == pytest.approx(1 / 8)
    assert _score(found, "lane_efficiency") == pytest.approx(1 / 8)


def test_one_thread_leaves_the_other_cores_idle():
    one = behaviours(_matmul(parallel=False), DESKTOP)
    all_ = behaviours(_matmul(parallel=True), DESKTOP)
    assert _score(one, "unit_utilization") == pytest.approx(1 / 8)
    assert one.numbers["units_busy"] == pytest.approx(1 / 8)
    assert _score(all_, "unit_utilization") == 1
    assert all_.limits_s["arithmetic"] * 8 == pytest.approx(one.limits_s["arithmetic"])


def test_nine_jobs_on_eight_cores_take_as_long_as_ten_on_five():
    found = behaviours(_copy(9 * 8 * 10_000, jobs=9), DESKTOP)
    assert found.numbers["parallel_jobs"] == 9
    assert found.numbers["jobs_of_busiest_thread"] == 2
    assert found.numbers["threads_used"] == 5
    assert _score(found, "load_balance") == pytest.approx(9 / 16)
    assert found.numbers["units_busy"] == pytest.approx(9 / 16), "nine of sixteen places are taken"
    eight = behaviours(_copy(8 * 8 * 10_000, jobs=8), DESKTOP)
    assert _score(eight, "load_balance") == 1


def test_columns_use_four_bytes_of_a_line():
    rows = 4096
    nests = program(
        {"j": (512, "serial"), "i": (rows, "serial")},
        {"A": [rows, 512], "B": [rows, 512]},
        [Line("j i", "B[i,j]", ["A[i,j]"], operations=1)],
    )
    found = behaviours(nests, DESKTOP)
    assert _score(found, "coalescing") == pytest.approx(4 / 64)
    assert _score(found, "l1_reuse") < 0.05
    assert found.numbers["line_bytes_used"] == pytest.approx(4)
    across = program(
        {"i": (rows, "serial"), "j": (512, "serial")},
        {"A": [rows, 512], "B": [rows, 512]},
        [Line("i j", "B[i,j]", ["A[i,j]"], operations=1)],
    )
    assert _score(behaviours(across, DESKTOP), "coalescing") == 1


def test_a_tiny_kernel_is_bound_by_starting_threads():
    assert _bound(_copy(512, jobs=8)) == "overhead"
    assert _score(behaviours(_copy(512, jobs=8), DESKTOP), "synchronization") < 0.1


def test_a_scalar_kernel_is_bound_by_instructions():
    """Gathered operands: every lane has its own load."""
    nests = program(
        {"i": (64, "serial"), "j": (16, "serial"), "k": (64, "serial"), "u": (4, "unrolled")},
        {"A": [64, 64], "B": [64, 64], "C": [64, 64]},
        [Line("i j k u", "C[i,4*j+u]", ["A[i,k]", "B[4*j+u,k]"], reduces=True)],
    )
    found = behaviours(nests, DESKTOP)
    assert _score(found, "lane_efficiency") == pytest.approx(1 / 8)
    assert found.numbers["vector_lanes_used"] == 1


def test_too_many_sums_spill():
    wide = behaviours(_matmul(rows=8, columns=64), DESKTOP)
    assert wide.numbers["accumulators"] == 64
    # 64 sums, a row of eight vectors and a repeated value in 16 registers; two more are lost.
    assert wide.numbers["registers_spilled"] == 64 + 8 + 1 - 16 + 2
    assert _score(wide, "register") < 0.3
    narrow = behaviours(_matmul(), DESKTOP)
    assert wide.seconds > 1.2 * narrow.seconds


def test_a_parallel_loop_inside_a_serial_one_starts_threads_every_time():
    nests = program(
        {"o": (100, "serial"), "i": (8, "parallel"), "v": (64, "vectorized")},
        {"A": [100, 512]},
        [Line("o i v", "A[o,64*i+v]", operations=0)],
    )
    found = behaviours(nests, DESKTOP)
    assert found.numbers["parallel_starts"] == 100
    assert found.bound == ["overhead"]


def test_stages_follow_each_other():
    loops = {"i": (8, "parallel"), "v": (4096, "vectorized")}
    second = {"a": (8, "parallel"), "b": (4096, "vectorized")}
    buffers = {"A": [8, 4096], "B": [8, 4096], "C": [8, 4096]}
    one = Line("i v", "B[i,v]", ["A[i,v]"], operations=1)
    two = Line("a b", "C[a,b]", ["B[a,b]"], operations=1)
    both = behaviours(program({**loops, **second}, buffers, [one, two]), DESKTOP)
    alone = behaviours(program(loops, buffers, [one]), DESKTOP)
    assert both.numbers["parallel_starts"] == 2
    assert both.numbers["flops"] == 2 * alone.numbers["flops"]
    assert both.limits_s["arithmetic"] == pytest.approx(2 * alone.limits_s["arithmetic"])


def test_a_batch_is_its_programs():
    rows = np.array([1, 2, 3, 4, 6, 12])
    columns = np.array([8, 16, 32, 8, 16, 4])
    loops = {"io": (96 // rows, "parallel"), "jo": (128 // columns, "serial"),
             "k": (128, "serial"), "ii": (rows, "unrolled"),
             "v": (columns, "vectorized")}  # fmt: skip
    nests = program(
        loops,
        {"A": [96, 128], "B": [128, 128], "C": [96, 128]},
        [Line("io jo k ii v", "C[ii,v]", ["A[ii,k]", "B[k,v]"], reduces=True)],
    )
    together = behaviours(nests, DESKTOP)
    for row in range(len(rows)):
        alone = behaviours(nests.take(np.array([row])), DESKTOP)
        np.testing.assert_array_equal(alone.scores[0], together.scores[row])
        assert alone.seconds[0] == together.seconds[row]
        assert all(alone.numbers[k][0] == v[row] for k, v in together.numbers.items())


def test_a_gpu_is_refused():
    gpu = Device("g", "G", "gpu", {"units": 1, "fp32_lanes": 64, "warp": 32,
                                   "shared_kib_per_unit": 64})  # fmt: skip
    with pytest.raises(BadInputError, match="'g' is a 'gpu'"):
        behaviours(_chain(), gpu)


def test_rows_of_a_power_of_two_meet_in_few_sets_of_a_cache():
    """A column of 64 lines that lie 4 KiB apart finds eight places in the first cache."""

    def column(stride):
        return program(
            {"j": (8, "serial"), "again": (50, "serial"), "i": (64, "serial")},
            {"A": [64, stride], "B": [8, 50]},
            [Line("j again i", "B[j,again]", ["A[i,j]"], operations=1, reduces=True)],
        )

    together, apart = behaviours(column(1024), DESKTOP), behaviours(column(1040), DESKTOP)
    assert _score(together, "l1_reuse") < 0.1
    assert _score(apart, "l1_reuse") > 0.9


def test_a_column_through_many_pages_walks_the_page_table():
    rows = 8192
    nests = program(
        {"j": (16, "serial"), "i": (rows, "serial")},
        {"A": [rows, 1040], "B": [16]},
        [Line("j i", "B[j]", ["A[i,j]"], operations=1, reduces=True)],
    )
    found = behaviours(nests, DESKTOP).numbers
    assert found["page_walks"] == pytest.approx(16 * rows, rel=0.05)


def test_sums_in_vectors_of_no_power_of_two_are_taken_apart():
    even = behaviours(_matmul(n=96, rows=4, columns=32), DESKTOP)
    uneven = behaviours(_matmul(n=96, rows=4, columns=24), DESKTOP)
    assert uneven.numbers["instructions"] > 2 * even.numbers["instructions"]


def test_code_without_branches_leaves_a_loop_that_changes_nothing():
    """A norm computes its sum in every iteration over a row; unrolled, it is computed once."""

    def row(unroll):
        return program(
            {"i": (64, "serial"), "j": (512, "serial"), "k": (512, "serial")},
            {"A": [64, 512], "S": [1]},
            [Line("i j k", "S[0]", ["A[i,k]"], operations=1, reduces=True, unroll=unroll)],
            scratch=["S"],
        )

    once, again = behaviours(row(512), DESKTOP), behaviours(row(0), DESKTOP)
    assert once.numbers["flops"] == 64 * 512
    assert again.numbers["flops"] == 64 * 512 * 512


def test_a_small_core_takes_vectors_apart_and_waits_for_each():
    small = Device("s", "S", "cpu", {"cores": 4, "simd_fp32_lanes": 4, "l1d_kib_per_core": 32,
                                     "fp32_flop_per_cycle_per_core": 2})  # fmt: skip
    found = behaviours(_matmul(rows=2, columns=4), small)
    assert found.numbers["vector_lanes_of_code"] == 1
    assert found.seconds == pytest.approx(sum(found.limits_s.values()))


_ARM = [key for key, of in known_devices().items() if of.instruction_set in ("aarch64", "armv7")]


@pytest.mark.parametrize("key", _ARM)
def test_neon_reaches_what_the_sheet_says(key):
    """But on A64FX: its two pipes are of 16 lanes with SVE, of 4 with NEON."""
    of = device(key)
    machine = machine_of(of)
    reached = 2 * machine.lanes * machine.arithmetic / of.value("fp32_flop_per_cycle_per_core")
    assert reached == (0.25 if key == "a64fx" else 1)
    assert machine.fused
    assert machine.registers == (16 if of.instruction_set == "armv7" else 32)
    assert machine_of(compiled_generic(of)) == machine, "code of no processor in particular is NEON"


def test_the_cores_of_arm_that_issue_in_order():
    small = {key for key in _ARM if machine_of(device(key)).in_order}
    assert small == {"cortex-a7", "cortex-a53", "cortex-a55", "raspberry-pi-3"}
    assert machine_of(device("cortex-a53")).lanes == 4, "its vectors are whole all the same"


def test_a_product_in_registers_reaches_the_peak_of_a_core_with_four_pipes():
    products = _matmul(rows=6, columns=16)
    found = behaviours(products, device("graviton3"))
    assert found.bound == ["arithmetic"]
    assert _score(found, "vector_compute") == 1
    assert _score(found, "register") == 1
    slower = behaviours(products, device("a64fx"))
    assert _score(slower, "vector_compute") == pytest.approx(0.25)


@pytest.mark.parametrize("element", [8, 4, 2, 1])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_whole_vectors_are_whole_whatever_the_type(bits, element):
    """Two registers of results a row, of as many elements as fit into them."""
    of = _with(simd_fp32_lanes=bits / 32, fp32_flop_per_cycle_per_core=bits / 8)
    lanes = bits // 8 // element
    fp32, found = (
        behaviours(_matmul(columns=2 * bits // 8 // e, rows=4, n=1024, element=e), of)
        for e in (4, element)
    )
    assert found.numbers["vector_lanes_used"] == found.numbers["vector_lanes_of_code"] == lanes
    assert found.numbers["accumulators"] == fp32.numbers["accumulators"] == 8
    assert _score(found, "lane_efficiency") == 1
    assert _score(found, "vector_compute") == 1
    # A column of n elements has as many instructions as it has bytes.
    for name in ("arithmetic_instructions", "load_instructions", "bytes_from_l1"):
        assert found.numbers[name] == pytest.approx(fp32.numbers[name] * element / 4, rel=0.01)
    assert found.limits_s["arithmetic"] == pytest.approx(fp32.limits_s["arithmetic"] * element / 4)


def test_half_of_the_lanes_stay_empty_in_half_a_vector_of_any_type():
    for element in (8, 4, 2):
        found = behaviours(_matmul(columns=16 // element, element=element), DESKTOP)
        assert _score(found, "lane_efficiency") == pytest.approx(0.5)


def _narrowed(source, target):
    """B = A, of so many bytes an element each."""
    return program(
        {"j": (512, "serial"), "v": (16, "vectorized")},
        {"A": [8192], "B": [8192]},
        [Line("j v", "B[16*j+v]", ["A[16*j+v]"], operations=1)],
        element={"A": source, "B": target},
    )


@pytest.mark.parametrize(
    ("source", "target", "loads", "stores"),
    [(4, 4, 2, 2), (8, 4, 4, 2), (1, 4, 2, 2), (2, 4, 2, 2), (4, 8, 4, 4)],
)
def test_a_conversion_moves_the_bytes_of_both_types(source, target, loads, stores):
    """Sixteen elements: wide ones take more loads, narrow ones as many as the arithmetic."""
    found = behaviours(_narrowed(source, target), DESKTOP)
    assert found.numbers["load_instructions"] == 512 * loads
    assert found.numbers["store_instructions"] == 512 * stores
    assert found.numbers["bytes_from_l1"] == pytest.approx(8192 * (source + target))


def test_a_core_that_takes_vectors_apart_computes_one_element_at_a_time():
    small = device("cortex-a7")
    for element in (8, 4, 1):
        found = behaviours(_matmul(rows=2, columns=4, element=element), small)
        assert found.numbers["vector_lanes_of_code"] == 1
        assert _score(found, "lane_efficiency") == 1


def test_older_code_of_x86_has_no_multiply_adds():
    desktop = machine_of(compiled_generic(DESKTOP))
    assert (desktop.lanes, desktop.fused, desktop.registers) == (4, False, 16)
    assert desktop.arithmetic == 2


_TILES = st.tuples(
    st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
    st.sampled_from([1, 4, 8, 16, 32, 64]),
    st.booleans(),
    st.sampled_from([48, 96, 480]),
)


def _tiled(tiles):
    rows, columns, parallel, m = tiles
    return _matmul(m=m, n=128, k=m, rows=rows, columns=columns, parallel=parallel)


@settings(max_examples=40, deadline=None)
@given(
    tiles=_TILES,
    factor=st.sampled_from(["memory_gb_per_s", "boost_mhz", "l1d_kib_per_core", "l3_kib"]),
    times=st.floats(1.01, 2.5),
)
def test_more_of_anything_is_never_slower(tiles, factor, times):
    more = _with(**{factor: DESKTOP.factors[factor] * times})
    nests = _tiled(tiles)
    assert behaviours(nests, more).seconds <= behaviours(nests, DESKTOP).seconds * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(tiles=_TILES, cores=st.integers(1, 64))
def test_more_cores_are_never_slower_but_for_starting_them(tiles, cores):
    def on(count):
        device = _with(cores=count, l2_kib=512 * count, l3_kib=4096 * count)
        found = behaviours(_tiled(tiles), device)
        return found.seconds - found.limits_s["overhead"]

    assert on(cores + 1) <= on(cores) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(tiles=_TILES, lanes=st.sampled_from([4, 8, 16]), l3=st.sampled_from([0, 8192]))
def test_scores_are_in_their_range(tiles, lanes, l3):
    device = _with(simd_fp32_lanes=lanes, fp32_flop_per_cycle_per_core=4 * lanes, l3_kib=l3)
    found = behaviours(_tiled(tiles), device)
    own = [i for i, m in enumerate(METRICS) if "cpu" in m.kinds and (l3 or "l3" not in m.name)]
    assert np.isfinite(found.scores[:, own]).all()
    assert (found.scores[:, own] >= 0).all() and (found.scores[:, own] <= 1).all()
    others = [i for i in range(len(METRICS)) if i not in own]
    assert np.isnan(found.scores[:, others]).all()
    assert all(np.isfinite(v).all() and (v >= 0).all() for v in found.numbers.values())
    assert ("l3" in found.limits_s) == bool(l3)
    assert (found.seconds >= np.max(list(found.limits_s.values()), axis=0) * (1 - 1e-9)).all()


@settings(max_examples=40, deadline=None)
@given(
    tiles=_TILES,
    at=st.integers(0, 5),
    kind=st.sampled_from(["serial", "parallel", "unrolled", "vectorized"]),
)
def test_loops_of_one_iteration_mean_nothing(tiles, at, kind):
    rows, columns, parallel, m = tiles
    names = ["io", "jo", "k", "ii", "v"]
    loops = {"io": (m // rows, "parallel" if parallel else "serial"),
             "jo": (128 // columns, "serial"), "k": (m, "serial"), "ii": (rows, "unrolled"),
             "v": (columns, "vectorized"), "one": (1, kind)}  # fmt: skip
    path = [*names[:at], "one", *names[at:]]
    nests = program(
        loops,
        {"A": [m, m], "B": [m, 128], "C": [m, 128]},
        [Line(" ".join(path), f"C[{rows}*io+ii,{columns}*jo+v]",
              [f"A[{rows}*io+ii+one,k]", f"B[k,{columns}*jo+v]"], reduces=True)],
    )  # fmt: skip
    with_it, without = behaviours(nests, DESKTOP), behaviours(_tiled(tiles), DESKTOP)
    np.testing.assert_allclose(with_it.scores, without.scores)
    np.testing.assert_allclose(with_it.seconds, without.seconds)


def _misses(nests, lines):
    """Lines that a cache of so many lines brings and writes back in the second of two runs.

    Fully associative, the longest unused goes first; every access of the programs' order.
    """
    bases = np.cumsum([0, *(int(np.prod(b.shape[0])) * 4 // 64 + 1 for b in nests.buffers)]) * 64
    cache, count = collections.OrderedDict(), 0
    (statement,) = nests.statements
    extents = [range(int(nests.extents[0, loop])) for loop in statement.path]
    accesses = []
    for access in statement.accesses:
        buffer = nests.buffers[access.buffer]
        strides = [4 * int(np.prod(buffer.shape[0, d + 1 :])) for d in range(buffer.shape.shape[1])]
        terms = [(t.place, int(t.coefficient[0]) * strides[t.dimension]) for t in access.terms]
        accesses.append((int(bases[access.buffer]), terms, access.store))
    for _run in range(2):
        count = 0
        for point in itertools.product(*extents):
            for base, terms, store in accesses:
                line = (base + sum(point[place] * stride for place, stride in terms)) // 64
                if line in cache:
                    cache.move_to_end(line)
                    cache[line] |= store
                    continue
                count += 1
                cache[line] = store
                if len(cache) > lines:
                    _old, dirty = cache.popitem(last=False)
                    count += dirty
    return count


_ORDERS = ["i j k", "i k j", "k i j", "j i k", "io jo k ii ji", "io k jo ii ji", "io jo ko ii k ji"]


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.parametrize("kib", [1, 2, 4])
def test_traffic_is_that_of_a_cache_that_forgets_the_longest_unused(order, kib):
    """Matrices of 4 KiB and less in a small cache, against every access simulated."""
    m = n = k = 24
    tiled = "io" in order
    split_k = "ko" in order
    loops = {"i": (m, "serial"), "j": (n, "serial"), "k": (4 if split_k else k, "serial"),
             "io": (m // 4, "serial"), "jo": (n // 8, "serial"), "ii": (4, "serial"),
             "ji": (8, "serial"), "ko": (k // 4, "serial")}  # fmt: skip
    row, column = ("4*io+ii", "8*jo+ji") if tiled else ("i", "j")
    depth = "4*ko+k" if split_k else "k"
    nests = program(
        loops,
        {"A": [m, k], "B": [k, n], "C": [m, n]},
        [Line(order, f"C[{row},{column}]",
              [f"A[{row},{depth}]", f"B[{depth},{column}]"], reduces=True)],
    )  # fmt: skip
    scalar = {"simd_fp32_lanes": 1, "fp32_flop_per_cycle_per_core": 2}
    device = _with(cores=1, l1d_kib_per_core=kib, l2_kib=512, l3_kib=0, **scalar)
    sharp = replace(CONSTANTS, filled=1.0, sharpness=500.0)
    found = behaviours(nests, device, sharp).numbers["bytes_from_l2"][0] / 64
    counted = _misses(nests, kib * 16)
    assert found == pytest.approx(counted, rel=0.35, abs=12)


@pytest.mark.parametrize(
    ("own", "code", "per_cycle", "fused", "per_core"),
    [(16, 16, 64, True, 64), (16, 8, 64, True, 32), (16, 8, 32, True, 32), (8, 8, 32, True, 32),
     (8, 4, 32, False, 8)],
)  # fmt: skip
def test_code_of_eight_lanes_has_multiply_adds_and_of_four_has_none(
    own, code, per_cycle, fused, per_core
):
    """Operations a cycle that code can reach: AVX2 runs on two pipes, wherever AVX-512 does."""
    machine = machine_of(
        _with(
            simd_fp32_lanes=own,
            simd_fp32_lanes_of_the_compiled_code=code,
            fp32_flop_per_cycle_per_core=per_cycle,
        )
    )
    assert machine.fused == fused
    assert machine.arithmetic * machine.lanes * (2 if fused else 1) == per_core


@pytest.mark.parametrize("path", ["i", ""], ids=["loops of one iteration", "no loops"])
def test_a_program_that_runs_once_takes_as_long_as_its_call(path):
    once = program(
        {"i": ([1, 1], "serial")},
        {"A": [1], "S": [1]},
        [Line(path, "S[0]", ["A[0]"], reduces=True), Line(path, "S[0]", ["S[0]"])],
    )
    found = behaviours(once, DESKTOP)
    assert found.seconds == pytest.approx(CONSTANTS.run_s, rel=0.2)
    # Only what is said of GPUs is not known.
    unknown = np.isnan(behaviours(_copy(MIB), DESKTOP).scores[0])
    assert (np.isnan(found.scores) == unknown).all()
    assert found.bound == ["overhead", "overhead"]
