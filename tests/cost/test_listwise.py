"""The listwise loss: its target, its gradients, and what growing is stopped by."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.cost._listwise import cross_entropy, list_objective, list_target

LABELS = [np.array([1.0, 0.5, 0.25, 0.0]), np.array([0.2, 1.0])]
TARGETS = [list_target(labels) for labels in LABELS]
SCORES = np.array([0.3, -0.2, 0.9, 0.1, 1.0, -2.0])


def loss(scores):
    """Every workload as many times as it has programs."""
    total = 0.0
    for target, own in zip(TARGETS, (scores[:4], scores[4:]), strict=True):
        total -= len(own) * float(target @ (own - np.log(np.exp(own).sum())))
    return total


def test_the_target_is_a_sharpened_distribution():
    assert TARGETS[0].sum() == pytest.approx(1)
    assert TARGETS[0][3] == 0
    assert TARGETS[0][0] / TARGETS[0][1] == pytest.approx(16)
    assert list_target(LABELS[0], 1.0).tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7, 0])


def test_trust_moves_the_target_and_never_empties_it():
    moved = list_target(LABELS[0], 1.0, np.array([0.5, 1, 1, 1]))
    assert moved.tolist() == pytest.approx([2 / 5, 2 / 5, 1 / 5, 0])
    assert list_target(LABELS[0], 4.0, np.zeros(4)).tolist() == TARGETS[0].tolist()


def test_gradients_are_those_of_the_cross_entropy():
    gradient, hessian = list_objective(TARGETS)(SCORES, None)
    step = 1e-5
    numeric = [(loss(SCORES + step * e) - loss(SCORES - step * e)) / (2 * step) for e in np.eye(6)]
    assert np.allclose(gradient, numeric, atol=1e-6)
    assert (hessian >= 1e-2).all()
    p = np.exp(SCORES[4:]) / np.exp(SCORES[4:]).sum()
    assert np.allclose(hessian[4:], 2 * p * (1 - p))


def test_programs_far_from_the_top_pull_less_than_those_on_it():
    target = list_target(np.array([1.0, 0.9, 0.1, 0.05]))
    gradient, _ = list_objective([target])(np.array([0.0, 5.0, -5.0, -6.0]), None)
    assert gradient[0] < 0 < gradient[1]
    assert np.abs(gradient[2:]).max() < 0.01 * np.abs(gradient[:2]).min()


def test_huge_scores_do_not_overflow():
    with np.errstate(over="raise", invalid="raise"):
        gradient, hessian = list_objective(TARGETS)(1e6 * SCORES, None)
    assert np.isfinite(gradient).all() and np.isfinite(hessian).all()


def test_the_metric_is_least_where_scores_say_what_is_true():
    metric = cross_entropy(TARGETS)
    true = np.log(np.maximum(np.concatenate(TARGETS), 1e-12))
    name, least = metric(true, None)
    assert name == "cross_entropy"
    entropy = [-sum(q * np.log(q) for q in target if q > 0) for target in TARGETS]
    assert least == pytest.approx(np.mean(entropy), abs=1e-6)
    assert least < metric(0.5 * true, None)[1] < metric(np.zeros(6), None)[1]
    assert metric(true + np.repeat([7.0, -3.0], [4, 2]), None)[1] == pytest.approx(least)
