"""Training programs that the ranker ``world`` looks at.

``drawn`` chooses them, ``measure`` makes each and reads its features.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array
from foretune.cost.gbdt import program_vector
from foretune.features import candidate_rows
from foretune.space import Candidate
from foretune.world import steps_of

if TYPE_CHECKING:
    from foretune.dataset import Group

_log = logging.getLogger("foretune.cost.world")

_REPORT_EVERY = 500
"""Programs."""


@dataclass(frozen=True)
class Measured:
    """Training programs that were made and described by their features.

    Attributes:
        candidates: They.
        vectors: Features of each, shape (n, V).
    """

    candidates: Sequence[Candidate]
    vectors: Float32Array

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Keys of the workloads, sorted."""
        return tuple(sorted(set(self.owner)))

    @cached_property
    def owner(self) -> tuple[str, ...]:
        """Key of the workload of each."""
        return tuple(candidate.workload.key for candidate in self.candidates)


def replayable(candidate: Candidate | None) -> bool:
    """Whether a candidate's program can be made: it is one of ours and has a program."""
    return candidate is not None and bool(candidate.workload.module_json)


def drawn(groups: Sequence[Group], count: int, seed: int) -> list[tuple[Candidate, float]]:
    """About ``count`` programs, as many of each workload, and how long each took.

    Programs that differ by the hardware alone are one.

    Args:
        groups: Training groups.
        count: Programs over all workloads.
        seed: Decides which.

    Returns:
        Candidates, and their seconds as multiples of the fastest of the group.
    """
    rng = np.random.default_rng(seed)
    pools: dict[str, dict[Any, tuple[Candidate, float]]] = {}
    for group in groups:
        pool = pools.setdefault(group.workload, {})
        fastest = np.nanmin(group.seconds, initial=np.inf)
        relative = (group.seconds / fastest).tolist()
        for program, seconds in zip(group.programs, relative, strict=True):
            candidate = program.candidate
            if candidate is not None and replayable(candidate):
                pool.setdefault((candidate.sketch.trace, candidate.decisions), (candidate, seconds))
    chosen: list[tuple[Candidate, float]] = []
    filled = {key: list(pool.values()) for key, pool in pools.items() if pool}
    each = max(1, count // max(1, len(filled)))
    for key in sorted(filled):
        pool_ = filled[key]
        at = rng.permutation(len(pool_))[:each]
        chosen += [pool_[i] for i in at.tolist()]
    return chosen


def measure(groups: Sequence[Group], count: int, seed: int, cache: Path | None = None) -> Measured:
    """Makes and describes about ``count`` programs, as many of each workload.

    Those that TVM refuses, and those without steps, are left out.

    Args:
        groups, count, seed: As for ``drawn``.
        cache: Folder in which features are kept; None: in memory.
    """
    candidates = [
        candidate for candidate, _ in drawn(groups, count, seed) if steps_of(candidate.actions())
    ]
    described = []
    for begin in range(0, len(candidates), _REPORT_EVERY):
        described += vectors_of(candidates[begin : begin + _REPORT_EVERY], cache)
        _log.info("%d of %d programs described", len(described), len(candidates))
    kept = [at for at, vector in enumerate(described) if vector is not None]
    vectors = [vector for vector in described if vector is not None]
    return Measured(
        [candidates[at] for at in kept],
        np.stack(vectors) if vectors else np.zeros((0, 0), np.float32),
    )


def vectors_of(candidates: Sequence[Candidate], cache: Path | None) -> list[Float32Array | None]:
    """Features of the programs that candidates end in, shape (V,); None where TVM refuses one.

    Args:
        candidates: Which.
        cache: Folder in which features are kept; None: in memory.
    """
    rows = candidate_rows(candidates, cache)
    return [None if each is None else program_vector(each) for each in rows]
