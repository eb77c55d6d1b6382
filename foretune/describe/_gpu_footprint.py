"""How many elements and sectors an access touches while some of its loops run, in whole batches.

Symbols: n programs, P loops of a statement's path, ``counts`` of shape (n, P): how many consecutive
iterations of each loop are looked at (1: the loop stands still).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import Access, Buffer


@dataclass(frozen=True)
class Reach:
    """What one dimension of an index sees.

    Attributes:
        distinct: Different values.
        span: Largest minus smallest value.
        step: Least distance of different values.
    """

    distinct: FloatArray
    span: FloatArray
    step: FloatArray


class Footprint:
    """Elements and sectors that one access touches.

    Args:
        access: The access.
        buffer: What it accesses.
    """

    def __init__(self, access: Access, buffer: Buffer) -> None:
        self.access, self.buffer = access, buffer
        rank = buffer.shape.shape[1]
        self._terms = [[t for t in access.terms if t.dimension == d] for d in range(rank)]

    def reach(self, dimension: int, counts: FloatArray) -> Reach:
        """Values of one dimension of the index.

        Terms are joined from the smallest coefficient on: one that moves no further than what the
        smaller ones cover overlaps with them (a sliding window), else it multiplies.
        """
        n = len(counts)
        terms = self._terms[dimension]
        if not terms:
            return Reach(np.ones(n), np.zeros(n), np.ones(n))
        values = np.stack(
            [np.minimum(t.values, np.ceil(counts[:, t.place] / t.every)) for t in terms], axis=1
        )
        size = np.where(values > 1, np.abs(np.stack([t.coefficient for t in terms], axis=1)), 0.0)
        if len(terms) == 1:
            span = size[:, 0] * (values[:, 0] - 1)
            step = np.maximum(size[:, 0], 1.0)
            distinct = np.where(size[:, 0] > 0, values[:, 0], 1.0)
            return Reach(np.minimum(distinct, np.floor(span / step) + 1), span, step)
        order = np.argsort(size, axis=1, kind="stable")
        values = np.where(size > 0, values, 1.0)
        size = np.take_along_axis(size, order, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        least = np.maximum(np.where(size > 0, size, np.inf).min(axis=1), 1.0)
        step = np.where(np.isfinite(least), least, 1.0)
        # Sizes that leave gaps start a level of their own: 2 values by 1, then 3 by 4.
        lower, distinct, reached, finest, span = (
            np.ones(n), np.ones(n), np.zeros(n), step.copy(), np.zeros(n),
        )  # fmt: skip
        for s, v in zip(size.T, values.T, strict=True):
            new = s > reached + finest
            lower = np.where(new, lower * distinct, lower)
            distinct, reached = np.where(new, 1.0, distinct), np.where(new, 0.0, reached)
            finest = np.where(new, s, np.where(s > 0, _common_step(finest, s), finest))
            reached = reached + s * (v - 1)
            distinct = np.minimum(distinct * v, np.floor(reached / finest) + 1)
            span = span + s * (v - 1)
        return Reach(lower * distinct, span, step)

    @property
    def dimensions(self) -> range:
        """Numbers of the buffer's dimensions."""
        return range(len(self._terms))

    def moves(self, dimension: int, place: int) -> bool:
        """Whether a loop of the path moves a dimension."""
        return any(term.place == place for term in self._terms[dimension])

    def elements(self, counts: FloatArray) -> FloatArray:
        """Different elements, float64 of shape (n,)."""
        product = np.ones(len(counts))
        for dimension in range(len(self._terms)):
            product = product * self.reach(dimension, counts).distinct
        return product

    def bytes_moved(self, counts: FloatArray, sector: float) -> FloatArray:
        """Bytes of the sectors that hold the elements, float64 of shape (n,).

        A row starts anywhere in its sector. Rows of a dimension that is covered from end to end
        follow each other without a gap.
        """
        n, shape, width = len(counts), self.buffer.shape, self.buffer.bytes
        rows = np.ones(n)
        distinct, span, step = np.ones(n), np.zeros(n), np.ones(n)
        whole = np.ones(n, bool)
        stride = np.ones(n)
        for dimension in reversed(range(len(self._terms))):
            reach = self.reach(dimension, counts)
            rows = np.where(whole, rows, rows * reach.distinct)
            # The gap between values of this dimension counts where nothing finer moves.
            step = np.where(whole & (distinct == 1), reach.step * stride, step)
            span = np.where(whole, span + reach.span * stride, span)
            distinct = np.where(whole, distinct * reach.distinct, distinct)
            whole &= (reach.span + 1 >= shape[:, dimension]) & (reach.step <= 1)
            stride = stride * shape[:, dimension]
        run = 1 + span * width / sector
        sectors = np.where(step * width <= sector, np.minimum(run, distinct), distinct)
        return np.asarray(rows * np.maximum(sectors, 1.0) * sector)

    def lifetime(self, place: int, extent: FloatArray, inner: FloatArray) -> FloatArray:
        """Iterations of a loop for which an element stays in use, at most its extent.

        Args:
            place: Of the loop in the path.
            extent: Its iterations.
            inner: ``counts`` of the loops inside.

        A loop that does not move the index reuses every element in all of its iterations; one that
        moves a window until the window has passed the element; any other not at all (0).
        """
        moves = [t for t in self.access.terms if t.place == place]
        life = extent.copy()
        for t in moves:
            span = self.reach(t.dimension, inner).span
            step = np.abs(t.coefficient)
            moving = (t.values > 1) & (step > 0)
            life = np.where(moving, np.minimum(life, span / np.maximum(step, 1e-9)), life)
        return np.asarray(np.minimum(life, extent))


def _common_step(one: FloatArray, other: FloatArray) -> FloatArray:
    """Greatest common divisor of steps, at least 1."""
    whole = np.gcd(np.rint(one).astype(np.int64), np.rint(other).astype(np.int64))
    return np.asarray(np.maximum(whole.astype(np.float64), 1.0))
