"""What strategies need of a space: every kind of space has it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.hardware import preset
from foretune.space import Space
from foretune.testing import SyntheticSpace
from foretune.workload import load_input
from tests.plans.spaces import space as plans


def schedules():
    return Space.generate(load_input("matmul:16x16x16"), preset("x86-64-v3"))


@pytest.fixture(scope="module", params=[schedules, SyntheticSpace, plans])
def space(request):
    return request.param()


def test_samples_are_candidates_of_the_space(space):
    found = space.sample(np.random.default_rng(0), 8)
    assert 0 < len(found) <= 8
    keys = {sketch.key for sketch in space.sketches}
    for candidate in found:
        assert candidate.sketch.key in keys
        assert len(candidate.decisions) == len(candidate.sketch.variables)
        assert candidate.workload.key == space.workload.key
        assert candidate.hardware == space.hardware
    assert space.size == sum(sketch.size for sketch in space.sketches)


def test_the_same_seed_draws_the_same(space):
    def drawn():
        rng = np.random.default_rng(5)
        a, b = space.sample(rng, 2)
        children = [space.mutate(a, rng), space.crossover(a, b, rng), space.edit(a, {}, rng)]
        return [candidate.key for candidate in (a, b, *children)]

    assert drawn() == drawn()


def test_keys_tell_candidates_apart(space):
    found = space.sample(np.random.default_rng(1), 32)
    assert len({c.key for c in found}) == len(set(found))
    for candidate in found[:4]:
        assert space.candidate(json.loads(json.dumps(candidate.to_json()))) == candidate
        assert hash(candidate) == hash(space.candidate(candidate.to_json()))


def test_candidates_of_other_spaces_are_refused(space):
    (candidate,) = space.sample(np.random.default_rng(2), 1)
    with pytest.raises(BadInputError):
        space.candidate({**candidate.to_json(), "sketch": "f" * 16})


def test_starts_and_the_default_are_candidates_of_the_space(space):
    for candidate in [*space.starts, *([space.default] if space.default else [])]:
        assert space.candidate(candidate.to_json()) == candidate
