"""Ansor's steps, followed: from the steps of logged programs to the loops of each stage.

A batch of programs whose steps differ in numbers only is followed at once: factors of splits are
arrays, everything else is the same for all. Stages are numbered as Ansor numbers them, by their
place in the list, which grows with caches and factored reductions; loops by their place in a stage.
What the steps mean is defined by TVM 0.6 to 0.10 (``auto_scheduler`` and ``te``'s schedules):

========  ====================================  ==================================================
step      arguments                             before → after
========  ====================================  ==================================================
SP        stage, loop, extent, lengths, inner   ``i`` → ``i.0, i.1, i.2``: lengths are those of the
                                                inner parts (``inner`` 1) or the outer ones (0)
FSP       stage, loop, step, parts              as that SP split, its last lengths multiplied
FFSP      stage, loop, steps, level, inner      by the product of these SPs' lengths at the level
FU        stage, loops                          ``i, j`` → ``i@j``
RE        stage, loops                          loops in this order
AN        stage, loop, kind                     unrolled, vectorised, parallel, bound to threads...
PR        stage, loop, text                     ``auto_unroll_max_step$N`` at the loop
SA        stage, loop, factor, offset           aligns the buffer's dimension
CA        stage, target stage, loop             computed inside the target's loop
CI        stage                                 computed where it is read
CR        stage                                 computed by itself
CHR       stage, scope, readers                 new stage behind it copies it for its readers
CHW       stage, scope                          new stage before it computes, it copies
RF        stage, loop, place                    new stage before it sums per iteration of the loop
========  ====================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import BLOCK, PARALLEL, SERIAL, THREAD, UNROLLED, VECTORIZED, VTHREAD
from foretune.space.actions import Action
from foretune_research.logs._ansor_operators import Digit, Index, NotDescribedError, Operation, Read
from foretune_research.logs._ansor_stages import (
    Axis,
    Fusion,
    Split,
    Stage,
    derived,
    indices_of_roots,
    renamed,
    size_of,
)

ANNOTATIONS = {
    0: (SERIAL, ""),
    1: (UNROLLED, ""),
    2: (VECTORIZED, ""),
    3: (PARALLEL, ""),
    4: (VTHREAD, ""),
    5: (BLOCK, "x"),
    6: (THREAD, "x"),
    7: (BLOCK, "y"),
    8: (THREAD, "y"),
    9: (BLOCK, "z"),
    10: (THREAD, "z"),
}
"""Kind of loop and axis by the number of an annotation; 11, tensorisation, has no loop."""


Shape = tuple[Any, ...]
"""What must be equal for programs to be followed together: code and arguments of a step, with
lists as tuples and None in place of numbers that may differ."""


def parsed(action: Action) -> tuple[Shape, tuple[float, ...]]:
    """What of a step is the same in a batch, and its numbers.

    Raises:
        NotDescribedError: It has not the arguments of such a step.
    """
    try:
        return _parsed(action.kind, action.args)
    except (ValueError, TypeError, IndexError) as failure:
        raise NotDescribedError("arguments of a step") from failure


def _parsed(kind: str, args: Sequence[Any]) -> tuple[Shape, tuple[float, ...]]:
    if kind == "SP":
        stage, loop, extent, *lengths, inner = args
        numbers = (float(extent), *map(float, lengths))
        return (kind, *_whole(stage, loop), len(lengths), bool(inner)), numbers
    if kind == "PR":
        stage, loop, text = args
        name, _, value = str(text).partition("$")
        return (kind, *_whole(stage, loop), name), (float(value or 0),)
    if kind == "SA":
        stage, loop, factor, offset = args
        return (kind, *_whole(stage, loop)), (float(factor), float(offset))
    if kind in ("RE", "FU"):
        stage, *loops = _whole(*args)
        return (kind, stage, tuple(loops)), ()
    if kind == "FFSP":
        stage, loop, *steps, level, inner = _whole(*args)
        return (kind, stage, loop, tuple(steps), level, bool(inner)), ()
    if kind in ("CHR", "CHW"):
        stage, scope, *readers = args
        following = (tuple(_whole(*readers)),) if kind == "CHR" else ()
        return (kind, *_whole(stage), str(scope), *following), ()
    counts = {"AN": 3, "FSP": 4, "CA": 3, "CI": 1, "CR": 1, "RF": 3}
    if counts.get(kind) != len(args):
        raise ValueError(kind)
    return (kind, *_whole(*args)), ()


def _whole(*args: Any) -> tuple[int, ...]:
    if not all(type(arg) is int for arg in args):
        raise TypeError(args)
    return args


class Follower:
    """Follows the steps of a batch; ``stages`` is what has become of them.

    Args:
        operations: The computation, in Ansor's order.
        steps: What the programs have in common.
        numbers: Of each step its numbers, shape (n, numbers).
        count: How many programs, n.

    Raises:
        NotDescribedError: A step refers to what is not there.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        steps: Sequence[Shape],
        numbers: Sequence[FloatArray],
        count: int,
    ) -> None:
        self.stages = [Stage(operation) for operation in operations]
        self.consistent = np.ones(count, dtype=bool)
        """Whether lengths are numbers of iterations and recorded extents those of the computation,
        shape (n,)."""
        self._steps, self._numbers = steps, numbers
        known: dict[str, Callable[..., None]] = {
            "SP": self._split,
            "FSP": self._follow_split,
            "FFSP": self._follow_fused_split,
            "FU": self._fuse,
            "RE": self._reorder,
            "AN": self._annotate,
            "PR": self._pragma,
            "SA": self._align,
            "CA": self._compute_at,
            "CI": self._inline,
            "CR": self._compute_root,
            "CHR": self._cache_read,
            "CHW": self._cache_write,
            "RF": self._factor_reduction,
        }
        try:
            for (kind, stage, *given), values in zip(steps, numbers, strict=True):
                if not 0 <= stage < len(self.stages):
                    raise IndexError(stage)
                known[kind](self.stages[stage], values, *given)
        except (IndexError, KeyError, TypeError, ValueError) as failure:
            raise NotDescribedError("a step refers to what is not there") from failure

    def _split(self, stage: Stage, values: FloatArray, loop: int, count: int, inner: bool) -> None:
        size = _loop(stage, loop).size
        if size is not None:
            recorded = values[:, 0]
            self.consistent &= (recorded == 0) | (recorded == size)
        self._apply(stage, loop, [values[:, 1 + i] for i in range(count)], inner)

    def _follow_split(
        self, stage: Stage, _values: FloatArray, loop: int, step: int, parts: int
    ) -> None:
        lengths = self._lengths(step)
        if not 1 <= parts <= len(lengths) + 1:
            raise ValueError(parts)
        # The last part takes what the other split divides further.
        rest = np.prod(lengths[parts - 1 :], axis=0) * np.ones(len(self.consistent))
        self._apply(stage, loop, [*lengths[: parts - 1], rest], True)

    def _follow_fused_split(
        self,
        stage: Stage,
        _values: FloatArray,
        loop: int,
        steps: tuple[int, ...],
        level: int,
        inner: bool,
    ) -> None:
        lengths = [self._lengths(step)[level] for step in steps]
        self._apply(stage, loop, [np.prod(lengths, axis=0)], inner)

    def _lengths(self, step: int) -> list[FloatArray]:
        if step < 0 or self._steps[step][0] != "SP":
            raise IndexError(step)
        return list(self._numbers[step][:, 1:].T)

    def _apply(self, stage: Stage, loop: int, lengths: list[FloatArray], inner: bool) -> None:
        parent = _loop(stage, loop)
        parts: list[Axis] = []
        rest = parent
        for given in reversed(lengths) if inner else lengths:
            sound = (given >= 1) & (given < 2**31) & (given % 1 == 0)
            self.consistent &= sound
            length = np.where(sound, given, 1.0)
            first = Axis(parent.reduction)
            second = Axis(parent.reduction)
            if rest.size is not None:
                first.size, second.size = length, np.ceil(rest.size / length)
            parts.append(first)
            outer, within = (second, first) if inner else (first, second)
            stage.relations.append(Split(rest, outer, within, length, inner))
            rest = second
        parts.append(rest)
        if inner:
            parts.reverse()
        stage.leaves[loop : loop + 1] = parts
        self._move_attached(stage, [parent], parts[-1])

    def _move_attached(self, stage: Stage, old: Sequence[Axis], new: Axis) -> None:
        for other in self.stages:
            if other.at is not None and other.at[0] is stage and other.at[1] in old:
                other.at = (stage, new)

    def _fuse(self, stage: Stage, _values: FloatArray, loops: tuple[int, ...]) -> None:
        if not loops:
            # All loops of a tensor without dimensions: one of a single iteration.
            stage.leaves.insert(0, Axis(False, 1.0))
            stage.relations.append(Fusion((), stage.leaves[0]))
            return
        if any(later != earlier + 1 for earlier, later in pairwise(loops)):
            raise ValueError(loops)
        parts = tuple(_loop(stage, loop) for loop in loops)
        sizes = [part.size for part in parts]
        fused = Axis(any(part.reduction for part in parts))
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            fused.size = np.prod(np.broadcast_arrays(*known), axis=0)
        stage.leaves[loops[0] : loops[-1] + 1] = [fused]
        stage.relations.append(Fusion(parts, fused))
        self._move_attached(stage, parts, fused)

    def _reorder(self, stage: Stage, _values: FloatArray, loops: tuple[int, ...]) -> None:
        if sorted(loops) != list(range(len(stage.leaves))):
            raise ValueError(loops)
        stage.leaves = [stage.leaves[loop] for loop in loops]

    def _annotate(self, stage: Stage, _values: FloatArray, loop: int, number: int) -> None:
        axis = _loop(stage, loop)
        axis.kind, axis.letter = ANNOTATIONS[number]

    def _pragma(self, stage: Stage, values: FloatArray, loop: int, name: str) -> None:
        if name != "auto_unroll_max_step":
            raise ValueError(name)
        if loop < len(stage.leaves):
            _loop(stage, loop).unroll = values[:, 0]

    def _align(self, stage: Stage, values: FloatArray, loop: int) -> None:
        # Loops that are not dimensions of the buffer align nothing.
        axis = _loop(stage, loop)
        if axis in stage.roots:
            stage.alignment = (stage.roots.index(axis), values[:, 0], values[:, 1])

    def _compute_at(self, stage: Stage, _values: FloatArray, target: int, loop: int) -> None:
        if target <= self.stages.index(stage):
            raise ValueError(target)
        other = self.stages[target]
        stage.at = (other, _loop(other, loop))
        stage.inlined = False
        _forget_sizes(stage)

    def _inline(self, stage: Stage, _values: FloatArray) -> None:
        if stage.operation.reduction or stage.operation.input:
            raise ValueError("cannot be inlined")
        stage.inlined, stage.at = True, None

    def _compute_root(self, stage: Stage, _values: FloatArray) -> None:
        stage.at, stage.inlined = None, False
        _forget_sizes(stage)

    def _cache_read(
        self, stage: Stage, _values: FloatArray, scope: str, readers: tuple[int, ...]
    ) -> None:
        source = stage.operation
        name = self._fresh(f"{source.name}.{scope}")
        reading = [self.stages[reader] for reader in readers if reader >= 0]
        for reader in reading:
            reads = tuple(
                replace(r, source=name) if r.source == source.name else r
                for r in reader.operation.reads
            )
            reader.operation = replace(reader.operation, reads=reads)
        copy = Stage(_copy(name, source), scope=scope)
        self.stages.insert(self.stages.index(stage) + 1, copy)

    def _cache_write(self, stage: Stage, _values: FloatArray, scope: str) -> None:
        source = stage.operation
        if source.input:
            raise ValueError("an input is not computed")
        cache = replace(source, name=self._fresh(f"{source.name}.{scope}"))
        self.stages.insert(self.stages.index(stage), Stage(cache, scope=scope))
        stage.begin(_copy(source.name, cache))
        stage.at = None

    def _fresh(self, name: str) -> str:
        taken = {stage.operation.name for stage in self.stages}
        while name in taken:
            name += "'"
        return name

    def _factor_reduction(self, stage: Stage, _values: FloatArray, loop: int, place: int) -> None:
        factored = _loop(stage, loop)
        source, rank = stage.operation, len(stage.operation.shape)
        touched, leaves = derived(stage, factored)
        if not factored.reduction or any(root in touched for root in stage.roots[:rank]):
            raise ValueError("only a loop of the reduction can be factored")
        place = place if place >= 0 else rank + 1 + place
        if not 0 <= place <= rank:
            raise ValueError(place)
        kept = [root for root in stage.roots[rank:] if root not in touched]
        within = [leaf for leaf in leaves if leaf is not factored]
        # Axes of the partial sums: those of the output with the factored loop among them, then
        # reductions that are not touched, then what is left of those that are.
        order = [*stage.roots[:place], factored, *stage.roots[place:rank], *kept, *within]
        numbers = {axis: number for number, axis in enumerate(order)}
        values = indices_of_roots(stage, numbers)
        rename = {number: values[root] for number, root in enumerate(stage.roots)}
        sizes = [size_of(axis) for axis in order]
        partial = replace(
            source,
            name=self._fresh(f"{source.name}.rf"),
            shape=tuple(sizes[: rank + 1]),
            reduction=tuple(sizes[rank + 1 :]),
            reads=tuple(
                Read(r.source, tuple(renamed(index, rename) for index in r.indices))
                for r in source.reads
            ),
        )
        index: list[Index] = [(Digit(number),) for number in range(rank)]
        index.insert(place, (Digit(rank),))
        total = Operation(
            source.name,
            source.shape,
            (sizes[place],),
            (Read(partial.name, tuple(index)),),
            operations=1.0 if source.operations else 0.0,
            selects=0.0 if source.operations else 1.0,
        )
        self.stages.insert(self.stages.index(stage), Stage(partial))
        stage.begin(total)


def _loop(stage: Stage, loop: int) -> Axis:
    if not 0 <= loop < len(stage.leaves):
        raise IndexError(loop)
    return stage.leaves[loop]


def _forget_sizes(stage: Stage) -> None:
    # Where it is computed decides how much of it.
    for axis in stage.leaves:
        axis.size = None


def _copy(name: str, source: Operation) -> Operation:
    index = tuple((Digit(number),) for number in range(len(source.shape)))
    return Operation(name, source.shape, reads=(Read(source.name, index),))
