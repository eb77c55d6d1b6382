"""How gradient search looks for candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from foretune._options import Bounds, Count, OneOf, Share, require_options
from foretune.search._descent import Descent

GUIDE_NAMES = {"mlp": "perceptron", "world": "world model"}
"""What can be climbed, by the name of its ranker."""


@dataclass(frozen=True)
class GradientConfig:
    """How candidates are looked for.

    Attributes:
        guide: What is climbed: ``"mlp"``, a perceptron on formulas of features, or ``"world"``, the
            world model's head on predicted terminal states and features of actions.
        weights: Name or file (``.npz``) of what is climbed; empty: the cost model's own, or the
            one that comes with the package.
        seeds: Points that climb at once, in all groups together.
        structures: Groups that are climbed per round.
        steps: Steps of a climb.
        opening: Whether evolutionary search makes the first batch: what is measured of it are the
            first elites, and no formula has to be compiled before.
        epsilon: Share of the proposals that is random.
        warmup: Candidates measured before a cost model that is not informed is asked.
        scouts: Groups not looked at before of which some candidates are scored per round.
        learning_rate: Step size of Adam, in exponents.
        refresh: Steps after which the features of decisions are read at the nearest candidates.
        penalty: Score lost per squared logarithm of what a GPU does not allow.
        caution: Deviations between the guide's members by which its score is lowered.
        polished: Candidates that are improved by single steps after rounding.
        polishing: Steps of each at most.
        elites: Best candidates of earlier rounds that are starts again.
        pool: Random candidates drawn per start, from which groups and starts are chosen.
        finalists: Candidates that the cost model looks at per candidate asked for.
    """

    guide: Annotated[str, OneOf(GUIDE_NAMES)] = "mlp"
    weights: str = ""
    seeds: Count = 128
    structures: Count = 2
    steps: Annotated[int, Bounds(ge=0)] = 20
    opening: bool = True
    epsilon: Share = 0.1
    warmup: Count = 8
    scouts: ClassVar[int] = 8
    learning_rate: ClassVar[float] = 0.3
    refresh: ClassVar[int] = 5
    penalty: ClassVar[float] = 4.0
    caution: ClassVar[float] = 1.0
    polished: ClassVar[int] = 8
    polishing: ClassVar[int] = 4
    elites: ClassVar[int] = 8
    pool: ClassVar[int] = 4
    finalists: ClassVar[int] = 8

    def __post_init__(self) -> None:
        require_options("gradient", self)

    @property
    def descent(self) -> Descent:
        """How points move."""
        return Descent(self.steps, self.learning_rate, self.refresh)
