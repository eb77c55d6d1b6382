"""Ansor's logs, also in TenSet's layout."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.dataset.readers import read
from foretune.dataset.readers.ansor import STEPS, describe
from foretune.errors import BadInputError

DATA = Path(__file__).parent / "data"
LINES = (DATA / "ansor.json").read_text().splitlines()


def _log(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.json"
    path.write_text("\n".join(lines) + "\n")
    return path


def _changed(**fields: Any) -> str:
    """The last record with other fields, and a program that no other record has."""
    record = json.loads(LINES[-1])
    record["i"][1][1] = [["FU", 7, [0, 1]]]
    record.update(fields)
    return json.dumps(record)


def test_records_become_groups_of_one_workload() -> None:
    reading = read(DATA / "ansor.json")
    conv, matmul = reading.groups
    assert conv.workload == '["conv2d_layer",1,8,14,14,16,3,3,1,1]'
    assert conv.name == "conv2d_layer(1, 8, 14, 14, 16, 3, 3, 1, 1)"
    assert (conv.kind, matmul.kind) == ("conv2d", "dense")
    assert conv.hardware == "ansor"
    assert conv.weight == 1.0
    assert conv.device is not None and conv.device.key == "k80", "the one with sm_37"
    assert conv.machine is not None and conv.machine.kind == "cuda"
    np.testing.assert_allclose(conv.seconds, [0.002, 0.002, math.nan])
    np.testing.assert_allclose(matmul.seconds, [5e-4, 2.5e-4])
    assert matmul.labels.tolist() == [0.5, 1.0]
    assert reading.skipped == {}


def test_steps_become_actions_with_their_arguments_in_a_row() -> None:
    conv, matmul = read(DATA / "ansor.json").groups
    assert [str(action) for action in conv.programs[0].actions] == [
        "CHW(3, local)",
        "SP(3, 0, 16, 1, 8, 2, 1)",
        "SP(3, 4, auto, 2, 2, 1, 1)",
        "RE(3, 0, 4, 1, 5)",
        "CHR(2, shared, 3)",
        "AN(3, 0, 5)",
        "PR(3, 0, auto_unroll_max_step$64)",
    ]
    assert matmul.programs[0].key == "FU(1, 0, 1);RF(1, 0, 1)"
    assert {a.kind for group in (conv, matmul) for p in group.programs for a in p.actions} <= STEPS


def test_equal_actions_are_one_object() -> None:
    first, second = read(DATA / "ansor.json").groups[0].programs[:2]
    assert first.actions[5] is second.actions[1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LINES[0][:300], "not JSON"),
        ("# a comment", "not JSON"),
        ("17", "not a record of this format"),
        ('{"i": 3, "r": 4}', "not a record of this format"),
        ('{"input": [], "config": {}, "result": []}', "not a record of this format"),
        (_changed(r=[[0.0], 0, 1.0, 0]), "seconds not positive and finite"),
        (_changed(r=[[math.nan], 0, 1.0, 0]), "seconds not positive and finite"),
        (_changed(r=[[1e-3, -1e-3], 0, 1.0, 0]), "seconds not positive and finite"),
        (_changed(r=[[], 0, 1.0, 0]), "damaged record"),
        (_changed(r=[["fast"], 0, 1.0, 0]), "damaged record"),
        (_changed(r=[[1e-3], None, 1.0, 0]), "damaged record"),
        (_changed(r=[1e-3]), "damaged record"),
        (_changed(i=[["key"], [[], []]]), "damaged record"),
        (LINES[3].replace('["FU", 1, [0, 1]]', '["XX", 1, [0, 1]]'), "unknown step"),
        (LINES[3].replace('["FU", 1, [0, 1]]', '["FU", 1, [[0, 1]]]'), "damaged record"),
        (LINES[3].replace('["FU", 1, [0, 1]]', "3"), "damaged record"),
        (LINES[3], "duplicate"),
    ],
)
def test_a_line_that_cannot_be_used_is_counted(line: str, reason: str, tmp_path: Path) -> None:
    reading = read(_log(tmp_path, *LINES, line))
    assert reading.skipped == {reason: 1}
    assert reading.lines == 6
    assert [g.seconds.tolist() for g in reading.groups[1:]] == [[5e-4, 2.5e-4]]


def test_failures_and_their_sentinels_are_kept_without_seconds(tmp_path: Path) -> None:
    sentinel = _changed(r=[[1e10], 0, 1.0, 0])
    reading = read(_log(tmp_path, *LINES, sentinel))
    assert np.isnan(reading.groups[1].seconds).tolist() == [False, False, True]
    assert reading.groups[1].labels[2] == 0


def test_groups_without_a_valid_record_or_with_one_are_left_out(tmp_path: Path) -> None:
    failed = [line.replace("], 0, 1.5", "], 2, 1.5") for line in LINES[3:]]
    reading = read(_log(tmp_path, LINES[0], *failed))
    assert reading.groups == []
    assert reading.skipped == {"empty group": 2, "group with one record": 1}


@pytest.mark.parametrize(
    ("sizes", "padding"),
    [
        ([128, 64, 56, 56, 64, 3, 3, 1, "SAME"], 1),
        ([128, 64, 56, 56, 64, 1, 1, 1, "SAME"], 0),
        ([128, 64, 58, 58, 64, 3, 3, 2, "VALID"], 0),
        ([128, 42, 83, 83, 5, 5, 2, "SAME"], 2),
        (["avg", 128, 42, 83, 83, 3, 3, 1, "SAME"], 1),
        ([128, 42, 42, 42, 5, 5, 2, "SAME"], "SAME"),  # 1 before and 2 behind
        ([128, 42, 14, 28, 3, 7, 1, "SAME"], "SAME"),  # 1 in one axis and 3 in the other
        ([128, 64, 56, 56, 64, 3, 3, 1, 1], 1),
        ([64, "SAME"], "SAME"),
        ([128, 64, 56, 56, 64, 3, 3, 0, "SAME"], "SAME"),
    ],
)
def test_one_convolution_has_one_key_however_its_padding_is_written(
    sizes: list[Any], padding: Any
) -> None:
    workload, *_ = describe(json.dumps(["layer", *sizes]))
    assert json.loads(workload) == ["layer", *sizes[:-1], padding]


def test_a_hashed_key_is_known_by_its_shapes() -> None:
    shapes = [[1, 56, 56, 64], [3, 3, 64, 128], [1, 1, 1, 128], [1, 56, 56, 128]]
    hashed = json.dumps(["6d125280c99b3732e95e03b4ef2b5fb7", *shapes])
    workload, name, kind, family = describe(hashed)
    assert kind == "conv2d"
    plain = json.dumps(["f" * 32, *shapes[:2], shapes[-1]])
    assert describe(plain)[3] == family != describe(json.dumps(["f" * 32, *shapes[1:]]))[3]
    assert name == "conv2d 6d125280(1x56x56x64, 3x3x64x128, 1x1x1x128, 1x56x56x128)"
    assert json.loads(workload) == json.loads(hashed)
    assert describe("not JSON") == ("not JSON", "not JSON", "unknown", "")


def test_tenset_has_one_folder_per_hardware(tmp_path: Path) -> None:
    records = tmp_path / "dataset" / "measure_records"
    for name in ("k80", "t4"):
        (records / name).mkdir(parents=True)
        shutil.copy(DATA / "ansor.json", records / name / "([abc],cuda).json")
    network = tmp_path / "dataset" / "network_info"
    network.mkdir()
    # Whoever unpickles this runs its author's code.
    (network / "net.task.pkl").write_bytes(b"cos\nabort\n(tR.")
    for path in (tmp_path, tmp_path / "dataset", records):
        reading = read(path)
        assert reading.format == "tenset"
        assert [g.hardware for g in reading.groups] == ["k80", "k80", "t4", "t4"]
        assert {g.weight for g in reading.groups} == {1.0}
        assert (reading.lines, reading.skipped) == (10, {})
    one = read(records / "t4")
    assert (one.format, {g.hardware for g in one.groups}) == ("tenset", {"t4"})
    assert {g.hardware for g in read(records / "t4", hardware="my T4").groups} == {"my T4"}
    assert {g.hardware for g in read(records, hardware="lab").groups} == {"lab/k80", "lab/t4"}


def test_a_folder_that_is_not_tenset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="measure_records"):
        read(tmp_path, format="tenset")
    with pytest.raises(BadInputError, match="measure_records"):
        read(DATA / "ansor.json", format="tenset")
