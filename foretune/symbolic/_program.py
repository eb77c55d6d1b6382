"""The program that feature extraction sees, with decisions left open.

After the trace and the post-processors, TVM takes reductions across threads apart, narrows each
intermediate buffer to the part that is alive at once, puts the threads of a kernel around it and
drops loops of one iteration. Here every store keeps all its loops, and each loop has the condition
under which it is still there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretune.space.decision import Choice, ComputeLocation, Decision
from foretune.space.structure import Structure
from foretune.space.trace import VECTORIZE
from foretune.symbolic._index import Atom, Digit, Index, Opaque, single
from foretune.symbolic._interpret import Interpreter
from foretune.symbolic._nodes import (
    Block,
    Bound,
    Buffer,
    Expression,
    Literal,
    Load,
    Loop,
    UnsupportedTraceError,
    rewrite,
    walk,
)
from foretune.symbolic._postprocess import Marks, mark
from foretune.symbolic._regions import Region, region_of, united, without_start
from foretune.symbolic._scalar import Algebra, Scalar

if TYPE_CHECKING:
    from foretune.space.sketch import Sketch

_WHOLE_WARPS = "meta_schedule.thread_extent_low_inclusive"
"""Annotation of blocks that are tiled for threads."""
_CACHED = 128
"""Symbolic programs kept per process."""


@dataclass(frozen=True)
class Level:
    """A loop around a store, in the place where the trace put it; of threads, around the kernel.

    Attributes:
        loop: Its number.
        extent: Iterations of the loop of the trace.
        parallel: Condition that it is part of the parallel loop, which stands in the first place.
        vector: Condition that it is part of the vectorised loop.
        head: Condition that it is the outermost part of a parallel or vectorised loop.
        kept: Condition that the lowered program has a loop in this place.
        length: Iterations of that loop; 1 where there is none.
        thread: ``"blockIdx.x"``, ``"vthread.x"``... or empty.
        unroll: Steps of the automatic unrolling pragma; 0 for none.
        reduction: Whether a block reduces over it.
    """

    loop: int
    extent: Scalar
    parallel: Scalar
    vector: Scalar
    head: Scalar
    kept: Scalar
    length: Scalar
    thread: str
    unroll: Scalar
    reduction: bool = False


@dataclass(frozen=True)
class Allocation:
    """A buffer as lowered.

    Attributes:
        buffer: The buffer.
        shape: Elements per dimension, narrowed to what is alive at once.
        outside: Product of the loops around the place where it is allocated.
    """

    buffer: Buffer
    shape: tuple[Scalar, ...]
    outside: Scalar


@dataclass(frozen=True)
class Store:
    """A statement that stores a computed element.

    Attributes:
        name: Of its block.
        levels: The loops around it, outermost first.
        target: Where it stores to.
        indices: The element, counted from the start of the narrowed buffer.
        value: What it stores; loads count likewise.
        whole_warps: Whether TVM wants no fewer threads around it than a warp has.
        reduces: Whether it adds to what it stores.
        executed: Share of the iterations of its loops in which it is executed; None for all.
    """

    name: str
    levels: tuple[Level, ...]
    target: Buffer
    indices: tuple[Index, ...]
    value: Expression
    whole_warps: bool = False
    reduces: bool = False
    executed: Scalar | None = None


@dataclass(frozen=True)
class SymbolicProgram:
    """A sketch with its structure fixed and its tile factors and choices open.

    Attributes:
        sketch: The sketch.
        structure: What is fixed.
        algebra: Owns all scalars.
        columns: For each open number, the sketch's variable and the part of its tile (0 for
            choices). A point of the program is one number for each.
        variables: The scalars of the columns.
        stores: In the order of the program.
        allocations: By buffer.
        certain: Condition that all indices are exact. Where a split does not meet the boundaries of
            the loops that were fused before, indices of both stay entangled, and what is said of
            them here is only close. So it is of indices with divisions (transposed convolutions).
            Where no thread of a reduction across threads has several elements, TVM may have a store
            less than there are here.
        aligned: Condition that digits of loops are exact and stores are TVM's, however TVM writes
            them.
    """

    sketch: Sketch
    structure: Structure
    algebra: Algebra
    columns: tuple[tuple[int, int], ...]
    variables: tuple[Scalar, ...]
    stores: tuple[Store, ...]
    allocations: dict[Buffer, Allocation]
    certain: Scalar
    aligned: Scalar

    def point(self, decisions: Sequence[Decision]) -> list[float]:
        """The numbers of a candidate's decisions, one per column: factors, values of choices."""
        row = []
        for index, part in self.columns:
            variable, decision = self.sketch.variables[index], decisions[index]
            if isinstance(variable, Choice):
                assert isinstance(decision, int)
                row.append(float(variable.values[decision]))
            else:
                row.append(float(decision[part]))  # type: ignore[index]
        return row


