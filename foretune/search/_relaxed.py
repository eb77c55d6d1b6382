"""Decisions as real numbers: coordinates that gradients move, and the way back to legal decisions.

Idea: a factor of a tile is a product of powers of the primes of its extent, so that its exponents
are free numbers as long as those of one prime, over all parts of the tile, add up to the prime's
exponent in the extent. These sums, and that no exponent is negative, are kept by projection: every
point of a trajectory has tiles whose product is the extent. The exponents are rounded so that their
sums stay, and the result divides by construction, for extents of any primes.

Symbols: a point of a group of candidates has one coordinate per tile, prime and part, and one per
choice, log2(1 + value). A *column* is a number of the program, a factor or a choice's value.

Source: Felix (Zhao et al., ASPLOS 2024), section 3.4. Deviations: extents are factorised fully,
where the published code stops at the prime 7; the outermost part has exponents of its own instead
of being what is left; sums are kept by projecting onto the simplex instead of by penalties.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray, IntArray
from foretune.space import Choice, PerfectTile
from foretune.space.decision import factorise

if TYPE_CHECKING:
    import torch

Changes = dict[int, Any]
"""Index of a variable -> its decision."""

_ROUNDING = 1e-9
_CHUNK = 512


class Relaxed:
    """The open decisions of candidates that have the same structure.

    Arrays called ``x`` have shape (n, size) and hold what an optimiser moves.

    Args:
        variables: The open ones by index: tiles and choices.
        columns: Index and part of what each column is, parts of a tile one after the other.
        allowed: Decisions of each choice that the structure leaves open; all unless given.

    Attributes:
        size: Coordinates of a point.
    """

    def __init__(
        self,
        variables: Mapping[int, PerfectTile | Choice],
        columns: Sequence[tuple[int, int]],
        allowed: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self._variables = dict(variables)
        self._allowed = {
            index: list((allowed or {}).get(index, range(len(variable.values))))
            for index, variable in self._variables.items()
            if isinstance(variable, Choice)
        }
        self._groups: list[tuple[int, int, float, float]] = []
        """(variable, first coordinate, logarithm of the prime, sum) of each prime of a tile."""
        self._choices: list[tuple[int, int]] = []
        """(variable, coordinate) of each choice."""
        self.size = 0
        entries: list[tuple[int, int, float]] = []
        at = {column: place for place, column in enumerate(columns)}
        for index, variable in self._variables.items():
            if isinstance(variable, Choice):
                self._choices.append((index, self.size))
                entries.append((self.size, at[index, 0], math.log(2)))
                self.size += 1
                continue
            for unit, total in self._units(variable):
                self._groups.append((index, self.size, unit, total))
                for part in range(variable.parts):
                    entries.append((self.size + part, at[index, part], unit))
                self.size += variable.parts
        self._matrix = np.zeros((self.size, len(columns)))
        for coordinate, column, unit in entries:
            self._matrix[coordinate, column] = unit
        self._is_choice = np.zeros(len(columns))
        self._is_choice[[at[index, 0] for index, _ in self._choices]] = 1.0

    def _units(self, tile: PerfectTile) -> list[tuple[float, float]]:
        """Logarithm of the unit of a coordinate, and the sum over parts, for each prime."""
        if tile.extent == 1:
            return []
        return [(math.log(prime), float(power)) for prime, power in factorise(tile.extent)]

    def _coordinates(self, tiles: IntArray, unit: float) -> FloatArray:
        """Those of tiles for one prime, shape (n, parts)."""
        return powers(tiles, round(math.exp(unit)))

    @property
    def open_variables(self) -> frozenset[int]:
        """Indices of the variables that coordinates stand for; others belong to the structure."""
        return frozenset(self._variables)

    # From decisions, and to what formulas take.

    def of(self, decisions: Sequence[Sequence[Any]]) -> FloatArray:
        """``x`` of candidates."""
        points = np.zeros((len(decisions), self.size))
        for index, first, unit, _ in self._groups:
            tiles = np.array([row[index] for row in decisions], dtype=np.int64)
            points[:, first : first + tiles.shape[1]] = self._coordinates(tiles, unit)
        for index, coordinate in self._choices:
            values = np.array(self._variables[index].values, dtype=float)  # type: ignore[union-attr]
            points[:, coordinate] = np.log2(1 + values[[row[index] for row in decisions]])
        return points

    def logs(self, x: torch.Tensor) -> torch.Tensor:
        """Natural logarithm of every column, of 1 + value for a choice: shape (n, columns)."""
        import torch

        return x @ torch.from_numpy(self._matrix)

    def points(self, x: torch.Tensor) -> torch.Tensor:
        """The columns: factors and values of choices, shape (n, columns)."""
        import torch

        return self.logs(x).exp() - torch.from_numpy(self._is_choice)

    # Constraints.

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest ``x`` that has the right sums, and what keeps the limits.

        Nothing is negative, the parts of a tile multiply to its extent, the last is at most its
        limit, and choices stay between their least and largest value.
        """
        x = x.clone()
        for index, first, _, total in self._groups:
            tile = self._variables[index]
            assert isinstance(tile, PerfectTile)
            where = slice(first, first + tile.parts)
            x[:, where] = onto_simplex(x[:, where], total)
        for index, tile in self._variables.items():
            if isinstance(tile, PerfectTile) and tile.limit:
                self._limit(x, index, tile)
        for index, coordinate in self._choices:
            values = self._values(index)
            least, most = np.log2(1 + values.min()), np.log2(1 + values.max())
            x[:, coordinate] = x[:, coordinate].clamp(float(least), float(most))
        return x

    def _values(self, index: int) -> FloatArray:
        variable = self._variables[index]
        assert isinstance(variable, Choice)
        return np.array([float(variable.values[i]) for i in self._allowed[index]])

    def _limit(self, x: torch.Tensor, index: int, tile: PerfectTile) -> None:
        """Moves what a last factor has too much to the other parts, in equal shares."""
        import torch

        groups = [(first, unit) for i, first, unit, _ in self._groups if i == index]
        last = [first + tile.parts - 1 for first, _ in groups]
        if not groups or tile.parts == 1:
            return
        units = x.new_tensor([unit for _, unit in groups])
        size = x[:, last] @ units
        share = (math.log(tile.limit) / size.clamp(min=math.log(tile.limit) + 1e-300)).clamp(max=1)
        share = torch.where(size > math.log(tile.limit), share, torch.ones_like(share))
        for (first, _), end in zip(groups, last, strict=True):
            moved = x[:, end] * (1 - share)
            x[:, end] = x[:, end] - moved
            x[:, first:end] = x[:, first:end] + (moved / (tile.parts - 1)).unsqueeze(1)

    # Back to decisions.

    def nearest(self, x: FloatArray) -> list[Changes]:
        """The decisions nearest to each point: legal ones, but where tilings are too many to list.

        Then a tile may break a rule of its variable; its product is the extent in any case.
        """
        parts = {
            index: self._tiles(x, index, variable).tolist()
            if isinstance(variable, PerfectTile)
            else self._nearest_choice(x, index).tolist()
            for index, variable in self._variables.items()
        }
        return [
            {
                index: tuple(column[row]) if isinstance(column[row], list) else column[row]
                for index, column in parts.items()
            }
            for row in range(len(x))
        ]

    def rounded(self, x: FloatArray) -> list[Changes]:
        """The distinct legal decisions among the nearest of all points, in the order met."""
        distinct = {tuple(each.items()): each for each in self.nearest(x)}
        return [
            each
            for each in distinct.values()
            if all(self._accepted(index, decision) for index, decision in each.items())
        ]

    def sample(self, rng: np.random.Generator, n: int) -> list[Changes]:
        """Random decisions: tiles uniform over the legal ones, choices over those left open."""
        columns: dict[int, list[Any]] = {}
        for index, variable in self._variables.items():
            if isinstance(variable, PerfectTile):
                columns[index] = list(variable.sample(rng, n))
            else:
                allowed = self._allowed[index]
                columns[index] = [allowed[i] for i in rng.integers(len(allowed), size=n).tolist()]
        return [{index: column[row] for index, column in columns.items()} for row in range(n)]

    def _accepted(self, index: int, decision: Any) -> bool:
        variable = self._variables[index]
        return not isinstance(variable, PerfectTile) or variable.accepts(decision)

    def _nearest_choice(self, x: FloatArray, index: int) -> IntArray:
        (coordinate,) = (place for i, place in self._choices if i == index)
        values = np.log2(1 + self._values(index))
        nearest = np.abs(x[:, coordinate, None] - values).argmin(axis=1)
        chosen: IntArray = np.array(self._allowed[index], dtype=np.int64)[nearest]
        return chosen

    def _tiles(self, x: FloatArray, index: int, tile: PerfectTile) -> IntArray:
        """Tilings near to points, shape (n, parts); not accepted ones only without a table."""
        groups = [group for group in self._groups if group[0] == index]
        factors = np.ones((len(x), tile.parts), dtype=np.int64)
        logs = np.zeros((len(x), tile.parts))
        for _, first, unit, total in groups:
            near = x[:, first : first + tile.parts]
            logs += near * unit
            factors *= round(math.exp(unit)) ** rounded_sums(near, round(total))
        wrong = [i for i, row in enumerate(factors.tolist()) if not tile.accepts(tuple(row))]
        if wrong:
            factors[wrong] = nearest_tiles(logs[wrong], tile)
        return factors

    # Steps between decisions.

    def neighbours(self, decisions: Sequence[Any]) -> Iterator[Changes]:
        """One prime factor in another part of a tile, or the next value of a choice."""
        for index, variable in self._variables.items():
            if isinstance(variable, PerfectTile):
                for tile in variable.neighbours(tuple(decisions[index])):
                    yield {index: tile}
                continue
            allowed = self._allowed[index]
            if decisions[index] in allowed:
                place = allowed.index(decisions[index])
                for other in (place - 1, place + 1):
                    if 0 <= other < len(allowed):
                        yield {index: allowed[other]}


