"""The door to cost models: how good is a candidate?"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from foretune.records import Record
    from foretune.space import Candidate

FloatArray = npt.NDArray[np.float64]


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


class CostModel(abc.ABC):
    """Predicts which candidates of a workload are faster.

    Life cycle: construct, ``fit`` on records of the past if there are any, then alternate
    ``predict`` and ``update`` as measurements arrive. Records handed in carry their ``candidate``.
    A model never searches and never measures. Failed measurements are handed in too.
    """

    @abc.abstractmethod
    def fit(self, records: Sequence[Record]) -> None:
        """Forgets everything and learns from these records alone. May be empty."""

    @abc.abstractmethod
    def update(self, records: Sequence[Record]) -> None:
        """Learns from further records without forgetting the earlier ones."""

    @abc.abstractmethod
    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Scores candidates, shape (n,). Works before any ``fit`` (then the scores say nothing)."""

    def draft(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores candidates by their decisions alone, so cheaply that thousands can be drafted.

        Returns:
            float64 of shape (n,), never NaN: minus log2 of an expected slow-down, up to a constant
            per workload. ``foretune.features.machine_fit`` unless a model knows better.
        """
        from foretune.features import machine_fit

        return machine_fit(candidates)

    def look(self, candidates: Sequence[Candidate]) -> FloatArray:
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
