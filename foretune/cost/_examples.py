"""Programs as arrays for a network, and the lists of them that are compared with one another.

Idea: a program is some rows, its stores or its scheduling steps, and some columns that hold for all
of it. The rows of all programs stand one after the other, so that nothing is filled up until a
network needs it. What learns to rank compares the programs of a list; ``group_batches`` cuts lists
from one group each.

Symbols: ``n`` programs; ``label`` is fastest / seconds within the group, 0 for a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import Array, Float32Array, FloatArray, IndexArray
from foretune.features.actions import machine_features
from foretune.hardware import FEATURE_COLUMNS

if TYPE_CHECKING:
    from foretune.hardware import Hardware

Weights = dict[str, Array]

_CLIP = 8.0
"""Standard deviations at most: a workload unlike all of training is not to throw a network off."""
_STATISTICS_ROWS = 200_000
_CONSTANT = 1e-6
_PICKS = 5


@dataclass(frozen=True)
class Examples:
    """Programs as a network reads them.

    Attributes:
        rows: float32 of shape (total, width): the rows of all programs, one after the other. A row
            is a store or a scheduling step.
        counts: Of shape (n,): rows of each program.
        context: float32 of shape (n, columns): what is known of a program as a whole; NaN: unknown.
    """

    rows: Float32Array
    counts: IndexArray
    context: Float32Array

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def starts(self) -> IndexArray:
        """Of shape (n,): the first row of each program."""
        return np.cumsum(self.counts) - self.counts

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """All programs of several, in order."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.context for part in parts]),
        )

    def scaled(self, rows: Scaling, context: Scaling) -> Examples:
        """The same programs with other numbers."""
        return Examples(rows(self.rows), self.counts, context(self.context))


def row_indices(starts: IndexArray, counts: IndexArray) -> IndexArray:
    """The rows of some programs, one program after the other, shape (sum of counts,)."""
    before = np.cumsum(counts) - counts
    rows: IndexArray = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return rows


def hardware_context(machine: Hardware | None, n: int) -> Float32Array:
    """The hardware factors, log2(1 + x), the same for n programs: shape (n, factors).

    NaN where nothing is known of the hardware: to a network it is then the average one.
    """
    factors = np.full(len(FEATURE_COLUMNS), np.nan)
    if machine is not None:
        factors = machine_features(machine)
    return np.tile(factors.astype(np.float32), (n, 1))


@dataclass(frozen=True)
class Scaling:
    """``clip((x - shift) * factor)`` column by column, fitted on training data alone.

    Attributes:
        shift, factor: float32 of shape (columns,).
        limit: Results are clipped to plus and minus this.
    """

    shift: Float32Array
    factor: Float32Array
    limit: float = np.inf

    @classmethod
    def standard(cls, values: Float32Array) -> Scaling:
        """To mean 0 and deviation 1. A column that does not vary becomes 0, whatever comes later.

        NaN is left out here, and becomes 0, the mean, when scaled.
        """
        sample = values[:: max(1, len(values) // _STATISTICS_ROWS)].astype(np.float64)
        known = ~np.isnan(sample)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, sample, 0.0).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, sample - mean, 0.0) ** 2).sum(axis=0) / count)
        varies = deviation > _CONSTANT * (1.0 + np.abs(mean))
        factor = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        return cls(mean.astype(np.float32), factor.astype(np.float32), _CLIP)

    def __call__(self, values: Float32Array) -> Float32Array:
        scaled = np.clip((values - self.shift) * self.factor, -self.limit, self.limit)
        finite: Float32Array = np.nan_to_num(scaled.astype(np.float32, copy=False), copy=False)
        return finite


@dataclass(frozen=True)
class Labelled:
    """Programs to learn from or to judge by.

    Attributes:
        examples: n programs.
        labels: float32 of shape (n,).
        group: Of shape (n,): number of the group, from 0 without gaps.
        head: Of shape (n,): number of the output that belongs to the hardware; -1: unknown.
        targets: float32 of shape (n,): what the loss compares with instead of the labels.
    """

    examples: Examples
    labels: Float32Array
    group: IndexArray
    head: IndexArray
    targets: Float32Array | None = None

    def scaled(self, rows: Scaling, context: Scaling) -> Labelled:
        """The same with other numbers in the examples."""
        return replace(self, examples=self.examples.scaled(rows, context))


@dataclass(frozen=True)
class Batch:
    """What one step looks at.

    Attributes:
        programs: Of shape (n,): indices of programs.
        lists: Of shape (lists, longest): those that are compared with one another, as positions in
            ``programs``; -1 fills up a shorter list.
    """

    programs: IndexArray
    lists: IndexArray


def members_of(group: IndexArray) -> list[IndexArray]:
    """The programs of each group, shape (n,) -> one array of indices per number."""
    by_group = np.argsort(group, kind="stable")
    return np.split(by_group, np.cumsum(np.bincount(group))[:-1])


def group_batches(
    group: IndexArray, batch: int, list_size: int, rng: np.random.Generator
) -> list[Batch]:
    """Batches of whole lists; a list is a random part of one group.

    Args:
        group: Number of each program's group, shape (n,).
        batch: Programs per batch; the last list may reach beyond.
        list_size: Programs per list at most.
        rng: Shuffles the groups and the lists.
    """
    lists: list[IndexArray] = []
    for members in members_of(group):
        lists += np.array_split(rng.permutation(members), -(-len(members) // list_size))
    batches: list[Batch] = []
    held: list[IndexArray] = []
    for at in rng.permutation(len(lists)).tolist():
        held.append(lists[at])
        if sum(map(len, held)) >= batch:
            batches.append(_batch(held))
            held = []
    return [*batches, _batch(held)] if held else batches


def _batch(lists: Sequence[IndexArray]) -> Batch:
    ends = np.cumsum([len(members) for members in lists])
    return Batch(np.concatenate(lists), padded(np.split(np.arange(ends[-1]), ends[:-1])))


def padded(lists: Sequence[IndexArray]) -> IndexArray:
    """Lists of places, shape (lists, longest), filled up with -1."""
    table = np.full((len(lists), max(map(len, lists))), -1, dtype=np.intp)
    for row, members in zip(table, lists, strict=True):
        row[: len(members)] = members
    return table


def pick_quality(scores: FloatArray, labels: Float32Array, group: IndexArray) -> float:
    """How good the programs with the highest scores are, in [0, 1].

    The mean over groups of top-1 and top-5, where top-k is the best label among the first k. Top-1
    is what counts, but it is one program per workload; with top-5 beside it the choice of an epoch
    depends less on chance.
    """
    # Ties must not follow the order of the file, which may be sorted by time.
    rng = np.random.default_rng(0)
    levels = []
    for members in members_of(group):
        shuffled = rng.permutation(members)
        first = labels[shuffled[np.argsort(-scores[shuffled], kind="stable")[:_PICKS]]]
        levels.append((first[0] + first.max()) / 2.0)
    return float(np.mean(levels))


@dataclass(frozen=True)
class Epoch:
    """What was seen of one pass over the data.

    Attributes:
        member: Number of the network.
        loss: Mean training loss per step.
        quality: What the epoch was judged by, higher is better; NaN without a judgement.
    """

    member: int
    loss: float
    quality: float
