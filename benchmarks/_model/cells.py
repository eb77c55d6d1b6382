"""One model, trained with one seed on one part of a split: what that is, and how it is judged.

The code of this module is part of what finished cells are kept under (``benchmarks._model.store``),
so only what their figures depend on belongs here.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune.cost import rankers
from foretune.evaluate.data import thinned
from foretune.evaluate.exclusions import refuse_excluded
from foretune.evaluate.metrics import GroupMetrics, judge
from foretune.evaluate.splits import Split

MODELS = (
    "gbdt_actions",
    "mlp_actions",
    "gbdt_behaviour",
    "mlp_behaviour",
    "joined",
    "gbdt",
    "mlp",
    "tlp",
    "mtl_tlp",
    "tgraph",
)
_NETWORKS = ("mlp", "tlp", "mtl_tlp", "tgraph")
_DRAWN = (*_NETWORKS, "mlp_actions", "mlp_behaviour", "joined")
_SPLIT_SEED = 0
"""As ``foretune.evaluate.evaluate`` has it unless told otherwise."""


def is_network(model: str) -> bool:
    """Whether a ranker depends on ``precision``."""
    return model.partition(":")[0] in _NETWORKS


def depends_on_chance(model: str) -> bool:
    """Whether a ranker depends on its seed so much that several are needed."""
    return model.partition(":")[0] in _DRAWN


@dataclass(frozen=True)
class Job:
    """One table.

    Attributes:
        data: A name of ``benchmarks.models.DATA``.
        by: A name of ``foretune.evaluate.splits``.
        folds: See there.
        on_all_devices: Whether only workloads that were measured on every device count, so that
            tables with and without workloads seen on another device test the same groups.
        programs: Learned from per group, at most.
        models: Names of rankers.
    """

    data: str
    by: str
    folds: int | None = None
    on_all_devices: bool = False
    programs: int = 32
    models: tuple[str, ...] = MODELS

    @property
    def name(self) -> str:
        """``data/split``."""
        return f"{self.data}/{self.by}"


@dataclass(frozen=True)
class Cell:
    """One model, trained once.

    Attributes:
        job: The table.
        number: Position of the part among the splits.
        part: What is trained on and tested.
        model: Name of a ranker.
        seed: Of its training.
    """

    job: Job
    number: int
    part: Split
    model: str
    seed: int


def train_and_judge(cell: Cell, features: Path, precision: str = "float32") -> dict[str, Any]:
    """Trains the model of a cell and judges it on every test group.

    Models that read programs find the features of all of them in a folder before the clock starts.
    Otherwise the first model would pay for those that come after it, and times would say in which
    order cells were computed.

    Args:
        cell: What to train.
        features: Folder in which models that read programs keep what they read.
        precision: Of networks, as ``foretune.cost`` takes it.
    """
    # The same draw as in `foretune eval --programs`: of both together, by the number of the part.
    learned = thinned((*cell.part.train, *cell.part.validation), cell.job.programs, cell.number)
    train, validation = learned[: len(cell.part.train)], learned[len(cell.part.train) :]
    refuse_excluded(learned)
    options: dict[str, Any] = {"precision": precision} if is_network(cell.model) else {}
    if rankers.keeps_programs(cell.model):
        options["cache"] = features
    ranker = rankers.create(cell.model, seed=cell.seed, **options)
    ranker.prepare([*learned, *cell.part.test])
    started = time.perf_counter()
    ranker.fit(train, validation)
    train_s = time.perf_counter() - started
    judged, scored, score_s = {}, 0, 0.0
    for group in cell.part.test:
        started = time.perf_counter()
        scores = ranker.score(group.programs, group.machine, group.hardware)
        score_s += time.perf_counter() - started
        scored += len(group)
        # Equal scores in the order in which `foretune eval` puts them, so that figures agree.
        rng = np.random.default_rng([_SPLIT_SEED, cell.seed, zlib.crc32(group.key.encode())])
        found = judge(np.asarray(scores, dtype=np.float64), group.seconds, rng)
        judged[group.key] = metrics_to_json(found)
    return {
        "cell": [cell.job.name, cell.part.name, cell.model, cell.seed],
        "train_groups": len(train),
        "train_programs": sum(len(group) for group in train),
        "train_s": train_s,
        "score_s_per_program": score_s / max(scored, 1),
        "groups": judged,
    }


def metrics_to_json(metrics: GroupMetrics) -> dict[str, Any]:
    """What a cell keeps of a group."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(metrics).items()
    }


def metrics_from_json(data: Mapping[str, Any]) -> GroupMetrics:
    """Reverses ``metrics_to_json``."""
    return GroupMetrics(
        **{k: np.array(v, dtype=np.float64) if isinstance(v, list) else v for k, v in data.items()}
    )
