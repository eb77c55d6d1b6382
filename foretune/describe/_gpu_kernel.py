"""One kernel on one GPU: what its blocks need, move and execute, before it becomes time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._gpu_arrays import allocated, barriers_of, fences_of
from foretune.describe._gpu_lanes import Lanes, lanes, warps_of
from foretune.describe._gpu_launch import Launch, Residency, launch, most_registers, residency
from foretune.describe._gpu_traffic import captured, traffic
from foretune.describe._gpu_work import (
    BASE_REGISTERS,
    Work,
    work,
)
from foretune.describe._nests import Nests, Statement

if TYPE_CHECKING:
    from foretune.hardware import Device


_LINE_SECTORS = 4
"""Sectors that the first cache hands out in a cycle."""


_ACCESSES_OF_SPILLED = 2.0
"""A value without a register is loaded and stored again when it is used."""
_LOADS_IN_FLIGHT, _GUARDED_LOADS_IN_FLIGHT = 16.0, 2.0
"""Of one thread: more wait for registers. Loads behind conditions, as those of
padding are, hardly overlap: on K80 and MI50 kernels that copy padded tiles wait for each."""


@dataclass(frozen=True)
class Chain:
    """What a warp goes through in one statement, one thing after another; of shape (n,).

    Attributes:
        global_rounds: Times it waits for global memory.
        shared_rounds: Times it waits for shared memory.
        instructions: That it issues.
        parallel: Independent ones among them.
    """

    global_rounds: FloatArray
    shared_rounds: FloatArray
    instructions: FloatArray
    parallel: FloatArray


@dataclass
class Kernel:
    """Sums over the statements of one kernel; arrays of shape (n,).

    Per warp: instructions of one warp of a block, of its whole run. Bytes are of the whole kernel.
    """

    shape: Launch
    held: Residency
    registers: FloatArray
    most_registers: FloatArray
    wanted_registers: FloatArray
    shared_bytes: FloatArray
    flops: FloatArray
    arithmetic: FloatArray
    fused: FloatArray
    special: FloatArray
    other: FloatArray
    memory_instructions: FloatArray
    shared_passes: FloatArray
    shared_ideal: FloatArray
    l1_cycles: FloatArray
    loaded_bytes: FloatArray
    shared_loaded_bytes: FloatArray
    sectors_bytes: FloatArray
    used_bytes: FloatArray
    from_l2: FloatArray
    from_memory: FloatArray
    distinct: FloatArray
    barriers: FloatArray
    private_bytes: FloatArray
    private_accesses: FloatArray
    chains: list[Chain]


def kernel(nests: Nests, statements: tuple[Statement, ...], device: Device) -> Kernel:
    """Everything about one kernel that does not need its time.

    Args:
        nests: The programs.
        statements: Those of the kernel.
        device: The device.
    """
    n = len(nests)
    shape = launch(nests, statements)
    most = most_registers(shape.threads, device)
    room = allocated(nests, statements)
    local, shared = room.registers, room.shared_bytes
    fences = fences_of(nests, statements)
    works = [
        work(nests, s, fence, shape.block, local, most)
        for s, fence in zip(statements, fences, strict=True)
    ]
    zero = np.zeros(n)
    live = np.max([w.live for w in works], axis=0, initial=0.0)
    wanted = np.max([w.wanted for w in works], axis=0, initial=0.0)
    needed = BASE_REGISTERS + local + live
    registers = np.minimum(needed, most)
    held = residency(shape.threads, registers, shared, device)
    spilled = np.maximum(needed - most, 0.0)
    uses = sum(
        (w.executions * w.share for s, w in zip(statements, works, strict=True) if s.reduces), zero
    )
    spills = _ACCESSES_OF_SPILLED * spilled / np.maximum(needed - BASE_REGISTERS, 1.0) * uses
    k = Kernel(
        shape=shape,
        held=held,
        registers=needed,
        most_registers=most,
        wanted_registers=BASE_REGISTERS + local + np.maximum(live, wanted),
        shared_bytes=shared,
        **{name: zero.copy() for name in _SUMS},
        barriers=barriers_of(nests, statements),
        private_bytes=room.private_bytes + spilled * 4,
        private_accesses=room.private_accesses + spills,
        chains=[],
    )
    warps, sector = warps_of(shape.block, int(device.value("warp"))), _sector(device)
    free = _free_l1(device, shared, held.blocks) / held.blocks
    wave = np.minimum(shape.blocks, held.blocks * device.value("units"))
    moved: dict[int, list[FloatArray]] = {}
    for statement, done in zip(statements, works, strict=True):
        requests = [
            lanes(nests, statement, access, warps, sector, width)
            for access, width in zip(statement.accesses, done.widths, strict=True)
        ]
        _add_arithmetic(k, statement, done)
        _add_chain(k, nests, statement, done)
        for at, request in enumerate(requests):
            _add_request(k, nests, statement, done, at, request, sector)
        _add_traffic(k, nests, statement, done, requests, free, wave, sector, moved)
    _add_private(k, device)
    for from_l2, wave_bytes, distinct in moved.values():
        waves = np.maximum(shape.blocks / wave, 1.0)
        again = np.maximum(waves * wave_bytes - distinct, 0.0)
        lost = 1.0 - np.minimum(1.0, _second(device) / np.maximum(k.distinct, 1.0))
        k.from_memory += np.minimum(np.maximum(from_l2, distinct), distinct + again * lost)
    return k


_SUMS = (
    "flops", "arithmetic", "fused", "special", "other", "memory_instructions",
    "shared_passes", "shared_ideal", "l1_cycles", "loaded_bytes", "shared_loaded_bytes",
    "sectors_bytes", "used_bytes", "from_l2", "from_memory", "distinct",
)  # fmt: skip


def _sector(device: Device) -> int:
    """Bytes that memory is read in: AMD's wide wavefronts have caches with lines of 64 bytes."""
    return 64 if device.value("warp") > 32 else 32


