"""What is judged beside a schedule to find what is faster."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.explain import Kernel, explain
from foretune.explain._changes import best_of_space
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import catalog
from tests.describe.nest_builder import DESKTOP


def space_of(name: str, hardware: Hardware) -> Space:
    return Space.generate(catalog.get(name), hardware)  # type: ignore[arg-type]


def test_the_best_of_a_space_is_the_same_each_time_and_can_be_made(hardware: Hardware) -> None:
    space = space_of("matmul:64x64x64", hardware)
    first, second = (best_of_space(space, DESKTOP) for _ in range(2))
    assert first is not None and first == second
    found, seconds, judged = first
    assert seconds > 0 and judged > 100
    assert space.candidate(found.to_json()) == found


def test_a_schedule_without_decisions_is_set_beside_its_space(hardware: Hardware) -> None:
    space = space_of("matmul:64x64x64", hardware)
    explained = explain(Kernel(space.untuned), DESKTOP)
    tune = explained.advice[0]
    assert tune.text.startswith("tune: of ") and tune.gain is not None and tune.gain > 1.1
    assert f"{tune.gain:.2f} times as fast" in tune.text and tune.change == ""
    made = space.candidate({"sketch": tune.sketch, "decisions": tune.decisions})
    then = explain(Kernel(made), DESKTOP, advice=False)
    assert explained.predicted_s / then.predicted_s == tune.gain


def test_what_is_predicted_to_be_the_best_is_not_told_to_be_tuned(hardware: Hardware) -> None:
    space = space_of("matmul:64x64x64", hardware)
    best = best_of_space(space, DESKTOP)
    assert best is not None
    for advice in explain(Kernel(best[0]), DESKTOP).advice:
        assert not advice.text.startswith("tune:")
    assert not any(a.decisions for a in explain(Kernel(space.untuned), DESKTOP, False).advice)


def test_what_is_named_first_is_predicted_to_gain_what_is_said(hardware: Hardware) -> None:
    space = space_of("matmul:64x64x64", hardware)
    drawn = space.sample(np.random.default_rng(0), 8)
    told = [explain(Kernel(candidate), DESKTOP) for candidate in drawn]
    explained = max(told, key=lambda each: each.predicted_s)
    first = next(each for each in explained.advice if each.decisions)
    assert first.gain is not None and first.gain > 1.1
    made = drawn[told.index(explained)].sketch.candidate(first.decisions)
    then = explain(Kernel(made), DESKTOP, advice=False)
    assert explained.predicted_s / then.predicted_s == pytest.approx(first.gain)
