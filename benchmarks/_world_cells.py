"""What ``benchmarks.world`` learns and judges, one part of a split at a time.

The code of this module is part of what finished cells are kept under, so only what their figures
depend on belongs here.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._cells import metrics_to_json
from benchmarks.results import read_json, say
from foretune.bench import write_json
from foretune.cost import Ranker, score_group
from foretune.cost._world_learning import Lesson, WorldConfig, learn
from foretune.cost._world_model import World
from foretune.cost._world_readers import READERS, Reader
from foretune.cost.world import WorldRanker
from foretune.dataset import Group
from foretune.evaluate import Split, judge, refuse_excluded, thinned
from foretune.space import Candidate
from foretune.world import steps_of
from foretune.world.judge import judge as judge_transitions
from foretune.world.transition import TransitionModel

FULL = "world"
SWAPPED = "world, initial states swapped"


@dataclass(frozen=True)
class Variant:
    """One row of the second table.

    Attributes:
        options: Of the ranker.
        transition: Which transitions it is given.
        aware: Whether trees learn from transitions that have seen the workload.
    """

    options: Mapping[str, Any]
    transition: str = "trained"
    aware: bool = False


VARIANTS: Mapping[str, Variant] = {
    FULL: Variant({}),
    "gbdt_actions (state=none)": Variant({"state": "none"}),
    "state=initial": Variant({"state": "initial"}),
    "state=final": Variant({"state": "final"}),
    "actions=false": Variant({"actions": False}),
    "hardware=false": Variant({"hardware": False}),
    "objective=ndcg": Variant({"objective": "ndcg"}),
    "objective=regression": Variant({"objective": "regression"}),
    "transition=untrained": Variant({}, "untrained"),
    "transition=actions_only": Variant({}, "actions_only"),
    "trees see all members": Variant({}, aware=True),
}


class Swapped(World):
    """A world that can be made to begin a workload's paths where another one's begin.

    Args:
        world: Its parts.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.reader, world.transition, world.unaware)
        self.others: Mapping[str, Any] = {}
        """Key of a workload -> the workload that stands for it."""

    def initial(self, workload: Any) -> npt.NDArray[np.float32]:
        """z0 of the other workload where there is one."""
        return super().initial(self.others.get(workload.key, workload))


def skeleton(group: Group) -> frozenset[Any]:
    """What the programs of a workload have in common but for numbers: kinds of steps by sketch."""
    first: dict[str, Candidate] = {}
    for program in group.programs:
        if program.candidate is not None:
            first.setdefault(program.candidate.sketch.key, program.candidate)
    return frozenset(
        (
            tuple(map(len, candidate.sketch.axes.values())),
            frozenset(step.kind for step in steps_of(candidate.actions())),
        )
        for candidate in first.values()
    )


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


