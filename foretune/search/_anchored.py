"""Features of decisions between candidates: those of the nearest one, and a line from there.

Idea: features of decisions come from NumPy and have no derivatives, but nearly all of them are sums
of logarithms of factors. So at a point they are taken to be what they are at the nearest candidate,
plus what a linear fit over the group says about the way from there. At candidates nothing is lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, FloatArray
from foretune.search._relaxed import Relaxed
from foretune.space import Candidate

if TYPE_CHECKING:
    import torch

    from foretune.space import Decision

Anchor = tuple[FloatArray, FloatArray]
"""Features of the candidates nearest to points, and the logarithms of their columns."""

_SAMPLES = 256
"""Candidates that the linear fit of a group looks at."""
_RIDGE = 1e-3


class Anchored:
    """Features of decisions of a group of candidates as functions of its coordinates.

    Args:
        relaxed: The coordinates.
        base: Of the group: what is not open is as it has it.
        read: Candidates of one sketch to features, shape (n, columns).
    """

    def __init__(
        self,
        relaxed: Relaxed,
        base: Candidate,
        read: Callable[[Sequence[Candidate]], Array],
    ) -> None:
        self._relaxed, self._base, self._read = relaxed, base, read

    def anchor(self, x: FloatArray) -> Anchor:
        """What ``near`` needs to know of the decisions that are nearest to points."""
        return self._features(self._relaxed.nearest(x))

    def near(self, x: torch.Tensor, anchor: Anchor) -> torch.Tensor:
        """Features at points not far from an anchor's, shape (n, columns), with gradients."""
        import torch

        features, logs = (torch.from_numpy(each) for each in anchor)
        return features + (self._relaxed.logs(x) - logs) @ torch.from_numpy(self._slopes)

    def _features(self, decisions: Sequence[Mapping[int, Any]]) -> Anchor:
        import torch

        rows: list[tuple[Decision, ...]] = []
        for changes in decisions:
            row = list(self._base.decisions)
            for index, decision in changes.items():
                row[index] = decision
            rows.append(tuple(row))
        rows_of = self._read([Candidate.trusted(self._base.sketch, row) for row in rows])
        logs = self._relaxed.logs(torch.from_numpy(self._relaxed.of(rows)))
        return rows_of.astype(np.float64), np.asarray(logs)

    @functools.cached_property
    def _slopes(self) -> FloatArray:
        """Change of each feature per logarithm of each column, by ridge regression."""
        count = _SAMPLES if self._relaxed.size else 1
        features, logs = self._features(self._relaxed.sample(np.random.default_rng(0), count))
        x, y = logs - logs.mean(axis=0), np.nan_to_num(features - features.mean(axis=0))
        slopes: FloatArray = np.linalg.solve(
            x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y
        )
        return slopes
