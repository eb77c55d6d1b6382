"""Cost models across the border: ours for TVM, TVM's for our strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm
from foretune._arrays import FloatArray
from foretune.cost import CostModel, Prediction
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.metaschedule._match import candidate_of_schedule
from foretune.metaschedule._spaces import Spaces, records_of
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Trial

_ms = _tvm.meta_schedule
_PyCostModel: Any = _ms.cost_model.PyCostModel


def positive(scores: FloatArray) -> FloatArray:
    """Strictly increasing map of scores to positive numbers; NaN becomes 0.

    TVM clamps scores at 0 and uses them as sampling weights, and compares scores of different
    calls, so that the map must be the same in every call. Before -> after: -1 -> 1/2, 0 -> 1,
    2 -> 3.
    """
    scores = np.asarray(scores, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mapped = np.where(scores >= 0, 1.0 + scores, 1.0 / (1.0 - scores))
    return np.nan_to_num(mapped, nan=0.0)


@_tvm.tvm.ir.utils.derived_object  # type: ignore[untyped-decorator, unused-ignore]
class _OurModel(_PyCostModel):  # type: ignore[misc, unused-ignore]
    """A foretune cost model behind TVM's door."""

    def __init__(self, model: CostModel[Candidate], hardware: Hardware | None) -> None:
        super().__init__()
        self.model = model
        self.spaces = Spaces(hardware)

    def load(self, path: str) -> None:
        """Refused: how a model is stored is the model's own matter."""
        raise BadInputError(
            f"a foretune model is loaded before it is handed to TVM, not from {path!r} by TVM"
        )

    def save(self, path: str) -> None:
        """Refused, as ``load``."""
        raise BadInputError(
            f"what a foretune model learned in a run is not saved, but TVM asked for {path!r}: it "
            "learns the same again from the records"
        )

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learns from what TVM measured."""
        known = self._candidates(context, candidates)
        self.model.update(records_of(known, results, origin="metaschedule"))

    def predict(self, context: Any, candidates: Sequence[Any]) -> FloatArray:
        """Positive scores, shape (n,), in the order of the model's own."""
        return positive(self.model.predict(self._candidates(context, candidates)).score)

    def _candidates(self, context: Any, candidates: Sequence[Any]) -> list[Candidate]:
        space = self.spaces.of_context(context)
        return [candidate_of_schedule(candidate.sch, space) for candidate in candidates]


def as_cost_model(model: CostModel[Candidate], hardware: Hardware | None = None) -> Any:
    """A TVM cost model that asks one of ours, for ``tune_tir`` and ``tune_relax``.

    Args:
        model: Any cost model; TVM's measurements update it.
        hardware: What is tuned for; made from TVM's target if None.

    Returns:
        An object for the argument ``cost_model`` of TVM's tuning functions.
    """
    return _OurModel(model, hardware)


def our_model(cost_model: Any) -> CostModel[Candidate] | None:
    """The model behind what ``as_cost_model`` made, None for any other TVM cost model."""
    inner = getattr(cost_model, "_inst", None)
    return inner.model if isinstance(inner, _OurModel._cls) else None


def measure_candidate(candidate: Candidate) -> Any:
    """TVM's ``MeasureCandidate`` of a candidate.

    Raises:
        IllegalCandidateError: A post-processor rejected it.
    """
    schedule = candidate.schedule()
    arguments = _ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return _ms.search_strategy.MeasureCandidate(schedule, arguments)


class TvmCostModel(CostModel[Candidate]):
    """One of TVM's cost models, as TVM's task scheduler updates it, for our strategies.

    Args:
        cost_model: TVM's.
        context: The ``TuneContext`` of the program that is tuned.
    """

    def __init__(self, cost_model: Any, context: Any) -> None:
        self._cost_model = cost_model
        self._context = context

    def fit(self, records: Sequence[Trial[Candidate]]) -> None:
        """Refused: TVM's models cannot forget."""
        raise BadInputError("TVM's task scheduler trains its cost model; it cannot be fitted here")

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        """Nothing: TVM's task scheduler updates its model by itself."""

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """TVM's scores; NaN for candidates that a post-processor rejects."""
        score = np.full(len(candidates), np.nan)
        legal, theirs = [], []
        for index, candidate in enumerate(candidates):
            try:
                theirs.append(measure_candidate(candidate))
            except IllegalCandidateError:
                continue
            legal.append(index)
        if theirs:
            score[legal] = self._cost_model.predict(self._context, theirs)
        return Prediction(score, np.zeros(len(candidates)))
