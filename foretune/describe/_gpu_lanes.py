"""What the threads of one warp touch together: sectors of memory, lines, banks of shared memory.

Lanes are counted out, not estimated: of a few warps and iterations, spread evenly over the kernel,
the address of every lane is computed and distinct sectors and words are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import THREAD, VECTORIZED, Access, Nests, Statement, Term

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
    """

    sectors: FloatArray
    bytes_used: FloatArray
    passes: FloatArray
    ideal_passes: FloatArray


@dataclass(frozen=True)
class Warps:
    """Some warps of a block, spread evenly.

    Attributes:
        size: Threads of a warp.
        place: Coordinates of lanes along ``"x"``, ``"y"``, ``"z"``, of shape (n, samples, size).
            Lanes without a thread repeat the first one's.
    """

    size: int
    place: dict[str, FloatArray]


def warps_of(block: FloatArray, size: int) -> Warps:
    """Warps of a block.

    Args:
        block: Threads of a block along x, y, z, of shape (n, 3).
        size: Threads of a warp.
    """
    threads = block.prod(axis=1)
    count = np.ceil(threads / size)
    chosen = np.floor((np.arange(_SAMPLES) + 0.5) / _SAMPLES * count[:, None])
    thread = chosen[:, :, None] * size + np.arange(size)
    thread = np.where(thread < threads[:, None, None], thread, thread[:, :, :1])
    x, y = block[:, 0, None, None], block[:, 1, None, None]
    row = np.floor(thread / x)
    plane = np.floor(row / y)
    return Warps(size, {"x": thread - row * x, "y": row - plane * y, "z": plane})


def lanes(
    nests: Nests,
    statement: Statement,
    access: Access,
    warps: Warps,
    sector: int,
    width: FloatArray,
) -> Lanes:
    """Requests of one access.

    Args:
        nests: The programs.
        statement: Whose access it is.
        access: The access.
        warps: Warps to look at.
        sector: Bytes that memory is read in.
        width: Elements that one lane loads with one instruction, of shape (n,).
    """
    n = len(nests)
    buffer = nests.buffers[access.buffer]
    one = np.ones(n)
    if buffer.scope == "local":
        return Lanes(one, one, one, one)
    address = _addresses(nests, statement, access, warps)
    if buffer.scope == "shared":
        # What a lane asks for at once comes back in as many cycles, whoever shares it.
        least = np.ceil(width * buffer.bytes / BANK_BYTES) * warps.size / BANKS
        passes = np.maximum(_bank_passes(address, width, buffer.bytes).mean(axis=1), least)
        return Lanes(one, one, passes, least)
    first = np.floor(address * (buffer.bytes / sector))
    if (width > 1).any():
        last = np.floor((address + width[:, None, None] - 1) * (buffer.bytes / sector))
        first = np.concatenate([first, last], axis=2)
    return Lanes(
        sectors=_distinct(first).mean(axis=1),
        bytes_used=_distinct(address).mean(axis=1) * width * buffer.bytes,
        passes=one,
        ideal_passes=one,
    )


def _addresses(nests: Nests, statement: Statement, access: Access, warps: Warps) -> FloatArray:
    """Elements from the start of the buffer, of shape (n, samples, warp)."""
    n = len(nests)
    samples = np.arange(_SAMPLES)
    shape = nests.buffers[access.buffer].shape
    strides = np.cumprod(np.concatenate([np.ones((n, 1)), shape[:, :0:-1]], axis=1), axis=1)
    strides = strides[:, ::-1]
    address = np.zeros((n, _SAMPLES, warps.size))
    base = np.zeros((n, _SAMPLES, 1))
    for term in access.terms:
        loop = statement.path[term.place]
        kind, extent = nests.kinds[:, loop], nests.extents[:, loop]
        step = (term.coefficient * strides[:, term.dimension])[:, None, None]
        thread = (kind == THREAD) & (nests.axes[loop] != "")
        if not thread.all():
            # Fractions of multiples of the golden ratio are spread evenly, for any two loops.
            spread = (samples + 1) * _GOLDEN * (term.place + 1) % 1.0
            still = np.floor(spread[None, :] * extent[:, None])
            still = np.where((kind == VECTORIZED)[:, None], 0.0, still)
            base = base + np.where(
                thread[:, None, None], 0.0, step * _digit(still[:, :, None], term)
            )
        if thread.any():
            at = np.minimum(warps.place[nests.axes[loop]], extent[:, None, None] - 1)
            moved = step * _digit(at, term)
            address += moved if thread.all() else np.where(thread[:, None, None], moved, 0.0)
    return np.floor(address + base)


def _digit(at: FloatArray, term: Term) -> FloatArray:
    """What a term takes from the iteration of its loop."""
    every, values = term.every[:, None, None], term.values[:, None, None]
    if (every != 1).any():
        at = np.floor(at / every)
    return np.where(at < values, at, at - values * np.floor(at / values))


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
