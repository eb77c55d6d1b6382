"""Breeding: which programs have children, how these are made, and what they were made of.

Idea: the better a program, the likelier it is a parent, by its rank. A child is a mutation of one
parent (one decision drawn anew, and now and then one more) or a crossover of two. A proposer that
edits programs is told where they come from, so the line of a program back to where it began is
kept, as long as it leads to something that is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.search.proposers import Variant

if TYPE_CHECKING:
    from foretune.space import Candidate, SearchSpace


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
    found: list[list[int]] = rng.choice(n, p=weights / weights.sum(), size=(count, 2)).tolist()
    return found


def child(
    space: SearchSpace[Any],
    parent: Candidate,
    other: Candidate,
    how: Breeding,
    rng: np.random.Generator,
) -> Candidate:
    """A child of one parent or of both; it may be one of them."""
    made: Candidate
    if rng.random() < how.crossover:
        made = space.crossover(parent, other, rng)
        return made
    made = space.mutate(parent, rng)
    while rng.random() < how.further:
        made = space.mutate(made, rng)
    return made


def in_turns(*ranked: Iterable[Candidate]) -> list[Candidate]:
    """The first of each list, then the second of each, and so on."""
    rounds = itertools.zip_longest(*ranked)
    return [candidate for each in rounds for candidate in each if candidate is not None]


class Lineage:
    """What programs were made of; of a crossover the first parent counts."""

    def __init__(self) -> None:
        self._parents: dict[str, Variant] = {}

    def __len__(self) -> int:
        """Programs of which a parent is known."""
        return len(self._parents)

    def add(self, parent: Variant, children: Iterable[Candidate]) -> None:
        """Keeps what children were made of, unless it is known already."""
        for each in children:
            self._parents.setdefault(each.key, parent)

    def of(self, candidate: Candidate, most: int) -> list[Variant]:
        """The programs that one came from, its parent first, as they were when it was made."""
        found: dict[str, Variant] = {}
        key = candidate.key
        while (parent := self._parents.get(key)) is not None and len(found) < most:
            key = parent.candidate.key
            if key in found or key == candidate.key:
                break
            found[key] = parent
        return list(found.values())

    def keep(self, candidates: Iterable[Candidate]) -> None:
        """Forgets all but the lines of some programs."""
        kept: dict[str, Variant] = {}
        for last in candidates:
            key = last.key
            while key in self._parents and key not in kept:
                kept[key] = self._parents[key]
                key = kept[key].candidate.key
        self._parents = kept
