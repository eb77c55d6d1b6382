"""Stages while they are scheduled: their loops, and what these were split and fused from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import SERIAL
from foretune_research.logs._ansor_operators import Digit, Index, Number, Operation


@dataclass(eq=False)
class Axis:
    """A loop, or what loops were split or fused from.

    Attributes:
        reduction: Whether iterations of it are summed.
        size: Iterations where nothing is attached, for the check of recorded extents; None where
            they depend on where the stage is computed.
        kind: Of the loop, ``KIND_NAMES``.
        letter: ``"x"``, ``"y"``, ``"z"`` where it is bound to blocks or threads.
        unroll: Steps of the automatic unrolling at this loop, shape (n,).
    """

    reduction: bool
    size: Number | None = None
    kind: int = SERIAL
    letter: str = ""
    unroll: FloatArray | None = None


@dataclass(frozen=True)
class Split:
    """``parent`` → ``outer, inner``: ``length`` is the extent of the inner part, or the outer."""

    parent: Axis
    outer: Axis
    inner: Axis
    length: FloatArray
    of_inner: bool


@dataclass(frozen=True)
class Fusion:
    """``parts`` → ``fused``."""

    parts: tuple[Axis, ...]
    fused: Axis


@dataclass(eq=False)
class Stage:
    """A tensor while it is scheduled.

    Attributes:
        operation: What it computes.
        roots: Axes of the operation, those of its reduction last.
        leaves: Its loops, outermost first.
        relations: Splits and fusions in their order.
        at: Stage and loop that it is computed in, None for the program itself.
        inlined: Whether it is computed where it is read.
        scope: Memory of its buffer, empty where it follows from the place.
        alignment: Dimension, factor and offset of a storage alignment.
    """

    operation: Operation
    roots: list[Axis] = field(default_factory=list)
    leaves: list[Axis] = field(default_factory=list)
    relations: list[Split | Fusion] = field(default_factory=list)
    at: tuple[Stage, Axis] | None = None
    inlined: bool = False
    scope: str = ""
    alignment: tuple[int, FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        self.begin(self.operation)

    def begin(self, operation: Operation) -> None:
        """Starts again with the plain loops of an operation."""
        self.operation = operation
        self.roots = [Axis(False, e) for e in operation.shape]
        self.roots += [Axis(True, e) for e in operation.reduction]
        self.leaves = list(self.roots)
        self.relations = []


def size_of(axis: Axis) -> Number:
    """Its iterations.

    Raises:
        ValueError: They depend on where its stage is computed.
    """
    if axis.size is None:
        raise ValueError("extent not known")
    return axis.size


def derived(stage: Stage, axis: Axis) -> tuple[set[Axis], list[Axis]]:
    """Axes that share iterations with one, and the loops among them."""
    touched = {axis}
    for relation in reversed(stage.relations):
        above, below = _ends(relation)
        if touched & set(below):
            touched |= set(above)
    for relation in stage.relations:
        above, below = _ends(relation)
        if touched & set(above):
            touched |= set(below)
    return touched, [leaf for leaf in stage.leaves if leaf in touched]


def _ends(relation: Split | Fusion) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    if isinstance(relation, Split):
        return (relation.parent,), (relation.outer, relation.inner)
    return relation.parts, (relation.fused,)


def indices_of_roots(stage: Stage, numbers: dict[Axis, int]) -> dict[Axis, Index]:
    """Root axes as sums over numbered axes. Reductions that are fused are told apart by digits."""
    found: dict[Axis, Index] = {axis: (Digit(number),) for axis, number in numbers.items()}
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            if relation.parent in found or relation.inner not in found:
                continue
            inner = size_of(relation.inner)
            outer = _times(found[relation.outer], inner)
            found[relation.parent] = (*outer, *found[relation.inner])
        elif relation.fused in found:
            stride: Number = 1.0
            for part in reversed(relation.parts):
                size = size_of(part)
                found[part] = _digits(found[relation.fused], stride, size)
                stride = stride * size
    return found


def _digits(index: Index, every: Number, values: Number) -> Index:
    """``index // every % values``, digit by digit."""
    out = []
    for digit in index:
        whole = np.maximum(np.floor(digit.coefficient / np.asarray(every)), 1.0)
        inside = np.maximum(every / np.asarray(digit.coefficient), 1.0)
        most = np.ceil(digit.values / inside)
        count = np.minimum(np.maximum(values / whole, 1.0), most)
        out.append(Digit(digit.axis, whole, digit.every * inside, count))
    return tuple(out)


def renamed(index: Index, values: Mapping[int, Index]) -> Index:
    """An index over other axes, each axis replaced by what it is there."""
    out: list[Digit] = []
    for digit in index:
        inside = values[digit.axis]
        if not digit.whole:
            inside = _digits(inside, digit.every, digit.values)
        out += _times(inside, digit.coefficient)
    return tuple(out)


def _times(index: Index, factor: Number) -> Index:
    return tuple(replace(d, coefficient=d.coefficient * factor) for d in index)
