"""The door to rankers: what orders the programs of a workload after learning from other workloads.

A cost model (``CostModel``) lives inside a tuning run and learns from its measurements. A ranker is
trained once, on a data set, and then only scores; ``foretune.cost.pretrained`` makes a cost model
of it.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._options import require_type
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware


_UNKNOWN_STRENGTH = 16.0
_STRENGTHS = (1.0, 64.0)
_LEAST_GROUPS = 4
"""Of which a variance between groups means something."""
_EQUAL = 1e-9
"""A variance of slopes that is rounding."""


@dataclass(frozen=True)
class Needs:
    """What a ranker has to be given.

    Attributes:
        programs: Scoring needs the scheduled program (milliseconds), and so a candidate.
        nests: Scoring needs programs as nests of loops (``foretune.describe``): of candidates, or
            of logged programs that can be rebuilt.
        options: What its constructor takes beside ``seed`` and the fields of a configuration: name
            to type; None where Python code alone can give it.
        in_run: Arguments of ``load`` beside a tuning run, which needs the cores, whatever it was
            trained with.
    """

    programs: bool = False
    nests: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    in_run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decisions_only(self) -> bool:
        """Whether decisions are enough, microseconds for each candidate."""
        return not (self.programs or self.nests)

    @property
    def folder(self) -> bool:
        """Whether it takes a folder, ``cache``, for what it has read of programs."""
        return "cache" in self.options

    @property
    def in_text(self) -> Sequence[str]:
        """Names of the options that a command line may give."""
        return [name for name, hint in self.options.items() if hint is not None]

    def refuse_text(self, ranker: str, options: Mapping[str, Any]) -> None:
        """Refuses options from a command line that the constructor could not use.

        Args:
            ranker: Its name, for messages.
            options: By name, as JSON has them. Those of a configuration are checked by itself.

        Raises:
            BadInputError: A value is of another type, or only Python code can give it.
        """
        for name in options.keys() & self.options.keys():
            if self.options[name] is None:
                raise BadInputError(
                    f"{ranker}: {name} can be given in Python only, but is among the options: "
                    "leave it out"
                )
            require_type(ranker, name, options[name], self.options[name])


TEXT: Any = str | None
"""Type of an option that is a name or a path, or is left out."""
COUNT: Any = int | None
"""Type of an option that is a number, or is left out."""


class Ranker(abc.ABC):
    """Scores programs of workloads it has never seen.

    Life cycle: construct with ``(seed=..., **options)``, ``fit`` once, ``score`` as often as
    wanted; or ``load`` what ``save`` wrote. Rankers see the programs of one workload on one
    hardware at a time.
    """

    needs: Needs = Needs()
    """Of the class; one that was made may need less or more."""

    store_source: str = "programs"
    """Where a ranker that reads programs has their per-store features from: one of
    ``foretune.features.SOURCES``. Scores are the same."""

    scale: float = 1.0
    """How many log2 slow-downs one unit of score is worth, by ``fitted_scale``; a cost model needs
    it to weigh scores against measurements. 1 where a ranker does not know."""

    strength: float = _UNKNOWN_STRENGTH
    """How many measurements of a workload weigh as much as the belief in ``scale``, by
    ``fitted_strength``."""

    @property
    def modules(self) -> Sequence[str]:
        """Where its code is, and that of the parts it is made of."""
        return (type(self).__module__,)

    @property
    def status(self) -> dict[str, Any]:
        """What became of questions that it asked somebody while it learned: a JSON object."""
        return {}

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

    def prepare(self, groups: Iterable[Group]) -> None:  # noqa: B027 - most read nothing that lasts
        """Reads what it needs of programs, so that later calls find it in the folder it was given.

        What takes long is then not part of the time that learning and scoring take.
        """

    def score_group(self, group: Group) -> FloatArray:
        """Scores of all programs of a group, shape (n,).

        A ranker that needs more than ``score`` is told (the workload's key and kind, from which
        programs that others logged are rebuilt, and the device's data sheet) overrides it.
        """
        return self.score(group.programs, group.machine, group.hardware)

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
    return ranker.score_group(group)


def fitted_scale(judged: Iterable[tuple[FloatArray, FloatArray]]) -> float:
    """Log2 slow-downs per unit of score: least squares within groups, every group alike.

    Args:
        judged: Scores and seconds of each group, both of shape (n,), NaN where there is none;
            groups that the ranker was not trained on, or the scale is too large.

    Returns:
        The scale, at least 0: scores that say the opposite are worth nothing. 1 where nothing
        could be judged.
    """
    explained = squares = 0.0
    for score, speed in _centred(judged):
        explained += float(score @ speed) / len(score)
        squares += float(score @ score) / len(score)
    return max(0.0, explained / squares) if squares > 0 else 1.0


def fitted_strength(judged: Iterable[tuple[FloatArray, FloatArray]], scale: float) -> float:
    """How many measurements of a workload weigh as much as the belief in ``scale``.

    In a workload, minus log2 seconds are taken to be a slope times the scaled scores, and a rest.
    Slopes lie around 1 with a variance over workloads; the ratio of the rest's variance to it is
    how many measurements, with scaled scores of unit variance, a slope of 1 is worth (the ridge
    that is best on average). The variance of the slopes is estimated by moments: what their squared
    distance from 1, weighted by what each workload shows, exceeds the error of each.

    Args:
        judged: As ``fitted_scale`` takes them.
        scale: What it gave.

    Returns:
        From 1 to 64; 16 where fewer than four groups can be judged.
    """
    between = shown = rest = 0.0
    groups = 0
    for score, speed in _centred(judged):
        n, fit = len(score), scale * score
        square = float(fit @ fit)
        if n < 3 or square == 0.0:
            continue
        slope = float(fit @ speed) / square
        error = float(((speed - slope * fit) ** 2).sum()) / (n - 2)
        between += (square * (slope - 1.0) ** 2 - error) / n
        shown += square / n
        rest += error
        groups += 1
    if groups < _LEAST_GROUPS:
        return _UNKNOWN_STRENGTH
    least, most = _STRENGTHS
    variance = between / shown
    return float(np.clip(rest / groups / variance, least, most)) if variance > _EQUAL else most


def _centred(
    judged: Iterable[tuple[FloatArray, FloatArray]],
) -> Iterable[tuple[FloatArray, FloatArray]]:
    """Scores and minus log2 seconds of what ran in each group, less their means."""
    for scores, seconds in judged:
        known = ~np.isnan(scores) & ~np.isnan(seconds)
        if known.sum() < 2:
            continue
        score, speed = scores[known], -np.log2(seconds[known])
        yield score - score.mean(), speed - speed.mean()
