"""The regressor's trees: boosted on ranking and squares at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xgboost

from foretune._arrays import Array, Float32Array, FloatArray, IndexArray
from foretune.cost._boosters import bare_bytes
from foretune.cost.behaviour.targets import bin_weights

if TYPE_CHECKING:
    from foretune.cost.behaviour.regressor import Arrays, Material, RegressorConfig

_RATE = 0.08
_BINS = 64
"""Values told apart per column."""
_LEAST_HESSIAN = 1e-3
_LEAST_GAIN = 0.01
"""Share by which the loss on what is left out must fall for trees to be worth having."""

Gradients = tuple[FloatArray, FloatArray]
Ranking = Callable[[FloatArray], Gradients]
Ranks: TypeAlias = "Callable[[RegressorConfig, Material, FloatArray], Ranking]"
"""Of a configuration, programs and how often each is seen."""


@dataclass(frozen=True)
class TreeMember:
    """Trees, or none.

    Attributes:
        booster: None: what is added is 0.
    """

    booster: xgboost.Booster | None

    def correction(self, matrix: Float32Array) -> FloatArray:
        """Sums of the trees, shape (n, columns) -> (n,)."""
        if self.booster is None or not len(matrix):
            return np.zeros(len(matrix))
        margin = np.zeros(len(matrix))
        scores: FloatArray = self.booster.inplace_predict(matrix, base_margin=margin).astype(
            np.float64
        )
        return scores

    def arrays(self) -> Arrays:
        """The trees, as ``bare_bytes`` gives them."""
        if self.booster is None:
            return {}
        return {"trees": bare_bytes(self.booster)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], threads: int) -> TreeMember:
        """What ``arrays`` gave."""
        if "trees" not in arrays:
            return cls(None)
        booster = xgboost.Booster({"nthread": threads})
        booster.load_model(bytearray(arrays["trees"].tobytes()))
        return cls(booster)


def grow(
    config: RegressorConfig,
    seed: int,
    material: Material,
    judges: Material | None,
    signs: Sequence[int] = (),
    ranking: Ranks | None = None,
) -> TreeMember:
    """Grows one member.

    Args:
        config: How.
        seed: Of what trees see.
        material: What is learned from.
        judges: Growing ends when the loss on these no longer falls; never if None.
        signs: Of each column whether scores may only rise with it (1) or fall (-1); none if empty.
        ranking: The ranking's gradients; that of lists if None.
    """
    data = xgboost.QuantileDMatrix(
        material.matrix, base_margin=material.begin, nthread=config.threads, max_bin=_BINS
    )
    parameters: dict[str, Any] = {
        "disable_default_eval_metric": True,
        "base_score": 0.0,
        "max_depth": config.depth,
        "eta": _RATE if config.learning_rate is None else config.learning_rate,
        "min_child_weight": config.min_child_weight,
        "lambda": config.l2,
        "subsample": config.subsample,
        "colsample_bytree": config.columns,
        "tree_method": "hist",
        "max_bin": _BINS,
        "nthread": config.threads,
        "seed": seed,
        "verbosity": 0,
    }
    if any(signs):
        parameters["monotone_constraints"] = tuple(signs)
    stopping: dict[str, Any] = {}
    before = np.inf
    if judges is not None:
        metric = loss_of(config, judges)
        before = metric(judges.begin)
        held = xgboost.DMatrix(judges.matrix, base_margin=judges.begin, nthread=config.threads)
        stopping = {
            "evals": [(held, "left_out")],
            "custom_metric": lambda scores, _data: ("loss", metric(scores)),
            "early_stopping_rounds": config.patience,
            "maximize": False,
            "verbose_eval": False,
        }
    booster = xgboost.train(
        parameters, data, config.rounds, obj=objective(config, material, ranking), **stopping
    )
    if not stopping:
        return TreeMember(booster)
    if config.line and booster.best_score >= before * (1.0 - _LEAST_GAIN):
        return TreeMember(None)
    return TreeMember(booster[: booster.best_iteration + 1])


def objective(
    config: RegressorConfig, material: Material, ranks: Ranks | None = None
) -> Callable[[Array, Any], Gradients]:
    """The loss of the module's map, as XGBoost takes it."""
    weights = _weights(config, material)
    ranking = (ranks or _list)(config, material, weights)
    share = config.rank_share

    def gradients(scores: Array, _data: Any) -> Gradients:
        s = scores.astype(np.float64)
        force, curvature = ranking(s)
        left = _centred(s + material.times, material, weights)
        gradient = share * force + (1.0 - share) * weights * left
        hessian = share * curvature + (1.0 - share) * weights
        return gradient, np.maximum(hessian, _LEAST_HESSIAN)

    return gradients


def loss_of(config: RegressorConfig, material: Material) -> Callable[[FloatArray], float]:
    """The loss itself, the mean over groups, as a function of scores of shape (N,).

    Its ranking is that of lists, which both rankings aim at; programs count as often as they are.
    """
    group, t = material.group, config.temperature
    target = _softmax(-material.times / t, material.sizes)
    sizes = material.sizes[group]
    alike = np.ones(len(material.times))

    def loss(scores: Array) -> float:
        s = scores.astype(np.float64)
        reached = np.log(np.maximum(_softmax(s / t, material.sizes), 1e-30))
        best = np.log(np.maximum(target, 1e-30))
        ranks = float((target * (best - reached)).sum()) * t * t
        left = _centred(s + material.times, material, alike)
        squares = float((0.5 * left**2 / sizes).sum())
        share = config.rank_share
        return (share * ranks + (1.0 - share) * squares) / len(material.sizes)

    return loss


def _centred(left: FloatArray, material: Material, weights: FloatArray) -> FloatArray:
    """Less the weighted mean of each group."""
    group = material.group
    means = np.bincount(group, weights * left) / np.bincount(group, weights)
    centred: FloatArray = left - means[group]
    return centred


def _weights(config: RegressorConfig, material: Material) -> FloatArray:
    if not config.binning:
        return np.ones(len(material.times))
    return bin_weights(material.times, config.bins, config.repetition)


def _list(config: RegressorConfig, material: Material, weights: FloatArray) -> Ranking:
    t, group = config.temperature, material.group
    offset = np.log(weights)
    target = _softmax(offset - material.times / t, material.sizes)
    count = np.bincount(group, weights)[group]

    def ranking(s: FloatArray) -> Gradients:
        p = _softmax(offset + s / t, material.sizes)
        return t * count * (p - target), count * p * (1.0 - p)

    return ranking


def _softmax(values: FloatArray, sizes: IndexArray) -> FloatArray:
    """Within groups that stand one after the other."""
    starts = np.cumsum(sizes) - sizes
    raised = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), sizes))
    shares: FloatArray = raised / np.repeat(np.add.reduceat(raised, starts), sizes)
    return shares
