"""What ``benchmarks.world_start`` learns and judges: does a prediction depend on where it starts.

Terminal states of workloads held out are predicted by variants of transitions. Of each prediction
the sums are kept that shares of explained variance are made of, workload by workload: over all
programs, of the workload's mean, and of the differences to it. The initial state is the same for
all programs of a workload; what it says alone is in the mean.

The code of this module is part of what finished cells are kept under.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._rankers import metrics_to_json
from benchmarks.results import say
from foretune.cost import Ranker, score_group
from foretune.cost.world.learning import Lesson, learn
from foretune.cost.world.model import World
from foretune.dataset import Group
from foretune.evaluate import Split, judge, refuse_excluded, thinned
from foretune.space.actions import skeleton_of
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.ranker import WorldVariants

Floats = npt.NDArray[np.float32]
Sums = list[float]
"""Programs, then what a prediction is off by, then what there is: squared distances of all, of the
mean (times programs), of differences to it; then 1 - cosine; then how far programs are moved where
the start is another's, and how far predictions lie from their mean over all workloads."""

PLAIN = "plain"
TRANSITIONS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "plain, 60 passes": {"terminal_epochs": 60},
    "change": {"joins": "change"},
    "end": {"joins": "end"},
    "relative": {"relative": True},
    "relative, end": {"joins": "end", "relative": True},
    "actions only": {"initial": False},
    "end, actions only": {"initial": False, "joins": "end"},
    "relative, end, actions only": {"initial": False, "joins": "end", "relative": True},
    "untrained": {"horizons": [], "terminal_epochs": 0},
}
"""Name -> options of the transitions, beside those of all."""
DECISIONS, TRUE, STATES_ALONE = "decisions alone", "true terminal state", "states alone"


