"""Looking at the loops around the consumers of a block, and what their extents depend on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretune.space.decision import Decision, PerfectTile, Variable
from foretune.space.location import Loop, Nest

if TYPE_CHECKING:
    from foretune._tvm import Schedule

_EQUAL = 4
"""Looks from which a product of factors that is always the extent is taken for its formula."""
_AFFINE = 6
"""The same for a linear function of such a product, which has two more freedoms."""
_DISTINCT = 3
"""Different values of the product that a linear function must fit."""


class FrozenBlockError(Exception):
    """A nest does not follow the model: its block stays at the root."""


@dataclass(frozen=True)
class Seen:
    """What one replay showed of the loops around the consumers, outermost first.

    Attributes:
        names: The loops.
        extents: Their iterations; 0 where not constant.
        parallel: Whether each is free of reductions; None if nobody looked.
    """

    names: tuple[str, ...] = ()
    extents: tuple[int, ...] = ()
    parallel: tuple[bool, ...] | None = ()

    def domain(self) -> tuple[int, ...]:
        """The locations that the rules give for this one replay."""
        kinds = self.parallel or ()
        loops = [
            Loop(name, 0 if extent == 1 else -1, parallel, True)
            for name, extent, parallel in zip(self.names, self.extents, kinds, strict=True)
        ]
        return Nest(inline=False, loops=tuple(loops)).domain(0)


@dataclass(frozen=True)
class _Slice:
    """Neighbouring factors of one tile; the tilings they had are kept by the learner."""

    variable: int
    first: int
    last: int
    mask: int


@dataclass
class _LoopFacts:
    """What is known of one loop.

    Attributes:
        extents: One per look.
        bits: Unit bits that were set whenever it had one iteration; None if it never had.
        others: Unit bits of the looks in which it had more.
        parallel: Whether it is no reduction, from a look in which it had more iterations.
        guess: The same from a look in which it had one.
    """

    name: str
    guess: bool = True
    extents: list[int] = field(default_factory=list)
    bits: int | None = None
    others: set[int] = field(default_factory=set)
    parallel: bool | None = None


class Learner:
    """Accumulates what replays of one nest showed.

    Idea. A loop is a factor of a tile, a product of neighbouring factors of one (when a block
    moved under another's loops), or a linear function of such a product (a sliding window). A few
    looks leave a single formula that fits. Where none does, whether the loop has one iteration is
    still a conjunction over factors being 1, and every look in which it has one rules out the
    factors that were larger.

    Args:
        variables: The sketch's; its tiles are what extents depend on.
        bits: (variable, part) of each unit bit.
    """

    def __init__(self, variables: Sequence[Variable], bits: Sequence[tuple[int, int]]) -> None:
        self.inline = True
        self.declined: set[int] = set()
        self.loops: list[_LoopFacts] | None = None
        at = {place: 1 << bit for bit, place in enumerate(bits)}
        self._slices = [
            _Slice(v, first, last, sum(at[v, part] for part in range(first, last)))
            for v, variable in enumerate(variables)
            if isinstance(variable, PerfectTile)
            for first, last in itertools.combinations(range(variable.parts + 1), 2)
            if last - first < variable.parts
        ]
        self._products: list[list[int]] = [[] for _ in self._slices]

    def take(self, seen: Seen, tiling: Sequence[Decision], units: int) -> None:
        """Takes in one replay.

        Raises:
            FrozenBlockError: It contradicts the model.
        """
        if self.loops is None:
            self.loops = [_LoopFacts(name) for name in seen.names]
        if len(seen.names) != len(self.loops):
            raise FrozenBlockError("the number of loops varies with the tiles")
        for products, s in zip(self._products, self._slices, strict=True):
            products.append(math.prod(tiling[s.variable][s.first : s.last]))  # type: ignore[index]
        for i, (loop, extent) in enumerate(zip(self.loops, seen.extents, strict=True)):
            loop.extents.append(extent)
            parallel = None if seen.parallel is None else seen.parallel[i]
            if extent == 1:
                loop.bits = units if loop.bits is None else loop.bits & units
                loop.guess = loop.guess and parallel is not False
            else:
                loop.others.add(units)
                if parallel is not None and loop.parallel not in (None, parallel):
                    raise FrozenBlockError(f"loop {loop.name} is a reduction with some tiles only")
                loop.parallel = loop.parallel if parallel is None else parallel
            bits = loop.bits
            if bits is not None and any(bits & other == bits for other in loop.others):
                raise FrozenBlockError(f"the extent of loop {loop.name} is no function of tiles")

    @property
    def knows_kinds(self) -> bool:
        """Whether it is known of each loop that ever iterates whether it is a reduction."""
        return self.loops is not None and all(
            loop.parallel is not None or not loop.others for loop in self.loops
        )

    @property
    def settled(self) -> bool:
        """Whether further looks would tell nothing new."""
        return self.loops is not None and all(
            self._formula(loop) is not None for loop in self.loops
        )

    def nest(self) -> Nest:
        """The nest as far as it is known."""
        loops = []
        for i, loop in enumerate(self.loops or ()):
            mask = self._formula(loop)
            if mask is None:
                mask = -1 if loop.bits is None else loop.bits
            parallel = loop.guess if loop.parallel is None else loop.parallel
            loops.append(Loop(loop.name, mask, parallel, i not in self.declined))
        return Nest(self.inline, tuple(loops))

    def _formula(self, loop: _LoopFacts) -> int | None:
        # The mask of unit bits that all formulas that fit agree on, or None.
        extents = loop.extents
        if len(extents) < _EQUAL or min(extents) < 1:
            return None
        fitting = set(self._equal(extents))
        if min(extents) == max(extents):
            fitting.add(0 if extents[0] == 1 else -1)
        if not fitting and len(extents) >= _AFFINE:
            fitting = set(self._affine(extents))
        return fitting.pop() if len(fitting) == 1 else None

    def _equal(self, extents: list[int]) -> Iterator[int]:
        for products, s in zip(self._products, self._slices, strict=True):
            if products == extents:
                yield s.mask

    def _affine(self, extents: list[int]) -> Iterator[int]:
        for products, s in zip(self._products, self._slices, strict=True):
            points = dict(zip(products, extents, strict=True))
            if len(points) < _DISTINCT:
                continue
            (p, x), (q, y) = itertools.islice(points.items(), 2)
            step, rest = divmod(y - x, q - p)
            if step < 1 or rest:
                continue
            at_one = x - step * (p - 1)
            if at_one >= 1 and all(
                e == step * (n - 1) + at_one for n, e in zip(products, extents, strict=True)
            ):
                yield s.mask if at_one == 1 else -1


def keeps(schedule: Schedule, block: Any, location: int) -> bool:
    """Whether TVM accepts a location of a block as it is."""
    schedule.sample_compute_location(block, decision=location)
    trace = schedule.trace
    return int(trace.get_decision(trace.insts[-1])) == location


def around_consumers(schedule: Schedule, block: Any, kinds: bool) -> Seen:
    """The loops that all consumers of a block share; with ``kinds``, also which are parallel."""
    consumers = schedule.get_consumers(block)
    if not len(consumers):
        return Seen()
    nests = [_loops(schedule.get_sref(c)) for c in consumers]
    loops = nests[0]
    for other in nests[1:]:
        shared = 0
        for a, b in zip(loops, other, strict=False):
            if not a.same_as(b):
                break
            shared += 1
        loops = loops[:shared]
    if not loops:
        return Seen()
    uses = _uses(loops[0]) if kinds else {}
    return Seen(
        tuple(str(loop.loop_var.name) for loop in loops),
        tuple(int(getattr(loop.extent, "value", 0)) for loop in loops),
        tuple(uses.get(hash(loop.loop_var), set()) <= {0} for loop in loops) if kinds else None,
    )


def _loops(block: Any) -> list[Any]:
    # Up the tree of statements: much cheaper than asking the schedule for each loop.
    loops: list[Any] = []
    above = block.parent
    while above is not None and hasattr(statement := above.stmt, "loop_var"):
        loops.append(statement)
        above = above.parent
    return loops[::-1]


def _uses(loop: Any) -> dict[int, set[int]]:
    """Loop variable (by identity) -> kinds of block iterators it is bound to (0: data-parallel)."""
    from foretune._tvm import tvm

    kinds: dict[int, set[int]] = {}
    waiting = [loop]
    while waiting:
        statement = waiting.pop()
        if hasattr(statement, "iter_values"):
            for axis, value in zip(statement.block.iter_vars, statement.iter_values, strict=True):
                for variable in tvm.tirx.analysis.undefined_vars(value):
                    kinds.setdefault(hash(variable), set()).add(int(axis.iter_type))
        elif hasattr(statement, "seq"):
            waiting.extend(statement.seq)
        elif hasattr(statement, "then_case"):
            waiting.extend(s for s in (statement.then_case, statement.else_case) if s is not None)
        elif hasattr(statement, "body"):
            waiting.append(statement.body)
    return kinds
