"""Gradient-boosted trees trained on the measurements of many workloads.

Idea: the same trees as in ``foretune.cost.gbdt``, grown once on a data set instead of anew in every
run. A program is its aggregated per-store features, the features of its decisions, or both, and the
factors of its hardware; trees learn to order the programs of one workload by speed.

``objective`` says how:

- ``"lambda"`` (the default): pairs of programs of one workload pull their scores apart, the more
  the larger their difference in log2 seconds is, and the more the closer the faster one is to the
  best of its workload. What a search measures are the few candidates at the top; how far a pair
  there is apart is what choosing wrongly costs.
- ``"ndcg"``: XGBoost's own LambdaMART, which looks at ranks instead of seconds. Ranks become
  levels of relevance, finer towards the top, at most 31 (XGBoost's exponential gain allows no
  more).
- ``"regression"``: squared error of best / seconds, as in TenSet.

Sources: LambdaRank and LambdaMART (Burges, 2010). Deviations: see ``foretune.cost._lambdarank``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import xgboost

from foretune import features
from foretune.cost._base import FloatArray
from foretune.cost._lambdarank import lambda_objective
from foretune.cost._model_file import check, read_model, write_model
from foretune.cost._ranker import Ranker, fitted_scale
from foretune.cost.gbdt import program_vector
from foretune.errors import BadInputError, RecordError, unknown_name

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.features import Extractor
    from foretune.hardware import Hardware

Rows = npt.NDArray[np.float32]

_OBJECTIVES = ("lambda", "ndcg", "regression")
_FEATURES = ("both", "store")
_LEVELS = 31
"""Highest relevance that XGBoost takes with exponential gain."""
_LEVELS_PER_OCTAVE = 3
_CAP = 2.0
_VALIDATION_PAIRS = 64


@dataclass(frozen=True)
class GbdtRankerConfig:
    """How the trees are grown. The defaults suit tens of thousands of programs.

    Attributes:
        objective: ``"lambda"``, ``"ndcg"`` or ``"regression"``.
        top: Share of a pair's weight that depends on how close its faster program is to the best
            of its workload; 0: none.
        rounds: Trees per booster at most.
        patience: Rounds without improvement on the validation groups after which growing ends.
        depth: Depth of a tree.
        learning_rate: Shrinkage of each tree.
        min_child_weight: Least sum of second derivatives in a leaf.
        l2: L2 penalty on leaf values.
        subsample: Share of the programs each tree sees.
        columns: Share of the columns each tree sees.
        bins: Values told apart per column.
        opponents: Pairs looked at per program.
        boosters: Members whose scores are averaged.
        threads: Threads XGBoost may use.
        max_rows: Programs trained on at most; above it every group is thinned out alike.
        disturbed: Whether to learn from readings that something disturbed, too.
    """

    objective: str = "lambda"
    top: float = 0.75
    rounds: int = 500
    patience: int = 40
    depth: int = 6
    learning_rate: float = 0.08
    min_child_weight: float = 2.0
    l2: float = 1.0
    subsample: float = 0.7
    columns: float = 0.3
    bins: int = 64
    opponents: int = 32
    boosters: int = 1
    threads: int = 1
    max_rows: int = 60_000
    disturbed: bool = False

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise unknown_name("objective of gbdt", self.objective, _OBJECTIVES)
        for name in ("rounds", "patience", "depth", "opponents", "boosters", "threads"):
            self._require(f"{name} >= 1", getattr(self, name) >= 1, getattr(self, name))
        for name in ("bins", "max_rows"):
            self._require(f"{name} >= 2", getattr(self, name) >= 2, getattr(self, name))
        for name in ("subsample", "columns"):
            self._require(f"0 < {name} <= 1", 0 < getattr(self, name) <= 1, getattr(self, name))
        self._require("learning_rate > 0", self.learning_rate > 0, self.learning_rate)
        self._require("0 <= top <= 1", 0 <= self.top <= 1, self.top)

    @staticmethod
    def _require(rule: str, holds: bool, value: object) -> None:
        if not holds:
            raise BadInputError(f"gbdt: {rule} must hold, but got {value}")


@dataclass(frozen=True)
class _Table:
    """One group as the trees see it.

    Attributes:
        matrix: float32 of shape (n, columns).
        seconds: float64 of shape (n,), NaN for a failure.
    """

    matrix: Rows
    seconds: FloatArray

    def thinned(self, share: float, rng: np.random.Generator) -> _Table:
        """A random part of it, at least two programs."""
        count = max(2, int(share * len(self.seconds)))
        if count >= len(self.seconds):
            return self
        kept = np.sort(rng.choice(len(self.seconds), count, replace=False))
        return _Table(self.matrix[kept], self.seconds[kept])

    @property
    def levels(self) -> FloatArray:
        """Minus log2 seconds; failures one below the slowest."""
        level = -np.log2(self.seconds)
        return np.nan_to_num(level, nan=float(np.nanmin(level)) - 1.0)

    @property
    def labels(self) -> FloatArray:
        """Fastest / seconds, 0 for a failure."""
        return np.nan_to_num(np.nanmin(self.seconds) / self.seconds, nan=0.0)

    def importance(self, top: float) -> FloatArray:
        """Factor of a pair by its faster program."""
        return (1.0 - top) + top * self.labels

    @property
    def relevance(self) -> FloatArray:
        """Integers in [0, 31], three per halving of the rank, 0 for a failure."""
        known = ~np.isnan(self.seconds)
        ranks = np.argsort(np.argsort(self.seconds[known], kind="stable"), kind="stable")
        octaves = -np.log2((ranks + 0.5) / max(1, len(ranks)))
        relevance = np.zeros(len(self.seconds))
        relevance[known] = np.minimum(_LEVELS, 1 + np.floor(_LEVELS_PER_OCTAVE * octaves))
        return relevance


class GbdtRanker(Ranker):
    """LambdaMART over per-store and action features of programs that can be rebuilt.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"both"``, or ``"store"``: per-store features and hardware factors only.
        extract: Candidates to rows per candidate, None for an illegal one; TVM's per-store
            features unless given.
        feature_version: Version of what ``extract`` gives; a saved model with another is refused.
        cache: Folder in which per-store features are kept; None: in memory only.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    reads_programs: ClassVar[bool] = True
    name: ClassVar[str] = "gbdt"

    def __init__(
        self,
        *,
        seed: int = 0,
        features: str = "both",
        extract: Extractor | None = None,
        feature_version: int | str | None = None,
        cache: Path | str | None = None,
        **options: Any,
    ) -> None:
        if features not in self._known_features():
            raise unknown_name(f"features of {self.name}", features, self._known_features())
        unknown = set(options) - set(GbdtRankerConfig.__dataclass_fields__)
        if unknown:
            raise BadInputError(
                f"{self.name} has no option {sorted(unknown)[0]!r}: choose from features, cache, "
                f"{', '.join(GbdtRankerConfig.__dataclass_fields__)}"
            )
        self.config = GbdtRankerConfig(**options)
        self.seed = seed
        self.features = features
        self._extract = extract
        self._version = feature_version
        self._cache = None if cache is None else Path(cache)
        self._boosters: list[xgboost.Booster] = []

    @classmethod
    def _known_features(cls) -> tuple[str, ...]:
        return _FEATURES

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the features that are read: a model with others is refused."""
        found: dict[str, Any] = {"actions": features.ACTION_FEATURE_VERSION}
        if self.reads_programs:
            known = self._version is not None
            found["per_store"] = self._version if known else features.FEATURE_VERSION
        return found

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone."""
        self._boosters, self.scale = [], 1.0
        tables = self._tables(groups)
        if not tables:
            raise BadInputError(
                f"{self.name}: a group to learn from needs two programs with different seconds "
                f"that can be applied, but none of {len(groups)} has: collect more measurements"
            )
        held = self._tables(validation)
        share = min(1.0, self.config.max_rows / sum(len(table.seconds) for table in tables))
        rng = np.random.default_rng(self.seed)
        thinned = [table.thinned(share, rng) for table in tables]
        tables = [table for table in thinned if _comparable(table.seconds)]
        data, objective = self._training_data(tables, rng)
        evaluation = None
        if held:
            matrix = np.concatenate([table.matrix for table in held])
            evaluation = xgboost.DMatrix(matrix, nthread=self.config.threads)
        for member in range(self.config.boosters):
            self._boosters.append(self._grow(member, data, objective, evaluation, held))
        # On the programs trained on, scores explain more than they will elsewhere.
        self.scale = fitted_scale((self._raw(t.matrix), t.seconds) for t in held or tables)

    def _tables(self, groups: Sequence[Group]) -> list[_Table]:
        found = []
        for group in groups:
            kept = group
            if not self.config.disturbed and _comparable(group.seconds[group.quiet]):
                kept = group.subset(group.quiet | ~group.valid)
            if not _comparable(kept.seconds):
                continue
            matrix, legal = self._matrix(kept.programs, kept.machine)
            if _comparable(kept.seconds[legal]):
                found.append(_Table(matrix, kept.seconds[legal]))
        return found

    def _training_data(
        self, tables: Sequence[_Table], rng: np.random.Generator
    ) -> tuple[xgboost.DMatrix, Callable[..., Any] | None]:
        """All rows, and the objective where it is not one of XGBoost's."""
        config = self.config
        matrix = np.concatenate([table.matrix for table in tables])
        shared: dict[str, Any] = {"nthread": config.threads, "max_bin": config.bins}
        if config.objective == "lambda":
            objective = lambda_objective(
                [table.levels for table in tables],
                config.opponents,
                rng,
                [table.importance(config.top) for table in tables],
            )
            return xgboost.QuantileDMatrix(matrix, **shared), objective
        if config.objective == "ndcg":
            shared["group"] = [len(table.seconds) for table in tables]
            label = np.concatenate([table.relevance for table in tables])
        else:
            label = np.concatenate([table.labels for table in tables])
        return xgboost.QuantileDMatrix(matrix, label, **shared), None

    def _grow(
        self,
        member: int,
        data: xgboost.DMatrix,
        objective: Callable[..., Any] | None,
        evaluation: xgboost.DMatrix | None,
        held: Sequence[_Table],
    ) -> xgboost.Booster:
        stopping: dict[str, Any] = {}
        if evaluation is not None:
            rng = np.random.default_rng([self.seed, member])
            stopping = {
                "evals": [(evaluation, "validation")],
                "custom_metric": _misordered(held, self.config.top, rng),
                "early_stopping_rounds": self.config.patience,
                "maximize": False,
                "verbose_eval": False,
            }
        booster = xgboost.train(
            self._parameters(member), data, self.config.rounds, obj=objective, **stopping
        )
        return booster[: booster.best_iteration + 1] if stopping else booster

    def _parameters(self, member: int) -> dict[str, Any]:
        config = self.config
        builtin: dict[str, dict[str, Any]] = {
            "lambda": {},
            "ndcg": {
                "objective": "rank:ndcg",
                "lambdarank_pair_method": "topk",
                "lambdarank_num_pair_per_sample": config.opponents,
            },
            "regression": {"objective": "reg:squarederror"},
        }
        return {
            **builtin[config.objective],
            "disable_default_eval_metric": True,
            "base_score": 0.0,
            "max_depth": config.depth,
            "eta": config.learning_rate,
            "min_child_weight": config.min_child_weight,
            "lambda": config.l2,
            "subsample": config.subsample,
            "colsample_bytree": config.columns,
            "tree_method": "hist",
            "max_bin": config.bins,
            "nthread": config.threads,
            "seed": (self.seed + member) % 2**31,
            "verbosity": 0,
        }

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of programs, shape (n,); NaN for one that cannot be applied."""
        scores = np.zeros(len(programs))
        if not self._boosters or not programs:
            return scores
        matrix, legal = self._matrix(programs, machine)
        scores[~legal] = np.nan
        if legal.any():
            scores[legal] = self._raw(matrix)
        return scores

    def _raw(self, matrix: Rows) -> FloatArray:
        margin = np.zeros(len(matrix))
        each = [b.inplace_predict(matrix, base_margin=margin) for b in self._boosters]
        mean: FloatArray = np.mean(each, axis=0, dtype=np.float64)
        return mean

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Features of the legal programs, and which of all, shape (n,), these are."""
        rows = self._store_rows(programs)
        legal = np.array([each is not None for each in rows], dtype=bool)
        kept = [programs[i] for i in np.flatnonzero(legal).tolist()]
        if not kept:
            return np.zeros((0, 0), np.float32), legal
        made = [np.asarray(each, np.float32) for each in rows if each is not None]
        store = np.stack([program_vector(each) for each in made])
        return np.concatenate([store, self._beside(kept, machine)], axis=1), legal

    def _store_rows(self, programs: Sequence[Program]) -> Sequence[npt.NDArray[Any] | None]:
        if self._extract is None:
            return features.program_rows(programs, self._cache)
        return self._extract([program.candidate for program in programs])

    def _beside(self, programs: Sequence[Program], machine: Hardware | None) -> Rows:
        """What joins the per-store features."""
        if self.features == "both":
            return features.action_features(programs, machine)
        if machine is None and programs[0].candidate is not None:
            machine = programs[0].candidate.hardware
        factors = features.machine_features(machine).astype(np.float32)
        return np.tile(factors, (len(programs), 1))

    def save(self, path: Path) -> None:
        """Writes the trees, the configuration and the versions of the features to one file."""
        meta = {
            "features": self.features,
            "versions": self.versions,
            "config": asdict(self.config),
            "seed": self.seed,
            "scale": self.scale,
            "boosters": len(self._boosters),
        }
        arrays = {
            f"booster{i}": np.frombuffer(booster.save_raw("ubj"), dtype=np.uint8)
            for i, booster in enumerate(self._boosters)
        }
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> GbdtRanker:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds: ``cache``, ``extract``...

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
        """
        meta, arrays = read_model(path)
        if meta["ranker"] != cls.name:
            raise RecordError(
                f"{path} must hold the ranker {cls.name!r}, but holds {meta['ranker']!r}: "
                "load it by that name"
            )
        ranker = cls(seed=meta["seed"], features=meta["features"], **{**meta["config"], **parts})
        check(path, meta, versions=ranker.versions)
        ranker.scale = float(meta["scale"])
        for i in range(int(meta["boosters"])):
            booster = xgboost.Booster({"nthread": ranker.config.threads})
            booster.load_model(bytearray(arrays[f"booster{i}"].tobytes()))
            ranker._boosters.append(booster)
        return ranker


class GbdtActionRanker(GbdtRanker):
    """LambdaMART over action features: no program is made, and programs of others can be scored.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"actions"``, nothing else.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    reads_programs: ClassVar[bool] = False
    name: ClassVar[str] = "gbdt_actions"

    def __init__(self, *, seed: int = 0, features: str = "actions", **options: Any) -> None:
        super().__init__(seed=seed, features=features, **options)

    @classmethod
    def _known_features(cls) -> tuple[str, ...]:
        return ("actions",)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Rows, npt.NDArray[np.bool_]]:
        return features.action_features(programs, machine), np.ones(len(programs), dtype=bool)


