"""Reading MetaSchedule's traces: of this TVM, of older ones, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.space.trace import Instruction, Trace, plain, snake_case
from tests.space.programs import space

WRITTEN: list[Any] = [
    [
        ["GetBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v2", "v3"]],
        ["Annotate", ["b0", 32], ["meta_schedule.parallel"], []],
        ["EnterPostproc", [], [], []],
        ["GetBlock", [], ["C_update", "main"], ["b4"]],
    ],
    [[2, [4, 16]]],
]


def test_what_post_processors_did_is_left_out():
    trace, whole = Trace.from_json(WRITTEN), Trace.from_json(WRITTEN, whole=True)
    assert [each.kind for each in trace.instructions][-1] == "Annotate"
    assert len(whole.instructions) == len(WRITTEN[0])
    assert trace.decisions == whole.decisions == {2: [4, 16]}


def test_a_decision_of_what_is_left_out_is_left_out_too():
    assert Trace.from_json([WRITTEN[0], [[2, [4, 16]], [5, 1]]]).decisions == {2: [4, 16]}


def test_instructions_of_older_versions_have_their_names_of_today():
    assert Trace.from_json(WRITTEN).instructions[0].kind == "GetSBlock"


def test_an_instruction_knows_what_it_does():
    looking, _, drawing, limiting = Trace.from_json(WRITTEN).instructions
    assert looking.looks_up and not looking.samples and looking.limit is None
    assert drawing.samples and not drawing.looks_up
    assert limiting.limit == "meta_schedule.parallel"


@pytest.mark.parametrize(
    ("inputs", "attrs"), [(["b0", "v1"], ["meta_schedule.parallel"]), (["b0", 4], ["pragma"])]
)
def test_other_annotations_are_no_limits(inputs: list[Any], attrs: list[Any]):
    assert Instruction("Annotate", inputs, attrs, []).limit is None


def test_what_is_written_is_read_back():
    trace = Trace.from_json(WRITTEN)
    assert Trace.from_json(trace.to_json()) == Trace.from_text(trace.text) == trace
    for sketch in space("matmul").sketches:
        assert Trace.from_text(sketch.trace).text == sketch.trace
        assert json.loads(sketch.trace) == Trace.from_text(sketch.trace).to_json()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        [[]],
        "ab",
        [["abcd"], []],
        [[["GetLoops", ["b0"], []]], []],
        [[["GetLoops", "b0", [], []]], []],
        [[["GetLoops", ["b0"], [], [1]]], []],
        [[], [["x", 1]]],
    ],
)
def test_what_is_no_trace_is_refused(bad: Any):
    with pytest.raises(BadInputError, match=r"a trace is \[instructions, decisions\]"):
        Trace.from_json(bad)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Split", "split"), ("RFactor", "rfactor"), ("ReverseComputeAt", "reverse_compute_at")],
)
def test_kinds_have_names(kind: str, name: str):
    assert snake_case(kind) == name


def test_only_numbers_and_text_are_plain():
    assert plain({"a": (1, 2.5, None, "x", True)}) == {"a": [1, 2.5, None, "x", True]}
    with pytest.raises(BadInputError, match="numbers and text"):
        plain(object())
