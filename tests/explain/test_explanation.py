from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from foretune.describe import behaviours
from foretune.explain import Explanation, bound_in_words, print_explanations
from foretune.explain._explanation import PARALLELISM, TAIL, bound_of, explanation
from tests.describe.gpu_kernels import A100, product
from tests.explain.made_up import made_up

LIMITS = {"arithmetic": 3e-6, "memory": 5e-6, "overhead": 1e-7}


def test_the_longest_limit_bounds_a_kernel_whose_units_all_work() -> None:
    assert bound_of(0.9, LIMITS, jobs=4.0) == "memory"


@pytest.mark.parametrize(("jobs", "bound"), [(0.25, PARALLELISM), (1.2, TAIL)])
def test_units_without_work_come_before_any_limit(jobs: float, bound: str) -> None:
    assert bound_of(0.5, LIMITS, jobs) == bound


def test_an_idle_multiprocessor_is_counted_once() -> None:
    """Of 108, a third has one of 36 blocks, not a ninth; and 81 blocks are enough."""
    few, many = (
        explanation(behaviours(product(64 * side, 4), A100), 0, name="product") for side in (6, 9)
    )
    assert few.bound == PARALLELISM
    assert few.share_of_bound == pytest.approx(36 / 108)
    assert "33 % of the units work" in bound_in_words(few)
    assert many.bound not in (PARALLELISM, TAIL)


def test_what_is_over_before_its_threads_have_started_is_not_made_faster_by_more_of_them() -> None:
    assert bound_of(0.1, {**LIMITS, "overhead": 1e-5}, 0.1) == "overhead"


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


def test_what_is_above_the_measured_time_is_not_said_to_take_that_at_least() -> None:
    told = bound_in_words(made_up(seconds=5e-7, share_of_bound=2.0))
    assert "at least" not in told and "2 times what was measured" in told
    assert "at least" in bound_in_words(made_up(seconds=1e-6, share_of_bound=1.0))


def test_a_kernel_on_one_thread_starts_none() -> None:
    limits = {"overhead": 1e-6}
    for threads, words in ((1.0, "what a call costs"), (2.0, "starting threads")):
        numbers = {"parallel_jobs": 4.0, "threads_used": threads}
        told = made_up(bound="overhead", limits_s=limits, numbers=numbers, share_of_bound=0.5)
        assert words in bound_in_words(told)


def test_an_explanation_of_an_earlier_version_is_read() -> None:
    entry = made_up().to_json()
    for name in ("device_name", "hardware", "assumed"):
        del entry[name]
    del entry["advice"][0]["sketch"]
    assert Explanation.from_json(entry).device == "desktop"


def test_what_is_printed_has_names_numbers_and_what_to_try() -> None:
    text = StringIO()
    told = made_up(name="a[b]", approximate=True, counted={"instructions": 1100.0, "cycles": 9.0})
    print_explanations([told], {"softmax": "no loops"}, Console(file=text, width=200),
                       ["for both"])  # fmt: skip
    printed = text.getvalue()
    for words in ("a[b] x 2", "2 us, predicted 1.5 us", "limits: l2 1 us, arithmetic 0.4 us",
                  "on A desktop, 8 cores", "for both", "try: grow the tile", "only closely",
                  "softmax is not explained: no loops",
                  "counted: instructions 1100 (predicted 1000), cycles 9"):  # fmt: skip
        assert words in printed
    assert "occupancy" not in printed, "a CPU has none"
