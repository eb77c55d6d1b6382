"""Per-store features of candidates from formulas, and from programs where there are none."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.stores._extract import extract_per_store
from foretune.space import structure_of
from foretune.symbolic import UnsupportedTraceError
from foretune.symbolic.formulas import Formulas, formulas

if TYPE_CHECKING:
    import torch

    from foretune.space import Candidate, Sketch, Structure


_log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=128)
def _warn(workload: str, message: str) -> None:
    """Says what of a workload is read from programs, once per process."""
    _log.warning("%s: %s", workload, message)


def extract_batch(
    candidates: Sequence[Candidate], approximate: bool = False
) -> list[FloatArray | None]:
    """Per-store features of candidates from formulas, without making their programs.

    Candidates of sketches that cannot be interpreted are extracted from their programs, with one
    warning that names what is not known, and so are those at points where formulas are not certain.
    Only these can come back as None: a formula does not know whether post-processors accept a
    candidate.

    Args:
        candidates: May belong to several workloads and hardware.
        approximate: Whether formulas are taken where they are not certain, too.

    Returns:
        For each candidate a float64 array of shape (stores, 164), or None if it is illegal.
    """
    extracted: list[FloatArray | None] = [None] * len(candidates)
    groups: dict[tuple[Sketch, Structure], list[int]] = {}
    for at, candidate in enumerate(candidates):
        structure = structure_of(candidate.sketch, candidate.decisions)
        groups.setdefault((candidate.sketch, structure), []).append(at)
    for (sketch, structure), members in groups.items():
        try:
            compiled = formulas(sketch, structure)
        except UnsupportedTraceError as error:
            _warn(sketch.workload.name, str(error))
            rows = extract_per_store([candidates[at] for at in members])
        else:
            points = compiled.points([candidates[at].decisions for at in members])
            rows = list(_exact(compiled, points))
            if not approximate:
                unsure = np.flatnonzero(~np.asarray(compiled.certain(points))).tolist()
                read = extract_per_store([candidates[members[at]] for at in unsure])
                for place, row in zip(unsure, read, strict=True):
                    rows[place] = row
        for at, row in zip(members, rows, strict=True):
            extracted[at] = row
    return extracted


def _exact(compiled: Formulas, points: torch.Tensor) -> FloatArray:
    import torch

    with torch.inference_mode():
        return np.asarray(compiled(points), dtype=np.float64)
