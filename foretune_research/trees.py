"""Boosted trees with other objectives than the product's, and other columns.

``objective`` says what is learned:

- ``"list"`` (the default): the softmax of a workload's scores is to be where its fastest programs
  are (``foretune.cost._listwise``). What a search measures are the few candidates that the model
  puts on top; only this loss looks at which these are.
- ``"lambda"``: pairs of programs of one workload pull their scores apart, the more the larger their
  difference in log2 seconds is, and the more the closer the faster one is to the best of its
  workload (``foretune.cost._lambdarank``).
- ``"ndcg"``: XGBoost's own LambdaMART, which looks at ranks instead of seconds. Ranks become
  levels of relevance, finer towards the top, at most 31 (XGBoost's exponential gain allows no
  more).
- ``"regression"``: squared error of best / seconds, as in TenSet.

Sources: RankNet and LambdaMART (Burges, 2010), ListNet (Cao et al., 2007).
"""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import xgboost

from foretune import features
from foretune._arrays import Float32Array, IndexArray
from foretune._options import Bounds, Count, OneOf, Positive, Share
from foretune.cost._boosters import Boosters, GbdtRankerConfig, joined
from foretune.cost._lambdarank import Objective, lambda_objective
from foretune.cost._listwise import SHARPNESS
from foretune.cost._table_ranker import ALWAYS, Learner
from foretune.cost._tables import Table
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker
from foretune.hardware import FEATURE_COLUMNS

if TYPE_CHECKING:
    from foretune.dataset import Program
    from foretune.hardware import Hardware

_LEAF_WEIGHTS = {"lambda": 15.0, "list": 30.0, "ndcg": 1.0, "regression": 30.0}
"""Second derivatives of about 30 programs before the first tree, by objective: a program has 1/2 in
its pairs and 1 in its list or as a square; XGBoost scales those of ``"ndcg"`` itself."""


@dataclass(frozen=True)
class TreesConfig(GbdtRankerConfig):
    """How trees are grown, with a switch for each part.

    Attributes:
        objective: ``"list"``, ``"lambda"``, ``"ndcg"`` or ``"regression"``.
        sharpness: How fast a program's share of the target of lists, and of what growing is
            stopped by, falls with its seconds: it is their power of minus this.
        top: Share of a pair's weight that depends on how close its faster program is to the best
            of its workload; 0: none.
        disturbed: What a reading that something disturbed counts beside one taken in quiet; 0: it
            is left out. ``"ndcg"`` knows no such weights.
        l2: L2 penalty on leaf values.
        subsample: Share of the programs each tree sees.
        bins: Values told apart per column.
        opponents: Pairs looked at per program.
    """

    objective: Annotated[str, OneOf(_LEAF_WEIGHTS)] = "list"
    sharpness: Positive = SHARPNESS
    top: Share = 0.75
    disturbed: Share = 0.1
    l2: float = 1.0
    subsample: Annotated[float, Bounds(gt=0, le=1)] = 0.7
    bins: Annotated[int, Bounds(ge=2)] = 64
    opponents: Count = 32


class Trees(Boosters):
    """Boosters that learn by their ``objective``."""

    config: type[GbdtRankerConfig] = TreesConfig

    @classmethod
    def training_data(
        cls, config: Any, tables: Sequence[Table], columns: IndexArray, rng: np.random.Generator
    ) -> tuple[xgboost.QuantileDMatrix, Objective | None]:
        """All rows, and the objective where it is not one of XGBoost's."""
        if config.objective == "list":
            return super().training_data(config, tables, columns, rng)
        shared: dict[str, Any] = {"nthread": config.threads, "max_bin": config.bins}
        objective: Objective | None = None
        if config.objective == "ndcg":
            shared["group"] = [len(table.seconds) for table in tables]
            shared["label"] = np.concatenate([table.relevance for table in tables])
        elif config.objective == "regression":
            shared["label"] = np.concatenate([table.labels for table in tables])
            shared["weight"] = np.concatenate([table.trust(config.disturbed) for table in tables])
        else:
            objective = lambda_objective(
                [table.levels for table in tables],
                config.opponents,
                rng,
                [table.importance(config.top) for table in tables],
                [table.trust(config.disturbed) for table in tables],
            )
        return xgboost.QuantileDMatrix(joined(tables, columns), **shared), objective

    @classmethod
    def parameters(cls, config: Any, seed: int, columns: float) -> dict[str, Any]:
        """Those of XGBoost for the objective."""
        builtin: Mapping[str, dict[str, Any]] = {
            "ndcg": {
                "objective": "rank:ndcg",
                "lambdarank_pair_method": "topk",
                "lambdarank_num_pair_per_sample": config.opponents,
            },
            "regression": {"objective": "reg:squarederror"},
        }
        found = {**builtin.get(config.objective, {}), **super().parameters(config, seed, columns)}
        if config.min_child_weight is None:
            found["min_child_weight"] = _LEAF_WEIGHTS[config.objective]
        return found


class GbdtVariants(GbdtRanker):
    """The ranker gbdt with a switch for each part; without features of actions (``"store"``)."""

    learner: ClassVar[type[Learner]] = Trees
    name: ClassVar[str] = "gbdt:variants"
    known_features: ClassVar[tuple[str, ...]] = ("both", "store")

    def _always(self, width: int) -> list[int]:
        if self.features != "store":
            return super()._always(width)
        names = [f"machine.{name}" for name, _unit in FEATURE_COLUMNS]
        first = width - len(names)
        return [first + at for at, name in enumerate(names) if name in ALWAYS]

    def _beside(self, programs: Sequence[Program], machine: Hardware | None) -> Float32Array:
        if self.features == "both":
            return super()._beside(programs, machine)
        if machine is None and programs[0].candidate is not None:
            machine = programs[0].candidate.hardware
        factors = features.machine_features(machine).astype(np.float32)
        return np.tile(factors, (len(programs), 1))


class GbdtActionVariants(GbdtActionRanker):
    """The ranker gbdt_actions with a switch for each part of its trees."""

    learner: ClassVar[type[Learner]] = Trees
    name: ClassVar[str] = "gbdt_actions:variants"
