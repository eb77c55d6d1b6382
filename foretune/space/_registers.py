"""What one thread of a GPU keeps: candidates that no number of registers holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foretune.space.decision import PerfectTile

if TYPE_CHECKING:
    from foretune.space.protocol import SearchCandidate

MOST_RESULTS = 255
"""Registers that a thread of an NVIDIA GPU may have."""

_PARTS = 5
_OF_A_THREAD = (1, 3, 4)
"""Parts of a spatial loop: blocks, virtual threads, threads, and two loops in a thread."""


def results_per_thread(candidate: SearchCandidate) -> int:
    """The most results of one block of a GPU program that a thread holds at once.

    1 where nothing is tiled for threads, and for processors.
    """
    if candidate.hardware.has_cores:
        return 1
    held: dict[str, int] = {}
    for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
        if isinstance(variable, PerfectTile) and variable.parts == _PARTS:
            assert isinstance(decision, tuple)
            block = variable.name.rpartition(".")[0]
            inside = math.prod(decision[part] for part in _OF_A_THREAD)
            held[block] = held.get(block, 1) * inside
    return max(held.values(), default=1)
