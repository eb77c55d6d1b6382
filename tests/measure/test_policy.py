"""The policy validates itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.measure import MeasurePolicy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 0),
        ("window", -1),
        ("build_timeout_s", 0.0),
        ("build_least_s", 0.0),
        ("build_factor", 1.0),
        ("run_timeout_s", -1.0),
        ("memory_bytes", 0),
        ("min_readings", 1),
        ("max_rereads", -1),
        ("cut_factor", 1.0),
        ("spread", 0.0),
        ("compare_rounds", 0),
        ("reread_share", -0.1),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(BadInputError, match=rf"`{name} .*{name}={value}"):
        MeasurePolicy(**{name: value})


def test_it_can_be_kept_beside_records() -> None:
    policy = MeasurePolicy(workers=3, budget_s=0.25, passes_off=("nan",))
    kept = json.loads(json.dumps(policy.to_json()))
    assert MeasurePolicy(**kept) == policy
    assert kept == policy.to_json(), "environments are compared with those of a journal"
