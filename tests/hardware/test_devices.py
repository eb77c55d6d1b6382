"""The table of devices, files of further ones, and what names stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import BadInputError
from foretune.hardware import (
    FACTORS,
    Device,
    device,
    device_names,
    find_device,
    known_devices,
    read_devices,
)
from foretune.hardware._device import OF_CORES
from tests import ROOT

PAPER = (
    "xeon-platinum-8272cl", "xeon-e5-2673-v4", "epyc-7452", "graviton2", "k80", "t4",
    "xeon-platinum-8575c", "cortex-a76", "a100", "h100", "rtx4070",
)  # fmt: skip
CPU = {
    "kind": "cpu",
    "cores": 4,
    "simd_fp32_lanes": 8,
    "fp32_flop_per_cycle_per_core": 32,
    "l1d_kib_per_core": 32,
}
GPU = {"kind": "gpu", "units": 10, "fp32_lanes": 640, "warp": 32, "shared_kib_per_unit": 64}


def _written(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "devices.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_the_devices_of_the_paper_and_of_the_real_data_are_known() -> None:
    assert set(PAPER) <= set(known_devices())
    for name in ("cortex-a7", "ryzen-3700x", "i5-1035g1", "i7-3770", "gtx1650", "A4000", "A6000",
                 "W7800", "gfx900", "gfx906", "gfx908", "gfx90a", "mi50", "rtx3080"):  # fmt: skip
        assert device(name).key in device_names()


@pytest.mark.parametrize("key", device_names())
def test_the_figures_of_an_entry_agree_with_each_other(key: str) -> None:
    """Peaks and lanes follow from cores and clocks: what was mistyped would not."""
    entry = known_devices()[key]
    of = entry.factors
    assert entry.source and entry.name
    if entry.kind == "cpu":
        assert of["threads"] in (of["cores"], 2 * of["cores"])
        assert of["fp32_flop_per_cycle_per_core"] >= 2
        clocks = [of[n] for n in ("base_mhz", "boost_mhz") if n in of]
        peaks = [of["cores"] * of["fp32_flop_per_cycle_per_core"] * c / 1e3 for c in clocks]
    else:
        assert of["fp32_lanes"] % of["units"] == 0
        assert of["fp32_lanes"] // of["units"] in (64, 128, 192)
        # Two operations a multiply-add, twice as many where two are issued at once.
        peaks = [n * of["fp32_lanes"] * of["boost_mhz"] / 1e3 for n in (2, 4)]
    if "base_mhz" in of and "boost_mhz" in of:
        assert of["base_mhz"] <= of["boost_mhz"]
    if "peak_fp32_gflops" in of:
        assert any(of["peak_fp32_gflops"] == pytest.approx(peak, rel=0.01) for peak in peaks)


def test_the_k80_is_one_die_in_all_its_figures() -> None:
    """The paper mixes: 13 multiprocessors and 240 GB/s of a die, 8.7 TFLOP/s of the board."""
    of = device("NVIDIA Tesla K80").factors
    assert (of["units"], of["memory_gb_per_s"], of["fp32_lanes"]) == (13, 240, 2496)
    assert of["peak_fp32_gflops"] == pytest.approx(8740 / 2, rel=0.01)


def test_the_table_agrees_with_the_figures_beside_the_real_data(shared_data: Path) -> None:
    given = read_devices(shared_data / "devices" / "devices.json")
    assert len(given) == 13
    for key, theirs in given.items():
        ours = device(key)
        compiled = "simd_fp32_lanes_of_the_compiled_code"
        for name, value in theirs.factors.items():
            if name != compiled:
                assert ours.factors[name] == pytest.approx(value, rel=0.005), (key, name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cpu-i7-3770", "i7-3770"),
        ("Intel(R) Core(TM) i7-3770 CPU @ 3.40GHz", "i7-3770"),
        ("AMD Ryzen 7 3700X 8-Core Processor", "ryzen-3700x"),
        ("AMD EPYC 7452 32-Core Processor", "epyc-7452"),
        ("Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz", "xeon-e5-2673-v4"),
        ("e5-2673", "xeon-e5-2673-v4"),
        ("platinum-8272", "xeon-platinum-8272cl"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "i9-13900k"),
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("A100", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 3080", "rtx3080"),
        ("NVIDIA RTX A6000", "a6000"),
        ("AMD Radeon PRO W7800", "w7800"),
        ("gpu-gtx1650", "gtx1650"),
        ("gfx906", "mi50"),
        ("gfx90a68", "mi210"),
        ("sm_37", "k80"),
    ],
)
def test_what_logs_and_systems_call_a_device(name: str, key: str) -> None:
    assert device(name).key == key


@pytest.mark.parametrize("name", ["sm_80", "sm_86", "skylake-avx512", "llvm", "cuda", "", "8", "-"])
def test_what_several_devices_share_stands_for_none(name: str) -> None:
    assert find_device(name) is None
    with pytest.raises(BadInputError, match="unknown device"):
        device(name)


def test_an_unknown_name_is_refused_with_those_that_look_like_it() -> None:
    with pytest.raises(BadInputError, match=r"unknown device 'i7-3771': did you mean i7-3770\?"):
        device("i7-3771")


def test_a_file_is_flat_or_grouped_and_null_is_not_known(tmp_path: Path) -> None:
    entry = {**CPU, "name": "My Board", "l2_kib": None, "system": "a board", "aliases": ["mb"]}
    for data in (
        {"my-board": entry},
        {"lab": {"my-board": entry}, "other": {"my-gpu": GPU}},
        {"schema": "foretune-devices-1", "devices": {"my-board": entry}},
    ):
        devices = read_devices(_written(tmp_path, data))
        board = device("cpu-mb", devices)
        assert (board.key, board.name) == ("my-board", "My Board")
        assert "l2_kib" not in board.factors
        assert board.factors["cores"] == 4


def test_a_file_comes_before_the_table_and_may_name_what_is_in_it(tmp_path: Path) -> None:
    data = {"k80": {**GPU, "units": 10}, "archive/cuda-sm_86": {"same_as": "RTX 3080"}}
    devices = read_devices(_written(tmp_path, data))
    assert device("k80", devices).factors["units"] == 10
    assert device("archive/cuda-sm_86", devices) == device("rtx3080")


@pytest.mark.parametrize("missing", [f.name for f in FACTORS if f.required])
def test_a_missing_required_factor_is_refused_by_name(missing: str, tmp_path: Path) -> None:
    kind = next(f.kinds[0] for f in FACTORS if f.name == missing)
    entry = {**(CPU if kind == "cpu" else GPU), missing: None}
    factor = next(f for f in FACTORS if f.name == missing)
    with pytest.raises(BadInputError, match=f"'box' lacks the factor '{missing}'") as told:
        read_devices(_written(tmp_path, {"box": entry}))
    assert f"{factor.low:g} <= {missing} <= {factor.high:g}` ({factor.unit}" in str(told.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "cannot be read as a JSON file"),
        ("[]", "must hold an object"),
        ("{}", "must hold an object"),
        ({"box": {**CPU, "cores": 0}}, "`1 <= cores <= 1024`"),
        ({"box": {**CPU, "cores": 4.5}}, r"cores <= 1024` \(count, a whole number\).*4\.5"),
        ({"box": {**GPU, "warp": 31.5}}, "whole number"),
        ({"box": {**CPU, "cores": True}}, "`1 <= cores <= 1024`"),
        ({"box": {**CPU, "cores": "four"}}, "`1 <= cores <= 1024`"),
        ({"box": {**CPU, "warp": 32}}, "'warp', which a cpu has not"),
        ({"box": {**CPU, "kind": "tpu"}}, "kind is 'cpu' or 'gpu'"),
        ({"box": {**CPU, "name": 3}}, "name is text"),
        ({"box": {**CPU, "aliases": "b"}}, "aliases is a list"),
        ({"box": {**CPU, "instruction_set": "arm"}}, "one of x86_64, aarch64, armv7"),
        ({"box": {**CPU, "neon_pipes": -1}}, "`0 <= neon_pipes <= 64`"),
        ({"box": {**CPU, "in_order": 1}}, "in_order is true or false"),
        ({"box": {**GPU, "in_order": True}}, "are of a cpu"),
        ({"box": {"cores": 4}}, "says its kind"),
        ({"box": {"same_as": "nowhere"}}, "same_as"),
        ({"box": CPU, "Box": CPU}, "stands for one device"),
        ({"a": {"box": CPU}, "b": {"box": CPU}}, "has two"),
        ('{"box": {"kind": "cpu"}, "box": {"kind": "cpu"}}', "stands there twice"),
        ({"schema": "other", "devices": {"box": CPU}}, "schema is 'foretune-devices-1'"),
    ],
)
def test_a_file_that_is_wrong_is_refused(data: Any, message: str, tmp_path: Path) -> None:
    path = _written(tmp_path, data)
    with pytest.raises(BadInputError, match=message) as told:
        read_devices(path)
    assert str(told.value).startswith(str(path)) and str(told.value).count(str(path)) == 1


def test_a_count_may_be_written_as_any_whole_number(tmp_path: Path) -> None:
    box = {**CPU, "cores": 4.0, "l1d_kib_per_core": 37.5}
    assert read_devices(_written(tmp_path, {"box": box}))["box"].value("cores") == 4


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        read_devices(tmp_path / "nowhere.json")


@pytest.mark.parametrize("key", device_names())
def test_an_entry_that_was_written_reads_back(key: str, tmp_path: Path) -> None:
    entry = known_devices()[key]
    back = read_devices(_written(tmp_path, {key: entry.to_json()}))[key]
    assert back == entry and back.note == entry.note


@given(st.text(max_size=20))
def test_any_text_names_a_device_or_is_refused(name: str) -> None:
    try:
        assert isinstance(device(name), Device)
    except BadInputError as error:
        assert "unknown device" in str(error)


def test_the_documentation_names_every_factor() -> None:
    page = ROOT / "docs" / "devices.md"
    text = page.read_text(encoding="utf-8")
    names = [*(factor.name for factor in FACTORS), *OF_CORES]
    assert not [name for name in names if f"`{name}`" not in text]


def test_the_example_of_the_documentation_is_a_file_of_devices(tmp_path: Path) -> None:
    page = ROOT / "docs" / "devices.md"
    example = page.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    devices = read_devices(_written(tmp_path, example))
    assert device("farm/llvm-4", devices).key == "my-board"
    assert device("old-log/cuda-sm_86", devices).key == "rtx3080"
