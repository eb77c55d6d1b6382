"""Sampling without replacement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.search import sampling as samplers
from foretune.search.sampling import FreshSampler
from foretune.space import Space
from foretune.testing import SyntheticMeasurer, SyntheticSpace, synthetic_trial
from tests.tuning.support import HARDWARE, ok, row_sums


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
    fresh.mark([synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(told)])
    drawn = fresh.unseen(99, [c.key for c in excluded])
    assert {c.key for c in drawn} == {c.key for c in left}


def test_unseen_does_not_mark():
    fresh = sampler(tiles=((2, 2),), choices=(2,), sketches=1)
    assert len(fresh.unseen(99)) == len(fresh.unseen(99)) == 4


def test_what_is_missing_of_a_batch_is_random_and_counts_as_proposed():
    fresh = sampler(tiles=((6, 2),), choices=(2,), sketches=1)
    first = fresh.random(2)
    assert fresh.propose(first, 2) == first
    assert fresh.propose((), 0) == []
    rest = fresh.propose(fresh.random(1), 99)
    keys = [c.key for c in [*first, *rest]]
    assert sorted(keys) == sorted(c.key for c in fresh.space.everything())


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


@pytest.fixture(scope="module")
def real():
    """A space, draws of it of which some are the same program, and the programs."""
    space = Space.generate(row_sums(2, 3), HARDWARE)
    candidates = FreshSampler(space, np.random.default_rng(0)).unseen(60)
    programs = {c.key: _tvm.structural_hash(c.schedule().mod) for c in candidates}
    assert len(set(programs.values())) < len(candidates), "the test needs twins"
    return space, candidates, programs


def test_decisions_that_make_one_program_are_proposed_once(real):
    space, candidates, programs = real
    firsts = list({programs[c.key]: c.key for c in reversed(candidates)}.values())
    fresh = FreshSampler(space, np.random.default_rng(0))
    chosen = fresh.propose(fresh.legal(10, candidates))
    chosen += fresh.propose(fresh.legal(60, candidates))
    assert {c.key for c in chosen} == set(firsts) and len(chosen) == len(firsts)
    assert fresh.repeated == set(programs) - set(firsts)
    assert not any(fresh.is_new(c) for c in candidates)


def test_what_others_measured_is_proposed_under_no_other_decisions(real):
    space, candidates, programs = real
    told = [Trial.of(candidate, ok(candidate), "other", {}) for candidate in candidates[:20]]
    fresh = FreshSampler(space, np.random.default_rng(0))
    fresh.mark(told)
    chosen = {programs[c.key] for c in fresh.legal(60, candidates)}
    assert chosen == set(programs.values()) - {programs[c.key] for c in candidates[:20]}


def test_what_failed_by_itself_is_known_and_what_may_have_failed_by_the_machine_is_not(real):
    space, candidates, programs = real
    twins = {}
    for candidate in candidates:
        twins.setdefault(programs[candidate.key], []).append(candidate)
    first, second = [group for group in twins.values() if len(group) > 1][:2]
    fresh = FreshSampler(space, np.random.default_rng(0))
    failed = [(first[0], Status.WRONG_OUTPUT), (second[0], Status.CRASH)]
    fresh.mark([Trial.of(c, Measurement(status), "other", {}) for c, status in failed])
    assert fresh.legal(9, [first[1], second[1]]) == [second[1]]


def test_a_space_whose_programs_were_all_proposed_is_soon_exhausted(real, monkeypatch):
    space, candidates, _ = real
    monkeypatch.setattr(samplers, "_REPEATS", 3)
    fresh = FreshSampler(space, np.random.default_rng(0))
    fresh.propose(fresh.legal(len(candidates), candidates))
    drawn = []
    while got := fresh.propose(fresh.legal(9, (drawn.append(c) or c for c in fresh.stream(9)))):
        assert got
    assert len(fresh.repeated) < len(candidates) + len(drawn) < space.size


def test_repeated_programs_do_not_use_up_what_may_be_drawn(real):
    space, _, programs = real
    fresh = FreshSampler(space, np.random.default_rng(0))
    # With one draw per call, the first repetition would end it.
    calls = [fresh.propose(fresh.legal(1, fresh.stream(1))) for _ in set(programs.values())]
    assert all(map(len, calls)) and fresh.repeated
