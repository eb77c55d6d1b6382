"""Drawing candidates that are new and legal, and thinning those that are alike.

Different decisions can make the same program: a loop of one iteration is parallel or not, vectors
are no longer than the innermost loop, what is computed at another place is computed at the same
time. Measured once more, such a program tells nothing, so that of candidates with the same program
(TVM's structural hash after the post-processors) one is proposed.
"""

from __future__ import annotations

import functools
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
_TOLD = 256
"""Programs of others that are made to know them again, the fastest: each takes milliseconds."""

APART = 2
"""Decisions in which proposals of a batch differ."""
FIRST_APART = 3
"""The same while nothing is measured: a wrong belief should not be tried eight times."""


class FreshSampler:
    """Samples a space without replacement and remembers everything that was proposed or told.

    Attributes:
        seen: Keys that must not be proposed again.
        illegal: Keys of candidates that TVM refused when they were applied.
        repeated: Keys of candidates that were passed over, as their program was proposed or told.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng
        self.seen: set[str] = set()
        self.illegal: set[str] = set()
        self.repeated: set[str] = set()
        self._programs: set[str] = set()
        self._told: dict[str, tuple[float, Candidate]] = {}

    def mark(self, records: Iterable[Record]) -> None:
        """Counts told candidates as proposed, whoever proposed them."""
        for record in records:
            seconds = record.measurement.best_s
            key, candidate = record.candidate_key, record.candidate
            if key not in self.seen and candidate is not None and seconds is not None:
                self._told[key] = (seconds, candidate)
            self.seen.add(key)

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

    def legal(
        self, n: int, candidates: Iterable[Candidate], beside: Iterable[Candidate] = ()
    ) -> list[Candidate]:
        """The first ``n`` that are new, can be applied, and have a program that is new.

        Args:
            n: At most so many.
            candidates: In the order of preference.
            beside: What else is about to be proposed.
        """
        self._learn_programs()
        # In the batch: key of the program -> the candidate, None for one that stands beside it.
        chosen: dict[str, Candidate | None] = {program_key(other): None for other in beside}
        left = n
        for candidate in candidates:
            if left == 0:
                break
            if not (self.is_new(candidate) and self.is_legal(candidate)):
                continue
            program = program_key(candidate)
            if program in self._programs:
                self.repeated.add(candidate.key)
                self.seen.add(candidate.key)
            elif program not in chosen:
                chosen[program] = candidate
                left -= 1
        return [candidate for candidate in chosen.values() if candidate is not None]

    def propose(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Marks candidates as proposed and returns them as a list."""
        proposed = list(candidates)
        self.seen.update(candidate.key for candidate in proposed)
        self._programs.update(program_key(candidate) for candidate in proposed)
        return proposed

    def _learn_programs(self) -> None:
        told = sorted(self._told.values(), key=lambda each: (each[0], each[1].key))
        self._told = {}
        for _, candidate in told[:_TOLD]:
            if self.is_legal(candidate):
                self._programs.add(program_key(candidate))

    def stream(self, limit: int, exclude: Iterable[str] = ()) -> Iterator[Candidate]:
        """New candidates one after the other, until the space is exhausted.

        At most ``limit``, of which those do not count that are found to repeat a program.
        """
        taken = set(exclude)
        given = 0
        while given < limit:
            batch = self.unseen(min(_DRAW, limit - given), taken)
            if not batch:
                return
            for candidate in batch:
                taken.add(candidate.key)
                yield candidate
                given += candidate.key not in self.repeated


@functools.lru_cache(maxsize=4096)
def program_key(candidate: Candidate) -> str:
    """Equal for candidates whose programs are; of one that makes no program, its own key.

    Raises:
        IllegalCandidateError: It cannot be applied.
    """
    from foretune import _tvm

    program = candidate.apply()
    return candidate.key if program is None else f"{_tvm.structural_hash(program):016x}"


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
