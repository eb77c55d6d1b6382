"""Which trials of a run's JSON object failed, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_ENDED = ("ok", "cut_short")
"""Statuses of candidates that ran."""


def failures(trials: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many trials failed, by status.

    Args:
        trials: Entries of ``trials`` of a task of a ``foretune.tune/1`` object.
    """
    return Counter(str(trial["status"]) for trial in trials if trial["status"] not in _ENDED)
