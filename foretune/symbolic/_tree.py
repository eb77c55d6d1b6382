"""The tree of loops and blocks, and what can be done to its loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from foretune.symbolic._index import (
    Digit,
    Index,
    Iterator_,
    meets,
    number,
    single,
    split_digit,
)
from foretune.symbolic._nodes import (
    Axis,
    Block,
    Bound,
    Buffer,
    Guard,
    Load,
    Loop,
    Reader,
    UnsupportedTraceError,
    walk,
)
from foretune.symbolic._regions import Region
from foretune.symbolic._scalar import Algebra, Scalar


class Tree:
    """A program whose loops can be split, fused and reordered.

    Methods named ``_do_...`` are instructions of traces: they take what the instruction refers to
    and its attributes, and return its outputs.

    Args:
        function: A TVM function.

    Attributes:
        algebra: Owns all scalars.
        top: The loops and blocks of the program.
        aligned: Conditions that splits met the boundaries of what was fused before.
        certain: Further ones under which the program is TVM's to the letter.
        uneven: Whether a loop was split by a number that need not divide its extent.

    Raises:
        UnsupportedTraceError: A statement is not known.
    """

    def __init__(self, function: Any) -> None:
        self.algebra = Algebra()
        self.certain: list[Scalar] = []
        self.aligned: list[Scalar] = []
        self.uneven = False
        self._reader = Reader(self.algebra)
        self.top = self._reader.function(function)

    def blocks(self) -> list[Block]:
        """All blocks in the order of the program."""
        return list(blocks_of(self.top))

    def _consumers(self, block: Block) -> list[Block]:
        return [
            b
            for b in self.blocks()
            if b is not block and any(r.buffer is block.target for r in b.reads())
        ]

    def _producers(self, block: Block) -> list[Block]:
        read = {id(r.buffer) for r in block.reads()}
        return [b for b in self.blocks() if b is not block and id(b.target) in read]

    def _do_split(self, inputs: list[Any], _attributes: Any) -> list[Loop]:
        loop, *factors = inputs
        self.uneven = self.uneven or None in factors
        given = self.algebra.number(1)
        for factor in factors:
            given = given if factor is None else given * factor
        if loop.extent.constant == 1:
            # Indices have forgotten this loop, but TVM's would have the new ones in them.
            self.certain.append(given.equal(1))
        extents = [loop.extent.ceil_divided(given) if f is None else f for f in factors]
        new = [Loop(self._reader.fresh(), e, reduction=loop.reduction) for e in extents]
        new[0].begins, new[-1].ends = loop.begins, loop.ends
        if None in factors:
            self._guard(new, loop.extent)
        parts = [(each.number, each.extent) for each in new]
        self._replace([loop], new, lambda digit: self._divided(digit, loop.extent, parts))
        return new

    def _guard(self, new: Sequence[Loop], extent: Scalar) -> None:
        """Notes that loops that ``extent`` iterations were split into have some more."""
        inside = self.algebra.product(loop.extent for loop in new[1:])
        outside = new[0].extent
        guard = Guard(
            extent / self.algebra.product((outside, inside)),
            extent / self.algebra.product((outside, inside.minimum(extent))),
        )
        new[0].begins = (*new[0].begins, guard)
        new[-1].ends = (*new[-1].ends, guard)

    def _do_fuse(self, inputs: list[Any], _attributes: Any) -> Loop:
        extent = self.algebra.number(1)
        weights: dict[int, Scalar] = {}
        for loop in reversed(inputs):
            weights[loop.number] = extent
            extent = extent * loop.extent
        reduced = any(loop.reduction for loop in inputs)
        fused = Loop(self._reader.fresh(), extent, reduction=reduced)
        fused.begins = tuple(guard for loop in inputs for guard in loop.begins)
        fused.ends = tuple(guard for loop in inputs for guard in loop.ends)

        def moved(digit: Digit) -> Index:
            weight = weights[digit.loop]
            high = digit.high * weight
            leading = high.same(extent) or (digit.leading and digit.loop == inputs[0].number)
            return single(self.algebra, Digit(fused.number, high, digit.low * weight, leading))

        self._replace(inputs, [fused], moved)
        return fused

    def _divided(
        self, digit: Digit, extent: Scalar, parts: list[tuple[int, Scalar]], mapped: bool = True
    ) -> Index:
        self.certain.append(meets(digit, extent, parts))
        self.aligned.append(meets(digit, extent, parts, guarded=True))
        return split_digit(digit, extent, parts, mapped)

    def fuse_and_split(self, loops: list[Loop], inner: Scalar) -> tuple[Loop, Loop]:
        """Fuses loops and splits off ``inner`` iterations; returns both new loops."""
        outer, innermost = self._do_split([self._do_fuse(loops, None), None, inner], None)
        return outer, innermost

    def fetch_together(self, block: Block) -> tuple[Loop, Scalar] | None:
        """Divides a copy into shared memory among the threads around it.

        What TVM's RewriteCooperativeFetch does to a block with the annotation::

            for threadIdx.x: for fused: shared[fused] = ...
            for threadIdx.x: for outer: for lane: shared[(outer, threadIdx.x, lane)] = ...

        Returns:
            The loop over lanes, and the condition that there is more than one.
        """
        lanes = block.annotations.pop("meta_schedule.cooperative_fetch", None)
        if lanes is None:
            return None
        loops = block.loops()
        fused = loops[-1]
        threads = [loop for axis in "yx" for loop in loops if loop.thread == f"threadIdx.{axis}"]
        if not threads:
            raise UnsupportedTraceError(
                f"cooperative fetch in block {block.name}", "has no threads"
            )
        lanes = lanes.divides(fused.extent).choose(lanes, 1)
        inside = lanes
        for loop in threads:
            inside = inside * loop.extent
        self._expect_simple_fetch(block, fused, lanes, inside)
        outer = Loop(self._reader.fresh(), fused.extent.ceil_divided(inside))
        lane = Loop(self._reader.fresh(), lanes)
        share = fused.extent / self.algebra.product((outer.extent, inside))
        outer.begins = outer.ends = (Guard(share, share),)
        parts = [(loop.number, loop.extent) for loop in (outer, *threads, lane)]
        self._replace(
            [fused], [outer, lane], lambda digit: self._divided(digit, fused.extent, parts, False)
        )
        block.guarded = True
        return lane, lanes.above_one()

    def _expect_simple_fetch(
        self, block: Block, fused: Loop, lanes: Scalar, inside: Scalar
    ) -> None:
        """Notes where TVM may write indices of a copy otherwise; found by comparison with it.

        Of a sum of three terms it does not take the remainder apart. A comparison of one term is
        multiplied out before the term is simplified, and what is outside of a padded buffer may
        narrow the guard of a copy that threads do not divide evenly.
        """
        algebra = self.algebra
        for axis in block.axes:
            for _, digit in axis.value.terms:
                if isinstance(digit, Digit) and digit.loop == fused.number and not digit.leading:
                    ends = [digit.high.equal(fused.extent), digit.size.equal(1)]
                    short = digit.low.at_most(inside)
                    self.certain.append(algebra.any_of([lanes.equal(1), short, *ends]))
        for node in walk(block.value):
            if not isinstance(node, Bound) or node.kind == "other":
                continue
            index = block.bound(node.index)
            low, high = index.range(lambda digit: None)
            limit = node.limit.constant
            within = limit.at_most(low) if node.kind == "at_least" else high.less(limit)
            digits = [atom for _, atom in index.terms if isinstance(atom, Digit)]
            for digit in digits:
                if digit.loop == fused.number:
                    others = [other.size.above_one() for other in digits if other is not digit]
                    simple = [*others, digit.size.equal(1), digit.low.equal(inside)]
                    self.certain.append(algebra.any_of([within, *simple]))
            self.certain.append(algebra.any_of([within, inside.divides(fused.extent)]))

    def _replace(self, old: list[Loop], new: list[Loop], digits: Callable[[Digit], Index]) -> None:
        """Puts a chain of loops in the place of another and rewrites what depends on it."""
        numbers = {loop.number for loop in old}
        for outer, inner in itertools.pairwise(new):
            outer.body, inner.parent = [inner], outer
        new[-1].body = old[-1].body
        for child in new[-1].body:
            child.parent = new[-1]
        new[0].parent = old[0].parent
        new[0].annotations.update(old[0].annotations)
        siblings = self._siblings(old[0])
        siblings[siblings.index(old[0])] = new[0]
        for block in blocks_of(new[-1].body):
            for axis in block.axes:
                axis.value = axis.value.replace(
                    lambda atom: (
                        digits(atom) if isinstance(atom, Digit) and atom.loop in numbers else None
                    )
                )

    def _siblings(self, node: Loop | Block) -> list[Loop | Block]:
        return self.top if node.parent is None else node.parent.body

    def _do_reorder(self, inputs: list[Any], _attributes: Any) -> None:
        chosen = {id(loop) for loop in inputs}
        deepest = max(inputs, key=lambda loop: len(above(loop)))
        chain = [*above(deepest), deepest]
        first = next(i for i, loop in enumerate(chain) if id(loop) in chosen)
        chain = chain[first:]
        order = iter(inputs)
        wanted = [next(order) if id(loop) in chosen else loop for loop in chain]
        top, bottom = chain[0], chain[-1]
        siblings, parent, inside = self._siblings(top), top.parent, bottom.body
        at = siblings.index(top)
        siblings[at], wanted[0].parent = wanted[0], parent
        for outer, inner in itertools.pairwise(wanted):
            outer.body, inner.parent = [inner], outer
        wanted[-1].body = inside
        for child in inside:
            child.parent = wanted[-1]

    def _remove(self, block: Block) -> None:
        node: Loop | Block = block
        while node.parent is not None and len(node.parent.body) == 1:
            node = node.parent
        self._siblings(node).remove(node)

    def _copy(self, name: str, source: Buffer, target: Buffer) -> Block:
        # A nest of its own that copies a buffer.
        axes = [
            Axis(Iterator_(self._reader.fresh()), extent, False, number(self.algebra, 0))
            for extent in source.shape
        ]
        indices = tuple(whole(self.algebra, axis) for axis in axes)
        block = Block(name, axes, target, indices, Load(source, indices), False)
        self._nest(block, {})
        return block

    def _nest(self, block: Block, regions: Mapping[int, Region]) -> Loop | Block:
        """Puts a block into new loops over its axes; ``regions`` limits some axes."""
        loops = []
        for axis in block.axes:
            region = regions.get(axis.atom.index)
            extent = axis.extent if region is None else region.extent
            start = number(self.algebra, 0) if region is None else region.start
            loop = Loop(self._reader.fresh(), extent, reduction=axis.reduction)
            one = self.algebra.number(1)
            axis.value = start
            if extent.constant != 1:
                digit = Digit(loop.number, extent, one, True)
                axis.value = start + single(self.algebra, digit)
            loops.append(loop)
        chain: list[Loop | Block] = [*loops, block]
        for outer, inner in zip(loops, chain[1:], strict=True):
            outer.body, inner.parent = [inner], outer
        chain[0].parent = None
        return chain[0]

    def _place(self, block: Block, before: Block | None = None, after: Block | None = None) -> None:
        anchor = before or after
        assert anchor is not None
        at = self.top.index(root_of(anchor)) + (after is not None)
        self.top.insert(at, root_of(block))


def blocks_of(nodes: Iterable[Loop | Block]) -> Iterable[Block]:
    """The blocks below nodes, in the order of the program."""
    for node in nodes:
        if isinstance(node, Block):
            yield node
        else:
            yield from blocks_of(node.body)


def above(loop: Loop) -> list[Loop]:
    outside = []
    outer = loop.parent
    while outer is not None:
        outside.append(outer)
        outer = outer.parent
    return outside[::-1]


def root_of(node: Loop | Block) -> Loop | Block:
    while node.parent is not None:
        node = node.parent
    return node


def whole(algebra: Algebra, axis: Axis) -> Index:
    return number(algebra, 0) if axis.extent.constant == 1 else single(algebra, axis.atom)
