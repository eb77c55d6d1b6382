"""What loops touch: elements, cache lines and pages, by the place from which loops run.

The loop that is vectorised runs innermost, wherever the schedule has it.

Symbols of shapes: n programs, d loops on the path of a statement, k dimensions of a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._cpu_loops import Loops, Motion, strides_of
from foretune.describe._cpu_machine import LINE_BYTES, PAGE_BYTES, WAYS, Machine

BLOCKS = 5
"""Levels that hold blocks: three caches hold lines, two tables of translations pages."""


@dataclass(frozen=True)
class Footprint:
    """What loops from each place inwards touch by one access.

    Attributes:
        motion: The access.
        distinct: Elements, shape (n, d + 1).
        blocks: What each level holds of them, shape (BLOCKS + 2, n, d + 1): lines of three caches,
            pages of two tables of translations; and the lines that would fill the first and the
            second cache as much if they were spread over all sets: strides of large powers of two
            meet in few.
        whole_lines: Lines that all threads together touch, shape (n,).
    """

    motion: Motion
    distinct: FloatArray
    blocks: FloatArray
    whole_lines: FloatArray


@dataclass(frozen=True)
class Visits:
    """A statement's loops in the order in which they run, and what they touch.

    Attributes:
        loops: The statement.
        extents: Iterations per thread, shape (n, d).
        footprints: Of its accesses.
    """

    loops: Loops
    extents: FloatArray
    footprints: tuple[Footprint, ...]


def visits_of(loops: Loops, vector_place: IndexArray, shared: int, machine: Machine) -> Visits:
    """What a statement touches.

    Args:
        loops: The statement.
        vector_place: Of the vectorised loop in its path, -1 for none.
        shared: Loops of its path that hold other statements, too; these stay where they are.
        machine: Has the caches.
    """
    depth = len(loops.path)
    order: IndexArray | None = None
    if depth and ((vector_place >= shared) & (vector_place < depth - 1)).any():
        place = np.where(vector_place >= shared, vector_place, depth - 1)[:, None]
        order = np.arange(depth) + (np.arange(depth) >= place)
        order[:, -1:] = place
    extents = loops.extents
    if order is not None:
        extents = np.take_along_axis(extents, order, axis=1)
    footprints = tuple(_footprint(motion, order, machine) for motion in loops.motions)
    return Visits(loops, extents, footprints)


def _footprint(motion: Motion, order: IndexArray | None, machine: Machine) -> Footprint:
    values, coefficients = motion.values, motion.coefficients
    if order is not None:
        values = np.take_along_axis(values, order[:, None], axis=2)
        coefficients = np.take_along_axis(coefficients, order[:, None], axis=2)
    shape, strides, element = motion.buffer.shape, strides_of(motion.buffer), motion.buffer.bytes
    touched = _Touched(*_counts(values, coefficients, shape), strides, element)
    lines, pages = touched.blocks(LINE_BYTES), touched.blocks(PAGE_BYTES)
    whole_lines = lines[:, 0]
    if motion.whole_values is not motion.values:
        counts, spans = _counts(
            motion.whole_values, motion.coefficients, shape, outermost_only=True
        )
        whole_lines = _Touched(counts, spans, strides, element).blocks(LINE_BYTES)[:, 0]
    crowds = [touched.crowd(lines, size / WAYS) for size in machine.caches[:2]]
    blocks = np.stack([lines, lines, lines, pages, pages, *crowds])
    return Footprint(motion, touched.distinct, blocks, whole_lines)


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
