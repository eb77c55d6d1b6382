"""Behaviour of programs on a GPU, computed from their loops and the device's data sheet.

The idea: a multiprocessor is a set of pipes (arithmetic, issue, shared memory, caches, memory), and
a kernel takes as long as the busiest one, or as long as its warps wait for each other's results if
too few of them are there. What goes through each pipe is counted: loads that unrolled loops leave
(``_gpu_work``), sectors and banks that the lanes of a warp touch (``_gpu_lanes``), footprints of
loops in caches (``_gpu_traffic``), blocks that a multiprocessor holds (``_gpu_launch``). Pruner's
draft scorer and the occupancy calculators of vendors are the models; the constants below are of
today's GPUs and the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._behaviour import METRICS, Behaviours
from foretune.describe._gpu_kernel import Kernel, kernel
from foretune.describe._nests import Nests, Statement
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.hardware import Device


_ISSUED = 4.0
"""Instructions of warps that a multiprocessor starts in a cycle, at least."""
_SPECIAL_LANES = 16.0
"""Of a multiprocessor's lanes, those that compute roots, exponentials, conversions."""
_L2_BYTES, _L2_BYTES_OF_ONE = 32.0, 64.0
"""In a cycle, of the second cache: for each of all multiprocessors, for one alone."""
_THREADS_OF_NARROW_L1 = 1024.0
"""Multiprocessors that hold no more threads (Turing) have a first cache of 64 bytes in a cycle."""
_MEMORY_REACHED = 0.9
"""Of the bandwidth on the data sheet."""
_ARITHMETIC_CYCLES, _SHARED_CYCLES, _L1_CYCLES, _L2_CYCLES, _MEMORY_CYCLES = (
    4.0,
    25.0,
    35.0,
    200.0,
    300.0,
)
"""Until a result is there; that of a further level comes on top of the nearer ones."""
_BARRIER_CYCLES, _BLOCK_CYCLES, _LAUNCH_S = 25.0, 300.0, 3e-6
"""A barrier; the start and end of a block; the start of a kernel."""
_DISPATCH_CYCLES, _WIDE_DISPATCH_CYCLES, _WIDE_WARP_CYCLES = 1.0, 4.0, 2.0
"""From one block to the next on the whole device; where warps have 64 threads from block to block
and from warp to warp: no kernel of tiny blocks on MI50 starts them any faster (4.02 and 2.15)."""
_NOT_LAUNCHED = 10.0
"""Times the seconds of a kernel of which a multiprocessor cannot hold one block. It never runs, but
rankers want a finite time, and one behind those of kernels that are the same in all else. That it
is no time says ``numbers["launchable"]``."""
_SHARPNESS = 4.0
"""Pipes overlap, though not perfectly: the time is this norm of theirs."""


def behaviours(nests: Nests, device: Device) -> Behaviours:
    """Behaviour of GPU programs on a device.

    Args:
        nests: n programs with loops bound to blocks and threads.
        device: A GPU.

    Raises:
        BadInputError: The device is no GPU, or the programs are not for one.
    """
    if device.has_cores or not nests.gpu:
        raise BadInputError(
            "behaviour on a GPU wants a GPU and programs for one, but got a device of kind "
            f"{device.kind!r} and programs for a {'gpu' if nests.gpu else 'cpu'}: use "
            "foretune.describe.behaviours, which chooses"
        )
    parts = [_timed(kernel(nests, group, device), device) for group in _kernels(nests)]
    seconds = np.sum([part.seconds for part in parts], axis=0)
    weights = [part.seconds / seconds for part in parts]
    scores = np.full((len(nests), len(METRICS)), np.nan)
    for column, metric in enumerate(METRICS):
        if metric.name in parts[0].scores:
            shares = zip(parts, weights, strict=True)
            total = np.sum([p.scores[metric.name] * w for p, w in shares], axis=0)
            scores[:, column] = np.clip(total, 0.0, 1.0)
    return Behaviours(
        device=device,
        scores=scores,
        limits_s={
            name: np.sum([part.limits_s[name] for part in parts], axis=0)
            for name in parts[0].limits_s
        },
        seconds=seconds,
        numbers={
            name: _together(name, [part.numbers[name] for part in parts], weights)
            for name in parts[0].numbers
        },
    )


def _together(name: str, each: list[FloatArray], weights: list[FloatArray]) -> FloatArray:
    """A number of all kernels: their least, their sum, or their mean by time."""
    if name in _OF_THE_LEAST:
        return np.asarray(np.min(each, axis=0))
    if name in _ADDITIVE:
        return np.asarray(np.sum(each, axis=0))
    return np.asarray(np.sum([e * w for e, w in zip(each, weights, strict=True)], axis=0))


