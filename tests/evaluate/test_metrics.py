from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.dataset import judgeable
from foretune.evaluate import judge
from foretune.evaluate.floors import random_order
from foretune.evaluate.metrics import (
    PICKS,
    agreement,
    average,
    mean_of,
    ranking,
    top_per_network,
    top_pooled,
    top_running,
)

NAN = math.nan
ONCE = np.ones((1, 2))


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def at(vector: np.ndarray, k: int) -> float:
    return float(vector[PICKS.index(k)])


def judged(scores: np.ndarray, seconds: np.ndarray, seed: int = 0):
    return judge(scores, seconds, np.random.default_rng(seed))


def test_hand_made_group() -> None:
    found = judged(array(4, 3, 2, 1), array(4, 2, 1, 8))
    assert found.programs == 4
    assert found.best_s == 1
    assert [at(found.ratio, k) for k in (1, 2, 4, 5, 64)] == [0.25, 0.5, 1, 1, 1]
    assert [at(found.picked_s, k) for k in (1, 2, 4, 5, 64)] == [4, 2, 1, 1, 1]
    assert [at(found.running, k) for k in (1, 2, 4, 5)] == [0.25, 0.375, 0.6875, 0.6875]
    assert found.pair_accuracy == pytest.approx(0.5)
    assert found.kendall_tau == pytest.approx(0)
    gain = 0.25 + 0.5 / math.log2(3) + 1 / 2 + 0.125 / math.log2(5)
    ideal = 1 + 0.5 / math.log2(3) + 0.25 / 2 + 0.125 / math.log2(5)
    assert found.ndcg16 == pytest.approx(gain / ideal)


def test_the_right_order_is_one_everywhere_and_the_reverse_is_worst() -> None:
    seconds = array(3, 1, 2, 9, NAN, 5)
    scores = -np.nan_to_num(seconds, nan=100.0)
    right, wrong = judged(scores, seconds), judged(-scores, seconds)
    assert (right.ratio == 1).all() and (right.running == 1).all()
    assert (right.pair_accuracy, right.kendall_tau) == pytest.approx((1, 1))
    assert right.ndcg16 == pytest.approx(1)
    assert (wrong.pair_accuracy, wrong.kendall_tau) == pytest.approx((0, -1))
    assert wrong.ndcg16 < 1


def test_a_failed_pick_is_wasted_and_the_slowest_program_stands_in() -> None:
    found = judged(array(3, 2, 1), array(NAN, 2, 1))
    assert [at(found.ratio, k) for k in (1, 2, 4)] == [0, 0.5, 1]
    assert [at(found.picked_s, k) for k in (1, 2, 4)] == [2, 2, 1]
    assert at(found.running, 2) == 0.25
    assert found.pair_accuracy == pytest.approx(0), "a failure is slower than all that ran"


def test_pairs_of_failures_do_not_count() -> None:
    found = judged(array(1, 2, 4, 3), array(NAN, NAN, 1, 2))
    assert found.pair_accuracy == pytest.approx(1)
    assert found.kendall_tau == pytest.approx(5 / math.sqrt(6 * 5))


def test_a_score_that_is_not_a_number_ranks_last() -> None:
    assert ranking(array(NAN, 1, 2, -math.inf), np.random.default_rng(0))[:2].tolist() == [2, 1]
    found = judged(array(NAN, 1, 2), array(1, 2, 4))
    assert [at(found.ratio, k) for k in (1, 2, 4)] == [0.25, 0.5, 1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("score", [0.0, NAN])
def test_equal_scores_do_not_leak_the_order_of_the_file(reverse: bool, score: float) -> None:
    seconds = np.arange(1.0, 41.0)[:: -1 if reverse else 1].copy()
    found = judge(np.full(40, score), seconds, np.random.default_rng(0), shuffles=3000)
    expected = random_order(seconds)
    np.testing.assert_allclose(found.ratio, expected.ratio, atol=0.02)
    np.testing.assert_allclose(found.picked_s, expected.picked_s, rtol=0.05)
    np.testing.assert_allclose(found.running, expected.running, atol=0.02)
    assert found.ndcg16 == pytest.approx(expected.ndcg16, abs=0.02)
    assert (found.pair_accuracy, found.kendall_tau) == (0.5, 0.0)


def test_some_equal_scores_are_averaged_over_their_orders() -> None:
    found = judge(array(1, 1, 0), array(1, 2, 4), np.random.default_rng(0), shuffles=4000)
    assert at(found.ratio, 1) == pytest.approx(0.75, abs=0.02)
    assert at(found.ratio, 2) == 1
    assert found.pair_accuracy == pytest.approx((2 + 0.5) / 3)


def test_the_same_seed_gives_the_same_figures() -> None:
    scores, seconds = np.zeros(9), np.arange(1.0, 10.0)
    one, same, other = (judged(scores, seconds, seed) for seed in (0, 0, 1))
    assert one.ratio.tolist() == same.ratio.tolist() != other.ratio.tolist()


def test_what_cannot_be_judged_is_refused() -> None:
    assert judgeable(array(1, 2, NAN))
    for seconds in (array(), array(1), array(NAN, NAN), array(1, NAN), array(3, 3)):
        assert not judgeable(seconds)
        with pytest.raises(ValueError, match="two programs"):
            judged(np.zeros(len(seconds)), seconds)
    with pytest.raises(ValueError, match="one score per program"):
        judged(array(1, 2), array(1, 2, 3))


FEW = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([1.0, 2.0, 3.0, 4.0, NAN])), min_size=2, max_size=9
).filter(lambda rows: judgeable(np.array([s for _, s in rows])))


