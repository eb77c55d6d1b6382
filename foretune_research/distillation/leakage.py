"""How much of what a teacher says is the hint that it was given.

Idea: a teacher that is told how fast a program is may write scores that agree with it, whatever the
program; a student cannot learn that from the program. So the same programs are asked about with
the hint and without it, and the agreement of both with measured speed is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from foretune._arrays import FloatArray
from foretune.describe import METRICS
from foretune.errors import BadInputError
from foretune_research.distillation.teaching import Answered

_LEAST_PROGRAMS = 5
"""Of a group, for a correlation to mean anything."""
_SAME = 1e-9


@dataclass(frozen=True)
class Audit:
    """How far a teacher's scores agree with measured speed, within groups.

    Attributes:
        programs, groups: That were compared.
        hinted: Mean rank correlation of the mean score with speed, where the speed was told.
        unhinted: The same of the same programs, where it was not.
        leak: The difference: what the hint adds.
        metrics: Of each metric the same difference.
    """

    programs: int
    groups: int
    hinted: float
    unhinted: float
    leak: float
    metrics: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def audit(answers: Sequence[Answered]) -> Audit:
    """Compares answers with and without a hint on the programs that have both.

    Raises:
        BadInputError: No group has five such programs of different speed.
    """
    pairs: dict[tuple[str, str], dict[bool, Answered]] = {}
    for each in answers:
        if each.scores is not None:
            question = each.question
            pairs.setdefault((question.group, question.program), {})[question.hinted] = each
    of_group: dict[str, list[dict[bool, Answered]]] = {}
    for (group, _), pair in pairs.items():
        if len(pair) == 2:
            of_group.setdefault(group, []).append(pair)
    rows = []
    programs = 0
    for found in of_group.values():
        speed = np.array([pair[True].question.speed for pair in found])
        if len(found) < _LEAST_PROGRAMS or np.ptp(speed) < _SAME:
            continue
        programs += len(found)
        rows.append([_agreements([pair[told] for pair in found], speed) for told in (True, False)])
    if not rows:
        raise BadInputError(
            f"an audit needs groups of {_LEAST_PROGRAMS} programs that were asked about with a "
            "hint and without it, but there is none: ask with hints > 0 and both=True"
        )
    mean = np.array(rows).mean(axis=0)
    leaks = mean[0] - mean[1]
    names = [metric.name for metric in METRICS]
    return Audit(
        programs, len(rows), float(mean[0, 0]), float(mean[1, 0]), float(leaks[0]),
        dict(zip(names, leaks[1:].tolist(), strict=True)),
    )  # fmt: skip


def _agreements(answers: Sequence[Answered], speed: FloatArray) -> list[float]:
    """Rank correlations with speed: of the mean score, then of each metric; 0 of a constant."""
    scores = np.array([each.scores for each in answers])
    known = ~np.isnan(scores)
    means = np.where(known, scores, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return [_correlation(values, speed) for values in (means, *scores.T)]


def _correlation(values: FloatArray, speed: FloatArray) -> float:
    there = ~np.isnan(values)
    if there.sum() < _LEAST_PROGRAMS or np.ptp(values[there]) < _SAME:
        return 0.0
    found = float(spearmanr(values[there], speed[there]).statistic)
    return 0.0 if np.isnan(found) else found
