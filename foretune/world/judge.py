"""How near the transition model comes, beside who knows nothing (acceptance of the model)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune.world._paths import Floats, Integers, Paths
from foretune.world.transition import TransitionModel


@dataclass(frozen=True)
class Terminals:
    """How near predicted terminal states are to the true ones, path by path, each of shape (P,).

    Attributes:
        length: T.
        predicted: 1 - cos(p_T, z_T), p_T the mean of the members.
        initial: 1 - cos(z_0, z_T): of who says that actions change nothing.
        mean: 1 - cos(m, z_T), with m the mean terminal state of training.
        spread: Mean squared distance of the members' predictions from their mean.
        apart: Squared distance of z_T from the mean z_T of the workload's paths. What is predicted
            of the differences between the programs of a workload, which are all that ranking them
            needs, is the sum of 2 ``predicted`` over all paths divided by that of ``apart``,
            subtracted from 1.
        found: Whether p_T is nearer to z_T than to the terminal state of any other path of the
            workload that ends elsewhere.
    """

    length: Integers
    predicted: Floats
    initial: Floats
    mean: Floats
    spread: Floats
    apart: Floats
    found: npt.NDArray[np.bool_]


def judge(model: TransitionModel, paths: Paths) -> Terminals:
    """The model's predictions for paths beside the truth and two floors."""
    start = np.arange(len(paths))
    initial, true = paths.states[paths.initial], paths.states[paths.terminal]
    each = model.rollout(initial, paths.actions, paths.matrix(), paths.lengths, start)
    mean = each.mean(axis=0)
    predicted = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-6)
    found = np.zeros(len(paths), dtype=bool)
    apart = np.zeros(len(paths), dtype=np.float32)
    for workload in np.unique(paths.workload):
        own = np.flatnonzero(paths.workload == workload)
        cosines = predicted[own] @ true[own].T
        others = paths.terminal[own][:, None] != paths.terminal[own]
        best = np.where(others, cosines, -np.inf).max(axis=1)
        found[own] = cosines.diagonal() > best
        apart[own] = ((true[own] - true[own].mean(axis=0)) ** 2).sum(axis=1)
    return Terminals(
        paths.lengths,
        1.0 - (predicted * true).sum(axis=1),
        1.0 - (initial * true).sum(axis=1),
        1.0 - true @ model.mean_terminal,
        ((each - mean) ** 2).sum(axis=2).mean(axis=0),
        apart,
        found,
    )
