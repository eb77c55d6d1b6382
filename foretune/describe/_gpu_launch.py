"""Blocks, threads and what a multiprocessor holds of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import BoolArray, FloatArray
from foretune.describe._nests import BLOCK, THREAD, Nests, Statement

if TYPE_CHECKING:
    from foretune.hardware import Device


AXES = "xyz"
_MOST_REGISTERS, _MOST_REGISTERS_OF_BLOCK = 255.0, 65536.0
"""That instructions of a thread can name; that a block can have."""
_SCHEDULERS = 4.0
"""Of a multiprocessor; each has a part of the registers, and warps of its own."""
_LEAST_THREADS_OF_BLOCKS = 64
"""A multiprocessor holds as many blocks as fill it with two warps each, within limits."""
_MOST_BLOCKS, _MOST_BLOCKS_OF_KEPLER, _LANES_OF_KEPLER = 32, 16, 192
"""Later multiprocessors have 128 lanes at most."""


@dataclass(frozen=True)
class Launch:
    """The shape of one kernel; arrays of shape (n,) or (n, 3) for x, y, z.

    Attributes:
        grid: Blocks along the axes.
        block: Threads of a block along the axes.
    """

    grid: FloatArray
    block: FloatArray

    @property
    def blocks(self) -> FloatArray:
        """Blocks of the kernel."""
        return np.asarray(self.grid.prod(axis=1))

    @property
    def threads(self) -> FloatArray:
        """Threads of a block."""
        return np.asarray(self.block.prod(axis=1))


def launch(nests: Nests, statements: tuple[Statement, ...]) -> Launch:
    """Blocks and threads of a kernel: loops that are bound to one axis are one index."""
    n = len(nests)
    grid, block = np.ones((n, 3)), np.ones((n, 3))
    for loop in sorted({loop for s in statements for loop in s.path}):
        kind, extent = nests.kinds[:, loop], nests.extents[:, loop]
        if nests.axes[loop]:
            axis = AXES.index(nests.axes[loop])
            grid[:, axis] = np.maximum(grid[:, axis], np.where(kind == BLOCK, extent, 1.0))
            block[:, axis] = np.maximum(block[:, axis], np.where(kind == THREAD, extent, 1.0))
    return Launch(grid, block)


@dataclass(frozen=True)
class Residency:
    """What a multiprocessor holds at once; arrays of shape (n,).

    Attributes:
        warps: Of a block.
        blocks: Resident blocks, at least 1: a block that does not fit is not launched at all, and
            ``fits`` says so.
        most_warps: Resident warps at most, a number of the device.
        limits: Blocks that each of ``"threads"``, ``"registers"``, ``"shared"`` and ``"blocks"``
            allows.
        fits: Whether one block can be launched.
    """

    warps: FloatArray
    blocks: FloatArray
    most_warps: float
    limits: dict[str, FloatArray]
    fits: BoolArray


def most_registers(threads: FloatArray, device: Device) -> FloatArray:
    """Registers that a thread may have so that one block fits, of shape (n,).

    Compilers for devices with wavefronts of 64 do not know the size of the block, and leave room
    for the largest.
    """
    warp = device.value("warp")
    held = device.value("registers_kib_per_unit") * 1024 / 4
    if warp > 32:
        threads = np.full(len(threads), device.value("max_threads_per_block"))
    else:
        held = min(held, _MOST_REGISTERS_OF_BLOCK)
    warps = np.ceil(np.ceil(threads / warp) / _SCHEDULERS)
    most = np.floor(held / _SCHEDULERS / (warps * warp) / 8) * 8
    return np.asarray(np.clip(most, 8.0, _MOST_REGISTERS))


def residency(
    threads: FloatArray, registers: FloatArray, shared_bytes: FloatArray, device: Device
) -> Residency:
    """Blocks that a multiprocessor holds (NVIDIA's occupancy calculation; AMD's is alike).

    Registers of a thread come in eights, as a warp's come in 256.

    Args:
        threads: Of a block.
        registers: Of a thread.
        shared_bytes: Of a block.
        device: The device.
    """
    warp = device.value("warp")
    warps = np.ceil(threads / warp)
    most_threads = device.value("max_threads_per_unit")
    held = device.value("registers_kib_per_unit") * 1024 / 4
    per_warp = np.ceil(registers / 8) * 8 * warp
    by_registers = _SCHEDULERS * np.floor(held / _SCHEDULERS / per_warp)
    shared = device.value("shared_kib_per_unit") * 1024
    limits = {
        "threads": np.floor(most_threads / (warps * warp)),
        "registers": np.floor(by_registers / warps),
        "shared": np.floor(shared / np.maximum(shared_bytes, 1.0)),
        "blocks": np.full(len(threads), _most_blocks(device)),
    }
    blocks = np.stack(list(limits.values())).min(axis=0)
    fits = (blocks >= 1) & (threads <= device.value("max_threads_per_block"))
    return Residency(warps, np.maximum(blocks, 1.0), most_threads / warp, limits, fits)


def _most_blocks(device: Device) -> float:
    """Blocks that a multiprocessor holds, however small they are."""
    if device.value("fp32_lanes") >= _LANES_OF_KEPLER * device.value("units"):
        return _MOST_BLOCKS_OF_KEPLER
    return min(_MOST_BLOCKS, device.value("max_threads_per_unit") // _LEAST_THREADS_OF_BLOCKS)
