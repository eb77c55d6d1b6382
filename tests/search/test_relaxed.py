"""Coordinates: they stay feasible, and come back as legal decisions, for extents of any primes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.space import Choice, PerfectTile
from tests.search.gradient_support import columns

torch = pytest.importorskip("torch")

from foretune.search._relaxed import Relaxed, onto_simplex, rounded_sums  # noqa: E402
from foretune_research.climbs import KINDS  # noqa: E402

EXTENTS = (1, 2, 7, 11, 13, 64, 97, 126, 127, 143, 360, 1001, 2 * 509)
CHOICE = Choice("unroll", (0, 16, 64, 512), (0.25,) * 4)


@st.composite
def spaces(draw):
    """Variables, and a kind of coordinates."""
    tiles = []
    for i in range(draw(st.integers(1, 3))):
        extent, parts = draw(st.sampled_from(EXTENTS)), draw(st.integers(2, 4))
        tiles.append(PerfectTile(f"t{i}", extent, parts, draw(st.sampled_from((0, 1, 8, 64)))))
    open_to = dict(enumerate([*tiles, CHOICE]))
    made = draw(st.sampled_from(list(KINDS.values())))
    return open_to, made(open_to, columns(open_to))


@given(spaces(), st.integers(0, 2**32 - 1))
def test_anywhere_leads_to_legal_decisions(drawn, seed):
    open_to, relaxed = drawn
    x = np.random.default_rng(seed).normal(scale=4, size=(16, relaxed.size))
    projected = relaxed.project(torch.from_numpy(x))
    points = relaxed.points(projected).numpy()
    places = columns(open_to)
    for index, variable in open_to.items():
        own = points[:, [at for at, place in enumerate(places) if place[0] == index]]
        if isinstance(variable, PerfectTile):
            np.testing.assert_allclose(own.prod(axis=1), variable.extent, rtol=1e-6)
            assert (own > 1 - 1e-6).all()
            assert not variable.limit or (own[:, -1] <= variable.limit * (1 + 1e-6)).all()
        else:
            assert (own >= -1e-9).all() and (own <= 512 * (1 + 1e-9)).all()
    found = relaxed.rounded(projected.numpy())
    assert found and len({tuple(each.items()) for each in found}) == len(found)
    for changes in found:
        for index, decision in changes.items():
            assert open_to[index].check(decision) == decision


@given(spaces(), st.integers(0, 2**32 - 1))
def test_decisions_come_back_from_their_coordinates(drawn, seed):
    open_to, relaxed = drawn
    decisions = relaxed.sample(np.random.default_rng(seed), 8)
    rows = [[each[index] for index in open_to] for each in decisions]
    x = relaxed.of(rows)
    assert relaxed.nearest(x) == decisions
    np.testing.assert_allclose(relaxed.project(torch.from_numpy(x)), x, atol=1e-6)


@given(spaces(), st.integers(0, 2**32 - 1))
def test_neighbours_are_legal_and_differ_in_one_decision(drawn, seed):
    open_to, relaxed = drawn
    (decisions,) = relaxed.sample(np.random.default_rng(seed), 1)
    for changes in relaxed.neighbours([decisions[index] for index in open_to]):
        ((index, decision),) = changes.items()
        assert decision != decisions[index]
        assert open_to[index].check(decision) == decision


def test_choices_that_the_structure_rules_out_are_not_proposed():
    relaxed = Relaxed({0: CHOICE}, [(0, 0)], {0: [1, 2]})
    found = relaxed.rounded(np.linspace(-2, 12, 30)[:, None])
    assert sorted(each[0] for each in found) == [1, 2]
    assert list(relaxed.neighbours([1])) == [{0: 2}]


def test_tilings_that_are_too_many_to_list_are_rounded_to_legal_ones():
    tile = PerfectTile("t", 2**12 * 3**4 * 5**2 * 127, 6, 64)
    assert tile.table() is None
    relaxed = Relaxed({0: tile}, columns({0: tile}))
    x = relaxed.project(torch.from_numpy(np.random.default_rng(0).normal(4, 4, (32, relaxed.size))))
    found = relaxed.rounded(x.numpy())
    assert len(found) > 16
    assert all(tile.check(each[0]) for each in found)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6), st.integers(1, 12))
def test_the_projection_is_the_nearest_point(values, total):
    x = torch.tensor([values], dtype=torch.float64)
    found = onto_simplex(x, float(total))
    assert float(found.sum()) == pytest.approx(total)
    assert (found >= 0).all()
    # All that is positive moved by the same; what became 0 would have moved further.
    moved = x - found
    shift = moved[found > 1e-9].max()
    assert (moved[found > 1e-9] >= shift - 1e-9).all()
    assert (moved[found <= 1e-9] <= shift + 1e-9).all()


@given(st.lists(st.floats(0, 6), min_size=2, max_size=5), st.integers(1, 9))
def test_rounding_keeps_the_sum_and_moves_nothing_by_more_than_one(values, total):
    x = onto_simplex(torch.tensor([values], dtype=torch.float64), float(total)).numpy()
    found = rounded_sums(x, total)
    assert found.sum() == total and (found >= 0).all()
    assert (np.abs(found - x) < 1 + 1e-6).all()


def test_prime_extents_have_as_many_coordinates_as_parts():
    tile = PerfectTile("t", 127, 4)
    relaxed = Relaxed({0: tile}, columns({0: tile}))
    assert relaxed.size == 4
    assert math.isclose(float(relaxed.points(torch.eye(4, dtype=torch.float64))[0, 0]), 127)
