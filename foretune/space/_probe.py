"""Learning the location models of a workload's sketches by asking TVM, once, at generation.

Idea. A sketch is replayed under varied tiles, and the loops around the consumers of each block with
a location are looked at: their extents and which are reductions. The learnt nest predicts the legal
locations; TVM is asked whether it keeps them, and a location that it ever declines is dropped, so
that the space gets smaller but stays sound. One replay serves every block whose later blocks are at
the root, and a nest that looks like one known from another context or sketch of the workload is
taken from there. What is not reached within the budget stays at the root.
"""

from __future__ import annotations

import functools
import itertools
import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import IllegalCandidateError
from foretune.space._nest import FrozenBlockError, Learner, around_consumers, keeps
from foretune.space._products import read_by_instruction
from foretune.space.decision import INLINE, ROOT, Decision, PerfectTile, Tile
from foretune.space.draw import draw
from foretune.space.location import Context, LocationModel, Loop, Nest
from foretune.space.sketch import Sketch

if TYPE_CHECKING:
    from foretune._tvm import Schedule

_log = logging.getLogger(__name__)

_REPLAYS = 240
"""Replays spent on one workload for learning (2 to 6 ms each), less one per sketch, since a sketch
costs about that anyway. Counted rather than timed, so that every process learns the same."""
_SHARE = 24
"""Replays one sketch may spend on more than what it shares with others."""
_DISTINCT, _RANDOM, _LEVELS = 3, 9, 5
"""Tilings to probe with, in this order: different factors; any; a design of LEVELS squared ones."""
_FEW = 9
"""Sketches up to which two equal looks identify a nest; beyond, one does."""
_VALIDATED = 12
"""Candidates replayed in the end, divided among the sketches (of more, only some)."""

BitKey = tuple[str, int, int]
"""Name of a tile, how many of that name precede it, and the part: the same in all sketches."""


@dataclass
class _Shared:
    """What the sketches of one workload have in common.

    Attributes:
        sketches: Sketches that were not learnt yet, the present one included.
        left: Replays left.
        looks: Equal looks that identify a nest.
        nests: Nests by what was seen of them, with the bits that their masks refer to.
        cut: Whether the budget ended before everything was examined.
    """

    sketches: int
    left: int
    looks: int
    nests: dict[tuple[Any, ...], tuple[Nest, tuple[BitKey, ...]]]
    cut: bool = False


