"""The policy validates itself."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.measure import LabelPolicy, MeasurePolicy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("build_timeout_s", 0.0),
        ("run_timeout_s", -1.0),
        ("memory_bytes", 0),
        ("max_rereads", -1),
        ("cut_factor", 1.0),
        ("budget_s", 0.0),
        ("workspace_bytes", -1),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(BadInputError, match=rf"`{name} .*{name}={value}"):
        MeasurePolicy(**{name: value})


OLDER = {
    "workers": None, "window": None, "build_timeout_s": 15.0, "build_factor": 10.0,
    "build_least_s": 3.0, "run_timeout_s": 10.0, "reference_timeout_s": 180.0,
    "start_timeout_s": 60.0, "max_start_failures": 3, "memory_bytes": None, "recycle_builds": 500,
    "budget_s": 0.1, "reading_s": 0.005, "min_readings": 3, "spread": 0.01, "rough_factor": 1.3,
    "rough_spread": 0.03, "cut_factor": 3.0, "quiet_tolerance": 0.06, "max_rereads": 2,
    "reread_share": 0.5, "quiet_wait_s": 1.0, "compare_rounds": 5, "compare_extra_rounds": 5,
    "compare_budget_s": 1.0, "cold_weights": True, "workspace_bytes": 0, "check_output": True,
    "passes_off": [],
}  # fmt: skip
"""What stores hold of the default policy."""


def test_what_is_kept_beside_records_says_all_and_is_what_stores_hold() -> None:
    assert MeasurePolicy().to_json() == OLDER
    labels = {
        "window": 32, "build_factor": 20.0, "min_readings": 2, "rough_spread": 0.015,
        "cut_factor": 6.0, "max_rereads": 6, "reread_share": 2.0,
    }  # fmt: skip
    assert LabelPolicy().to_json() == {**OLDER, **labels}
    warm = MeasurePolicy(workspace_bytes=None)
    assert warm.to_json() == {**OLDER, "cold_weights": False}


def test_it_can_be_kept_beside_records() -> None:
    policy = LabelPolicy(workers=3, budget_s=0.25, passes_off=["nan"])  # type: ignore[arg-type]
    kept = json.loads(json.dumps(policy.to_json()))
    assert kept == policy.to_json(), "environments are compared with those of a journal"


def test_children_get_it_with_its_constants() -> None:
    policy = LabelPolicy(workers=3)
    sent = pickle.loads(pickle.dumps(policy))
    assert sent == policy and sent.min_readings == 2
