"""``benchmarks.audit``: what its page says of labels that were measured twice, and of none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import audit
from tests.evaluate.support import several

MACHINE = {"name": "CPU", "variant": "1 thread", "records": 9, "valid": 8, "quiet": 6,
           "workloads": 3}  # fmt: skip


def _audited(median: float) -> dict[str, Any]:
    rank = {"mean": 0.9}
    return {
        "pairs": 4, "hours": 1.5, "median": median, "p95": 0.2, "median_quiet": 0.02,
        "p95_quiet": 0.1, "log_ratios": [median, -median, median, 0.2],
        "second_measurement": {"top1": rank, "kendall_tau": rank},
    }  # fmt: skip


@pytest.mark.parametrize(("median", "goal"), [(0.03, "missed"), (0.01, "met")])
def test_the_answer_is_the_median_with_its_interval(median: float, goal: str) -> None:
    found = {"cpu": {"hardware": [MACHINE], "audit": _audited(median)}}
    section = audit.section({"data": found})
    assert f"differs by {median:.1%}".replace("%", " %") in section.answer
    assert f"(goal 2.0 %: {goal})" in section.answer
    assert "| cpu" in section.table and "75%" in section.details
    assert section.plot is not None


def test_data_that_was_measured_once_says_how_to_go_on() -> None:
    section = audit.section({"data": {"cpu": {"hardware": [MACHINE], "audit": None}}})
    assert "foretune collect --audit" in section.answer and section.plot is None


def test_who_ranks_by_labels_with_more_noise_ranks_worse() -> None:
    groups = several(4)
    none, some = (
        audit.ranked_with_noise(groups, np.array([-noise, noise])) for noise in (0.0, 0.5)
    )
    assert none["top1"]["mean"] == 1.0 > some["kendall_tau"]["mean"]
