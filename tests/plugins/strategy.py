"""A strategy of somebody else's: edits of the fastest programs, chosen by the cost model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretune.cost import CostModel
from foretune.records import Trial
from foretune.search import BatchPolicy, Strategy, pick
from foretune.space import Candidate, Space


class Walk(Strategy[Candidate]):
    """Takes steps from the fastest programs measured so far."""

    def __init__(
        self, space: Space, model: CostModel, rng: np.random.Generator, *, epsilon: float = 0.25
    ) -> None:
        super().__init__(space, model, rng)
        self.policy = BatchPolicy(epsilon)
        self.measured: dict[str, tuple[float, Candidate]] = {}

    def ask(self, n: int) -> list[Candidate]:
        fastest = sorted(self.measured.values(), key=lambda known: known[0])[:n]
        steps = [self.space.mutate(each, self.rng) for _, each in fastest for _ in range(8)]
        new = list({step.key: step for step in steps if self.fresh.is_new(step)}.values())
        ready = self.model.abilities.ready
        scores = self.model.predict(new).score if ready else np.zeros(len(new))
        scored = zip(new, scores.tolist(), strict=True)
        return self.fresh.propose(pick(scored, n, self.policy, self.fresh), n)

    def tell(self, trials: Sequence[Trial[Candidate]]) -> None:
        super().tell(trials)
        for trial in trials:
            seconds, candidate = trial.measurement.best_s, trial.candidate
            if seconds is not None and candidate.sketch in self.space.sketches:
                self.measured[candidate.key] = seconds, candidate