def onto_simplex(x: torch.Tensor, total: float) -> torch.Tensor:
    """The nearest point whose parts are not negative and add up to ``total``, shape (n, parts).

    Sorting finds how many parts stay positive (Held, Wolfe and Crowder, 1974).
    """
    import torch

    ordered = x.sort(dim=1, descending=True).values
    places = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
    shift = (ordered.cumsum(1) - total) / places
    count = (ordered > shift).sum(1, keepdim=True).clamp(min=1)
    return (x - shift.gather(1, count - 1)).clamp(min=0)


def rounded_sums(x: FloatArray, total: int) -> IntArray:
    """The nearest whole numbers that add up to ``total``, row by row (largest remainders)."""
    whole = np.floor(x + _ROUNDING).astype(np.int64)
    missing = total - whole.sum(axis=1)
    order = np.argsort(-(x - whole), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    rounded: IntArray = whole + (rank < missing[:, None])
    return rounded


def powers(numbers: IntArray, prime: int) -> FloatArray:
    """How often a prime divides each number."""
    count, rest = np.zeros(numbers.shape), numbers.copy()
    while (divides := rest % prime == 0).any():
        count += divides
        rest[divides] //= prime
    return count


def nearest_tiles(logs: FloatArray, tile: PerfectTile) -> IntArray:
    """The legal tilings whose factors have the nearest logarithms; any near one without a table."""
    table = tile.table()
    if table is None:
        return np.array([_assigned(row, tile) for row in logs.tolist()], dtype=np.int64)
    tiles = np.array(table, dtype=np.int64)
    targets = np.log(tiles)
    square = (targets**2).sum(axis=1)
    assigned = [
        # |a - b|^2 but for |a|^2, which is the same for all tilings.
        tiles[(square - 2 * logs[at : at + _CHUNK] @ targets.T).argmin(axis=1)]
        for at in range(0, len(logs), _CHUNK)
    ]
    return np.concatenate(assigned)


def _assigned(logs: Sequence[float], tile: PerfectTile) -> tuple[int, ...]:
    """Gives each prime to the part that wants most and may have it, the largest prime first."""
    factors, wanted = [1] * tile.parts, list(logs)
    for prime, power in reversed(factorise(tile.extent)):
        for _ in range(power):
            free = [p for p in range(tile.parts) if _fits(tile, p, factors[p] * prime)]
            part = max(free or [0], key=lambda p: wanted[p])
            factors[part] *= prime
            wanted[part] -= math.log(prime)
    return tuple(factors)


def _fits(tile: PerfectTile, part: int, factor: int) -> bool:
    return part < tile.parts - 1 or not tile.limit or factor <= tile.limit
