"""The space of one workload on one hardware: where candidates come from."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.space._default import default_schedule
from foretune.space._generate import generate
from foretune.space._starts import starts_of
from foretune.space.decision import ComputeLocation, Decision
from foretune.space.draw import draw
from foretune.space.sketch import UNTUNED, Candidate, Sketch
from foretune.space.trace import Trace
from foretune.workload import Workload

_MAX_ROUNDS = 8
"""Sampling gives up on further distinct candidates after this many rounds without enough."""


@dataclass(frozen=True)
class Space:
    """All candidates of a workload on a hardware.

    Life cycle: ``Space.generate`` asks TVM once (0.1 to a few seconds); everything else is pure
    Python and draws only from the generator handed in, so the same seed gives the same candidates
    in every process.

    Attributes:
        workload: The program.
        hardware: What it is tuned for.
        sketches: At least one; in TVM's order.
    """

    workload: Workload
    hardware: Hardware
    sketches: tuple[Sketch, ...]

    @classmethod
    def generate(cls, workload: Workload, hardware: Hardware) -> Space:
        """Makes the space with TVM's schedule rules for the target.

        Raises:
            BadInputError: TVM's rules fail on this workload.
        """
        return cls(workload, hardware, tuple(generate(workload, hardware)))

    @functools.cached_property
    def untuned(self) -> Candidate:
        """The candidate that changes nothing: the untuned program."""
        return Candidate(Sketch(self.workload, self.hardware, UNTUNED, (), ()), ())

    @functools.cached_property
    def default(self) -> Candidate | None:
        """The default schedule as a candidate without variables; None where there is none (GPUs).

        What an operator gets without tuning, and so what a tuned one has to beat.
        """
        if not self.hardware.has_cores:
            return None
        schedule = default_schedule(self.workload.module["main"], self.hardware)
        trace = Trace.of(schedule).text
        return Candidate(Sketch(self.workload, self.hardware, trace, (), ()), ())

    @functools.cached_property
    def starts(self) -> tuple[Candidate, ...]:
        """Candidates that rules say are good: what a search tries first, the best one first."""
        return starts_of(self.workload, self.hardware, self.sketches)

    @functools.cached_property
    def size(self) -> int:
        """Number of candidates: an upper bound where locations depend on other decisions."""
        return sum(sketch.size for sketch in self.sketches)

    def sample(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        """Draws up to ``n`` distinct candidates: a sketch uniformly, then its decisions.

        Tiles are uniform over the legal ones, choices have their weights, locations are uniform
        over those legal with the tiles. Fewer than ``n`` come back only from a small space.
        """
        distinct: dict[Candidate, None] = {}
        for _ in range(_MAX_ROUNDS):
            missing = n - len(distinct)
            if missing <= 0:
                break
            which = rng.integers(0, len(self.sketches), size=missing)
            drawn: list[list[Candidate]] = [
                draw(sketch, rng, int(np.count_nonzero(which == index)))
                for index, sketch in enumerate(self.sketches)
            ]
            queues = [iter(candidates) for candidates in drawn]
            distinct.update(dict.fromkeys(next(queues[i]) for i in which.tolist()))
        return list(distinct)

    def mutate(
        self,
        candidate: Candidate,
        rng: np.random.Generator,
        among: Sequence[int] | None = None,
    ) -> Candidate:
        """Changes one variable's decision; locations that no longer fit are drawn again.

        Args:
            candidate: What is changed.
            rng: Draws the variable and its decision.
            among: Indices of the variables that may be changed; all if None.

        Returns:
            A different candidate of the same sketch; the candidate itself only if these variables
            leave no other.
        """
        sketch = candidate.sketch
        open_to = range(len(sketch.variables)) if among is None else among
        for index in (open_to[i] for i in rng.permutation(len(open_to)).tolist()):
            variable = sketch.variables[index]
            decisions = list(candidate.decisions)
            if isinstance(variable, ComputeLocation):
                other = _other_location(candidate, index, rng)
            else:
                other = variable.other(decisions[index], rng)
            if other is not None:
                decisions[index] = other
                return _repaired(sketch, decisions, rng)
        return candidate

    def edit(
        self, candidate: Candidate, changes: Mapping[int, Any], rng: np.random.Generator
    ) -> Candidate:
        """Replaces decisions; other locations that no longer fit are drawn again.

        Before → after: tile ``[4, 2, 4, 64]`` and ``{0: [4, 8, 1, 64]}`` → tile ``[4, 8, 1, 64]``.

        Args:
            candidate: What is changed.
            changes: Index of a variable -> its decision.
            rng: Draws locations.

        Raises:
            IllegalCandidateError: A decision is outside its domain; the message says which and why.
        """
        decisions = list(candidate.decisions)
        for index, decision in changes.items():
            variable = candidate.sketch.variables[index]
            if isinstance(variable, ComputeLocation):
                if type(decision) is not int:
                    raise IllegalCandidateError(
                        f"{variable.name}: a location is a whole number, but got {decision!r}: "
                        "use one of the table"
                    )
                decisions[index] = decision
            else:
                decisions[index] = variable.check(decision)
        edited = _repaired(candidate.sketch, list(decisions), rng)
        for index, decision in changes.items():
            if edited.decisions[index] != decisions[index]:
                # A location that is not legal: the candidate says which ones are.
                asked = [*edited.decisions]
                asked[index] = decision
                return Candidate(candidate.sketch, asked)
        return edited

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """Takes each variable from either parent; locations that do not fit are drawn again.

        Parents of different sketches have no variables in common: then one of them is mutated.
        """
        if a.sketch != b.sketch:
            return self.mutate(a if rng.random() < 0.5 else b, rng)
        from_a = (rng.random(len(a.decisions)) < 0.5).tolist()
        decisions = [
            x if first else y for first, x, y in zip(from_a, a.decisions, b.decisions, strict=True)
        ]
        return _repaired(a.sketch, decisions, rng)

    def candidate(self, data: Mapping[str, Any]) -> Candidate:
        """Reads what ``Candidate.to_json`` wrote, and checks it.

        Raises:
            BadInputError: Not a candidate, or of a sketch that is not in this space.
            IllegalCandidateError: A decision is outside its domain.
        """
        try:
            key, decisions = data["sketch"], data["decisions"]
        except (KeyError, TypeError) as error:
            raise BadInputError(
                f"a candidate is an object with sketch and decisions, but got {data!r}"
            ) from error
        if isinstance(decisions, str) or not isinstance(decisions, Sequence):
            raise BadInputError(f"decisions are a list, but got {decisions!r}: pass a list")
        sketch = self._by_key.get(key)
        if sketch is None:
            raise BadInputError(
                f"a candidate's sketch belongs to the space of {self.workload.name!r}, but {key!r} "
                f"is none of {sorted(self._by_key)}: it was made for another program, target or "
                "version"
            )
        return Candidate(sketch, decisions)

    @functools.cached_property
    def _by_key(self) -> dict[str, Sketch]:
        fixed = [self.untuned.sketch, *([self.default.sketch] if self.default else [])]
        return {s.key: s for s in (*self.sketches, *fixed)}


def _other_location(candidate: Candidate, index: int, rng: np.random.Generator) -> int | None:
    domain = candidate.sketch.location_domain(candidate.decisions, index)
    others = [location for location in domain if location != candidate.decisions[index]]
    return others[int(rng.integers(len(others)))] if others else None


def _repaired(sketch: Sketch, decisions: Sequence[Decision], rng: np.random.Generator) -> Candidate:
    def kept(index: int, domain: tuple[int, ...]) -> int:
        location = decisions[index]
        if isinstance(location, int) and location in domain:
            return location
        return domain[int(rng.integers(len(domain)))]

    return Candidate.trusted(sketch, sketch.located(decisions, kept))
