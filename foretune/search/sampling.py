"""Drawing candidates that are new, legal and no program twice, for any strategy.

A ``FreshSampler`` knows what was proposed and told of one space, so that nothing is proposed again.
Each ``Strategy`` has one as ``fresh``: ``fresh.random`` draws, ``fresh.legal`` chooses of what a
strategy has made itself, ``fresh.propose`` marks what is returned from ``ask``, and ``fresh.mark``
what is told. Strategies that propose together share one.

Different decisions may make one program: limits on parallel and vector loops do, wherever they ask
for more than the loops have. Measuring such a twin teaches nothing, so the first one stands for
all. Of a matrix product half of what a search proposes can be twins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic

import numpy as np

from foretune.errors import IllegalCandidateError
from foretune.hardware import usable_cores
from foretune.measure import Status
from foretune.space import MOST_RESULTS, results_per_thread
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.records import Trial
    from foretune.space import SearchCandidate, SearchSpace

_DRAWS_PER_CANDIDATE = 64
"""Draws spent on finding one legal candidate: a GPU space may refuse six out of seven."""
_DRAWS_PER_POINT = 12
"""Fruitless draws allowed per point of a small space: the last one is missed once in e^12."""
_MAX_FRUITLESS = 4096
_DRAW = 64
_MOST_THREADS = 8
_TOLD = 256
"""Programs of others that are made at a time to know them again, the fastest first: each takes
milliseconds."""
_TELLING = (Status.WRONG_OUTPUT, Status.COMPILE_ERROR)
"""Failures that a program will have again."""

_REPEATS = 512
"""Draws in a row that make programs which were proposed before, after which a space counts as
exhausted: some seconds."""


class FreshSampler(Generic[C]):
    """Samples a space without replacement and remembers everything that was proposed or told.

    Args:
        space: Where candidates come from.
        rng: Draws.

    Attributes:
        seen: Keys that must not be proposed again.
        illegal: Keys of candidates that TVM refused when they were applied.
        repeated: Keys of candidates that are the same program as one that was proposed or told.
    """

    def __init__(self, space: SearchSpace[C], rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng
        self.seen: set[str] = set()
        self.illegal: set[str] = set()
        self.repeated: set[str] = set()
        self._in_registers = not space.hardware.has_cores
        self._first: dict[Hashable, str] = {}
        self._told: list[tuple[float, C]] = []

    def mark(self, trials: Iterable[Trial[C]]) -> None:
        """Counts told candidates as proposed, whoever proposed them."""
        for trial in trials:
            candidate, measured = trial.candidate, trial.measurement
            # Another kind of failure may have been the machine's, not the program's.
            told = measured.best_s is not None or measured.status in _TELLING
            if told and candidate.key not in self.seen:
                self._told.append((measured.best_s or math.inf, candidate))
            self.seen.add(trial.candidate_key)

    def is_new(self, candidate: C) -> bool:
        """Whether the candidate was neither proposed, nor told, nor found illegal or repeated.

        Nor is one that keeps more results per thread than a GPU has registers: it is no use, and a
        compiler is busy with it for ten seconds and more.
        """
        key = candidate.key
        known = key in self.seen or key in self.illegal or key in self.repeated
        if known or not self._in_registers:
            return not known
        return results_per_thread(candidate) <= MOST_RESULTS

    def is_legal(self, candidate: C) -> bool:
        """Applies the candidate and remembers if that is refused."""
        if candidate.key in self.illegal:
            return False
        try:
            candidate.apply()
        except IllegalCandidateError:
            self.illegal.add(candidate.key)
            return False
        return True

    def is_first(self, candidate: C) -> bool:
        """Whether no other candidate is the same program; remembers if one is.

        The candidate must be legal.
        """
        first = self._first.setdefault(_program(candidate), candidate.key)
        if first != candidate.key:
            self.repeated.add(candidate.key)
        return first == candidate.key

    def unseen(self, n: int, exclude: Iterable[str] = ()) -> list[C]:
        """Up to ``n`` distinct new candidates, not yet applied, in the order drawn.

        Fewer than ``n`` when the space has no more, judged by a run of fruitless draws that is
        long against the size of the space.
        """
        drawn: dict[str, C] = {}
        taken = set(exclude)
        patience = min(_DRAWS_PER_POINT * self.space.size + _DRAW, _MAX_FRUITLESS)
        fruitless = 0
        while len(drawn) < n and fruitless < patience:
            for candidate in self.space.sample(self.rng, min(_DRAW, max(n, 8))):
                key = candidate.key
                if key in drawn or key in taken or not self.is_new(candidate):
                    fruitless += 1
                elif len(drawn) < n:
                    drawn[key] = candidate
                    fruitless = 0
        return list(drawn.values())

    def legal(self, n: int, candidates: Iterable[C]) -> list[C]:
        """The first ``n`` of ``candidates`` that are new, can be applied and differ as programs.

        As many as are missing are applied at once, one on each core: TVM releases the interpreter.
        """
        chosen: dict[str, C] = {}
        rest = iter(candidates)
        while batch := list(itertools.islice(rest, n - len(chosen))):
            new = {c.key: c for c in batch if self.is_new(c)}
            if len(new) > 1 and (cores := min(_MOST_THREADS, usable_cores())) > 1:
                with ThreadPoolExecutor(cores) as pool:
                    list(pool.map(self.is_legal, new.values()))
            chosen |= {c.key: c for c in self._one_by_one(batch, chosen)}
        return list(chosen.values())

    def _one_by_one(self, candidates: Iterable[C], beside: Collection[str] = ()) -> Iterator[C]:
        """Those that are new, can be applied and are the first of their program, as asked for."""
        self._read_told()
        given: set[str] = set()
        for candidate in candidates:
            key = candidate.key
            fresh = key not in given and key not in beside and self.is_new(candidate)
            if fresh and self.is_legal(candidate) and self.is_first(candidate):
                given.add(key)
                yield candidate

    def random(self, n: int, beside: Iterable[C] = ()) -> list[C]:
        """Up to ``n`` random ones that are new, legal, and no program twice.

        Args:
            n: How many.
            beside: Candidates that are going to be proposed with them.
        """
        taken = [candidate.key for candidate in beside]
        stream = self.stream(_DRAWS_PER_CANDIDATE * n, taken)
        # What was drawn says how long drawing goes on: one after the other.
        return list(itertools.islice(self._one_by_one(stream), n))

    def _read_told(self) -> None:
        """Looks at the programs of what others proposed, here where programs are made anyway."""
        told = sorted(self._told, key=lambda each: (each[0], each[1].key))
        self._told = told[_TOLD:]
        for _, candidate in told[:_TOLD]:
            if self.is_legal(candidate):
                self._first.setdefault(_program(candidate), candidate.key)

    def propose(self, candidates: Iterable[C], n: int = 0) -> list[C]:
        """Marks candidates as proposed and returns them as a list.

        Args:
            candidates: What was chosen, as ``legal`` or ``random`` gives it.
            n: How many are wanted: as many as are missing are random.
        """
        proposed = list(candidates)
        proposed += self.random(max(0, n - len(proposed)), proposed)
        self.seen.update(candidate.key for candidate in proposed)
        return proposed

    def stream(self, limit: int, exclude: Iterable[str] = ()) -> Iterator[C]:
        """New candidates one after the other, until the space is exhausted.

        At most ``limit``, of which those do not count that are found to repeat a program; it ends
        when nothing but such was drawn for long.
        """
        taken = set(exclude)
        given = repeats = 0
        while given < limit:
            batch = self.unseen(min(_DRAW, limit - given), taken)
            if not batch:
                return
            for candidate in batch:
                taken.add(candidate.key)
                yield candidate
                repeats = repeats + 1 if candidate.key in self.repeated else 0
                given += not repeats
                if repeats == _REPEATS:
                    return


def _program(candidate: SearchCandidate) -> Hashable:
    """What is equal exactly where programs are.

    A space without a compiler names them, or every candidate is another one.
    """
    module: IRModule | str | None = candidate.apply()
    if module is None or isinstance(module, str):
        return module or candidate.key
    from foretune import _tvm

    return _tvm.structural_hash(module)