def _kernels(nests: Nests) -> list[tuple[Statement, ...]]:
    """Statements that are launched together: those under one outermost loop."""
    groups: dict[int, list[Statement]] = {}
    for statement in nests.statements:
        groups.setdefault(statement.path[0] if statement.path else -1, []).append(statement)
    return [tuple(group) for group in groups.values()]


@dataclass(frozen=True)
class _Timed:
    """One kernel; the same as in ``Behaviours``, scores by name."""

    scores: dict[str, FloatArray]
    limits_s: dict[str, FloatArray]
    seconds: FloatArray
    numbers: dict[str, FloatArray]


_ADDITIVE = (
    "operations",
    "bytes_from_l1",
    "bytes_from_l2",
    "bytes_from_memory",
    "bytes_compulsory",
    "bytes_from_shared",
    "blocks",
)
_OF_THE_LEAST = (
    "launchable",
    "blocks_that_threads_allow",
    "blocks_that_registers_allow",
    "blocks_that_shared_memory_allows",
)


def _timed(k: Kernel, device: Device) -> _Timed:
    clock, units, warp = (
        device.value("boost_mhz") * 1e6,
        device.value("units"),
        device.value("warp"),
    )
    lanes = device.value("fp32_lanes") / units
    blocks, warps = k.shape.blocks, k.held.warps
    busiest = np.ceil(blocks / units)
    of_unit = busiest * warps
    rounds = np.ceil(busiest / k.held.blocks)
    issued = k.arithmetic + k.special + k.other + k.memory_instructions
    arithmetic = k.arithmetic * warp / lanes + k.special * warp / _SPECIAL_LANES
    wide = warp / 32.0
    ports = 1.0 if device.value("max_threads_per_unit") > _THREADS_OF_NARROW_L1 else 0.5
    starts = busiest / np.minimum(k.held.blocks, busiest) * _BLOCK_CYCLES
    dispatch = blocks * _DISPATCH_CYCLES
    if warp > 32:
        dispatch = blocks * np.maximum(_WIDE_DISPATCH_CYCLES, _WIDE_WARP_CYCLES * warps)
    memory_bytes = k.from_memory
    limits = {
        "arithmetic": of_unit * arithmetic / clock,
        "instructions": of_unit * issued / max(_ISSUED, lanes / warp) / clock,
        "l1": of_unit * k.l1_cycles * wide / ports / clock,
        "shared": of_unit * k.shared_passes / clock,
        "l2": np.maximum(
            k.from_l2 / (units * _L2_BYTES), k.from_l2 * busiest / blocks / _L2_BYTES_OF_ONE
        )
        / clock,
        "memory": memory_bytes / (device.value("memory_gb_per_s") * 1e9 * _MEMORY_REACHED),
        "latency": rounds * _chain_cycles(k) / clock,
        "overhead": _LAUNCH_S + (starts + dispatch) / clock,
    }
    pipes = [
        limits["arithmetic"], limits["instructions"], limits["l1"] + limits["shared"],
        limits["l2"], limits["memory"], limits["latency"], dispatch / clock,
    ]  # fmt: skip
    together = np.sum([pipe**_SHARPNESS for pipe in pipes], axis=0) ** (1 / _SHARPNESS)
    seconds = together + _LAUNCH_S + starts / clock
    seconds = np.where(k.held.fits, seconds, seconds * _NOT_LAUNCHED)
    return _Timed(_scores(k, device, limits, seconds), limits, seconds, _numbers(k, device))


