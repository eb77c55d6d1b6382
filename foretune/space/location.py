"""Where a block may be computed, as a function of the other decisions, without TVM.

Idea. TVM allows a block at the root, inlined (for some blocks), and under some of the loops around
its consumers. Which loops depends on the tiles (loops of one iteration are skipped) and on earlier
locations (a consumer that moved has other loops around it). A model learnt when the sketch is made
answers the question in pure Python afterwards.

Symbols. A *unit bit* belongs to one factor of one tile; it is set when the factor is 1. A *context*
is the tuple of the locations decided earlier in the same candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foretune.space.decision import (
    INLINE,
    ROOT,
    ComputeLocation,
    Decision,
    Variable,
    location_name,
)

Context = tuple[int, ...]

_MEMO = 1 << 16
"""Domains a sketch remembers."""


@dataclass(frozen=True)
class Loop:
    """One loop around the consumers of a block.

    Attributes:
        name: TVM's name of the loop.
        unit: Unit bits that must all be set for the loop to have one iteration; -1: never.
        parallel: Whether iterations are independent (as opposed to a reduction).
        allowed: Whether TVM accepts the block under it when the rules below do.
    """

    name: str
    unit: int
    parallel: bool
    allowed: bool


@dataclass(frozen=True)
class Nest:
    """The loops around the consumers of a block in one context, outermost first.

    Attributes:
        inline: Whether the block can be inlined.
        loops: The loops down to the deepest one that holds all consumers.
    """

    inline: bool
    loops: tuple[Loop, ...] = ()

    @property
    def bound(self) -> int:
        """Number of locations that are legal for at least some tiles (an upper bound)."""
        return sum(p.allowed for p in self.loops) + 1 + self.inline

    def domain(self, units: int) -> tuple[int, ...]:
        """Legal locations in ascending order, given the unit bits of the tiles.

        The rules are TVM's (SampleComputeLocation): loops of one iteration are skipped; the list
        ends at a parallel loop inside a reduction loop, and at a reduction loop inside the last
        parallel loop.
        """
        domain = [INLINE, ROOT] if self.inline else [ROOT]
        last_parallel = max((i for i, loop in enumerate(self.loops) if loop.parallel), default=-1)
        in_reduction = False
        for index, loop in enumerate(self.loops):
            if loop.unit >= 0 and loop.unit & units == loop.unit:
                continue
            if loop.parallel and in_reduction:
                break
            in_reduction = in_reduction or not loop.parallel
            if not loop.parallel and index > last_parallel:
                break
            if loop.allowed:
                domain.append(index)
        return tuple(domain)


_ROOT_ONLY = Nest(inline=False)


@dataclass(frozen=True)
class LocationModel:
    """The location domains of one sketch.

    Attributes:
        bits: (variable index, part) of each unit bit, in order of the bits.
        nests: For each location variable (by index), context -> nest. A context that is absent was
            not examined: there only the root is legal.
    """

    bits: tuple[tuple[int, int], ...] = ()
    nests: Mapping[int, Mapping[Context, Nest]] = field(default_factory=dict)
    _memo: dict[tuple[int, Context, int], tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def units(self, decisions: Sequence[Decision]) -> int:
        """Unit bits of a candidate's tiles."""
        mask = 0
        for bit, (variable, part) in enumerate(self.bits):
            if decisions[variable][part] == 1:  # type: ignore[index]
                mask |= 1 << bit
        return mask

    def unit_column(self, columns: Sequence[Sequence[Any]], n: int) -> list[int]:
        """``units`` of ``n`` candidates given by columns of decisions, one per variable."""
        masks = [0] * n
        for bit, (variable, part) in enumerate(self.bits):
            mask = 1 << bit
            masks = [
                m | mask if tile[part] == 1 else m
                for m, tile in zip(masks, columns[variable], strict=True)
            ]
        return masks

    def domain(self, variable: int, context: Context, units: int) -> tuple[int, ...]:
        """Legal locations of a location variable, ascending; never empty."""
        key = (variable, context, units)
        domain = self._memo.get(key)
        if domain is None:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            nest = self.nests.get(variable, {}).get(context, _ROOT_ONLY)
            domain = self._memo[key] = nest.domain(units)
        return domain

    def name(self, variable: int, context: Context, location: int) -> str:
        """``"inline"``, ``"root"`` or the loop of a location; ``"loopN"`` where it is not known."""
        nest = self.nests.get(variable, {}).get(context)
        if nest is not None and 0 <= location < len(nest.loops):
            return nest.loops[location].name
        return location_name(location)

    def bound(self, variable: int) -> int:
        """Largest number of legal locations of a variable."""
        return max((n.bound for n in self.nests.get(variable, {}).values()), default=1)

    def __getstate__(self) -> dict[str, Any]:
        return {"bits": self.bits, "nests": self.nests, "_memo": {}}

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {
            "bits": [list(b) for b in self.bits],
            "nests": {
                str(variable): [
                    [
                        list(context),
                        nest.inline,
                        [[p.name, p.unit, p.parallel, p.allowed] for p in nest.loops],
                    ]
                    for context, nest in nests.items()
                ]
                for variable, nests in self.nests.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LocationModel:
        """Reads what ``to_json`` wrote."""
        return cls(
            tuple((int(v), int(p)) for v, p in data["bits"]),
            {
                int(variable): {
                    tuple(context): Nest(inline, tuple(Loop(*loop) for loop in loops))
                    for context, inline, loops in nests
                }
                for variable, nests in data["nests"].items()
            },
        )


def location_indices(variables: Sequence[Variable]) -> tuple[int, ...]:
    """Indices of the location variables, in the order in which they are decided."""
    return tuple(i for i, v in enumerate(variables) if isinstance(v, ComputeLocation))
