"""The one door to scores of behaviour, wherever they are from.

- ``analytic`` (the default): by formulas, from the program and the device's data sheet.
- ``llm``: a language model behind a server is asked and answers in JSON.
- ``hf``: a model of transformers in this process, tuned for the schema.

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
from foretune.cost._base import FloatArray
from foretune.cost.behaviour.answers import Counts
from foretune.describe import Behaviours, Nests
from foretune.hardware import Device

SOURCES = ("analytic", "llm", "hf")
Analysis = Callable[[Nests, Device], Behaviours]


class ScoreSource(abc.ABC):
    """Scores programs on devices.

    Attributes:
        name: One of ``SOURCES``: a regressor is trained on scores of one of them.
        counts: What became of the questions so far.
    """

    name: ClassVar[str]
    counts: Counts

    @abc.abstractmethod
    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Behaviour of n programs of one structure; always all of them, in their order."""

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

    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Scores, limits and seconds."""
        analysis = self._analysis or describe.behaviours
        return analysis(nests, device)


def scores_alone(device: Device, scores: FloatArray) -> Behaviours:
    """Behaviours of which only scores are known, shape (n, len(METRICS))."""
    return Behaviours(device, scores, {}, np.full(len(scores), np.nan), {})
