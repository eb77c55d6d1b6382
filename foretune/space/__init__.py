"""The space: sketches, decision variables, candidates."""

from foretune.space._default import default_schedule
from foretune.space.actions import Action
from foretune.space.decision import (
    INLINE,
    ROOT,
    Choice,
    ComputeLocation,
    Decision,
    PerfectTile,
    Variable,
    location_name,
)
from foretune.space.sketch import Candidate, Sketch
from foretune.space.space import Space

__all__ = [
    "INLINE",
    "ROOT",
    "Action",
    "Candidate",
    "Choice",
    "ComputeLocation",
    "Decision",
    "PerfectTile",
    "Sketch",
    "Space",
    "Variable",
    "default_schedule",
    "location_name",
]