def learn(sketches: Sequence[Sketch]) -> list[LocationModel]:
    """The location models of all sketches of a workload, validated against TVM."""
    total = len(sketches)
    every = -(-total // _VALIDATED)
    shared = _Shared(total, max(0, _REPLAYS - total), 2 if total <= _FEW else 1, {})
    models = []
    for seed, sketch in enumerate(sketches):
        model = _Prober(sketch, shared).model()
        shared.sketches -= 1
        n = _VALIDATED // min(total, _VALIDATED) if seed % every == 0 else 0
        if not _holds(sketch, model, seed, n):
            # Alone, so that nothing wrong is taken over from other sketches, and on all tilings.
            alone = _Shared(1, min(shared.left, 2 * _SHARE), _DISTINCT + _RANDOM, {})
            model = _Prober(sketch, alone, thorough=True).model()
            shared.left -= min(shared.left, 2 * _SHARE) - alone.left
            if not _holds(sketch, model, seed, max(n, 2)):
                _log.warning(
                    "compute locations of a sketch of workload %s do not follow the model: its "
                    "blocks stay at the root",
                    sketch.workload.name,
                )
                model = LocationModel()
        models.append(model)
    if shared.cut:
        _log.info(
            "workload %s has too many combinations of compute locations to examine: some of its "
            "blocks stay at the root",
            sketches[0].workload.name,
        )
    return models


def _holds(sketch: Sketch, model: LocationModel, seed: int, n: int) -> bool:
    trial = replace(sketch, locations=model)
    for candidate in draw(trial, np.random.default_rng(seed), n):
        try:
            sketch.template.replay(candidate.decisions)
        except IllegalCandidateError:
            return False
    return True


class _Prober:
    """Learns one sketch.

    Args:
        sketch: What to learn.
        shared: The workload's knowledge and budget; both are updated.
        thorough: Take every look rather than stop when the formulas are clear.
    """

    def __init__(self, sketch: Sketch, shared: _Shared, thorough: bool = False) -> None:
        self.sketch = sketch
        self.shared = shared
        self.thorough = thorough
        self.order = sketch.location_order
        self.bits = tuple(
            (index, part)
            for index, variable in enumerate(sketch.variables)
            if isinstance(variable, PerfectTile)
            for part in range(variable.parts)
        )
        names = _unique_names(sketch)
        self.keys: tuple[BitKey, ...] = tuple((*names[v], part) for v, part in self.bits)
        self._names = names
        self._limit = min(_SHARE, shared.left // shared.sketches)
        self._spent = 0
        self._tilings: list[list[Decision]] = []
        self._visited: set[Context] = set()
        self._replayed: dict[tuple[Context, int], tuple[Schedule, list[Any]]] = {}

    def model(self) -> LocationModel:
        """The location model, as far as the budget reached."""
        nests: dict[int, dict[Context, Nest]] = {index: {} for index in self.order}
        model = LocationModel(self.bits, nests)
        contexts: list[Context] = [()]
        for index in self.order:
            following: list[Context] = []
            for context in contexts:
                nest = self._nest_or_root(model, index, context)
                if nest is not None:
                    nests[index][context] = nest
                    following += [(*context, location) for location in _reachable(nest)]
                else:
                    following.append((*context, ROOT))
            # What shares the replays of earlier ones comes first, then what changes least.
            contexts = sorted(following, key=lambda c: sum(at != ROOT for at in c))
        return model

    def _nest_or_root(self, model: LocationModel, index: int, context: Context) -> Nest | None:
        try:
            return self._nest(model, index, context)
        except FrozenBlockError as reason:
            _log.info(
                "block %s of workload %s stays at the root when earlier blocks are at %s: %s",
                self.sketch.variables[index].name,
                self.sketch.workload.name,
                list(context),
                reason,
            )
            return Nest(inline=False)

    def _nest(self, model: LocationModel, index: int, context: Context) -> Nest | None:
        locations = self._padded(context)
        if locations not in self._visited and not self._affordable(locations):
            self.shared.cut = True
            return None
        learner = Learner(self.sketch.variables, self.bits)
        fingerprint: tuple[Any, ...] = (self.sketch.variables[index].name,)
        looks = 0
        for at, tiling, units in self._legal(model, context):
            replayed = self._replay(context, at, tiling)
            if replayed is None:
                self.shared.cut = True
                break
            looks += 1
            first = looks <= self.shared.looks
            schedule, block = replayed[0], replayed[1][self.order.index(index)]
            seen = around_consumers(schedule, block, kinds=first or not learner.knows_kinds)
            learner.take(seen, tiling, units)
            if looks == 1:
                learner.inline = keeps(schedule, block, INLINE) and not read_by_instruction(
                    schedule, block
                )
                fingerprint += (learner.inline,)
            if first:
                fingerprint += (at, seen)
            if looks == self.shared.looks:
                known = self._known(fingerprint)
                if known is not None:
                    return known
                learner.declined = {
                    location
                    for location in seen.domain()
                    if location >= 0 and not keeps(schedule, block, location)
                }
            if learner.settled and not self.thorough:
                break
        if not looks:
            return None
        nest = learner.nest()
        if learner.settled:
            self.shared.nests.setdefault(fingerprint, (nest, self.keys))
        return nest

    def _known(self, fingerprint: tuple[Any, ...]) -> Nest | None:
        # The same loops under the same tilings: the same nest, in terms of this sketch's bits.
        shared = self.shared.nests.get(fingerprint)
        if shared is None:
            return None
        nest, keys = shared
        loops: list[Loop] = []
        for loop in nest.loops:
            mask = loop.unit
            if mask > 0 and keys != self.keys:
                wanted = [key for bit, key in enumerate(keys) if mask >> bit & 1]
                if not all(key in self.keys for key in wanted):
                    return None
                mask = sum(1 << self.keys.index(key) for key in wanted)
            loops.append(replace(loop, unit=mask))
        return Nest(nest.inline, tuple(loops))

    def _legal(
        self, model: LocationModel, context: Context
    ) -> Iterator[tuple[int, list[Decision], int]]:
        # Tilings under which the earlier locations are legal, with their unit bits.
        for at in range(_DISTINCT + _RANDOM + _LEVELS**2):
            if at == len(self._tilings):
                self._tilings.append(self._tiling(at))
            tiling = self._tilings[at]
            units = model.units(tiling)
            if all(
                location in model.domain(self.order[i], context[:i], units)
                for i, location in enumerate(context)
            ):
                yield at, tiling, units

    def _tiling(self, at: int) -> list[Decision]:
        # By name, so that the same tile is the same in every sketch of the workload.
        column = 0
        decisions: list[Decision] = []
        for variable, name in zip(self.sketch.variables, self._names, strict=True):
            if not isinstance(variable, PerfectTile):
                decisions.append(0)
                continue
            if at < _DISTINCT + _RANDOM or variable.inner_multiple != 1:
                decisions.append(_tile(variable, *name, at))
            else:
                large = _design(at - _DISTINCT - _RANDOM, column, variable.parts)
                decisions.append(
                    tuple(variable.extent if i == large else 1 for i in range(variable.parts))
                )
            column += 1
        return decisions

    def _padded(self, context: Context) -> Context:
        return context + (ROOT,) * (len(self.order) - len(context))

    def _affordable(self, locations: Context) -> bool:
        # One replay is kept for each sketch to come.
        if self.shared.left <= self.shared.sketches - (self._spent == 0):
            return False
        return self._spent < self._limit or all(location == ROOT for location in locations)

    def _replay(
        self, context: Context, at: int, tiling: list[Decision]
    ) -> tuple[Schedule, list[Any]] | None:
        # The sketch up to its last location, later blocks at the root; None: beyond the budget.
        locations = self._padded(context)
        replayed = self._replayed.get((locations, at))
        if replayed is not None:
            return replayed
        if not self._affordable(locations):
            return None
        self.shared.left -= 1
        self._spent += 1
        decisions = list(tiling)
        for index, location in zip(self.order, locations, strict=True):
            decisions[index] = location
        template = self.sketch.template
        schedule = template.base.schedule()
        trace = template.trace(decisions, stop=template.positions[self.order[-1]] + 1)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise FrozenBlockError(f"TVM refuses it ({type(error).__name__})") from error
        blocks = [
            inst.inputs[0]
            for inst in schedule.trace.insts
            if inst.kind.name == "SampleComputeLocation"
        ]
        self._visited.add(locations)
        self._replayed[locations, at] = schedule, blocks
        return schedule, blocks


def _reachable(nest: Nest) -> list[int]:
    loops = [i for i, loop in enumerate(nest.loops) if loop.allowed]
    return [ROOT, *([INLINE] if nest.inline else []), *loops]


def _unique_names(sketch: Sketch) -> list[tuple[str, int]]:
    counts: dict[str, Iterator[int]] = {}
    return [(v.name, next(counts.setdefault(v.name, itertools.count()))) for v in sketch.variables]


@functools.lru_cache(maxsize=1024)
def _tile(variable: PerfectTile, name: str, occurrence: int, at: int) -> Tile:
    rng = np.random.default_rng([zlib.crc32(f"{name} {occurrence}".encode()), at])
    tiles = variable.sample(rng, 16 if at < _DISTINCT else 1)
    # Different factors tell loops apart; many above 1 show which loops are reductions.
    return min(tiles, key=lambda tile: (-len(set(tile)), tile.count(1)))


def _design(row: int, column: int, parts: int) -> int:
    """Which factor of a tile is above 1 in a row of the design.

    An orthogonal array over the integers modulo 5: any two tiles meet in every combination, so
    that each irrelevant factor is ruled out for each loop.
    """
    x, y = divmod(row, _LEVELS)
    return (x + column % _LEVELS * y + column // _LEVELS * (x * y + 1)) % _LEVELS % parts
