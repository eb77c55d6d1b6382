"""The synthetic space is what it says: known optimum, like a real space to its users."""

from __future__ import annotations

import inspect
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.measure import Status
from foretune.records import Record, Trial
from foretune.space import Candidate, Space
from foretune.testing import (
    SyntheticCandidate,
    SyntheticMeasurer,
    SyntheticSpace,
    measurers,
    synthetic_features,
    synthetic_trial,
)
from foretune.testing.synthetic import factorisations

SMALL = dict(tiles=((12, 3), (8, 2)), choices=(3,), sketches=2)


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_is_the_unique_fastest(seed):
    space = SyntheticSpace(**SMALL, seed=seed)
    ranked = sorted(space.everything(), key=lambda c: c.seconds)
    assert ranked[0] == space.optimum
    assert ranked[1].seconds > ranked[0].seconds
    assert len({c.key for c in ranked}) == space.size == len(ranked)


def test_the_optimum_is_legal_and_does_not_fail():
    space = SyntheticSpace(**SMALL, illegal=1.0, failing=1.0)
    space.optimum.apply()
    assert not space.optimum.fails


def test_shares_of_illegal_and_failing_candidates():
    candidates = SyntheticSpace(illegal=0.3, failing=0.1).sample(np.random.default_rng(0), 2000)
    assert abs(np.mean([not c.legal for c in candidates]) - 0.3) < 0.05
    assert abs(np.mean([c.fails for c in candidates]) - 0.1) < 0.05
    illegal = next(c for c in candidates if not c.legal)
    with pytest.raises(IllegalCandidateError):
        illegal.apply()


@settings(max_examples=50, deadline=None)
@given(extent=st.integers(1, 200), parts=st.integers(1, 4))
def test_factorisations_are_all_and_distinct(extent, parts):
    found = factorisations(extent, parts)
    assert len(set(found)) == len(found)
    assert all(math.prod(f) == extent and len(f) == parts for f in found)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000))
def test_moves_stay_in_the_space(seed):
    space, rng = SyntheticSpace(**SMALL), np.random.default_rng(seed)
    inside = {c.key for c in space.everything()}
    a, b = space.sample(rng, 2)
    assert {c.key for c in (a, b, space.mutate(a, rng), space.crossover(a, b, rng))} <= inside


def test_json_and_pickle_round_trip():
    space = SyntheticSpace()
    for candidate in space.sample(np.random.default_rng(0), 20):
        assert space.candidate(candidate.to_json()) == candidate
        assert pickle.loads(pickle.dumps(candidate)) == candidate
        trial = synthetic_trial(candidate, SyntheticMeasurer().compare([candidate])[0])
        assert Trial.again(Record.from_json(trial.to_json()), candidate) == trial
    with pytest.raises(BadInputError):
        space.candidate({"sketch": "other", "decisions": []})
    with pytest.raises(IllegalCandidateError):
        space.candidate({**space.optimum.to_json(), "decisions": [[1], [1], [1], 0, 0]})


def test_it_has_what_a_real_space_and_candidate_have():
    def public(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    space = SyntheticSpace()
    lacks = public(Space) - public(type(space)) - set(vars(space)) - {"generate"}
    assert not lacks, f"SyntheticSpace lacks {lacks}"
    # A synthetic candidate has no program, hence no schedule and no scheduling actions.
    fields = set(vars(space.optimum))
    lacks = public(Candidate) - public(SyntheticCandidate) - fields
    assert lacks <= {"schedule", "actions", "trusted"}, f"SyntheticCandidate lacks {lacks}"
    for name in ("sample", "mutate", "crossover", "candidate"):
        real, synthetic = (inspect.signature(getattr(c, name)) for c in (Space, SyntheticSpace))
        assert list(real.parameters) == list(synthetic.parameters), name


def test_measurements_follow_the_formula():
    space = SyntheticSpace(illegal=0.3, failing=0.3)
    for c, m in SyntheticMeasurer().measure(space.sample(np.random.default_rng(0), 50)):
        expected = (
            Status.COMPILE_ERROR if not c.legal else Status.RUN_ERROR if c.fails else Status.OK
        )
        assert m.status is expected
        assert m.best_s == (c.seconds if expected is Status.OK else None)


def test_noise_only_ever_adds_time():
    candidates = SyntheticSpace().sample(np.random.default_rng(0), 50)
    readings = [m.best_s / c.seconds for c, m in SyntheticMeasurer(0.1).measure(candidates)]
    assert min(readings) >= 1 and 1.02 < np.mean(readings) < 1.3


def test_features_tell_candidates_apart_and_mark_illegal_ones():
    space = SyntheticSpace(illegal=0.2)
    candidates = space.sample(np.random.default_rng(0), 100)
    rows = synthetic_features(candidates)
    assert [row is None for row in rows] == [not c.legal for c in candidates]
    distinct = {row.tobytes() for row in rows if row is not None}
    assert len(distinct) == len({c.key for c in candidates if c.legal})


@pytest.mark.parametrize("check", measurers.CHECKS, ids=lambda check: check.__name__)
def test_the_synthetic_measurer_keeps_the_contract(check):
    candidates = SyntheticSpace(failing=0.4).sample(np.random.default_rng(0), 8)
    check(SyntheticMeasurer, candidates)
