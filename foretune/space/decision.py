"""Decision variables: the holes of a sketch and what may be put into them.

Every variable knows its domain exactly, so that no decision that TVM would silently repair (a
tile whose product is not the extent) or that kills the process (a factor of zero) can be
expressed. The domain of a ``ComputeLocation`` depends on the other decisions of the same
candidate; the rule for it lives in ``foretune.space.location``.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Union

import numpy as np

from foretune.errors import BadInputError, IllegalCandidateError

Tile = tuple[int, ...]
Decision = Union[int, Tile]  # noqa: UP007 - evaluated at run time on Python 3.10

ROOT = -1
"""Compute location: a loop nest of its own."""
INLINE = -2
"""Compute location: inlined into the consumers."""


def location_name(location: int) -> str:
    """``"inline"``, ``"root"``, or ``"loopN"`` of the N-th loop around the consumers."""
    return {INLINE: "inline", ROOT: "root"}.get(location, f"loop{location}")


_MAX_TABLE = 1 << 16
"""Tilings of one variable up to which all of them are tabulated."""


@dataclass(frozen=True)
class PerfectTile:
    """A loop split into ``parts`` factors whose product is its extent.

    Attributes:
        name: Where the loop comes from.
        extent: Iterations of the loop.
        parts: Number of factors, outermost first.
        limit: Largest innermost factor; 0 for none.
        partition: From this part on, the product is a multiple of ``inner_multiple``.
        inner_multiple: 1 when there is no such condition.
    """

    name: str
    extent: int
    parts: int
    limit: int = 0
    partition: int = 0
    inner_multiple: int = 1

    @property
    def size(self) -> int:
        """Number of legal tilings (an upper bound where they are too many to list)."""
        table = self.table()
        return len(table) if table is not None else _count(self.extent, self.parts)

    def table(self) -> tuple[Tile, ...] | None:
        """All legal tilings in a fixed order, or None when they are too many to list."""
        return _table(self.extent, self.parts, self.limit, self.partition, self.inner_multiple)

    def accepts(self, tile: Tile) -> bool:
        """Whether a tiling with the right product also meets the limits."""
        return (not self.limit or tile[-1] <= self.limit) and (
            math.prod(tile[self.partition :]) % self.inner_multiple == 0
        )

    def sample(self, rng: np.random.Generator, n: int) -> list[Tile]:
        """Draws ``n`` tilings, each uniform over the legal ones, independently."""
        table = self.table()
        if table is not None:
            return [table[i] for i in rng.integers(0, len(table), size=n).tolist()]
        tiles: list[Tile] = []
        while len(tiles) < n:
            tile = _draw_tile(self.extent, self.parts, rng)
            if self.accepts(tile):
                tiles.append(tile)
        return tiles

    def other(self, tile: Tile, rng: np.random.Generator) -> Tile | None:
        """A different legal tiling: half the time a near one, half the time any; None if none is.

        A near one moves one prime factor from one part to another.
        """
        near = self.neighbours(tile)
        if near and rng.random() < 0.5:
            return near[int(rng.integers(len(near)))]
        table = self.table()
        if table is None:
            return next(t for t in iter(lambda: self.sample(rng, 1)[0], None) if t != tile)
        if len(table) == 1:
            return None
        index = int(rng.integers(len(table) - 1))
        return table[index] if table[index] != tile else table[-1]

    def neighbours(self, tile: Tile) -> tuple[Tile, ...]:
        """The legal tilings in which one prime factor is in another part."""
        return _neighbours(self, tile)

    def _moved(self, tile: Tile) -> Iterator[Tile]:
        for source, target in itertools.permutations(range(self.parts), 2):
            for prime, _ in factorise(tile[source]):
                moved = list(tile)
                moved[source] //= prime
                moved[target] *= prime
                yield tuple(moved)

    def check(self, decision: Any) -> Tile:
        """Returns the decision as a tuple of ints, or raises IllegalCandidateError."""
        if isinstance(decision, str) or not isinstance(decision, Sequence):
            raise _illegal("a tile is a list of factors", self.name, decision, "pass a list")
        if not all(type(f) is int for f in decision):
            raise _illegal("factors are integers", self.name, decision, "pass integers")
        tile = tuple(decision)
        rule, remedy = "", ""
        if len(tile) != self.parts:
            rule = f"a tile of this loop has {self.parts} factors"
            remedy = f"give {self.parts} factors"
        elif min(tile) < 1:
            rule, remedy = "factors are at least 1", "use 1 for a part that is not wanted"
        elif max(tile) > self.extent:
            # Not multiplied: factors come from anywhere, and their product may be of any size.
            rule = f"the factors multiply to the extent {self.extent}"
            remedy = f"use factors up to {self.extent}"
        elif math.prod(tile) != self.extent:
            rule = f"the factors multiply to the extent {self.extent}"
            remedy = f"change them: they multiply to {math.prod(tile)}"
        elif self.limit and tile[-1] > self.limit:
            rule, remedy = f"the last factor is at most {self.limit}", "move factors outwards"
        elif not self.accepts(tile):
            rule = f"factors from {self.partition} on multiply to k * {self.inner_multiple}"
            remedy = "move factors inwards"
        if rule:
            raise _illegal(rule, self.name, decision, remedy)
        return tile


@dataclass(frozen=True)
class Choice:
    """One value out of a list: unroll step, cooperative fetch width, parallel limit...

    Attributes:
        name: What is chosen.
        values: The values; the decision is an index into them.
        weights: Probability of each value when sampling.
    """

    name: str
    values: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    def sample(self, rng: np.random.Generator, n: int) -> list[int]:
        """Draws ``n`` indices with the probabilities ``weights``."""
        edges = np.cumsum(self.weights)
        drawn = np.searchsorted(edges, rng.random(n) * edges[-1], side="right")
        return np.minimum(drawn, len(self.values) - 1).tolist()  # type: ignore[no-any-return]

    def other(self, index: int, rng: np.random.Generator) -> int | None:
        """A different index; None if there is only one.

        What sampling favours is favoured less here, so that a mutation explores; what it hardly
        ever draws stays rare.
        """
        cap = 1 / len(self.values)
        others = [i for i in range(len(self.values)) if i != index]
        if not others:
            return None
        edges = list(itertools.accumulate(min(self.weights[i], cap) for i in others))
        drawn = bisect.bisect_right(edges, rng.random() * edges[-1])
        return others[min(drawn, len(others) - 1)]

    def check(self, decision: Any) -> int:
        """Returns the index, or raises IllegalCandidateError."""
        if type(decision) is not int or not 0 <= decision < len(self.values):
            rule = f"a choice is an index in [0, {len(self.values)})"
            raise _illegal(rule, self.name, decision, f"pick one of the values {self.values}")
        return decision


@dataclass(frozen=True)
class ComputeLocation:
    """Where a block is computed: inlined, at the root, or under a loop of its consumers.

    The decision is ``INLINE`` (-2), ``ROOT`` (-1) or the index of a loop around the consumers.
    Which of these are legal depends on the tiles and on earlier locations.

    Attributes:
        name: The block's name.
        bound: Number of locations that are legal for at least some other decisions.
    """

    name: str
    bound: int = 1

    @property
    def size(self) -> int:
        """Upper bound of the number of locations."""
        return self.bound

    def check(self, decision: Any, domain: Sequence[int]) -> int:
        """Returns the location, or raises IllegalCandidateError if it is not in ``domain``."""
        if type(decision) is not int:
            raise _illegal("a location is an integer", self.name, decision, f"use {ROOT} (root)")
        at = bisect.bisect_left(domain, decision)
        if at == len(domain) or domain[at] != decision:
            raise _illegal(
                "with these tiles and earlier locations the block fits only at "
                f"{list(domain)} (-2 inline, -1 root, else a loop of its consumers)",
                self.name,
                decision,
                "pick one of these",
            )
        return decision


Variable = Union[PerfectTile, Choice, ComputeLocation]  # noqa: UP007 - evaluated on Python 3.10

_KINDS: dict[str, Any] = {
    "tile": PerfectTile,
    "choice": Choice,
    "location": ComputeLocation,
}


def variable_to_json(variable: Variable) -> dict[str, Any]:
    """A JSON object; ``variable_from_json`` reverses it."""
    kind = next(k for k, cls in _KINDS.items() if isinstance(variable, cls))
    return {"kind": kind, **asdict(variable)}


def variable_from_json(data: dict[str, Any]) -> Variable:
    """Reads what ``variable_to_json`` wrote.

    Raises:
        BadInputError: The kind is unknown or a field is missing.
    """
    try:
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items()
        }
        variable: Variable = _KINDS[fields.pop("kind")](**fields)
    except (KeyError, TypeError) as error:
        raise BadInputError(f"a decision variable cannot be read from {data!r}: {error}") from error
    return variable


def _illegal(rule: str, name: str, value: Any, remedy: str) -> IllegalCandidateError:
    return IllegalCandidateError(f"{rule}, but {name} is {value!r}: {remedy}")


@functools.lru_cache(maxsize=1 << 16)
def _neighbours(variable: PerfectTile, tile: Tile) -> tuple[Tile, ...]:
    return tuple(t for t in variable._moved(tile) if variable.accepts(t))


@functools.lru_cache(maxsize=4096)
def factorise(number: int) -> tuple[tuple[int, int], ...]:
    """Prime factorisation as (prime, exponent) pairs; empty for 1."""
    factors: list[tuple[int, int]] = []
    prime = 2
    while prime * prime <= number:
        exponent = 0
        while number % prime == 0:
            number //= prime
            exponent += 1
        if exponent:
            factors.append((prime, exponent))
        prime += 1
    if number > 1:
        factors.append((number, 1))
    return tuple(factors)


def _count(extent: int, parts: int) -> int:
    return math.prod(math.comb(e + parts - 1, parts - 1) for _, e in factorise(extent))


@functools.lru_cache(maxsize=1024)
def _table(
    extent: int, parts: int, limit: int, partition: int, inner_multiple: int
) -> tuple[Tile, ...] | None:
    if _count(extent, parts) > _MAX_TABLE:
        return None
    tiles: list[Tile] = [(1,) * parts]
    for prime, exponent in factorise(extent):
        splits = [_gaps(bars, exponent, parts) for bars in _bars(exponent, parts)]
        tiles = [
            tuple(f * prime**e for f, e in zip(tile, split, strict=True))
            for tile in tiles
            for split in splits
        ]
    shape = PerfectTile("", extent, parts, limit, partition, inner_multiple)
    legal = tuple(sorted(t for t in tiles if shape.accepts(t)))
    if not legal:
        raise BadInputError(
            f"a loop of {extent} iterations cannot be split into {parts} factors "
            f"with the innermost at most {limit}: raise the limit"
        )
    return legal


def _bars(exponent: int, parts: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(range(exponent + parts - 1), parts - 1)


def _gaps(bars: Sequence[int], exponent: int, parts: int) -> tuple[int, ...]:
    # Stars and bars: the gaps between the bars are the exponents of the parts.
    edges = (-1, *bars, exponent + parts - 1)
    return tuple(b - a - 1 for a, b in itertools.pairwise(edges))


def _draw_tile(extent: int, parts: int, rng: np.random.Generator) -> Tile:
    tile = [1] * parts
    for prime, exponent in factorise(extent):
        bars = np.sort(rng.choice(exponent + parts - 1, size=parts - 1, replace=False)).tolist()
        for part, e in enumerate(_gaps(bars, exponent, parts)):
            tile[part] *= prime**e
    return tuple(tile)
