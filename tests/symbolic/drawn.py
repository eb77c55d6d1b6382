"""Candidates whose programs are compared with their formulas."""

from __future__ import annotations

import functools

import numpy as np

from foretune.features import extract_per_store
from foretune.space import Candidate, Space
from foretune.workload import Workload, catalog
from tests.space.programs import CPU, PROGRAMS, space


def here(name: str) -> Space:
    """The space of a program of the tests or of the catalog."""
    if name in PROGRAMS:
        return space(name)
    return catalog_space(name)


@functools.lru_cache(maxsize=8)
def catalog_space(name: str) -> Space:
    found = catalog.get(name)
    assert isinstance(found, Workload)
    return Space.generate(found, CPU)


def sampled(where: Space, n: int) -> list[Candidate]:
    drawn = where.sample(np.random.default_rng(0), 6 * n if where.hardware.kind == "cuda" else n)
    legal = [c for c, rows in zip(drawn, extract_per_store(drawn), strict=True) if rows is not None]
    return legal[:n]
