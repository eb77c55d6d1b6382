"""A line through the strongest column: where the regressor begins.

Idea: what a model predicts and what other devices took are already in the unit of the target, log2
of slow-downs, so that they are most of the answer, and one that cannot be fooled by a device that
is unlike those of training. Where other devices know a program, it is what follows of both
(``memory.expected``); where none does, the prediction.

The slope is fitted within groups (what differs between them is no program's merit) by least squares
with a pull towards a belief: others as they are, predictions at half of what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.cost.behaviour.columns import NAMES, PREDICTED
from foretune.cost.behaviour.targets import OCTAVES, normalised

if TYPE_CHECKING:
    from foretune.cost.behaviour.regressor import Lesson

_READS = (PREDICTED, "memory.expected")
_AT = tuple(NAMES.index(name) for name in _READS)
_KNOWN = NAMES.index("memory.mean")
_BELIEF = np.array([0.5, 1.0]) / OCTAVES
"""Slopes before data, without and with other devices."""
_PULL = 0.02
"""Of the belief, beside the variance of a column."""
_LEAST = 1e-9


@dataclass(frozen=True)
class Line:
    """Two lines.

    Attributes:
        coefficients: float64 of shape (2, 2): slope and intercept, for programs that no other
            device knows and for those that one does.
    """

    coefficients: FloatArray

    @classmethod
    def none(cls) -> Line:
        """One that says 0 of every program."""
        return cls(np.zeros((2, 2)))

    @classmethod
    def mean(cls, lines: Sequence[Line]) -> Line:
        """The mean of several."""
        return cls(np.mean([line.coefficients for line in lines], axis=0))

    @classmethod
    def fitted(cls, lessons: Sequence[Lesson], target: str) -> Line:
        """The best line for some groups."""
        coefficients = cls.none().coefficients
        for which, belief in enumerate(_BELIEF.tolist()):
            parts = []
            for each in lessons:
                read, known = _read(each.columns)
                rows = known == which
                if rows.sum() >= 2:
                    parts.append((read[rows], normalised(each.seconds, target)[rows]))
            coefficients[which] = _slope(parts, belief)
        return cls(coefficients)

    def scores(self, columns: FloatArray) -> FloatArray:
        """Minus the times, shape (n, len(NAMES)) -> (n,)."""
        read, known = _read(columns)
        slope, intercept = self.coefficients[known].T
        scores: FloatArray = -(slope * read + intercept)
        return scores


def _read(columns: FloatArray) -> tuple[FloatArray, IndexArray]:
    """What the line reads of each program, and which of the two it is."""
    known = (~np.isnan(columns[:, _KNOWN])).astype(np.intp)
    read = columns[:, _AT][np.arange(len(columns)), known]
    return np.nan_to_num(read), known


def _slope(parts: Sequence[tuple[FloatArray, FloatArray]], belief: float) -> tuple[float, float]:
    """Slope and intercept."""
    if not parts:
        return belief, 0.0
    square = product = 0.0
    for read, times in parts:
        x = read - read.mean()
        # Every group alike, whatever its size.
        square += float(x @ x) / len(x)
        product += float(x @ (times - times.mean() - belief * x)) / len(x)
    slope = belief + product / ((1.0 + _PULL) * square + _LEAST)
    # A slope that says the opposite is worth nothing.
    slope = max(slope, _LEAST)
    return slope, float(np.mean([(times - slope * read).mean() for read, times in parts]))
