"""Loops of a batch of programs as one CPU thread runs them.

Everything is per thread: of a parallel loop the busiest thread runs its chunk, so that its share
replaces the loop's extent. Loops of one iteration have no say in anything.

Symbols of shapes: n programs, d loops on the path of a statement, k dimensions of a buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, FloatArray, Int8Array
from foretune.describe._nests import PARALLEL, SERIAL, Access, Buffer, Nests, Statement


@dataclass(frozen=True)
class Threads:
    """How the loops of a statement are spread over threads. All of shape (n,).

    Attributes:
        jobs: Iterations of its outermost parallel loops.
        used: Threads that get any.
        busiest: Iterations of the thread that gets most.
        starts: How often the parallel loops are entered, 0 where there are none.
    """

    jobs: FloatArray
    used: FloatArray
    busiest: FloatArray
    starts: FloatArray


@dataclass(frozen=True)
class Motion:
    """How loops move an access.

    Attributes:
        access: The access.
        moved: Whether the loop at a place moves it, shape (n, d).
        step: Bytes from one iteration of a loop to the next, shape (n, d); 0 where it does not
            move it at every iteration.
        runs: Iterations of a loop before its step is another, shape (n, d).
        values: Indices that a loop takes in a dimension, shape (n, k, d).
        whole_values: The same if one thread ran all, shape (n, k, d).
        coefficients: Elements between them, shape (n, k, d).
        buffer: What is accessed.
    """

    access: Access
    moved: BoolArray
    step: FloatArray
    runs: FloatArray
    values: FloatArray
    whole_values: FloatArray
    coefficients: FloatArray
    buffer: Buffer


@dataclass(frozen=True)
class Loops:
    """A statement's loops.

    Attributes:
        statement: The statement.
        path: Its loops, outermost first, without those of one iteration.
        extents: Iterations per thread, shape (n, d); d is at least 1, also without loops.
        kinds: Of shape (n, d).
        threads: How it is spread.
        motions: Of its accesses; the load of what it adds to is that of its store.
        executions: How often one thread runs it, shape (n,).
    """

    statement: Statement
    path: tuple[int, ...]
    extents: FloatArray
    kinds: Int8Array
    threads: Threads
    motions: tuple[Motion, ...]
    executions: FloatArray


def loops_of(nests: Nests, cores: float) -> list[Loops]:
    """The loops of every statement on so many cores, those of one iteration left out."""
    real: BoolArray = np.asarray((nests.extents > 1).any(axis=0))
    return [_of_statement(nests, statement, real, cores) for statement in nests.statements]


def _of_statement(nests: Nests, statement: Statement, real: BoolArray, cores: float) -> Loops:
    places = [place for place, loop in enumerate(statement.path) if real[loop]]
    path = tuple(statement.path[place] for place in places)
    whole, kinds = nests.extents[:, path], nests.kinds[:, path]
    if not path:
        # A single run: in numbers that is a loop of one iteration, which no other one shares.
        whole, kinds = np.ones((len(nests), 1)), np.full((len(nests), 1), SERIAL, dtype=np.int8)
    extents, threads = _spread(whole, kinds, cores)
    at = {place: number for number, place in enumerate(places)}
    sums = {a.buffer for a in statement.accesses if a.store and statement.reduces}
    motions = tuple(
        _motion(nests, access, at, extents, whole)
        for access in statement.accesses
        if access.store or access.buffer not in sums
    )
    return Loops(statement, path, extents, kinds, threads, motions, extents.prod(axis=1))


def shared_loops(every: Sequence[Loops]) -> list[int]:
    """Of each statement, how many of its loops hold one of its neighbours, too."""
    common = [0]
    for one, two in itertools.pairwise(every):
        pairs = zip(one.path, two.path, strict=False)
        common.append(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    common.append(0)
    return [max(pair) for pair in itertools.pairwise(common)]


def _spread(whole: FloatArray, kinds: Int8Array, cores: float) -> tuple[FloatArray, Threads]:
    """Chunks of equal size, the last ones smaller or empty, as TVM's threads take them."""
    n, depth = whole.shape
    jobs = np.ones(n)
    parallel = (kinds == PARALLEL) & (whole > 1)
    if not parallel.any():
        return whole, Threads(jobs, jobs, jobs, np.zeros(n))
    extents, outside = whole.copy(), np.ones(n)
    state = np.zeros(n, dtype=np.int8)  # 0 before the parallel loops, 1 among them, 2 after.
    members = np.zeros((n, depth), dtype=bool)
    last = depth - int(parallel.any(axis=0)[::-1].argmax())
    for place in range(last):
        own, here = parallel[:, place], whole[:, place]
        between = (here > 1) & ~own
        state[between & (state == 1)] = 2
        member = own & (state < 2)
        state[member] = 1
        members[:, place] = member
        jobs = np.where(member, jobs * here, jobs)
        outside = np.where(between & (state == 0), outside * here, outside)
    busiest = np.ceil(jobs / cores)
    rest = busiest
    for place in range(last - 1, -1, -1):
        member, here = members[:, place], whole[:, place]
        extents[:, place] = np.where(member, np.minimum(np.maximum(rest, 1.0), here), here)
        rest = np.where(member, np.maximum(rest / here, 1.0), rest)
    started = members.any(axis=1)
    return extents, Threads(jobs, np.ceil(jobs / busiest), busiest, np.where(started, outside, 0.0))


def _motion(
    nests: Nests, access: Access, at: dict[int, int], extents: FloatArray, whole: FloatArray
) -> Motion:
    buffer = nests.buffers[access.buffer]
    n, depth = extents.shape
    rank = buffer.shape.shape[1]
    values = np.ones((n, rank, depth))
    coefficients = np.zeros((n, rank, depth))
    step, runs = np.zeros((n, depth)), extents.copy()
    strides = strides_of(buffer)
    alone = whole is extents
    whole_values = values if alone else np.ones((n, rank, depth))
    for term in access.terms:
        if term.place not in at:
            continue
        place = at[term.place]
        extent = extents[:, place]
        count = np.minimum(np.maximum(np.ceil(extent / term.every), 1.0), term.values)
        moves = term.coefficient != 0
        moving = (count > 1) & moves
        here = (slice(None), term.dimension, place)
        values[here] *= np.where(moving, count, 1.0)
        if not alone:
            full = np.maximum(np.ceil(whole[:, place] / term.every), 1.0)
            whole_values[here] *= np.where(moves, np.minimum(full, term.values), 1.0)
        coefficients[here] = np.maximum(
            np.where(whole_values[here] > 1, np.abs(term.coefficient), 0.0), coefficients[here]
        )
        direct = moving & (term.every <= 1)
        step[:, place] += np.where(direct, term.coefficient * strides[:, term.dimension], 0.0)
        kept = np.where(direct, term.values, np.where(moving, term.every, extent))
        runs[:, place] = np.minimum(runs[:, place], kept)
    moved: BoolArray = np.asarray((values > 1).any(axis=1))
    return Motion(access, moved, step, runs, values, whole_values, coefficients, buffer)


def strides_of(buffer: Buffer) -> FloatArray:
    """Bytes from one index of a dimension to the next, shape (n, k)."""
    strides = np.full(buffer.shape.shape, float(buffer.bytes))
    strides[:, :-1] = buffer.bytes * np.cumprod(buffer.shape[:, :0:-1], axis=1)[:, ::-1]
    return strides
