"""What of a candidate decides which blocks and loops there are; the rest decides their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.space.decision import Choice, ComputeLocation, Decision

if TYPE_CHECKING:
    from foretune.space.sketch import Sketch

_LIMITS = ("parallel", "vectorize")


@dataclass(frozen=True)
class Structure:
    """The decisions that decide which blocks and loops there are.

    Attributes:
        locations: One per location variable, in the order of the variables.
        parallel: Whether the limit of parallel iterations is on.
        vectorize: Whether the limit of vector lanes is on.
    """

    locations: tuple[int, ...] = ()
    parallel: bool = True
    vectorize: bool = True


def structure_of(sketch: Sketch, decisions: Sequence[Decision]) -> Structure:
    """The structure that a candidate's decisions decide."""
    locations = []
    on = dict.fromkeys(_LIMITS, True)
    for variable, decision in zip(sketch.variables, decisions, strict=True):
        if isinstance(variable, ComputeLocation):
            assert isinstance(decision, int)
            locations.append(decision)
        elif isinstance(variable, Choice) and variable.name in _LIMITS:
            assert isinstance(decision, int)
            on[variable.name] = variable.values[decision] != 0
    return Structure(tuple(locations), **on)
