"""Times in [0, 1] and bins of one size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foretune.cost.behaviour.targets import TARGETS, bin_weights, normalised
from foretune.errors import BadInputError

pytest.importorskip("torch")

from foretune_research.behaviour.perceptron import over_sampled

TIMES = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("linear", [0, 1 / 31, 3 / 31, 1, 1]),
        ("log", [0, 1 / 5, 2 / 5, 1, 1]),
        ("octaves", [0, 1 / 4, 2 / 4, 1, 1]),
    ],
)
def test_times_by_hand(target, wanted):
    seconds = 1e-3 * np.array([1, 2, 4, 32, np.nan])
    np.testing.assert_allclose(normalised(seconds, target), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_one_time_is_nobodys_fault(target):
    assert normalised(np.array([2e-3, 2e-3, np.nan]), target).tolist() == [0, 0, 1]


def test_an_unknown_target_is_refused():
    with pytest.raises(BadInputError, match=r"'square'.*octaves, log, linear|octaves"):
        normalised(np.ones(2), "square")


def test_bins_by_hand():
    # Bins of 0.1: four in the first, one in the third, two in the last.
    times = np.array([0.0, 0.01, 0.05, 0.09, 0.25, 0.95, 1.0])
    assert bin_weights(times, 10, 10).tolist() == [1, 1, 1, 1, 4, 2, 2]
    assert bin_weights(times, 10, 3).tolist() == [1, 1, 1, 1, 3, 2, 2]
    drawn = over_sampled(times, 10, 10, np.random.default_rng(0))
    assert np.bincount(drawn, minlength=7)[:5].tolist() == [1, 1, 1, 1, 4]
    assert np.isin(drawn, [5, 6]).sum() == 4


@given(TIMES, st.integers(1, 12), st.integers(1, 10), st.integers(0, 9))
def test_bins_are_balanced_as_far_as_repetition_allows(times, bins, repetition, seed):
    drawn = over_sampled(times, bins, repetition, np.random.default_rng(seed))
    seen = np.bincount(drawn, minlength=len(times))
    assert seen.min() >= 1 and seen.max() <= repetition
    at = np.minimum((times * bins).astype(int), bins - 1)
    largest = np.bincount(at).max()
    weights = bin_weights(times, bins, repetition)
    for number in np.unique(at):
        members = at == number
        assert seen[members].sum() == min(largest, repetition * members.sum())
        np.testing.assert_allclose(weights[members].sum(), seen[members].sum())


@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(1e-6, 10)))
def test_faster_is_never_more(seconds):
    for target in TARGETS:
        times = normalised(seconds, target)
        assert ((times >= 0) & (times <= 1)).all() and times[seconds.argmin()] == 0
        assert (np.diff(times[np.argsort(seconds)]) >= 0).all()
