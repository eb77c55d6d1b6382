"""The ranking loss: its gradients push the right pairs, within a workload only."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.cost._lambdarank import lambda_objective


def rng():
    return np.random.default_rng(0)


def test_gradients_lift_the_faster_and_balance():
    objective = lambda_objective([np.array([3.0, 1.0, 2.0])], 128, rng())
    gradient, hessian = objective(np.zeros(3), None)
    assert gradient[0] < gradient[2] < gradient[1]
    assert gradient.sum() == pytest.approx(0)
    assert (hessian > 0).all()


def test_gradients_are_those_of_the_pairwise_loss():
    level = np.array([2.0, 0.5, 1.0, 0.8])

    def loss(s):
        i, j = np.triu_indices(4, 1)
        i, j = np.where(level[i] >= level[j], i, j), np.where(level[i] >= level[j], j, i)
        w = np.minimum(level[i] - level[j], 2.0)
        w *= 4 / w.sum()
        return float((w * np.log1p(np.exp(s[j] - s[i]))).sum())

    scores = np.array([0.3, -0.2, 0.9, 0.1])
    gradient, _ = lambda_objective([level], 128, rng())(scores, None)
    step = 1e-5
    numeric = [(loss(scores + step * e) - loss(scores - step * e)) / (2 * step) for e in np.eye(4)]
    assert np.allclose(gradient, numeric, atol=1e-6)


def test_workloads_do_not_pull_at_each_other():
    fast, slow = np.array([20.0, 21.0]), np.array([1.0, 2.0])
    both = lambda_objective([fast, slow], 128, rng())(np.zeros(4), None)[0]
    alone = lambda_objective([slow], 128, rng())(np.zeros(2), None)[0]
    assert np.allclose(both[2:], alone)
    assert np.allclose(both[:2], both[2:])


def test_equal_times_give_no_gradient_and_huge_scores_no_overflow():
    gradient, hessian = lambda_objective([np.ones(5)], 128, rng())(np.zeros(5), None)
    assert (gradient == 0).all() and (hessian > 0).all()
    with np.errstate(over="raise"):
        gradient, _ = lambda_objective([np.arange(5.0)], 128, rng())(
            np.array([1e6, 0, 0, 0, 0]), None
        )
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("opponents", [1, 8])
def test_drawn_pairs_stand_for_all_pairs(opponents):
    level = np.linspace(0, 1, 400)
    every, _ = lambda_objective([level], 1000, rng())(np.zeros(400), None)
    drawn, _ = lambda_objective([level], opponents, rng())(np.zeros(400), None)
    assert np.corrcoef(every, drawn)[0, 1] > 0.7


def test_important_programs_pull_harder():
    level = np.array([3.0, 2.0, 1.0, 0.0])
    top = [np.array([1.0, 0.1, 0.1, 0.1])]
    alike, _ = lambda_objective([level], 128, rng())(np.zeros(4), None)
    weighted, _ = lambda_objective([level], 128, rng(), top)(np.zeros(4), None)
    assert weighted[0] < alike[0] < 0
    assert weighted[1] > alike[1]
    assert weighted.sum() == pytest.approx(0)


def test_equal_importance_changes_nothing():
    level = np.array([2.0, 0.5, 1.0, 0.8])
    alike, _ = lambda_objective([level], 128, rng())(np.zeros(4), None)
    same, _ = lambda_objective([level], 128, rng(), [np.full(4, 0.3)])(np.zeros(4), None)
    assert np.allclose(alike, same)


def test_disturbed_readings_pull_less_and_make_no_other_pull_more():
    level = np.array([3.0, 2.0, 1.0, 0.0])
    alike, _ = lambda_objective([level], 128, rng())(np.zeros(4), None)
    trust = [np.array([0.5, 1.0, 1.0, 1.0])]
    less, _ = lambda_objective([level], 128, rng(), trust=trust)(np.zeros(4), None)
    assert less[0] == pytest.approx(alike[0] / 2)
    assert abs(less[3]) < abs(alike[3])
    half, _ = lambda_objective([level], 128, rng(), trust=[np.full(4, 0.5)])(np.zeros(4), None)
    assert np.allclose(half, alike / 4)
