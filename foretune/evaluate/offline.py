"""Judging a ranker on measured data: cross-validation, metrics with intervals, floors.

Each group is tested once, by a ranker that learned from other workloads (``foretune.evaluate.
splits``). On hardware that no group to learn from is of, but with workloads seen elsewhere, ranker
and floor are judged on the programs that all hardware has. With several seeds every group's
figures are averaged over them before anything else, so that seeds do not pass for evidence about
further workloads.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import IndexArray
from foretune.errors import BadInputError
from foretune.evaluate.data import keep_judgeable, thinned
from foretune.evaluate.exclusions import refuse_excluded
from foretune.evaluate.floors import best_elsewhere, common_programs, random_order
from foretune.evaluate.metrics import PICKS, GroupMetrics, average, judge
from foretune.evaluate.splits import Split, check_name, cross_validation
from foretune.evaluate.summary import DEFINITIONS, RESAMPLES, Bootstrap, curve, summarise

if TYPE_CHECKING:
    from foretune.cluster import Cluster
    from foretune.cost import Ranker
    from foretune.dataset import Group

SCHEMA = "foretune.eval/1"
NONE = "none"
"""The name of no split: a ranker that was trained before is judged on all groups."""
RankerFactory = Callable[[int], "Ranker"]
"""Seed to an untrained ranker."""
Say = Callable[[str], None]
SEEN_ELSEWHERE = "hardware_seen"
NOT_EVERYWHERE = "group with too few programs that all hardware ran"
"""Why a group is not judged where the programs of all hardware are."""

_TIMES = {
    "train_s": "seconds of one training, mean; it reads programs whose features are not kept yet",
    "score_s_per_program": "seconds of scoring / programs, features kept: they were read before",
}
"""What the times mean, beside ``DEFINITIONS``."""


def evaluate(
    ranker: Ranker | RankerFactory,
    groups: Sequence[Group],
    by: str = "workload",
    *,
    folds: int | None = None,
    seeds: int = 1,
    split_seed: int = 0,
    programs: int | None = None,
    model: str = "",
    data: Sequence[str] = (),
    skipped: Mapping[str, int] | None = None,
    progress: Say | None = None,
    resamples: int = RESAMPLES,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Judges a ranker on groups that it has not learned from.

    Args:
        ranker: What makes untrained rankers of given seeds; or, with the split ``"none"``, a
            trained one. Whether that has seen the workloads is for the caller to know
            (``foretune.evaluate.Provenance``).
        groups: The data. Groups without two different times are left out and counted.
        by: A name of ``foretune.evaluate.splits``, or ``"none"``.
        folds: See ``cross_validation``.
        seeds: Rankers trained per split, with seeds 0, 1, 2...
        split_seed: Seeds the splits, the order of equal scores and the intervals.
        programs: Learned from per group, at most (``foretune.evaluate.thinned``); all if None.
            Groups that are tested are never thinned.
        model: What the ranker is called.
        data: Where the groups are from.
        skipped: What reading the data left out, to be passed on.
        progress: Called with one line of text per trained ranker.
        resamples: Of the bootstrap.
        cluster: Whose cores train, one ranker each; the result is the same but for times. None
            trains here, one after the other.

    Returns:
        The ``foretune.eval/1`` object.

    Raises:
        BadInputError: An unknown split, too little data for it, numbers below one, groups that are
            kept for evaluation among those to learn from, or a split that does not fit the ranker.
    """
    check_request(not callable(ranker), by, folds, seeds, programs)
    kept, few = keep_judgeable(groups)
    if not kept:
        raise BadInputError(
            f"none of {len(groups)} groups has two programs with different seconds: "
            "nothing can be judged"
        )
    common = common_programs(kept) if by == SEEN_ELSEWHERE else {}
    run = _Run(kept, split_seed, common)
    few[NOT_EVERYWHERE] += len(kept) - len(run.groups)
    if callable(ranker):
        refuse_excluded(kept)
        parts = cross_validation(kept, by, folds, split_seed)
        numbers = list(range(seeds))
        course = _Course(run, ranker, parts, programs)
        asked = [(number, seed) for number in range(len(parts)) for seed in numbers]
        for tested in _tested(course, asked, cluster):
            run.take(tested)
            if progress is not None:
                progress(str(tested))
    else:
        part = Split(NONE, (), (), tuple(kept))
        run.take(run.test(ranker, part, 0))
        parts, numbers = [part], [0]
    return {
        "schema": SCHEMA,
        "model": model,
        "data": list(data),
        "split": by,
        "splits": [_part_json(part) for part in parts],
        "seeds": numbers,
        "split_seed": split_seed,
        "programs_per_group": programs,
        "groups": len(run.groups),
        "workloads": len({group.workload for group in run.groups}),
        "programs": sum(len(group) for group in run.groups),
        "judged_on": "programs that all hardware ran" if common else "all programs",
        "skipped": dict(Counter(skipped or {}) + few),
        "resamples": resamples,
        **run.result(resamples),
        "definitions": {**DEFINITIONS, **_TIMES},
    }


