"""Programs replayed state by state, for the world model over texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.cost.world.programs import drawn
from foretune.space import Candidate
from foretune_research.world.states import StateStore
from foretune_research.world.trajectories import Trajectory, trajectories_of

if TYPE_CHECKING:
    from foretune.dataset import Group

_log = logging.getLogger("foretune.cost.world")


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


def final_texts(candidates: Sequence[Candidate], cache: Path | None) -> list[str | None]:
    """The texts of the programs that candidates end in; None where TVM refuses one.

    Args:
        candidates: Which.
        cache: Folder in which states are kept; None: nowhere.
    """
    with StateStore(cache) as store:
        found = trajectories_of(candidates, store)
        texts = iter(store.texts([one.states[-1] for one in found if one is not None]))
        return [None if one is None else next(texts) for one in found]
