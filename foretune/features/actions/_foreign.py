"""Features of schedules that others measured: actions without a sketch.

Ansor's, AutoTVM's and older MetaSchedule's steps name stages by numbers, so that the same position
means different things in different sketches. Numbers are therefore aligned by what they are:
annotations by kind, splits in their order, tile sizes per level; only the first steps are also
given as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions._columns import (
    CHOICES,
    FOREIGN_ANNOTATIONS,
    FOREIGN_NUMBERS,
    FOREIGN_SPLITS,
    FOREIGN_STEPS,
    REDUCTION_PARTS,
    SPATIAL_PARTS,
)
from foretune.features.tokens import scaled

if TYPE_CHECKING:
    from foretune.space import Action


def foreign_features(actions: Sequence[Action]) -> FloatArray:
    """The values of the section ``foreign`` of one program, shape (width,)."""
    flags = np.zeros(1 + FOREIGN_ANNOTATIONS + len(CHOICES))
    splits = []
    steps = np.zeros((FOREIGN_STEPS, FOREIGN_NUMBERS))
    for at, action in enumerate(actions):
        seen = _read(action)
        if seen.flag >= 0:
            flags[seen.flag] = flags[seen.flag] + 1 if seen.counted else seen.value
        if seen.factors:
            splits.append(seen.factors)
        if at < FOREIGN_STEPS:
            steps[at, : len(seen.numbers)] = seen.numbers
    table = np.zeros((FOREIGN_SPLITS, 1 + SPATIAL_PARTS))
    for each, factors in zip(table, splits, strict=False):
        each[0] = sum(factors)
        inner = factors[::-1][:SPATIAL_PARTS]
        each[1 : 1 + len(inner)] = inner
    return np.concatenate([flags, _foreign_levels(splits), table.reshape(-1), steps.reshape(-1)])


def _foreign_levels(splits: Sequence[tuple[float, ...]]) -> FloatArray:
    """Products per part of the splits with the most parts (spatial), and of those with fewer."""
    levels = np.zeros(SPATIAL_PARTS + REDUCTION_PARTS)
    most = max(map(len, splits), default=0)
    for factors in splits:
        spatial = len(factors) == most
        inner = factors[::-1][: SPATIAL_PARTS if spatial else REDUCTION_PARTS]
        start = 0 if spatial else SPATIAL_PARTS
        levels[start : start + len(inner)] += inner
    return levels


@dataclass(frozen=True)
class _Reading:
    """What one action of others says.

    Attributes:
        factors: log2 of the factors of a split, outermost first; empty for other actions.
        flag: Column among pragma, annotations and choices that it sets; -1: none.
        value: What it sets it to.
        counted: Whether the column counts instead.
        numbers: Its first numbers, scaled.
    """

    factors: tuple[float, ...] = ()
    flag: int = -1
    value: float = 0.0
    counted: bool = False
    numbers: tuple[float, ...] = ()


@functools.lru_cache(maxsize=1 << 16)
def _read(action: Action) -> _Reading:
    numbers = tuple(scaled(a) for a in action.args if not isinstance(a, str))[:FOREIGN_NUMBERS]
    last = action.args[-1] if action.args else ""
    flag, value, counted = -1, 0.0, False
    if action.kind == "PR":
        steps = str(last).rpartition("$")[2]
        flag, value = 0, math.log2(1 + int(steps)) if steps.isdigit() else 0.0
    elif action.kind == "AN" and last in range(FOREIGN_ANNOTATIONS):
        flag, counted = 1 + int(last), True
    elif action.kind == "annotate" and len(action.args) > 2:
        name = str(action.args[1]).rpartition(".")[2]
        amount = action.args[2]
        if name in CHOICES and not isinstance(amount, str):
            flag = 1 + FOREIGN_ANNOTATIONS + CHOICES.index(name)
            value = math.log2(1 + max(0, amount))
    return _Reading(_factors_of(action), flag, value, counted, numbers)


def _factors_of(action: Action) -> tuple[float, ...]:
    """log2 of the factors of a split, outermost first.

    Ansor gives the extent and the inner lengths, AutoTVM -1 for the outer factor; what is unknown
    counts as 1.
    """
    sizes: list[float]
    if action.kind == "SP" and len(action.args) > 3:
        # Stage, iterator, extent, lengths, and whether they go from the inside to the outside.
        extent, *lengths = [a if isinstance(a, (int, float)) else 1 for a in action.args[2:-1]]
        sizes = [max(1.0, extent / max(1, math.prod(lengths))), *lengths]
    elif action.kind in ("split", "sp"):
        sizes = [a for a in action.args[1:] if not isinstance(a, str)]
    else:
        return ()
    return tuple(math.log2(max(1, size)) for size in sizes)
