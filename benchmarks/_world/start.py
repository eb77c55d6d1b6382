"""What ``benchmarks.world_start`` learns and judges: does a prediction depend on where it starts.

Terminal states of workloads held out are predicted by variants of transitions and by networks that
read one thing or another at once. Of each prediction the sums are kept that shares of explained
variance are made of, workload by workload: over all programs, of the workload's mean, and of the
differences to it. The initial state is the same for all programs of a workload; what it says alone
is in the mean.

The code of this module is part of what finished cells are kept under.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._model.cells import metrics_to_json
from benchmarks._world.cells import Fold, SharedRanker, Variant
from benchmarks._world.direct import trained
from benchmarks._world.learned import Swapped
from benchmarks.results import say
from foretune._torch import limited_threads
from foretune.cost import Ranker, score_group
from foretune.cost.world.learning import Lesson, learn
from foretune.cost.world.model import World
from foretune.dataset import Group, Program
from foretune.evaluate import judge
from foretune.features import action_columns, action_features
from foretune.world._action_inputs import columns_of
from foretune.world.transition import Paths
from foretune_research.world.ranker import MACHINE_COLUMNS, WorldVariants

Floats = npt.NDArray[np.float32]
Sums = list[float]
"""Programs, then what a prediction is off by, then what there is: squared distances of all, of the
mean (times programs), of differences to it; then 1 - cosine; then how far programs are moved where
the start is another's, and how far predictions lie from their mean over all workloads."""

PLAIN = "plain"
UNTRAINED = "untrained"
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
    UNTRAINED: {"horizons": [], "terminal_epochs": 0},
}
"""Name -> options of the transitions, beside those of all."""
DECISIONS, TRUE, STATES_ALONE = "decisions alone", "true terminal state", "states alone"
INPUTS: Mapping[str, Sequence[str]] = {
    "start": ("start",),
    "actions": ("actions",),
    "actions and start": ("actions", "start"),
    "relative actions": ("relative",),
    "relative actions and start": ("relative", "start"),
    "action features": ("features",),
    "action features and start": ("features", "start"),
    "action features without the workload": ("own features",),
    "action features without the workload, and start": ("own features", "start"),
}
"""What a network reads at once -> parts of it."""
_OF_WORKLOADS = (
    "workload.", "footprint", "traffic.", "read", "write.", "summary.footprint", "generated.",
)  # fmt: skip
"""Columns of action features that look at the untransformed program begin so."""


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


class StartFold(Fold):
    """One part of a split, with transitions by the names of ``TRANSITIONS``."""

    def world(self, transition: str) -> Swapped:
        """The world with some transitions; kept until the next are asked for."""
        if transition not in TRANSITIONS:
            return super().world(transition)
        known = self.__dict__.setdefault("_latest", {})
        if transition not in known:
            known.clear()
            options = {**(self.config.transition_options or {}), **TRANSITIONS[transition]}
            config = replace(self.config, transition_options=options)
            say(f"{self.part.name}: {transition} transitions ...")
            known[transition] = Swapped(learn(self.learned.lesson, config, self.seed, self.threads))
        found: Swapped = known[transition]
        return found

    @cached_property
    def tested(self) -> Lesson:
        """What is to be predicted: programs of the test workloads."""
        reader = self.learned.lesson.reader
        share = len(self.part.test) / max(1, len(self.train))
        config = replace(self.config, trajectories=max(2, round(self.config.trajectories * share)))
        lesson = Lesson.of(self.part.test, config, self.seed, self.cache, reader=reader)
        assert lesson is not None, "some programs of every data set can be made"
        return lesson

    @cached_property
    def ends(self) -> Ends:
        """Their terminal states."""
        paths, learned = self.tested.paths, self.learned.lesson.paths
        mean = learned.states[learned.terminal].mean(axis=0)
        return Ends(paths.states[paths.terminal], self.tested.workloads, mean)

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
        there = set(self.others)
        swapped = self.ends.sums(found["swapped"])
        return {"own": own, "swapped": {k: v for k, v in swapped.items() if k in there}}

    def explained(self, name: str) -> dict[str, Sums]:
        """``Sums`` of what a network predicts that reads ``INPUTS[name]`` at once."""
        learned, tested = (
            np.concatenate([self._read(lesson, part) for part in INPUTS[name]], axis=1)
            for lesson in (self.learned.lesson, self.tested)
        )
        paths = self.learned.lesson.paths
        with limited_threads(self.threads):
            network = trained(
                learned, paths.states[paths.terminal], paths.workload, self.seed, within_weight=0.0
            )
            return self.ends.sums(network.ends(tested))

    def _read(self, lesson: Lesson, part: str) -> Floats:
        paths = lesson.paths
        if part == "start":
            return paths.states[paths.initial]
        if part in ("actions", "relative"):
            return bag(paths, relative=part == "relative")
        described = action_features([Program(candidate=one) for one in lesson.seen.candidates])
        hidden = MACHINE_COLUMNS + (_OF_WORKLOADS if part == "own features" else ())
        kept = [i for i, c in enumerate(action_columns()) if not c.name.startswith(hidden)]
        return np.asarray(described[:, kept], dtype=np.float32)

    def ranked(self, name: str) -> dict[str, dict[str, Any]]:
        """Metrics of the test groups by row: of one training of trees, with each start."""
        transition, _, alone = name.partition("; ")
        options: dict[str, Any] = {"actions": False} if alone else {}
        fixed = {DECISIONS: "none", TRUE: "final"}
        world = None
        if transition in fixed:
            options["state"] = fixed[transition]
        if transition == TRUE:
            world = Swapped(World(self.learned.lesson.reader, None))
        elif transition != DECISIONS:
            world = self.world(transition)
        ranker: WorldVariants = SharedRanker(
            self._kept, self._known, Variant(options, transition),
            seed=self.seed, threads=self.threads, world=world, cache=self.cache,
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


def bag(paths: Paths, relative: bool) -> Floats:
    """Actions of paths without their order: sums of words times numbers, shape (P, e (1 + N)).

    Args:
        paths: Of which.
        relative: Whether factors of splits are shares of the extent.
    """
    table = paths.actions
    columns = columns_of(table, relative)
    words, numbers = np.split(columns, [table.texts.shape[1]], axis=1)
    numbers = np.concatenate([np.ones((len(numbers), 1)), numbers], axis=1)
    each = (words[:, :, None] * numbers[:, None, :]).reshape(len(words), -1).astype(np.float32)
    found: Floats = np.add.reduceat(each[paths.flat_actions], paths.starts, axis=0)
    return found
