"""What tuning has to beat: which programs, and whether they were measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.records import CONFIRM, DEFAULT, UNTUNED, History
from foretune.tuning.baselines import Baselines
from tests.records.support import record


def baselines(default: str | None = "default", history: History | None = None) -> Baselines:
    """Of a space whose candidates are called by their keys."""
    space: Any = SimpleNamespace(
        untuned=SimpleNamespace(key="untuned"),
        default=None if default is None else SimpleNamespace(key=default),
        workload=SimpleNamespace(name="matmul"),
    )
    return Baselines(space, history or History())


def missing(found: Baselines) -> list[str]:
    return [origin for _, origin in found.missing()]


def test_a_baseline_is_one_whether_it_is_measured_or_not() -> None:
    found = baselines()
    found.leave_untuned()
    assert found.include("untuned") and found.include("default") and not found.include("other")
    assert missing(found) == [DEFAULT]
    asked = ("default", "untuned", "other")
    assert [found.must_be_beaten(key) for key in asked] == [True, False, False]


def test_what_was_measured_or_compared_is_not_missing() -> None:
    history = History()
    found = baselines(history=history)
    assert missing(found) == [UNTUNED, DEFAULT] and not found.default_known
    history.add([record(0, candidate="untuned", origin=UNTUNED)])
    assert missing(found) == [DEFAULT]
    history.add([record(1, candidate="default", origin=CONFIRM)])
    assert missing(found) == [] and found.default_known


def test_a_trial_of_a_baseline_does_not_stand_for_its_measurement() -> None:
    history = History()
    history.add([record(0, candidate="default", origin="random")])
    assert missing(baselines(history=history)) == [UNTUNED, DEFAULT]


@pytest.mark.parametrize("default", [None, "untuned"])
def test_what_is_the_only_baseline_cannot_be_left_out(default: str | None) -> None:
    found = baselines(default)
    assert missing(found) == [UNTUNED] and not found.have_default
    with pytest.raises(BadInputError, match="'matmul' has none"):
        found.leave_untuned()
