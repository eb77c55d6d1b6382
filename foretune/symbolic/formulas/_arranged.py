"""The scalars of all stores of a program as tables, so that one evaluation serves all stores.

Stores have different numbers of loops and of buffers. They are filled up with loops that are not
there and with buffers that nothing accesses. Loops count from the innermost.

Symbols of shapes: P places of loops, S stores, B buffers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretune._per_store import OPERATIONS
from foretune.symbolic import Scalar, SymbolicProgram
from foretune.symbolic.formulas._quantities import StoreQuantities

if TYPE_CHECKING:
    import torch

AXES = (*(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz"), "vthread")


STORE = ("vector", "parallel", "unroll", "alloc.elements", "alloc.outside", *OPERATIONS,
         "vector.length", "parallel.length", *AXES)  # fmt: skip
"""What a store has one of."""


class Arranged:
    """The tables of a program, and which scalars are in them.

    Args:
        program: The program.
        stores: Its stores in order.

    Attributes:
        outputs: The scalars of all tables, one table after the other.
        touches: How often stores under the loop of a place touch a buffer, shape (P, B, S, 1).
        bytes: Of an element of each buffer, shape (B, S, 1); 1 where there is none.
        kinds: What is done to each buffer, 1 at the number of ``BufferUse.kind``: (3, B, S, 1).
        there: 1 where there is a buffer, shape (B, S, 1).
        element: Bytes of an element of what is stored, shape (S, 1).
        chosen: The store whose features each row has, shape (rows,).
        gpu: Whether the program is one for a GPU.
    """

    def __init__(self, program: SymbolicProgram, stores: Sequence[StoreQuantities]) -> None:
        import torch

        self._program, self._stores = program, stores
        self._none, self._one = program.algebra.number(0), program.algebra.number(1)
        # One at least: tables of no rows have no largest.
        places = max((len(store.levels) for store in stores), default=0) or 1
        buffers = max((len(store.uses) for store in stores), default=0)
        count = len(stores)
        self._shape = places, buffers, count
        each = [self._whole_store(store) for store in stores]
        self.outputs = [row[at] for at in range(len(STORE)) for row in each]
        self.outputs += [self._buffer(name, *at) for name in ("contiguous", "whole")
                         for at in itertools.product(range(buffers), range(count))]  # fmt: skip
        self.outputs += [self._loop(name, *at) for name in ("kept", "length", "bytes", "shared")
                         for at in itertools.product(range(places), range(count))]  # fmt: skip
        cells = list(itertools.product(range(places), range(buffers), range(count)))
        self.outputs += [
            self._access(name, *at) for name in ("used", "stride", "least") for at in cells
        ]
        self.gpu = not program.sketch.hardware.has_cores

        times = [float(len(self._touches(*at))) for at in cells]
        self.touches = torch.tensor(times, dtype=torch.float64).view(*self._shape, 1)
        self.bytes = torch.ones(buffers, count, 1, dtype=torch.float64)
        self.kinds = torch.zeros(3, buffers, count, 1, dtype=torch.float64)
        for s, store in enumerate(stores):
            for b, use in enumerate(store.uses):
                self.bytes[b, s], self.kinds[use.kind, b, s] = float(use.buffer.bytes), 1.0
        self.there = self.kinds.sum(0)
        elements = [[float(store.store.target.bytes)] for store in stores]
        self.element = torch.tensor(elements, dtype=torch.float64)
        # A buffer that is stored to twice has the features of its last store in the first's place.
        last = {id(store.store.target): at for at, store in enumerate(stores)}
        self.chosen = torch.tensor(list(last.values()), dtype=torch.int64)

    def tables(self, values: torch.Tensor) -> list[torch.Tensor]:
        """The tables, with points as their last dimension, from values of ``outputs``.

        Returns:
            What ``STORE`` names, shape (names, S, n); bytes of the innermost dimension of a buffer
            that is accessed as a whole, and bytes touched in all, shape (2, B, S, n); whether there
            is a loop, its iterations, the bytes that the store touches while the loops up to this
            one run, and those that all stores so far under this loop touch, shape (4, P, S, n);
            whether a loop moves an access, by how many elements, and the fewest that a store
            touches of a buffer that several touch, shape (3, P, B, S, n).
        """
        places, buffers, count = self._shape
        shapes = [
            (len(STORE), count), (2, buffers, count), (4, places, count), (3, *self._shape),
        ]  # fmt: skip
        parts = values.split_with_sizes([math.prod(shape) for shape in shapes])
        return [part.view(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]

    def _whole_store(self, store: StoreQuantities) -> list[Scalar]:
        """In the order of ``STORE``."""
        algebra, none, one = self._program.algebra, self._none, self._one
        vector, lanes, unroll = none, one, none
        threads = dict.fromkeys(AXES, one)
        for level in reversed(store.levels):
            starts = algebra.all_of([level.head, level.vector])
            vector, lanes = algebra.any_of([vector, starts]), starts.choose(level.length, lanes)
            unroll = unroll.equal(0).choose(level.unroll, unroll)
            if level.thread:
                threads["vthread" if level.thread[0] == "v" else level.thread] = level.length
        outer = store.levels[0] if store.levels else None
        parallel = (outer.parallel, outer.length) if outer else (none, one)
        allocation = self._program.allocations[store.store.target]
        allocated = algebra.product(allocation.shape), allocation.outside
        columns = [
            vector,
            parallel[0],
            unroll,
            *allocated,
            *(store.counts[kind] for kind in OPERATIONS),
        ]
        return [*columns, lanes, parallel[1], *threads.values()]

    def _buffer(self, name: str, b: int, s: int) -> Scalar:
        store = self._stores[s]
        if b >= len(store.uses):
            return self._one
        use = store.uses[b]
        if name == "contiguous":
            return use.contiguous
        return use.touched[0] * use.buffer.bytes if store.levels else self._one

    def _loop(self, name: str, place: int, s: int) -> Scalar:
        store = self._stores[s]
        at = len(store.levels) - 1 - place
        if at < 0:
            return self._none if name == "kept" else self._one
        if name in ("kept", "length"):
            quantity: Scalar = getattr(store.levels[at], name)
            return quantity
        together = self._sharing(s, at) if name == "shared" else [(store, at)]
        return functools.reduce(Scalar.__add__, (_touched(*each) for each in together))

    def _access(self, name: str, place: int, b: int, s: int) -> Scalar:
        store = self._stores[s]
        at = len(store.levels) - 1 - place
        if name == "least":
            values = self._touches(place, b, s)
            # Of a buffer that is touched once nobody asks.
            return self._least(values) if len(values) > 1 else self._one
        if at < 0 or b >= len(store.uses):
            return self._none
        quantity: Scalar = getattr(store.uses[b], name)[at]
        return quantity

    def _least(self, values: Sequence[Scalar]) -> Scalar:
        # Not ``Scalar.minimum``, which knows of some which is smaller: smooth ones have no such.
        return functools.reduce(lambda a, b: self._program.algebra.make("minimum", a, b), values)

    def _touches(self, place: int, b: int, s: int) -> list[Scalar]:
        """What each store under a loop touches of a buffer while the loops from it inwards run."""
        store = self._stores[s]
        at = len(store.levels) - 1 - place
        if at < 0 or b >= len(store.uses):
            return []
        return [
            use.touched[where]
            for other, where in self._sharing(s, at)
            for use in other.uses
            if use.buffer is store.uses[b].buffer
        ]

    def _sharing(self, s: int, at: int) -> list[tuple[StoreQuantities, int]]:
        """The stores so far that are under the loop of a place, with its place around them."""
        number = self._stores[s].levels[at].loop
        return [
            (other, where)
            for other in self._stores[: s + 1]
            for where, level in enumerate(other.levels)
            if level.loop == number
        ]


def _touched(store: StoreQuantities, at: int) -> Scalar:
    """Bytes of all buffers that a store touches while the loops from a place inwards run."""
    return functools.reduce(
        Scalar.__add__, (use.touched[at] * use.buffer.bytes for use in store.uses)
    )
