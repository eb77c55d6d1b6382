"""From hardware to the device that executes it, and back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.features import machine_features
from foretune.hardware import (
    FEATURE_COLUMNS,
    Hardware,
    compiled_generic,
    device,
    device_names,
    device_of,
    hardware_of,
    known_devices,
    preset,
    preset_names,
    probe,
)


def test_this_machine_is_a_device_with_the_cores_that_may_be_used() -> None:
    hardware = probe()
    here = device_of(hardware)
    assert here.kind == "cpu"
    assert here.factors["cores"] == hardware.threads
    assert here.value("simd_fp32_lanes_of_the_compiled_code") == hardware.simd_bits / 32
    if hardware.l1_bytes:
        assert here.factors["l1d_kib_per_core"] == pytest.approx(hardware.l1_bytes / 1024, rel=0.5)


def test_a_known_processor_has_the_share_of_the_threads() -> None:
    hardware = Hardware("AMD EPYC 7452 32-Core Processor", '{"kind": "llvm"}', 4, simd_bits=256)
    part, whole = device_of(hardware), device("epyc-7452")
    assert (part.key, part.factors["cores"]) == ("epyc-7452", 4)
    assert part.factors["l2_kib"] == 4 * 512
    assert part.factors["peak_fp32_gflops"] == pytest.approx(4 * 2.35 * 32)
    assert part.factors["l3_kib"] == whole.factors["l3_kib"], "it is shared"
    assert part.factors["memory_gb_per_s"] == 40, "more than four cores can draw is no use"
    more = device_of(replace(hardware, threads=99))
    assert more.factors["cores"] == 32


def test_what_was_measured_comes_before_the_data_sheet() -> None:
    hardware = Hardware("Intel Core i7-3770", '{"kind": "llvm"}', 4, simd_bits=256)
    measured = device_of(replace(hardware, peak_gflops=200.0, bandwidth_gbs=19.0))
    assert measured.value("peak_fp32_gflops") == 200.0
    assert measured.value("memory_gb_per_s") == 19.0


def test_an_unknown_processor_has_what_was_probed() -> None:
    target = '{"kind": "llvm", "mcpu": "x86-64-v3"}'
    hardware = Hardware("Some CPU", target, 6, 256, 48 << 10, 1 << 20, 8 << 20, 960.0, 50.0)
    found = device_of(hardware)
    assert dict(found.factors) == {
        "cores": 6, "threads": 6, "simd_fp32_lanes": 8, "fp32_flop_per_cycle_per_core": 32,
        "l1d_kib_per_core": 48, "l2_kib": 6 * 1024, "l3_kib": 8 * 1024, "peak_fp32_gflops": 960,
        "memory_gb_per_s": 50, "boost_mhz": 5000,
    }  # fmt: skip
    # 960 GFLOP/s of six cores with 32 operations a cycle are 5 GHz.
    unknown = device_of(Hardware("Some CPU", '{"kind": "llvm"}', 2))
    assert unknown.factors["simd_fp32_lanes"] == 4
    assert unknown.factors["l1d_kib_per_core"] == 32


def test_a_gpu_is_known_by_its_name_or_by_its_capability() -> None:
    assert device_of(preset("rtx-3090")).key == "rtx3090"
    gpus = [preset(name) for name in preset_names() if preset(name).kind == "cuda"]
    for gpu in gpus:
        sheet = known_devices()[device_of(gpu).key]
        assert gpu.peak_gflops == sheet.factors["peak_fp32_gflops"]
        assert (gpu.gpu or {})["multiprocessors"] == sheet.factors["units"]
        assert gpu.device is None and json.loads(gpu.target)["arch"] in sheet.name
    sheet = device("rtx3090").factors
    foreign = device_of(replace(preset("rtx-3090"), name="GPU of the lab"))
    for name in ("units", "fp32_lanes", "shared_kib_per_unit", "max_threads_per_unit", "l2_kib"):
        assert foreign.factors[name] == sheet[name], name
    with pytest.raises(BadInputError, match="nothing is known of the device 'opencl'"):
        device_of(Hardware("opencl", '{"kind": "opencl"}', 1))


@pytest.mark.parametrize("key", device_names())
def test_a_device_as_hardware_has_its_figures_in_the_columns(key: str) -> None:
    entry = known_devices()[key]
    hardware = hardware_of(entry)
    columns = dict(
        zip((name for name, _ in FEATURE_COLUMNS), hardware.features().tolist(), strict=True)
    )
    assert columns["is_gpu"] == (entry.kind == "gpu")
    assert columns["bandwidth_gbs"] == entry.factors.get("memory_gb_per_s", 0)
    if entry.kind == "cpu":
        assert columns["threads"] == entry.factors["cores"]
        assert columns["l1_bytes"] == 1024 * entry.factors["l1d_kib_per_core"]
    else:
        assert columns["gpu_multiprocessors"] == entry.factors["units"]
        assert (columns["gpu_compute_capability"] > 0) == ("sm_" in entry.name)
    assert np.isfinite(machine_features(hardware)).all()
    assert device_of(hardware) == entry
    generic = compiled_generic(entry)
    assert device_of(hardware_of(generic)) == generic


def test_code_for_no_processor_in_particular_has_vectors_of_128_bits() -> None:
    assert compiled_generic(device("i7-3770")).value("simd_fp32_lanes_of_the_compiled_code") == 4
    assert compiled_generic(device("k80")) == device("k80")
    graviton = device("graviton3")
    assert compiled_generic(graviton) is graviton, "what the file says stays"
