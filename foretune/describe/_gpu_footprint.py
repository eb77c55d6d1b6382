"""How many elements and sectors an access touches while some of its loops run, in whole batches.

Symbols: n programs, P loops of a statement's path, ``counts`` of shape (n, P): how many consecutive
iterations of each loop are looked at (1: the loop stands still).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.describe._nests import Access, Buffer

FloatArray = npt.NDArray[np.float64]


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
        order = np.argsort(size, axis=1, kind="stable")
        values = np.where(size > 0, values, 1.0)
        size = np.take_along_axis(size, order, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        distinct, span, step = np.ones(n), np.zeros(n), np.zeros(n)
        for i in range(len(terms)):
            s, v = size[:, i], values[:, i]
            step = np.where((step == 0) & (s > 0), np.maximum(s, 1.0), step)
            further = span + s * (v - 1)
            dense = np.floor(further / np.maximum(step, 1.0)) + 1
            distinct = np.where(s <= span + step, np.minimum(distinct * v, dense), distinct * v)
            span = further
        return Reach(distinct, span, np.maximum(step, 1.0))

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
        return rows * np.maximum(sectors, 1.0) * sector

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
        return np.minimum(life, extent)
