"""Sampling without replacement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.search._sampling import FreshSampler
from foretune.testing import SyntheticMeasurer, SyntheticSpace, synthetic_record


def sampler(seed=0, **options):
    return FreshSampler(SyntheticSpace(**options), np.random.default_rng(seed))


@settings(max_examples=30, deadline=None)
@given(
    extent=st.integers(1, 24),
    parts=st.integers(1, 3),
    options=st.integers(1, 3),
    batch=st.integers(1, 17),
    seed=st.integers(0, 99),
)
def test_a_small_space_is_covered_exactly_once(extent, parts, options, batch, seed):
    fresh = sampler(seed, tiles=((extent, parts),), choices=(options,), sketches=2)
    drawn = []
    while got := fresh.propose(fresh.unseen(batch)):
        drawn += [c.key for c in got]
    assert sorted(drawn) == sorted(c.key for c in fresh.space.everything())


def test_what_was_told_or_excluded_is_not_drawn():
    fresh = sampler(tiles=((6, 2),), choices=(2,), sketches=1)
    everything = list(fresh.space.everything())
    told, excluded, left = everything[:3], everything[3:5], everything[5:]
    fresh.mark([synthetic_record(c, m) for c, m in SyntheticMeasurer().measure(told)])
    drawn = fresh.unseen(99, [c.key for c in excluded])
    assert {c.key for c in drawn} == {c.key for c in left}


def test_unseen_does_not_mark():
    fresh = sampler(tiles=((2, 2),), choices=(2,), sketches=1)
    assert len(fresh.unseen(99)) == len(fresh.unseen(99)) == 4


def test_illegal_candidates_are_remembered_and_other_errors_are_not_hidden():
    fresh = sampler(illegal=0.5)
    candidates = fresh.space.sample(np.random.default_rng(0), 40)
    legal = fresh.legal(40, candidates)
    assert [c.key for c in legal] == [c.key for c in candidates if c.legal]
    assert fresh.illegal == {c.key for c in candidates if not c.legal}

    class Broken:
        key = "broken"

        def apply(self):
            raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        fresh.legal(1, [Broken()])


def test_the_stream_ends_at_its_limit():
    assert len(list(sampler().stream(100))) == 100
    assert len({c.key for c in sampler().stream(100)}) == 100
