"""Metrics by hand, by brute force and by scipy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from foretune.tgraph.metrics import (
    agreement,
    interval,
    layout_metrics,
    slowdown,
    tile_metrics,
)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_the_right_order_and_the_wrong_one():
    runtime = floats(3, 1, 2, 5)
    assert agreement(runtime, runtime) == (1.0, 1.0, 1.0)
    assert agreement(-runtime, runtime) == (-1.0, -1.0, 0.0)


def test_ties_by_hand():
    # Six pairs. Run times tie (1, 2), scores tie (0, 1). Of the others 3 are in order, 1 is not.
    scores, runtime = floats(1, 1, 2, 0), floats(1, 2, 2, 3)
    pairs = [(0, 2), (0, 3), (1, 3), (2, 3)]
    signs = [np.sign((scores[i] - scores[j]) * (runtime[i] - runtime[j])) for i, j in pairs]
    assert signs == [1, -1, -1, -1]
    tau, tau_a, opa = agreement(scores, runtime)
    assert tau == pytest.approx(-2 / math.sqrt(5 * 5))
    assert tau_a == pytest.approx(-2 / 6)
    assert opa == pytest.approx(1 / 5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=2, max_size=25))
def test_all_figures_by_brute_force(rows):
    scores, runtime = floats(*(s for s, _ in rows)), floats(*(r for _, r in rows))
    right = wrong = differ = 0
    for i, j in itertools.combinations(range(len(rows)), 2):
        sign = np.sign(scores[i] - scores[j]) * np.sign(runtime[i] - runtime[j])
        right, wrong = right + (sign > 0), wrong + (sign < 0)
        differ += runtime[i] != runtime[j]
    tau, tau_a, opa = agreement(scores, runtime)
    if not differ:
        assert math.isnan(tau)
        assert math.isnan(tau_a)
        assert math.isnan(opa)
        return
    assert tau_a == pytest.approx((right - wrong) / (len(rows) * (len(rows) - 1) / 2))
    assert opa == pytest.approx(right / differ)
    if len(set(scores)) == 1:
        assert tau == 0.0
    else:
        assert tau == pytest.approx(stats.kendalltau(scores, runtime).statistic)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20, unique=True), st.randoms())
def test_without_ties_tau_is_twice_opa_minus_one(runtime, random):
    scores = list(range(len(runtime)))
    random.shuffle(scores)
    tau, tau_a, opa = agreement(floats(*scores), floats(*runtime))
    assert tau == pytest.approx(tau_a)
    assert tau == pytest.approx(2 * opa - 1)


def test_slowdown_is_that_of_the_best_pick():
    runtime, scores = floats(10, 12, 20, 15), floats(3, 2, 0, 1)
    assert slowdown(scores, runtime, 1) == pytest.approx(1.0)
    assert slowdown(scores, runtime, 2) == pytest.approx(0.5)
    assert slowdown(scores, runtime, 3) == pytest.approx(0.2)
    assert slowdown(scores, runtime, 4) == 0.0
    assert slowdown(scores, runtime, 100) == 0.0


def test_equal_scores_flatter_nobody():
    runtime = floats(10, 20, 30)
    for order in ([0, 1, 2], [2, 1, 0]):
        assert slowdown(np.zeros(3), runtime[order], 1) == pytest.approx(2.0)
        assert layout_metrics(np.zeros(3), runtime[order])["tau"] == 0.0


def test_the_tile_metric_by_hand():
    runtime = floats(10, 11, 12, 13, 14, 15, 16)
    scores = floats(9, 9.5, 2, 3, 4, 5, 6)
    found = tile_metrics(scores, runtime)
    # The five best-scored are all but the two fastest.
    assert found["m_tile"] == pytest.approx(2 - 12 / 10)
    assert found["slowdown1"] == pytest.approx(0.2)
    assert found["slowdown5"] == pytest.approx(0.2)
    assert found["slowdown10"] == 0.0


def test_of_fewer_than_five_tiles_all_are_picked():
    assert tile_metrics(floats(2, 1), floats(1, 5))["m_tile"] == 1.0


def test_one_configuration_has_no_order_and_no_loss():
    found = layout_metrics(floats(1), floats(7))
    assert math.isnan(found["tau"])
    assert found["slowdown1"] == 0.0


def test_many_configurations_are_quick_and_exact():
    rng = np.random.default_rng(0)
    runtime = rng.integers(1, 10**9, size=40_000).astype(np.float64)
    tau, tau_a, opa = agreement(runtime + rng.normal(0, 1e8, 40_000), runtime)
    assert tau == pytest.approx(tau_a, abs=1e-4)
    assert tau == pytest.approx(2 * opa - 1, abs=1e-4)


def test_an_interval_is_around_the_mean_and_leaves_out_what_is_not_defined():
    found = interval([0.1, 0.5, float("nan"), 0.3])
    assert found["mean"] == pytest.approx(0.3)
    assert 0.1 <= found["low"] < 0.3 < found["high"] <= 0.5
    assert interval([0.1, 0.5]) == interval([0.1, 0.5])
    assert all(math.isnan(value) for value in interval([float("nan")]).values())