def _free_l1(device: Device, shared: FloatArray, blocks: FloatArray) -> FloatArray:
    """Bytes of the first cache: where it is one memory with shared memory, what that leaves."""
    first = device.value("l1_kib_per_unit") * 1024
    if device.value("l1_kib_per_unit") > device.value("shared_kib_per_unit"):
        return np.maximum(first - shared * blocks, first / 8)
    return np.full(len(shared), first)


def _add_arithmetic(k: Kernel, statement: Statement, done: Work) -> None:
    times = done.executions * done.share
    # A multiply-add is one instruction: the addition of a reduction takes its multiplication along.
    fused = np.where(statement.reduces & (statement.operations >= 2), 1.0, 0.0) * times
    k.flops += statement.operations * times * k.shape.threads * k.shape.blocks
    k.arithmetic += (statement.operations * times) - fused
    k.fused += fused
    k.special += statement.calls * times
    k.other += statement.selects * times + done.integer * done.share


def _add_chain(k: Kernel, nests: Nests, statement: Statement, done: Work) -> None:
    rounds = {"global": np.zeros(len(nests)), "shared": np.zeros(len(nests))}
    guarded = statement.selects > 0
    flight = np.where(guarded, _GUARDED_LOADS_IN_FLIGHT, _LOADS_IN_FLIGHT)
    instructions = done.executions + done.integer
    for at, access in enumerate(statement.accesses):
        scope = nests.buffers[access.buffer].scope
        instructions = instructions + done.instructions[at]
        if scope in rounds and not access.store:
            waits = np.maximum(done.rounds[at], done.instructions[at] / flight)
            rounds[scope] = np.maximum(rounds[scope], waits)
    k.chains.append(Chain(rounds["global"], rounds["shared"], instructions, done.chains))


def _add_request(
    k: Kernel,
    nests: Nests,
    statement: Statement,
    done: Work,
    at: int,
    request: Lanes,
    sector: int,
) -> None:
    buffer = nests.buffers[statement.accesses[at].buffer]
    times = done.instructions[at] * done.share
    store = statement.accesses[at].store
    threads = k.shape.threads * k.shape.blocks
    k.memory_instructions += times
    if buffer.scope == "shared":
        k.shared_passes += times * request.passes
        k.shared_ideal += times * request.ideal_passes
        if not store:
            k.shared_loaded_bytes += times * done.widths[at] * buffer.bytes * threads
    elif buffer.scope == "global":
        k.l1_cycles += times * np.maximum(1.0, request.sectors / _LINE_SECTORS)
        if not store:
            k.loaded_bytes += times * done.widths[at] * buffer.bytes * threads
        warps = k.held.warps * k.shape.blocks
        k.sectors_bytes += times * request.sectors * sector * warps
        k.used_bytes += times * request.bytes_used * warps


def _add_traffic(
    k: Kernel,
    nests: Nests,
    statement: Statement,
    done: Work,
    requests: list[Lanes],
    free: FloatArray,
    wave: FloatArray,
    sector: int,
    moved: dict[int, list[FloatArray]],
) -> None:
    outside = [
        at
        for at, access in enumerate(statement.accesses)
        if nests.buffers[access.buffer].scope == "global"
    ]
    if not outside:
        return
    loads = tuple(done.footprints[at] for at in outside if not statement.accesses[at].store)
    counts = captured(nests, statement, loads, free, sector)
    for at in outside:
        times = done.instructions[at] * done.share
        requested = times * requests[at].sectors * sector * k.held.warps
        found = traffic(
            nests, statement, done.footprints[at], requested, counts, k.shape, wave, sector
        )
        k.from_l2 += found.from_l2
        buffer = statement.accesses[at].buffer
        before = moved.get(buffer)
        if before is None:
            moved[buffer] = [found.from_l2, found.wave, found.distinct]
            k.distinct += found.distinct
        else:
            k.distinct += np.maximum(found.distinct - before[2], 0.0)
            moved[buffer] = [
                before[0] + found.from_l2,
                np.maximum(before[1], found.wave),
                np.maximum(before[2], found.distinct),
            ]


def _add_private(k: Kernel, device: Device) -> None:
    """Values that a thread keeps in memory: neighbouring lanes have neighbouring words.

    They are read again soon, so that a cache serves them as far as those of all resident threads
    fit.
    """
    resident = np.minimum(k.held.blocks, np.ceil(k.shape.blocks / device.value("units")))
    of_unit = resident * k.shape.threads * k.private_bytes
    of_all = of_unit * np.minimum(device.value("units"), k.shape.blocks)
    moved = k.private_accesses * 4 * k.shape.threads * k.shape.blocks
    first = _free_l1(device, k.shared_bytes, k.held.blocks)
    beyond_l1 = 1.0 - np.minimum(1.0, first / np.maximum(of_unit, 1.0))
    beyond_l2 = 1.0 - np.minimum(1.0, _second(device) / np.maximum(of_all, 1.0))
    k.memory_instructions += k.private_accesses
    k.l1_cycles += k.private_accesses
    k.sectors_bytes += moved
    k.used_bytes += moved
    k.loaded_bytes += moved / 2
    k.from_l2 += moved * beyond_l1
    k.from_memory += moved * beyond_l1 * beyond_l2


def _second(device: Device) -> float:
    """Bytes of the second cache and the one before memory."""
    return (device.value("l2_kib") + device.value("last_level_cache_mib") * 1024) * 1024
