"""Nests of loops of candidates, in batches and without making their programs.

A sketch is interpreted once per structure (``foretune.space.symbolic``): its loops, indices and
buffers are expressions of tile factors and choices then, whose values for a batch of candidates are
the numbers of a ``Nests``. What the interpreter does not know is read from programs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foretune.describe._nests import (
    BLOCK,
    PARALLEL,
    SERIAL,
    THREAD,
    VECTORIZED,
    VTHREAD,
    Access,
    Buffer,
    FloatArray,
    Nests,
    Statement,
    Term,
    stacked,
)
from foretune.describe._programs import nests_of_program
from foretune.errors import IllegalCandidateError
from foretune.space.symbolic import (
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
    Structure,
    SymbolicProgram,
    UnsupportedTraceError,
    limits,
    structure_of,
    symbolic_program,
    walk,
)

if TYPE_CHECKING:
    from foretune.space import Candidate, Sketch

Rows = npt.NDArray[np.intp]

_log = logging.getLogger(__name__)
_CACHED = 128
"""Structures kept per process, as many as there are symbolic programs."""
_THREADS = {"blockIdx": BLOCK, "threadIdx": THREAD, "vthread": VTHREAD}
_WHOLE = 1e-6
"""Whole numbers that were divided and multiplied again are off by less."""


def nests_of(candidates: Sequence[Candidate]) -> list[tuple[Rows, Nests]]:
    """Nests of candidates, one batch for all that have the same loops and statements.

    Programs are made only of fixed schedules, and of candidates of sketches that cannot be
    interpreted, with one warning that says why.

    Args:
        candidates: May belong to several workloads and hardware.

    Returns:
        Row numbers and the batch of these rows, one entry per structure. Candidates that
        post-processors refuse are in none, as far as is known without making them.
    """
    groups: dict[tuple[Sketch, Structure], list[int]] = {}
    for row, candidate in enumerate(candidates):
        structure = structure_of(candidate.sketch, candidate.decisions)
        groups.setdefault((candidate.sketch, structure), []).append(row)
    found: list[tuple[Rows, Nests]] = []
    for (sketch, structure), members in groups.items():
        if not sketch.variables:
            # A fixed schedule, of whatever instructions: its one program is made.
            found += _from_programs(candidates, members)
            continue
        rows = np.array(members, np.intp)
        form = _form(sketch, structure)
        if isinstance(form, _Form):
            legal, nests = form.nests([candidates[row].decisions for row in members])
            if len(nests):
                found.append((rows[legal], nests))
        else:
            _warn(sketch.workload.name, form)
            found += _from_programs(candidates, members)
    return found


@functools.lru_cache(maxsize=_CACHED)
def _form(sketch: Sketch, structure: Structure) -> _Form | str:
    """The formulas of a structure, or why there are none."""
    try:
        return _Form(symbolic_program(sketch, structure))
    except UnsupportedTraceError as error:
        return str(error)


@functools.lru_cache(maxsize=_CACHED)
def _warn(workload: str, why: str) -> None:
    """Says what of a workload is read from programs, once per process."""
    _log.warning("%s: %s", workload, why)


def _from_programs(
    candidates: Sequence[Candidate], members: Iterable[int]
) -> list[tuple[Rows, Nests]]:
    groups: dict[object, tuple[list[int], list[Nests]]] = {}
    for row in members:
        candidate = candidates[row]
        try:
            module = candidate.apply()
        except IllegalCandidateError:
            continue
        nests = nests_of_program(module, candidate.hardware.target)
        rows, several = groups.setdefault(nests.structure, ([], []))
        rows.append(row)
        several.append(nests)
    return [(np.array(rows, np.intp), stacked(several)) for rows, several in groups.values()]


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


class _Form:
    """A structure of a sketch: what its nests are made of, as expressions of decisions.

    Args:
        program: The symbolic program.
    """

    def __init__(self, program: SymbolicProgram) -> None:
        self._program = program
        self._rows: dict[Scalar, int] = {}
        computed = {s.target for s in program.stores if not _constant(s)}
        stores = [s for s in program.stores if not (_constant(s) and s.target in computed)]
        self._levels: dict[int, Level] = {}
        for store in stores:
            for level in store.levels:
                if level.extent.constant != 1 or level.thread:
                    self._levels.setdefault(level.loop, level)
        self._loop = {number: at for at, number in enumerate(self._levels)}
        self._buffers = {
            buffer: at
            for at, buffer in enumerate(
                dict.fromkeys(b for s in stores for b in (s.target, *(x.buffer for x in _loads(s))))
            )
        }
        self._shapes = [
            [self._row(size) for size in program.allocations[buffer].shape]
            for buffer in self._buffers
        ]
        self._extents = [self._row(level.extent) for level in self._levels.values()]
        self._parallel = [self._row(level.parallel) for level in self._levels.values()]
        self._vector = [self._row(level.vector) for level in self._levels.values()]
        self._statements = [self._statement(store) for store in stores]
        divided = [
            _divided_exactly(atom)
            for store in stores
            for indices in (store.indices, *(load.indices for load in _loads(store)))
            for index in indices
            for atom in index.atoms()
            if isinstance(atom, Opaque)
        ]
        self._exact = self._row(program.algebra.all_of([program.aligned, *divided]))
        self._limits = [(self._row(x.value), x.low, x.high) for x in limits(program)]
        self._evaluate = Evaluator(program.algebra, program.variables, list(self._rows))

    def _row(self, scalar: Scalar) -> int:
        return self._rows.setdefault(scalar, len(self._rows))

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
        found = [
            _Term(
                dimension,
                place[loop],
                *(self._row(number) for number in (coefficient, values, every)),
            )
            for dimension, index in enumerate(indices)
            for loop, coefficient, values, every in _digits(index)
            if loop in place and values.constant != 1
        ]
        return tuple(sorted(found, key=lambda term: (term.dimension, term.place)))

    def nests(self, decisions: Sequence[Sequence[object]]) -> tuple[Rows, Nests]:
        """Which of the candidates no limit refuses, and their nests."""
        points = np.array([self._program.point(each) for each in decisions])  # type: ignore[arg-type]
        values = self._evaluate(points.reshape(len(decisions), -1))
        legal = np.ones(len(decisions), bool)
        for row, low, high in self._limits:
            legal &= (values[row] > low - _WHOLE) & (values[row] < high + _WHOLE)
        kept = np.flatnonzero(legal)
        return kept, self._filled(values[:, kept])

    def _filled(self, values: FloatArray) -> Nests:
        levels = list(self._levels.values())
        kinds = np.where(values[self._vector] > 0, VECTORIZED, SERIAL)
        kinds = np.where(values[self._parallel] > 0, PARALLEL, kinds)
        for at, level in enumerate(levels):
            if level.thread:
                kinds[at] = _THREADS[level.thread.partition(".")[0]]
        return Nests(
            kinds=np.ascontiguousarray(kinds.T, np.int8),
            extents=np.ascontiguousarray(values[self._extents].T),
            axes=tuple(
                level.thread.partition(".")[2] or "x" if level.thread else "" for level in levels
            ),
            reduction=tuple(level.reduction for level in levels),
            buffers=tuple(
                Buffer(
                    buffer.name,
                    _scope(buffer.scope),
                    buffer.bytes,
                    np.ascontiguousarray(values[shape].T),
                    buffer.parameter,
                )
                for buffer, shape in zip(self._buffers, self._shapes, strict=True)
            ),
            statements=tuple(self._filled_statement(each, values) for each in self._statements),
            gpu=self._program.sketch.hardware.kind != "llvm",
            approximate=values[self._exact] == 0,
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
        most = values[self._shapes[buffer][of.dimension]] / np.abs(coefficient)
        taken = np.ceil(np.minimum(values[of.values], most) - _WHOLE)
        return Term(
            of.dimension,
            of.place,
            coefficient,
            np.maximum(taken, 1),
            np.maximum(values[of.every], 1),
        )


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
    found: _Counts = ([], [], [])
    for node in walk(store.value):
        if not isinstance(node, Operation):
            continue
        if node.kind in ("add_sub", "mul"):
            found[0].append(one)
        elif node.kind in ("div_mod", "math_func", "other_func"):
            found[1].append(one)
        elif node.kind in ("cmp", "select"):
            found[2].append(one)
        elif node.kind == "if":
            found[2].append(one.algebra.any_of(_undecided(node.args[0], one)))
    return found


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
