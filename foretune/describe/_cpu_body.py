"""The body of a statement's innermost loop: what a compiler vectorises, unrolls and moves out.

The compiler turns the vectorised loop, and the unrolled ones inside of the innermost loop that is
left, into a body without branches. LLVM's habits are those seen in its code for small kernels.

Symbols of shapes: n programs, d loops on the path of a statement.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretune._arrays import BoolArray, FloatArray, IndexArray
from foretune.describe._cpu_loops import Loops, Motion
from foretune.describe._cpu_machine import FP32_BYTES, Constants, Machine
from foretune.describe._nests import PARALLEL, SERIAL, UNROLLED, VECTORIZED

COMPILER_UNROLLS = 300.0
"""Instructions up to which LLVM unrolls short loops completely on its own (its threshold)."""
FEW_STORES = 8.0
"""Different places stored to up to which it vectorises a loop: it has to tell them apart."""
_SERIAL_KINDS = (SERIAL, UNROLLED, PARALLEL)


class Body:
    """The innermost loop that is left (``repeat``, -1 for none) and what stands inside of it.

    Args:
        loops: The statement's loops.
        machine: What it runs on.
        constants: What no data sheet says.

    Attributes:
        lanes: Elements of an instruction of arithmetic.
    """

    def __init__(self, loops: Loops, machine: Machine, constants: Constants) -> None:
        self.loops, self.machine, self.constants = loops, machine, constants
        self.extents = loops.extents.copy()
        self.n, self.depth = self.extents.shape
        self.real: BoolArray = self.extents > 1
        self.rows = np.arange(self.n)
        self.store = next((m for m in loops.motions if m.access.store), None)
        self.loads = [m for m in loops.motions if not m.access.store]
        # Arithmetic is on elements of the type that is stored.
        self.lanes = machine.lanes_of(self.store.buffer.bytes if self.store else FP32_BYTES)
        never = np.zeros((self.n, self.depth), dtype=bool)
        self.kept = ~self.store.moved & self.real if self.store and self._sums else never
        self.is_vector = np.arange(self.depth) == self._asked()[:, None]
        self.unrolled = self._unrolled()
        self._hoist()
        self.vector_place = self._vectorised()
        self.vector = np.where(
            self.vector_place >= 0, self._at(self.extents, self.vector_place), 1.0
        )
        self.is_vector = np.arange(self.depth) == self.vector_place[:, None]
        self.unrolled &= ~self.is_vector
        self.inside = self.unrolled | self.is_vector
        left = self.real & ~self.inside
        self.left = left
        self.repeat = np.where(left.any(axis=1), self.depth - 1 - left[:, ::-1].argmax(axis=1), -1)
        self.passes = np.ceil(self.vector / self.lanes)

    @property
    def _sums(self) -> bool:
        return self.loops.statement.reduces

    def _at(self, table: npt.NDArray[np.generic], place: IndexArray) -> FloatArray:
        return np.asarray(table[self.rows, np.maximum(place, 0)])

    def _asked(self) -> IndexArray:
        """The loop that the schedule vectorises, -1 for none."""
        return self._innermost(self.real & (self.loops.kinds == VECTORIZED))

    def _vectorised(self) -> IndexArray:
        """The loop that is vectorised, -1 for none, by the schedule or by the compiler.

        The compiler vectorises the innermost loop that is left, or else joins the copies of an
        unrolled one, if its iterations write neighbours and read neighbours or the same; it does
        not reorder a sum.
        """
        place = self._asked()
        inner = self._innermost(self.real)
        for candidate in (self._innermost(self.real & ~self.unrolled), inner):
            possible = (place < 0) & (candidate >= 0)
            if self.store is None or self.lanes <= 1 or not possible.any():
                continue
            if self._sums:
                # What is loaded under a condition (padding) is not loaded beside others.
                possible &= self.loops.statement.selects <= 0
            if candidate is not inner:
                possible &= self._different(self.store, self.unrolled) <= FEW_STORES
            possible &= np.isin(self._at(self.loops.kinds, candidate), _SERIAL_KINDS)
            possible &= self._at(self.extents, candidate) >= min(4.0, self.lanes)
            for motion in self.loops.motions:
                beside = np.abs(self._at(motion.step, candidate)) == motion.buffer.bytes
                if not motion.access.store:
                    beside |= ~self._at(motion.moved, candidate).astype(bool)
                possible &= beside
            place = np.where(possible, candidate, place)
        return place

    def _unrolled(self) -> BoolArray:
        """Loops of the body: unrolled by the schedule, by its pragma, or as short as a compiler
        likes, and nothing but such loops inside of them."""
        copies = np.ones(self.n)
        still = np.ones(self.n, dtype=bool)
        unrolled = np.zeros((self.n, self.depth), dtype=bool)
        pragma = self.loops.statement.unroll
        own = COMPILER_UNROLLS / (self._size() * self._passes())
        for place in range(self.depth - 1, -1, -1):
            extent = self.extents[:, place]
            candidate = self.real[:, place] & ~self.is_vector[:, place]
            kind = self.loops.kinds[:, place]
            after = copies * extent
            wanted = (kind == UNROLLED) | (after <= np.maximum(pragma, own))
            wanted &= kind != PARALLEL
            take = candidate & still & wanted
            unrolled[:, place] = take
            copies = np.where(take, after, copies)
            still &= ~candidate | take
        return unrolled

    def _size(self) -> FloatArray:
        """Instructions of a copy as the compiler counts them: addresses are some, too."""
        statement = self.loops.statement
        return 2.0 * len(self.loads) + 1 + statement.operations + statement.selects

    def _passes(self) -> FloatArray:
        vector = np.where(self.is_vector, self.extents, 1.0).prod(axis=1)
        return np.asarray(np.ceil(vector / self.lanes))

    def _hoist(self) -> None:
        """Takes loops away that repeat the same: code without branches is moved out of a loop
        that changes none of its operands."""
        idle = self.real & ~self.unrolled & ~self.is_vector
        for motion in self.loops.motions:
            idle &= ~motion.moved
        still = np.ones(self.n, dtype=bool)
        for place in range(self.depth - 1, -1, -1):
            inside = ~self.real[:, place] | self.unrolled[:, place] | self.is_vector[:, place]
            gone = idle[:, place] & still
            self.extents[gone, place] = 1.0
            still &= inside | gone
        self.real = self.extents > 1
        self.kept = self.kept & self.real
        self.executions = self.extents.prod(axis=1)

    def _product(self, mask: BoolArray) -> FloatArray:
        return np.asarray(np.where(mask, self.extents, 1.0).prod(axis=1))

    def _innermost(self, mask: BoolArray) -> IndexArray:
        if self.depth == 0:
            return np.full(self.n, -1)
        last = self.depth - 1 - mask[:, ::-1].argmax(axis=1)
        return np.asarray(np.where(mask.any(axis=1), last, -1))

    def _outermost(self, mask: BoolArray) -> IndexArray:
        if self.depth == 0:
            return np.full(self.n, 0)
        return np.asarray(np.where(mask.any(axis=1), mask.argmax(axis=1), self.depth))

    def _different(self, motion: Motion, mask: BoolArray) -> FloatArray:
        """Different addresses of an access among the copies of the body."""
        values = np.where(mask[:, None, :], motion.values, 1.0)
        combinations = values.prod(axis=2)
        reach = 1 + (motion.coefficients * (values - 1)).sum(axis=2)
        vector = np.where(self.is_vector[:, None, :], motion.values, 1.0).prod(axis=2) > 1
        counts = np.where(vector, combinations, np.minimum(combinations, reach))
        return np.asarray(counts.prod(axis=1))
