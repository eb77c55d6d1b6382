"""Gradient descent on the smooth score of many points at once."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray

if TYPE_CHECKING:
    import torch

    from foretune.search._relaxed import Relaxed


_BETAS = (0.9, 0.99)
_DECAY_AFTER = 0.3
_DECAY = 0.2
"""The step falls to this, along a straight line, after that share of the steps."""


class Landscape(abc.ABC):
    """The score of one group of candidates as a smooth function of its coordinates.

    Attributes:
        relaxed: The coordinates.
    """

    relaxed: Relaxed

    @abc.abstractmethod
    def anchor(self, x: FloatArray) -> Any:
        """What ``scores`` needs to know of the legal decisions that are nearest to points."""

    @abc.abstractmethod
    def scores(self, x: torch.Tensor, temperature: float, anchor: Any) -> torch.Tensor:
        """Scores of points less penalties, shape (n,), higher is better, with gradients.

        Args:
            x: Points, shape (n, size).
            temperature: Width of operators that jump, in natural logarithms; 0: as they are.
            anchor: What ``anchor`` gave of points not far from here.
        """

    def excess(self, x: FloatArray) -> FloatArray:
        """How far points are from being feasible, shape (n,); 0 where they are."""
        return np.zeros(len(x))


@dataclass(frozen=True)
class Descent:
    """How points move; see ``GradientConfig`` for the fields."""

    steps: int
    learning_rate: float
    refresh: int

    def temperature(self, step: int) -> float:
        """0: gradients are those of exact operators. A study has them smooth at first."""
        return 0.0

    def rate(self, step: int) -> float:
        """The step size of Adam."""
        late = max(0.0, step / self.steps - _DECAY_AFTER) / (1 - _DECAY_AFTER)
        return self.learning_rate * (1 - (1 - _DECAY) * late)


def descend(landscape: Landscape, starts: FloatArray, how: Descent) -> FloatArray:
    """Moves points uphill on the score with Adam, all of them at once.

    The optimiser is a new one each time: moments of other starts mean nothing here.

    Args:
        landscape: What is climbed.
        starts: Points, shape (n, size).
        how: Steps and rates.

    Returns:
        Every point visited, shape (steps + 1, n, size); the first are the starts.
    """
    import torch

    relaxed = landscape.relaxed
    trajectory = [starts]
    if relaxed.size == 0:
        return starts[None]
    x = torch.tensor(starts, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([x], lr=how.learning_rate, betas=_BETAS)
    anchor = None
    for step in range(how.steps):
        if step % how.refresh == 0:
            anchor = landscape.anchor(trajectory[-1])
        for group in optimiser.param_groups:
            group["lr"] = how.rate(step)
        optimiser.zero_grad()
        # Points do not meet in the sum: each has the gradient of its own score.
        score = landscape.scores(x, how.temperature(step), anchor).sum()
        (gradient,) = torch.autograd.grad(-score, [x])
        x.grad = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        optimiser.step()
        with torch.no_grad():
            x.copy_(relaxed.project(x))
        trajectory.append(x.detach().numpy().copy())
    return np.stack(trajectory)
