"""A structure of a sketch as numbers of rows: what is left of its symbolic program per batch.

The loops, accesses and buffers of all candidates of a structure are the same; their sizes are rows
of what an evaluator gives for a batch of points. The symbolic program itself is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._nests import (
    BLOCK,
    PARALLEL,
    SERIAL,
    THREAD,
    VECTORIZED,
    VTHREAD,
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
)
from foretune.space import Choice
from foretune.symbolic import (
    Bound,
    Digit,
    Evaluator,
    Index,
    Level,
    Literal,
    Load,
    Opaque,
    Operation,
    Scalar,
    Store,
    SymbolicProgram,
    UnsupportedTraceError,
    limits,
    symbolic_program,
    walk,
)

if TYPE_CHECKING:
    from foretune.space import Sketch, Structure

_THREADS = {"blockIdx": BLOCK, "threadIdx": THREAD, "vthread": VTHREAD}
_WHOLE = 1e-6
"""Whole numbers that were divided and multiplied again are off by less."""


@dataclass(frozen=True)
class _Loop:
    """A loop: its kind where it is bound to threads, and rows of the numbers that tell it else."""

    thread: int | None
    axis: str
    reduction: bool
    extent: int
    parallel: int
    vector: int


@dataclass(frozen=True)
class _Buffer:
    """A buffer and the rows of its shape."""

    name: str
    scope: str
    bytes: int
    parameter: bool
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Term:
    """Rows of the numbers of a term."""

    dimension: int
    place: int
    coefficient: int
    values: int
    every: int


@dataclass(frozen=True)
class _Statement:
    """Rows of the numbers of a statement."""

    path: tuple[int, ...]
    accesses: tuple[tuple[int, bool, tuple[_Term, ...]], ...]
    operations: int
    calls: int
    selects: int
    unroll: int
    executed: int
    reduces: bool


@dataclass(frozen=True)
class Form:
    """What is equal for all candidates of a structure, and how to compute the rest.

    Attributes:
        columns: Of a point: index of the decision, part of a tile or values of a choice.
        evaluate: Points to rows.
        loops, buffers, statements: Of the nests.
        limits: Row of a size, the least and the most that a target allows.
        exact: Row that says whether digits of loops are exact.
        gpu: Whether loops are bound to threads.
    """

    columns: tuple[tuple[int, int | tuple[int, ...]], ...]
    evaluate: Evaluator
    loops: tuple[_Loop, ...]
    buffers: tuple[_Buffer, ...]
    statements: tuple[_Statement, ...]
    limits: tuple[tuple[int, float, float], ...]
    exact: int
    gpu: bool

    def nests(self, decisions: Sequence[Sequence[Any]]) -> tuple[IndexArray, Nests]:
        """Which of the candidates no limit refuses, and their nests.

        Args:
            decisions: Of candidates of the structure.
        """
        points = [
            [
                each[index][part] if isinstance(part, int) else part[each[index]]
                for index, part in self.columns
            ]
            for each in decisions
        ]
        values = self.evaluate(np.array(points, float).reshape(len(decisions), -1))
        legal = np.ones(len(decisions), bool)
        for row, low, high in self.limits:
            legal &= (values[row] > low - _WHOLE) & (values[row] < high + _WHOLE)
        kept = np.flatnonzero(legal)
        return kept, self._filled(values[:, kept])

    def _filled(self, values: FloatArray) -> Nests:
        kinds = np.where(values[[x.vector for x in self.loops]] > 0, VECTORIZED, SERIAL)
        kinds = np.where(values[[x.parallel for x in self.loops]] > 0, PARALLEL, kinds)
        for at, loop in enumerate(self.loops):
            if loop.thread is not None:
                kinds[at] = loop.thread
        return Nests(
            kinds=np.ascontiguousarray(kinds.T, np.int8),
            extents=np.ascontiguousarray(values[[x.extent for x in self.loops]].T),
            axes=tuple(loop.axis for loop in self.loops),
            reduction=tuple(loop.reduction for loop in self.loops),
            buffers=tuple(
                Buffer(
                    buffer.name,
                    buffer.scope,
                    buffer.bytes,
                    np.ascontiguousarray(values[list(buffer.shape)].T),
                    buffer.parameter,
                )
                for buffer in self.buffers
            ),
            statements=tuple(self._filled_statement(each, values) for each in self.statements),
            gpu=self.gpu,
            approximate=values[self.exact] == 0,
        )

    def _filled_statement(self, of: _Statement, values: FloatArray) -> Statement:
        return Statement(
            of.path,
            tuple(
                Access(buffer, store, tuple(self._filled_term(t, buffer, values) for t in terms))
                for buffer, store, terms in of.accesses
            ),
            values[of.operations],
            values[of.calls],
            values[of.selects],
            values[of.unroll],
            of.reduces,
            values[of.executed],
        )

    def _filled_term(self, of: _Term, buffer: int, values: FloatArray) -> Term:
        coefficient = values[of.coefficient]
        # Iterations that a guard keeps out would go beyond the buffer.
        most = values[self.buffers[buffer].shape[of.dimension]] / np.maximum(
            np.abs(coefficient), _WHOLE
        )
        taken = np.ceil(np.minimum(values[of.values], most) - _WHOLE)
        return Term(
            of.dimension,
            of.place,
            coefficient,
            np.maximum(taken, 1),
            np.maximum(values[of.every], 1),
        )


def form_of(sketch: Sketch, structure: Structure) -> Form | str:
    """The form of a structure of a sketch, or why there is none."""
    try:
        return _Builder(symbolic_program(sketch, structure)).form()
    except UnsupportedTraceError as error:
        return str(error)


class _Builder:
    """Numbers the scalars that a form needs."""

    def __init__(self, program: SymbolicProgram) -> None:
        self._program = program
        self._rows: dict[Scalar, int] = {}
        computed = {s.target for s in program.stores if not _constant(s)}
        self._stores = [s for s in program.stores if not (_constant(s) and s.target in computed)]
        self._levels: dict[int, Level] = {}
        for store in self._stores:
            for level in store.levels:
                if level.extent.constant != 1 or level.thread:
                    self._levels.setdefault(level.loop, level)
        self._loop = {number: at for at, number in enumerate(self._levels)}
        used = (b for s in self._stores for b in (s.target, *(x.buffer for x in _loads(s))))
        self._buffers = {buffer: at for at, buffer in enumerate(dict.fromkeys(used))}

    def form(self) -> Form:
        """The form."""
        program = self._program
        loops = tuple(self._of_level(level) for level in self._levels.values())
        buffers = tuple(
            _Buffer(
                buffer.name,
                _scope(buffer.scope),
                buffer.bytes,
                buffer.parameter,
                tuple(self._row(size) for size in program.allocations[buffer].shape),
            )
            for buffer in self._buffers
        )
        statements = tuple(self._statement(store) for store in self._stores)
        limited = tuple((self._row(x.value), x.low, x.high) for x in limits(program))
        exact = self._row(program.algebra.all_of([program.aligned, *self._divided()]))
        return Form(
            tuple(self._column(index, part) for index, part in program.columns),
            Evaluator(program.algebra, program.variables, list(self._rows)),
            loops,
            buffers,
            statements,
            limited,
            exact,
            not program.sketch.hardware.has_cores,
        )

    def _row(self, scalar: Scalar) -> int:
        return self._rows.setdefault(scalar, len(self._rows))

    def _column(self, index: int, part: int) -> tuple[int, int | tuple[int, ...]]:
        variable = self._program.sketch.variables[index]
        return index, variable.values if isinstance(variable, Choice) else part

    def _of_level(self, level: Level) -> _Loop:
        name, _, axis = level.thread.partition(".")
        return _Loop(
            _THREADS[name] if name else None,
            axis or "x" if name else "",
            level.reduction,
            self._row(level.extent),
            self._row(level.parallel),
            self._row(level.vector),
        )

    def _divided(self) -> Iterator[Scalar]:
        for store in self._stores:
            for indices in (store.indices, *(load.indices for load in _loads(store))):
                for atom in (atom for index in indices for atom in index.atoms()):
                    if isinstance(atom, Opaque):
                        yield _divided_exactly(atom)

    def _statement(self, store: Store) -> _Statement:
        algebra = self._program.algebra
        levels = [level for level in store.levels if level.loop in self._loop]
        place = {level.loop: at for at, level in enumerate(levels)}
        # The compiler loads an element that is used twice once.
        accesses = list(dict.fromkeys((False, x.buffer, x.indices) for x in _loads(store)))
        accesses.append((True, store.target, store.indices))
        one = algebra.number(1)
        unroll = algebra.number(0)
        for level in store.levels:
            unroll = unroll.maximum(level.unroll)
        operations, calls, selects = (
            self._row(sum(kinds, algebra.number(0))) for kinds in _counts(store, one)
        )
        return _Statement(
            tuple(self._loop[level.loop] for level in levels),
            tuple(
                (self._buffers[buffer], store_, self._terms(indices, place))
                for store_, buffer, indices in accesses
            ),
            operations,
            calls,
            selects,
            self._row(unroll),
            self._row(one if store.executed is None else store.executed),
            store.reduces,
        )

    def _terms(self, indices: Sequence[Index], place: dict[int, int]) -> tuple[_Term, ...]:
        terms = [
            _Term(
                dimension,
                place[loop],
                *(self._row(number) for number in (coefficient, values, every)),
            )
            for dimension, index in enumerate(indices)
            for loop, coefficient, values, every in _digits(index)
            if loop in place and values.constant != 1
        ]
        return tuple(sorted(terms, key=lambda term: (term.dimension, term.place)))


def _constant(store: Store) -> bool:
    value = store.value
    return isinstance(value, Literal) and (value.index is None or not value.index.terms)


def _loads(store: Store) -> Iterator[Load]:
    return (node for node in walk(store.value) if isinstance(node, Load))


def _scope(scope: str) -> str:
    name = scope.partition(".")[0]
    return name if name in ("global", "shared") else "local"


_Digit = tuple[int, Scalar, Scalar, Scalar]
"""Number of the loop, coefficient, values, iterations from one value to the next."""


def _digits(index: Index) -> Iterator[_Digit]:
    """The digits of an index; of what is divided, those of each term divided by itself."""
    for coefficient, atom in index.terms:
        if isinstance(atom, Digit):
            yield atom.loop, coefficient, atom.size, atom.low
        elif isinstance(atom, Opaque):
            for loop, inner, values, every in _opaque(atom):
                yield loop, inner * coefficient, values, every


def _opaque(atom: Opaque) -> Iterator[_Digit]:
    first, second = atom.args
    if atom.kind in ("minimum", "maximum"):
        yield from _digits(first if len(first.terms) >= len(second.terms) else second)
        return
    for loop, coefficient, values, every in _digits(first):
        size = coefficient * -1 if coefficient.negative else coefficient
        steps = (second.constant / size).maximum(1)
        if atom.kind == "floordiv":
            larger = (size / second.constant).maximum(1)
            signed = larger * -1 if coefficient.negative else larger
            yield loop, signed, (values / steps).maximum(1), every * steps
        else:
            yield loop, coefficient, values.minimum(steps), every


def _divided_exactly(atom: Opaque) -> Scalar:
    """Whether ``_opaque`` is exact: the divisor is a boundary between digits, or within one."""
    first, second = atom.args
    divisor, algebra = second.constant, first.algebra
    parts = list(_digits(first))
    if atom.kind in ("minimum", "maximum") or second.terms or first.constant.constant is None:
        return algebra.number(0)
    if any(coefficient.negative for _, coefficient, _, _ in parts):
        return algebra.number(0)
    rest = first.constant - first.constant.floor_divided(divisor) * divisor
    conditions = []
    for _, coefficient, values, _ in parts:
        whole = divisor.divides(coefficient)
        reach = coefficient * values
        within = algebra.all_of([coefficient.divides(divisor), divisor.divides(reach)])
        conditions.append(algebra.any_of([whole, reach.at_most(divisor), within]))
        rest = rest + whole.choose(0, reach.minimum(divisor) - coefficient)
    return algebra.all_of([*conditions, rest.less(divisor)])


_Counts = tuple[list[Scalar], list[Scalar], list[Scalar]]


def _counts(store: Store, one: Scalar) -> _Counts:
    """Operations, calls and selections of one execution, as lists of summands."""
    counts: _Counts = ([], [], [])
    for node in walk(store.value):
        if not isinstance(node, Operation):
            continue
        if node.kind in ("add_sub", "mul"):
            counts[0].append(one)
        elif node.kind in ("div_mod", "math_func", "other_func"):
            counts[1].append(one)
        elif node.kind in ("cmp", "select"):
            counts[2].append(one)
        elif node.kind == "if":
            counts[2].append(one.algebra.any_of(_undecided(node.args[0], one)))
    return counts


def _undecided(condition: object, one: Scalar) -> Iterator[Scalar]:
    """Whether each comparison of a conjunction holds for some iterations only."""
    if isinstance(condition, Operation) and condition.kind == "and":
        for argument in condition.args:
            yield from _undecided(argument, one)
    elif isinstance(condition, Bound) and condition.kind != "other":
        low, high = condition.index.range(lambda _: None)
        limit = condition.limit.constant
        yield low.less(limit) if condition.kind == "at_least" else limit.at_most(high)
    else:
        yield one
