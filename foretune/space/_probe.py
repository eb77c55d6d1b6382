"""Learning the location model of a sketch by asking TVM, once, when the sketch is made.

Idea. The trace is replayed up to a ``SampleComputeLocation`` under varied tiles, and the loops
around the consumers are looked at: which of them have one iteration, and which are reductions. That
a loop has one iteration is a conjunction over tile factors being 1 (extents are products of
factors, or grow with each of them), so every observed one-iteration loop rules out the factors that
were larger. The learnt nest predicts the legal locations; TVM is asked whether it keeps them, and
a location that it ever declines is dropped, so that the space gets smaller but stays sound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import IllegalCandidateError
from foretune.space.decision import INLINE, ROOT, Decision, PerfectTile
from foretune.space.location import Context, LocationModel, Loop, Nest
from foretune.space.sketch import Candidate, Sketch

if TYPE_CHECKING:
    from foretune._tvm import Schedule

_log = logging.getLogger(__name__)

_CONTEXTS = 128
"""Combinations of earlier locations that are examined; elsewhere only the root stays legal."""
_REPLAYS = 240
"""Replays spent on one sketch, 2 to 5 ms each."""
_LEVELS = 5
"""A prime not below the number of factors of a tile: the levels of the probing design."""
_RANDOM = 12
"""Random tilings probed after the design."""
_CHECKED = 2
"""Tilings under which TVM is asked about every predicted location."""
_FINGERPRINT = 2
"""Equal looks after which two contexts are taken to have the same nest."""
_VALIDATED = 24
"""Whole candidates replayed in the end."""
_ATTEMPTS = 3
"""Times a sketch is learnt, each with what the last validation brought to light."""


@dataclass(frozen=True)
class _Seen:
    """What one replay showed.

    Attributes:
        names: Loops around the consumers, outermost first.
        unit: Whether each has one iteration.
        parallel: Whether each is free of reductions.
    """

    names: tuple[str, ...]
    unit: tuple[bool, ...]
    parallel: tuple[bool, ...]


class _Frozen(Exception):
    """A nest does not follow the model: its block stays at the root."""


def learn(sketch: Sketch) -> LocationModel:
    """The location model of a sketch, validated against TVM."""
    tilings = _tilings(sketch, np.random.default_rng(0))
    for attempt in range(_ATTEMPTS):
        model = _learn(_Prober(sketch, tilings))
        failed = _first_failure(sketch, model, seed=attempt)
        if failed is None:
            return model
        tilings.insert(0, list(failed.decisions))
    _log.warning(
        "compute locations of workload %s do not follow the model: its blocks stay at the root",
        sketch.workload.name,
    )
    return LocationModel()


def _learn(prober: _Prober) -> LocationModel:
    order = prober.sketch.location_order
    nests: dict[int, dict[Context, Nest]] = {index: {} for index in order}
    model = LocationModel(prober.bits, nests)
    examined = 0
    contexts: list[Context] = [()]
    for index in order:
        following: list[Context] = []
        for context in contexts:
            if examined >= _CONTEXTS or prober.replays >= _REPLAYS:
                following.append((*context, ROOT))
                continue
            examined += 1
            nest = nests[index][context] = prober.nest(model, index, context)
            following += [(*context, location) for location in _reachable(nest)]
        contexts = following
    return model


def _reachable(nest: Nest) -> list[int]:
    loops = [i for i, loop in enumerate(nest.loops) if loop.allowed]
    return [ROOT, *([INLINE] if nest.inline else []), *loops]


def _first_failure(sketch: Sketch, model: LocationModel, seed: int) -> Candidate | None:
    from foretune.space.space import draw

    trial = replace(sketch, locations=model)
    for candidate in draw(trial, np.random.default_rng(seed), _VALIDATED):
        try:
            sketch.template.replay(candidate.decisions)
        except IllegalCandidateError:
            return candidate
    return None


class _Prober:
    """Replays one sketch under a fixed list of tilings."""

    def __init__(self, sketch: Sketch, tilings: list[list[Decision]]) -> None:
        self.sketch = sketch
        self.replays = 0
        self.bits = tuple(
            (index, part)
            for index, variable in enumerate(sketch.variables)
            if isinstance(variable, PerfectTile)
            for part in range(variable.parts)
        )
        self._tilings = tilings
        self._known: dict[tuple[Any, ...], Nest] = {}

    def nest(self, model: LocationModel, index: int, context: Context) -> Nest:
        """Learns the nest of one location variable in one context."""
        try:
            return self._nest(model, index, context)
        except _Frozen as reason:
            _log.warning(
                "block %s of workload %s stays at the root when earlier blocks are at %s: %s",
                self.sketch.variables[index].name,
                self.sketch.workload.name,
                list(context),
                reason,
            )
            return Nest(inline=False)

    def _nest(self, model: LocationModel, index: int, context: Context) -> Nest:
        learner: _Learner | None = None
        fingerprint: tuple[Any, ...] = (index,)
        for looks, (tiling, units) in enumerate(self._legal(model, context), start=1):
            seen, declined, inline = self._look(index, context, tiling, looks <= _CHECKED)
            if learner is None:
                learner = _Learner(seen)
            learner.take(seen, units, declined, inline)
            if looks <= _FINGERPRINT:
                fingerprint += (units, seen, tuple(sorted(learner.declined)), learner.inline)
            if looks == _FINGERPRINT and fingerprint in self._known:
                # The same loops under the same tilings: the same nest as in another context.
                return self._known[fingerprint]
            if self.replays >= _REPLAYS and context:
                break
        if learner is None:
            return Nest(inline=False)
        nest = learner.nest()
        self._known[fingerprint] = nest
        return nest

    def _legal(
        self, model: LocationModel, context: Context
    ) -> Iterator[tuple[list[Decision], int]]:
        # Tilings under which the earlier locations are legal, with their unit bits; one for each
        # pattern of unit bits, since only that pattern matters.
        order = self.sketch.location_order
        tried: set[int] = set()
        for tiling in self._tilings:
            units = model.units(tiling)
            if units not in tried and all(
                location in model.domain(order[i], context[:i], units)
                for i, location in enumerate(context)
            ):
                tried.add(units)
                yield tiling, units

    def _look(
        self,
        index: int,
        context: Context,
        tiling: list[Decision],
        check: bool,
    ) -> tuple[_Seen, set[int], bool]:
        decisions = list(tiling)
        for earlier, location in zip(self.sketch.location_order, context, strict=False):
            decisions[earlier] = location
        schedule, block = self._replay(index, decisions)
        seen = _around_consumers(schedule, block)
        inline = True
        declined: set[int] = set()
        if check:
            inline = _keeps(schedule, block, INLINE)
            declined = {
                location
                for location in _nest_of(seen).domain(0)
                if location >= 0 and not _keeps(schedule, block, location)
            }
        return seen, declined, inline

    def _replay(self, index: int, decisions: Sequence[Decision]) -> tuple[Schedule, Any]:
        from foretune import _tvm

        self.replays += 1
        template = self.sketch.template
        at = template.positions[index]
        schedule = template.base.schedule()
        decided = list(decisions)
        decided[index] = ROOT
        try:
            template.trace(decided, stop=at + 1).apply_to_schedule(schedule, remove_postproc=True)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise _Frozen(f"TVM refuses the trace there ({type(error).__name__})") from error
        assert isinstance(schedule, _tvm.Schedule)
        return schedule, schedule.trace.insts[-1].inputs[0]


class _Learner:
    """Accumulates what replays of one nest showed.

    Args:
        first: What the first replay showed; later ones must have the same loops.
    """

    def __init__(self, first: _Seen) -> None:
        self.names = first.names
        self.inline = True
        self.declined: set[int] = set()
        n = len(first.names)
        # For each loop the factors that may matter; None until it was seen with one iteration.
        self._unit: list[int | None] = [None] * n
        self._non_units: list[set[int]] = [set() for _ in range(n)]
        self._parallel: list[bool | None] = [None] * n
        self._when_unit: list[bool] = list(first.parallel)

    def take(self, seen: _Seen, units: int, declined: set[int], inline: bool) -> None:
        """Takes in one replay.

        Raises:
            _Frozen: It contradicts the model.
        """
        if len(seen.names) != len(self.names):
            raise _Frozen("the number of loops varies with the tiles")
        self.inline = self.inline and inline
        self.declined |= declined
        for i, (unit, parallel) in enumerate(zip(seen.unit, seen.parallel, strict=True)):
            if unit:
                known = self._unit[i]
                self._unit[i] = units if known is None else known & units
                self._when_unit[i] = self._when_unit[i] and parallel
                continue
            self._non_units[i].add(units)
            if self._parallel[i] is None:
                self._parallel[i] = parallel
            elif self._parallel[i] != parallel:
                raise _Frozen(f"loop {self.names[i]} is a reduction only with some tiles")
        for i, unit_bits in enumerate(self._unit):
            if unit_bits is not None and any(
                unit_bits & other == unit_bits for other in self._non_units[i]
            ):
                raise _Frozen(f"the extent of loop {self.names[i]} is no function of the tiles")

    def nest(self) -> Nest:
        """The nest as far as it is known."""
        loops = []
        for i, name in enumerate(self.names):
            bits = self._unit[i]
            parallel = self._parallel[i]
            loops.append(
                Loop(
                    name,
                    -1 if bits is None else bits,
                    self._when_unit[i] if parallel is None else parallel,
                    i not in self.declined,
                )
            )
        return Nest(self.inline, tuple(loops))


def _nest_of(seen: _Seen) -> Nest:
    # A nest that holds for this one replay: a loop with one iteration always has one.
    return Nest(
        inline=False,
        loops=tuple(
            Loop(name, 0 if unit else -1, parallel, True)
            for name, unit, parallel in zip(seen.names, seen.unit, seen.parallel, strict=True)
        ),
    )


def _tilings(sketch: Sketch, rng: np.random.Generator) -> list[list[Decision]]:
    """Tilings to probe with: a design of tiles with a single factor above 1, then random ones.

    In the design (an orthogonal array over the integers modulo 5) any two tiles meet in every
    combination of which factor is above 1, so that each irrelevant factor is ruled out for each
    loop. The design may exceed the innermost limit, which TVM only minds when it samples itself.
    """
    tiles = [v for v in sketch.variables if isinstance(v, PerfectTile)]
    rows: list[list[int] | None] = [
        [
            (x + column % _LEVELS * y + column // _LEVELS * (x * y + 1)) % _LEVELS % tile.parts
            for column, tile in enumerate(tiles)
        ]
        for x in range(_LEVELS)
        for y in range(_LEVELS)
    ]
    rows += [None] * _RANDOM
    return [_tiling(sketch, row, rng) for row in rows]


def _tiling(sketch: Sketch, row: Sequence[int] | None, rng: np.random.Generator) -> list[Decision]:
    parts = iter(row or ())
    decisions: list[Decision] = []
    for variable in sketch.variables:
        if not isinstance(variable, PerfectTile):
            decisions.append(0)
            continue
        tile = variable.sample(rng, 1)[0]
        if row is not None:
            large = next(parts)
            if variable.inner_multiple == 1:
                tile = tuple(variable.extent if i == large else 1 for i in range(variable.parts))
        decisions.append(tile)
    return decisions


def _keeps(schedule: Schedule, block: Any, location: int) -> bool:
    schedule.sample_compute_location(block, decision=location)
    trace = schedule.trace
    return int(trace.get_decision(trace.insts[-1])) == location


def _around_consumers(schedule: Schedule, block: Any) -> _Seen:
    consumers = schedule.get_consumers(block)
    if not len(consumers):
        return _Seen((), (), ())
    nests = [[schedule.get(loop) for loop in schedule.get_loops(c)] for c in consumers]
    loops = nests[0]
    for other in nests[1:]:
        shared = 0
        for a, b in zip(loops, other, strict=False):
            if not a.same_as(b):
                break
            shared += 1
        loops = loops[:shared]
    if not loops:
        return _Seen((), (), ())
    kinds = _uses(loops[0])
    return _Seen(
        tuple(str(loop.loop_var.name) for loop in loops),
        tuple(_is_one(loop.extent) for loop in loops),
        tuple(kinds.get(hash(loop.loop_var), set()) <= {0} for loop in loops),
    )


def _is_one(extent: Any) -> bool:
    value = getattr(extent, "value", None)
    return value is not None and int(value) == 1


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
