"""What TVM's post-processors do to a tree: parallel, vectorised and unrolled loops.

How many loops are fused into the parallel one, and how many into the vectorised one, depends on
extents. So the loops stay as they are, and each gets the condition under which it is part of
either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foretune.space.trace import PARALLEL, VECTORIZE
from foretune.symbolic._index import Digit, Index
from foretune.symbolic._interpret import Interpreter
from foretune.symbolic._nodes import Block, Loop
from foretune.symbolic._scalar import Algebra, Scalar

_UNROLL = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


@dataclass
class Marks:
    """What the post-processors decided, by loop number.

    Attributes:
        parallel: Condition that the loop is fused into the parallel one.
        vector: Condition that the loop is fused into the vectorised one.
        unroll: Largest number of steps of automatic unrolling, for loops that have the pragma; 0
            where it is off.
        split: Blocks whose loops are all fused and split into a parallel and a vectorised one.
        seen: Outermost loops that were looked at.
    """

    parallel: dict[int, Scalar] = field(default_factory=dict)
    vector: dict[int, Scalar] = field(default_factory=dict)
    unroll: dict[int, Scalar] = field(default_factory=dict)
    split: list[Block] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


def mark(tree: Interpreter, parallel: bool, vectorize: bool) -> Marks:
    """Applies TVM's RewriteParallelVectorizeUnroll.

    Args:
        tree: After its trace.
        parallel: Whether the parallel limit is on.
        vectorize: Whether the vector limit is on.
    """
    marks = Marks()
    most_jobs = tree.annotations.get(PARALLEL) if parallel else None
    most_lanes = tree.annotations.get(VECTORIZE) if vectorize else None
    steps = next((tree.annotations[k] for k in _UNROLL if k in tree.annotations), None)
    for block in tree.blocks():
        loops = block.loops()
        if loops:
            _Rewriter(tree.algebra, block, loops, marks).run(most_jobs, most_lanes, steps)
    return marks


class _Rewriter:
    """The rewriting of one block's loops."""

    def __init__(self, algebra: Algebra, block: Block, loops: list[Loop], marks: Marks) -> None:
        self.algebra, self.block, self.loops, self.marks = algebra, block, loops, marks
        self.free = [
            algebra.number(int(not (loop.thread or loop.annotations or loop.reduction)))
            for loop in loops
        ]
        self.single = [len(loop.body) == 1 for loop in loops]

    def run(
        self, most_jobs: Scalar | None, most_lanes: Scalar | None, steps: Scalar | None
    ) -> None:
        fusible = self._fusible() if most_lanes is not None else []
        if most_jobs is not None and most_lanes is not None and self._all_fused(fusible):
            self.marks.split.append(self.block)
        else:
            lanes = self._lanes(most_lanes, fusible) if most_lanes is not None else {}
            # Blocks under the same outermost loop would fuse the same loops again.
            if most_jobs is not None and self.loops[0].number not in self.marks.seen:
                for number, taken in self._jobs(most_jobs).items():
                    lane = lanes.get(number, self.algebra.number(0))
                    self.marks.parallel[number] = self.algebra.all_of([taken, lane.negated()])
            self.marks.vector.update(lanes)
        self.marks.seen.add(self.loops[0].number)
        if steps is not None and any(axis.reduction for axis in self.block.axes):
            self.marks.unroll[self.loops[0].number] = steps

    def _all_fused(self, fusible: list[Scalar]) -> bool:
        if any(a.reduction and a.extent.constant != 1 for a in self.block.axes):
            return False
        if not all(self.single) or any(f.constant != 1 for f in self.free):
            return False
        whole = self.algebra.product(loop.extent for loop in self.loops)
        return self.algebra.all_of(fusible).constant == 1 and whole.constant != 1

    def _jobs(self, most: Scalar) -> dict[int, Scalar]:
        """Loop -> condition that it is among the outer loops that become the parallel one."""
        going = product = self.algebra.number(1)
        taken = []
        for at, loop in enumerate(self.loops):
            going = self.algebra.all_of([going, self.free[at]])
            taken.append(going)
            product = product * loop.extent
            if not self.single[at]:
                going = self.algebra.number(0)
            going = self.algebra.all_of([going, product.at_most(most)])
        return self._iterating(taken)

    def _iterating(
        self, taken: list[Scalar], otherwise: Sequence[Scalar] = ()
    ) -> dict[int, Scalar]:
        # Nothing is rewritten when the fused loop would have one iteration.
        iterating = [
            self.algebra.all_of([take, loop.extent.above_one()])
            for take, loop in zip(taken, self.loops, strict=True)
        ]
        some = self.algebra.any_of([*iterating, *otherwise])
        found = {
            loop.number: self.algebra.all_of([take, some])
            for take, loop in zip(taken, self.loops, strict=True)
        }
        return {number: take for number, take in found.items() if take.constant != 0}

    def _lanes(self, most: Scalar, fusible: list[Scalar]) -> dict[int, Scalar]:
        """Loop -> condition that it is among the inner loops that become the vectorised one."""
        going = product = self.algebra.number(1)
        taken: list[Scalar] = []
        beyond: list[Scalar] = []
        for at in reversed(range(len(self.loops))):
            loop = self.loops[at]
            product = product * loop.extent
            fused = self.marks.parallel.get(loop.number, self.algebra.number(0))
            going = self.algebra.all_of(
                [
                    going,
                    self.algebra.number(int(self.single[at])),
                    self.free[at],
                    fusible[at],
                    fused.negated(),
                ]
            )
            fits = product.at_most(most)
            # TVM looks at the product with the loop that was too much: others are kept then.
            beyond.append(self.algebra.all_of([going, fits.negated()]))
            going = self.algebra.all_of([going, fits])
            taken.append(going)
        return self._iterating(taken[::-1], beyond)

    def _fusible(self) -> list[Scalar]:
        """For each loop, whether it and all inside walk through every buffer without gaps."""
        everywhere = [self.algebra.number(1) for _ in self.loops]
        for shape, indices in self._accesses():
            going = self.algebra.number(1)
            expected: Scalar | None = None
            for at in reversed(range(len(self.loops))):
                if going.constant == 0:
                    everywhere[: at + 1] = [going] * (at + 1)
                    break
                loop = self.loops[at]
                stride = _stride(shape, indices, loop)
                if stride is not None:
                    innermost = at == len(self.loops) - 1
                    fits = stride.equal(1 if expected is None else expected)
                    if expected is not None or not innermost:
                        going = self.algebra.all_of([going, fits])
                    expected = stride * loop.extent
                everywhere[at] = self.algebra.all_of([everywhere[at], going])
        return everywhere

    def _accesses(self) -> list[tuple[tuple[Scalar, ...], list[Index]]]:
        every = [(self.block.target, self.block.indices)]
        every += [(load.buffer, load.indices) for load in self.block.reads()]
        return [(b.shape, [self.block.bound(i) for i in indices]) for b, indices in every]


def _stride(shape: tuple[Scalar, ...], indices: list[Index], loop: Loop) -> Scalar | None:
    """Elements from one iteration of a loop to the next; None where it does not move."""
    inner = loop.extent.algebra.number(1)
    for size, index in zip(reversed(shape), reversed(indices), strict=True):
        least: Scalar | None = None
        for coefficient, atom in index.terms:
            if isinstance(atom, Digit) and atom.loop == loop.number and atom.low.constant == 1:
                least = coefficient if least is None else least.minimum(coefficient)
        if least is not None:
            return least * inner
        inner = inner * size
    return None
