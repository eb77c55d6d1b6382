"""Drawing candidates that are new and legal, and thinning those that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import IllegalCandidateError

if TYPE_CHECKING:
    from foretune.records import Record
    from foretune.space import Candidate, Space

_DRAWS_PER_POINT = 12
"""Fruitless draws allowed per point of a small space: the last one is missed once in e^12."""
_MAX_FRUITLESS = 4096
_DRAW = 64

APART = 2
"""Decisions in which proposals of a batch differ."""
FIRST_APART = 3
"""The same while nothing is measured: a wrong belief should not be tried eight times."""


class FreshSampler:
    """Samples a space without replacement and remembers everything that was proposed or told.

    Attributes:
        seen: Keys that must not be proposed again.
        illegal: Keys of candidates that TVM refused when they were applied.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng
        self.seen: set[str] = set()
        self.illegal: set[str] = set()

    def mark(self, records: Iterable[Record]) -> None:
        """Counts told candidates as proposed, whoever proposed them."""
        self.seen.update(record.candidate_key for record in records)

    def is_new(self, candidate: Candidate) -> bool:
        """Whether the candidate was neither proposed, nor told, nor found illegal."""
        return candidate.key not in self.seen and candidate.key not in self.illegal

    def is_legal(self, candidate: Candidate) -> bool:
        """Applies the candidate and remembers if that is refused."""
        if candidate.key in self.illegal:
            return False
        try:
            candidate.apply()
        except IllegalCandidateError:
            self.illegal.add(candidate.key)
            return False
        return True

    def unseen(self, n: int, exclude: Iterable[str] = ()) -> list[Candidate]:
        """Up to ``n`` distinct new candidates, not yet applied, in the order drawn.

        Fewer than ``n`` when the space has no more, judged by a run of fruitless draws that is
        long against the size of the space.
        """
        found: dict[str, Candidate] = {}
        taken = set(exclude)
        patience = min(_DRAWS_PER_POINT * self.space.size + _DRAW, _MAX_FRUITLESS)
        fruitless = 0
        while len(found) < n and fruitless < patience:
            for candidate in self.space.sample(self.rng, min(_DRAW, max(n, 8))):
                key = candidate.key
                if key in found or key in taken or not self.is_new(candidate):
                    fruitless += 1
                elif len(found) < n:
                    found[key] = candidate
                    fruitless = 0
        return list(found.values())

    def legal(self, n: int, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The first ``n`` of ``candidates`` that are new and can be applied."""
        chosen: dict[str, Candidate] = {}
        for candidate in candidates:
            if len(chosen) == n:
                break
            if candidate.key not in chosen and self.is_new(candidate) and self.is_legal(candidate):
                chosen[candidate.key] = candidate
        return list(chosen.values())

    def propose(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Marks candidates as proposed and returns them as a list."""
        proposed = list(candidates)
        self.seen.update(candidate.key for candidate in proposed)
        return proposed

    def stream(self, limit: int, exclude: Iterable[str] = ()) -> Iterator[Candidate]:
        """New candidates one after the other, at most ``limit``, until the space is exhausted."""
        taken = set(exclude)
        given = 0
        while given < limit:
            batch = self.unseen(min(_DRAW, limit - given), taken)
            if not batch:
                return
            for candidate in batch:
                taken.add(candidate.key)
                given += 1
                yield candidate


def spread(ranked: Iterable[Candidate], least: int = APART) -> Iterator[Candidate]:
    """Candidates that differ from every earlier one in ``least`` decisions first, then the rest.

    What differs in one decision from a better one teaches little that the better one does not.
    One by one: who takes a few of many compares only these few with one another.
    """
    apart: list[Candidate] = []
    near: list[Candidate] = []
    for candidate in ranked:
        close = any(
            candidate.sketch.key == other.sketch.key and difference(candidate, other) < least
            for other in apart
        )
        if close:
            near.append(candidate)
        else:
            apart.append(candidate)
            yield candidate
    yield from near


def difference(a: Candidate, b: Candidate) -> int:
    """Decisions in which two candidates of one sketch differ."""
    return sum(x != y for x, y in zip(a.decisions, b.decisions, strict=True))
