"""Machines that are not here: enough to lower a program for them and to describe them to a model.

GPU figures are those of the table of devices. CPU presets name an instruction set and leave the
figures of a particular machine at 0.
"""

from __future__ import annotations

import json
from dataclasses import replace

from foretune.errors import unknown_name
from foretune.hardware._described import hardware_of
from foretune.hardware._devices import known_devices
from foretune.hardware._hardware import Hardware

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB


_GPUS = {
    "a100": ("a100", 40),
    "a10g": ("a10g", 24),
    "h100": ("h100", 80),
    "rtx-3090": ("rtx3090", 24),
    "rtx-4090": ("rtx4090", 24),
    "rtx-a5000": ("a5000", 24),
    "t4": ("t4", 16),
    "v100": ("v100", 16),
    "xavier-nx": ("jetson-xavier-nx", 8),
}
"""Key in the table of devices, and GiB of memory, which the table has not."""


def _gpu(name: str, key: str, memory_gib: int) -> Hardware:
    """A card as the driver would describe it, by its data sheet."""
    of = hardware_of(known_devices()[key])
    target = json.loads(of.target) | {
        "max_num_threads": 1024,
        "max_shared_memory_per_block": 48 * _KIB,
        "max_threads_per_block": 1024,
        "registers_per_block": 65536,
        "thread_warp_size": 32,
    }
    return replace(
        of,
        name=name,
        target=json.dumps(target, sort_keys=True),
        gpu={**(of.gpu or {}), "memory_bytes": float(memory_gib * _GIB)},
        device=None,
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
        return _gpu(name, *_GPUS[name])
    if name not in _CPUS:
        raise unknown_name("hardware preset", name, preset_names())
    hardware = _CPUS[name]
    if threads is None:
        return hardware
    target = json.loads(hardware.target) | {"num-cores": threads}
    return replace(hardware, target=json.dumps(target, sort_keys=True), threads=threads)
