from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from foretune.describe import METRICS
from foretune.explain import Explanation, bound_in_words, print_explanations
from foretune.explain._explanation import PARALLELISM, TAIL, bound_of
from tests.explain.made_up import made_up

LIMITS = {"arithmetic": 3e-6, "memory": 5e-6, "overhead": 1e-7}


def scores(utilization: float, balance: float) -> dict[str, float | None]:
    return {
        **dict.fromkeys((metric.name for metric in METRICS), 1.0),
        "unit_utilization_score": utilization,
        "load_balance_score": balance,
    }


def test_the_longest_limit_bounds_a_kernel_whose_units_all_work() -> None:
    assert bound_of(scores(1.0, 0.9), LIMITS, jobs=4.0) == ("memory", 0.9)


@pytest.mark.parametrize(("jobs", "bound"), [(0.25, PARALLELISM), (1.2, TAIL)])
def test_units_without_work_come_before_any_limit(jobs: float, bound: str) -> None:
    assert bound_of(scores(0.5, 1.0), LIMITS, jobs) == (bound, 0.5)


def test_what_is_over_before_its_threads_have_started_is_not_made_faster_by_more_of_them() -> None:
    assert bound_of(scores(0.1, 1.0), {**LIMITS, "overhead": 1e-5}, 0.1)[0] == "overhead"


def test_an_explanation_survives_json() -> None:
    told = made_up()
    assert Explanation.from_json(json.loads(json.dumps(told.to_json()))) == told


def test_an_entry_of_the_contract_has_its_fields() -> None:
    entry = made_up().to_json()
    assert {"name", "seconds", "bound", "share_of_bound", "scores", "advice"} <= set(entry)
    assert entry["advice"][0]["text"] == "grow the tile"


def test_the_bound_in_words_says_how_far_it_is() -> None:
    told = bound_in_words(made_up())
    assert (
        told == "bound by the bandwidth of the second cache: 1 us of it at least, 50 % of the time"
    )
    idle = bound_in_words(made_up(bound=PARALLELISM, share_of_bound=0.25))
    assert idle == "bound by too little parallel work: 25 % of the units work"


def test_what_is_printed_has_names_numbers_and_what_to_try() -> None:
    text = StringIO()
    told = made_up(name="a[b]", approximate=True, counted={"instructions": 1100.0, "cycles": 9.0})
    print_explanations([told], {"softmax": "no loops"}, Console(file=text, width=200))
    printed = text.getvalue()
    for words in ("a[b] x 2", "2 us, predicted 1.5 us", "limits: l2 1 us, arithmetic 0.4 us",
                  "try: grow the tile", "only closely", "softmax is not explained: no loops",
                  "counted: instructions 1100 (predicted 1000), cycles 9"):  # fmt: skip
        assert words in printed
    assert "occupancy" not in printed, "a CPU has none"
