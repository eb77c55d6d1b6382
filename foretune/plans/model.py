"""What is learned of a network's plans while they are measured: each choice costs or saves a share.

A ridge regression of log2 seconds on the choices of all operators. What choices do to each other
(a transpose that only one of two neighbours needs) it does not know: it says which children of
fast plans are worth measuring, and no more.

Where something is expected of plans before any is measured (a ``Prior``), the choices explain what
that leaves:

    score = scale · (a · prior + Σ weights of the choices)

``a`` is fitted with the weights, and shrunk towards 1 while few plans are measured: ``strength``
of them weigh as much as that belief. ``foretune.cost.pretrained`` corrects a ranker of schedules
in the same way, with trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost import Abilities, CostModel, Prediction
from foretune.plans.space import PlanCandidate

if TYPE_CHECKING:
    from foretune.records import Trial


_READY = 8
"""Plans that ran before the model is asked, where nothing is expected of them."""
_CORRECTED = 2
"""Plans that ran before what is expected is corrected."""
_RIDGE = 1.0
_MOST_SLOPE = 2.0


class Prior(Protocol):
    """What is expected of the plans of one network before any is measured."""

    @property
    def scale(self) -> float:
        """Log2 slow-downs that one unit is worth, above 0."""

    @property
    def strength(self) -> float:
        """Measured plans that weigh as much as the belief in ``scale``."""

    def expected(self, plans: Sequence[PlanCandidate]) -> FloatArray:
        """Higher is faster, shape (n,), always the same of a plan; with a deviation of 1, about."""


class LinearPlans(CostModel[PlanCandidate]):
    """The sum of what the choices of a plan cost. Reads no program, and knows one network.

    Symbols: n plans, k choices of all operators together.

    Args:
        prior: What is expected before anything is measured; nothing if None.
    """

    def __init__(self, prior: Prior | None = None) -> None:
        self._prior = prior
        self._seconds: dict[str, tuple[PlanCandidate, float]] = {}
        self._slope = 1.0
        self._weights: FloatArray | None = None

    def fit(self, records: Sequence[Trial[PlanCandidate]]) -> None:
        """Forgets everything and learns from these records alone."""
        self._seconds.clear()
        self._slope, self._weights = 1.0, None
        self.update(records)

    def update(self, records: Sequence[Trial[PlanCandidate]]) -> None:
        """Learns from further plans; those that failed say nothing."""
        for record in records:
            seconds = record.measurement.best_s
            if record.measurement.ran and seconds:
                self._seconds[record.candidate_key] = record.candidate, seconds
        if len(self._seconds) >= (_READY if self._prior is None else _CORRECTED):
            self._learn()

    def predict(self, candidates: Sequence[PlanCandidate]) -> Prediction:
        """Minus log2 of an expected slow-down, shape (n,); zeros before anything is known."""
        nothing = np.zeros(len(candidates))
        if not len(candidates):
            return Prediction(nothing, nothing)
        score = nothing
        if self._weights is not None:
            score = score + _rows(candidates) @ self._weights
        if self._prior is not None:
            score = self._prior.scale * (score + self._slope * self._prior.expected(candidates))
        return Prediction(score, nothing)

    def draft(self, candidates: Sequence[PlanCandidate]) -> FloatArray:
        """The same: it is cheap."""
        return self.predict(candidates).score

    @property
    def abilities(self) -> Abilities:
        """Informed where something is expected; else ready once enough plans ran."""
        expects = self._prior is not None
        ready = expects or len(self._seconds) >= _READY
        return Abilities(ready=ready, informed=expects, informed_draft=expects)

    def _learn(self) -> None:
        plans = [plan for plan, _ in self._seconds.values()]
        rows = _rows(plans)
        speed = -np.log2([seconds for _, seconds in self._seconds.values()])
        if self._prior is None:
            self._weights = _ridge(rows, speed - speed.mean(), np.full(rows.shape[1], _RIDGE))
            return
        expected = self._prior.expected(plans)
        expected = expected - expected.mean()
        speed = (speed - speed.mean()) / self._prior.scale
        both = np.column_stack([expected, rows])
        penalty = np.array([self._prior.strength, *[_RIDGE] * rows.shape[1]])
        # Shrunk to 1, not to 0: what is fitted is how far the slope is from there.
        slope = 1.0 + _ridge(both, speed - expected, penalty)[0]
        self._slope = float(np.clip(slope, 0.0, _MOST_SLOPE))
        self._weights = _ridge(rows, speed - self._slope * expected, penalty[1:])


def _ridge(rows: FloatArray, target: FloatArray, penalty: FloatArray) -> FloatArray:
    """Weights of the columns, each with its penalty."""
    weights: FloatArray = np.linalg.solve(rows.T @ rows + np.diag(penalty), rows.T @ target)
    return weights


def _rows(plans: Sequence[PlanCandidate]) -> FloatArray:
    """A one for each choice that means something, shape (n, k)."""
    sketch = plans[0].sketch
    sizes = [len(variable.choices) for variable in sketch.variables]
    begins = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    rows = np.zeros((len(plans), begins[-1]))
    for row, plan in zip(rows, plans, strict=True):
        for places, path in zip(sketch.places, plan.paths, strict=True):
            for step, _ in path:
                row[begins[places[step]] + plan.decisions[places[step]]] = 1.0
    return rows / math.sqrt(max(1, len(sketch.operators)))
