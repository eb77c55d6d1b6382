"""The door to cost models: how good is a candidate?"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from foretune._arrays import FloatArray
from foretune.space.protocol import C_contra

if TYPE_CHECKING:
    from foretune.records import Trial


@dataclass(frozen=True)
class Prediction:
    """Scores of candidates.

    Attributes:
        score: float64 of shape (n,), higher is better, comparable within one workload only.
            NaN for a candidate that turned out to be illegal when its program was read.
        spread: float64 of shape (n,), the model's own uncertainty in the units of ``score``;
            0 where a model has none.
    """

    score: FloatArray
    spread: FloatArray

    def __post_init__(self) -> None:
        if self.score.ndim != 1 or self.score.shape != self.spread.shape:
            raise ValueError(
                "score and spread must be vectors of one length, "
                f"but got {self.score.shape} and {self.spread.shape}"
            )


@dataclass(frozen=True)
class Abilities:
    """What a cost model can tell about itself; it may change with every record.

    Attributes:
        ready: Whether the scores mean anything yet. Strategies explore while this is False.
        informed: Whether it learned from other workloads what makes schedules fast. Then its scores
            and drafts are worth following before the first measurement.
        informed_draft: Whether ``draft`` did so, too, so that it may choose from many. Where it did
            not, following it far would follow its errors.
        closer: How many of the best candidates it wants to ``look`` at before a batch is drawn from
            them; 0: it says all it can at once.
    """

    ready: bool = True
    informed: bool = False
    informed_draft: bool = False
    closer: int = 0


class CostModel(abc.ABC, Generic[C_contra]):
    """Predicts which candidates of a workload are faster.

    Life cycle: construct, ``fit`` on records of the past if there are any, then alternate
    ``predict`` and ``update`` as measurements arrive. Symbol: C, what it scores.
    A model never searches and never measures. Failed measurements are handed in too.
    """

    @abc.abstractmethod
    def fit(self, records: Sequence[Trial[C_contra]]) -> None:
        """Forgets everything and learns from these records alone. May be empty."""

    @abc.abstractmethod
    def update(self, records: Sequence[Trial[C_contra]]) -> None:
        """Learns from further records without forgetting the earlier ones."""

    @abc.abstractmethod
    def predict(self, candidates: Sequence[C_contra]) -> Prediction:
        """Scores candidates, shape (n,). Works before any ``fit`` (then the scores say nothing)."""

    def draft(self, candidates: Sequence[C_contra]) -> FloatArray:
        """Scores candidates by their decisions alone, so cheaply that thousands can be drafted.

        Returns:
            float64 of shape (n,), never NaN: minus log2 of an expected slow-down, up to a constant
            per workload. Unless a model knows better, ``foretune.features.machine_fit`` of
            schedules, and 0 of what is none.
        """
        from foretune.features import machine_fit
        from foretune.space import Candidate

        schedules = [each for each in candidates if isinstance(each, Candidate)]
        return machine_fit(schedules) if schedules else np.zeros(len(candidates))

    def look(self, candidates: Sequence[C_contra]) -> FloatArray:
        """Scores after a closer look, shape (n,), which may take seconds; NaN as of ``predict``.

        What is said here of a candidate is what ``predict`` says of it afterwards.
        """
        return self.predict(candidates).score

    @property
    def status(self) -> dict[str, Any]:
        """What a result says of the model's own questions: a JSON object, empty if it has none."""
        return {}

    @property
    def abilities(self) -> Abilities:
        """What may be asked of it at the moment, and how far it is worth following."""
        return Abilities()
