"""Trees on the same features, the strong baseline: XGBoost, on what a configuration says.

Of one layout graph, the numbers of all its configurable nodes in a row, which trees of another
graph could not read. Of kernels, a configuration beside mean and maximum of the nodes' columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from foretune.tgraph import LayoutGraph, Part, TileGraph

_ROUNDS = 400
_OPTIONS = {"max_depth": 8, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.5}


def layout_scores(learned: Part, held: Part, seed: int, threads: int) -> npt.NDArray[np.float64]:
    """Scores of configurations by trees that learned the ranks of others of the same graph."""
    rank = learned.runtime.argsort().argsort() / len(learned.rows)
    return _scores(_layout(learned), rank, _layout(held), seed, threads)


def tile_scores(
    learned: Sequence[Part], held: Sequence[Part], seed: int, threads: int
) -> list[npt.NDArray[np.float64]]:
    """Scores of kernels' tiles by trees that learned log run times of other kernels."""
    rows = np.concatenate([_tile(part) for part in learned])
    centred = [np.log(p.runtime) - np.log(p.runtime).mean() for p in learned]
    return [_scores(rows, np.concatenate(centred), _tile(part), seed, threads) for part in held]


def _layout(part: Part) -> npt.NDArray[Any]:
    assert isinstance(part.graph, LayoutGraph)
    features = part.graph.configurations.features(part.rows)
    return features.reshape(len(features), -1).astype(np.float32)


def _tile(part: Part) -> npt.NDArray[Any]:
    assert isinstance(part.graph, TileGraph)
    nodes = part.graph.nodes.features
    graph = np.concatenate([nodes.mean(axis=0), nodes.max(axis=0)])
    return np.hstack([part.graph.configurations[part.rows], np.tile(graph, (len(part.rows), 1))])


def _scores(
    rows: npt.NDArray[Any],
    labels: npt.NDArray[np.float64],
    wanted: npt.NDArray[Any],
    seed: int,
    threads: int,
) -> npt.NDArray[np.float64]:
    options = {**_OPTIONS, "seed": seed, "nthread": threads}
    trees = xgboost.train(options, xgboost.DMatrix(rows, labels), _ROUNDS)
    return np.asarray(trees.predict(xgboost.DMatrix(wanted)), dtype=np.float64)
