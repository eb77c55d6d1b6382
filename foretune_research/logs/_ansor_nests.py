"""From stages in their places to nests: statements in the order of the program.

As in nests that are read from scheduled programs, loops over blocks, virtual threads and threads
stand around all that their kernel does, what starts a reduction is left out, and a buffer that is
local to a thread is named once for all virtual threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import BLOCK, THREAD, VTHREAD, Access, Buffer, Nests, Statement, Term
from foretune_research.logs._ansor_bounds import Loop, Place, Terms, places
from foretune_research.logs._ansor_operators import (
    Index,
    NotDescribedError,
    Number,
    Operation,
    Read,
)
from foretune_research.logs._ansor_stages import Stage, renamed

_BYTES = 4
"""Of an element: all operators that are known compute in float32."""


def nests(stages: Sequence[Stage], count: int) -> Nests:
    """The batch.

    Args:
        stages: After all steps.
        count: Programs, n.

    Raises:
        NotDescribedError: Stages are attached where they cannot be computed.
    """
    _inline(stages)
    return _Emitter(stages, places(stages, count), count).nests()


def _inline(stages: Sequence[Stage]) -> None:
    """Reads through inlined stages; those that are read stand before those that read them."""
    inlined: dict[str, Operation] = {}
    for stage in stages:
        operation = stage.operation
        while any(read.source in inlined for read in operation.reads):
            operation = _through(operation, inlined)
        stage.operation = operation
        if stage.inlined:
            inlined[operation.name] = operation


def _through(operation: Operation, inlined: dict[str, Operation]) -> Operation:
    reads: list[Read] = []
    done = [operation.operations, operation.calls, operation.selects]
    for read in operation.reads:
        source = inlined.get(read.source)
        if source is None:
            reads.append(read)
            continue
        values: dict[int, Index] = dict(enumerate(read.indices))
        for inner in source.reads:
            indices = tuple(renamed(index, values) for index in inner.indices)
            reads.append(Read(inner.source, indices))
        for at, more in enumerate((source.operations, source.calls, source.selects)):
            done[at] += more
    return replace(
        operation, reads=tuple(reads), operations=done[0], calls=done[1], selects=done[2]
    )


@dataclass(frozen=True)
class _Made:
    """A statement whose loops have no numbers yet."""

    path: list[Loop]
    accesses: list[tuple[int, bool, list[Terms]]]
    operations: float
    calls: float
    selects: float
    executed: FloatArray
    reduces: bool
    unroll: FloatArray


@dataclass
class _Emitter:
    stages: Sequence[Stage]
    places: dict[Stage, Place]
    count: int
    buffers: list[Buffer] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    made: list[_Made] = field(default_factory=list)

    def nests(self) -> Nests:
        read = {r.source for place in self.places for r in place.operation.reads}
        for stage in self.stages:
            if stage.operation.input and stage.operation.name in read:
                self._buffer(stage.operation.name, stage.operation.shape, "global", True)
            elif stage in self.places:
                self._allocate(stage, stage.operation.name not in read)
        for stage in self.stages:
            if stage in self.places and stage.at is None:
                self._emit(self.places[stage], [])
        return self._finished()

    def _buffer(self, name: str, shape: Sequence[Number], scope: str, parameter: bool) -> None:
        sizes = [np.broadcast_to(np.asarray(e, float), (self.count,)) for e in shape]
        self.numbers[name] = len(self.buffers)
        table = np.stack(sizes, axis=1) if sizes else np.ones((self.count, 0))
        self.buffers.append(Buffer(name, scope, _BYTES, table, parameter))

    def _allocate(self, stage: Stage, output: bool) -> None:
        place = self.places[stage]
        shape = list(place.extents[: place.rank])
        if stage.alignment is not None:
            dimension, factor, offset = stage.alignment
            _align(shape, dimension, factor, offset)
        scope = "global" if output else place.scope
        self._buffer(stage.operation.name, shape, scope, output)

    def _emit(self, place: Place, attached: list[Stage]) -> None:
        """Statements of a stage, after those of the stages that are computed inside its loops."""
        stage = place.stage
        for leaf in stage.leaves:
            for other in self.stages:
                if other in self.places and other.at == (stage, leaf):
                    self._emit(self.places[other], [*attached, stage])
        path = list(dict.fromkeys([*place.above, *place.loops]))
        operation = stage.operation
        store = (self.numbers[operation.name], True, place.own[: place.rank])
        loads = [self._load(place, read) for read in operation.reads]
        reduces = bool(operation.reduction)
        if reduces and any(loop.reduction and loop.kind == THREAD for loop in place.loops):
            self._across_threads(place, path, loads, store)
            return
        accesses = [*([(store[0], False, store[2])] if reduces else []), *loads, store]
        self._add(path, accesses, operation, place.executed, reduces)

    def _load(self, place: Place, read: Read) -> tuple[int, bool, list[Terms]]:
        if read.source not in self.numbers:
            raise NotDescribedError("a stage reads what is not computed")
        number = self.numbers[read.source]
        source = next((p for s, p in self.places.items() if s.operation.name == read.source), None)
        if source is not None:
            return number, False, [place.index(index, source.fixed) for index in read.indices]
        sizes = self.buffers[number].shape.T
        indices = [place.index(index) for index in read.indices]
        return number, False, [_bounded(t, s) for t, s in zip(indices, sizes, strict=True)]

    def _across_threads(
        self,
        place: Place,
        path: list[Loop],
        loads: list[tuple[int, bool, list[Terms]]],
        store: tuple[int, bool, list[Terms]],
    ) -> None:
        """Every thread sums what is its own; one of them stores the sum of all."""
        operation, n = place.stage.operation, self.count
        name = f"{operation.name}.threads"
        self._buffer(name, (1.0,), "local", False)
        scalar: list[Terms] = [[]]
        number = self.numbers[name]
        self._add(
            path,
            [(number, False, scalar), *loads, (number, True, scalar)],
            operation,
            place.executed,
            True,
        )
        kept = [loop for loop in path if not loop.reduction or loop.kind == THREAD]
        alone = np.ones(n)
        for loop in kept:
            if loop.reduction:
                alone = alone / loop.extent
        self._add(kept, [(number, False, scalar), store], Operation("", ()), alone, False)

    def _add(
        self,
        path: list[Loop],
        accesses: list[tuple[int, bool, list[Terms]]],
        operation: Operation,
        executed: FloatArray,
        reduces: bool,
    ) -> None:
        # The innermost pragma holds, also where its loop has one iteration.
        pragmas = [loop.unroll for loop in path if loop.unroll is not None]
        made = _Made(
            [loop for loop in path if (loop.extent > 1).any()],
            accesses,
            operation.operations,
            operation.calls,
            operation.selects,
            executed,
            reduces,
            pragmas[-1] if pragmas else np.zeros(self.count),
        )
        self.made.append(made)

    def _finished(self) -> Nests:
        n = self.count
        loops: dict[Loop, int] = {}
        for made in self.made:
            made.path.sort(key=_kernel_first)
            for loop in made.path:
                loops.setdefault(loop, len(loops))
        kinds = np.array([loop.kind for loop in loops], np.int8)
        approximate = np.zeros(n, dtype=bool)
        for place in self.places.values():
            approximate |= place.approximate
        extents = [np.broadcast_to(loop.extent, (n,)) for loop in loops]
        return Nests(
            kinds=np.broadcast_to(kinds, (n, len(loops))),
            extents=np.stack(extents, axis=1) if loops else np.ones((n, 0)),
            axes=tuple(loop.letter for loop in loops),
            reduction=tuple(loop.reduction for loop in loops),
            buffers=tuple(self.buffers),
            statements=tuple(self._statement(made, loops) for made in self.made),
            gpu=any(loop.kind in (BLOCK, THREAD) for p in self.places.values() for loop in p.loops),
            approximate=approximate,
        )

    def _statement(self, made: _Made, loops: dict[Loop, int]) -> Statement:
        at = {loop: place for place, loop in enumerate(made.path)}
        return Statement(
            path=tuple(loops[loop] for loop in made.path),
            accesses=tuple(
                Access(buffer, store, self._terms(dimensions, at))
                for buffer, store, dimensions in made.accesses
            ),
            operations=np.full(self.count, made.operations),
            calls=np.full(self.count, made.calls),
            selects=np.full(self.count, made.selects),
            unroll=made.unroll,
            reduces=made.reduces,
            executed=np.broadcast_to(made.executed, (self.count,)),
        )

    def _terms(self, dimensions: list[Terms], at: dict[Loop, int]) -> tuple[Term, ...]:
        def column(value: FloatArray) -> FloatArray:
            return np.broadcast_to(value, (self.count,))

        return tuple(
            Term(d, at[p.loop], column(p.coefficient), column(p.values), column(p.every))
            for d, terms in enumerate(dimensions)
            for p in sorted(
                (p for p in terms if p.loop in at and (p.values > 1).any()),
                key=lambda part: at[part.loop],
            )
        )


def _bounded(terms: Terms, size: FloatArray) -> Terms:
    """Without the iterations in which nothing is read because there is only a border."""
    return [
        replace(part, values=np.minimum(part.values, np.ceil(size / part.coefficient)))
        for part in terms
    ]


def _kernel_first(loop: Loop) -> int:
    """Blocks, virtual threads and threads stand before all else."""
    return {BLOCK: 0, VTHREAD: 1, THREAD: 2}.get(loop.kind, 3)


def _align(shape: list[FloatArray], dimension: int, factor: FloatArray, offset: FloatArray) -> None:
    """Makes the dimension's stride ``offset`` more than a multiple of ``factor``."""
    if dimension + 1 >= len(shape):
        return
    stride = np.prod(np.broadcast_arrays(*shape[dimension + 1 :]), axis=0)
    wanted = np.ceil((stride - offset) / factor) * factor + offset
    shape[dimension + 1] = shape[dimension + 1] * wanted / stride
