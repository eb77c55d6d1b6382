"""Gradient-boosted trees that rank programs by their per-store features.

Idea: TVM's extractor describes every store of a lowered program by a row of numbers; the rows of
a program are aggregated into one vector, to which a summary of the schedule's decisions is added;
boosted trees learn to order the vectors of one workload by speed. The loss compares pairs within a
workload only, so that workloads of different size, and failures, need no common scale.

The trees do not start from nothing: the score of a schedule before any tree is what a prior expects
of it (``foretune.cost._prior``: ``machine_fit``, or a trained ranker), as far as that explains the
workload's own measurements. So the model is useful from the first batch, and where the prior says
nothing it stands on the trees alone.

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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xgboost

from foretune._arrays import Array, Float32Array, FloatArray
from foretune._options import (
    Count,
    NotNegative,
    configured,
    constants,
    option_names,
    refuse_unknown,
    require_options,
)
from foretune.cost._base import Abilities, CostModel, Prediction
from foretune.cost._lambdarank import lambda_objective
from foretune.cost._prior import Prior, RulePrior, Weighed
from foretune.features import (
    Extractor,
    candidate_rows,
    extract_per_store,
    machine_fit,
    require_source,
)
from foretune.features.actions import schedule_summary
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Trial

Aggregate = Callable[[Array], Float32Array]

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
        prior_strength: Measurements that weigh as much as what the prior expects; None: as many as
            it says itself.
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
    sisters: ClassVar[float] = 8.0
    min_records: ClassVar[int] = 8
    max_rows: ClassVar[int] = 2048

    rounds: Count = 30
    boosters: Count = 3
    cache: int = 8192
    prior_strength: NotNegative | None = None
    trust: NotNegative = 0.0

    def __post_init__(self) -> None:
        require_options("gbdt", self)


def program_vector(rows: Array) -> Float32Array:
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


class GradientBoosting(CostModel[Candidate]):
    """Pairwise ranking over aggregated per-store features, retrained from all records when it must.

    ``update`` only collects; the trees are grown by the next ``predict``, so that several updates
    cost one training. A failed measurement ranks below every program that ran.

    Args:
        rng: Seeds the trees; drawn from once.
        hardware: Not looked at: the features describe the program.
        features: Where TVM's per-store features are read, one of ``foretune.features.SOURCES``.
        extract: Candidates to rows per candidate, ``None`` for an illegal one, instead of these.
        aggregate: Rows of a program, shape (stores, columns), to one vector.
        prior: What is expected of candidates before measurements; ``machine_fit`` unless given.
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
        prior: Prior | None = None,
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
        self._expected = Weighed(prior or RulePrior(machine_fit), self.config.prior_strength)
        self._seed = int(rng.integers(2**31))
        self._rows: dict[str, dict[str, Float32Array]] = {}
        self._boosters: list[xgboost.Booster] = []
        self._stale = False
        self._cache: OrderedDict[tuple[str, str], Float32Array | None] = OrderedDict()

    @property
    def abilities(self) -> Abilities:
        """Ready once a workload has ``min_records`` programs with at least two different times."""
        most = max((each.timed() for each in self._expected.measured), default=0)
        return Abilities(ready=most >= self.config.min_records)

    def fit(self, records: Sequence[Trial[Candidate]]) -> None:
        """Forgets every record and learns from these alone."""
        self._rows = {}
        self._expected.forget()
        self._boosters = []
        self.update(records)

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        """Adds records; one with a known candidate replaces the earlier measurement."""
        candidates = [record.candidate for record in records]
        vectors = self._vectors(candidates)
        opinions = self._expected.prior.opinions(candidates)
        for record, vector, opinion in zip(records, vectors, opinions, strict=True):
            if vector is None:
                continue
            self._rows.setdefault(record.workload, {})[record.candidate_key] = vector
            self._expected.take(record, opinion)
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
        score[legal] = self._expected.scores(scored)
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
        timed = {each.workload: each.timed() for each in self._expected.measured}
        every = sum(timed.values())
        says = {}
        for key in set(workloads):
            mine = timed.get(key, 0)
            others = every - mine
            known = mine + sisters * others / (others + _HALF)
            says[key] = known / (known + trust)
        return np.array([says[key] for key in workloads])

    def _vectors(self, candidates: Sequence[Candidate]) -> list[Float32Array | None]:
        keys = [(c.workload.key, c.key) for c in candidates]
        missing = {k: c for k, c in zip(keys, candidates, strict=True) if k not in self._cache}
        if missing:
            rows = self._extract(list(missing.values()))
            summaries = schedule_summary(list(missing.values())).astype(np.float32)
            for key, program, summary in zip(missing, rows, summaries, strict=True):
                self._cache[key] = (
                    None if program is None else np.concatenate([self._aggregate(program), summary])
                )
        vectors = []
        for key in keys:
            vectors.append(self._cache[key])
            self._cache.move_to_end(key)
        while len(self._cache) > self.config.cache:
            self._cache.popitem(last=False)
        return vectors

    def _train(self) -> None:
        self._stale = False
        groups = [each for each in self._expected.measured if len(each.seconds) > 1]
        if not groups:
            self._boosters = []
            return
        rng = np.random.default_rng(self._seed)
        most = _most_of_each([len(each.seconds) for each in groups], self.config.max_rows)
        matrices, levels, margins = [], [], []
        for group in groups:
            matrix = np.stack(list(self._rows[group.workload].values()))
            level, margin = group.levels(), self._expected.scores_of(group)
            keep = np.arange(len(matrix))
            if most < len(matrix):
                keep = np.sort(rng.choice(len(matrix), most, replace=False))
            matrices.append(matrix[keep])
            levels.append(level[keep])
            margins.append(margin[keep])
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
