"""The normal form of traces: equal for traces of one sketch, different otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from foretune.errors import BadInputError
from foretune.records.trace_form import LIMIT, trace_form

SKETCH: list[Any] = [
    [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetSBlock", [], ["root", "main"], ["b1"]],
        ["GetLoops", ["b0"], [], ["l2"]],
        ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]],
        ["Split", ["l2", "v3", "v4"], [True, False], ["l5", "l6"]],
        ["GetConsumers", ["b0"], [], []],
        ["Annotate", ["b1", 32], ["meta_schedule.parallel"], []],
    ],
    [[3, [8, 8]]],
]
STORED: list[Any] = [
    [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v2", "v3"]],
        ["Split", ["l1", "v2", "v3"], [1, 0], ["l4", "l5"]],
        ["EnterPostproc", [], [], []],
        ["Vectorize", ["l5"], [], []],
    ],
    [[2, [4, 16]]],
]


def test_a_stored_trace_has_the_form_of_its_sketch() -> None:
    sketch, stored = trace_form(SKETCH), trace_form(STORED)
    assert sketch.skeleton == stored.skeleton
    limit, tile = sketch.positions
    assert (sketch.positions[tile], stored.positions[tile]) == (3, 2)
    assert (sketch.value(tile), stored.value(tile)) == ([8, 8], [4, 16])
    assert limit.startswith(LIMIT)
    assert (sketch.value(limit), stored.value(limit)) == (32, 0)


@pytest.mark.parametrize(
    ("at", "part", "value"),
    [
        (0, 2, ["D", "main"]),
        (2, 2, [3, 64]),
        (3, 2, [0, 0]),
        (3, 1, ["l1", "v3", "v2"]),
        (3, 0, "Fuse"),
    ],
)
def test_another_program_or_structure_has_another_form(at: int, part: int, value: Any) -> None:
    other = copy.deepcopy(STORED)
    other[0][at][part] = value
    assert trace_form(other).skeleton != trace_form(SKETCH).skeleton


@pytest.mark.parametrize("bad", [None, [], [[]], [["x"], []], [[[1, 2]], []], [[], [[1]]], "ab", 3])
def test_what_is_no_trace_raises(bad: Any) -> None:
    with pytest.raises(BadInputError, match="a trace is"):
        trace_form(bad)
