"""What ``benchmarks.world`` learns and judges, one part of a split at a time.

The code of this module is part of what finished cells are kept under, so only what their figures
depend on belongs here. What is learned once for all variants is in ``benchmarks._world.learned``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._model.cells import metrics_to_json
from benchmarks._world.direct import Direct
from benchmarks._world.learned import Learned, Swapped
from foretune.cost import Ranker, score_group
from foretune.cost._tables import Rows
from foretune.cost.world.learning import Lesson
from foretune.cost.world.model import World
from foretune.dataset import Group, Program
from foretune.evaluate import Split, judge, refuse_excluded, thinned
from foretune.features import action_features
from foretune.hardware import Hardware
from foretune.space.actions import skeleton_of
from foretune.world.transition import TransitionModel
from foretune_research.transitions import Terminals, judge_ends
from foretune_research.transitions import judge as judge_transitions
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.ranker import WorldVariants

FULL = "world"
SWAPPED = "world, initial states swapped"
NONE = "gbdt_actions (state=none)"
INITIAL = "state=initial"
"""Not trained: z0 is the same for all programs of a workload, and trees read only what differs
within workloads, so that they are those of ``NONE``, tree by tree."""
DIRECT = ("direct", "direct_actions")
"""Worlds that predict in one step (``benchmarks._world.direct``), with and without z0."""
PREDICTIONS = ("untrained", "actions_only", "swapped", *DIRECT, "trained")
"""Whose predicted terminal states are judged; ``swapped``: the trained ones', begun elsewhere."""
_SPLIT_SEED = 0
"""As in ``benchmarks._model.cells``: equal scores are put in the same order there."""


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
    NONE: Variant({"state": "none"}),
    "state=final": Variant({"state": "final"}),
    "actions=false": Variant({"actions": False}),
    "hardware=false": Variant({"hardware": False}),
    "objective=ndcg": Variant({"objective": "ndcg"}),
    "objective=regression": Variant({"objective": "regression"}),
    "transition=untrained": Variant({}, "untrained"),
    "transition=actions_only": Variant({}, "actions_only"),
    "transition=direct": Variant({}, "direct"),
    "trees see all members": Variant({}, aware=True),
}


class SharedRanker(WorldVariants):
    """A variant that takes from its fold what another one has computed: states, action features.

    Args:
        kept: Of the fold, by what it is and whose programs it is of.
        known: Of which programs something is kept, by ``id``: those of the fold's groups.
        variant: Which.
        options: Of ``WorldVariants``.
    """

    def __init__(
        self, kept: dict[Any, Any], known: frozenset[int], variant: Variant, **options: Any
    ) -> None:
        super().__init__(**options, **dict(variant.options))
        self._kept, self._known, self._variant = kept, known, variant

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Rows, npt.NDArray[np.bool_]]:
        if id(programs) not in self._known:
            return super()._matrix(programs, machine)
        swapped = isinstance(self._world, Swapped) and bool(self._world.others)
        aware = self._variant.aware or not self._fitting
        states, legal = self._once(
            (self.state, self._variant.transition, aware, swapped),
            programs,
            lambda: self._states([program.candidate for program in programs]),
        )
        described = self._once("actions", programs, lambda: action_features(programs, machine))
        # What is kept stays whole: choosing rows makes a copy.
        described = described[legal]
        described[:, self._hidden] = 0.0
        return np.concatenate([states[legal], described], axis=1), legal

    def _once(self, what: Any, programs: Sequence[Program], make: Callable[[], Any]) -> Any:
        place = (what, id(programs))
        if place not in self._kept:
            self._kept[place] = make()
        return self._kept[place]


