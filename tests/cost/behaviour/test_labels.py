"""Labels of the first stage: the paper's rule, what is drawn, what errors weigh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cost.behaviour.labels import SAMPLINGS, ClassWeights, good, sampled
from foretune.errors import BadInputError

NAN = float("nan")


def ran(n, failures=0, seed=0):
    """Seconds 1, 2... n in random order, and failures in between."""
    seconds = np.concatenate([np.arange(1.0, n + 1), np.full(failures, NAN)])
    return np.random.default_rng(seed).permutation(seconds)


@pytest.mark.parametrize(
    ("valid", "count"), [(0, 0), (5, 5), (32, 32), (100, 32), (320, 32), (321, 33), (1000, 100)]
)
def test_good_are_the_fastest_of_those_that_ran(valid, count):
    seconds = ran(valid, failures=40)
    found = good(seconds)
    assert found.sum() == count
    assert sorted(seconds[found]) == list(range(1, count + 1))


def test_of_equal_ones_the_first_are_good():
    assert np.flatnonzero(good(np.ones(40))).tolist() == list(range(32))


def test_bad_ones_are_at_most_twice_as_many():
    seconds = ran(1000, failures=10)
    rows = sampled(seconds, "paper", np.random.default_rng(0))
    labels = good(seconds)[rows]
    assert (labels.sum(), (~labels).sum()) == (100, 200)
    assert sampled(ran(50), "paper", np.random.default_rng(0)).tolist() == list(range(50))


def test_borderline_ones_are_those_right_behind_the_good_ones():
    seconds = ran(1000)
    rows = sampled(seconds, "good_borderline_bad", np.random.default_rng(0))
    ranks = np.sort(seconds[rows])
    assert ranks[:200].tolist() == list(range(1, 201))
    assert len(ranks) == 250 and ranks[200] > 200


def test_good_only():
    seconds = ran(400, failures=5)
    rows = sampled(seconds, "good_only", np.random.default_rng(0))
    assert sorted(seconds[rows]) == list(range(1, 41))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 200), st.integers(0, 40), st.sampled_from(SAMPLINGS), st.integers(0, 9))
def test_what_is_drawn_is_drawn_once_and_by_the_seed(valid, failures, sampling, seed):
    seconds = ran(valid, failures, seed)
    one, other = (sampled(seconds, sampling, np.random.default_rng(seed)) for _ in range(2))
    assert one.tolist() == other.tolist() == sorted(set(one.tolist()))
    assert set(np.flatnonzero(good(seconds))) <= set(one.tolist())


def test_an_unknown_sampling_is_refused():
    with pytest.raises(BadInputError, match="good_only"):
        sampled(ran(3), "best", np.random.default_rng(0))


def test_weights_are_the_number_over_that_of_the_class():
    weights = ClassWeights.of([np.array([True, False, False]), np.array([False, False, True])])
    assert (weights.good, weights.bad) == (3.0, 1.5)
    assert ClassWeights.of([np.array([True, True])]) == ClassWeights(bad=1.0, good=1.0)


def test_both_classes_weigh_alike():
    torch = pytest.importorskip("torch")
    weights = ClassWeights.of([np.array([True, False, False, False])])
    labels = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    scores = torch.zeros(1, 4, requires_grad=True)
    # 4 * 1 of the good one and nothing of the others, over 4.
    assert weights.mse(scores, labels, mask).tolist() == [1.0]
    # Each class weighs N = 4: (4 + 4) log 2 over 4.
    assert weights.bce(scores, labels, mask).item() == pytest.approx(2 * np.log(2))
    half = torch.full((1, 4), 0.5)
    assert weights.mse(half, labels, mask).item() == pytest.approx((4 + 4) * 0.25 / 4)


def test_what_fills_a_list_up_weighs_nothing():
    torch = pytest.importorskip("torch")
    weights = ClassWeights(bad=1.5, good=3.0)
    labels, mask = torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])
    scores = torch.tensor([[0.0, 9.0]])
    assert weights.mse(scores, labels, mask).tolist() == [3.0]
    assert weights.bce(scores, labels, mask).item() == pytest.approx(3 * np.log(2))
