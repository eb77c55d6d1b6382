"""AutoTVM's logs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.dataset.readers import read

DATA = Path(__file__).parent / "data"
LINES = (DATA / "autotvm.json").read_text().splitlines()


def _changed(**fields: Any) -> str:
    """The first record with other fields, and a configuration that no other record has."""
    record = json.loads(LINES[0])
    record["config"]["entity"][0][2] = [-1, 32]
    record.update(fields)
    return json.dumps(record)


def test_knobs_become_actions() -> None:
    reading = read(DATA / "autotvm.json")
    (group,) = reading.groups
    assert group.name == (
        'conv2d_NCHWc.x86(1x64x56x56, 64x64x3x3, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", '
        '"float32")'
    )
    assert (group.kind, group.hardware) == ("conv2d", "autotvm")
    assert json.loads(group.workload)[0] == "conv2d_NCHWc.x86"
    np.testing.assert_allclose(group.seconds, [0.003, 0.001, math.nan])
    assert [str(action) for action in group.programs[0].actions] == [
        "sp(tile_ic, -1, 16)",
        "ot(unroll_kw, 1)",
        "an(ann, vec, auto)",
        "re(order, 1, 0)",
    ]
    assert reading.skipped == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LINES[0][:-20], "not JSON"),
        ('{"i": [[]], "r": []}', "not a record of this format"),
        (_changed(result=[[0], 0, 1.0, 0]), "seconds not positive and finite"),
        (_changed(result=[0.1, 0, 1.0, 0]), "damaged record"),
        (_changed(result=[]), "damaged record"),
        (_changed(config={"index": 1}), "damaged record"),
        (_changed(config={"entity": [["tile", "sp"]]}), "damaged record"),
        (_changed(config={"entity": [["tile", 3, [1]]]}), "damaged record"),
        (_changed(config={"entity": [["tile", "sp", {"a": 1}]]}), "damaged record"),
        (_changed(input=["llvm", "task", "x", {}]), "damaged record"),
        (_changed(input=["", "task", [], {}]), "damaged record"),
        (LINES[1], "duplicate"),
    ],
)
def test_a_line_that_cannot_be_used_is_counted(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text("\n".join([*LINES, line]) + "\n")
    reading = read(path)
    assert reading.skipped == {reason: 1}
    assert len(reading.groups[0]) == 3


def test_tasks_with_other_arguments_are_other_groups(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text("\n".join([*LINES, *(line.replace("56, 56", "28, 28") for line in LINES)]))
    first, second = read(path).groups
    assert first.workload != second.workload
    assert first.hardware == second.hardware == "log"