def skeleton(group: Group) -> frozenset[Any]:
    """What the programs of a workload have in common but for numbers: the steps of each sketch."""
    candidates = [p.candidate for p in group.programs if p.candidate is not None]
    sketches = {candidate.sketch.key: candidate.sketch for candidate in candidates}
    return frozenset(
        (
            tuple(map(len, sketch.axes.values())),
            tuple(step.kind for step in skeleton_of(sketch)),
        )
        for sketch in sketches.values()
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
    """One part of a split: who learns from it, and how that is judged.

    Args:
        part: The part.
        folder: Of all that is learned (``Learned``).
        config: Of the world.
        seed: Of everything.
        threads: That may be used.
        programs: Learned from per group, at most.
        draw: Seeds which of them. ``benchmarks.models`` takes the number of the part.
        cache: Folder of replayed states and features, of all folds.
    """

    def __init__(
        self,
        part: Split,
        folder: Path,
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
        self.learned = Learned(
            part.name, self.train, folder, config, seed=seed, threads=threads, cache=cache
        )
        self._direct: dict[str, Direct] = {}
        self._kept: dict[Any, Any] = {}
        self._known = frozenset(id(group.programs) for group in (*drawn, *part.test))

    def world(self, transition: str) -> Swapped:
        """The world with some transitions, or one that predicts in one step."""
        if transition not in DIRECT:
            return self.learned.world(transition)
        if transition not in self._direct:
            reads_initial = transition == "direct"
            self._direct[transition] = Direct(
                self.learned.lesson, reads_initial, self.seed, self.threads
            )
        return self._direct[transition]

    def ranker(self, variant: Variant) -> WorldVariants:
        """A variant, trained."""
        needs_world = variant.options.get("state") != "none"
        world = self.world(variant.transition) if needs_world else None
        if world is not None and variant.aware:
            world = Swapped(World(world.reader, world.transition))
        ranker = SharedRanker(
            self._kept,
            self._known,
            variant,
            seed=self.seed,
            threads=self.threads,
            world=world,
            cache=self.cache,
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
        world.others = self.others
        try:
            tested = [group for group in self.part.test if group.workload in self.others]
            return {group.key: self._metrics(ranker, group) for group in tested}
        finally:
            world.others = {}

    @cached_property
    def others(self) -> dict[str, Any]:
        """Key of a workload -> the workload that stands for it where states are swapped."""
        return partners((*self.part.test, *self.part.train))

    def _metrics(self, ranker: Ranker, group: Group) -> dict[str, Any]:
        rng = np.random.default_rng([_SPLIT_SEED, self.seed, zlib.crc32(group.key.encode())])
        return metrics_to_json(judge(score_group(ranker, group), group.seconds, rng))

    def terminals(self, count: int) -> list[dict[str, Any]]:
        """How near predictions come on the test workloads, one row per path."""
        world = self.world("trained")
        config = replace(self.config, trajectories=count)
        lesson = Lesson.of(self.part.test, config, self.seed, self.cache, reader=world.reader)
        assert lesson is not None, "some programs of every data set can be made"
        paths = lesson.paths
        workloads = [candidate.workload for candidate in lesson.seen.candidates]
        begun = np.stack([world.initial(self.others.get(one.key, one)) for one in workloads])
        found = {"swapped": judge_transitions(self._following("trained"), paths, begun)}
        for name in ("trained", "untrained", "actions_only"):
            found[name] = judge_transitions(self._following(name), paths)
        mean = self._following("trained").mean_terminal
        for name in DIRECT:
            direct = self.world(name)
            assert isinstance(direct, Direct)
            first = paths.states[paths.initial]
            each = direct.each_end(direct.columns_of(lesson.seen.candidates, first))
            found[name] = judge_ends(each, mean, paths)
        rows = []
        for at, workload in enumerate(lesson.workloads):
            swapped = workload in self.others
            there = {name: one for name, one in found.items() if swapped or name != "swapped"}
            rows.append(_row(workload, at, there))
        return rows

    def _following(self, transition: str) -> TransitionModel:
        model = self.world(transition).transition
        assert model is not None
        return model


def _row(workload: str, at: int, found: Mapping[str, Terminals]) -> dict[str, Any]:
    """A path's figures; predictions that there are not are left out."""
    true = found["trained"]
    return {
        "workload": workload,
        "steps": int(true.length[at]),
        "initial": float(true.initial[at]),
        "mean": float(true.mean[at]),
        "spread": float(true.spread[at]),
        "apart": float(true.apart[at]),
        "distinct": int(true.distinct[at]),
        **{name: float(one.predicted[at]) for name, one in found.items()},
        **{f"{name} missed": float(one.missed[at]) for name, one in found.items()},
        **{f"{name} found": bool(one.found[at]) for name, one in found.items()},
    }


def train_and_judge(fold: Fold, name: str) -> dict[str, Any]:
    """Metrics by group of the rows that come of one training, by the name of the row."""
    ranker = fold.ranker(VARIANTS[name])
    found = {name: fold.judged(ranker)}
    if name == FULL:
        found[SWAPPED] = fold.swapped(ranker)
    if name == NONE:
        found[INITIAL] = found[NONE]
    return found
