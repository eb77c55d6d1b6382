"""The boosters of a trained ranker: how they are grown, and on which loss.

See ``foretune.cost.gbdt_ranker`` for the idea.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import xgboost

from foretune._arrays import Array, Float32Array, FloatArray, IndexArray
from foretune._options import Bounds, Count, NotNegative, Positive, require_options
from foretune.cost._lambdarank import Objective
from foretune.cost._listwise import SHARPNESS, cross_entropy, list_objective, list_target
from foretune.cost._tables import Table

_LEAF_WEIGHT = 30.0
"""Second derivatives of about 30 programs before the first tree: a program has 1 in its list."""
_MEMBER_COLUMNS = 3.0
"""Columns of a member for each column of a tree."""
_STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
"""What XGBoost keeps of every node for growing trees on and for explaining them."""


@dataclass(frozen=True)
class GbdtRankerConfig:
    """How the trees are grown. The defaults suit tens of thousands of programs.

    Attributes:
        rounds: Trees per booster at most.
        patience: Rounds without improvement on the workloads left out after which growing ends.
        depth: Depth of a tree.
        learning_rate: Shrinkage of each tree.
        min_child_weight: Least sum of second derivatives in a leaf. None: about that of 30
            programs when growing begins, and of the more the less is left to learn of each. Less
            suits less than some thousand programs.
        columns: Share of the columns each tree sees, drawn from the three times as many that its
            member sees.
        boosters: Members whose scores are averaged.
        threads: Threads XGBoost may use.
        max_rows: Programs trained on; above it every group is thinned out alike, but keeps its
            fastest eighth.
    """

    objective: ClassVar[str] = "list"
    sharpness: ClassVar[float] = SHARPNESS
    top: ClassVar[float] = 0.75
    disturbed: ClassVar[float] = 0.1
    l2: ClassVar[float] = 1.0
    subsample: ClassVar[float] = 0.7
    bins: ClassVar[int] = 64
    opponents: ClassVar[int] = 32

    rounds: Count = 600
    patience: Count = 60
    depth: Count = 7
    learning_rate: Positive = 0.06
    min_child_weight: NotNegative | None = None
    columns: Annotated[float, Bounds(gt=0, le=1)] = 0.3
    boosters: Count = 5
    threads: Count = 1
    max_rows: Annotated[int, Bounds(ge=2)] = 200_000

    def __post_init__(self) -> None:
        require_options("gbdt", self)


@dataclass(frozen=True)
class Member:
    """One booster and the columns it reads.

    Attributes:
        booster: Trees.
        columns: Of shape (k,): which of all columns they read.
    """

    booster: xgboost.Booster
    columns: IndexArray

    def scores(self, matrix: Float32Array) -> FloatArray:
        """Sums of the trees, shape (n, columns) -> (n,)."""
        # Not matrix[:, columns], which gives columns first.
        read = np.take(matrix, self.columns, axis=1)
        margin = np.zeros(len(matrix))
        scores: FloatArray = self.booster.inplace_predict(read, base_margin=margin).astype(
            np.float64
        )
        return scores

    def arrays(self) -> dict[str, Array]:
        """The trees as ``bare_bytes`` gives them, and the columns."""
        return {"booster": bare_bytes(self.booster), "columns": self.columns}


def bare_bytes(booster: xgboost.Booster) -> npt.NDArray[np.uint8]:
    """Trees as XGBoost reads them, with zeros for what scores do not depend on.

    They compress to some two thirds of what they would.
    """
    model = json.loads(booster.save_raw("json"))
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree.update({name: [0.0] * len(tree[name]) for name in _STATISTICS})
    bare = xgboost.Booster()
    bare.load_model(bytearray(json.dumps(model).encode()))
    return np.frombuffer(bare.save_raw("ubj"), dtype=np.uint8)


def targets(config: GbdtRankerConfig, tables: Sequence[Table]) -> list[FloatArray]:
    """Where lists are to be, table by table."""
    return [
        list_target(table.labels, config.sharpness, table.trust(config.disturbed))
        for table in tables
    ]


def joined(tables: Sequence[Table], columns: IndexArray) -> Float32Array:
    """Some columns of all tables, one after the other."""
    return np.concatenate([np.take(table.matrix, columns, axis=1) for table in tables])


class Boosters:
    """Boosters as members of a ``foretune.cost._table_ranker.TableRanker``."""

    config: type[GbdtRankerConfig] = GbdtRankerConfig

    @classmethod
    def grow(
        cls,
        config: Any,
        seed: int,
        tables: Sequence[Table],
        judges: Sequence[Table],
        columns: IndexArray,
    ) -> Member:
        """Grows one member.

        Args:
            config: How.
            seed: Of what trees see.
            tables: What is learned from.
            judges: Growing ends when the cross entropy on these gets worse; never, if there are
                none.
            columns: Those that may be read.
        """
        rng = np.random.default_rng(seed)
        # XGBoost's time grows with all columns there are, not only with those that a tree draws.
        share = min(1.0, _MEMBER_COLUMNS * config.columns)
        count = max(1, round(share * len(columns)))
        columns = np.sort(rng.choice(columns, count, replace=False))
        data, objective = cls.training_data(config, tables, columns, rng)
        stopping: dict[str, Any] = {}
        if judges:
            judging = xgboost.DMatrix(joined(judges, columns), nthread=config.threads)
            stopping = {
                "evals": [(judging, "left_out")],
                "custom_metric": cross_entropy(targets(config, judges)),
                "early_stopping_rounds": config.patience,
                "maximize": False,
                "verbose_eval": False,
            }
        parameters = cls.parameters(config, seed, share)
        booster = xgboost.train(parameters, data, config.rounds, obj=objective, **stopping)
        return Member(booster[: booster.best_iteration + 1] if stopping else booster, columns)

    @classmethod
    def training_data(
        cls, config: Any, tables: Sequence[Table], columns: IndexArray, rng: np.random.Generator
    ) -> tuple[xgboost.QuantileDMatrix, Objective | None]:
        """All rows, and the objective where it is not one of XGBoost's."""
        del rng
        shared: dict[str, Any] = {"nthread": config.threads, "max_bin": config.bins}
        rows = xgboost.QuantileDMatrix(joined(tables, columns), **shared)
        return rows, list_objective(targets(config, tables))

    @classmethod
    def parameters(cls, config: Any, seed: int, columns: float) -> dict[str, Any]:
        """Those of XGBoost for a member that sees a share of the columns."""
        leaf = config.min_child_weight
        return {
            "disable_default_eval_metric": True,
            "base_score": 0.0,
            "max_depth": config.depth,
            "eta": config.learning_rate,
            "min_child_weight": _LEAF_WEIGHT if leaf is None else leaf,
            "lambda": config.l2,
            "subsample": config.subsample,
            "colsample_bytree": config.columns / columns,
            "tree_method": "hist",
            "max_bin": config.bins,
            "nthread": config.threads,
            "seed": seed,
            "verbosity": 0,
        }

    @staticmethod
    def count(config: Any) -> int:
        """How many members there are."""
        return int(config.boosters)

    @staticmethod
    def read(config: Any, arrays: Mapping[str, Array]) -> Member:
        """What ``Member.arrays`` gave."""
        booster = xgboost.Booster({"nthread": config.threads})
        booster.load_model(bytearray(arrays["booster"].tobytes()))
        return Member(booster, arrays["columns"].astype(np.intp))