@functools.lru_cache(maxsize=_CACHED)
def symbolic_program(sketch: Sketch, structure: Structure) -> SymbolicProgram:
    """Interprets a sketch's trace and post-processors, 10 to 100 ms.

    Args:
        sketch: The sketch.
        structure: Locations must be legal for the tiles that it is used with.

    Raises:
        UnsupportedTraceError: An instruction or statement is not known.
    """
    indices = [i for i, v in enumerate(sketch.variables) if isinstance(v, ComputeLocation)]
    tree = Interpreter(sketch, dict(zip(indices, structure.locations, strict=True)))
    for block in tree.blocks():
        if tree.sketch.hardware.limits_threads and not any(x.thread for x in block.loops()):
            raise UnsupportedTraceError(f"block {block.name}", "is bound to no threads")
    fetched = [fetch for b in tree.blocks() if (fetch := tree.fetch_together(b)) is not None]
    marks = mark(tree, structure.parallel, structure.vectorize)
    for lane, several in fetched:
        marks.vector[lane.number] = several
    for block in marks.split:
        _split(tree, marks, block)
    for block in tree.blocks():
        tree.reduce_across_threads(block)
    return _lowered(tree, marks, structure)


def _split(tree: Interpreter, marks: Marks, block: Block) -> None:
    """Fuses all loops of a block and splits them into a parallel and a vectorised one."""
    outer, inner = tree.fuse_and_split(block.loops(), tree.annotations[VECTORIZE])
    one = tree.algebra.number(1)
    marks.parallel[outer.number], marks.vector[inner.number] = one, one


def _lowered(tree: Interpreter, marks: Marks, structure: Structure) -> SymbolicProgram:
    blocks = tree.blocks()
    threads = _threads(tree.top)
    levels = {
        id(block): _levels(tree.algebra, _launched(block.loops(), threads), marks)
        for block in blocks
    }
    buffers = dict.fromkeys(
        buffer for block in blocks for buffer in (block.target, *(r.buffer for r in block.reads()))
    )
    starts: dict[Buffer, list[Region]] = {}
    allocations = {}
    for buffer in buffers:
        regions, outside = _alive(buffer, blocks)
        if buffer.parameter:
            allocations[buffer] = Allocation(buffer, buffer.shape, tree.algebra.number(1))
            continue
        starts[buffer] = regions
        shape = tuple(
            region.extent.minimum(size) for region, size in zip(regions, buffer.shape, strict=True)
        )
        allocations[buffer] = Allocation(
            buffer,
            shape,
            tree.algebra.product(loop.extent for loop in _launched(outside, threads)),
        )

    def moved(load: Load) -> Load:
        if load.buffer not in starts:
            return load
        pairs = zip(load.indices, starts[load.buffer], strict=True)
        return Load(load.buffer, tuple(without_start(i, region) for i, region in pairs))

    def launched(index: Index) -> Index:
        if not threads:
            return index

        def of(atom: Atom) -> Index | None:
            if not isinstance(atom, Digit) or atom.loop not in threads:
                return None
            return single(tree.algebra, replace(atom, loop=threads[atom.loop].loop.number))

        return index.replace(of)

    stores = []
    for block in blocks:
        target = moved(Load(block.target, tuple(block.bound(i) for i in block.indices)))
        indices = tuple(launched(index) for index in target.indices)
        value = rewrite(rewrite(block.value, block.bound, moved), launched)
        warps = _WHOLE_WARPS in block.annotations
        stores.append(
            Store(
                block.name,
                levels[id(block)],
                block.target,
                indices,
                value,
                warps,
                block.reduces,
                _executed(tree.algebra, block),
            )
        )
    return SymbolicProgram(
        tree.sketch,
        structure,
        tree.algebra,
        tuple(tree.columns),
        tuple(tree.variables),
        tuple(stores),
        allocations,
        tree.algebra.all_of(
            [*tree.aligned, *tree.certain, tree.algebra.number(int(_linear(blocks)))]
        ),
        tree.algebra.all_of(tree.aligned),
    )


@dataclass(frozen=True)
class _Thread:
    """What TVM's UnifyThreadBinding makes of a loop that is bound to threads.

    Attributes:
        loop: The first loop of the kernel that is bound to the same threads: one for all of them.
        kernel: These loops by kind of thread, in order. All are put around the kernel. TVM refuses
            a program in which two loops of a kind differ in their extents; nothing here does.
    """

    loop: Loop
    kernel: dict[str, Loop]


def _threads(
    nodes: Sequence[Loop | Block], kernel: dict[str, Loop] | None = None
) -> dict[int, _Thread]:
    """The loops of threads by their number."""
    threads: dict[int, _Thread] = {}
    for node in nodes:
        if isinstance(node, Block):
            continue
        inside = kernel
        if node.thread:
            inside = {} if kernel is None else kernel
            threads[node.number] = _Thread(inside.setdefault(node.thread, node), inside)
        threads.update(_threads(node.body, inside))
    return threads


