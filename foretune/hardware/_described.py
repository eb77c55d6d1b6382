"""Between what code is generated for and what executes it: ``Hardware`` to ``Device`` and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from foretune.errors import BadInputError
from foretune.hardware._device import CPU, FACTORS, GPU, Device
from foretune.hardware._devices import Devices, find_device
from foretune.hardware._hardware import Hardware

_KIB = 1024
_CORE_GB_PER_S = 40.0
"""Bandwidth that one core can draw, and of which two draw little more."""
_GENERIC_LANES = 4
"""Of code for no processor in particular: 128 bits, of SSE2 as of NEON."""
_OPERATIONS_PER_LANE = 4
"""A cycle: two multiply-adds, as most cores have them."""
_FEWER_PER_LANE = {"znver4": 2, "cortex-a53": 2, "cortex-a72": 2, "ivybridge": 2, "sandybridge": 2}
"""Operations per lane and cycle of processors that have fewer, by LLVM's names."""


@dataclass(frozen=True)
class _Architecture:
    """Of one multiprocessor (CUDA programming guide, limits by compute capability)."""

    lanes: int
    shared_kib: int
    l1_kib: int
    threads: int


_ARCHITECTURES = {
    3.5: _Architecture(192, 48, 64, 2048),
    3.7: _Architecture(192, 112, 128, 2048),
    5.2: _Architecture(128, 96, 48, 2048),
    5.3: _Architecture(128, 64, 48, 2048),
    6.0: _Architecture(64, 64, 24, 2048),
    6.1: _Architecture(128, 96, 48, 2048),
    6.2: _Architecture(128, 64, 48, 2048),
    7.0: _Architecture(64, 96, 128, 2048),
    7.2: _Architecture(64, 96, 128, 2048),
    7.5: _Architecture(64, 64, 96, 1024),
    8.0: _Architecture(64, 164, 192, 2048),
    8.6: _Architecture(128, 100, 128, 1536),
    8.7: _Architecture(128, 164, 192, 1536),
    8.9: _Architecture(128, 100, 128, 1536),
    9.0: _Architecture(128, 228, 256, 2048),
    10.0: _Architecture(128, 228, 256, 2048),
    12.0: _Architecture(128, 100, 128, 1536),
}


def device_of(hardware: Hardware, extra: Devices | None = None) -> Device:
    """The processor behind hardware, as far as it may be used.

    One whose data sheet the hardware has, or that is known by its name, has the factors of its
    sheet, those of its cores scaled to the threads that kernels run on. Another one has what was
    probed; what that leaves open is typical. What was measured comes before the data sheet.

    Args:
        hardware: As ``probe`` returns it, or as a record has it.
        extra: Devices that come before those of the table.

    Raises:
        BadInputError: It is a GPU of which neither the name nor enough figures are known.
    """
    own = None if extra is None else extra.find(hardware.name)
    known = own or hardware.device or find_device(hardware.name)
    if known is not None and known.kind != hardware.device_kind:
        known = None
    if hardware.has_cores:
        return _probed_cpu(hardware) if known is None else _part_of(known, hardware)
    if known is not None:
        return known
    return _probed_gpu(hardware)


def described_by(hardware: Hardware, devices: Devices) -> Hardware:
    """The hardware with the data sheet that a user's file has under its name; as it is without."""
    device = devices.find(hardware.name)
    return hardware if device is None else replace(hardware, device=device)


def _part_of(known: Device, hardware: Hardware) -> Device:
    """As many cores of a known processor as there are threads, with what they share."""
    of = dict(known.factors)
    share = hardware.threads / of["cores"]
    if share < 1:
        for name in ("l2_kib", "peak_fp32_gflops"):
            if name in of:
                of[name] = of[name] * share
        if "memory_gb_per_s" in of:
            least = max(_CORE_GB_PER_S, of["memory_gb_per_s"] * share)
            of["memory_gb_per_s"] = min(of["memory_gb_per_s"], least)
        of |= {"cores": float(hardware.threads), "threads": float(hardware.threads)}
    compiled = "simd_fp32_lanes_of_the_compiled_code"
    if hardware.simd_bits and hardware.simd_bits // 32 != known.value(compiled):
        of[compiled] = hardware.simd_bits // 32
    if hardware.l3_bytes:
        # A virtual machine may see another part of it than its cores are of all.
        of["l3_kib"] = hardware.l3_bytes / _KIB
    return replace(known, factors=_in_range(of | _measured(hardware)))


