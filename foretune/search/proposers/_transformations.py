"""Short names of what can be changed in a program, for models that answer with names.

=====================  ===========================================================================
``TileSize``           another tiling of a loop
``Parallel``           how many iterations of outer loops are shared out among threads
``Vectorize``          how long innermost loops that become vectors may be
``Unroll``             how far loops are unrolled
``CooperativeFetch``   how wide threads of a GPU load together
``ComputeLocation``    where a block is computed
=====================  ===========================================================================
"""

from __future__ import annotations

import re
from typing import Any

from foretune.space import Choice, ComputeLocation, PerfectTile, Sketch

_CHOICES = {
    "parallel": "Parallel",
    "vectorize": "Vectorize",
    "cooperative_fetch": "CooperativeFetch",
}


def transformation_of(variable: Any) -> str:
    """The short name of what changing a variable does."""
    if isinstance(variable, PerfectTile):
        return "TileSize"
    if isinstance(variable, ComputeLocation):
        return "ComputeLocation"
    assert isinstance(variable, Choice)
    if variable.name.startswith("unroll"):
        return "Unroll"
    return _CHOICES.get(variable.name, "OtherChoice")


def transformations(sketch: Sketch) -> dict[str, list[int]]:
    """Short name -> indices of the variables it may change, those that have two values at least."""
    found: dict[str, list[int]] = {}
    for index, variable in enumerate(sketch.variables):
        if variable.size > 1:
            found.setdefault(transformation_of(variable), []).append(index)
    return found


def canonical(name: str) -> str:
    """What a name is compared by: ``meta_schedule.MutateTileSize(…)`` → ``tilesize``."""
    last = re.sub(r"\(.*", "", name[:200]).rpartition(".")[2]
    letters = re.sub(r"[^a-z]", "", last.lower())
    return letters.removeprefix("mutate")
