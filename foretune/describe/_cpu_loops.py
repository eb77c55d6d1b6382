"""Loops of a batch of programs as one CPU thread sees them.

Everything is per thread: of a parallel loop the busiest thread runs its chunk, so that its share
replaces the loop's extent. Loops of one iteration have no say in anything.

Symbols of shapes: n programs, d loops on the path of a statement, k dimensions of a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.describe._cpu_machine import LINE_BYTES, PAGE_BYTES, WAYS, Machine
from foretune.describe._nests import PARALLEL, Access, Nests, Statement

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


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
        distinct: Elements that loops from a place inwards touch, shape (n, d + 1).
        lines: Cache lines of them, shape (n, d + 1).
        blocks: What each level holds of them, shape (7, n, d + 1): lines of three caches, pages of
            two tables of translations; and the lines that would fill the first and the second cache
            as much if they were spread over all sets: strides of large powers of two meet in few.
        moved: Whether the loop at a place moves it, shape (n, d).
        step: Bytes from one iteration of a loop to the next, shape (n, d); 0 where it does not
            move it at every iteration.
        runs: Iterations of a loop before its step is another, shape (n, d).
        values: Indices that a loop takes in a dimension, shape (n, k, d).
        coefficients: Elements between them, shape (n, k, d).
        whole_lines: Lines that all threads together touch, shape (n,).
        bytes: Of an element.
        parameter: Whether the buffer is an input or output of the program.
    """

    access: Access
    distinct: FloatArray
    lines: FloatArray
    blocks: FloatArray
    moved: BoolArray
    step: FloatArray
    runs: FloatArray
    values: FloatArray
    coefficients: FloatArray
    whole_lines: FloatArray
    bytes: int
    parameter: bool


@dataclass(frozen=True)
class Loops:
    """A statement's loops.

    Attributes:
        statement: The statement.
        path: Its loops, outermost first, without those of one iteration.
        extents: Iterations per thread, shape (n, d).
        kinds: Of shape (n, d).
        threads: How it is spread.
        motions: Of its accesses; the load of what it adds to is that of its store.
        executions: How often one thread runs it, shape (n,).
    """

    statement: Statement
    path: tuple[int, ...]
    extents: FloatArray
    kinds: npt.NDArray[np.int8]
    threads: Threads
    motions: tuple[Motion, ...]
    executions: FloatArray


def loops_of(nests: Nests, machine: Machine) -> list[Loops]:
    """The loops of every statement on a machine, those of one iteration left out."""
    real: BoolArray = np.asarray((nests.extents > 1).any(axis=0))
    return [_of_statement(nests, statement, real, machine) for statement in nests.statements]


def _of_statement(nests: Nests, statement: Statement, real: BoolArray, machine: Machine) -> Loops:
    places = [place for place, loop in enumerate(statement.path) if real[loop]]
    path = tuple(statement.path[place] for place in places)
    whole, kinds = nests.extents[:, path], nests.kinds[:, path]
    extents, threads = _spread(whole, kinds, machine.cores)
    at = {place: number for number, place in enumerate(places)}
    sums = {a.buffer for a in statement.accesses if a.store and statement.reduces}
    motions = tuple(
        _motion(nests, access, at, extents, whole, machine)
        for access in statement.accesses
        if access.store or access.buffer not in sums
    )
    return Loops(statement, path, extents, kinds, threads, motions, extents.prod(axis=1))


