"""What is learned of a network's plans while they are measured: each choice costs or saves a share.

A ridge regression of log2 seconds on the choices of all operators. What choices do to each other
(a transpose that only one of two neighbours needs) it does not know: it says which children of
fast plans are worth measuring, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost import CostModel, Prediction

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretune.plans.space import PlanCandidate
    from foretune.records import Record

_READY = 8
"""Plans that ran before the model is asked."""
_RIDGE = 1.0


class LinearPlans(CostModel):
    """The sum of what the choices of a plan cost. Reads no program, and knows one network.

    Symbols: n plans, k choices of all operators together.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[PlanCandidate, float]] = {}
        self._weights: npt.NDArray[np.float64] | None = None

    def fit(self, records: Sequence[Record]) -> None:
        """Forgets everything and learns from these records alone."""
        self._seconds.clear()
        self._weights = None
        self.update(records)

    def update(self, records: Sequence[Record]) -> None:
        """Learns from further plans; those that failed say nothing."""
        for record in records:
            seconds = record.measurement.best_s
            if record.candidate is not None and record.measurement.ran and seconds:
                plan: Any = record.candidate
                self._seconds[record.candidate_key] = plan, seconds
        if self.ready:
            known = list(self._seconds.values())
            rows = _rows([plan for plan, _ in known])
            target = -np.log2(np.array([seconds for _, seconds in known]))
            normal = rows.T @ rows + _RIDGE * np.eye(rows.shape[1])
            self._weights = np.linalg.solve(normal, rows.T @ (target - target.mean()))

    def predict(self, candidates: Sequence[Any]) -> Prediction:
        """Minus log2 of an expected slow-down, shape (n,); zeros before anything is known."""
        nothing = np.zeros(len(candidates))
        if self._weights is None or not len(candidates):
            return Prediction(nothing, nothing)
        return Prediction(_rows(candidates) @ self._weights, nothing)

    def draft(self, candidates: Sequence[Any]) -> npt.NDArray[np.float64]:
        """The same: it is cheap."""
        return self.predict(candidates).score

    @property
    def ready(self) -> bool:
        """Whether enough plans ran."""
        return len(self._seconds) >= _READY


def _rows(plans: Sequence[PlanCandidate]) -> npt.NDArray[np.float64]:
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
