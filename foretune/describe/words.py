"""Machines and decisions in words: the one place, for prompts, reports and program texts.

``machine_words`` says what is known of the hardware that code is generated for, ``device_words``
what the data sheet of a processor says. Both are the same for equal figures, so that a prompt that
holds them is found again among recorded answers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foretune.describe._behaviour import METRICS
from foretune.hardware import FACTORS, Device
from foretune.space import Choice, ComputeLocation, PerfectTile

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate, Decision

Decisions = tuple[tuple[str, str], ...]
"""What was decided, and how: ``(("tile b0.a1", "4x8x2"), ("unroll_explicit", "64"))``."""

NOT_KNOWN = "not known"

_FACTOR_WORDS = {
    "cores": "{:g} cores",
    "threads": "{:g} hardware threads",
    "simd_fp32_lanes": "vectors of {:g} float32",
    "simd_fp32_lanes_of_the_compiled_code": "compiled code uses vectors of {:g}",
    "fp32_flop_per_cycle_per_core": "{:g} float32 operations per cycle and core",
    "l1d_kib_per_core": "L1 data cache {:g} KiB per core",
    "l2_kib": "L2 cache {:g} KiB in all",
    "l3_kib": "L3 cache {:g} KiB in all",
    "units": "{:g} multiprocessors",
    "fp32_lanes": "{:g} float32 lanes in all",
    "warp": "warps of {:g} threads",
    "registers_kib_per_unit": "registers {:g} KiB per multiprocessor",
    "shared_kib_per_unit": "shared memory {:g} KiB per multiprocessor",
    "l1_kib_per_unit": "L1 cache {:g} KiB per multiprocessor",
    "max_threads_per_unit": "at most {:g} threads per multiprocessor",
    "max_threads_per_block": "at most {:g} threads per block",
    "last_level_cache_mib": "last-level cache {:g} MiB",
    "base_mhz": "base clock {:g} MHz",
    "boost_mhz": "boost clock {:g} MHz",
    "memory_gb_per_s": "memory {:g} GB/s",
    "peak_fp32_gflops": "peak {:g} GFLOP/s",
}


def machine_title(name: str, threads: int) -> str:
    """What a page calls the machine that it was measured on."""
    return f"{name}, {threads} threads"


def machine_facts(hardware: Hardware) -> dict[str, str]:
    """What is known of hardware, for tables: what to what; empty where it is not known."""
    return {
        "name": hardware.name,
        "key": hardware.key,
        "threads": str(hardware.threads),
        "vector registers": f"{hardware.simd_bits} bit" if hardware.simd_bits else "",
        "L1, L2, L3 cache": _caches(hardware),
        "peak": f"{hardware.peak_gflops:.0f} GFLOP/s fp32" if hardware.peak_gflops else "",
        "bandwidth": f"{hardware.bandwidth_gbs:.1f} GB/s" if hardware.bandwidth_gbs else "",
        **_gpu_facts(hardware),
        "target": hardware.target,
    }


def machine_words(hardware: Hardware) -> str:
    """What is known of hardware, in a line: ``"CPU, 8 threads, 256 bit vectors, L1 cache..."``.

    The peak is rounded to a power of two: a probe measures it, and a prompt should not differ for
    it.
    """
    if hardware.has_cores:
        facts = [
            f"CPU, {hardware.threads} threads",
            f"{hardware.simd_bits} bit vectors" if hardware.simd_bits else "",
            *(f"{level} cache {_kib(size)}" for level, size in _levels(hardware) if size),
        ]
    else:
        gpu = sorted(_gpu_facts(hardware).items())
        facts = [f"GPU ({hardware.kind})", *(f"{name} {value}" for name, value in gpu)]
    if hardware.peak_gflops:
        facts.append(f"peak about {2 ** round(math.log2(hardware.peak_gflops))} GFLOP/s")
    return ", ".join(fact for fact in facts if fact)


def device_words(device: Device, name: bool = True) -> str:
    """What a data sheet says, in a line; what it does not say is left out.

    Args:
        device: The device.
        name: Whether its name is said: without, only figures tell devices apart.
    """
    told = [f"{device.kind.upper()} {device.name}" if name else device.kind.upper()]
    factors = [factor.name for factor in FACTORS if factor.name in device.factors]
    told += [_FACTOR_WORDS[each].format(device.factors[each]) for each in factors]
    return ", ".join(told)


def metric_words(kind: str) -> list[str]:
    """The scores of a kind of device, a line each: what it is called, and what it says.

    Args:
        kind: ``"cpu"`` or ``"gpu"``.
    """
    return [
        f"{metric.name} ({metric.group}): {metric.text}"
        for metric in METRICS
        if kind in metric.kinds
    ]


def decision_words(candidate: Candidate) -> Decisions:
    """The decisions of a candidate, by names that depend on no name of the program.

    Before → after: ``C.i = (4, 8, 2, 1)`` → ``("tile b0.a0", "4x8x2x1")``. Blocks and axes are
    numbered in the order in which decisions name them.
    """
    blocks: dict[str, str] = {}
    axes: dict[tuple[str, str], str] = {}
    words = []
    for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
        if isinstance(variable, PerfectTile):
            block, _, axis = variable.name.rpartition(".")
            own = blocks.setdefault(block, f"b{len(blocks)}")
            of_block = sum(1 for each, _ in axes if each == block)
            short = axes.setdefault((block, axis), f"a{of_block}")
            words.append((f"tile {own}.{short}", _tile(decision)))
        elif isinstance(variable, Choice):
            assert isinstance(decision, int)
            words.append((variable.name.rpartition(".")[2], str(variable.values[decision])))
        else:
            assert isinstance(variable, ComputeLocation)
            own = blocks.setdefault(variable.name, f"b{len(blocks)}")
            words.append((f"location {own}", str(decision)))
    return tuple(words)


def _tile(decision: Decision) -> str:
    assert isinstance(decision, tuple)
    return "x".join(str(factor) for factor in decision)


def _levels(hardware: Hardware) -> tuple[tuple[str, int], ...]:
    return ("L1", hardware.l1_bytes), ("L2", hardware.l2_bytes), ("L3", hardware.l3_bytes)


def _caches(hardware: Hardware) -> str:
    sizes = [size for _, size in _levels(hardware)]
    return ", ".join(_kib(size) if size else NOT_KNOWN for size in sizes) if any(sizes) else ""


def _kib(size: int) -> str:
    return f"{size // 1024} KiB"


def _gpu_facts(hardware: Hardware) -> dict[str, str]:
    return {name.replace("_", " "): f"{v:g}" for name, v in (hardware.gpu or {}).items()}
