"""Training programs that the ranker ``world`` looks at: replayed, or described by features.

``drawn`` chooses them, ``observe`` replays them state by state, ``measure`` makes each and reads
its features.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.cost.world.actions import Floats, Integers
from foretune.cost.world.readers import FeatureReader, Reader, TextReader, vectors_of
from foretune.space import Candidate
from foretune.world import StateStore, Trajectory, steps_of, trajectories_of

if TYPE_CHECKING:
    from foretune.dataset import Group

_log = logging.getLogger("foretune.cost.world")

_REPORT_EVERY = 500
"""Programs."""


@dataclass(frozen=True)
class Observed:
    """Training programs that were replayed.

    Attributes:
        candidates: They.
        trajectories: Of each, its states.
        seconds: Of each, how long it took, as a multiple of the fastest of its group, so that
            those on several machines compare; NaN for a failure.
        texts: Key of a state -> its text.
    """

    candidates: Sequence[Candidate]
    trajectories: Sequence[Trajectory]
    seconds: Sequence[float]
    texts: Mapping[str, str]

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Keys of the workloads, sorted."""
        return tuple(sorted(set(self.owner)))

    @cached_property
    def owner(self) -> tuple[str, ...]:
        """Key of the workload of each."""
        return tuple(trajectory.workload for trajectory in self.trajectories)

    def states(self, reader: Reader) -> tuple[Floats, list[Integers]]:
        """All states, shape (S, d), and of each program those that it goes through."""
        assert isinstance(reader, TextReader)
        place = {key: at for at, key in enumerate(self.texts)}
        _log.info("encoding %d states", len(place))
        states = reader.encoder.encode(list(self.texts.values()))
        return states, [np.array([place[key] for key in one.states]) for one in self.trajectories]


@dataclass(frozen=True)
class Measured:
    """Training programs that were made and described by their features.

    Attributes:
        candidates: They.
        vectors: Features of each, shape (n, V).
    """

    candidates: Sequence[Candidate]
    vectors: Floats

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Keys of the workloads, sorted."""
        return tuple(sorted(set(self.owner)))

    @cached_property
    def owner(self) -> tuple[str, ...]:
        """Key of the workload of each."""
        return tuple(candidate.workload.key for candidate in self.candidates)

    def states(self, reader: Reader) -> tuple[Floats, list[Integers]]:
        """Initial and terminal states, shape (S, d), and of each program the first and the last.

        What is between is not known.
        """
        assert isinstance(reader, FeatureReader)
        first: dict[str, int] = {}
        initial = []
        for candidate in self.candidates:
            if candidate.workload.key not in first:
                first[candidate.workload.key] = len(first)
                initial.append(reader.initial(candidate.workload))
        states = np.concatenate([np.stack(initial), reader.states.of(self.vectors)])
        ends = enumerate(self.owner, len(initial))
        return states, [np.array([first[key], at]) for at, key in ends]


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


def observe(groups: Sequence[Group], count: int, seed: int, cache: Path | None = None) -> Observed:
    """Replays about ``count`` programs, as many of each workload.

    Those that TVM refuses, and those without steps, are left out.

    Args:
        groups, count, seed: As for ``drawn``.
        cache: Folder in which states are kept; None: in memory.
    """
    chosen = drawn(groups, count, seed)
    candidates = [candidate for candidate, _ in chosen]
    with StateStore(cache) as store:
        found = trajectories_of(candidates, store, progress=_log.info)
        kept = [at for at, one in enumerate(found) if one is not None and one.actions]
        trajectories = [one for at in kept if (one := found[at]) is not None]
        keys = sorted({key for one in trajectories for key in one.states})
        texts = dict(zip(keys, store.texts(keys), strict=True))
    return Observed(
        [candidates[at] for at in kept], trajectories, [chosen[at][1] for at in kept], texts
    )


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
    found = []
    for begin in range(0, len(candidates), _REPORT_EVERY):
        found += vectors_of(candidates[begin : begin + _REPORT_EVERY], cache)
        _log.info("%d of %d programs described", len(found), len(candidates))
    kept = [at for at, vector in enumerate(found) if vector is not None]
    vectors = [vector for vector in found if vector is not None]
    return Measured(
        [candidates[at] for at in kept],
        np.stack(vectors) if vectors else np.zeros((0, 0), np.float32),
    )