class Fold:
    """What is learned from one part of a split, and kept in a folder.

    Args:
        part: The part.
        folder: The folder, of this part and these settings alone.
        config: Of the world.
        seed: Of everything.
        threads: That may be used.
        programs: Learned from per group, at most.
        cache: Folder of replayed states and features, of all folds; None: the parent of
            ``folder``.
    """

    def __init__(
        self,
        part: Split,
        folder: Path,
        config: WorldConfig,
        seed: int,
        threads: int,
        programs: int,
        cache: Path | None = None,
    ) -> None:
        self.part, self.folder, self.config = part, folder, config
        # Programs are the same whichever fold looks at them.
        self.cache = cache or folder.parent
        self.seed, self.threads = seed, threads
        learned = thinned((*part.train, *part.validation), programs, seed)
        refuse_excluded(learned)
        self.train, self.validation = learned[: len(part.train)], learned[len(part.train) :]
        folder.mkdir(parents=True, exist_ok=True)
        self._worlds: dict[str, Swapped] = {}

    @cached_property
    def lesson(self) -> Lesson:
        """What transitions learn from."""
        started = time.perf_counter()
        lesson = Lesson.of(
            self.train,
            self.config,
            self.seed,
            self.cache,
            reader=self.reader(),
            threads=self.threads,
        )
        assert lesson is not None, "some programs of every data set can be made"
        if self.reader() is None:
            lesson.reader.part.save(self._reader_file)
            say(f"{self.part.name}: reader trained in {time.perf_counter() - started:.0f} s")
        return lesson

    @property
    def _reader_file(self) -> Path:
        return self.folder / "reader.npz"

    def reader(self) -> Reader | None:
        """What turns programs into states; None if it is not trained yet."""
        if not self._reader_file.exists():
            return None
        kind: Any = READERS[self.config.target]
        reader: Reader = kind(kind.part_type.load(self._reader_file, threads=self.threads))
        return reader

    def world(self, transition: str) -> Swapped:
        """The world with some transitions."""
        if transition not in self._worlds:
            self._worlds[transition] = Swapped(self._read(transition) or self._learn(transition))
        return self._worlds[transition]

    def _learn(self, transition: str) -> World:
        started = time.perf_counter()
        config = replace(self.config, transition=transition)
        made = learn(self.lesson, config, self.seed, self.threads)
        assert made.transition is not None
        models = list({id(m): m for m in (made.transition, *made.unaware.values())}.values())
        for number, model in enumerate(models):
            model.save(self.folder / f"{transition}-{number}.npz")
        number_of = {id(model): number for number, model in enumerate(models)}
        places = {key: number_of[id(model)] for key, model in made.unaware.items()}
        # Written last: it says that all models are there.
        write_json(self.folder / f"{transition}.json", {"models": len(models), "unaware": places})
        seconds = time.perf_counter() - started
        say(f"{self.part.name}: {transition} transitions made in {seconds:.0f} s")
        return made

    def _read(self, transition: str) -> World | None:
        if not (self.folder / f"{transition}.json").exists():
            return None
        known = read_json(self.folder / f"{transition}.json")
        models = [
            TransitionModel.load(self.folder / f"{transition}-{number}.npz", threads=self.threads)
            for number in range(known["models"])
        ]
        reader = self.reader()
        assert reader is not None, "it is saved before transitions are"
        return World(reader, models[0], {k: models[at] for k, at in known["unaware"].items()})

    def ranker(self, variant: Variant) -> WorldRanker:
        """A variant, trained."""
        needs_world = variant.options.get("state") != "none"
        world = self.world(variant.transition) if needs_world else None
        if world is not None and variant.aware:
            world = Swapped(World(world.reader, world.transition))
        ranker = WorldRanker(
            seed=self.seed,
            threads=self.threads,
            world=world,
            cache=self.cache,
            **dict(variant.options),
        )
        ranker.fit(self.train, self.validation)
        return ranker

    def judged(self, ranker: Ranker) -> dict[str, Any]:
        """Metrics of every test group."""
        return {group.key: self._metrics(ranker, group) for group in self.part.test}

    def swapped(self, ranker: Ranker) -> dict[str, Any]:
        """Metrics of the test groups whose workload has a partner, each begun as its partner.

        The ranker is one that was given ``world("trained")``.
        """
        world = self.world("trained")
        others = partners((*self.part.test, *self.part.train))
        world.others = others
        try:
            tested = [group for group in self.part.test if group.workload in others]
            return {group.key: self._metrics(ranker, group) for group in tested}
        finally:
            world.others = {}

    def _metrics(self, ranker: Ranker, group: Group) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, zlib.crc32(group.key.encode())])
        return metrics_to_json(judge(score_group(ranker, group), group.seconds, rng))

    def terminals(self, count: int) -> list[dict[str, Any]]:
        """How near predictions come on the test workloads, one row per path."""
        reader = self.world("trained").reader
        config = replace(self.config, trajectories=count)
        lesson = Lesson.of(self.part.test, config, self.seed, self.cache, reader=reader)
        assert lesson is not None, "some programs of every data set can be made"
        found = {}
        for name in ("trained", "untrained", "actions_only"):
            model = self.world(name).transition
            assert model is not None
            found[name] = judge_transitions(model, lesson.paths)
        true = found["trained"]
        return [
            {
                "workload": workload,
                "steps": int(true.length[at]),
                "initial": float(true.initial[at]),
                "mean": float(true.mean[at]),
                "spread": float(true.spread[at]),
                "apart": float(true.apart[at]),
                **{name: float(one.predicted[at]) for name, one in found.items()},
                **{f"{name} found": bool(one.found[at]) for name, one in found.items()},
            }
            for at, workload in enumerate(lesson.workloads)
        ]


def train_and_judge(fold: Fold, name: str) -> dict[str, Any]:
    """Metrics by group of the rows that come of one training, by the name of the row."""
    ranker = fold.ranker(VARIANTS[name])
    found = {name: fold.judged(ranker)}
    if name == FULL:
        found[SWAPPED] = fold.swapped(ranker)
    return found
