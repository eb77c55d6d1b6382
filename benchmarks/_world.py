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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._rankers import metrics_to_json
from benchmarks.results import say
from foretune._torch import limited_threads, seeded
from foretune.cost import Ranker, score_group
from foretune.cost.world.learning import Lesson, learn
from foretune.cost.world.model import World
from foretune.dataset import Group, Program
from foretune.evaluate import Split, judge, refuse_excluded, thinned
from foretune.features import action_columns, action_features
from foretune.space.actions import skeleton_of
from foretune.world._action_inputs import columns_of
from foretune.world.transition import Paths
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.ranker import MACHINE_COLUMNS, WorldVariants

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
INPUTS: Mapping[str, Sequence[str]] = {
    "start": ("start",),
    "actions": ("actions",),
    "actions and start": ("actions", "start"),
    "relative actions": ("relative",),
    "relative actions and start": ("relative", "start"),
    "action features": ("features",),
    "action features and start": ("features", "start"),
}
"""What a network reads at once -> parts of it."""

STEPS = 900
"""Of training a network that reads all at once."""
_WIDTH, _DROPOUT = 512, 0.1
_WORKLOADS, _PROGRAMS = 16, 16
"""Of a batch: so many workloads, so many programs of each."""
_LEARNING_RATE, _WEIGHT_DECAY = 1.5e-3, 0.05
_CLIP, _CONSTANT = 5.0, 1e-6


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

    def explained(self, name: str) -> dict[str, Sums]:
        """``Sums`` of what a network predicts that reads ``INPUTS[name]`` at once."""
        learned, tested = (
            np.concatenate([_read(lesson, part) for part in INPUTS[name]], axis=1)
            for lesson in (self.lesson, self.tested)
        )
        paths = self.lesson.paths
        with limited_threads(self.threads):
            network = trained(learned, paths.states[paths.terminal], paths.workload, self.seed)
            return self.ends.sums(network.ends(tested))

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


def _read(lesson: Lesson, part: str) -> Floats:
    paths = lesson.paths
    if part == "start":
        return paths.states[paths.initial]
    if part in ("actions", "relative"):
        return bag(paths, relative=part == "relative")
    described = action_features([Program(candidate=one) for one in lesson.seen.candidates])
    kept = [i for i, c in enumerate(action_columns()) if not c.name.startswith(MACHINE_COLUMNS)]
    return np.asarray(described[:, kept], dtype=np.float32)


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


class Network(nn.Module):
    """Standardised columns through two layers to a state.

    Args:
        columns: What is read of training programs, shape (n, C).
        dimension: Of states.
    """

    def __init__(self, columns: Floats, dimension: int) -> None:
        super().__init__()
        deviation = columns.std(axis=0)
        self._kept = np.flatnonzero(deviation > _CONSTANT)
        self._shift, self._factor = columns.mean(axis=0)[self._kept], 1 / deviation[self._kept]
        self.layers = nn.Sequential(
            nn.Linear(len(self._kept), _WIDTH), nn.GELU(), nn.Dropout(_DROPOUT),
            nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Dropout(_DROPOUT),
            nn.Linear(_WIDTH, dimension),
        )  # fmt: skip

    def inputs(self, columns: Floats) -> Tensor:
        """What the layers read of columns, shape (n, C)."""
        scaled = (columns[:, self._kept] - self._shift) * self._factor
        return torch.from_numpy(np.clip(scaled, -_CLIP, _CLIP).astype(np.float32))

    def ends(self, columns: Floats) -> Floats:
        """Terminal states, of length 1, shape (n, d)."""
        with torch.inference_mode():
            found: Floats = functional.normalize(self.layers(self.inputs(columns)), dim=1).numpy()
        return found


def trained(columns: Floats, ends: Floats, owner: npt.NDArray[np.int64], seed: int) -> Network:
    """A network that was trained to say where programs end.

    Args:
        columns: Of each program, shape (n, C).
        ends: Its terminal state, shape (n, d).
        owner: Number of its workload, shape (n,).
        seed: Of weights and batches.
    """
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(owner == number) for number in np.unique(owner)]
    with seeded(seed):
        network = Network(columns, ends.shape[1])
        given, wanted = network.inputs(columns), torch.from_numpy(ends)
        descent = torch.optim.AdamW(network.parameters(), weight_decay=_WEIGHT_DECAY)
        pace = torch.optim.lr_scheduler.OneCycleLR(descent, _LEARNING_RATE, total_steps=STEPS)
        for _ in range(STEPS):
            drawn = rng.choice(len(rows), _WORKLOADS)
            at = np.concatenate([rng.choice(rows[number], _PROGRAMS) for number in drawn])
            loss = (network.layers(given[at]) - wanted[at]).square().sum(dim=-1).mean()
            descent.zero_grad()
            loss.backward()
            descent.step()
            pace.step()
    return network.eval()
