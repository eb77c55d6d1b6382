"""What a run may spend, and what is left of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.tuning import Budget, fitting_batch
from foretune.tuning.budget import Outside, Spending


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds on the clock."""
    time = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: time[0])
    return time


def spending(budget: Budget, *spent: int, **outside: Any) -> Spending:
    tasks: list[Any] = [SimpleNamespace(spent=trials) for trials in spent]
    return Spending(budget, tasks, Outside(**outside))


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ({}, "needs trials or seconds"),
        ({"trials": 0}, "trials >= 1"),
        ({"seconds": math.inf}, "and finite"),
        ({"seconds": 0.0}, "seconds > 0"),
        ({"trials": 1, "patience": 0}, "patience >= 1"),
    ],
)
def test_a_budget_of_nothing_is_refused(budget: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        Budget(**budget)


def test_the_time_of_the_conclusion_is_left_for_it() -> None:
    budget = Budget(trials=1, seconds=100.0)
    assert spending(budget, 0).tuning_s == 100.0
    assert spending(budget, 0, reserve_s=1.0).tuning_s == 99.0
    greedy = spending(Budget(seconds=100.0), 0, reserve_s=90.0)
    assert greedy.tuning_s == 80.0, "most of the budget is the tuner's own"


def test_time_for_confirming_is_left_before_time_is_spent(now: list[float]) -> None:
    spent = spending(Budget(seconds=10.0), 0, 0, 0, began=95.0)
    assert (spent.elapsed_s, spent.left_s) == (5.0, 5.0)
    assert spent.searching_s == 10.0 - 0.15 * 10.0
    now[0] = 104.0
    assert not spent.in_time and not spent.is_over and not spent.allows_more
    now[0] = 106.0
    assert spent.is_over and spent.left_s == 0.0


def test_seconds_of_earlier_runs_count(now: list[float]) -> None:
    spent = spending(Budget(seconds=10.0), 0)
    spent.earlier_s = 9.5
    assert spent.elapsed_s == 9.5 and not spent.allows_more


def test_without_a_limit_of_time_there_is_always_time(now: list[float]) -> None:
    spent = spending(Budget(trials=12), 3, 5)
    now[0] = 1e9
    assert spent.in_time and not spent.is_over and spent.left_s is None
    assert (spent.trials, spent.trials_left, spent.share) == (8, 4.0, 6.0)
    assert spent.is_within(1e9, 0.01)


def test_what_came_before_the_tuner_is_told_apart(now: list[float]) -> None:
    clock = spending(Budget(seconds=60.0), 0, began=80.0, proof_s=5.0, plans_s=3.0).clock
    assert (clock.setup_s, clock.proof_s, clock.plans_s) == (12.0, 5.0, 3.0)
    with clock.on("search_s"):
        now[0] += 2.0
    assert clock.to_json()["search_s"] == 2.0


@pytest.mark.parametrize(
    ("budget", "tasks", "batch"),
    [
        (Budget(trials=1000), 1, 16),
        (Budget(trials=32), 1, 8),
        (Budget(trials=32), 8, 4),
        (Budget(seconds=16.0), 1, 12),
    ],
)
def test_a_batch_leaves_each_task_four_rounds(budget: Budget, tasks: int, batch: int) -> None:
    assert fitting_batch(budget, tasks) == batch
