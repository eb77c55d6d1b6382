"""Machines that are not here: enough to lower a program for them and to describe them to a model.

GPU figures are the vendors' data sheets (boost clock, dense fp32 rate, memory bandwidth). CPU
presets name an instruction set and leave the figures of a particular machine at 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from foretune.errors import unknown_name
from foretune.hardware._hardware import Hardware

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB


@dataclass(frozen=True)
class _Gpu:
    """A data sheet: compute capability x 10, multiprocessors, MHz, L2 MiB, GiB, TFLOP/s, GB/s."""

    capability: int
    multiprocessors: int
    clock_mhz: int
    l2_mib: float
    memory_gib: int
    fp32_tflops: float
    bandwidth_gbs: float


_GPUS = {
    "a100": _Gpu(80, 108, 1410, 40, 40, 19.5, 1555),
    "a10g": _Gpu(86, 80, 1695, 6, 24, 31.2, 600),
    "h100": _Gpu(90, 132, 1980, 50, 80, 66.9, 3350),
    "rtx-3090": _Gpu(86, 82, 1695, 6, 24, 35.6, 936),
    "rtx-4090": _Gpu(89, 128, 2520, 72, 24, 82.6, 1008),
    "rtx-a5000": _Gpu(86, 64, 1695, 6, 24, 27.8, 768),
    "t4": _Gpu(75, 40, 1590, 4, 16, 8.1, 320),
    "v100": _Gpu(70, 80, 1530, 6, 16, 15.7, 900),
    "xavier-nx": _Gpu(72, 6, 1100, 0.5, 8, 0.84, 59.7),
}


def _gpu(name: str, sheet: _Gpu) -> Hardware:
    target = {
        "kind": "cuda",
        "arch": f"sm_{sheet.capability}",
        "max_num_threads": 1024,
        "max_shared_memory_per_block": 48 * _KIB,
        "max_threads_per_block": 1024,
        "registers_per_block": 65536,
        "thread_warp_size": 32,
    }
    return Hardware(
        name=name,
        target=json.dumps(target, sort_keys=True),
        threads=1,
        l2_bytes=int(sheet.l2_mib * _MIB),
        peak_gflops=sheet.fp32_tflops * 1e3,
        bandwidth_gbs=sheet.bandwidth_gbs,
        gpu={
            "multiprocessors": float(sheet.multiprocessors),
            "warp_size": 32.0,
            "max_threads_per_block": 1024.0,
            "shared_memory_per_block": 48.0 * _KIB,
            "registers_per_block": 65536.0,
            "l2_bytes": sheet.l2_mib * _MIB,
            "clock_mhz": float(sheet.clock_mhz),
            "memory_bytes": float(sheet.memory_gib * _GIB),
            "compute_capability": sheet.capability / 10,
        },
    )


def _cpu(
    name: str,
    mcpu: str,
    threads: int,
    simd_bits: int,
    caches: tuple[int, int, int] = (0, 0, 0),
    triple: str = "",
) -> Hardware:
    target: dict[str, str | int] = {"kind": "llvm", "mcpu": mcpu, "num-cores": threads}
    if triple:
        target["mtriple"] = triple
    return Hardware(
        name=name,
        target=json.dumps(target, sort_keys=True),
        threads=threads,
        simd_bits=simd_bits,
        l1_bytes=caches[0],
        l2_bytes=caches[1],
        l3_bytes=caches[2],
    )


_X86 = "x86_64-linux-gnu"
_ARM = "aarch64-linux-gnu"
_CPUS = {
    hardware.name: hardware
    for hardware in (
        _cpu("x86-64-v2", "x86-64-v2", 4, 128, triple=_X86),
        _cpu("x86-64-v3", "x86-64-v3", 4, 256, triple=_X86),
        _cpu("x86-64-v4", "x86-64-v4", 4, 512, triple=_X86),
        _cpu("skylake-avx512", "skylake-avx512", 8, 512, (32 * _KIB, _MIB, 0), _X86),
        _cpu("icelake-server", "icelake-server", 8, 512, (48 * _KIB, 1280 * _KIB, 0), _X86),
        _cpu("sapphirerapids", "sapphirerapids", 8, 512, (48 * _KIB, 2 * _MIB, 0), _X86),
        _cpu("zen3", "znver3", 8, 256, (32 * _KIB, 512 * _KIB, 32 * _MIB), _X86),
        _cpu("zen4", "znver4", 8, 512, (32 * _KIB, _MIB, 32 * _MIB), _X86),
        # Its SVE registers have 256 bits; vectors of fixed length, as TVM makes them, use NEON.
        _cpu("graviton3", "neoverse-v1", 8, 128, (64 * _KIB, _MIB, 32 * _MIB), _ARM),
        _cpu("raspberry-pi-4", "cortex-a72", 4, 128, (32 * _KIB, _MIB, 0), _ARM),
        _cpu("raspberry-pi-5", "cortex-a76", 4, 128, (64 * _KIB, 512 * _KIB, 2 * _MIB), _ARM),
    )
}


def preset_names() -> tuple[str, ...]:
    """The names ``preset`` accepts, sorted."""
    return tuple(sorted((*_CPUS, *_GPUS)))


def preset(name: str, threads: int | None = None) -> Hardware:
    """The description of a common machine, for lowering and for learned models without it.

    Args:
        name: One of ``preset_names()``.
        threads: For a CPU, how many threads instead of the preset's own number.

    Raises:
        BadInputError: No preset has that name.
    """
    if name in _GPUS:
        return _gpu(name, _GPUS[name])
    if name not in _CPUS:
        raise unknown_name("hardware preset", name, preset_names())
    hardware = _CPUS[name]
    if threads is None:
        return hardware
    target = json.loads(hardware.target) | {"num-cores": threads}
    return replace(hardware, target=json.dumps(target, sort_keys=True), threads=threads)
