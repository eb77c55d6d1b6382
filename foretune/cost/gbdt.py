"""Gradient-boosted trees that rank programs by their per-store features.

Idea: TVM's extractor describes every store of a lowered program by a row of numbers; the rows of
a program are aggregated into one vector, to which a summary of the schedule's decisions is added;
boosted trees learn to order the vectors of one workload by speed. The loss compares pairs within a
workload only, so that workloads of different size, and failures, need no common scale.

The trees do not start from nothing: the score of a schedule before any tree is ``a`` times what a
prior expects of it (``machine_fit``, or a trained ranker), where ``a`` is fitted to the workload's
own measurements and shrunk towards 1 while they are few. So the model is useful from the first
batch, and where the prior says nothing (``a`` falls to 0) it stands on the trees alone.

Symbols: a program has rows of shape (n_stores, n_columns) and a level, minus log2 of its seconds;
a failure's level is one below the slowest program of its workload.

Sources: the features are Ansor's (Zheng et al., OSDI 2020, appendix B) as MetaSchedule extracts
them; the loss compares pairs (RankNet, Burges, 2010) with fixed weights, those of
``foretune.cost._lambdarank``. MetaSchedule's own model sums per-store predictions under a weighted
square error; here programs are aggregated first, because a ranking loss needs one score per
program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import xgboost

from foretune._options import configured, constants, option_names, refuse_unknown
from foretune.cost._base import CostModel, FloatArray, Prediction
from foretune.cost._lambdarank import lambda_objective
from foretune.errors import BadInputError
from foretune.features import (
    Extractor,
    candidate_rows,
    extract_per_store,
    machine_fit,
    require_source,
)
from foretune.features.actions import schedule_summary

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Record
    from foretune.space import Candidate

Rows = npt.NDArray[np.float32]
Aggregate = Callable[[npt.NDArray[Any]], Rows]
Prior = Callable[[Sequence[Any]], FloatArray]
"""Candidates to the scores expected of them before measurements, float64 of shape (n,), in the
unit minus log2 of a slow-down. ``machine_fit`` needs no training."""

VECTOR_VERSION = 2
"""Number of what ``program_vector`` gives. Raised whenever a place in it changes its meaning."""

_HALF = 64.0
"""Measurements of other workloads that are worth half of what any number of them is."""
_FLOAT_COLUMNS = 7
"""Leading columns of a row: log2(1 + floating-point operations) of each kind."""


@dataclass(frozen=True)
class GbdtConfig:
    """How the trees are grown. The defaults suit 16 to a few hundred programs per workload.

    Attributes:
        rounds: Trees per booster.
        boosters: Members of the ensemble; its disagreement is the spread. 1 means spread 0.
        min_records: Programs with a time that one workload must have before the model is ready.
        max_rows: Programs trained on at most; above it the workloads with
            most are thinned out first.
        cache: Programs whose features are kept.
        prior_strength: Measurements that weigh as much as that belief.
        trust: Measurements of a workload at which the trees have half their say there; 0: they
            have all of it from the start.
    """

    depth: ClassVar[int] = 4
    learning_rate: ClassVar[float] = 0.15
    min_child_weight: ClassVar[float] = 0.01
    l2: ClassVar[float] = 1.0
    subsample: ClassVar[float] = 0.8
    columns: ClassVar[float] = 0.4
    opponents: ClassVar[int] = 128
    threads: ClassVar[int] = 1
    prior: ClassVar[float] = 1.0
    sisters: ClassVar[float] = 8.0

    rounds: int = 30
    boosters: int = 3
    min_records: int = 8
    max_rows: int = 2048
    cache: int = 8192
    prior_strength: float = 8.0
    trust: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rounds", "boosters", "min_records", "max_rows"):
            if getattr(self, name) < 1:
                raise BadInputError(f"gbdt: {name} >= 1 must hold, but got {getattr(self, name)}")
        for name in ("prior_strength", "trust"):
            if getattr(self, name) < 0:
                raise BadInputError(f"gbdt: {name} >= 0 must hold, but got {getattr(self, name)}")


def program_vector(rows: npt.NDArray[Any]) -> Rows:
    """Aggregates the rows of a program, shape (n_stores, n_columns) -> (3 n_columns + 1,).

    The row of the heaviest store (most floating-point operations, the first of equals), the sum of
    all rows, their maximum, and the number of stores.
    """
    if not len(rows):
        return np.zeros(3 * rows.shape[1] + 1, dtype=np.float32)
    work = np.exp2(rows[:, :_FLOAT_COLUMNS].astype(np.float64)).sum(axis=1)
    heaviest = rows[int(np.argmax(work))]
    count = np.float32(len(rows))
    return np.concatenate([heaviest, rows.sum(axis=0), rows.max(axis=0), [count]]).astype(
        np.float32
    )


@dataclass
class _Group:
    """Programs of one workload, by candidate key: vectors, seconds (NaN: it failed) and priors."""

    vectors: dict[str, Rows] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    fits: dict[str, Any] = field(default_factory=dict)

    def matrix(self) -> Rows:
        return np.stack(list(self.vectors.values()))

    def levels(self) -> FloatArray:
        """Minus log2 seconds; failures one below the slowest."""
        seconds = np.array(list(self.seconds.values()), dtype=np.float64)
        level = -np.log2(seconds)
        if np.isnan(level).all():
            return np.zeros(len(level))
        return np.nan_to_num(level, nan=float(np.nanmin(level)) - 1.0)

    def slope(self, belief: float, strength: float) -> float:
        """How far the prior explains minus log2 seconds: least squares, shrunk to a belief.

        ``strength`` programs with a prior of unit variance weigh as much as the belief.
        """
        seconds = np.array(list(self.seconds.values()))
        timed = ~np.isnan(seconds)
        if belief == 0.0 or timed.sum() < 2:
            return belief
        fits = np.array(list(self.fits.values()))[timed]
        speed = -np.log2(seconds[timed])
        fits, speed = fits - fits.mean(), speed - speed.mean()
        slope = (strength * belief + fits @ speed) / (strength + fits @ fits)
        return float(np.clip(slope, 0.0, 2.0 * belief))

    def timed(self) -> int:
        times = [s for s in self.seconds.values() if not np.isnan(s)]
        return len(times) if len(set(times)) > 1 else 0


class GradientBoosting(CostModel):
    """Pairwise ranking over aggregated per-store features, retrained from all records when it must.

    ``update`` only collects; the trees are grown by the next ``predict``, so that several updates
    cost one training. A failed measurement ranks below every program that ran.

    Args:
        rng: Seeds the trees; drawn from once.
        hardware: Not looked at: the features describe the program.
        features: Where TVM's per-store features are read, one of ``foretune.features.SOURCES``.
        extract: Candidates to rows per candidate, ``None`` for an illegal one, instead of these.
        aggregate: Rows of a program, shape (stores, columns), to one vector.
        prior_of: What is expected of candidates before measurements.
        options: Fields of ``GbdtConfig``.
    """

    def __init__(
        self,
        *,
        rng: np.random.Generator,
        hardware: Hardware | None = None,
        features: str = "programs",
        extract: Extractor | None = None,
        aggregate: Aggregate | None = None,
        prior_of: Prior = machine_fit,
        **options: Any,
    ) -> None:
        self.config, rest = configured(GbdtConfig, "gbdt", options)
        refuse_unknown("gbdt", rest, option_names(GbdtConfig), constants(GbdtConfig))
        require_source("gbdt", features)
        if extract is None:
            formulas = partial(candidate_rows, source=features)
            extract = extract_per_store if features == "programs" else formulas
        self._extract = extract
        self._aggregate = program_vector if aggregate is None else aggregate
        self._prior_of = prior_of
        self._seed = int(rng.integers(2**31))
        self._groups: dict[str, _Group] = {}
        self._boosters: list[xgboost.Booster] = []
        self._stale = False
        self._cache: OrderedDict[tuple[str, str], Rows | None] = OrderedDict()

    @property
    def ready(self) -> bool:
        """Whether some workload has ``min_records`` programs with at least two different times."""
        return any(g.timed() >= self.config.min_records for g in self._groups.values())

    def fit(self, records: Sequence[Record]) -> None:
        """Forgets every record and learns from these alone."""
        self._groups = {}
        self._boosters = []
        self.update(records)

    def update(self, records: Sequence[Record]) -> None:
        """Adds records; one with a known candidate replaces the earlier measurement."""
        kept = [r for r in records if r.candidate is not None]
        vectors = self._vectors([r.candidate for r in kept if r.candidate is not None])
        fits = self._prior_of([r.candidate for r in kept if r.candidate is not None])
        for record, vector, fit in zip(kept, vectors, fits, strict=True):
            if vector is None:
                continue
            group = self._groups.setdefault(record.workload, _Group())
            group.vectors[record.candidate_key] = vector
            group.seconds[record.candidate_key] = _seconds(record)
            group.fits[record.candidate_key] = fit
            self._stale = True

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Scores programs; NaN for one that cannot be applied. Trains first where needed."""
        n = len(candidates)
        score, spread = np.full(n, np.nan), np.zeros(n)
        if n == 0:
            return Prediction(score, spread)
        vectors = self._vectors(candidates)
        legal = [i for i, vector in enumerate(vectors) if vector is not None]
        if self._stale:
            self._train()
        if not legal:
            return Prediction(score, spread)
        scored = [candidates[i] for i in legal]
        score[legal] = self._margins([c.workload.key for c in scored], self._prior_of(scored))
        if self._boosters:
            matrix = np.stack([vector for vector in vectors if vector is not None])
            each = np.stack(
                [
                    b.inplace_predict(matrix, base_margin=np.zeros(len(matrix)))
                    for b in self._boosters
                ]
            )
            say = self._say([c.workload.key for c in scored])
            score[legal] += say * each.mean(axis=0)
            spread[legal] = say * each.std(axis=0)
        return Prediction(score, spread)

    def _say(self, workloads: Sequence[str]) -> FloatArray:
        """How far the trees are believed beside the prior, shape (n,), at most 1."""
        trust, sisters = self.config.trust, self.config.sisters
        if trust == 0:
            return np.ones(len(workloads))
        timed = {key: group.timed() for key, group in self._groups.items()}
        every = sum(timed.values())
        says = {}
        for key in set(workloads):
            mine = timed.get(key, 0)
            others = every - mine
            known = mine + sisters * others / (others + _HALF)
            says[key] = known / (known + trust)
        return np.array([says[key] for key in workloads])

    def _margins(self, workloads: Sequence[str], fits: FloatArray) -> FloatArray:
        """Scores before any tree, shape (n,)."""
        found = np.zeros(len(workloads))
        names = np.array(workloads)
        for key in dict.fromkeys(workloads):
            mine = names == key
            found[mine] = self._weighed(self._groups.get(key, _Group()), fits[mine])
        return found

    def _weighed(self, group: _Group, fits: FloatArray) -> FloatArray:
        """What the prior says of programs of a group, as far as it explains those measured."""
        weighed: FloatArray = group.slope(self.config.prior, self.config.prior_strength) * fits
        return weighed

    def _vectors(self, candidates: Sequence[Candidate]) -> list[Rows | None]:
        keys = [(c.workload.key, c.key) for c in candidates]
        missing = {k: c for k, c in zip(keys, candidates, strict=True) if k not in self._cache}
        if missing:
            rows = self._extract(list(missing.values()))
            summaries = schedule_summary(list(missing.values())).astype(np.float32)
            for key, program, summary in zip(missing, rows, summaries, strict=True):
                self._cache[key] = (
                    None if program is None else np.concatenate([self._aggregate(program), summary])
                )
        found = []
        for key in keys:
            found.append(self._cache[key])
            self._cache.move_to_end(key)
        while len(self._cache) > self.config.cache:
            self._cache.popitem(last=False)
        return found

    def _train(self) -> None:
        self._stale = False
        groups = [g for g in self._groups.values() if len(g.vectors) > 1]
        if not groups:
            self._boosters = []
            return
        rng = np.random.default_rng(self._seed)
        most = _most_of_each([len(g.vectors) for g in groups], self.config.max_rows)
        matrices, levels, margins = [], [], []
        for group in groups:
            matrix, level = group.matrix(), group.levels()
            keep = np.arange(len(matrix))
            if most < len(matrix):
                keep = np.sort(rng.choice(len(matrix), most, replace=False))
            matrices.append(matrix[keep])
            levels.append(level[keep])
            margins.append(self._weighed(group, np.array(list(group.fits.values())))[keep])
        data = xgboost.DMatrix(np.concatenate(matrices), nthread=self.config.threads)
        data.set_base_margin(np.concatenate(margins))
        objective = lambda_objective(levels, self.config.opponents, rng)
        self._boosters = [
            xgboost.train(self._parameters(i), data, self.config.rounds, obj=objective)
            for i in range(self.config.boosters)
        ]

    def _parameters(self, member: int) -> dict[str, Any]:
        config = self.config
        return {
            "disable_default_eval_metric": True,
            "base_score": 0.0,
            "max_depth": config.depth,
            "eta": config.learning_rate,
            "min_child_weight": config.min_child_weight,
            "lambda": config.l2,
            "subsample": config.subsample,
            "colsample_bytree": config.columns,
            "tree_method": "hist",
            "max_bin": 64,
            "nthread": config.threads,
            "seed": (self._seed + member) % 2**31,
            "verbosity": 0,
        }


def _most_of_each(counts: Sequence[int], rows: int) -> int:
    """The most programs of a workload that are kept, at least 2, so that all are ``rows`` at most.

    Large groups give way first: what a run has measured of a few programs is not thinned because
    earlier runs have measured thousands of others.
    """
    left = rows
    for done, count in enumerate(sorted(counts)):
        each = left // (len(counts) - done)
        if count > each:
            return max(2, each)
        left -= count
    return max(counts)


def _seconds(record: Record) -> float:
    """Seconds to learn from; NaN for a failure, whatever readings it may hold."""
    measurement = record.measurement
    if measurement.ran and measurement.best_s is not None:
        return measurement.best_s
    return float("nan")
