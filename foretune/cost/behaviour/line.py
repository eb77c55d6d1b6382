"""A line through the strongest columns: where the regressor begins.

Idea: what a model predicts and what other devices took are already in the unit of the target, log2
of slow-downs, so that a weighted sum of them is most of the answer, and one that cannot be fooled
by a device that is unlike those of training. Where other devices know a program, one line; where
none does, another.

Slopes are fitted within groups (what differs between them is no program's merit) by least squares
with a pull towards a belief: other devices' mean as it is, predictions at half of what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune.cost._base import FloatArray
from foretune.cost.behaviour.columns import NAMES, PREDICTED
from foretune.cost.behaviour.targets import OCTAVES, normalised

if TYPE_CHECKING:
    from foretune.cost.behaviour.regressor import Lesson

_READS = ("memory.mean", "memory.near", "memory.near_shift", PREDICTED)
_AT = tuple(NAMES.index(name) for name in _READS)
_KNOWN = _AT[0]
_BELIEF = np.array([[0.0, 0.0, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0]]) / OCTAVES
"""Slopes before data, without and with other devices."""
_PULL = 0.02
"""Of the belief, beside the variance of a column."""
_MOST = 8.0
"""log2 that a prediction is cut at: far from the roof, how far says little."""


@dataclass(frozen=True)
class Line:
    """Two lines.

    Attributes:
        coefficients: float64 of shape (2, columns + 1): slopes and the intercept, for programs that
            no other device knows and for those that one does.
    """

    coefficients: FloatArray

    @classmethod
    def none(cls) -> Line:
        """One that says 0 of every program."""
        return cls(np.zeros((2, len(_READS) + 1)))

    @classmethod
    def mean(cls, lines: Sequence[Line]) -> Line:
        """The mean of several."""
        return cls(np.mean([line.coefficients for line in lines], axis=0))

    @classmethod
    def fitted(cls, lessons: Sequence[Lesson], target: str) -> Line:
        """The best line for some groups."""
        found = cls.none().coefficients
        for which in range(2):
            parts = []
            for each in lessons:
                read, known = _read(each.columns)
                rows = known == bool(which)
                if rows.sum() >= 2:
                    parts.append((read[rows], normalised(each.seconds, target)[rows]))
            # Without other devices their columns are 0, whatever their slopes.
            used = range(len(_READS)) if which else range(len(_READS) - 1, len(_READS))
            found[which] = _slopes(parts, list(used), _BELIEF[which])
        return cls(found)

    def scores(self, columns: FloatArray) -> FloatArray:
        """Minus the times, shape (n, len(NAMES)) -> (n,)."""
        read, known = _read(columns)
        chosen = self.coefficients[known.astype(np.intp)]
        found: FloatArray = -((read * chosen[:, :-1]).sum(axis=1) + chosen[:, -1])
        return found


def _read(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    read = columns[:, _AT]
    return np.clip(np.nan_to_num(read), -_MOST, _MOST), ~np.isnan(columns[:, _KNOWN])


def _slopes(
    parts: Sequence[tuple[FloatArray, FloatArray]], used: list[int], belief: FloatArray
) -> FloatArray:
    """Slopes and intercept, shape (columns + 1,)."""
    found = np.append(belief, 0.0)
    if not parts:
        return found
    squares = np.zeros((len(used), len(used)))
    product = np.zeros(len(used))
    for read, times in parts:
        x = read[:, used] - read[:, used].mean(axis=0)
        rest = times - times.mean() - x @ belief[used]
        # Every group alike, whatever its size.
        squares += x.T @ x / len(x)
        product += x.T @ rest / len(x)
    pull = _PULL * np.diag(np.diag(squares)) + 1e-9 * np.eye(len(used))
    found[used] = belief[used] + np.linalg.solve(squares + pull, product)
    level = [float((times - read @ found[:-1]).mean()) for read, times in parts]
    found[-1] = float(np.mean(level))
    return found
