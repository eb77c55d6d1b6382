"""Scheduled programs as nests of loops in numbers: what texts and behaviour scores are made of.

A ``Nests`` is a batch of programs that have the same loops, statements and buffers and differ in
their sizes, so that a batch is described at once. Where they come from does not matter: from
candidates of this TVM's spaces, or rebuilt from what others logged.

Symbols of shapes: n programs, L loops, S statements.

Loops of one iteration may stand anywhere and mean nothing. Neighbours on a path that are both
parallel (both vectorised) are one parallel (vectorised) loop. ``vthread`` loops are unrolled copies
within a thread. Statements stand in the order of the program; those that share the first loops of
their paths are computed inside these loops together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretune._arrays import Array, BoolArray, FloatArray, IndexArray, Int8Array

NESTS_VERSION = 1
"""Raised whenever the same programs are described otherwise: what was learned of them is stale."""

"""Numbers of programs in what they were asked for with."""

SERIAL, PARALLEL, VECTORIZED, UNROLLED, BLOCK, THREAD, VTHREAD = range(7)
KIND_NAMES = ("serial", "parallel", "vectorized", "unrolled", "block", "thread", "vthread")
"""Names of the kinds of loops, in the order of their numbers. ``block`` and ``thread`` are loops
bound to blockIdx and threadIdx; ``axes`` of the nests says which of x, y, z."""


@dataclass(frozen=True)
class Buffer:
    """An array.

    Attributes:
        name: What the program calls it; texts do not show it.
        scope: ``"global"``, ``"shared"`` or ``"local"``.
        bytes: Of an element.
        shape: Elements per dimension, the last one contiguous, float64 of shape (n, dimensions); of
            an intermediate buffer what is allocated at once.
        parameter: Whether it is an input or output of the program.
    """

    name: str
    scope: str
    bytes: int
    shape: FloatArray
    parameter: bool = True


@dataclass(frozen=True)
class Term:
    """What one loop adds to the index of one dimension.

    ``index[dimension] += coefficient * (loop // every % values)``, where ``loop`` is the iteration
    of the loop at ``place`` of the statement's path.

    Attributes:
        dimension: Of the buffer.
        place: In the path, 0 outermost.
        coefficient: Elements of the dimension, float64 of shape (n,); may be negative.
        values: How many values it takes while the loop runs, float64 of shape (n,), at least 1.
        every: Iterations of the loop from one value to the next, float64 of shape (n,), at least 1.
    """

    dimension: int
    place: int
    coefficient: FloatArray
    values: FloatArray
    every: FloatArray


@dataclass(frozen=True)
class Access:
    """A load or a store of one element.

    Attributes:
        buffer: Its number among the buffers.
        store: Whether it stores.
        terms: How loops move it; loops without a term do not.
    """

    buffer: int
    store: bool
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Statement:
    """What is executed in every iteration of the loops around it.

    Attributes:
        path: Numbers of the loops around it, outermost first.
        accesses: Loads, then the store.
        operations: Floating-point additions and multiplications of one execution (a multiply-add
            is two), float64 of shape (n,).
        calls: Divisions, roots, exponentials and the like of one execution, float64 of shape (n,).
        selects: Comparisons, selections, extremes of one execution, float64 of shape (n,).
        unroll: Steps of the automatic unrolling pragma around it, 0 for none, float64 (n,).
        reduces: Whether it adds to what it stores.
        executed: Share of the iterations of its loops in which it is executed (guards of uneven
            splits and cooperative copies), float64 of shape (n,).
    """

    path: tuple[int, ...]
    accesses: tuple[Access, ...]
    operations: FloatArray
    calls: FloatArray
    selects: FloatArray
    unroll: FloatArray
    reduces: bool
    executed: FloatArray


@dataclass(frozen=True)
class Nests:
    """A batch of programs of one structure.

    Attributes:
        kinds: Kinds of loops (``KIND_NAMES``), int8 of shape (n, L).
        extents: Iterations of loops, float64 of shape (n, L), at least 1.
        axes: Of each loop ``"x"``, ``"y"``, ``"z"`` where it is bound to blocks or threads, else
            empty.
        reduction: Of each loop, whether it is one of a reduction.
        buffers: Arrays by number.
        statements: In the order of the program.
        gpu: Whether loops are bound to blocks and threads.
        approximate: Which programs are described only closely, bool of shape (n,).
    """

    kinds: Int8Array
    extents: FloatArray
    axes: tuple[str, ...]
    reduction: tuple[bool, ...]
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    gpu: bool
    approximate: BoolArray

    def __len__(self) -> int:
        return len(self.extents)

    def __post_init__(self) -> None:
        n, loops = self.extents.shape
        assert self.kinds.shape == (n, loops) and len(self.axes) == len(self.reduction) == loops
        for statement in self.statements:
            assert statement.operations.shape == (n,) and max(statement.path, default=-1) < loops
            for access in statement.accesses:
                rank = self.buffers[access.buffer].shape.shape[1]
                for term in access.terms:
                    assert term.dimension < rank and term.place < len(statement.path)
                    assert term.coefficient.shape == term.values.shape == term.every.shape == (n,)

    @property
    def structure(self) -> tuple[object, ...]:
        """What is equal for nests that ``stacked`` can join."""
        return (
            self.axes,
            self.reduction,
            self.gpu,
            tuple((b.scope, b.bytes, b.shape.shape[1], b.parameter) for b in self.buffers),
            tuple(
                (
                    s.path,
                    s.reduces,
                    tuple(
                        (a.buffer, a.store, tuple((t.dimension, t.place) for t in a.terms))
                        for a in s.accesses
                    ),
                )
                for s in self.statements
            ),
        )

    def take(self, rows: IndexArray) -> Nests:
        """The same with some of the programs, in the order given."""
        return _joined([self], lambda arrays: arrays[0][rows])


def stacked(several: Sequence[Nests]) -> Nests:
    """One batch of several of equal ``structure``, in their order."""
    first = several[0]
    assert all(each.structure == first.structure for each in several[1:])
    return _joined(several, np.concatenate)


def _joined(several: Sequence[Nests], join: Callable[[list[Any]], Any]) -> Nests:
    def of(*arrays: Array) -> Any:
        return join(list(arrays))

    first = several[0]
    buffers = tuple(
        replace(same[0], shape=of(*(b.shape for b in same)))
        for same in zip(*(each.buffers for each in several), strict=True)
    )
    statements = tuple(
        _joined_statement(same, of)
        for same in zip(*(each.statements for each in several), strict=True)
    )
    return replace(
        first,
        kinds=of(*(each.kinds for each in several)),
        extents=of(*(each.extents for each in several)),
        buffers=buffers,
        statements=statements,
        approximate=of(*(each.approximate for each in several)),
    )


def _joined_statement(same: Sequence[Statement], of: Callable[..., Any]) -> Statement:
    accesses = []
    for each in zip(*(s.accesses for s in same), strict=True):
        terms = tuple(
            replace(
                t[0],
                **{
                    name: of(*(getattr(term, name) for term in t))
                    for name in ("coefficient", "values", "every")
                },
            )
            for t in zip(*(a.terms for a in each), strict=True)
        )
        accesses.append(replace(each[0], terms=terms))
    columns = {
        name: of(*(getattr(s, name) for s in same))
        for name in ("operations", "calls", "selects", "unroll", "executed")
    }
    return replace(same[0], accesses=tuple(accesses), **columns)
