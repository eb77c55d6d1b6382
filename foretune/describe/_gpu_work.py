"""What one thread executes: loads that are left after reuse in registers, arithmetic, its chains.

A compiler sees the copies of unrolled loops and of virtual threads at once, and loads a value once
for all of them as long as registers last. The *window* of a statement is that part of its loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, FloatArray, Int8Array
from foretune.describe._gpu_footprint import Footprint
from foretune.describe._nests import (
    BLOCK,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VTHREAD,
    Nests,
    Statement,
)

UNROLLED_UNASKED = 256
"""Copies up to which compilers unroll loops of known extents without a pragma (on K80, accumulators
of larger ones are found in memory: programs are four times slower from there on)."""
_WIDEST_BYTES = 16
"""Of a load or a store of one thread."""
_INVARIANT_ELEMENTS = 32
"""Values that are kept over a loop that is not unrolled and does not move them, at most."""
_LOOP, _ADDRESS, _DIVISION, _GUARD = 3.0, 1.0, 4.0, 2.0
"""Integer instructions of an iteration, an address, a division with remainder, a guard."""
BASE_REGISTERS = 16
"""Addresses, indices of the thread, counters."""


@dataclass(frozen=True)
class Work:
    """One statement in one thread; arrays of shape (n,), counts over the thread's whole run.

    Attributes:
        executions: Of the statement.
        windows: Times the window is run through.
        chains: Independent results within a window.
        live: Registers that hold loaded values.
        wanted: Registers that hold all values that the unrolled loops would reuse.
        share: Of the block's threads that execute it.
        integer: Instructions for addresses, loops and guards.
        footprints: Of each access.
        instructions: Loads or stores of each access; 0 where it is in registers.
        widths: Elements of one load or store of each access.
        rounds: Of each access, how often the thread waits for it.
    """

    executions: FloatArray
    windows: FloatArray
    chains: FloatArray
    live: FloatArray
    wanted: FloatArray
    share: FloatArray
    integer: FloatArray
    footprints: tuple[Footprint, ...]
    instructions: tuple[FloatArray, ...]
    widths: tuple[FloatArray, ...]
    rounds: tuple[FloatArray, ...]


@dataclass(frozen=True)
class _Window:
    """The part of a statement's loops that is unrolled.

    Attributes:
        counts: Iterations of each loop in it, of shape (n, P).
        loads: Of each access, in one run through it, of shape (accesses, n).
        held: Registers that keep loaded values, of shape (n,).
        wanted: Registers that would keep all that are used again, of shape (n,).
    """

    counts: FloatArray
    loads: FloatArray
    held: FloatArray
    wanted: FloatArray


def path_of(nests: Nests, statement: Statement) -> tuple[Int8Array, FloatArray]:
    """Kinds and extents of the loops around a statement, of shape (n, P)."""
    at = list(statement.path)
    return nests.kinds[:, at], nests.extents[:, at]


def sequential(kinds: Int8Array) -> BoolArray:
    """Which loops one thread runs through itself."""
    return np.asarray((kinds != BLOCK) & (kinds != THREAD))


def work(
    nests: Nests,
    statement: Statement,
    fence: int,
    block: FloatArray,
    accumulators: FloatArray,
    most: FloatArray,
) -> Work:
    """A statement's work in one thread.

    Args:
        nests: The programs.
        statement: The statement.
        fence: Of its path, the outer loops over which nothing is kept: within them other statements
            write what it reads, or read what it writes.
        block: Threads of a block along x, y, z, of shape (n, 3).
        accumulators: Registers of local buffers, of shape (n,).
        most: Registers that a thread may have, of shape (n,).
    """
    kinds, extents = path_of(nests, statement)
    own = np.where(sequential(kinds), extents, 1.0)
    footprints = tuple(Footprint(a, nests.buffers[a.buffer]) for a in statement.accesses)
    free = most - accumulators - BASE_REGISTERS
    window = _window(statement, fence, kinds, own, footprints, free)
    counts = window.counts
    outer = own / counts
    windows = outer.prod(axis=1)
    instructions, widths, rounds = [], [], []
    for footprint, elements in zip(footprints, window.loads, strict=True):
        if footprint.buffer.scope == "local":
            nothing = np.zeros(len(nests))
            instructions.append(nothing)
            widths.append(nothing + 1)
            rounds.append(nothing)
            continue
        times = _times(footprint, fence, outer, elements)
        width = _width(footprint, kinds, extents)
        if footprint.buffer.scope == "shared":
            width = np.maximum(width, _merged(footprint, own, counts))
        instructions.append(elements * times / width * statement.executed)
        widths.append(width)
        rounds.append(times * statement.executed)
    last = footprints[-1].elements(counts) if footprints else np.ones(len(nests))
    copies = counts.prod(axis=1)
    return Work(
        executions=own.prod(axis=1) * statement.executed,
        windows=windows * statement.executed,
        chains=last if statement.reduces else copies,
        live=window.held,
        wanted=window.wanted,
        share=_share(nests, statement, block),
        integer=_integer(nests, statement, windows, copies, own),
        footprints=footprints,
        instructions=tuple(instructions),
        widths=tuple(widths),
        rounds=tuple(rounds),
    )


def _window(
    statement: Statement,
    fence: int,
    kinds: Int8Array,
    own: FloatArray,
    footprints: tuple[Footprint, ...],
    free: FloatArray,
) -> _Window:
    """Goes from the innermost loop outwards while loops are unrolled."""
    n, places = own.shape
    counts = np.where(kinds == VTHREAD, own, 1.0)
    copies = counts.prod(axis=1)
    distinct = [[f.reach(d, counts).distinct for d in f.dimensions] for f in footprints]
    inside = np.stack([_product(dimensions, n) for dimensions in distinct])
    loads = inside
    held = np.zeros(loads.shape)
    wanted = np.zeros(n)
    most = np.maximum(statement.unroll, UNROLLED_UNASKED)
    open_ = np.ones(n, bool)
    for place in reversed(range(fence, places)):
        extent = np.where(kinds[:, place] == VTHREAD, 1.0, own[:, place])
        if not (open_ & (extent > 1)).any():
            continue
        asked = (kinds[:, place] == UNROLLED) | (kinds[:, place] == VECTORIZED)
        open_ &= asked | (copies * extent <= most) | (extent == 1)
        joins = open_ & (extent > 1)
        trial = counts.copy()
        trial[:, place] = np.maximum(trial[:, place], extent)
        then_distinct = [
            [f.reach(d, trial).distinct if f.moves(d, place) else before[d] for d in f.dimensions]
            for f, before in zip(footprints, distinct, strict=True)
        ]
        outside = np.stack([_product(dimensions, n) for dimensions in then_distinct])
        # Registers go to the loads that need fewest; the others load in every iteration.
        needs = np.stack(
            [
                _needed(f, place, extent, counts, inside[at], outside[at])
                for at, f in enumerate(footprints)
            ]
        )
        then = np.maximum(held, np.where(np.isfinite(needs), needs, 0.0))
        order = np.argsort(then, axis=0, kind="stable")
        filled = np.take_along_axis(then, order, axis=0).cumsum(axis=0)
        room = np.empty_like(filled)
        np.put_along_axis(room, order, filled, axis=0)
        keeps = joins & np.isfinite(needs) & (room <= np.maximum(free, 0.0))
        wanted = np.where(joins, np.maximum(wanted, then.sum(axis=0)), wanted)
        again = np.where(keeps, np.minimum(outside, loads * extent), loads * extent)
        loads = np.where(joins, again, loads)
        held = np.where(keeps, then, held)
        counts = np.where(joins[:, None], trial, counts)
        copies = np.where(joins, copies * extent, copies)
        inside = np.where(joins, outside, inside)
        distinct = [
            [np.where(joins, a, b) for a, b in zip(one, other, strict=True)]
            for one, other in zip(then_distinct, distinct, strict=True)
        ]
    return _Window(counts, loads, held.sum(axis=0), wanted)


def _product(factors: list[FloatArray], n: int) -> FloatArray:
    product = np.ones(n)
    for factor in factors:
        product = product * factor
    return product


def _needed(
    footprint: Footprint,
    place: int,
    extent: FloatArray,
    counts: FloatArray,
    inside: FloatArray,
    outside: FloatArray,
) -> FloatArray:
    """Registers that hold an access's values so that a loop reuses them; infinite: it does not.

    Args:
        footprint: Of the access.
        place: Of the loop.
        extent: Of the loop.
        counts: Iterations of the loops inside.
        inside: Elements without the loop.
        outside: Elements with it.
    """
    if footprint.buffer.scope == "local":
        return np.zeros(len(extent))
    reuses = outside < inside * extent * (1 - 1e-9)
    if not reuses.any():
        return np.full(len(extent), np.inf)
    more = outside > inside
    fresh = np.where(more, (outside - inside) / np.maximum(extent - 1, 1), inside)
    life = np.where(more, footprint.lifetime(place, extent, counts), 1.0)
    size = max(footprint.buffer.bytes / 4, 1.0)
    return np.asarray(np.where(reuses, np.minimum(fresh * life, outside) * size, np.inf))


def _times(footprint: Footprint, fence: int, outer: FloatArray, elements: FloatArray) -> FloatArray:
    """How often the window's elements are loaded: loops that do not move them are left out.

    Only those next to the window: what is inside of a loop that moves them is loaded anew.
    """
    times = np.ones(len(outer))
    still = elements <= _INVARIANT_ELEMENTS
    for place in reversed(range(outer.shape[1])):
        moved = np.zeros(len(outer), bool)
        for term in footprint.access.terms:
            if term.place == place:
                moved |= (term.values > 1) & (term.coefficient != 0)
        runs = outer[:, place] > 1
        still &= ~(runs & (moved | (place < fence)))
        times = np.where(still, times, times * outer[:, place])
    return times


def _merged(footprint: Footprint, own: FloatArray, counts: FloatArray) -> FloatArray:
    """Neighbouring elements of a window that a compiler loads at once, 1, 2 or 4 words.

    It does so where it sees that their address is a multiple of their size, as it does of shared
    memory and not of pointers.
    """
    last = footprint.buffer.shape.shape[1] - 1
    reach = footprint.reach(last, counts)
    row = footprint.buffer.shape[:, last]
    merged = np.ones(len(own))
    for width in (2.0, 4.0):
        fits = (
            (reach.step == 1) & (reach.distinct == reach.span + 1) & (reach.distinct % width == 0)
        )
        fits &= width * footprint.buffer.bytes <= _WIDEST_BYTES
        for term in footprint.access.terms:
            moves = (term.values > 1) & (term.coefficient != 0)
            if term.dimension == last:
                outside = moves & (counts[:, term.place] == 1)
                fits &= ~outside | (term.coefficient % width == 0)
            else:
                fits &= ~moves | (row % width == 0)
        merged = np.where(fits, width, merged)
    return merged


def _width(
    footprint: Footprint,
    kinds: Int8Array,
    extents: FloatArray,
) -> FloatArray:
    """Neighbouring elements that vectorised loops move with one instruction."""
    width = np.ones(len(extents))
    last = footprint.buffer.shape.shape[1] - 1
    for term in footprint.access.terms:
        if term.dimension == last:
            extent = extents[:, term.place]
            wide = (kinds[:, term.place] == VECTORIZED) & (np.abs(term.coefficient) == 1)
            wide &= (term.values >= extent) & (term.every == 1)
            width = np.where(wide, width * extent, width)
    return np.maximum(np.minimum(width, _WIDEST_BYTES / footprint.buffer.bytes), 1.0)


def _share(nests: Nests, statement: Statement, block: FloatArray) -> FloatArray:
    """Threads that a statement's loops bind, of all of the block's."""
    share = np.ones(len(nests))
    for at, axis in enumerate("xyz"):
        bound = np.zeros(len(nests))
        for loop in statement.path:
            if nests.axes[loop] == axis:
                thread = nests.kinds[:, loop] == THREAD
                bound = np.where(thread, np.maximum(bound, nests.extents[:, loop]), bound)
        share = share * np.where(bound > 0, bound / block[:, at], 1.0)
    return share


def _integer(
    nests: Nests,
    statement: Statement,
    windows: FloatArray,
    copies: FloatArray,
    own: FloatArray,
) -> FloatArray:
    """Integer instructions: of loops that are left, addresses, divisions of fused indices, guards.

    Within a window, addresses differ by constants.
    """
    cost = np.where(windows > 1, _LOOP, 0.0)
    for access in statement.accesses:
        if nests.buffers[access.buffer].scope == "local":
            continue
        cost = cost + _ADDRESS
        for term in access.terms:
            runs = own[:, term.place] > 1
            folded = (term.values > 1) & (term.values * term.every < own[:, term.place])
            cost = cost + _DIVISION * (runs & (folded | (term.every > 1)))
    guards = np.where(statement.executed < 1, _GUARD * copies, 0.0)
    return (cost + guards) * windows
