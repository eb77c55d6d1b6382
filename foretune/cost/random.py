"""Scores that say nothing: the control in every comparison of cost models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune.cost._base import CostModel, Prediction
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Trial


class RandomModel(CostModel[Candidate]):
    """Uniform scores in [0, 1), independent of the candidate. Never reads a program.

    Always ``ready``: with it a strategy runs its ordinary course, only without guidance.
    """

    def __init__(self, *, rng: np.random.Generator, hardware: Hardware | None = None) -> None:
        self._rng = rng

    def fit(self, records: Sequence[Trial[Candidate]]) -> None:
        """Ignores the records."""

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        """Ignores the records."""

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Draws one number per candidate."""
        return Prediction(self._rng.random(len(candidates)), np.zeros(len(candidates)))
