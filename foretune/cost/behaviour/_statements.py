"""Statements of many programs as arrays, whatever structures these have.

A search looks at hundreds of programs of dozens of structures, so that what is computed structure
by structure costs more than what is computed. Here the statements of all of them stand in one
batch: paths are filled up with loops of one iteration, which change nothing, and accesses with ones
that are not there.

Symbols: R statements (of one program each), A accesses, P loops of a path, D dimensions. A place in
a path is 0 outermost. What is *inside* a place are the loops behind it, so that there are P + 1
levels: level p has the loops at places p and more run, level P none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foretune._arrays import BoolArray, FloatArray, IndexArray, Int8Array
from foretune.describe import Access, Nests, Statement

_FEW = 5
"""Accesses up to which statements share a batch; those with more have one of their own."""


class Member(NamedTuple):
    """A statement of a batch of programs.

    Attributes:
        nests: The batch.
        statement: The statement.
        number: Its number in the programs.
        first: Number of the batch's first program among all.
        slots: Of each loop of the path where its token stands.
        slot: Where the statement's token stands.
    """

    nests: Nests
    statement: Statement
    number: int
    first: int
    slots: tuple[int, ...]
    slot: int


def alike(members: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """Parts that can share a batch without much filling up."""
    few = [each for each in members if len(each.statement.accesses) <= _FEW]
    many = [each for each in members if len(each.statement.accesses) > _FEW]
    yield from (part for part in (few, many) if part)


@dataclass(frozen=True)
class Statements:
    """Statements of some programs, one row for each of a program.

    Attributes:
        program, number, slot: Of which program, its number there, where its token stands, (R,).
        kinds: Of loops, int8 of shape (R, P).
        extents: Iterations, (R, P).
        axes: 0, 1, 2 for x, y, z of blocks and threads, else -1, int8 of shape (R, P).
        reduction: Whether a loop is one of a reduction, (R, P).
        slots: Where the tokens of loops stand, -1 for those that fill up, (R, P).
        facts: Operations, calls, selects, unroll, executed, reduces: (R,) each.
        present, store: Whether an access is there, and stores, (R, A). The store is the first.
        first: Of each access the first of the same array, (R, A).
        element: Bytes of an element, (R, A).
        scope: 1 for shared, 2 for local, 0 for global arrays, int8 of shape (R, A).
        parameter: Whether it is an input or output, (R, A).
        touched: Bytes that the loops of a level touch, (R, A, P + 1).
        steps: Bytes from one iteration of a loop to the next; 0 where it stands still or moves in
            some iterations only, (R, A, P).
    """

    program: IndexArray
    number: IndexArray
    slot: IndexArray
    kinds: Int8Array
    extents: FloatArray
    axes: Int8Array
    reduction: BoolArray
    slots: IndexArray
    facts: dict[str, FloatArray]
    present: BoolArray
    store: BoolArray
    first: IndexArray
    element: FloatArray
    scope: Int8Array
    parameter: BoolArray
    touched: FloatArray
    steps: FloatArray

    @classmethod
    def of(cls, members: Sequence[Member]) -> Statements:
        """Statements of several batches as one batch."""
        sizes = [len(each.nests) for each in members]
        starts = np.cumsum([0, *sizes])
        rows = int(starts[-1])
        places = max(len(each.statement.path) for each in members)
        accesses = max(len(each.statement.accesses) for each in members)
        kinds = np.zeros((rows, places), np.int8)
        extents = np.ones((rows, places))
        axes = np.full((rows, places), -1, np.int8)
        reduction = np.zeros((rows, places), bool)
        slots = np.full((rows, places), -1, np.intp)
        moves = _Moves(rows, accesses, places, _rank(members))
        for start, size, each in zip(starts[:-1].tolist(), sizes, members, strict=True):
            nests, own = each.nests, slice(start, start + size)
            path = list(each.statement.path)
            length = len(path)
            kinds[own, :length] = nests.kinds[:, path]
            extents[own, :length] = nests.extents[:, path]
            axes[own, :length] = [_AXES[nests.axes[loop]] for loop in path]
            reduction[own, :length] = [nests.reduction[loop] for loop in path]
            slots[own, :length] = each.slots
            moves.add(nests, each.statement, start)
        touched, steps = moves.moved()
        return cls(
            program=np.concatenate(
                [np.arange(m.first, m.first + n) for m, n in zip(members, sizes, strict=True)]
            ),
            number=np.repeat([each.number for each in members], sizes),
            slot=np.repeat([each.slot for each in members], sizes),
            kinds=kinds,
            extents=extents,
            axes=axes,
            reduction=reduction,
            slots=slots,
            facts=_facts(members),
            present=moves.present,
            store=moves.store,
            first=moves.first,
            element=moves.element,
            scope=moves.scope,
            parameter=moves.parameter,
            touched=touched,
            steps=steps,
        )


_AXES = {"": -1, "x": 0, "y": 1, "z": 2}
_SCOPES = {"global": 0, "shared": 1, "local": 2}


def _rank(members: Sequence[Member]) -> int:
    return max(
        (buffer.shape.shape[1] for each in members for buffer in each.nests.buffers), default=0
    )


def _facts(members: Sequence[Member]) -> dict[str, FloatArray]:
    facts = {
        name: np.concatenate([getattr(each.statement, name) for each in members])
        for name in ("operations", "calls", "selects", "unroll", "executed")
    }
    facts["reduces"] = np.repeat(
        [float(each.statement.reduces) for each in members], [len(each.nests) for each in members]
    )
    return facts


def suffix_products(values: FloatArray) -> FloatArray:
    """Products along the last axis from each entry on, and 1: (..., P) -> (..., P + 1)."""
    products = np.ones((*values.shape[:-1], values.shape[-1] + 1))
    products[..., :-1] = np.cumprod(values[..., ::-1], axis=-1)[..., ::-1]
    return products


class _Moves:
    """Accesses of all rows, and the terms of their indices, gathered and then computed at once."""

    def __init__(self, rows: int, accesses: int, places: int, rank: int) -> None:
        shape = (rows, accesses)
        self._places = places
        self.present = np.zeros(shape, bool)
        self.store = np.zeros(shape, bool)
        self.first = np.tile(np.arange(accesses), (rows, 1))
        self.element = np.ones(shape)
        self.scope = np.zeros(shape, np.int8)
        self.parameter = np.zeros(shape, bool)
        self._sizes = np.ones((*shape, rank))
        self._at: list[tuple[int, int, int, int, int]] = []
        self._terms: list[tuple[FloatArray, FloatArray, FloatArray]] = []

    def add(self, nests: Nests, statement: Statement, start: int) -> None:
        """Takes the accesses of a statement into rows from ``start`` on."""
        own = slice(start, start + len(nests))
        met: dict[int, int] = {}
        for number, access in enumerate(_store_first(statement.accesses)):
            buffer = nests.buffers[access.buffer]
            self.present[own, number] = True
            self.store[own, number] = access.store
            self.first[own, number] = met.setdefault(access.buffer, number)
            self.element[own, number] = buffer.bytes
            self.scope[own, number] = _SCOPES[buffer.scope]
            self.parameter[own, number] = buffer.parameter
            # The last dimension stands last, so that what fills up has no part in distances.
            rank = buffer.shape.shape[1]
            before = self._sizes.shape[2] - rank
            self._sizes[own, number, before:] = buffer.shape
            for term in access.terms:
                self._at.append((start, len(nests), number, term.place, before + term.dimension))
                self._terms.append((term.coefficient, term.values, term.every))

    def moved(self) -> tuple[FloatArray, FloatArray]:
        """What is touched at each level, and the steps of each loop, in bytes."""
        rows, accesses, rank = self._sizes.shape
        spans = np.zeros((rows, accesses, self._places, rank))
        values = np.ones((rows, accesses, self._places))
        steps = np.full(values.shape, np.inf)
        if self._terms:
            coefficient, taken, every = (
                np.concatenate(column) for column in zip(*self._terms, strict=True)
            )
            start, count, access, place, dimension = np.array(self._at, dtype=np.intp).T
            term = np.repeat(np.arange(len(count)), count)
            offset = np.arange(len(term)) - np.repeat(np.cumsum(count) - count, count)
            row = start[term] + offset
            access, place, dimension = access[term], place[term], dimension[term]
            size = np.abs(coefficient)
            strides = suffix_products(self._sizes)[..., 1:]
            np.add.at(spans, (row, access, place, dimension), size * (taken - 1.0))
            np.multiply.at(values, (row, access, place), taken)
            moves = (every <= 1) & (taken > 1) & (size > 0)
            step = np.where(moves, size * strides[row, access, dimension], np.inf)
            np.minimum.at(steps, (row, access, place), step)
        reach = np.ones((rows, accesses, self._places + 1, rank))
        reach[:, :, :-1] += np.cumsum(spans[:, :, ::-1], axis=2)[:, :, ::-1]
        box = np.minimum(reach, np.maximum(self._sizes, 1.0)[:, :, None, :]).prod(axis=3)
        touched = np.minimum(box, suffix_products(values)) * self.element[:, :, None]
        touched[~self.present] = 0.0
        steps[np.isinf(steps)] = 0.0
        return touched, steps * self.element[:, :, None]


def _store_first(accesses: Sequence[Access]) -> list[Access]:
    stores = [access for access in accesses if access.store]
    return [*stores[:1], *(access for access in accesses if not access.store), *stores[1:]]
