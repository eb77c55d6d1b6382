from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from foretune.tuning.allocate import expected_gain, next_task


@dataclass
class FakeTask:
    """What the allocation reads of a task."""

    weight: int
    flops: float
    baseline_s: float | None
    bests: list[float | None] = field(default_factory=list)

    @property
    def workload(self) -> Any:
        return SimpleNamespace(weight=self.weight, flops=self.flops)

    @property
    def spent(self) -> int:
        return len(self.bests)

    @property
    def best_s(self) -> float | None:
        return self.bests[-1] if self.bests else self.baseline_s

    @property
    def trials(self) -> list[Any]:
        return [SimpleNamespace(best_s=b) for b in self.bests]


def test_untouched_tasks_come_first_the_heaviest_before_the_others() -> None:
    started = FakeTask(100, 1e9, 1.0, [0.5] * 4)
    light = FakeTask(1, 1e6, 1e-3)
    heavy = FakeTask(7, 1e8, 1e-2)
    assert next_task([started, light, heavy]) is heavy  # type: ignore[list-item]


def test_a_task_whose_first_trials_are_measured_is_no_untouched_one() -> None:
    heavy, light = FakeTask(7, 1e8, 1e-2), FakeTask(1, 1e6, 1e-3)
    started = FakeTask(100, 1e9, 1.0, [0.5] * 4)
    of: Any = [heavy, light]
    assert next_task(of, in_flight=[heavy]) is light  # type: ignore[list-item]
    of = [heavy, started]
    assert next_task(of, in_flight=[heavy]) is started  # type: ignore[list-item]
    of = [light, heavy]
    assert next_task(of, in_flight=of) is heavy, "there is no other"  # type: ignore[comparison-overlap]


def test_untouched_tasks_of_which_nothing_is_known_come_after_the_others() -> None:
    known = FakeTask(1, 1e6, 1e-3)
    unknown = FakeTask(7, 1e9, None)
    assert next_task([unknown, known]) is known  # type: ignore[list-item]


def test_a_task_near_its_roofline_gives_way() -> None:
    at_peak = FakeTask(1, 1e9, 1.0, [0.0101] * 100)
    far_off = FakeTask(1, 1e9, 1.0, [0.05] * 100)
    assert next_task([at_peak, far_off], peak_gflops=100.0) is far_off  # type: ignore[list-item]


def test_weight_multiplies_the_gain() -> None:
    once = FakeTask(1, 1e9, 1.0, [0.1] * 60)
    often = FakeTask(16, 1e9, 1.0, [0.1] * 60)
    gain = expected_gain(once, 50.0, 0.0)  # type: ignore[arg-type]
    assert expected_gain(often, 50.0, 0.0) == pytest.approx(16 * gain)  # type: ignore[arg-type]


def test_a_task_that_improved_lately_is_preferred_to_one_that_stalled() -> None:
    stalled = FakeTask(1, 1e9, 1.0, [0.1] * 100)
    improving = FakeTask(1, 1e9, 1.0, [0.4] * 60 + [0.1] * 40)
    assert next_task([stalled, improving]) is improving  # type: ignore[list-item]


def test_without_a_measured_peak_the_fastest_task_bounds_the_others() -> None:
    fast = FakeTask(1, 1e9, 1.0, [0.01] * 50)
    slow = FakeTask(1, 1e9, 1.0, [0.08] * 50)
    assert next_task([fast, slow]) is slow  # type: ignore[list-item]


def test_a_task_of_which_nothing_can_be_measured_comes_last() -> None:
    broken = FakeTask(1, 1e6, None, [None] * 4)
    healthy = FakeTask(1, 1e9, 1.0, [0.02] * 400)
    assert next_task([broken, healthy], 100.0) is healthy  # type: ignore[list-item]
