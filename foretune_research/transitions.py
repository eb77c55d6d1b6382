"""How near the transition model comes, beside who knows nothing (acceptance of the model)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, Float32Array, IntArray
from foretune.world._paths import Paths
from foretune.world.transition import TransitionModel

_SAME = 1e-6
"""Squared distance up to which two terminal states are one: programs with equal features have
states of their own that say the same."""


@dataclass(frozen=True)
class Terminals:
    """How near predicted terminal states are to the true ones, path by path, each of shape (P,).

    Attributes:
        length: T.
        predicted: 1 - cos(p_T, z_T), p_T the mean of the members, of length 1.
        initial: 1 - cos(z_0, z_T): of who says that actions change nothing.
        mean: 1 - cos(m, z_T), with m the mean terminal state of training.
        spread: Mean squared distance of the members' predictions from their mean.
        apart: Squared distance of z_T from the mean z_T of the workload's paths.
        missed: The same of z_T - p_T: what the prediction lacks of it, but for what it lacks of all
            programs of the workload alike. What is predicted of the differences between the
            programs of a workload, which are all that ranking them needs, is 1 - the sum of
            ``missed`` over all paths / that of ``apart``.
        distinct: Different terminal states among the workload's paths.
        found: Whether p_T is nearer to z_T than to any other of these; where there is no other, it
            says nothing. Chance finds one in ``distinct``.
    """

    length: IntArray
    predicted: Float32Array
    initial: Float32Array
    mean: Float32Array
    spread: Float32Array
    apart: Float32Array
    missed: Float32Array
    distinct: IntArray
    found: BoolArray


def judge(model: TransitionModel, paths: Paths, initial: Float32Array | None = None) -> Terminals:
    """The model's predictions for paths beside the truth and two floors.

    Args:
        model: Trained on other workloads.
        paths: Of some workloads, several of each.
        initial: What the model is to begin with in place of each path's z_0, shape (P, d): a
            control.
    """
    begun = paths.states[paths.initial] if initial is None else initial
    # Paths of a workload begin alike, and are followed once as far as they are alike.
    states, start = np.unique(begun, axis=0, return_inverse=True)
    each = model.rollout(states, paths.actions, paths.matrix(), paths.lengths, start.reshape(-1))
    return judge_ends(each, model.mean_terminal, paths)


def judge_ends(each: Float32Array, mean_terminal: Float32Array, paths: Paths) -> Terminals:
    """Terminal states that somebody predicts for paths, beside the truth and two floors.

    Args:
        each: As every member predicts them, shape (members, P, d).
        mean_terminal: The mean terminal state of training, shape (d,).
        paths: As for ``judge``.
    """
    first, true = paths.states[paths.initial], paths.states[paths.terminal]
    mean = each.mean(axis=0)
    predicted = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-6)
    found = np.zeros(len(paths), dtype=bool)
    distinct = np.zeros(len(paths), dtype=np.int64)
    apart, missed = (np.zeros(len(paths), dtype=np.float32) for _ in range(2))
    for workload in np.unique(paths.workload):
        own = np.flatnonzero(paths.workload == workload)
        same = ((true[own][:, None] - true[own]) ** 2).sum(axis=2) <= _SAME
        cosines = predicted[own] @ true[own].T
        found[own] = cosines.diagonal() > np.where(same, -np.inf, cosines).max(axis=1)
        distinct[own] = round(float((1.0 / same.sum(axis=1)).sum()))
        apart[own] = _around_mean(true[own])
        missed[own] = _around_mean(true[own] - predicted[own])
    return Terminals(
        paths.lengths,
        1.0 - (predicted * true).sum(axis=1),
        1.0 - (first * true).sum(axis=1),
        1.0 - true @ mean_terminal,
        ((each - mean) ** 2).sum(axis=2).mean(axis=0),
        apart,
        missed,
        distinct,
        found,
    )


def _around_mean(rows: Float32Array) -> Float32Array:
    """Squared distances of rows from their mean."""
    found: Float32Array = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1)
    return found