def check_request(
    trained: bool, by: str, folds: int | None, seeds: int, programs: int | None = None
) -> None:
    """Refuses what can be refused before any data is read.

    Args:
        trained: Whether the ranker was trained before.
        by, folds, seeds, programs: As ``evaluate`` takes them.

    Raises:
        BadInputError: They do not fit together, or a number is too small.
    """
    if by != NONE:
        check_name(by)
    if trained and by != NONE:
        raise BadInputError(
            f"split {by!r} trains anew on each part, but got a trained ranker: use the split "
            "'none', or the name of a model"
        )
    if trained and (folds is not None or seeds != 1):
        raise BadInputError(
            f"folds and seeds are for training, but got folds={folds} and seeds={seeds} with a "
            "trained ranker: leave them out"
        )
    if trained and programs is not None:
        raise BadInputError(
            f"programs is for training, but got programs={programs} with a trained ranker: leave "
            "it out"
        )
    if not trained and by == NONE:
        raise BadInputError(
            "without a split nothing is left to learn from: give a trained ranker (FILE.npz), or a "
            "split"
        )
    if seeds < 1:
        raise BadInputError(f"`seeds >= 1` must hold, but got seeds={seeds}")
    if programs is not None and programs < 2:
        raise BadInputError(
            f"`programs >= 2` must hold, but got programs={programs}: nothing is learned from one"
        )


@dataclass(frozen=True)
class _Tested:
    """A ranker that was trained and judged.

    Attributes:
        part: Name of the split.
        seed: Its own.
        judged: By the place of a group among those that are tested.
        score_s: Seconds of scoring.
        scored: Programs.
        train_s: Seconds of training; None where it was trained before.
        learned: Groups that it learned from.
    """

    part: str
    seed: int
    judged: Mapping[int, GroupMetrics]
    score_s: float
    scored: int
    train_s: float | None = None
    learned: int = 0

    def __str__(self) -> str:
        top = [judged.ratio[0] for judged in self.judged.values()]
        return (
            f"{self.part}  seed {self.seed}: trained on {self.learned} groups in "
            f"{self.train_s or 0.0:.1f} s, top-1 {np.mean(top) if top else float('nan'):.3f} on "
            f"{len(top)}"
        )


@dataclass(frozen=True)
class _Course:
    """All that one training of a cross-validation needs: what a cluster is sent once."""

    run: _Run
    make: RankerFactory
    parts: Sequence[Split]
    programs: int | None

    def train(self, number: int, seed: int) -> _Tested:
        """Trains a ranker on a part and judges it."""
        part = self.parts[number]
        learned: Sequence[Group] = (*part.train, *part.validation)
        if self.programs is not None:
            learned = thinned(learned, self.programs, number)
        train, validation = learned[: len(part.train)], learned[len(part.train) :]
        ranker = self.make(seed)
        started = time.perf_counter()
        ranker.fit(train, validation)
        train_s = time.perf_counter() - started
        tested = self.run.test(ranker, part, seed)
        return replace(tested, train_s=train_s, learned=len(part.train))


def _tested(
    course: _Course, asked: Sequence[tuple[int, int]], cluster: Cluster | None
) -> Iterator[_Tested]:
    """What came of each part and seed, in their order, however they end."""
    if cluster is None:
        yield from itertools.starmap(course.train, asked)
        return
    sent = cluster.share(course)
    early: dict[int, _Tested] = {}
    due = 0
    for index, tested in cluster.map(_Course.train, [(sent, *each) for each in asked]):
        early[index] = tested
        while due in early:
            yield early.pop(due)
            due += 1


