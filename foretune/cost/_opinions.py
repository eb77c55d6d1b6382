"""What a trained ranker says of candidates, whichever workloads and hardware they belong to.

A ranker is asked about one workload on one hardware at a time, and answers in a unit of its own. An
*opinion* is that answer in minus log2 of a slow-down (``Ranker.scale``), up to a constant per
workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost._ranker import Ranker

if TYPE_CHECKING:
    from foretune.dataset import Program
    from foretune.hardware import Hardware
    from foretune.space import Candidate


def opinion(ranker: Ranker, candidates: Sequence[Candidate]) -> FloatArray:
    """What the ranker expects, shape (n,); NaN where it finds that a candidate is illegal."""
    return ranker.scale * answers(candidates, lambda p, h: ranker.score(p, h, h.key))


def expectation(ranker: Ranker, candidates: Sequence[Candidate]) -> FloatArray:
    """``opinion``, 0 in place of NaN."""
    expected: FloatArray = np.nan_to_num(opinion(ranker, candidates), nan=0.0)
    return expected


def illegal_last(scores: FloatArray) -> FloatArray:
    """NaN becomes one below the lowest of the others, where failures are, too."""
    if not np.isnan(scores).any():
        return scores
    lowest = float(np.nanmin(scores, initial=0.0))
    ordered: FloatArray = np.nan_to_num(scores, nan=lowest - 1.0)
    return ordered


def answers(
    candidates: Sequence[Candidate],
    ask: Callable[[list[Program], Hardware], FloatArray],
    width: int = 0,
) -> FloatArray:
    """Answers about candidates: each question is about one workload and hardware.

    Args:
        candidates: Of any workloads.
        ask: Programs of one workload and their hardware to numbers, a row or one for each.
        width: Numbers of a row; 0: there is one number each.

    Returns:
        Shape (n, width), or (n,).
    """
    from foretune.dataset import Program

    table = np.zeros((len(candidates), width) if width else len(candidates))
    groups: dict[tuple[str, int], list[int]] = {}
    for row, candidate in enumerate(candidates):
        groups.setdefault((candidate.workload.key, id(candidate.hardware)), []).append(row)
    for rows in groups.values():
        programs = [Program(candidate=candidates[row]) for row in rows]
        table[rows] = ask(programs, candidates[rows[0]].hardware)
    return table
