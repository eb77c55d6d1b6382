"""States made of features: what they keep, their files, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.world import feature_states
from foretune.world.feature_states import FeatureStates

V = 12


def programs(seed=0, workloads=4, each=10):
    """Features of programs: workloads lie far apart, programs differ in three directions."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((3, V))
    centres = 20.0 * rng.standard_normal((workloads, V))
    coordinates = rng.standard_normal((workloads, each, 3))
    vectors = centres[:, None] + coordinates @ directions
    owner = [f"w{number}" for number in range(workloads) for _ in range(each)]
    return vectors.reshape(-1, V).astype(np.float32), owner


def test_directions_are_those_in_which_the_programs_of_workloads_differ():
    vectors, owner = programs()
    states = FeatureStates.fit(vectors, owner, 64)
    # Three directions, and the number that keeps the length: where workloads lie is not looked at.
    assert states.dimension == 4 and states.features == V
    found = states.of(vectors)
    assert found.shape == (len(vectors), 4) and found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    # Nothing is lost: the point can be read off the state.
    back = found[:, :-1] / found[:, -1:] * 0.5
    scaled = np.clip((vectors - states._shift) * states._factor, -6, 6) @ states._directions
    assert np.allclose(back, scaled, atol=1e-4)


def test_fewer_directions_are_the_strongest():
    vectors, owner = programs()
    whole, two = (FeatureStates.fit(vectors, owner, d) for d in (64, 3))
    assert two.dimension == 3
    cosines = [
        abs(float(a @ b)) / (np.linalg.norm(a) * np.linalg.norm(b))
        for a, b in zip(whole._directions.T, two._directions.T, strict=False)
    ]
    assert np.allclose(cosines, 1.0, atol=1e-4)


@given(st.integers(0, 2**16), st.floats(1.0, 1e6))
def test_whatever_is_read_becomes_a_state(seed, size):
    vectors, owner = programs()
    states = FeatureStates.fit(vectors, owner, 8)
    wild = (size * np.random.default_rng(seed).standard_normal((3, V))).astype(np.float32)
    found = states.of(wild)
    assert np.isfinite(found).all()
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)


def test_features_that_never_differed_are_not_looked_at():
    vectors, owner = programs()
    vectors[:, 5] = 3.0
    states = FeatureStates.fit(vectors, owner, 8)
    other = vectors.copy()
    other[:, 5] = 9.0
    assert np.array_equal(states.of(vectors), states.of(other))


def test_programs_that_are_all_alike_have_a_state():
    vectors = np.ones((3, V), np.float32)
    states = FeatureStates.fit(vectors, ["a", "a", "b"], 8)
    assert np.isfinite(states.of(vectors)).all()


def test_a_file_holds_everything(tmp_path):
    vectors, owner = programs()
    states = FeatureStates.fit(vectors, owner, 8)
    states.save(tmp_path / "s.npz")
    assert np.array_equal(FeatureStates.load(tmp_path / "s.npz").of(vectors), states.of(vectors))


def test_another_schema_is_refused(tmp_path, monkeypatch):
    vectors, owner = programs()
    FeatureStates.fit(vectors, owner, 8).save(tmp_path / "s.npz")
    monkeypatch.setattr(feature_states, "SCHEMA", "another")
    with pytest.raises(VersionMismatchError, match="schema"):
        FeatureStates.load(tmp_path / "s.npz")


@pytest.mark.parametrize("broken", [{"shift": None}, {"factor": np.zeros(3)}])
def test_a_damaged_part_is_refused(broken):
    vectors, owner = programs()
    meta, arrays = FeatureStates.fit(vectors, owner, 8).dump()
    arrays = {k: v for k, v in {**arrays, **broken}.items() if v is not None}
    with pytest.raises(RecordError, match="damaged"):
        FeatureStates.restore(meta, arrays)


def test_bad_input():
    vectors, owner = programs()
    with pytest.raises(BadInputError, match="dimension >= 2"):
        FeatureStates.fit(vectors, owner, 1)
    with pytest.raises(BadInputError, match="at least 1 program"):
        FeatureStates.fit(vectors[:0], [], 8)
    with pytest.raises(BadInputError, match=r"shape \(n, 12\)"):
        FeatureStates.fit(vectors, owner, 8).of(vectors[:, :5])
