"""What the threads of one warp touch together: sectors of memory, lines, banks of shared memory.

Lanes are counted out, not estimated: of a few warps and iterations, spread evenly over the kernel,
the address of every lane is computed and distinct sectors and words are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.describe._nests import THREAD, VECTORIZED, Access, Nests, Statement

FloatArray = npt.NDArray[np.float64]

BANKS, BANK_BYTES = 32, 4
_SAMPLES = 4
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Lanes:
    """One request of a warp, on average; all of shape (n,).

    Attributes:
        sectors: Distinct sectors.
        bytes_used: Bytes of distinct elements.
        passes: Cycles of shared memory: most distinct words in one bank.
        ideal_passes: With the words spread evenly.
        active: Lanes that a thread of the block stands in.
    """

    sectors: FloatArray
    bytes_used: FloatArray
    passes: FloatArray
    ideal_passes: FloatArray
    active: FloatArray


def lanes(
    nests: Nests,
    statement: Statement,
    access: Access,
    block: FloatArray,
    warp: int,
    sector: int,
    width: FloatArray,
) -> Lanes:
    """Requests of one access.

    Args:
        nests: The programs.
        statement: Whose access it is.
        access: The access.
        block: Threads of a block along x, y, z, of shape (n, 3).
        warp: Threads of a warp.
        sector: Bytes that memory is read in.
        width: Elements that one lane loads with one instruction, of shape (n,).
    """
    n = len(nests)
    address, active = _addresses(nests, statement, access, block, warp)
    size = nests.buffers[access.buffer].bytes
    first = np.floor(address * size / sector)
    last = np.floor((address + width[:, None, None] - 1) * size / sector)
    # Lanes without a thread repeat the first one's address, and are not counted.
    sectors = _distinct(np.concatenate([first, last], axis=2))
    elements = _distinct(address)
    # What a lane asks for at once comes back in as many cycles, whoever shares it.
    least = np.ceil(width * size / BANK_BYTES) * warp / BANKS
    return Lanes(
        sectors=sectors.mean(axis=1),
        bytes_used=elements.mean(axis=1) * width * size,
        passes=np.maximum(_bank_passes(address, width, size).mean(axis=1), least),
        ideal_passes=least,
        active=active.reshape(n, -1).sum(axis=1) / _SAMPLES,
    )


def _addresses(
    nests: Nests, statement: Statement, access: Access, block: FloatArray, warp: int
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Elements from the start of the buffer, and which lanes have a thread: (n, samples, warp)."""
    n = len(nests)
    threads = block.prod(axis=1)
    warps = np.ceil(threads / warp)
    samples = np.arange(_SAMPLES)
    chosen = np.floor((samples + 0.5) / _SAMPLES * warps[:, None])
    thread = chosen[:, :, None] * warp + np.arange(warp)
    active = thread < threads[:, None, None]
    thread = np.where(active, thread, thread[:, :, :1])
    x, y = block[:, 0, None, None], block[:, 1, None, None]
    place_of_axis = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
    shape = nests.buffers[access.buffer].shape
    strides = np.cumprod(np.concatenate([np.ones((n, 1)), shape[:, :0:-1]], axis=1), axis=1)
    strides = strides[:, ::-1]
    address = np.zeros(thread.shape)
    for term in access.terms:
        loop = statement.path[term.place]
        kind, extent = nests.kinds[:, loop], nests.extents[:, loop]
        # Fractions of multiples of the golden ratio are spread evenly, for any two loops.
        spread = (samples + 1) * _GOLDEN * (term.place + 1) % 1.0
        still = np.floor(spread[None, :] * extent[:, None])[:, :, None]
        still = np.where((kind == VECTORIZED)[:, None, None], 0.0, still)
        axis = nests.axes[loop]
        at = still
        if axis:
            in_warp = np.minimum(place_of_axis[axis], extent[:, None, None] - 1)
            at = np.where((kind == THREAD)[:, None, None], in_warp, still)
        value = at // term.every[:, None, None] % term.values[:, None, None]
        step = term.coefficient * strides[:, term.dimension]
        address = address + step[:, None, None] * value
    # A negative coefficient counts from the end; which end does not matter but for alignment.
    return np.floor(address), active


def _distinct(values: FloatArray) -> FloatArray:
    """Different values along the last axis."""
    ordered = np.sort(values, axis=-1)
    return np.asarray((np.diff(ordered, axis=-1) != 0).sum(axis=-1) + 1.0)


def _bank_passes(address: FloatArray, width: FloatArray, size: int) -> FloatArray:
    """Most distinct words in one bank, of shape (n, samples)."""
    further = np.arange(np.ceil(width.max(initial=1.0)))
    # Narrower lanes repeat their last element.
    offsets = np.minimum(further, width[:, None] - 1)[:, None, None, :]
    words = np.floor((address[..., None] + offsets) * size / BANK_BYTES)
    ordered = np.sort(words.reshape(*address.shape[:-1], -1), axis=-1)
    new = np.ones(ordered.shape, bool)
    new[..., 1:] = np.diff(ordered, axis=-1) != 0
    rows = int(np.prod(ordered.shape[:-1]))
    bank = (ordered % BANKS).astype(np.int64).reshape(rows, -1)
    place = (np.arange(rows)[:, None] * BANKS + bank)[new.reshape(rows, -1)]
    counts = np.bincount(place, minlength=rows * BANKS).reshape(*ordered.shape[:-1], BANKS)
    return np.asarray(counts.max(axis=-1).astype(np.float64))