def _probed_cpu(hardware: Hardware) -> Device:
    lanes = max(1, hardware.simd_bits // 32) if hardware.simd_bits else _GENERIC_LANES
    processor = str(json.loads(hardware.target).get("mcpu", ""))
    per_cycle = lanes * _FEWER_PER_LANE.get(processor, _OPERATIONS_PER_LANE)
    of = {
        "cores": float(hardware.threads),
        "threads": float(hardware.threads),
        "simd_fp32_lanes": float(lanes),
        "fp32_flop_per_cycle_per_core": float(per_cycle),
        "l1d_kib_per_core": hardware.l1_bytes / _KIB or 32.0,
        **_measured(hardware),
    }
    if hardware.l2_bytes:
        of["l2_kib"] = hardware.l2_bytes / _KIB * hardware.threads
    if hardware.l3_bytes:
        of["l3_kib"] = hardware.l3_bytes / _KIB
    if hardware.peak_gflops:
        of["boost_mhz"] = 1e3 * hardware.peak_gflops / (of["cores"] * per_cycle)
    return Device(
        key=hardware.key,
        name=hardware.name,
        kind=CPU,
        factors=_in_range(of),
        source="probed",
        note="not in the table; operations per cycle are those that most such cores have",
    )


def _measured(hardware: Hardware) -> dict[str, float]:
    figures = {
        "peak_fp32_gflops": hardware.peak_gflops,
        "memory_gb_per_s": hardware.bandwidth_gbs,
    }
    return {name: value for name, value in figures.items() if value > 0}


def _in_range(factors: Mapping[str, float]) -> dict[str, float]:
    """Without what cannot be: a probe in a virtual machine may read anything."""
    ranges = {factor.name: factor for factor in FACTORS}
    return {
        name: value
        for name, value in factors.items()
        if ranges[name].required or ranges[name].low <= value <= ranges[name].high
    }


def _probed_gpu(hardware: Hardware) -> Device:
    gpu = hardware.gpu or {}
    unit = _ARCHITECTURES.get(round(gpu.get("compute_capability", 0.0), 1))
    if unit is None or not gpu.get("multiprocessors"):
        raise BadInputError(
            f"nothing is known of the device {hardware.name!r} ({hardware.kind}): describe it in "
            "a file and give it with --devices FILE.json"
        )
    of = {
        "units": gpu["multiprocessors"],
        "fp32_lanes": gpu["multiprocessors"] * unit.lanes,
        "warp": gpu.get("warp_size") or 32.0,
        "registers_kib_per_unit": 256.0,
        "shared_kib_per_unit": float(unit.shared_kib),
        "l1_kib_per_unit": float(unit.l1_kib),
        "max_threads_per_unit": float(unit.threads),
        "max_threads_per_block": gpu.get("max_threads_per_block") or 1024.0,
        "l2_kib": gpu.get("l2_bytes", 0.0) / _KIB,
        "boost_mhz": gpu.get("clock_mhz", 0.0),
        **_measured(hardware),
    }
    return Device(hardware.key, hardware.name, GPU, _in_range(of), "probed")


def hardware_of(device: Device) -> Hardware:
    """The hardware that a device is to models that know ``Hardware`` only.

    Kernels run on every core. Nothing can be built for it: its target says no more than the kind.
    """
    return _cpu_hardware(device) if device.has_cores else _gpu_hardware(device)


def _cpu_hardware(device: Device) -> Hardware:
    of = device.factors
    cores = int(of["cores"])
    return Hardware(
        name=device.name,
        target=json.dumps({"kind": "llvm", "num-cores": cores}),
        threads=cores,
        simd_bits=int(32 * device.value("simd_fp32_lanes_of_the_compiled_code")),
        l1_bytes=int(of["l1d_kib_per_core"] * _KIB),
        l2_bytes=int(of.get("l2_kib", 0.0) / cores * _KIB),
        l3_bytes=int(of.get("l3_kib", 0.0) * _KIB),
        peak_gflops=of.get("peak_fp32_gflops", 0.0),
        bandwidth_gbs=of.get("memory_gb_per_s", 0.0),
        device=device,
    )


def _gpu_hardware(device: Device) -> Hardware:
    of = device.factors
    capability = re.search(r"\bsm_(\d+)(\d)\b", device.name)
    target = {"kind": "cuda" if capability else "rocm"}
    if capability:
        target["arch"] = capability[0]
    return Hardware(
        name=device.name,
        target=json.dumps(target),
        threads=1,
        l2_bytes=int(of.get("l2_kib", 0.0) * _KIB),
        peak_gflops=device.value("peak_fp32_gflops"),
        bandwidth_gbs=of.get("memory_gb_per_s", 0.0),
        gpu={
            "multiprocessors": float(of["units"]),
            "warp_size": float(of["warp"]),
            "max_threads_per_block": device.value("max_threads_per_block"),
            "shared_memory_per_block": min(of["shared_kib_per_unit"], 48.0 if capability else 64.0)
            * _KIB,
            "registers_per_block": 65536.0,
            "l2_bytes": of.get("l2_kib", 0.0) * _KIB,
            "clock_mhz": device.value("boost_mhz"),
            "memory_bytes": 0.0,
            "compute_capability": float(f"{capability[1]}.{capability[2]}") if capability else 0.0,
        },
        device=device,
    )


def compiled_generic(device: Device) -> Device:
    """The device as code for no processor in particular uses it: vectors of 128 bits at most.

    A TVM target ``llvm`` without ``-mcpu`` and ``-mattr`` is compiled so, on whatever processor.
    """
    name = "simd_fp32_lanes_of_the_compiled_code"
    if not device.has_cores or name in device.factors:
        return device
    lanes = min(_GENERIC_LANES, device.factors["simd_fp32_lanes"])
    return replace(device, factors={**device.factors, name: lanes})
