"""How gradient search looks for candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretune.errors import BadInputError, unknown_name
from foretune.search._descent import Descent
from foretune.search._relaxed import KINDS

GUIDE_NAMES = {"mlp": "perceptron", "world": "world model"}
"""What can be climbed, by the name of its ranker."""
_OBJECTIVES = ("gradient", "evolution", "random")


@dataclass(frozen=True)
class GradientConfig:
    """How candidates are looked for.

    Attributes:
        guide: What is climbed: ``"mlp"``, a perceptron on formulas of features, or ``"world"``, the
            world model's head on predicted terminal states and features of actions.
        objective: What looks for candidates of a high score, with as many predictions:
            ``"gradient"``, or for comparison ``"evolution"`` or ``"random"``.
        seeds: Points that climb at once, in all groups together.
        structures: Groups that are climbed per round.
        scouts: Groups not looked at before of which some candidates are scored per round.
        bred: Candidates per generation of an evolution before each climb, which finds structures
            that climbs cannot get to; 0: none.
        steps: Steps of a climb.
        learning_rate: Step size of Adam, in exponents.
        smoothing: Whether operators are smooth, as in the paper; else gradients are those of exact
            columns, which climb higher in the same time (``docs/gradient.md``). The world model
            has nothing to smooth.
        temperature: Width of the smooth operators at the start, in natural logarithms.
        coldest: The same at the end.
        annealing: Whether it falls; else it stays as at the start.
        variables: ``"exponents"`` of primes, ``"logs"`` of factors, or ``"factors"``, without the
            substitution of exponentials.
        refresh: Steps after which the features of decisions are read at the nearest candidates.
        trajectory: Whether every point on the way is rounded, as in the paper; else only the last.
        penalty: Score lost per squared logarithm of what a GPU does not allow.
        caution: Deviations between the guide's members by which its score is lowered.
        coordinate_descent: Whether the best are improved by single steps after rounding.
        polished: Candidates that are.
        polishing: Steps of each at most.
        elites: Best candidates of earlier rounds that are starts again; 0: none.
        opening: Whether evolutionary search makes the first batch: what is measured of it are the
            first elites, and no formula has to be compiled before.
        pool: Random candidates drawn per start, from which groups and starts are chosen.
        finalists: Candidates that the cost model looks at per candidate asked for.
        epsilon: Share of the proposals that is random.
        warmup: Candidates measured before a cost model that is not informed is asked.
        weights: Name or file (``.npz``) of what is climbed; empty: the cost model's own, or the
            one that comes with the package.
    """

    guide: str = "mlp"
    objective: str = "gradient"
    seeds: int = 128
    structures: int = 2
    scouts: int = 8
    bred: int = 0
    steps: int = 20
    learning_rate: float = 0.3
    smoothing: bool = False
    temperature: float = 0.5
    coldest: float = 0.02
    annealing: bool = True
    variables: str = "exponents"
    refresh: int = 5
    trajectory: bool = True
    penalty: float = 4.0
    caution: float = 1.0
    coordinate_descent: bool = True
    polished: int = 8
    polishing: int = 4
    elites: int = 8
    opening: bool = True
    pool: int = 4
    finalists: int = 8
    epsilon: float = 0.1
    warmup: int = 8
    weights: str = ""

    def __post_init__(self) -> None:
        for name in ("seeds", "structures", "refresh", "polished", "polishing", "pool",
                     "finalists", "warmup"):  # fmt: skip
            self._require(name, ">= 1", getattr(self, name) >= 1)
        for name in ("steps", "elites", "scouts", "bred"):
            self._require(name, ">= 0", getattr(self, name) >= 0)
        for name in ("penalty", "caution"):
            self._require(name, ">= 0, and finite,", 0 <= getattr(self, name) < math.inf)
        for name in ("learning_rate", "temperature", "coldest"):
            value = getattr(self, name)
            self._require(name, "> 0, and finite,", 0 < value < math.inf)
        self._require("bred", "!= 1", self.bred != 1)
        self._require("coldest", "<= temperature", self.coldest <= self.temperature)
        self._require("epsilon", ">= 0, and <= 1,", 0.0 <= self.epsilon <= 1.0)
        for name, known in (
            ("guide", GUIDE_NAMES),
            ("objective", _OBJECTIVES),
            ("variables", KINDS),
        ):
            if getattr(self, name) not in known:
                raise unknown_name(f"{name} of gradient", getattr(self, name), known)

    def _require(self, name: str, rule: str, holds: bool) -> None:
        if not holds:
            raise BadInputError(f"gradient: {name} {rule} must hold, but got {getattr(self, name)}")

    @property
    def descent(self) -> Descent:
        """How points move."""
        hot, cold = self.temperature, self.coldest
        temperatures = (hot, cold if self.annealing else hot) if self.smoothing else (0.0, 0.0)
        return Descent(self.steps, self.learning_rate, temperatures, self.refresh)
