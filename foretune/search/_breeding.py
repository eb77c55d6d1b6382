"""Breeding: which programs have children, how these are made, and what they were made of.

Idea: the better a program, the likelier it is a parent, by its rank. A child is a mutation of one
parent (one decision drawn anew, and now and then one more) or a crossover of two. A proposer that
edits programs is told where they come from, so the line of a program back to where it began is
kept, as long as it leads to something that is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import numpy as np

from foretune.search.proposers import Variant
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.space import SearchSpace


@dataclass(frozen=True)
class Breeding:
    """How children are made.

    Attributes:
        crossover: Share of them that have two parents.
        further: Probability that one which was mutated is mutated once more, and so on.
    """

    crossover: float
    further: float = 0.0


def pairs(n: int, count: int, rng: np.random.Generator) -> list[list[int]]:
    """Places of ``count`` pairs of parents among ``n`` that are ranked: the first are likelier."""
    weights = 1.0 / (1.0 + np.arange(n))
    places: list[list[int]] = rng.choice(n, p=weights / weights.sum(), size=(count, 2)).tolist()
    return places


def child(
    space: SearchSpace[C],
    parent: C,
    other: C,
    how: Breeding,
    rng: np.random.Generator,
) -> C:
    """A child of one parent or of both; it may be one of them."""
    if rng.random() < how.crossover:
        return space.crossover(parent, other, rng)
    made = space.mutate(parent, rng)
    while rng.random() < how.further:
        made = space.mutate(made, rng)
    return made


def in_turns(*ranked: Sequence[C]) -> list[C]:
    """The first of each list, then the second of each, and so on."""
    longest = max(map(len, ranked), default=0)
    return [each[at] for at in range(longest) for each in ranked if at < len(each)]


class Lineage(Generic[C]):
    """What programs were made of; of a crossover the first parent counts."""

    def __init__(self) -> None:
        self._parents: dict[str, Variant[C]] = {}

    def __len__(self) -> int:
        """Programs of which a parent is known."""
        return len(self._parents)

    def add(self, parent: Variant[C], children: Iterable[C]) -> None:
        """Keeps what children were made of, unless it is known already."""
        for each in children:
            self._parents.setdefault(each.key, parent)

    def of(self, candidate: C, most: int) -> list[Variant[C]]:
        """The programs that one came from, its parent first, as they were when it was made."""
        line: dict[str, Variant[C]] = {}
        key = candidate.key
        while (parent := self._parents.get(key)) is not None and len(line) < most:
            key = parent.candidate.key
            if key in line or key == candidate.key:
                break
            line[key] = parent
        return list(line.values())

    def keep(self, candidates: Iterable[C]) -> None:
        """Forgets all but the lines of some programs."""
        kept: dict[str, Variant[C]] = {}
        for last in candidates:
            key = last.key
            while key in self._parents and key not in kept:
                kept[key] = self._parents[key]
                key = kept[key].candidate.key
        self._parents = kept