def _chain_cycles(k: Kernel) -> FloatArray:
    """Cycles from the start of a block to its end, if its warps had the multiprocessor alone."""
    beyond_l1 = _ratio(k.from_l2, k.sectors_bytes)
    beyond_l2 = _ratio(k.from_memory, k.from_l2)
    wait = _L1_CYCLES + beyond_l1 * (_L2_CYCLES + beyond_l2 * _MEMORY_CYCLES)
    cycles = k.barriers * _BARRIER_CYCLES
    for chain in k.chains:
        cycles = cycles + chain.global_rounds * wait + chain.shared_rounds * _SHARED_CYCLES
        cycles = cycles + chain.instructions * np.maximum(
            1.0, _ARITHMETIC_CYCLES / np.maximum(chain.parallel, 1.0)
        )
    return cycles


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Share in [0, 1]; 0 of nothing."""
    return np.asarray(np.where(whole > 0, np.minimum(part / np.maximum(whole, 1e-30), 1.0), 0.0))


def _scores(
    k: Kernel, device: Device, limits: dict[str, FloatArray], seconds: FloatArray
) -> dict[str, FloatArray]:
    units, warp = device.value("units"), device.value("warp")
    blocks, warps = k.shape.blocks, k.held.warps
    one = np.ones(len(blocks))
    busiest = np.ceil(blocks / units)
    chain = _chain_cycles(k)
    issued = k.arithmetic + k.special + k.other + k.memory_instructions
    loads = k.loaded_bytes + k.shared_loaded_bytes
    beyond = _ratio(k.from_l2, np.maximum(k.sectors_bytes, 1e-30))
    compulsory_s = k.distinct / (device.value("memory_gb_per_s") * 1e9)
    roof = np.maximum(k.flops / (device.value("peak_fp32_gflops") * 1e9), compulsory_s)
    throughput = np.max([limits[n] for n in limits if n not in ("latency", "overhead")], axis=0)
    return {
        "unit_utilization_score": np.minimum(1.0, blocks / units),
        "load_balance_score": _balance(k, device),
        "lane_efficiency_score": k.shape.threads / (warps * warp),
        "occupancy_score": np.minimum(k.held.blocks, busiest) * warps / k.held.most_warps,
        "synchronization_score": 1.0 - _ratio(k.barriers * _BARRIER_CYCLES, chain),
        "coalescing_score": np.where(
            k.sectors_bytes > 0, _ratio(k.used_bytes, k.sectors_bytes), 1.0
        ),
        "l1_reuse_score": 1.0 - _ratio(beyond * k.loaded_bytes, loads),
        "l2_reuse_score": 1.0 - _ratio(k.from_memory, k.from_l2),
        "memory_traffic_score": np.where(k.from_memory > 0, _ratio(k.distinct, k.from_memory), 1.0),
        "bank_conflict_score": np.where(
            k.shared_passes > 0, _ratio(k.shared_ideal, k.shared_passes), 1.0
        ),
        "register_score": np.minimum(1.0, k.most_registers / k.wanted_registers)
        / (1.0 + _ratio(k.private_accesses, issued)),
        "vector_compute_score": np.where(
            k.arithmetic + k.special > 0,
            _ratio(
                (k.arithmetic + k.fused) / 2.0,
                k.arithmetic + k.special * device.value("fp32_lanes") / units / _SPECIAL_LANES,
            ),
            one,
        ),
        "instruction_parallelism_score": _ratio(throughput, limits["latency"]),
        "instruction_mix_score": _ratio(k.arithmetic + k.special, issued),
        "roofline_score": _ratio(roof, seconds),
    }


def _balance(k: Kernel, device: Device) -> FloatArray:
    """Work of a multiprocessor, those without a block included, beside that of the busiest."""
    units, blocks = device.value("units"), k.shape.blocks
    waves = blocks / (units * k.held.blocks)
    alone = blocks / units / np.ceil(blocks / units)
    return np.asarray(np.where(waves > 1, waves / np.ceil(waves), alone))


def _numbers(k: Kernel, device: Device) -> dict[str, FloatArray]:
    warps, blocks = k.held.warps, k.shape.blocks
    sectors = np.where(k.sectors_bytes > 0, k.sectors_bytes, 1.0)
    return {
        "blocks": blocks,
        "units_busy": _balance(k, device),
        "threads_per_block": k.shape.threads,
        "warps_per_block": warps,
        "warps_per_unit": np.minimum(k.held.blocks, np.ceil(blocks / device.value("units")))
        * warps,
        "blocks_per_unit": k.held.blocks,
        # Of one multiprocessor: 0 is why a kernel cannot be launched.
        "launchable": k.held.fits.astype(np.float64),
        "blocks_that_threads_allow": np.where(
            k.shape.threads <= device.value("max_threads_per_block"), k.held.limits["threads"], 0.0
        ),
        "blocks_that_registers_allow": k.held.limits["registers"],
        "blocks_that_shared_memory_allows": k.held.limits["shared"],
        "waves": blocks / (device.value("units") * k.held.blocks),
        "registers_per_thread": k.registers,
        "registers_wanted_per_thread": k.wanted_registers,
        "private_bytes_per_thread": k.private_bytes,
        "shared_bytes_per_block": k.shared_bytes,
        "operations": k.flops,
        "bytes_from_l1": k.sectors_bytes,
        "bytes_from_shared": k.shared_loaded_bytes,
        "bytes_from_l2": k.from_l2,
        "bytes_from_memory": k.from_memory,
        "bytes_compulsory": k.distinct,
        "bytes_used_per_byte_moved": np.where(k.sectors_bytes > 0, k.used_bytes / sectors, 1.0),
        "passes_per_shared_request": np.where(
            k.shared_ideal > 0, k.shared_passes / np.maximum(k.shared_ideal, 1e-30), 1.0
        ),
        "barriers_per_block": k.barriers,
        "instructions_per_warp": k.arithmetic + k.special + k.other + k.memory_instructions,
    }
