"""Nests of loops of candidates, in batches and without making their programs.

A sketch is interpreted once per structure (``foretune.symbolic``): its loops, indices and
buffers are expressions of tile factors and choices then, whose values for a batch of candidates are
the numbers of a ``Nests``. What the interpreter does not know is read from programs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import IndexArray
from foretune.describe._nests import Nests, stacked
from foretune.describe._programs import nests_of_program
from foretune.errors import IllegalCandidateError
from foretune.space import structure_of

if TYPE_CHECKING:
    from foretune.describe._form import Form
    from foretune.space import Candidate, Sketch, Structure


_log = logging.getLogger(__name__)
_CACHED = 1024
"""Structures kept per process, some 0.1 MB each. One softmax has 313."""


def nests_of(candidates: Sequence[Candidate]) -> list[tuple[IndexArray, Nests]]:
    """Nests of candidates, one batch for all that have the same loops and statements.

    Programs are made only of fixed schedules, and of candidates of sketches that cannot be
    interpreted, with one warning that says why.

    Args:
        candidates: May belong to several workloads and hardware.

    Returns:
        Row numbers and the batch of these rows, one entry per structure. Candidates that
        post-processors refuse are in none, as far as is known without making them.
    """
    groups: dict[tuple[Sketch, Structure], list[int]] = {}
    for row, candidate in enumerate(candidates):
        structure = structure_of(candidate.sketch, candidate.decisions)
        groups.setdefault((candidate.sketch, structure), []).append(row)
    made: list[tuple[IndexArray, Nests]] = []
    for (sketch, structure), members in groups.items():
        if not sketch.variables:
            # A fixed schedule, of whatever instructions: its one program is made.
            made += _from_programs(candidates, members)
            continue
        rows = np.array(members, np.intp)
        form = _form(sketch, structure)
        if isinstance(form, str):
            _warn(sketch.workload.name, form)
            made += _from_programs(candidates, members)
            continue
        legal, nests = form.nests([candidates[row].decisions for row in members])
        if len(nests):
            made.append((rows[legal], nests))
    return made


@functools.lru_cache(maxsize=_CACHED)
def _form(sketch: Sketch, structure: Structure) -> Form | str:
    """The formulas of a structure, or why there are none."""
    # Loads symbolic programs: who asks for no behaviour does without.
    from foretune.describe._form import form_of

    return form_of(sketch, structure)


@functools.lru_cache(maxsize=_CACHED)
def _warn(workload: str, why: str) -> None:
    """Says what of a workload is read from programs, once per process."""
    _log.warning("%s: %s", workload, why)


def _from_programs(
    candidates: Sequence[Candidate], members: Iterable[int]
) -> list[tuple[IndexArray, Nests]]:
    groups: dict[object, tuple[list[int], list[Nests]]] = {}
    for row in members:
        candidate = candidates[row]
        try:
            module = candidate.apply()
        except IllegalCandidateError:
            continue
        nests = nests_of_program(module, candidate.hardware.target)
        rows, several = groups.setdefault(nests.structure, ([], []))
        rows.append(row)
        several.append(nests)
    return [(np.array(rows, np.intp), stacked(several)) for rows, several in groups.values()]
