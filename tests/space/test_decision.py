from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.space import INLINE, ROOT, Choice, ComputeLocation, PerfectTile
from foretune.space.decision import factorise, variable_from_json, variable_to_json

tiles = st.builds(
    PerfectTile,
    name=st.just("C.i"),
    extent=st.integers(1, 5000),
    parts=st.integers(2, 5),
    limit=st.sampled_from([0, 8, 64]),
)


@given(st.integers(1, 10**6))
def test_factorise_multiplies_back(number: int) -> None:
    assert math.prod(p**e for p, e in factorise(number)) == number


@given(tiles, st.integers(0, 2**32))
def test_tiles_sampled_and_changed_are_legal(tile: PerfectTile, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for factors in tile.sample(rng, 5):
        assert tile.check(factors) == factors
        other = tile.other(factors, rng)
        if tile.size == 1:
            assert other is None
        else:
            assert other is not None
            assert other != factors
            assert tile.check(other) == other


@given(tiles)
def test_tables_hold_every_legal_tiling_once(tile: PerfectTile) -> None:
    table = tile.table()
    assert table is not None
    assert len(set(table)) == len(table) == tile.size
    if tile.parts == 2:
        divisors = [d for d in range(1, tile.extent + 1) if tile.extent % d == 0]
        legal = {(tile.extent // d, d) for d in divisors if not tile.limit or d <= tile.limit}
        assert set(table) == legal


def test_sampling_is_uniform_over_tilings() -> None:
    tile = PerfectTile("C.i", 12, 3, 4)
    drawn = tile.sample(np.random.default_rng(0), 20_000)
    table = tile.table()
    assert table is not None
    counts = np.array([drawn.count(t) for t in table])
    expected = len(drawn) / len(table)
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 3 * len(table)


def test_a_domain_too_large_to_list_is_sampled_all_the_same() -> None:
    tile = PerfectTile("C.i", 2**20 * 3**4 * 5**3, 5, 64)
    assert tile.table() is None
    rng = np.random.default_rng(0)
    drawn = tile.sample(rng, 50)
    assert len(set(drawn)) > 40
    for factors in drawn:
        assert tile.check(factors) == factors
        other = tile.other(factors, rng)
        assert other is not None
        assert tile.check(other) != factors


def test_partitioned_tiles_keep_their_inner_multiple() -> None:
    tile = PerfectTile("C.i", 64, 3, partition=1, inner_multiple=16)
    assert all(math.prod(t[1:]) % 16 == 0 for t in tile.sample(np.random.default_rng(0), 50))
    with pytest.raises(IllegalCandidateError, match="multiply to k \\* 16"):
        tile.check([16, 2, 2])


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ([0, 64], "at least 1"),
        ([-1, -64], "at least 1"),
        ([8, 9], "multiply to the extent 64"),
        ([64], "2 factors"),
        ([1, 64], "at most 32"),
        ([8.0, 8], "integers"),
        ([True, 64], "integers"),
        ("88", "list of factors"),
        (8, "list of factors"),
    ],
)
def test_bad_tiles_are_refused_with_rule_name_and_value(decision: object, message: str) -> None:
    with pytest.raises(IllegalCandidateError, match=message) as caught:
        PerfectTile("C.i", 64, 2, 32).check(decision)
    assert "C.i" in str(caught.value)
    assert repr(decision) in str(caught.value)


@pytest.mark.parametrize("decision", [-1, 3, "0", 1.0, None, True])
def test_bad_choices_are_refused(decision: object) -> None:
    with pytest.raises(IllegalCandidateError, match=r"index in \[0, 3\)"):
        Choice("unroll", (0, 16, 64), (0.5, 0.25, 0.25)).check(decision)


def test_choices_follow_their_weights() -> None:
    choice = Choice("unroll", (0, 16, 64), (0.8, 0.2, 0.0))
    drawn = choice.sample(np.random.default_rng(0), 5000)
    assert set(drawn) == {0, 1}
    assert 0.75 < drawn.count(0) / 5000 < 0.85
    others = {choice.other(1, np.random.default_rng(seed)) for seed in range(50)}
    assert others == {0}
    favoured = Choice("parallel", (0, 2, 8, 32), (0.01, 0.095, 0.095, 0.8))
    rng = np.random.default_rng(0)
    drawn = [favoured.other(1, rng) for _ in range(2000)]
    assert 1 not in drawn
    assert drawn.count(0) < 150
    assert drawn.count(2) > 300
    assert Choice("unroll", (0,), (1.0,)).other(0, np.random.default_rng(0)) is None


def test_a_location_must_be_in_its_domain() -> None:
    location = ComputeLocation("pad")
    assert location.check(3, (INLINE, ROOT, 3)) == 3
    with pytest.raises(IllegalCandidateError, match="fits only at"):
        location.check(2, (INLINE, ROOT, 3))
    with pytest.raises(IllegalCandidateError, match="integer"):
        location.check("3", (ROOT,))


@given(tiles)
def test_variables_survive_json(tile: PerfectTile) -> None:
    for variable in (tile, Choice("c", (1, 2), (0.5, 0.5)), ComputeLocation("b", 3)):
        assert variable_from_json(variable_to_json(variable)) == variable


def test_unknown_variables_are_refused() -> None:
    with pytest.raises(BadInputError, match="decision variable"):
        variable_from_json({"kind": "guess"})
