"""``benchmarks.pools``: picking from measured programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import pools
from foretune.dataset import Group, Program

SECONDS = np.array([4.0, 2.0, np.nan, 1.0, 8.0])


class Learner:
    """Scores by a given order; once it was told of a failure, by the seconds."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.told: list[list[int]] = []

    def predict(self, candidates: list[Any]) -> Any:
        known = any(2 in batch for batch in self.told)
        score = [-SECONDS[c.at] if known else -self.order.index(c.at) for c in candidates]
        return SimpleNamespace(score=np.array(score))

    def update(self, records: list[int]) -> None:
        self.told.append(list(records))


def pool() -> tuple[Group, dict[str, int]]:
    candidates: list[Any] = [SimpleNamespace(key=f"c{at}", at=at) for at in range(5)]
    group = Group(
        workload="w",
        name="w",
        kind="conv2d",
        hardware="h",
        programs=[Program(candidate=c, actions=()) for c in candidates],
        seconds=SECONDS,
    )
    return group, {f"c{at}": at for at in range(5)}


def test_picks_are_told_before_the_next_ones() -> None:
    group, records = pool()
    model: Any = Learner([4, 2, 0, 1, 3])
    found = pools.picks(model, group, records, batch=2, most=6)  # type: ignore[arg-type]
    assert model.told == [[4, 2], [3, 1], [0]]
    assert found.tolist() == [1 / 8, 1 / 8, 1.0, 1.0, 1.0, 1.0]


def test_a_failure_alone_is_worth_nothing() -> None:
    group, records = pool()
    model: Any = Learner([2, 0, 1, 3, 4])
    found = pools.picks(model, group, records, batch=1, most=2)  # type: ignore[arg-type]
    assert found.tolist() == [0.0, 1.0]


def test_chance_is_the_mean_over_orders() -> None:
    seconds = np.array([1.0, 2.0, 4.0])
    found = pools.by_chance(seconds, 4)
    assert found[0] == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert found[1] == pytest.approx((1 + 1 + 0.5) / 3)
    assert found[2:].tolist() == [1.0, 1.0]
