"""How much of each stage is computed where, and how loops move its axes.

TVM's inference of bounds: a stage that is computed inside a loop of another computes the box that
the loops inside of that loop read of it; loops over threads of a block count as inside for what
the block shares. ``Terms`` say how the loops around a stage move each of its axes, so that a box
is a sum over loops. Indices are digits of what is split and fused: exact where sizes divide each
other, else the nearest such numbers, with the program marked approximate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretune._arrays import BoolArray, FloatArray
from foretune.describe._nests import BLOCK, THREAD, VTHREAD
from foretune_research.logs._ansor_operators import Index, NotDescribedError, Number, Read
from foretune_research.logs._ansor_stages import Axis, Fusion, Split, Stage

_THREADS = (THREAD, VTHREAD)


@dataclass(eq=False)
class Loop:
    """A loop of the nests.

    Attributes:
        kind: ``KIND_NAMES``.
        extent: Iterations, shape (n,).
        letter: Axis of blocks or threads.
        reduction: Whether it belongs to a reduction.
        unroll: Steps of the automatic unrolling at this loop, shape (n,), None without.
    """

    kind: int
    extent: FloatArray
    letter: str = ""
    reduction: bool = False
    unroll: FloatArray | None = None


@dataclass(frozen=True)
class Part:
    """``coefficient * (loop // every % values)``; all of shape (n,)."""

    loop: Loop
    coefficient: FloatArray
    values: FloatArray
    every: FloatArray


Terms = list[Part]
"""The sum of its parts, up to a constant."""


@dataclass(eq=False)
class Place:
    """A stage where it is computed.

    Attributes:
        stage: The stage.
        above: Loops around it that belong to other stages, outermost first.
        loops: Its own, one per leaf; a loop of ``above`` where both are bound to the same threads.
        extents: Of its axes as computed at once, shape (n,) each.
        leaves: Extents of its own leaves, shape (n,) each.
        terms: How all loops move each axis.
        own: How its own loops do.
        fixed: Loops within one iteration of which its buffer lives.
        scope: Of its buffer.
        executed: Share of the iterations of its loops, shape (n,).
        approximate: Where digits are not exact, shape (n,).
    """

    stage: Stage
    above: list[Loop]
    scope: str
    fixed: set[Loop]
    extents: list[FloatArray] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    leaves: list[FloatArray] = field(default_factory=list)
    terms: list[Terms] = field(default_factory=list)
    own: list[Terms] = field(default_factory=list)
    executed: FloatArray = field(default_factory=lambda: np.ones(1))
    approximate: BoolArray = field(default_factory=lambda: np.zeros(1, dtype=bool))

    @property
    def rank(self) -> int:
        """Number of axes of the output."""
        return len(self.stage.operation.shape)

    def index(self, index: Index, loops: set[Loop] | None = None) -> list[Part]:
        """An index of what the stage reads, over the loops around it.

        Args:
            index: Over its axes.
            loops: Those that do not count.
        """
        out: Terms = []
        for digit in index:
            terms = self.terms[digit.axis]
            if not digit.whole:
                terms, exact = digits(terms, digit.every, digit.values)
                self.approximate = self.approximate | ~exact
            out += [
                Part(p.loop, p.coefficient * digit.coefficient, p.values, p.every)
                for p in terms
                if loops is None or p.loop not in loops
            ]
        return out


def digits(terms: Terms, every: Number, values: Number) -> tuple[Terms, BoolArray]:
    """``sum // every % values`` part by part, and where that is exact.

    Parts do not carry into each other when sizes divide each other. ``i // 4`` of
    ``i = 8 a + b`` (b < 8) is ``2 a + b // 4``; ``i % 4`` is ``b % 4``.
    """
    out: Terms = []
    exact: BoolArray = np.ones(1, dtype=bool)
    for part in terms:
        weight = part.coefficient
        whole = np.floor(weight / every)
        large = weight >= every
        coefficient = np.where(large, whole, 1.0)
        inside = np.where(large, 1.0, every / weight)
        # Values until it starts again.
        span = values * every / weight
        most = np.where(large, part.values, np.ceil(part.values / inside))
        count = np.clip(np.where(large, np.ceil(span), values), 1.0, most)
        fits = np.where(large, weight % every == 0, every % weight == 0)
        with np.errstate(invalid="ignore"):
            starts = np.isinf(span) | (span >= part.values) | (span % 1.0 == 0)
        exact = exact & ((part.values == 1) | (fits & starts))
        out.append(Part(part.loop, coefficient, count, part.every * inside))
    return out, exact


def places(stages: Sequence[Stage], count: int) -> dict[Stage, Place]:
    """Where every stage is computed that is: neither an input nor inlined.

    Args:
        stages: After all steps, inlined ones already read through.
        count: Programs of the batch, n.

    Raises:
        NotDescribedError: A stage is computed where those that read it are not.
    """
    computed = [s for s in stages if not s.inlined and not s.operation.input]
    found: dict[Stage, Place] = {}
    for stage in reversed(computed):
        name = stage.operation.name
        readers = [
            (found[other], read)
            for other in computed
            if other in found
            for read in other.operation.reads
            if read.source == name
        ]
        place = _around(stage, found)
        _box(place, readers, count)
        _loops(place, count)
        found[stage] = place
    return found


def _around(stage: Stage, found: dict[Stage, Place]) -> Place:
    above: list[Loop] = []
    if stage.at is not None:
        target, axis = stage.at
        if target not in found or axis not in target.leaves:
            raise NotDescribedError("a stage is attached to what is not there")
        outer = found[target]
        above = [*outer.above, *outer.loops[: target.leaves.index(axis) + 1]]
        above = list(dict.fromkeys(above))
    bound = {loop.kind for loop in above}
    scope = stage.scope
    if not scope:
        scope = "local" if bound & set(_THREADS) else "shared" if BLOCK in bound else "global"
    if scope not in ("local", "shared", "global"):
        raise NotDescribedError("memory of a buffer")
    seen = {"local": (), "shared": _THREADS, "global": (*_THREADS, BLOCK)}[scope]
    return Place(stage, above, scope, {loop for loop in above if loop.kind not in seen})


def _box(place: Place, readers: Iterable[tuple[Place, Read]], count: int) -> None:
    """Extents of what is computed at once, and where it begins."""
    operation = place.stage.operation
    full = [np.broadcast_to(np.asarray(e, float), (count,)) for e in operation.shape]
    extents: list[FloatArray] = []
    begins: list[Terms] = [[] for _ in full]
    for reader, read in readers:
        if place.stage.at is not None and not place.fixed <= {*reader.above, *reader.loops}:
            raise NotDescribedError("a stage is computed where its reader is not")
        widths = []
        for number, index in enumerate(read.indices):
            begin = [p for p in reader.index(index) if p.loop in place.fixed]
            if not extents:
                begins[number] = begin
            widths.append(np.minimum(_width(reader, index, place.fixed), full[number]))
        extents = [np.maximum(*both) for both in zip(extents or widths, widths, strict=True)]
    reduction = [np.broadcast_to(np.asarray(e, float), (count,)) for e in operation.reduction]
    place.extents = [*(extents or full), *reduction]
    place.terms = [*begins, *([] for _ in reduction)]


def _width(reader: Place, index: Index, fixed: set[Loop]) -> FloatArray:
    """Elements between the first and the last that the loops not fixed read, both included."""
    width: FloatArray = np.ones(1)
    operation = reader.stage.operation
    sizes = [*operation.shape, *operation.reduction]
    for digit in index:
        terms, own = reader.terms[digit.axis], reader.own[digit.axis]
        if any(p.loop in fixed for p in own):
            covered = _spread(terms, fixed)
        else:
            # All of what is computed at once, however its loops go through it.
            begins = terms[: len(terms) - len(own)]
            covered = _spread(begins, fixed) + reader.extents[digit.axis] - 1
        covered = np.minimum(covered, sizes[digit.axis])
        if not digit.whole:
            parts, _ = digits(terms, digit.every, digit.values)
            steps = np.ceil((covered - 1) / digit.every) + 1
            whole = np.where(covered >= sizes[digit.axis], np.ceil(covered / digit.every), steps)
            covered = np.minimum(_spread(parts, fixed), np.minimum(digit.values, whole))
        width = width + digit.coefficient * (covered - 1)
    return width


def _spread(terms: Terms, fixed: set[Loop]) -> FloatArray:
    """Elements from the first to the last that loops which are not fixed move over."""
    spread: FloatArray = np.ones(1)
    for part in terms:
        if part.loop not in fixed:
            spread = spread + part.coefficient * (part.values - 1)
    return spread


def _loops(place: Place, count: int) -> None:
    """Extents of the loops, and how they move the axes."""
    stage = place.stage
    sizes = dict(zip(stage.roots, place.extents, strict=True))
    bound = _bound(stage)
    for relation in stage.relations:
        if isinstance(relation, Split):
            parent, length = sizes[relation.parent], relation.length
            given = relation.inner if relation.of_inner else relation.outer
            other = relation.outer if relation.of_inner else relation.inner
            # Threads are as many as are asked for, also where there is less to do.
            sizes[given] = length if given in bound else np.minimum(parent, length)
            sizes[other] = np.ceil(parent / length)
        else:
            sizes[relation.fused] = _product(sizes[p] for p in relation.parts) * np.ones(count)
    place.leaves = [sizes[leaf] for leaf in stage.leaves]
    place.executed = _product(place.extents) / _product(place.leaves) * np.ones(count)
    for leaf, extent in zip(stage.leaves, place.leaves, strict=True):
        place.loops.append(_loop(place, leaf, extent))
    _idle_threads(place)
    moved = {
        leaf: [Part(loop, np.ones(count), extent, np.ones(count))]
        for leaf, loop, extent in zip(stage.leaves, place.loops, place.leaves, strict=True)
    }
    approximate = np.zeros(count, dtype=bool)
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            inner = sizes[relation.inner]
            outer = [
                Part(p.loop, p.coefficient * inner, p.values, p.every)
                for p in moved[relation.outer]
            ]
            moved[relation.parent] = [*outer, *moved[relation.inner]]
        else:
            approximate |= ~_unfused(relation, sizes, moved)
    place.own = [moved[root] for root in stage.roots]
    place.terms = [[*begin, *own] for begin, own in zip(place.terms, place.own, strict=True)]
    place.approximate = approximate


def _unfused(
    relation: Fusion, sizes: dict[Axis, FloatArray], moved: dict[Axis, Terms]
) -> BoolArray:
    exact: BoolArray = np.ones(1, dtype=bool)
    stride: FloatArray = np.ones(1)
    for part in reversed(relation.parts):
        moved[part], fits = digits(moved[relation.fused], stride, sizes[part])
        exact = exact & fits
        stride = stride * sizes[part]
    return exact


def _loop(place: Place, leaf: Axis, extent: FloatArray) -> Loop:
    if leaf.kind == THREAD:
        # A thread is the same thread in whatever it does.
        for loop in place.above:
            if loop.kind == THREAD and loop.letter == leaf.letter:
                place.executed = place.executed * np.minimum(extent / loop.extent, 1.0)
                return loop
    return Loop(leaf.kind, extent, leaf.letter, leaf.reduction, leaf.unroll)


def _idle_threads(place: Place) -> None:
    # What a block shares is computed once, whatever threads its loops are not bound to.
    if place.scope != "local":
        for loop in place.above:
            if loop.kind == THREAD and loop not in place.loops:
                place.executed = place.executed / loop.extent


def _bound(stage: Stage) -> set[Axis]:
    """Axes from which a loop over blocks or threads is made."""
    bound = {leaf for leaf in stage.leaves if leaf.kind in (BLOCK, *_THREADS)}
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            if relation.outer in bound or relation.inner in bound:
                bound.add(relation.parent)
        elif relation.fused in bound:
            bound.update(relation.parts)
    return bound


def _product(arrays: Iterable[FloatArray]) -> FloatArray:
    out: FloatArray = np.ones(1)
    for array in arrays:
        out = out * array
    return out
