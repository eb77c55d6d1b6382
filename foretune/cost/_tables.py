"""Groups as trees see them: a matrix each, what is to be learned from it, and which columns help.

Trees can memorise workloads: a column that is the same for all programs of a workload says nothing
about which of them is faster, but it names the workload, and what was learned of it by heart is
wrong for the next one. So such columns are left out (``informative``), and what is judged by is
left out workload by workload (``folds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import BoolArray, Float32Array, FloatArray, IndexArray

_LEVELS = 31
"""Highest relevance that XGBoost takes with exponential gain."""
_LEVELS_PER_OCTAVE = 3
_FASTEST = 8
"""One in so many programs, the fastest, stay when a group is thinned."""
_WITHIN = 0.02
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Table:
    """One group.

    Attributes:
        workload: Key of the workload.
        matrix: float32 of shape (n, columns).
        seconds: float64 of shape (n,), NaN for a failure.
        quiet: bool of shape (n,): whether the reading was free of disturbance.
    """

    workload: str
    matrix: Float32Array
    seconds: FloatArray
    quiet: BoolArray

    def thinned(self, share: float, rng: np.random.Generator) -> Table:
        """A part of it: the fastest eighth and random others, at least two programs."""
        n = len(self.seconds)
        count = max(2, -(-n // _FASTEST), int(share * n))
        if count >= n:
            return self
        order = np.argsort(np.nan_to_num(self.seconds, nan=np.inf), kind="stable")
        fastest, others = np.split(order, [-(-n // _FASTEST)])
        drawn = rng.choice(others, count - len(fastest), replace=False)
        kept = np.sort(np.concatenate([fastest, drawn]))
        return Table(self.workload, self.matrix[kept], self.seconds[kept], self.quiet[kept])

    @property
    def levels(self) -> FloatArray:
        """Minus log2 seconds; failures one below the slowest."""
        level = -np.log2(self.seconds)
        return np.nan_to_num(level, nan=float(np.nanmin(level)) - 1.0)

    @property
    def labels(self) -> FloatArray:
        """Fastest / seconds, 0 for a failure."""
        return np.nan_to_num(np.nanmin(self.seconds) / self.seconds, nan=0.0)

    def importance(self, top: float) -> FloatArray:
        """Factor of a pair by its faster program."""
        return (1.0 - top) + top * self.labels

    def trust(self, disturbed: float) -> FloatArray:
        """Factor of a program: 1 where it was read in quiet or failed, else ``disturbed``."""
        return np.where(self.quiet | np.isnan(self.seconds), 1.0, disturbed)

    @property
    def relevance(self) -> FloatArray:
        """Integers in [0, 31], three per halving of the rank, 0 for a failure."""
        known = ~np.isnan(self.seconds)
        ranks = np.argsort(np.argsort(self.seconds[known], kind="stable"), kind="stable")
        octaves = -np.log2((ranks + 0.5) / max(1, len(ranks)))
        relevance = np.zeros(len(self.seconds))
        relevance[known] = np.minimum(_LEVELS, 1 + np.floor(_LEVELS_PER_OCTAVE * octaves))
        return relevance


def informative(tables: Sequence[Table], always: Sequence[int] = ()) -> IndexArray:
    """Columns that differ between the programs of a group, and a few others.

    Args:
        tables: At least one.
        always: Columns kept whether they differ or not, as they say what others mean.

    Returns:
        Sorted indices of the columns whose sum of squares within groups is more than 2 % of that
        around the mean of all, and of ``always``.
    """
    sizes = np.array([len(table.seconds) for table in tables], dtype=np.float64)
    within = np.zeros(tables[0].matrix.shape[1])
    means = np.zeros((len(tables), len(within)))
    for at, table in enumerate(tables):
        values = table.matrix.astype(np.float64)
        means[at] = values.mean(axis=0)
        within += ((values - means[at]) ** 2).sum(axis=0)
    mean = sizes @ means / sizes.sum()
    total = within + sizes @ (means - mean) ** 2
    # What is left of a constant column is rounding.
    varies = total > _ROUNDING * sizes.sum() * (1.0 + mean**2)
    kept = varies & (within > _WITHIN * total)
    kept[list(always)] = True
    return np.flatnonzero(kept)


def folds(tables: Sequence[Table], count: int, rng: np.random.Generator) -> IndexArray:
    """Of each table the fold it is left out in, 0 to ``count - 1``: one for a whole workload.

    There are no more folds than workloads.
    """
    workloads = sorted({table.workload for table in tables})
    places = rng.permutation(len(workloads)) % count
    fold = dict(zip(workloads, places.tolist(), strict=True))
    return np.array([fold[table.workload] for table in tables], dtype=np.intp)