@settings(deadline=None)
@given(FEW)
def test_pairs_and_tau_agree_with_counting(rows: list[tuple[int, float]]) -> None:
    scores = np.array([float(score) for score, _ in rows])
    seconds = np.array([s for _, s in rows])
    speed = np.where(np.isnan(seconds), -np.inf, -seconds)
    right = wrong = equal_scores = equal_truth = equal_both = 0
    for i, j in itertools.combinations(range(len(rows)), 2):
        given_sign = (scores[i] > scores[j]) * 1 - (scores[i] < scores[j]) * 1
        truth_sign = (speed[i] > speed[j]) * 1 - (speed[i] < speed[j]) * 1
        right += given_sign * truth_sign > 0
        wrong += given_sign * truth_sign < 0
        equal_scores += given_sign == 0 and truth_sign != 0
        equal_truth += given_sign != 0 and truth_sign == 0
        equal_both += given_sign == truth_sign == 0
    accuracy, tau = agreement(scores, seconds)
    judged_pairs = right + wrong + equal_scores
    assert accuracy == pytest.approx((right + equal_scores / 2) / judged_pairs)
    untied = (right + wrong + equal_scores) * (right + wrong + equal_truth)
    assert tau == pytest.approx((right - wrong) / math.sqrt(untied) if untied else 0)


@settings(deadline=None)
@given(FEW)
def test_more_picks_never_find_less(rows: list[tuple[int, float]]) -> None:
    found = judged(np.array([float(r) for r, _ in rows]), np.array([s for _, s in rows]))
    assert (np.diff(found.ratio) >= -1e-12).all()
    assert (np.diff(found.picked_s) <= 1e-12).all()
    assert found.ratio[-1] == pytest.approx(1), "64 picks are all of a small group"
    assert 0 <= found.ndcg16 <= 1 + 1e-12


def test_judgements_of_several_seeds_are_averaged() -> None:
    seconds = array(1, 2, 4)
    both = average([judged(array(3, 2, 1), seconds), judged(array(1, 2, 3), seconds)])
    assert at(both.ratio, 1) == pytest.approx((1 + 0.25) / 2)
    assert both.kendall_tau == pytest.approx(0)
    assert both.best_s == 1


def test_pooled_top_k_sums_weighted_seconds() -> None:
    best, picked, weight = array(1, 10), array(2, 10), array(1, 3)
    assert top_pooled(best, picked, weight, ONCE) == pytest.approx([31 / 32])


def test_top_k_per_network_averages_ratios_of_networks() -> None:
    best, picked, weight = array(1, 10), array(2, 10), array(1, 3)
    apart = top_per_network(best, picked, best / picked, weight, [("a",), ("b",)], ONCE)
    assert apart == pytest.approx([(1 / 2 + 1) / 2])
    shared = top_per_network(best, picked, best / picked, weight, [("a",), ("a", "b")], ONCE)
    assert shared == pytest.approx([(31 / 32 + 1) / 2])


def test_a_network_that_no_resample_drew_is_left_out() -> None:
    draws = array(2, 0)[None, :]
    best, picked, weight = array(1, 10), array(2, 10), array(1, 3)
    found = top_per_network(best, picked, best / picked, weight, [("a",), ("b",)], draws)
    assert found == pytest.approx([0.5])


def test_groups_of_no_network_have_their_plain_mean() -> None:
    """Ratio and seconds are expectations apart: best over expected seconds would be 0.1."""
    best, picked, ratio, weight = array(1, 1), array(10, 10), array(0.5, 0.7), array(1, 9)
    found = top_per_network(best, picked, ratio, weight, [(), ()], np.array([[1, 1], [3, 1.0]]))
    assert found == pytest.approx([0.6, 0.55])
    mixed = top_per_network(best, picked, ratio, weight, [("a",), ()], ONCE)
    assert mixed == pytest.approx([(0.1 + 0.7) / 2])


def test_running_top_k_weighs_groups_by_their_programs() -> None:
    assert top_running(array(0.5, 1), array(1, 3), ONCE) == pytest.approx([0.875])
    assert mean_of(array(0.5, 1), ONCE) == pytest.approx([0.75])


def test_the_three_definitions_differ_on_the_same_predictions() -> None:
    best, picked = array(1, 100), array(2, 100)
    pooled = float(top_pooled(best, picked, array(1, 1), ONCE)[0])
    apart = [("a",), ("b",)]
    network = float(top_per_network(best, picked, best / picked, array(1, 1), apart, ONCE)[0])
    running = float(top_running(best / picked, array(3, 1), ONCE)[0])
    assert [round(v, 3) for v in (pooled, network, running)] == [0.99, 0.75, 0.625]
