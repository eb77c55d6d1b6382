"""Recipes: what was decided for one program, to be followed for another one.

Idea. Two sketches have one *frame* where the same transformations are made with the same kinds of
decisions, whatever the lengths of the loops. A schedule that is fast for one program is then moved
to the other: tiles keep their inner factors as far as the other length allows, and what is left
goes into the outermost one; choices keep their values; blocks keep their places.

Symbols: a tile of a loop of ``E`` iterations has factors ``f_0 ... f_p``, the outermost first.

Sources: transfer-tuning (Gibson and Cano, 2022) reuses schedules between kernels of one class as
they are, where they fit; here factors are moved to the lengths at hand, so that they always do.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.errors import BadInputError
from foretune.space.decision import (
    Choice,
    ComputeLocation,
    Decision,
    PerfectTile,
    Tile,
    Variable,
)
from foretune.space.sketch import Candidate, Sketch
from foretune.space.trace import Trace

_PASSIVE = frozenset(
    ("Annotate", "ComputeInline", "GetConsumers", "GetLoops", "GetProducers", "GetSBlock",
     "ReverseComputeInline", "Unannotate")
)  # fmt: skip
"""Instructions of which a program may have more or fewer with the same schedule: those that only
look something up, and inlining, which is how epilogues differ."""
_OUTERMOST = 0.1
"""Weight of the outermost factor, into which goes what is left."""
_OTHER_NAMES = 2.0
"""Distance of two programs whose loops have other names, in doublings of a length."""


@functools.lru_cache(maxsize=4096)
def frame_of(sketch: Sketch) -> str:
    """16 hex digits: which transformations are made with which kinds of decisions.

    Of the loops that a transformation names, those count that a tile made: which part of which
    tile.
    """
    doing: list[list[Any]] = []
    parts: dict[str, tuple[int, int]] = {}
    tiles = 0
    for name, inputs, _, outputs in Trace.from_text(sketch.trace).instructions:
        if name == "Split":
            parts.update((loop, (tiles, part)) for part, loop in enumerate(outputs))
            tiles += 1
        if name not in _PASSIVE:
            named = [parts[i] for i in inputs if isinstance(i, str) and i in parts]
            doing.append([name, named])
    kinds = [(type(v).__name__, getattr(v, "parts", 0)) for v in sketch.variables]
    text = json.dumps([sketch.hardware.kind, doing, kinds])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Recipe:
    """The decisions of a candidate, without its program.

    Attributes:
        frame: Of its sketch.
        variables: Of its sketch.
        decisions: One per variable.
    """

    frame: str
    variables: tuple[Variable, ...]
    decisions: tuple[Decision, ...]

    @classmethod
    def of(cls, candidate: Candidate) -> Recipe:
        """The recipe of a candidate."""
        return cls(frame_of(candidate.sketch), candidate.sketch.variables, candidate.decisions)

    def follow(self, sketch: Sketch) -> Candidate:
        """The candidate of a sketch of the same frame that is most like it.

        Before → after: tile ``(4, 1, 14, 16)`` of 896 iterations → ``(6, 1, 14, 16)`` of 1,344.

        Raises:
            BadInputError: The sketch has another frame.
        """
        if frame_of(sketch) != self.frame:
            raise BadInputError(
                f"a recipe is for sketches of its frame {self.frame}, but that of "
                f"{sketch.workload.name!r} is {frame_of(sketch)}: choose another sketch"
            )
        pairs = zip(sketch.variables, self.variables, self.decisions, strict=True)
        decisions = [_moved(variable, source, decision) for variable, source, decision in pairs]
        return Candidate(sketch, sketch.located(decisions, functools.partial(_nearest, decisions)))

    def distance(self, sketch: Sketch) -> float:
        """How unlike the programs are: root mean square of the doublings between lengths of loops.

        Loops of other names count as four times as long or short.
        """
        squares = [
            math.log2(a.extent / b.extent) ** 2 + (_OTHER_NAMES**2 if a.name != b.name else 0.0)
            for a, b in zip(self.variables, sketch.variables, strict=True)
            if isinstance(a, PerfectTile) and isinstance(b, PerfectTile)
        ]
        return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def _nearest(decisions: Sequence[Any], index: int, domain: tuple[int, ...]) -> int:
    return min(domain, key=lambda other: (abs(other - decisions[index]), other))


def _moved(variable: Variable, source: Variable, decision: Decision) -> Decision:
    """A decision about ``source`` as one about ``variable``; a location as it is."""
    if isinstance(variable, PerfectTile):
        assert isinstance(decision, tuple)
        return nearest_tile(variable, decision)
    if isinstance(variable, ComputeLocation):
        return decision
    assert isinstance(source, Choice) and isinstance(decision, int)
    if len(variable.values) == len(source.values):
        # Limits grow with the machine: the third of five is the third of five.
        return decision
    value = source.values[decision]
    return min(range(len(variable.values)), key=lambda at: (abs(variable.values[at] - value), at))


def nearest_tile(variable: PerfectTile, factors: Sequence[int]) -> Tile:
    """The legal tile whose inner factors are most like some of another loop.

    Distances are in doublings; inner factors count more, the outermost one hardly.
    """
    table = variable.table()
    inner = math.prod(factors[1:])
    wanted = np.log2([max(1.0, variable.extent / inner), *factors[1:]])
    weights = np.exp2(np.arange(variable.parts) - variable.parts + 1.0)
    weights[0] *= _OUTERMOST
    if table is None:
        return _descended(variable, wanted, weights)
    far = np.abs(_logarithms(variable) - wanted) @ weights
    return table[int(np.argmin(far))]


@functools.lru_cache(maxsize=512)
def _logarithms(variable: PerfectTile) -> FloatArray:
    return np.log2(np.array(variable.table(), dtype=np.float64))


def _descended(variable: PerfectTile, wanted: FloatArray, weights: FloatArray) -> Tile:
    """The same where there are too many tiles for a table: downhill, one prime at a time."""

    def far(tile: Tile) -> float:
        return float(np.abs(np.log2(tile) - wanted) @ weights)

    tile = min(variable.sample(np.random.default_rng(0), 64), key=far)
    while True:
        better = min(variable.neighbours(tile), key=far, default=tile)
        if far(better) >= far(tile):
            return tile
        tile = better
