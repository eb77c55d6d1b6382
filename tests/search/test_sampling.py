"""Sampling without replacement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.evaluate.tables import every_candidate
from foretune.search._sampling import FreshSampler, program_key
from foretune.space import Candidate, Space
from foretune.testing import SyntheticMeasurer, SyntheticSpace, synthetic_record
from foretune.workload import Workload
from tests.dataset.measured import record
from tests.space.programs import CPU


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


@pytest.fixture(scope="module")
def space() -> Space:
    """Short loops leave little to decide."""
    te = _tvm.tvm.te
    x, k = te.placeholder((4, 3), name="x"), te.reduce_axis((0, 3), name="k")
    y = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="y")
    return Space.generate(Workload.from_module(te.create_prim_func([x, y]), "maximum"), CPU)


@pytest.fixture(scope="module")
def programs(space: Space) -> dict[str, list[Candidate]]:
    """All candidates by their programs."""
    found: dict[str, list[Candidate]] = {}
    for candidate in every_candidate(space):
        found.setdefault(program_key(candidate), []).append(candidate)
    assert len(found) < space.size / 2
    return found


@pytest.mark.parametrize(("batch", "seed"), [(3, 0), (64, 1)])
def test_every_program_is_proposed_once(space, programs, batch, seed):
    fresh = FreshSampler(space, np.random.default_rng(seed))
    proposed = []
    while got := fresh.propose(fresh.legal(batch, fresh.stream(1000))):
        proposed += map(program_key, got)
    assert len(set(proposed)) == len(proposed) <= len(programs)
    # Some choices are drawn once in a hundred times: what they alone make may be missed.
    drawn = space.sample(np.random.default_rng(9), 300)
    assert {program_key(candidate) for candidate in drawn} <= set(proposed) <= set(programs)


def test_repeated_programs_do_not_use_up_what_may_be_drawn(space, programs):
    fresh = FreshSampler(space, np.random.default_rng(0))
    # With one draw per call, the first repetition would end it.
    calls = [fresh.propose(fresh.legal(1, fresh.stream(1))) for _ in range(len(programs) // 2)]
    assert all(map(len, calls)) and fresh.repeated


def test_a_told_program_is_not_proposed_and_nor_is_one_beside_it(space, programs):
    fresh = FreshSampler(space, np.random.default_rng(0))
    told, beside, *others = (group for group in programs.values() if len(group) > 1)
    fresh.mark([record(told[0])])
    assert fresh.legal(9, [told[1], beside[0]], [beside[1]]) == []
    assert fresh.repeated == {told[1].key}
    assert fresh.legal(9, [*others[0], *others[1]]) == [others[0][0], others[1][0]]
