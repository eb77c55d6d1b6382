"""Recipes: what was decided for one program, followed for another one."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.space import PerfectTile, Recipe, Space, frame_of
from foretune.space.recipe import nearest_tile
from foretune.workload import Workload
from tests.space import programs

te = _tvm.tvm.te


@functools.cache
def product(rows: int, columns: int, depth: int, relu: bool = False) -> Space:
    a, b = (te.placeholder(s, name=n) for n, s in (("A", (rows, depth)), ("B", (depth, columns))))
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    last: Any = c
    if relu:
        zero = te.const(0.0, "float32")
        last = te.compute(c.shape, lambda *i: te.max(c[i], zero), name="relu")
    function = te.create_prim_func([a, b, last])
    return Space.generate(Workload.from_module(function, "product"), programs.CPU)


@pytest.fixture(scope="module")
def small() -> Space:
    return product(64, 128, 96)


@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(programs.PROGRAMS)))
@settings(max_examples=60, deadline=None)
def test_a_candidate_that_is_moved_to_its_own_program_is_itself(seed: int, name: str) -> None:
    space = programs.space(name)
    for candidate in space.sample(np.random.default_rng(seed), 3):
        recipe = Recipe.of(candidate)
        assert recipe.follow(candidate.sketch) == candidate
        assert recipe.distance(candidate.sketch) == 0.0


@given(seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_a_candidate_that_is_moved_is_legal_and_can_be_applied(
    seed: int,
) -> None:
    small, odd = product(64, 128, 96), product(63, 160, 77)
    (candidate,) = small.sample(np.random.default_rng(seed), 1)
    recipe = Recipe.of(candidate)
    (sketch,) = [s for s in odd.sketches if frame_of(s) == recipe.frame]
    moved = recipe.follow(sketch)
    assert odd.candidate(moved.to_json()) == moved
    assert moved.apply() is not None


def test_inner_factors_stay_and_the_outermost_one_takes_what_is_left() -> None:
    assert nearest_tile(PerfectTile("i", 1344, 4), (4, 1, 14, 16)) == (6, 1, 14, 16)
    assert nearest_tile(PerfectTile("i", 112, 4), (4, 2, 14, 16)) == (1, 1, 7, 16)
    assert nearest_tile(PerfectTile("k", 77, 2), (24, 4)) == (11, 7)
    # Seven is nearer to eight than one is, and eleven is farther away.
    assert nearest_tile(PerfectTile("j", 77, 4), (1, 1, 1, 8)) == (11, 1, 1, 7)


@given(
    extent=st.integers(1, 4096),
    factors=st.lists(st.integers(1, 64), min_size=4, max_size=4),
    limit=st.sampled_from([0, 16, 64]),
)
@settings(max_examples=200, deadline=None)
def test_a_tile_that_is_moved_is_in_the_domain(extent: int, factors: list[int], limit: int) -> None:
    try:
        variable = PerfectTile("i", extent, 4, limit)
        table = variable.table()
    except BadInputError:
        return
    tile = nearest_tile(variable, factors)
    assert variable.check(list(tile)) == tile
    if table is not None and tuple(factors) in table:
        assert tile == tuple(factors)


def test_a_loop_with_too_many_tiles_for_a_table_is_moved_as_well() -> None:
    variable = PerfectTile("i", 2**24 * 3**6, 4)
    assert variable.table() is None
    tile = nearest_tile(variable, (1 << 12, 1 << 6, 9, 64))
    assert math.prod(tile) == variable.extent
    assert np.abs(np.log2(tile[1:]) - np.log2((64, 9, 64))).max() < 0.25


def test_what_is_fused_behind_makes_no_other_frame(small: Space) -> None:
    with_relu = product(64, 128, 96, relu=True)
    assert {frame_of(s) for s in small.sketches} & {frame_of(s) for s in with_relu.sketches}


def test_nearer_lengths_are_nearer(small: Space) -> None:
    (candidate,) = small.sample(np.random.default_rng(0), 1)
    recipe = Recipe.of(candidate)

    def distance(other: Space) -> float:
        return min(recipe.distance(s) for s in other.sketches if frame_of(s) == recipe.frame)

    assert distance(product(64, 128, 192)) == pytest.approx(math.sqrt(1 / 3))
    assert distance(product(128, 256, 192)) == pytest.approx(1.0)


def test_a_recipe_is_not_followed_for_another_frame(small: Space) -> None:
    (candidate,) = small.sample(np.random.default_rng(0), 1)
    with pytest.raises(BadInputError, match="for sketches of its frame"):
        Recipe.of(candidate).follow(programs.space("softmax").sketches[0])
