"""The space: sketches, decision variables, candidates.

``protocol`` is what a strategy needs of any space, ``space`` keeps it for the schedules of a
program. ``sketch`` has sketches and candidates, ``decision`` their variables, ``location`` where
blocks may be computed, ``draw`` draws, ``structure`` says what decides which blocks and loops there
are, ``recipe`` moves decisions to another program, ``actions`` writes them as text. Asking TVM:
``trace`` reads what it records, ``_generate`` makes sketches, ``_probe`` and ``_nest`` learn
locations, ``_replay`` transforms programs, ``_products`` knows instructions. Good schedules without
a search: ``_default``, ``_device_default``, ``_tiles``, ``_transpositions``, ``_starts``;
``_registers`` says what a GPU cannot keep.
"""

from foretune.space._default import default_schedule
from foretune.space._device_default import device_schedule, is_scheduled
from foretune.space._registers import MOST_RESULTS, results_per_thread
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
from foretune.space.protocol import SearchCandidate, SearchSketch, SearchSpace
from foretune.space.recipe import Recipe, frame_of
from foretune.space.sketch import Candidate, Sketch
from foretune.space.space import Space
from foretune.space.structure import Structure, structure_of

__all__ = [
    "INLINE",
    "MOST_RESULTS",
    "ROOT",
    "Action",
    "Candidate",
    "Choice",
    "ComputeLocation",
    "Decision",
    "PerfectTile",
    "Recipe",
    "SearchCandidate",
    "SearchSketch",
    "SearchSpace",
    "Sketch",
    "Space",
    "Structure",
    "Variable",
    "default_schedule",
    "device_schedule",
    "frame_of",
    "is_scheduled",
    "location_name",
    "results_per_thread",
    "structure_of",
]
