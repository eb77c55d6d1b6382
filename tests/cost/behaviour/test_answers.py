"""What a language model writes is validated, clipped or rejected, and counted."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.cost.behaviour.answers import Counts, read_scores
from foretune.cost.behaviour.prompts import template
from foretune.describe import METRICS

CPU = [metric.name for metric in METRICS if "cpu" in metric.kinds]
ALL = dict.fromkeys(CPU, 0.25)


def at(name):
    return [metric.name for metric in METRICS].index(name)


def read(value, kind="cpu"):
    return read_scores(value if isinstance(value, str) else json.dumps(value), kind)


def test_the_template_itself_is_an_answer():
    for kind in ("cpu", "gpu"):
        reading = read(template(kind), kind)
        own = np.array([kind in metric.kinds for metric in METRICS])
        assert (reading.scores[own] == 0).all() and np.isnan(reading.scores[~own]).all()
        assert reading.counts == Counts(answers=1)


def test_groups_and_reasons_of_the_paper_are_read():
    grouped = {
        "memory_assessment": {
            "coalescing_score": {"description": "d", "score": 0.75, "reasoning_text": "r"}
        },
        "bottlenecks": ["memory"],
    }
    flat = {name: 0.5 for name in CPU if name != "coalescing_score"}
    reading = read({**grouped, **flat})
    assert reading.scores[at("coalescing_score")] == 0.75
    assert reading.counts == Counts(answers=1)


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```".replace("{}", json.dumps(ALL)),
        "Let me think {about it}. " + json.dumps(ALL) + " Done.",
        json.dumps({"speed": 1}) + json.dumps(ALL),
    ],
)
def test_what_stands_around_the_object_does_no_harm(text):
    assert read(text).scores[at("roofline_score")] == 0.25


@pytest.mark.parametrize(
    ("value", "wanted", "counted"),
    [
        (1.5, 1.0, "clipped"),
        (-3, 0.0, "clipped"),
        ("0.5", 0.5, "texts"),
        ("40%", 0.4, "texts"),
        ("high", None, "rejected"),
        (None, None, "rejected"),
        (True, None, "rejected"),
        ([0.5], None, "rejected"),
        (float("nan"), None, "rejected"),
        (float("inf"), None, "rejected"),
        (10**400, None, "rejected"),
        ("nan", None, "rejected"),
    ],
)
def test_single_scores(value, wanted, counted):
    reading = read({**ALL, "roofline_score": value})
    found = reading.scores[at("roofline_score")]
    assert np.isnan(found) if wanted is None else found == pytest.approx(wanted)
    assert getattr(reading.counts, counted) == 1
    assert reading.counts.missing == (wanted is None)


def test_extra_entries_are_dropped_and_counted():
    reading = read({**ALL, "speed_score": 0.9, "occupancy_score": 0.3})
    # Occupancy is of GPUs.
    assert reading.counts.extra == 2 and np.isnan(reading.scores[at("occupancy_score")])


@pytest.mark.parametrize("text", ["", "no", "{", '{"a": 1}', "[1]", "{" * 5000, '"roofline_score"'])
def test_what_is_no_object_with_scores_is_malformed(text):
    reading = read_scores(text, "cpu")
    assert reading.scores is None and reading.counts.malformed == 1 and reading.told


def test_too_few_scores_are_not_used_and_the_missing_are_named():
    reading = read({"roofline_score": 0.5})
    assert reading.scores is None and reading.counts.sparse == 1
    assert "load_balance_score" in reading.told and "roofline_score" not in reading.told


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text):
    read_scores(text, "gpu")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*CPU, "memory_assessment", "score", "x"]), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_whatever_is_read_is_in_range(value):
    reading = read_scores(json.dumps(value), "cpu")
    if reading.scores is not None:
        known = reading.scores[~np.isnan(reading.scores)]
        assert ((known >= 0) & (known <= 1)).all()


def test_counts_add_up():
    total = Counts(answers=1, clipped=2)
    total.add(Counts(answers=1, texts=3))
    assert total.to_json()["answers"] == 2 and total.to_json()["texts"] == 3
