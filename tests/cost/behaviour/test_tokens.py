"""Tokens of programs: what columns say, by hand, and what they do not depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cost.behaviour.tokens import COLUMNS, MOST_TOKENS, tokens
from foretune.describe import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
)
from foretune.hardware import Device

DEVICE = Device(
    "small",
    "A small processor",
    "cpu",
    {
        "cores": 4,
        "simd_fp32_lanes": 8,
        "fp32_flop_per_cycle_per_core": 32,
        "l1d_kib_per_core": 32,
        "l2_kib": 1024,
        "l3_kib": 8192,
    },
)
LOOPS = ("i", "j", "k", "v")


def product(rows=(64,), columns=(8,), depth=(256,), vector=(16,)):
    """C[i, j * V + v] += A[i, k] * B[k, j * V + v]: parallel i, then j, k, vectorised v."""
    i, j, k, v = (np.array(size, dtype=np.float64) for size in (rows, columns, depth, vector))
    n, one = len(i), np.ones(len(i))

    def term(dimension, place, values, coefficient=one):
        return Term(dimension, place, coefficient * np.ones(n), values, one)

    c = (term(0, 0, i), term(1, 1, j, v), term(1, 3, v))
    a = (term(0, 0, i), term(1, 2, k))
    b = (term(0, 2, k), term(1, 1, j, v), term(1, 3, v))
    accesses = (Access(0, False, c), Access(1, False, a), Access(2, False, b), Access(0, True, c))
    statement = Statement((0, 1, 2, 3), accesses, 2 * one, 0 * one, 0 * one, 0 * one, True, one)
    shapes = ((i, j * v), (i, k), (k, j * v))
    return Nests(
        kinds=np.tile(np.array([PARALLEL, SERIAL, SERIAL, VECTORIZED], np.int8), (n, 1)),
        extents=np.stack([i, j, k, v], axis=1),
        axes=("",) * 4,
        reduction=(False, False, True, False),
        buffers=tuple(
            Buffer(name, "global", 4, np.stack(shape, axis=1))
            for name, shape in zip("CAB", shapes, strict=True)
        ),
        statements=(statement,),
        gpu=False,
        approximate=np.zeros(n, bool),
    )


def with_empty_loop(nests, place):
    """The same programs with a loop of one iteration at a place of the path."""
    n = len(nests)
    (statement,) = nests.statements
    at = len(LOOPS)

    def moved(access):
        terms = tuple(replace(t, place=t.place + (t.place >= place)) for t in access.terms)
        return replace(access, terms=terms)

    path = (*statement.path[:place], at, *statement.path[place:])
    accesses = tuple(moved(access) for access in statement.accesses)
    return replace(
        nests,
        kinds=np.concatenate([nests.kinds, np.full((n, 1), SERIAL, np.int8)], axis=1),
        extents=np.concatenate([nests.extents, np.ones((n, 1))], axis=1),
        axes=(*nests.axes, ""),
        reduction=(*nests.reduction, False),
        statements=(replace(statement, path=path, accesses=accesses),),
    )


def named(found, row, token):
    """The columns of one token by name."""
    assert found.mask[row, token]
    return dict(zip(COLUMNS, found.rows[row, token].tolist(), strict=True))


def loop(found, name):
    return named(found, 0, 1 + LOOPS.index(name))


def test_the_device_stands_first_then_loops_then_the_statement():
    found = tokens(product(), DEVICE)
    assert found.rows.shape == (1, MOST_TOKENS, len(COLUMNS))
    assert found.mask[0].tolist() == [True] * 6 + [False] * (MOST_TOKENS - 6)
    kinds = [[name for name in COLUMNS[:4] if named(found, 0, at)[name] == 1] for at in range(6)]
    assert kinds == [["is_device"], *[["is_loop"]] * 4, ["is_statement"]]
    assert not found.rows[~found.mask].any()


def test_loops_say_what_they_are():
    found = tokens(product(), DEVICE)
    assert loop(found, "i")["loop.kind_parallel"] == loop(found, "v")["loop.kind_vectorized"] == 1
    assert [loop(found, name)["loop.extent"] for name in LOOPS] == [6, 3, 8, 4]
    assert [loop(found, name)["loop.around"] for name in LOOPS] == [0, 6, 9, 17]
    assert [loop(found, name)["loop.inside"] for name in LOOPS] == [15, 12, 4, 0]
    assert [loop(found, name)["loop.reduction"] for name in LOOPS] == [0, 0, 1, 0]
    # 64 rows on 4 cores; 16 floats in vectors of 8.
    assert loop(found, "i")["loop.run_over_units"] == 4
    assert loop(found, "i")["loop.units_filled"] == 1
    assert loop(found, "v")["loop.extent_over_lanes"] == 1


def test_bytes_are_those_that_the_loops_inside_touch():
    found = tokens(product(), DEVICE)
    # C 16 floats, A 256, B 256 x 16: 64 + 1024 + 16384 bytes within j, 8 columns of blocks around.
    inside = 64 + 1024 + 16384
    whole = 8 * 64 + 1024 + 8 * 16384
    assert loop(found, "j")["loop.bytes_inside"] == pytest.approx(np.log2(inside), abs=1e-5)
    assert loop(found, "j")["loop.bytes"] == pytest.approx(np.log2(whole), abs=1e-5)
    over = np.log2(whole / (256 * 1024))
    assert loop(found, "j")["loop.bytes_over_cache_2"] == pytest.approx(over, abs=1e-5)
    everything = 64 * 128 * 4 + 64 * 256 * 4 + 256 * 128 * 4
    statement = named(found, 0, 5)
    assert statement["statement.bytes"] == pytest.approx(np.log2(everything), abs=1e-5)


def test_steps_say_which_loops_move_what():
    found = tokens(product(), DEVICE)
    # Along v A stands still, C and B go on by one float; k moves A by one and B by a row.
    assert loop(found, "v")["loop.loads_still"] == pytest.approx(1 / 3)
    assert loop(found, "v")["loop.loads_contiguous"] == pytest.approx(2 / 3)
    assert loop(found, "v")["loop.store_contiguous"] == 1
    assert loop(found, "k")["loop.store_still"] == 1
    assert loop(found, "k")["loop.loads_step"] == pytest.approx((0 + 2 + 9) / 3)
    statement = named(found, 0, 5)
    assert statement["statement.load1_lane_still"] == 1
    assert statement["statement.load2_lane_contiguous"] == 1
    # 16 sums in flight within k.
    assert statement["statement.accumulators"] == 4


def test_an_unrolled_loop_is_seen_by_its_pragma():
    nests = product(depth=(4,))
    (statement,) = nests.statements
    unrolled = replace(nests, statements=(replace(statement, unroll=np.array([64.0])),))
    found = tokens(unrolled, DEVICE)
    assert [loop(found, name)["loop.unrolled_whole"] for name in LOOPS] == [0, 0, 1, 1]
    assert loop(found, "j")["loop.unroll_room"] == -3


def test_neighbours_of_one_kind_are_seen_as_one():
    nests = product(rows=(8,), columns=(4,))
    kinds = nests.kinds.copy()
    kinds[:, 1] = PARALLEL
    found = tokens(replace(nests, kinds=kinds), DEVICE)
    assert loop(found, "i")["loop.run"] == loop(found, "j")["loop.run"] == 5
    assert loop(found, "k")["loop.run"] == 8


def test_names_have_no_part():
    nests = product()
    other = tuple(replace(b, name=f"T_{at}") for at, b in enumerate(nests.buffers))
    renamed = replace(nests, buffers=other)
    assert np.array_equal(tokens(nests, DEVICE).rows, tokens(renamed, DEVICE).rows)
    same = replace(DEVICE, key="other", name="Another name of it", source="elsewhere")
    assert np.array_equal(tokens(nests, DEVICE).rows, tokens(nests, same).rows)


sizes = st.lists(st.integers(1, 64), min_size=3, max_size=3)


@settings(deadline=None, max_examples=30)
@given(sizes, sizes, sizes, st.integers(0, 4))
def test_loops_of_one_iteration_have_no_part(rows, columns, depth, place):
    nests = product(rows, columns, depth, (8, 1, 16))
    found, more = tokens(nests, DEVICE), tokens(with_empty_loop(nests, place), DEVICE)
    assert np.array_equal(found.mask, more.mask)
    assert np.allclose(found.rows, more.rows, atol=1e-6)
    assert found.mask.sum(axis=1).tolist() == (2 + (nests.extents > 1).sum(axis=1)).tolist()


@settings(deadline=None, max_examples=30)
@given(sizes, sizes, sizes)
def test_a_program_has_the_same_tokens_in_any_batch(rows, columns, depth):
    nests = product(rows, columns, depth, (8, 1, 16))
    found = tokens(nests, DEVICE)
    for row in range(3):
        alone = tokens(nests.take(np.array([row])), DEVICE)
        assert np.array_equal(found.rows[row], alone.rows[0])
        assert np.array_equal(found.mask[row], alone.mask[0])


def test_columns_stay_small_on_sizes_that_nobody_has():
    found = tokens(product((2**20,), (2**20,), (2**20,), (2**10,)), DEVICE)
    assert np.isfinite(found.rows).all()
    assert np.abs(found.rows).max() <= 90


def test_the_device_is_in_its_token_and_in_what_sizes_are_compared_with():
    nests = product()
    larger = replace(DEVICE, factors={**DEVICE.factors, "l1d_kib_per_core": 64, "cores": 8})
    one, other = tokens(nests, DEVICE), tokens(nests, larger)
    changed = {COLUMNS[at] for at in np.flatnonzero((one.rows != other.rows).any(axis=(0, 1)))}
    assert {"device.cores", "device.l1d_kib_per_core"} <= changed
    assert {"loop.bytes_over_cache_1", "loop.run_over_units"} <= changed
    assert "loop.bytes" not in changed and "loop.extent" not in changed
    assert named(one, 0, 0)["device.cores"] == pytest.approx(np.log2(5))


def test_an_unknown_device_is_said_to_be_unknown():
    found = tokens(product(), None)
    device = named(found, 0, 0)
    assert device["is_device"] == 1
    assert {value for name, value in device.items() if name.startswith("device.")} == {0}
    assert np.isfinite(found.rows).all()


def test_decisions_stand_last():
    found = tokens(product(), DEVICE, [((4, 32), 2)])
    tile, choice = named(found, 0, 6), named(found, 0, 7)
    assert tile["is_decision"] == choice["is_decision"] == 1
    assert (tile["decision.tile"], tile["decision.factor0"], tile["decision.factor1"]) == (1, 2, 5)
    assert (choice["decision.choice"], choice["decision.factor0"]) == (1, pytest.approx(np.log2(3)))


def test_of_a_long_program_the_tokens_of_most_work_are_kept():
    nests = product()
    (heavy,) = nests.statements
    light = replace(heavy, path=(), accesses=(Access(0, True, ()),), operations=np.zeros(1))
    long = replace(nests, statements=(*(light,) * 40, heavy, *(light,) * 40))
    found = tokens(long, DEVICE)
    assert found.mask.all()
    of_loops = found.rows[0, :, COLUMNS.index("is_loop")] == 1
    assert of_loops.sum() == 4
    assert found.rows[0, 0, COLUMNS.index("is_device")] == 1
    share = found.rows[0, found.rows[0, :, COLUMNS.index("is_statement")] == 1]
    assert share[:, COLUMNS.index("work_share")].max() > 0.99
