from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from foretune.bench import best_at, geometric_mean, summarise, trial_budgets, went_to


def run(strategy: str, workload: str, seed: int, best: float, **other: Any) -> dict[str, Any]:
    return {
        "workload": workload,
        "key": workload,
        "strategy": strategy,
        "cost_model": "gbdt",
        "seed": seed,
        "trials_per_s": 2.0,
        "untuned_s": 8.0,
        "curve": [[2, 1.0, 4.0], [10, 5.0, best]],
        **other,
    }


@pytest.mark.parametrize(
    ("trials", "budgets"), [(4, [4]), (8, [8]), (64, [8, 16, 32, 64]), (20, [8, 16, 20])]
)
def test_budgets_double_up_to_the_trials(trials: int, budgets: list[int]) -> None:
    assert trial_budgets(trials) == budgets


def test_a_run_without_a_valid_candidate_returns_the_untuned_program() -> None:
    one = run("a", "w", 0, 1.0)
    assert [best_at(one, n) for n in (1, 2, 9, 10, 64)] == [8.0, 4.0, 4.0, 1.0, 1.0]


def test_the_mean_of_ratios_is_geometric_and_lies_in_its_interval() -> None:
    pairs = {"w": [math.log(2.0), math.log(8.0)], "v": [math.log(4.0)] * 2}
    mean, low, high = geometric_mean(pairs, np.random.default_rng(0))
    assert mean == pytest.approx(4.0)
    assert 2.0 <= low <= mean <= high <= 8.0
    assert geometric_mean(pairs, np.random.default_rng(0)) == (mean, low, high)


def test_few_workloads_give_a_wider_interval_than_the_same_numbers_of_many() -> None:
    logs = np.random.default_rng(1).normal(0, 1, 5)
    few = {str(i): [float(v)] * 8 for i, v in enumerate(logs)}
    many = {str((i, j)): [float(v)] for i, v in enumerate(logs) for j in range(8)}
    _, low, high = geometric_mean(few, np.random.default_rng(0))
    _, low_many, high_many = geometric_mean(many, np.random.default_rng(0))
    assert high / low > high_many / low_many


def test_speed_ups_are_paired_by_workload_and_seed() -> None:
    runs = [
        run("a", "w", 0, 1.0),
        run("b", "w", 0, 2.0),
        run("a", "v", 0, 0.5),
        run("b", "v", 0, 1.0),
        run("a", "only", 0, 1e-9),
    ]
    summary = summarise(runs, 16, np.random.default_rng(0))
    found = {(r["strategy"], r["over"], r["trials"]): r for r in summary["speedup"]}
    assert found["a", "b", 16]["ratio"] == pytest.approx(2.0)
    assert found["b", "a", 16]["ratio"] == pytest.approx(0.5)
    assert found["a", "b", 8]["ratio"] == pytest.approx(1.0)
    assert found["a", "b", 16]["pairs"] == 2
    rates = {(r["strategy"], r["over"]): r["ratio"] for r in summary["trials_per_s"]}
    assert rates["a", "b"] == pytest.approx(1.0)
    untuned = {(r["strategy"], r["trials"]): r["ratio"] for r in summary["over_untuned"]}
    assert untuned["b", 16] == pytest.approx(math.sqrt(4.0 * 8.0))


def test_crossed_cost_models_are_told_apart() -> None:
    runs = [run("a", "w", 0, 1.0), run("a", "w", 0, 2.0, cost_model="random")]
    summary = summarise(runs, 16, np.random.default_rng(0))
    assert {r["strategy"] for r in summary["speedup"]} == {"a+gbdt", "a+random"}


def test_no_runs_give_an_empty_summary() -> None:
    assert summarise([], 8, np.random.default_rng(0)) == {
        "speedup": [],
        "trials_per_s": [],
        "over_untuned": [],
    }


def test_no_run_is_compared_beyond_its_own_trials() -> None:
    runs = [run("a", "w", 0, 1.0, budget=16), run("b", "w", 0, 2.0, budget=8)]
    assert [went_to(runs[1], n) for n in (4, 8, 9)] == [True, True, False]
    found = summarise(runs, 16, np.random.default_rng(0))
    assert {row["trials"] for row in found["speedup"]} == {8}
    assert {(r["strategy"], r["trials"]) for r in found["over_untuned"]} == {
        ("a", 8),
        ("a", 16),
        ("b", 8),
    }