class Swapped(World):
    """A world that can be made to begin a workload's paths where another one's begin.

    Args:
        world: Its parts.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.reader, world.transition, world.unaware)
        self.others: Mapping[str, Any] = {}
        """Key of a workload -> the workload that stands for it."""

    def initial(self, workload: Any) -> Floats:
        """z0 of the other workload where there is one."""
        return super().initial(self.others.get(workload.key, workload))


def partners(groups: Sequence[Group]) -> dict[str, Any]:
    """Key of a workload -> another workload with the same skeleton, where there is one."""
    alike: dict[frozenset[Any], dict[str, Any]] = {}
    for group in groups:
        if group.programs[0].candidate is not None:
            workload = group.programs[0].candidate.workload
            alike.setdefault(skeleton(group), {})[workload.key] = workload
    found: dict[str, Any] = {}
    for workloads in alike.values():
        keys = sorted(workloads)
        if len(keys) > 1:
            found |= {key: workloads[keys[at - 1]] for at, key in enumerate(keys)}
    return found


def skeleton(group: Group) -> frozenset[Any]:
    """What the programs of a workload have in common but for numbers: the steps of each sketch."""
    sketches = {p.candidate.sketch.key: p.candidate.sketch for p in group.programs if p.candidate}
    return frozenset(
        (
            tuple(map(len, sketch.axes.values())),
            tuple(step.kind for step in skeleton_of(sketch)),
        )
        for sketch in sketches.values()
    )


@dataclass(frozen=True)
class Ends:
    """True terminal states and who they belong to.

    Attributes:
        true: Shape (n, d).
        owner: Keys of workloads.
        mean: Mean terminal state of training, shape (d,), not of length 1: who predicts it explains
            nothing.
    """

    true: Floats
    owner: Sequence[str]
    mean: Floats

    def sums(self, predicted: Floats, moved: Floats | None = None) -> dict[str, Sums]:
        """``Sums`` of a prediction by workload.

        Args:
            predicted: Shape (n, d).
            moved: The same with another start; None: there is none.
        """
        owner = np.array(self.owner)
        off, there = self.true - predicted, self.true - self.mean
        length = np.maximum(np.linalg.norm(predicted, axis=1), 1e-6)
        apart = 1.0 - (predicted * self.true).sum(axis=1) / length
        spread = ((predicted - predicted.mean(axis=0)) ** 2).sum(axis=1)
        by = np.zeros(len(owner)) if moved is None else ((predicted - moved) ** 2).sum(axis=1)
        found = {}
        for key in sorted(set(self.owner)):
            at = owner == key
            sums = [*_parts(off[at]), *_parts(there[at])]
            sums += [float(each[at].sum()) for each in (apart, by, spread)]
            found[key] = [float(at.sum()), *sums]
        return found


def _parts(rows: Floats) -> tuple[float, float, float]:
    """Squares of rows: all, of their mean, and of differences to it."""
    wide = rows.astype(np.float64)
    every = float((wide**2).sum())
    mean = float(len(wide) * (wide.mean(axis=0) ** 2).sum())
    return every, mean, every - mean


class Fold:
    """One part of a split: what is learned from it, and how that is judged.

    Args:
        part: The part.
        config: Of the world.
        seed: Of everything.
        threads: That may be used.
        programs: Learned from per group, at most.
        draw: Seeds which of them.
        cache: Folder of features of programs.
    """

    def __init__(
        self,
        part: Split,
        config: WorldStudyConfig,
        *,
        seed: int,
        threads: int,
        programs: int,
        draw: int,
        cache: Path,
    ) -> None:
        self.part, self.config = part, config
        self.cache, self.seed, self.threads = cache, seed, threads
        drawn = thinned((*part.train, *part.validation), programs, draw)
        refuse_excluded(drawn)
        self.train, self.validation = drawn[: len(part.train)], drawn[len(part.train) :]
        self._latest: dict[str, Swapped] = {}

    @cached_property
    def lesson(self) -> Lesson:
        """What is learned from."""
        lesson = Lesson.of(self.train, self.config, self.seed, self.cache, threads=self.threads)
        assert lesson is not None, "some programs of every data set can be made"
        return lesson

    @cached_property
    def tested(self) -> Lesson:
        """What is to be predicted: programs of the test workloads."""
        share = len(self.part.test) / max(1, len(self.train))
        config = replace(self.config, trajectories=max(2, round(self.config.trajectories * share)))
        lesson = Lesson.of(self.part.test, config, self.seed, self.cache, reader=self.lesson.reader)
        assert lesson is not None, "some programs of every data set can be made"
        return lesson

    @cached_property
    def others(self) -> dict[str, Any]:
        """Key of a workload -> the workload that stands for it where states are swapped."""
        return partners((*self.part.test, *self.part.train))

    @cached_property
    def ends(self) -> Ends:
        """True terminal states of what is tested."""
        paths, learned = self.tested.paths, self.lesson.paths
        mean = learned.states[learned.terminal].mean(axis=0)
        return Ends(paths.states[paths.terminal], self.tested.workloads, mean)

    def world(self, transition: str) -> Swapped:
        """The world with some transitions; kept until the next are asked for."""
        if transition not in self._latest:
            self._latest.clear()
            options = {**(self.config.transition_options or {}), **TRANSITIONS[transition]}
            config = replace(self.config, transition_options=options)
            say(f"{self.part.name}: {transition} transitions ...")
            made = learn(self.lesson, config, self.seed, self.threads)
            self._latest[transition] = Swapped(made)
        return self._latest[transition]

    def predicted(self, transition: str) -> dict[str, dict[str, Sums]]:
        """``Sums`` of what transitions predict: from the start, and from another workload's."""
        world, paths = self.world(transition), self.tested.paths
        model = world.transition
        assert model is not None
        workloads = [candidate.workload for candidate in self.tested.seen.candidates]
        starts = {
            "own": [world.initial(one) for one in workloads],
            "swapped": [world.initial(self.others.get(one.key, one)) for one in workloads],
        }
        found = {}
        for name, begun in starts.items():
            states, at = np.unique(np.stack(begun), axis=0, return_inverse=True)
            each = model.rollout(
                states, paths.actions, paths.matrix(), paths.lengths, at.reshape(-1)
            )
            mean = each.mean(axis=0)
            found[name] = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-6)
        own = self.ends.sums(found["own"], found["swapped"])
        swapped = self.ends.sums(found["swapped"])
        return {"own": own, "swapped": {k: v for k, v in swapped.items() if k in self.others}}

    def ranked(self, name: str) -> dict[str, dict[str, Any]]:
        """Metrics of the test groups by row: of one training of trees, with each start."""
        transition, _, alone = name.partition("; ")
        options: dict[str, Any] = {"actions": False} if alone else {}
        world = None
        if transition == TRUE:
            world = Swapped(World(self.lesson.reader, None))
        elif transition != DECISIONS:
            world = self.world(transition)
        state = {DECISIONS: "none", TRUE: "final"}.get(transition, "predicted")
        ranker = WorldVariants(
            seed=self.seed, threads=self.threads, world=world, cache=self.cache, state=state,
            **options,
        )  # fmt: skip
        ranker.fit(self.train, self.validation)
        found = {name: self._judged(ranker, self.part.test)}
        if world is not None and transition != TRUE:
            world.others = self.others
            try:
                tested = [group for group in self.part.test if group.workload in self.others]
                found[f"{name}, swapped"] = self._judged(ranker, tested)
            finally:
                world.others = {}
        return found

    def _judged(self, ranker: Ranker, groups: Sequence[Group]) -> dict[str, Any]:
        found = {}
        for group in groups:
            rng = np.random.default_rng([self.seed, zlib.crc32(group.key.encode())])
            scores = score_group(ranker, group)
            found[group.key] = metrics_to_json(judge(scores, group.seconds, rng))
        return found