def _launched(loops: list[Loop], threads: Mapping[int, _Thread]) -> list[Loop]:
    """The loops around a place once those of threads are around the kernel."""
    at = next((i for i, loop in enumerate(loops) if loop.thread), None)
    if at is None:
        return loops
    kernel = threads[loops[at].number].kernel.values()
    return [*loops[:at], *kernel, *(loop for loop in loops[at:] if not loop.thread)]


def _executed(algebra: Algebra, block: Block) -> Scalar | None:
    """The share of iterations that splits, and what one thread does for all, leave to a block."""
    # What is reduced over may be uneven; the whole is there to store all the same.
    loops = [loop for loop in block.loops() if loop not in block.alone]
    ends = [guard for loop in loops for guard in loop.ends]
    shares = [
        guard.share if guard in ends else guard.moved for loop in loops for guard in loop.begins
    ]
    shares += [algebra.number(1) / loop.extent for loop in block.alone]
    return algebra.product(shares) if shares else None


def _linear(blocks: Sequence[Block]) -> bool:
    """Whether all indices are sums: how TVM writes others depends on too much."""
    for block in blocks:
        for node in walk(block.value):
            indices: tuple[Index, ...] = ()
            if isinstance(node, Load):
                indices = node.indices
            elif isinstance(node, Literal) and node.index is not None:
                indices = (node.index,)
            elif isinstance(node, Bound):
                indices = (node.index, node.limit)
                if node.kind == "other":
                    return False
            if any(isinstance(atom, Opaque) for index in indices for atom in index.atoms()):
                return False
    return True


def _alive(buffer: Buffer, blocks: Sequence[Block]) -> tuple[list[Region], list[Loop]]:
    """What of a buffer is alive at once, and the loops around its allocation."""
    users = [b for b in blocks if b.target is buffer or any(r.buffer is buffer for r in b.reads())]
    outside = users[0].loops()
    nests = [_initialised(user) if user.target is buffer else user.loops() for user in users]
    for loops in nests:
        shared = 0
        while shared < min(len(outside), len(loops)) and outside[shared] is loops[shared]:
            shared += 1
        outside = outside[:shared]
    fixed = {loop.number for loop in outside if not _relaxed(buffer, loop)}
    regions: list[Region] | None = None
    for user in users:
        accesses = [r.indices for r in user.reads() if r.buffer is buffer]
        if user.target is buffer and not (user.guarded and len(users) > 1):
            accesses.append(user.indices)
        for indices in accesses:
            read = [region_of(user.bound(i), fixed) for i in indices]
            if regions is not None:
                read = [united(a, b) for a, b in zip(regions, read, strict=True)]
            regions = read
    assert regions is not None
    return regions, outside


def _initialised(block: Block) -> list[Loop]:
    """The loops around a block's initialisation, which comes before the first reduction."""
    loops = block.loops()
    at = next((i for i, loop in enumerate(loops) if loop.reduction), len(loops))
    return loops[:at] if block.reduces else loops


def _relaxed(buffer: Buffer, loop: Loop) -> bool:
    # Threads share what is in shared memory; all threads of a grid share the global one.
    if not loop.thread or buffer.scope.startswith("local"):
        return False
    return buffer.scope == "global" or not loop.thread.startswith("blockIdx")


def _levels(algebra: Algebra, loops: Sequence[Loop], marks: Marks) -> tuple[Level, ...]:
    none = algebra.number(0)
    parallel = [marks.parallel.get(loop.number, none) for loop in loops]
    vector = [marks.vector.get(loop.number, none) for loop in loops]
    jobs = algebra.product(
        p.choose(loop.extent, 1) for p, loop in zip(parallel, loops, strict=True)
    )
    lanes = [algebra.number(1)]
    for loop in reversed(loops):
        lanes.append(algebra.product((loop.extent, lanes[-1])))
    lanes.reverse()
    levels = []
    for at, loop in enumerate(loops):
        inside = parallel[at] if at == 0 else none
        start = algebra.all_of([vector[at], vector[at - 1].negated()]) if at else vector[at]
        iterates = algebra.all_of(
            [loop.extent.above_one(), parallel[at].negated(), vector[at].negated()]
        )
        unroll = marks.unroll.get(loop.number, none)
        annotated = algebra.any_of(
            [
                algebra.number(int(bool(loop.thread) or bool(loop.annotations))),
                unroll.equal(0).negated(),
            ]
        )
        head = algebra.any_of([inside, start])
        kept = algebra.any_of([iterates, head, annotated])
        length = inside.choose(jobs, start.choose(lanes[at], iterates.choose(loop.extent, 1)))
        level = Level(
            loop.number, loop.extent, parallel[at], vector[at], head, kept, length, loop.thread,
            unroll, loop.reduction,
        )  # fmt: skip
        levels.append(level)
    return tuple(levels)