class _Run:
    """What has been judged so far.

    Args:
        groups: To be tested.
        seed: Seeds the order of equal scores.
        common: Programs that groups are judged on, where it is not all of them, by their keys;
            groups that it does not name are not judged then.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        seed: int,
        common: Mapping[str, IndexArray] | None = None,
    ) -> None:
        self.train_s: list[float] = []
        self._seed = seed
        self._elsewhere = best_elsewhere(groups, common) if common else {}
        tested = [group for group in groups if not common or group.key in common]
        self.groups = [group.subset(common[group.key]) if common else group for group in tested]
        self._index = {group.key: i for i, group in enumerate(tested)}
        self._judged: list[list[GroupMetrics]] = [[] for _ in tested]
        self._tested_in = [""] * len(tested)
        self._score_s = 0.0
        self._scored = 0

    def test(self, ranker: Ranker, part: Split, seed: int) -> _Tested:
        """Judges a trained ranker on the test groups of a split."""
        judged: dict[int, GroupMetrics] = {}
        score_s, scored = 0.0, 0
        for number in [self._index[g.key] for g in part.test if g.key in self._index]:
            group = self.groups[number]
            if ranker.needs.programs:
                # Programs are read before the clock starts: whether a ranker before this one, or a
                # call before this one, has read them already must not show.
                ranker.score_group(group)
            started = time.perf_counter()
            scores = ranker.score_group(group)
            score_s += time.perf_counter() - started
            scored += len(group)
            judged[number] = judge(
                np.asarray(scores, dtype=np.float64), group.seconds, self._rng(group, seed)
            )
        return _Tested(part.name, seed, judged, score_s, scored)

    def take(self, tested: _Tested) -> None:
        """Takes in what came of a ranker."""
        if tested.train_s is not None:
            self.train_s.append(tested.train_s)
        self._score_s += tested.score_s
        self._scored += tested.scored
        for number, judged in tested.judged.items():
            self._judged[number].append(judged)
            self._tested_in[number] = tested.part

    def _rng(self, group: Group, seed: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, seed, zlib.crc32(group.key.encode())])

    def _floor_elsewhere(self, bootstrap: Bootstrap, resamples: int) -> dict[str, Any]:
        """What choosing by the other devices reaches; empty where programs are not the same."""
        if not self._elsewhere:
            return {}
        judged = [judge(self._elsewhere[g.key], g.seconds, self._rng(g, 0)) for g in self.groups]
        return {
            "other_devices": {
                "metrics": summarise(self.groups, judged, bootstrap),
                "curve": curve(judged, bootstrap),
                "by_hardware": self._broken_down(
                    [g.hardware for g in self.groups], judged, resamples
                ),
            }
        }

    def result(self, resamples: int) -> dict[str, Any]:
        """The part of the JSON object that was measured."""
        judged = [average(several) for several in self._judged]
        random = [random_order(group.seconds) for group in self.groups]
        bootstrap = Bootstrap([g.workload for g in self.groups], self._seed, resamples)
        return {
            "metrics": summarise(self.groups, judged, bootstrap),
            "curve": curve(judged, bootstrap),
            "floors": {
                "random": {
                    "metrics": summarise(self.groups, random, bootstrap),
                    "curve": curve(random, bootstrap),
                },
                **self._floor_elsewhere(bootstrap, resamples),
                "oracle": 1.0,
            },
            "by_kind": self._broken_down([g.kind for g in self.groups], judged, resamples),
            "by_hardware": self._broken_down([g.hardware for g in self.groups], judged, resamples),
            "train_s": float(np.mean(self.train_s)) if self.train_s else None,
            "score_s_per_program": self._score_s / max(self._scored, 1),
            "per_group": [
                _group_json(*row)
                for row in zip(self.groups, judged, random, self._tested_in, strict=True)
            ],
        }

    def _broken_down(
        self, keys: Sequence[str], judged: Sequence[GroupMetrics], resamples: int
    ) -> dict[str, Any]:
        parts = {}
        for key in sorted(set(keys)):
            at = [i for i, other in enumerate(keys) if other == key]
            groups = [self.groups[i] for i in at]
            bootstrap = Bootstrap([g.workload for g in groups], self._seed, resamples)
            metrics = summarise(groups, [judged[i] for i in at], bootstrap)
            parts[key] = {"groups": len(groups), "metrics": metrics}
        return parts


def _part_json(part: Split) -> dict[str, Any]:
    return {
        "name": part.name,
        "train": len(part.train),
        "validation": len(part.validation),
        "test": len(part.test),
        "seen_workloads": part.seen_workloads,
    }


def _group_json(
    group: Group, judged: GroupMetrics, random: GroupMetrics, tested_in: str
) -> dict[str, Any]:
    five = PICKS.index(5)
    return {
        "workload": group.workload,
        "name": group.name,
        "kind": group.kind,
        "hardware": group.hardware,
        "split": tested_in,
        "programs": len(group),
        "valid": int(group.valid.sum()),
        "best_s": judged.best_s,
        "top1": float(judged.ratio[0]),
        "top5": float(judged.ratio[five]),
        "random_top1": float(random.ratio[0]),
        "random_top5": float(random.ratio[five]),
        "pair_accuracy": judged.pair_accuracy,
        "kendall_tau": judged.kendall_tau,
        "ndcg16": judged.ndcg16,
    }
