"""One ranker, trained with one seed on one part of a split: what that is, and how it is judged.

The code of this module is part of what finished cells are kept under, so only what their figures
depend on belongs here.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import Cells, digest
from benchmarks.sources import code_of
from foretune.cost import rankers, split_name
from foretune.evaluate.data import thinned
from foretune.evaluate.exclusions import refuse_excluded
from foretune.evaluate.metrics import GroupMetrics, average, judge
from foretune.evaluate.splits import Split

_NETWORKS = ("mlp", "tlp", "mtl_tlp", "tgraph")
_DRAWN = (*_NETWORKS, "mlp_actions", "mlp_behaviour", "joined")
_SPLIT_SEED = 0
"""As ``foretune.evaluate.evaluate`` has it unless told otherwise."""
ROOMS = (
    "cost", "features", "symbolic", "dataset", "describe", "evaluate", "space", "hardware", "world",
)  # fmt: skip
"""Of the package, that cells of rankers depend on."""


def is_network(model: str) -> bool:
    """Whether a ranker depends on ``precision``."""
    return model.partition(":")[0] in _NETWORKS


def depends_on_chance(model: str) -> bool:
    """Whether a ranker depends on its seed so much that several are needed."""
    return model.partition(":")[0] in _DRAWN


@dataclass(frozen=True)
class Cell:
    """One ranker, trained once.

    Attributes:
        number: Position of the part among the splits.
        part: What is trained on and tested.
        model: Name of a ranker, with options: ``world:variants:state=none``.
        seed: Of its training.
        programs: Learned from per group, at most.
    """

    number: int
    part: Split
    model: str
    seed: int
    programs: int


def train_and_judge(cell: Cell, features: Path, precision: str = "float32") -> dict[str, Any]:
    """Trains the ranker of a cell and judges it on every test group.

    Rankers that read programs find the features of all of them in a folder before the clock starts.
    Otherwise the first one would pay for those that come after it, and times would say in which
    order cells were computed.

    Args:
        cell: What to train.
        features: Folder in which rankers that read programs keep what they read.
        precision: Of networks, as ``foretune.cost`` takes it.
    """
    # The same draw as in `foretune eval --programs`: of both together, by the number of the part.
    learned = thinned((*cell.part.train, *cell.part.validation), cell.programs, cell.number)
    train, validation = learned[: len(cell.part.train)], learned[len(cell.part.train) :]
    refuse_excluded(learned)
    name, options = split_name(cell.model)
    if is_network(name):
        options["precision"] = precision
    if rankers.needs(name).folder:
        options["cache"] = features
    ranker = rankers.create(name, seed=cell.seed, **options)
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
        "train_groups": len(train),
        "train_programs": sum(len(group) for group in train),
        "train_s": train_s,
        "score_s_per_program": score_s / max(scored, 1),
        "groups": judged,
    }


def cells_of(folder: Path, model: str, data: str, programs: int, precision: str) -> Cells:
    """The finished cells of a ranker.

    Args:
        folder: Where all are.
        model: With its options.
        data: A fingerprint of what is split.
        programs: Learned from per group, at most.
        precision: Of networks.
    """
    settings = {"model": model, "data": data, "programs": programs, "code": model_code(model)}
    return Cells(folder, {**settings, "precision": precision if is_network(model) else None})


def result_of(cell: Cell, kept: Cells, features: Path, precision: str) -> dict[str, Any]:
    """A cell, computed now if it is not there."""
    # Who stands where follows from rooms that the hash of code does not reach.
    sides = (cell.part.train, cell.part.validation, cell.part.test)
    keys = digest([[group.key for group in side] for side in sides])
    words = f"{cell.part.name}  {cell.model}  seed {cell.seed}"
    make = functools.partial(train_and_judge, cell, features, precision)
    found: dict[str, Any] = kept.get(f"{words} {cell.number} {keys}", make, words)
    return found


@functools.cache
def model_code(model: str) -> str:
    """A hash of the code that a cell of this ranker runs, comments and formatting left out."""
    name, options = split_name(model)
    ranker = rankers.create(name, seed=0, **options)
    members = getattr(ranker, "members", {})
    return code_of(
        type(ranker).__module__,
        *sorted({type(member).__module__ for member in members.values()}),
        "benchmarks._rankers",
        "foretune.cost.rankers",
        "foretune.dataset.readers",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        # Found by name.
        "foretune_research.logs",
        *(["foretune_research.world.reader"] if model.startswith("world") else []),
        within=ROOMS,
    )


def judged_by_group(
    parts: Sequence[Split], found: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, GroupMetrics]:
    """A ranker on every tested group, means over seeds.

    Args:
        parts: Of the split.
        found: Of each part its results, one per seed.
    """
    return {
        group.key: average([metrics_from_json(result["groups"][group.key]) for result in results])
        for part, results in zip(parts, found, strict=True)
        for group in part.test
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