def _spread(
    whole: FloatArray, kinds: npt.NDArray[np.int8], cores: float
) -> tuple[FloatArray, Threads]:
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
    nests: Nests,
    access: Access,
    at: dict[int, int],
    extents: FloatArray,
    whole: FloatArray,
    machine: Machine,
) -> Motion:
    buffer = nests.buffers[access.buffer]
    n, depth = extents.shape
    rank = buffer.shape.shape[1]
    values = np.ones((n, rank, depth))
    coefficients = np.zeros((n, rank, depth))
    step, runs = np.zeros((n, depth)), extents.copy()
    strides = _strides(buffer.shape, buffer.bytes)
    alone = whole is extents
    every_value = values if alone else np.ones((n, rank, depth))
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
            every_value[here] *= np.where(moves, np.minimum(full, term.values), 1.0)
        coefficients[here] = np.maximum(
            np.where(every_value[here] > 1, np.abs(term.coefficient), 0.0), coefficients[here]
        )
        direct = moving & (term.every <= 1)
        step[:, place] += np.where(direct, term.coefficient * strides[:, term.dimension], 0.0)
        kept = np.where(direct, term.values, np.where(moving, term.every, extent))
        runs[:, place] = np.minimum(runs[:, place], kept)
    touched = _Touched(*_counts(values, coefficients, buffer.shape), strides, buffer.bytes)
    lines = touched.blocks(LINE_BYTES)
    whole_lines = lines[:, 0]
    if not alone:
        counts, spans = _counts(every_value, coefficients, buffer.shape, outermost_only=True)
        of_all = _Touched(counts, spans, strides, buffer.bytes)
        whole_lines = of_all.blocks(LINE_BYTES)[:, 0]
    pages = touched.blocks(PAGE_BYTES)
    crowds = [touched.crowd(lines, size / WAYS) for size in machine.caches[:2]]
    moved: BoolArray = np.asarray((values > 1).any(axis=1))
    return Motion(
        access,
        touched.distinct,
        lines,
        np.stack([lines, lines, lines, pages, pages, *crowds]),
        moved,
        step,
        runs,
        values,
        coefficients,
        whole_lines,
        buffer.bytes,
        buffer.parameter,
    )


def _strides(shape: FloatArray, element: int) -> FloatArray:
    """Bytes from one index of a dimension to the next, shape (n, k)."""
    strides = np.full(shape.shape, float(element))
    strides[:, :-1] = element * np.cumprod(shape[:, :0:-1], axis=1)[:, ::-1]
    return strides


def _counts(
    values: FloatArray,
    coefficients: FloatArray,
    shape: FloatArray,
    *,
    outermost_only: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Indices per dimension that loops from each place inwards touch, and what they span.

    Both of shape (n, k, d + 1). As many as there are combinations of iterations, but no more than
    lie between the least and the largest.
    """
    n, rank, depth = values.shape
    reach = coefficients * (values - 1)
    if outermost_only:
        combinations = values.prod(axis=2)[:, :, None]
        spans = 1 + reach.sum(axis=2)[:, :, None]
    else:
        combinations, spans = np.ones((n, rank, depth + 1)), np.ones((n, rank, depth + 1))
        combinations[:, :, :-1] = np.cumprod(values[:, :, ::-1], axis=2)[:, :, ::-1]
        spans[:, :, :-1] += np.cumsum(reach[:, :, ::-1], axis=2)[:, :, ::-1]
    spans = np.minimum(spans, np.maximum(shape, 1.0)[:, :, None])
    return np.minimum(combinations, spans), spans


@dataclass(frozen=True)
class _Touched:
    """What loops from each place inwards touch of a buffer.

    Attributes:
        counts, spans: As of ``_counts``.
        strides: Bytes from one index of a dimension to the next, shape (n, k).
        element: Bytes of an element.
    """

    counts: FloatArray
    spans: FloatArray
    strides: FloatArray
    element: int

    @property
    def distinct(self) -> FloatArray:
        """Elements, shape (n, d + 1)."""
        return np.asarray(self.counts.prod(axis=1))

    def blocks(self, size: int) -> FloatArray:
        """Lines or pages of so many bytes: neighbours in one of them count once."""
        n, rank, places = self.counts.shape
        span, blocks = np.full((n, places), float(self.element)), np.ones((n, places))
        for dimension in range(rank - 1, -1, -1):
            span = span + (self.spans[:, dimension] - 1) * self.strides[:, dimension, None]
            blocks = np.minimum(blocks * self.counts[:, dimension], np.ceil(span / size))
        return blocks

    def crowd(self, lines: FloatArray, way: float) -> FloatArray:
        """Lines times the sets of a cache beside those that they can be in.

        Args:
            lines: Of ``blocks``.
            way: Bytes from one line to the next that is in the same set.
        """
        n, rank, places = self.counts.shape
        covered = np.full((n, places), float(LINE_BYTES))
        whole = np.full(n, int(way))
        for dimension in range(rank - 1, -1, -1):
            stride = self.strides[:, dimension]
            different = (way // np.gcd(stride.astype(np.int64), whole))[:, None]
            apart = covered * np.minimum(self.counts[:, dimension], different)
            side_by_side = covered + (self.spans[:, dimension] - 1) * stride[:, None]
            covered = np.where(stride[:, None] <= covered, side_by_side, apart)
            covered = np.minimum(covered, way)
        return np.asarray(lines * way / LINE_BYTES / np.clip(covered / LINE_BYTES, 1.0, lines))
