"""What is expected of candidates before a run, and how far the run's measurements have it believed.

A *prior* answers before anything is measured. What it said of each program that a run measures is
kept beside the seconds (``Measured``), and how far the one explains the other decides what its word
counts for on that workload (``Prior.weighed``). A cost model is composed of a prior, what corrects
it and who drafts: see ``foretune.cost.pretrained``.

Symbols: n candidates; k members of a prior that has several, each with an opinion of its own.
"""

from __future__ import annotations

import abc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import BoolArray, FloatArray
from foretune.cost._opinions import opinion

if TYPE_CHECKING:
    from foretune.cost._ranker import Ranker
    from foretune.records import Trial
    from foretune.space import Candidate

_RULE_STRENGTH = 8.0
_MOST_SLOPE = 2.0


@dataclass
class Measured:
    """Programs of a workload that were measured, in the order in which they came.

    Attributes:
        workload: Its key.
        seconds: Candidate key to seconds; NaN for a failure.
        opinions: Candidate key to what a prior said, one number or shape (k,).
    """

    workload: str
    seconds: dict[str, float] = field(default_factory=dict)
    opinions: dict[str, Any] = field(default_factory=dict)

    def add(self, record: Trial[Candidate], opinion: Any) -> None:
        """Takes a record, in place of an earlier one of the same candidate."""
        best = record.measurement.best_s if record.measurement.ran else None
        self.seconds[record.candidate_key] = float("nan") if best is None else best
        self.opinions[record.candidate_key] = opinion

    def table(self) -> tuple[FloatArray, FloatArray]:
        """All opinions, shape (n,) or (n, k), and seconds, shape (n,)."""
        return np.array(list(self.opinions.values())), np.array(list(self.seconds.values()))

    def levels(self) -> FloatArray:
        """Minus log2 seconds, shape (n,); failures one below the slowest."""
        seconds = np.array(list(self.seconds.values()), dtype=np.float64)
        level = -np.log2(seconds)
        if np.isnan(level).all():
            return np.zeros(len(level))
        return np.nan_to_num(level, nan=float(np.nanmin(level)) - 1.0)

    def timed(self) -> int:
        """How many ran; 0 where all took the same time."""
        times = [s for s in self.seconds.values() if not np.isnan(s)]
        return len(times) if len(set(times)) > 1 else 0

    def slope(self, strength: float) -> float:
        """How far opinions explain minus log2 seconds: least squares, shrunk to 1, at least 0.

        ``strength`` programs with opinions of unit variance weigh as much as the 1.
        """
        opinions, seconds = self.table()
        timed = ~np.isnan(seconds)
        if timed.sum() < 2:
            return 1.0
        fits, speed = opinions[timed], -np.log2(seconds[timed])
        fits, speed = fits - fits.mean(), speed - speed.mean()
        slope = (strength + fits @ speed) / (strength + fits @ fits)
        return float(np.clip(slope, 0.0, _MOST_SLOPE))


class Prior(abc.ABC):
    """What is expected of candidates before measurements, in minus log2 of a slow-down."""

    strength: float = _RULE_STRENGTH
    """How many measurements of a workload weigh as much as what was expected."""

    informed: bool = True
    """Whether it learned from other workloads."""

    @abc.abstractmethod
    def opinions(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What a run keeps of candidates, shape (n,), or (n, k) of members; 0 or NaN: unknown."""

    def weighed(self, opinions: FloatArray, measured: Measured, strength: float) -> FloatArray:
        """Scores of programs of one workload, shape (n,), never NaN.

        Args:
            opinions: As ``opinions`` gave them.
            measured: Of the same workload, perhaps nothing.
            strength: In place of the prior's own.
        """
        scores: FloatArray = measured.slope(strength) * opinions
        return scores

    def refused(self, candidates: Sequence[Candidate]) -> BoolArray:
        """Which candidates, shape (n,), are illegal whatever is measured."""
        return np.zeros(len(candidates), dtype=bool)

    @abc.abstractmethod
    def alone(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores where nothing is learned in the run, shape (n,); NaN for an illegal candidate."""


class RulePrior(Prior):
    """A rule that learned nothing.

    Args:
        rule: Candidates to shape (n,), in minus log2 of a slow-down.
    """

    informed = False

    def __init__(self, rule: Callable[[Sequence[Any]], FloatArray]) -> None:
        self._rule = rule

    def opinions(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the rule says."""
        return self._rule(candidates)

    def alone(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The same."""
        return self._rule(candidates)


class RankerPrior(Prior):
    """A trained ranker.

    Args:
        ranker: It says always the same of a candidate.
        remembered: Candidates of which it is kept what was said; 0: it is asked again.
    """

    def __init__(self, ranker: Ranker, remembered: int = 0) -> None:
        self._ranker, self._most = ranker, remembered
        self._said: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.strength = ranker.strength

    def opinions(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the ranker expects, shape (n,), 0 of a candidate that it cannot judge."""
        expected: FloatArray = np.nan_to_num(self.alone(candidates), nan=0.0)
        return expected

    def alone(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the ranker expects, shape (n,); NaN where it finds that a candidate is illegal."""
        if not self._most:
            return opinion(self._ranker, candidates)
        keys = [(candidate.workload.key, candidate.key) for candidate in candidates]
        known = {key: self._said[key] for key in keys if key in self._said}
        missing = {k: c for k, c in zip(keys, candidates, strict=True) if k not in known}
        if missing:
            said = opinion(self._ranker, list(missing.values())).tolist()
            known.update(zip(missing, said, strict=True))
        for key, value in known.items():
            self._said[key] = value
            self._said.move_to_end(key)
        while len(self._said) > self._most:
            self._said.popitem(last=False)
        return np.array([known[key] for key in keys], dtype=np.float64)


class Weighed:
    """A prior in a run: as far as it explains what was measured.

    Args:
        prior: What is expected.
        strength: In place of the prior's own, if not None.
    """

    def __init__(self, prior: Prior, strength: float | None = None) -> None:
        self.prior = prior
        self._strength = prior.strength if strength is None else strength
        self._measured: dict[str, Measured] = {}

    @property
    def measured(self) -> Sequence[Measured]:
        """All that was measured, by workloads."""
        return list(self._measured.values())

    def forget(self) -> None:
        """Nothing was measured."""
        self._measured = {}

    def learn(self, records: Sequence[Trial[Candidate]]) -> None:
        """Takes records, of whose candidates the prior is asked."""
        said = self.prior.opinions([record.candidate for record in records])
        for record, each in zip(records, said, strict=True):
            self.take(record, each)

    def take(self, record: Trial[Candidate], opinion: Any) -> None:
        """Takes a record of which the prior said ``opinion``."""
        self._measured.setdefault(record.workload, Measured(record.workload)).add(record, opinion)

    def scores(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores of candidates of any workloads, shape (n,), never NaN."""
        scores = np.zeros(len(candidates))
        if not len(candidates):
            return scores
        opinions = self.prior.opinions(candidates)
        names = np.array([candidate.workload.key for candidate in candidates])
        for workload in dict.fromkeys(names.tolist()):
            mine = names == workload
            measured = self._measured.get(workload, Measured(workload))
            scores[mine] = self.prior.weighed(opinions[mine], measured, self._strength)
        return scores

    def scores_of(self, measured: Measured) -> FloatArray:
        """Scores of what was measured of a workload, shape (n,)."""
        return self.prior.weighed(measured.table()[0], measured, self._strength)
