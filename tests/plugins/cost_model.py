"""A cost model of somebody else's: a program is as fast as those measured that are most like it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.cost import CostModel, Prediction
from foretune.records import Trial
from foretune.space import Candidate


class Alike(CostModel[Candidate]):
    """Scores a program by those that share the most decisions with it."""

    def __init__(self, *, sharpness: float = 2.0, **_: Any) -> None:
        self.sharpness = sharpness
        self.known: dict[str, tuple[Candidate, float]] = {}

    def fit(self, trials: Sequence[Trial[Candidate]]) -> None:
        self.known.clear()
        self.update(trials)

    def update(self, trials: Sequence[Trial[Candidate]]) -> None:
        for trial in trials:
            if (seconds := trial.measurement.best_s) is not None:
                self.known[trial.candidate_key] = trial.candidate, -math.log2(seconds)

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        scores = np.array([self.score(each) for each in candidates], dtype=np.float64)
        return Prediction(scores, np.zeros(len(candidates)))

    def score(self, candidate: Candidate) -> float:
        alike = [(known, s) for known, s in self.known.values() if known.sketch == candidate.sketch]
        same = [sum(map(lambda a, b: a == b, k.decisions, candidate.decisions)) for k, _ in alike]
        weights = np.exp2(self.sharpness * np.array(same, dtype=np.float64))
        return float(np.average([s for _, s in alike], weights=weights)) if alike else 0.0
