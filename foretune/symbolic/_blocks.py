"""What can be done to blocks: inlining, caching, factoring reductions, moving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from foretune.space.decision import INLINE, ROOT
from foretune.symbolic._index import Atom, Digit, Index, Iterator_, number, single
from foretune.symbolic._nodes import (
    Axis,
    Block,
    Buffer,
    Expression,
    Load,
    Loop,
    Operation,
    UnsupportedTraceError,
    rewrite,
)
from foretune.symbolic._regions import Region, region_of, united
from foretune.symbolic._scalar import Scalar
from foretune.symbolic._tree import Tree, above, blocks_of, root_of, whole

_T = TypeVar("_T")

_RANKS = {"global": 0, "shared": 1, "warp": 2, "local": 3}


class BlockTree(Tree):
    """A tree whose blocks can be moved and rewritten."""

    def _do_compute_inline(self, inputs: list[Any], _attributes: Any) -> None:
        block = inputs[0]
        position = {a: i for i, a in enumerate(_plain_axes(block))}

        def inlined(load: Load) -> Expression | None:
            if load.buffer is not block.target:
                return None
            return rewrite(block.value, lambda each: each.replace(at(load)))

        def at(load: Load) -> Callable[[Atom], Index | None]:
            return lambda atom: (
                load.indices[position[atom.index]]
                if isinstance(atom, Iterator_) and atom.index in position
                else None
            )

        for consumer in self._consumers(block):
            consumer.value = rewrite(consumer.value, lambda index: index, inlined)
        self._remove(block)

    def _do_reverse_compute_inline(self, inputs: list[Any], _attributes: Any) -> None:
        block = inputs[0]
        what = f"ReverseComputeInline of block {block.name}"
        producer = _only(self._producers(block), what, "producer")
        reads = {
            tuple(map(_axis_of, r.indices)): r for r in block.reads() if r.buffer is producer.target
        }
        load = _only(list(reads.values()), what, "access of its producer")
        values = {
            axis: index
            for each, index in zip(load.indices, producer.indices, strict=True)
            if (axis := _axis_of(each)) is not None
        }

        def moved(index: Index) -> Index:
            return index.replace(
                lambda a: values.get(a.index) if isinstance(a, Iterator_) else None
            )

        own = producer.value
        producer.value = rewrite(
            block.value, moved, lambda each: own if each.buffer is producer.target else None
        )
        producer.indices = tuple(moved(i) for i in block.indices)
        producer.target = block.target
        self._remove(block)

    def _do_cache_write(self, inputs: list[Any], attributes: Any) -> Block:
        block = inputs[0]
        scope = attributes[1]
        original = block.target
        cached = Buffer(f"{original.name}_{scope}", original.shape, original.bytes, scope)

        def own(load: Load) -> Expression | None:
            return Load(cached, load.indices) if load.buffer is original else None

        block.value = rewrite(block.value, lambda index: index, own)
        block.target = cached
        copy = self._copy(f"{original.name}_{scope}", cached, original)
        self._place(copy, after=block)
        return copy

    def _do_cache_read(self, inputs: list[Any], attributes: Any) -> Block:
        block, consumers = inputs[0], inputs[1] if len(inputs) > 1 else []
        which, scope = attributes
        sources: list[Buffer] = []
        for load in block.reads():
            if load.buffer is not block.target and load.buffer not in sources:
                sources.append(load.buffer)
        if which >= len(sources):
            what = f"CacheRead of block {block.name}"
            raise UnsupportedTraceError(what, f"is of buffer {which}, but it reads {len(sources)}")
        original = sources[which]
        cached = Buffer(f"{original.name}_{scope}", original.shape, original.bytes, scope)

        def redirect(load: Load) -> Expression | None:
            return Load(cached, load.indices) if load.buffer is original else None

        writers = [b for b in self.blocks() if b.target is original]
        readers = [b for b in self.blocks() if any(r.buffer is original for r in b.reads())]
        for reader in consumers or readers:
            reader.value = rewrite(reader.value, lambda index: index, redirect)
        copy = self._copy(f"{original.name}_{scope}", original, cached)
        if writers:
            self._place(copy, after=writers[-1])
        else:
            self._place(copy, before=block)
        return copy

    def _do_rfactor(self, inputs: list[Any], attributes: Any) -> Block:
        loop: Loop = inputs[0]
        block = _only(list(blocks_of(loop.body)), "RFactor", "block in its loop")
        loops = block.loops()
        reduced = [each for each in loops if each.reduction]
        one = self.algebra.number(1)
        new: dict[int, Axis] = {}
        for each in reduced:
            digit = Digit(each.number, each.extent, one, True)
            value = number(self.algebra, 0)
            if each.extent.constant != 1:
                value = single(self.algebra, digit)
            atom = Iterator_(self._reader.fresh())
            new[each.number] = Axis(atom, each.extent, each is not loop, value)

        def of_axes(atom: Atom) -> Index | None:
            if isinstance(atom, Digit) and atom.loop in new:
                moved = Digit(new[atom.loop].atom.index, atom.high, atom.low, atom.leading)
                entire = atom.low.constant == 1 and atom.high.same(new[atom.loop].extent)
                return single(self.algebra, new[atom.loop].atom if entire else moved)
            return None

        old = {a.atom.index: a.value.replace(of_axes) for a in block.axes if a.reduction}
        factor = new[loop.number]
        original = block.target
        at = attributes[0] if attributes[0] >= 0 else len(original.shape) + 1 + attributes[0]
        shape = (*original.shape[:at], loop.extent, *original.shape[at:])
        partial = Buffer(f"{original.name}_rf", shape, original.bytes)

        def inserted(indices: tuple[Index, ...], axis: Axis) -> tuple[Index, ...]:
            return (*indices[:at], whole(self.algebra, axis), *indices[at:])

        def index(each: Index) -> Index:
            return each.replace(lambda a: old.get(a.index) if isinstance(a, Iterator_) else None)

        def own(load: Load) -> Expression | None:
            if load.buffer is original:
                return Load(partial, inserted(load.indices, factor))
            return None

        spatial = [a for a in block.axes if not a.reduction]
        rest = [axis for number_, axis in new.items() if number_ != loop.number]
        first = Block(
            f"{block.name}_rf",
            [factor, *spatial, *rest],
            partial,
            inserted(block.indices, factor),
            rewrite(block.value, index, own),
            True,
            block.parent,
        )
        siblings = self._siblings(block)
        siblings[siblings.index(block)] = first
        self._write_back(block, first, [x for x in loops if x not in reduced or x is loop])
        loop.reduction = False
        return first

    def _write_back(self, block: Block, first: Block, kept: list[Loop]) -> None:
        """The second half of a factored reduction: it reduces the partial results."""
        copies = {
            each.number: Loop(self._reader.fresh(), each.extent, reduction=each.reduction)
            for each in kept
        }

        def moved(atom: Atom) -> Index | None:
            if isinstance(atom, Digit):
                new = Digit(copies[atom.loop].number, atom.high, atom.low, atom.leading)
                return single(self.algebra, new)
            return None

        axes = []
        atoms: dict[int, Index] = {}
        for axis in [first.axes[0], *(a for a in block.axes if not a.reduction)]:
            copy = Axis(
                Iterator_(self._reader.fresh()),
                axis.extent,
                axis is first.axes[0],
                axis.value.replace(moved),
            )
            atoms[axis.atom.index] = whole(self.algebra, copy)
            axes.append(copy)

        def index(each: Index) -> Index:
            return each.replace(lambda a: atoms.get(a.index) if isinstance(a, Iterator_) else None)

        if not isinstance(block.value, Operation) or len(block.value.args) != 2:
            raise UnsupportedTraceError(f"RFactor of block {block.name}", "has no simple combiner")
        own = Load(block.target, tuple(index(i) for i in block.indices))
        part = Load(first.target, tuple(index(i) for i in first.indices))
        block.value = Operation(block.value.kind, block.value.floating, (own, part))
        block.indices, block.axes = own.indices, axes
        chain: list[Loop | Block] = [*copies.values(), block]
        for outer, inner in zip(copies.values(), chain[1:], strict=True):
            outer.body, inner.parent = [inner], outer
        chain[0].parent = None
        self.top.insert(self.top.index(root_of(first)) + 1, chain[0])

    def reduce_across_threads(self, block: Block) -> None:
        """Lets every thread reduce its own part, and then one of them store the whole.

        What TVM's LowerCrossThreadReduction does to a block that is reduced over a loop of threads;
        what is between the two, the exchange among threads, stores nothing::

            for k.0: for threadIdx.x: sum[i] = sum[i] + x[i, k.0, threadIdx.x]
            for threadIdx.x: { for k.0: part = part + x[i, k.0, threadIdx.x]; sum[i] = whole }

        Nothing happens to other blocks. Where no thread has more than one element, TVM may leave
        the first part out, or the block as it was; that is not ``certain``.

        Raises:
            UnsupportedTraceError: Something else is inside the loops that are reduced over, none of
                them is left to a single thread, or each thread keeps the result for itself.
        """
        loops = block.loops()
        at = next((i for i, loop in enumerate(loops) if loop.reduction), len(loops))
        threads = [loop for loop in loops[at:] if loop.thread and loop.reduction]
        if not threads:
            return
        rest = [loop for loop in loops[at:] if not loop.thread]
        original = block.target
        what = f"block {block.name}"
        if not rest:
            raise UnsupportedTraceError(what, "is reduced over threads alone")
        if not all(loop.reduction and len(loop.body) == 1 for loop in loops[at:]):
            raise UnsupportedTraceError(what, "is not alone in loops that threads reduce over")
        if original.scope.startswith("local"):
            raise UnsupportedTraceError(what, "is reduced across threads for each of them")
        self.aligned.append(self._reduced_in_threads(block, threads, rest))
        self._do_reorder([*threads, *rest], None)
        for loop in threads:
            # Every thread begins with an initial value of its own.
            loop.reduction = False
        one, first = (self.algebra.number(1),), (number(self.algebra, 0),)
        part, entire = (
            Buffer(f"{kind}_thread_{original.name}", one, original.bytes, "local")
            for kind in ("in", "cross")
        )
        last = Block(
            f"{block.name}_write_back",
            [axis for axis in block.axes if not axis.reduction],
            original,
            block.indices,
            Load(entire, first),
            False,
            threads[-1],
            block.guarded,
            alone=tuple(threads),
        )
        threads[-1].body.append(last)

        def own(load: Load) -> Expression | None:
            return Load(part, first) if load.buffer is original else None

        block.value = rewrite(block.value, lambda index: index, own)
        block.target, block.indices = part, first

    def _reduced_in_threads(
        self, block: Block, threads: Sequence[Loop], rest: Sequence[Loop]
    ) -> Scalar:
        """Condition that a thread has a part of its own to reduce."""
        several = self.algebra.product(loop.extent for loop in rest).above_one()
        reduced = [a.extent for a in block.axes if a.reduction and a.extent.constant != 1]
        if len(reduced) != 1:
            return several
        # With threads left over, their part is nothing, but still there; of several axes that
        # were fused TVM does not see which threads these are.
        over = self.algebra.product(x.extent for x in (*threads, *rest)).equal(reduced[0]).negated()
        return self.algebra.any_of([several, over])

    def _do_compute_at(self, inputs: list[Any], _attributes: Any) -> None:
        block, target = inputs
        if target == ROOT:
            return
        if target == INLINE:
            self._do_compute_inline([block], None)
            return
        consumers = [c for c in self._consumers(block) if target in c.loops()]
        fixed = self._outside(target, block.target.scope)
        needed: list[Region] | None = None
        for consumer in consumers:
            for load in consumer.reads():
                if load.buffer is block.target:
                    found = [region_of(consumer.bound(i), fixed) for i in load.indices]
                    needed = found if needed is None else _united(needed, found)
        if needed is None:
            what = f"ComputeAt of block {block.name}"
            raise UnsupportedTraceError(what, "is under a loop in which nothing reads it")
        regions = _solved(block.indices, needed)
        self._move(block, target, regions, consumers, self._producers(block))

    def _do_reverse_compute_at(self, inputs: list[Any], _attributes: Any) -> None:
        block, target = inputs
        if target == ROOT:
            return
        producers = [p for p in self._producers(block) if target in p.loops()]
        fixed = self._outside(target, "global") | {loop.number for loop in [*above(target), target]}
        regions: dict[int, Region] = {}
        for producer in producers:
            given = [region_of(producer.bound(i), fixed) for i in producer.indices]
            for load in block.reads():
                if load.buffer is producer.target:
                    regions.update(_solved(load.indices, given))
        self._move(block, target, regions, self._consumers(block), producers)

    def _outside(self, target: Loop, scope: str) -> set[int]:
        rank = _RANKS.get(scope.split(".", maxsplit=1)[0], 0)
        return {
            loop.number
            for loop in [*above(target), target]
            if not loop.thread or rank > (0 if loop.thread.startswith("blockIdx") else 1)
        }

    def _move(
        self,
        block: Block,
        target: Loop,
        regions: Mapping[int, Region],
        consumers: Iterable[Block],
        producers: Iterable[Block],
    ) -> None:
        self._remove(block)
        if self.uneven:
            # Iterations that have nothing to do would ask for more than there is.
            most = {axis.atom.index: axis.extent for axis in block.axes}
            regions = {
                axis: Region(region.start, region.extent.minimum(most[axis]))
                for axis, region in regions.items()
            }
        nest = self._nest(block, regions)
        after = [i for i, n in enumerate(target.body) if _holds(n, producers)]
        before = [i for i, n in enumerate(target.body) if _holds(n, consumers)]
        at = min(before) if before else len(target.body)
        assert not after or max(after) < at
        target.body.insert(at, nest)
        nest.parent = target


def _only(given: Sequence[_T], what: str, wanted: str) -> _T:
    """The one thing there is.

    Raises:
        UnsupportedTraceError: There is none, or several.
    """
    if len(given) != 1:
        raise UnsupportedTraceError(what, f"needs one {wanted}, but there are {len(given)}")
    return given[0]


def _holds(node: Loop | Block, blocks: Iterable[Block]) -> bool:
    wanted = {id(b) for b in blocks}
    return any(id(b) in wanted for b in blocks_of([node]))


def _axis_of(index: Index) -> int | None:
    """The axis that an index is, if it is just one."""
    if len(index.terms) == 1 and index.constant.constant == 0:
        ((coefficient, atom),) = index.terms
        if isinstance(atom, Iterator_) and coefficient.constant == 1:
            return atom.index
    return None


def _plain_axes(block: Block) -> list[int | None]:
    axes = [_axis_of(index) for index in block.indices]
    if any(axis is None and index.terms for axis, index in zip(axes, block.indices, strict=True)):
        raise UnsupportedTraceError(f"block {block.name}", "stores at computed indices")
    return axes


def _solved(indices: Sequence[Index], needed: Sequence[Region]) -> dict[int, Region]:
    """Axis -> region, from what is needed in each dimension of the buffer it indexes."""
    regions: dict[int, Region] = {}
    for index, region in zip(indices, needed, strict=True):
        axis = _axis_of(index)
        if axis is not None:
            regions[axis] = united(regions[axis], region) if axis in regions else region
        elif index.terms:
            raise UnsupportedTraceError("a moved block", "accesses computed indices")
    return regions


def _united(a: Sequence[Region], b: Sequence[Region]) -> list[Region]:
    return [united(x, y) for x, y in zip(a, b, strict=True)]
