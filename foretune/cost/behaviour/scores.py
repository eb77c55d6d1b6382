"""The one door to scores of behaviour, wherever they are from.

- ``analytic`` (the default): by formulas, from the program and the device's data sheet.
- ``llm``: a language model behind a server is asked and answers in JSON.

The package ``foretune_research`` adds ``hf``: a model of transformers in this process.

A source is asked about batches of programs of one structure on one device, and answers with
``Behaviours``. A learned one gives scores only: no limits, and no seconds (NaN). What it does not
answer is told by formulas, and counted.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from foretune import describe
from foretune._arrays import FloatArray
from foretune._registry import Registry
from foretune.cost.behaviour.answers import Counts
from foretune.describe import Behaviours, Nests
from foretune.errors import BadInputError
from foretune.hardware import Device

SOURCES: Registry[ScoreSource] = Registry(
    "source of scores",
    "foretune.score_sources",
    {
        "analytic": "foretune.cost.behaviour.scores:AnalyticScores",
        "llm": "foretune.cost.behaviour.llm_scores:open_scores",
    },
    studied=["hf"],
)
"""Factories by name; all but that of formulas are called with the model to ask."""
_REMEDIES = {
    "llm": "name it with --llm MODEL@URL (tune), or with --option model=MODEL@URL (train, eval)",
}
_FOLDER = "give the folder of a tuned one, model=FOLDER"
Analysis = Callable[[Nests, Device], Behaviours]


class ScoreSource(abc.ABC):
    """Scores programs on devices.

    Attributes:
        name: One of the names of ``SOURCES``: a regressor is trained on scores of one of them.
        counts: What became of the questions so far.
        joins: Whether batches are joined before it is asked (``describe.joined``): one costs it
            about the same, whether it has one program or a hundred.
    """

    name: ClassVar[str]
    counts: Counts
    joins: bool = False

    @abc.abstractmethod
    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Behaviour of n programs of one structure; always all of them, in their order."""

    def told(self, nests: Nests, device: Device) -> Behaviours:
        """The same of the source alone: no scores, all NaN, of a program that it is silent about.

        For who has another opinion of that program already.
        """
        return self.behaviours(nests, device)

    @property
    def left_out(self) -> bool:
        """Whether nothing is to be expected of it any more."""
        return False

    @property
    def status(self) -> dict[str, Any]:
        """What a result says about it: a JSON object."""
        return {"scores": self.name, **self.counts.to_json()}

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Lets go of connections and memory."""


class AnalyticScores(ScoreSource):
    """Scores by formulas.

    Args:
        analysis: What computes them; ``describe.behaviours`` unless given.
    """

    name = "analytic"

    def __init__(self, analysis: Analysis | None = None) -> None:
        self._analysis = analysis
        self.counts = Counts()
        self.joins = analysis is None

    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Scores, limits and seconds."""
        analysis = self._analysis or describe.behaviours
        return analysis(nests, device)


def scores_alone(device: Device, scores: FloatArray) -> Behaviours:
    """Behaviours of which only scores are known, shape (n, len(METRICS))."""
    return Behaviours(device, scores, {}, np.full(len(scores), np.nan), {})


def require_model(scores: str, model: str | None) -> None:
    """Refuses scores of a language model without one, before anything takes time.

    Raises:
        BadInputError: There is none.
    """
    if model is None and scores != AnalyticScores.name:
        raise BadInputError(
            f"scores={scores} are those of a language model, but none is given: "
            f"{_REMEDIES.get(scores, _FOLDER)}"
        )


def open_source(name: str, model: str | None = None) -> ScoreSource:
    """The source of that name.

    Args:
        name: One of the names of ``SOURCES``.
        model: For ``"llm"`` a language model as ``open_session`` takes it, for others the folder of
            a tuned model.

    Raises:
        BadInputError: There is no such source, or it needs a model and none is given.
        MissingDependencyError: A package is missing.
    """
    if name == AnalyticScores.name:
        return AnalyticScores()
    SOURCES.require(name)
    require_model(name, model)
    return SOURCES.factory(name)(model)
