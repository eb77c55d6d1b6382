"""Drawing candidates of one sketch, independently and uniformly."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.space.decision import ComputeLocation
from foretune.space.sketch import Candidate, Sketch


def draw(sketch: Sketch, rng: np.random.Generator, n: int) -> list[Candidate]:
    """``n`` independent candidates of one sketch, duplicates included."""
    columns: list[list[Any]] = []
    for variable in sketch.variables:
        if isinstance(variable, ComputeLocation):
            columns.append(rng.random(n).tolist())
        else:
            columns.append(list(variable.sample(rng, n)))
    if not sketch.location_order:
        return [Candidate.trusted(sketch, row) for row in _rows(columns, n)]
    units = sketch.locations.unit_column(columns, n)
    return [
        Candidate.trusted(sketch, sketch.located(row, functools.partial(_share, row), mask))
        for row, mask in zip(_rows(columns, n), units, strict=True)
    ]


def _share(shares: Sequence[float], index: int, domain: tuple[int, ...]) -> int:
    """The location at a share of its domain, in [0, 1)."""
    return domain[int(shares[index] * len(domain))]


def _rows(columns: Sequence[Sequence[Any]], n: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * n
