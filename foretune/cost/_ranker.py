"""The door to rankers: what orders the programs of a workload after learning from other workloads.

A cost model (``CostModel``) lives inside a tuning run and learns from its measurements. A ranker is
trained once, on a data set, and then only scores; ``foretune.cost.pretrained`` makes a cost model
of it.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from foretune.cost._base import FloatArray

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware


class Ranker(abc.ABC):
    """Scores programs of workloads it has never seen.

    Life cycle: construct with ``(seed=..., **options)``, ``fit`` once, ``score`` as often as
    wanted; or ``load`` what ``save`` wrote. Rankers see the programs of one workload on one
    hardware at a time.
    """

    reads_programs: ClassVar[bool] = False
    """Whether scoring needs the scheduled program (milliseconds), and so a candidate."""

    scale: float = 1.0
    """How many log2 slow-downs one unit of score is worth, by ``fitted_scale``; a cost model needs
    it to weigh scores against measurements. 1 where a ranker does not know."""

    @abc.abstractmethod
    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Args:
            groups: Training groups; failed programs included.
            validation: Groups of other workloads to stop early by. May be empty.

        Raises:
            BadInputError: Not one group has two programs with different seconds.
        """

    @abc.abstractmethod
    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores programs of one workload, float64 of shape (n,); higher is faster.

        Args:
            programs: Of one workload on one hardware.
            machine: Target and factors of the hardware; None where nothing is known.
            hardware: Its key, for models with a head per hardware.

        Returns:
            Scores that order the programs of this call; NaN for one that cannot be applied.
            Untrained, all zero.
        """

    @abc.abstractmethod
    def save(self, path: Path) -> None:
        """Writes everything ``load`` needs, with schema and feature versions, into one file."""

    @classmethod
    @abc.abstractmethod
    def load(cls, path: Path) -> Ranker:
        """Reads what ``save`` wrote.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
        """


def score_group(ranker: Ranker, group: Group) -> FloatArray:
    """Scores of all programs of a group, shape (n,)."""
    return ranker.score(group.programs, group.machine, group.hardware)


def fitted_scale(judged: Iterable[tuple[FloatArray, FloatArray]]) -> float:
    """Log2 slow-downs per unit of score: least squares within groups, every group alike.

    Args:
        judged: Scores and seconds of each group, both of shape (n,), NaN where there is none;
            groups that the ranker was not trained on, or the scale is too large.

    Returns:
        The scale; 1 where the scores say nothing.
    """
    explained = squares = 0.0
    for scores, seconds in judged:
        known = ~np.isnan(scores) & ~np.isnan(seconds)
        if known.sum() < 2:
            continue
        score, speed = scores[known], -np.log2(seconds[known])
        score = score - score.mean()
        explained += float(score @ (speed - speed.mean())) / len(score)
        squares += float(score @ score) / len(score)
    return explained / squares if explained > 0 and squares > 0 else 1.0