def _comparable(seconds: FloatArray) -> bool:
    """Whether two programs ran and took different times."""
    return len(np.unique(seconds[~np.isnan(seconds)])) > 1


def _misordered(
    tables: Sequence[_Table], top: float, rng: np.random.Generator
) -> Callable[[FloatArray, Any], tuple[str, float]]:
    """What growing is stopped by: the weight of the pairs ordered wrongly, over that of all.

    Pairs and weights are as in training, every group counts alike, and ties are half wrong. A share
    does not depend on the scale of the scores, so that it judges all objectives.
    """
    parts, start = [], 0
    for table in tables:
        n, level = len(table.seconds), table.levels
        i = np.repeat(np.arange(n), min(n - 1, _VALIDATION_PAIRS))
        j = (i + rng.integers(1, n, size=len(i))) % n
        i, j = np.where(level[i] >= level[j], i, j), np.where(level[i] >= level[j], j, i)
        weight = np.minimum(level[i] - level[j], _CAP) * table.importance(top)[i]
        total = weight.sum()
        parts.append((i + start, j + start, weight / total if total > 0 else weight))
        start += n
    faster, slower, weights = (np.concatenate(each) for each in zip(*parts, strict=True))

    def metric(scores: FloatArray, _data: Any) -> tuple[str, float]:
        gap = scores[slower] - scores[faster]
        wrong = (gap > 0) + 0.5 * (gap == 0)
        return "misordered", float(weights @ wrong) / len(tables)

    return metric
