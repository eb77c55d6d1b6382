"""Scores from what a language model writes: validated, clipped or rejected, and counted.

Before → after, for a CPU::

    Sure! {"parallelism_assessment": {"unit_utilization_score": 1.2,
           "load_balance_score": {"score": "0.5", "reasoning_text": "..."}, "speed": 9}}

gives ``unit_utilization_score = 1.0`` (clipped) and ``load_balance_score = 0.5`` (a text), drops
``speed`` (extra), and misses all other metrics. What a model writes is data: nothing
of it is executed, and nothing but the numbers of the schema is looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe import METRICS

_LONGEST = 1 << 16
"""Characters that are looked at: an answer has a few thousand."""
_BESIDE = {"score", "reasoning_text", "description", "bottlenecks", "summary"}
"""What the template of LLMTuner asks for beside scores."""
_GROUPS = {f"{group}_assessment" for group in ("parallelism", "memory", "computation")}
_LEAST_SHARE = 0.5
"""Of the metrics that must be there for an answer to be usable."""


@dataclass
class Counts:
    """What became of answers and of the scores in them.

    Attributes:
        programs: That scores were wanted of.
        answers: Looked at.
        malformed: Hold no JSON object with scores.
        sparse: Hold too few scores to be used.
        clipped: Scores outside of [0, 1], moved to its end.
        texts: Numbers written as texts, read as numbers.
        rejected: Scores that are no finite numbers.
        extra: Entries that the schema does not have, dropped.
        missing: Scores that a usable answer lacks.
        retried: Questions put once more.
        unanswered: Questions without an answer.
        fallback: Programs scored by formulas instead.
        cached: Programs whose scores were known.
    """

    programs: int = 0
    answers: int = 0
    malformed: int = 0
    sparse: int = 0
    clipped: int = 0
    texts: int = 0
    rejected: int = 0
    extra: int = 0
    missing: int = 0
    retried: int = 0
    unanswered: int = 0
    fallback: int = 0
    cached: int = 0

    def add(self, other: Counts) -> None:
        """Adds what another has counted."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def to_json(self) -> dict[str, int]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Reading:
    """One answer.

    Attributes:
        scores: float64 of shape (len(METRICS),), NaN where there is none; None: not usable.
        counts: What was wrong with it.
        told: What to tell the model, where it is not usable.
    """

    scores: FloatArray | None
    counts: Counts
    told: str = ""


def read_scores(text: str, kind: str) -> Reading:
    """Reads an answer.

    Args:
        text: What the model wrote.
        kind: Of the device, ``"cpu"`` or ``"gpu"``: metrics of the other are extra.
    """
    counts = Counts(answers=1)
    wanted = {metric.name: at for at, metric in enumerate(METRICS) if kind in metric.kinds}
    answer = _object(text[:_LONGEST], set(wanted))
    if answer is None:
        counts.malformed = 1
        return Reading(None, counts, "it is no JSON object with the scores that were asked for")
    scores = np.full(len(METRICS), np.nan)
    for name, value in _entries(answer):
        if name not in wanted:
            counts.extra += name not in _BESIDE
            continue
        number = _number(value, counts)
        if number is None:
            counts.rejected += 1
            continue
        counts.clipped += not 0.0 <= number <= 1.0
        scores[wanted[name]] = min(1.0, max(0.0, number))
    known = int((~np.isnan(scores)).sum())
    if known < _LEAST_SHARE * len(wanted):
        counts.sparse = 1
        missing = [name for name, at in wanted.items() if np.isnan(scores[at])]
        return Reading(None, counts, f"numbers in [0, 1] are missing for {', '.join(missing)}")
    counts.missing = len(wanted) - known
    return Reading(scores, counts)


def _object(text: str, names: set[str]) -> dict[str, Any] | None:
    """The first JSON object in a text that holds one of these names, at any depth of groups."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            answer, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(answer, dict) and any(name in names for name, _ in _entries(answer)):
            return answer
        at = text.find("{", end)
    return None


def _entries(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those of groups among them; ``{"score": x}`` is x."""
    for name, value in answer.items():
        if name in _GROUPS and isinstance(value, dict):
            yield from _plain(value)
        else:
            yield from _plain({name: value})


def _plain(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in answer.items():
        yield name, value.get("score") if isinstance(value, dict) else value


def _number(value: Any, counts: Counts) -> float | None:
    """A finite number, or None."""
    if isinstance(value, str):
        text = value.strip()
        share = text.endswith("%")
        try:
            number = float(text.removesuffix("%")) / (100.0 if share else 1.0)
        except ValueError:
            return None
        counts.texts += math.isfinite(number)
        return number if math.isfinite(number) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
