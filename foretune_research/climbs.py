"""Gradient search with the switches of the Felix paper, and others who look for candidates.

Idea: ``foretune``'s gradient search is one choice of several. Here operators of the formulas may be
smooth, of a width that falls from step to step (``smoothing``); points may be logarithms of factors
or factors themselves, without the substitution of exponentials (``variables``); and evolution or
random draws may look for candidates that the same frozen model scores high (``objective``), with as
many predictions as climbs make.

Source: Felix (Zhao et al., ASPLOS 2024), sections 3.3, 3.4 and 6 (figure 8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import FloatArray, IntArray
from foretune._options import Bounds, OneOf, Positive
from foretune.errors import BadInputError
from foretune.search._breeding import Breeding, child
from foretune.search._descent import Descent
from foretune.search._gradient_config import GradientConfig
from foretune.search._guides import chosen_guide
from foretune.search._relaxed import Relaxed, nearest_tiles
from foretune.search.gradient import Gradient

if TYPE_CHECKING:
    import torch

    from foretune.cost import CostModel
    from foretune.hardware import Hardware
    from foretune.search._guide import Guide
    from foretune.search._relaxed import Changes
    from foretune.space import Candidate, PerfectTile

OBJECTIVES = ("gradient", "evolution", "random")
_GENERATIONS = 4
_BREEDING = Breeding(crossover=0.15)
_TRIES = 4
"""Children made per one wanted: some have been there before."""
_LEAST = 1e-6


@dataclass(frozen=True)
class StudyConfig(GradientConfig):
    """``GradientConfig`` with what the paper has otherwise.

    Attributes:
        objective: What looks for candidates of a high score, with as many predictions:
            ``"gradient"``, or for comparison ``"evolution"`` or ``"random"``.
        smoothing: Whether operators are smooth, as in the paper. The world model has nothing to
            smooth.
        temperature: Width of the smooth operators at the start, in natural logarithms.
        coldest: The same at the end.
        annealing: Whether it falls; else it stays as at the start.
        variables: ``"exponents"`` of primes, ``"logs"`` of factors, rounded to the nearest tile, or
            ``"factors"``, without the substitution of exponentials.
    """

    objective: Annotated[str, OneOf(OBJECTIVES)] = "gradient"
    smoothing: bool = False
    temperature: Annotated[float, Bounds(gt=0, finite=True)] = 0.5
    coldest: Positive = 0.02
    annealing: bool = True
    variables: Annotated[str, OneOf(("exponents", "logs", "factors"))] = "exponents"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coldest > self.temperature:
            raise BadInputError(
                f"gradient: `coldest <= temperature` must hold, but got coldest={self.coldest}, "
                f"temperature={self.temperature}: give a lower coldest"
            )

    @property
    def descent(self) -> Descent:
        """How points move."""
        if not self.smoothing:
            return super().descent
        coldest = self.coldest if self.annealing else self.temperature
        return Annealed(
            self.steps, self.learning_rate, self.refresh, hottest=self.temperature, coldest=coldest
        )


@dataclass(frozen=True)
class Annealed(Descent):
    """A descent on smooth operators that tend to exact ones.

    Attributes:
        hottest, coldest: Temperatures of the first and of the last step, above 0.
    """

    hottest: float = 0.5
    coldest: float = 0.02

    def temperature(self, step: int) -> float:
        """Falls geometrically from the first to the last step."""
        if self.steps < 2:
            return self.hottest
        return float(self.hottest * (self.coldest / self.hottest) ** (step / (self.steps - 1)))


class Logarithms(Relaxed):
    """Coordinates are log2 of factors, and rounded to the nearest tile."""

    def _units(self, tile: PerfectTile) -> list[tuple[float, float]]:
        return [] if tile.extent == 1 else [(math.log(2), math.log2(tile.extent))]

    def _coordinates(self, tiles: IntArray, unit: float) -> FloatArray:
        return np.log2(tiles)

    def _tiles(self, x: FloatArray, index: int, tile: PerfectTile) -> IntArray:
        groups = [group for group in self._groups if group[0] == index]
        if not groups:
            return np.ones((len(x), tile.parts), dtype=np.int64)
        ((_, first, unit, _),) = groups
        return nearest_tiles(x[:, first : first + tile.parts] * unit, tile)


class Factors(Logarithms):
    """Coordinates are factors themselves, and 1 + value of a choice."""

    def of(self, decisions: Sequence[Sequence[Any]]) -> FloatArray:
        """``x`` of candidates."""
        found: FloatArray = np.exp2(super().of(decisions))
        return found

    def logs(self, x: torch.Tensor) -> torch.Tensor:
        """Natural logarithm of every column, of 1 + value for a choice: shape (n, columns)."""
        return super().logs(x.clamp(min=_LEAST).log2())

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest logarithms that have the right sums, as factors."""
        return super().project(x.clamp(min=_LEAST).log2()).exp2()

    def nearest(self, x: FloatArray) -> list[Changes]:
        """The decisions nearest to each point."""
        return super().nearest(np.log2(np.maximum(x, _LEAST)))


KINDS: dict[str, type[Relaxed]] = {
    "exponents": Relaxed,
    "logs": Logarithms,
    "factors": Factors,
}
"""Name of coordinates -> what they are."""


class GradientStudy(Gradient):
    """Gradient search with the switches of ``StudyConfig``.

    Args:
        space, model, rng, guide: As of ``Gradient``. The coordinates of a guide that is given are
            its own.
        options: Fields of ``StudyConfig``.
    """

    config: StudyConfig
    config_type: ClassVar[type[GradientConfig]] = StudyConfig

    def _named_guide(self) -> Guide | None:
        return study_guide(self.model, self.space.hardware, self.config)

    def _found(self) -> bool:
        """A round; who does not climb makes as many predictions as climbs do."""
        predictions = self.config.seeds * max(1, self.config.steps)
        if self.config.objective == "gradient":
            return super()._found()
        if self.config.objective == "evolution":
            self._evolve(max(2, predictions // _GENERATIONS))
        else:
            self._take(self.fresh.unseen(predictions))
        return True

    def _evolve(self, size: int) -> None:
        """Four generations of so many new candidates."""
        population = self._elites()[:size]
        population += self.fresh.unseen(size - len(population), [c.key for c in population])
        for _ in range(_GENERATIONS):
            self._take(population)
            if not population:
                return
            ranked = sorted(population, key=lambda c: (-self._scored[c.key], c.key))
            parents = ranked[: max(2, size // 8)]
            population = [*self._children(parents, size), *parents]

    def _children(self, parents: Sequence[Candidate], size: int) -> list[Candidate]:
        """As many as are wanted that were not scored yet, or fewer."""
        found: dict[str, Candidate] = {}
        for a, b in self.rng.integers(len(parents), size=(_TRIES * size, 2)).tolist():
            made = child(self.space, parents[a], parents[b], _BREEDING, self.rng)
            if made.key not in self._scored:
                found[made.key] = made
            if len(found) == size:
                break
        return list(found.values())


def study_guide(model: CostModel[Any], hardware: Hardware, config: StudyConfig) -> Guide | None:
    """``chosen_guide``, with the coordinates of a study."""
    guide = chosen_guide(model, hardware, config)
    if guide is not None:
        guide.coordinates = KINDS[config.variables]
    return guide
