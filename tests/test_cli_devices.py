"""Data sheets on the command line: listed, and given for devices that the table lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretune.hardware import Hardware, described_by, device_of, known_devices, read_devices
from foretune.tuning.asked import with_sheet
from tests.evaluate.support import write_log
from tests.test_cli import call
from tests.test_cli_data import hinted, log, nothing_excluded  # noqa: F401

BOARD = {
    "name": "Board of the lab",
    "kind": "cpu",
    "cores": 4,
    "simd_fp32_lanes": 4,
    "fp32_flop_per_cycle_per_core": 8,
    "l1d_kib_per_core": 32,
    "source": "its manual",
}


@pytest.fixture
def board(tmp_path: Path) -> Path:
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"board": {**BOARD, "aliases": ["cpu"]}}))
    return path


def test_devices_are_listed_with_their_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _err = call(capsys, "hardware", "--devices")
    assert code == 0
    for key in known_devices():
        assert key in out
    (k80,) = [line for line in out.splitlines() if line.split()[:1] == ["k80"]]
    assert k80.split()[1:6] == ["13", "2,496", "875", "4,368", "240"]
    (a76,) = [line for line in out.splitlines() if line.split()[:1] == ["cortex-a76"]]
    assert a76.split()[1:6] == ["8", "4", "?", "?", "?"]


def test_devices_of_a_file_are_listed_and_written_back(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "again.json"
    code, out, _err = call(capsys, "hardware", "--devices", str(board), "--json", str(place))
    assert code == 0 and "Board of the lab" in out and "k80" not in out
    again = read_devices(place)
    assert dict(again) == dict(read_devices(board))
    assert again.find("cpu") == again["board"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("hardware --devices DIR/nowhere.json", "cannot be read"),
        ("hardware --devices --threads 2", "no use of --threads"),
        ("hardware --devices BOARD --json BOARD", "would overwrite"),
        ("eval hinted --data LOG --devices DIR/nowhere.json", "cannot be read"),
        ("eval hinted --data LOG --devices BOARD --json BOARD", "would overwrite"),
        ("train hinted --data LOG -o DIR/w.npz --devices DIR/bad.json", "lacks the factor 'cores'"),
        ("tune gemm_64 --devices DIR/bad.json", "lacks the factor 'cores'"),
        ("tune gemm_64 --devices BOARD --json BOARD", "would overwrite"),
    ],
)
@pytest.mark.usefixtures("hinted")
def test_a_file_that_is_wrong_costs_nothing(
    words: str,
    message: str,
    board: Path,
    log: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({"box": {**BOARD, "cores": None}}))
    places = {"DIR": str(tmp_path), "BOARD": str(board), "LOG": str(log)}
    for name, place in places.items():
        words = words.replace(name, place)
    code, _out, err = call(capsys, *words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


@pytest.mark.usefixtures("hinted")
def test_rankers_learn_from_groups_that_know_the_device_of_the_file(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.evaluate.support import Hinted

    seen: list[Any] = []
    fit = Hinted.fit

    def remembered(self: Hinted, groups: Any, validation: Any = ()) -> None:
        seen.extend(groups)
        fit(self, groups, validation)

    monkeypatch.setattr(Hinted, "fit", remembered)
    data = write_log(tmp_path / "cpu.json", range(10))
    for command in (["eval", "hinted"], ["train", "hinted", "-o", str(tmp_path / "w.npz")]):
        seen.clear()
        code, _out, err = call(capsys, *command, "--data", str(data), "--devices", str(board))
        assert code == 0, err
        assert {group.device.key for group in seen} == {"board"}
        assert {group.machine.threads for group in seen} == {4}


def test_tuning_knows_the_device_that_the_file_has_for_the_hardware(
    board: Path, caplog: pytest.LogCaptureFixture
) -> None:
    devices = read_devices(board)
    hardware = Hardware("cpu", '{"kind": "llvm"}', 2, simd_bits=128)
    found = with_sheet(hardware, devices)
    assert found == hardware and found.device == devices["board"]
    part = device_of(found)
    assert (part.key, part.factors["cores"]) == ("board", 2)
    assert not caplog.records
    other = with_sheet(Hardware("other", '{"kind": "llvm"}', 2), devices)
    assert other.device is None
    assert "none that is called 'other'" in caplog.text
    assert with_sheet(hardware, None) is hardware


def test_hardware_keeps_its_device_in_files(board: Path) -> None:
    hardware = Hardware("cpu", '{"kind": "llvm"}', 2)
    known = described_by(hardware, read_devices(board))
    assert Hardware.from_json(json.loads(json.dumps(known.to_json()))).device == known.device
    assert "device" not in hardware.to_json()
    assert Hardware.from_json(hardware.to_json()) == hardware
    assert known.key == hardware.key
