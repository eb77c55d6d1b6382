"""How two stages become one order, and scores of formulas those of a language model."""

from __future__ import annotations

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.cost.behaviour.columns import MEMORY_NAMES, PROGRAM_NAMES, SCORE_NAMES

_GAP = 0.5
"""log2 slow-down between the last survivor and the first of the discarded."""
_STEP, _ERROR, _LOST = 0.05, 0.1, 0.05
"""Scores of a language model are rounded, wrong by so much, and so often missing."""


def composed(first: FloatArray, survivors: IndexArray, second: FloatArray) -> FloatArray:
    """Every survivor before every program that was discarded; both in their own order.

    Args:
        first: Of the first stage, shape (n,); NaN: not legal.
        survivors: Their rows, shape (k,).
        second: Of the second stage, shape (k,).

    Returns:
        The second stage's scores as they are, those of others between 1/2 and 1 1/2 below.
    """
    scores = np.full(len(first), np.nan)
    discarded = np.flatnonzero(~np.isnan(first))
    discarded = discarded[~np.isin(discarded, survivors)]
    if len(discarded):
        own = first[discarded]
        ranks = np.searchsorted(np.unique(own), own) / len(discarded)
        scores[discarded] = float(second.min(initial=0.0)) - _GAP - 1.0 + ranks
    scores[survivors] = second
    return scores


def lift(first: float, second: float) -> float:
    """What is added to the second stage's scores where a search sees its programs bit by bit.

    Then the least of those that were looked at stands before the best that the first stage chose
    them from, and these others keep their scores, whoever is asked about with them.

    Args:
        first: The most that the first stage said of any that was looked at.
        second: The least that the second stage said of any.
    """
    return first - second + _GAP


def best_first(scores: FloatArray, seed: int) -> IndexArray:
    """Rows by falling score; those that are tied in an order that the file's has no part in."""
    drawn = np.random.default_rng([seed, len(scores)]).permutation(len(scores))
    order: IndexArray = np.lexsort((drawn, -np.nan_to_num(scores, nan=-np.inf)))
    return order


def coarse(table: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Columns as if a language model had scored: rounded, noisy, partly missing, no seconds.

    Args:
        table: What formulas say, shape (n, columns).
        rng: Draws errors.
    """
    rough: FloatArray = table.copy()
    width = len(SCORE_NAMES)
    noisy = np.clip(table[:, :width] + rng.normal(0.0, _ERROR, (len(table), width)), 0.0, 1.0)
    scores = np.round(noisy / _STEP) * _STEP
    scores[rng.random(scores.shape) < _LOST] = np.nan
    rough[:, :width] = scores
    rough[:, width : len(PROGRAM_NAMES) - len(MEMORY_NAMES)] = np.nan
    return rough
