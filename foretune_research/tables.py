"""Search spaces in which the seconds of every candidate are known: tables that stand in for them.

``table_space`` makes one from a group whose space was measured whole, by others or by us:

========================  ========================================================================
``ConfigurationSpace``    a kernel's parameter values, for example a Kernel Tuner cache; what the
                          cache does not hold is illegal
``MeasuredSpace``         a small space of ours; its candidates are real ones
========================  ========================================================================

Either keeps ``foretune.space.SearchSpace``, so that any strategy can search it.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np

from foretune import cost
from foretune._arrays import Float32Array
from foretune.cost import CostModel
from foretune.dataset import Group
from foretune.errors import BadInputError, IllegalCandidateError, unknown_name
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import ReplayMeasurer, Trial
from foretune.space import ROOT, Candidate, Choice, ComputeLocation, PerfectTile, Sketch, Space
from foretune.space.protocol import C
from foretune.workload import Workload

_MAX_LISTED = 200_000
_NO_FEATURES = "random"
_OWN_FEATURES = "gbdt:scratch"


def every_candidate(space: Space) -> Iterator[Candidate]:
    """Every candidate of a small space, sketch by sketch, in a fixed order.

    Raises:
        BadInputError: The space is too large to list.
    """
    if space.size > _MAX_LISTED:
        raise BadInputError(
            f"a space that is listed has at most {_MAX_LISTED} candidates, but that of "
            f"{space.workload.name!r} has up to {space.size}: sample it instead"
        )
    for sketch in space.sketches:
        domains = [_domain(variable) for variable in sketch.variables]
        for decisions in itertools.product(*domains):
            yield from _with_locations(sketch, list(decisions), ())


def _domain(variable: Any) -> Sequence[Any]:
    """Every decision of a variable; one to be replaced for a location, which depends on others."""
    if isinstance(variable, ComputeLocation):
        return (ROOT,)
    if isinstance(variable, PerfectTile):
        # In a space that is small enough every tile has its table.
        return variable.table() or ()
    return range(variable.size)


def _with_locations(
    sketch: Sketch, decisions: list[Any], context: tuple[int, ...]
) -> Iterator[Candidate]:
    """A candidate for each way to choose the locations that ``context`` leaves open."""
    order = sketch.location_order
    if len(context) == len(order):
        yield sketch.candidate(decisions)
        return
    index = order[len(context)]
    for location in sketch.locations.domain(index, context, sketch.locations.units(decisions)):
        decisions[index] = location
        yield from _with_locations(sketch, decisions, (*context, location))


class TableSpace(abc.ABC, Generic[C]):
    """A ``foretune.space.SearchSpace`` in which the seconds of every legal candidate are known.

    Candidates are drawn uniformly from the table, so that ``random`` does what the closed forms
    say. ``table_space`` makes one from a group.

    Args:
        group: The measurements.
        workload: Of all candidates.
        hardware: Of all candidates.
        candidates: One per program of the group, in its order.

    Attributes:
        sketches: Of the candidates.
        shares: float64 of shape (n,): optimum / seconds, 0 for a failure.

    Raises:
        BadInputError: Nothing in the group could be measured, or a candidate is in it twice.
    """

    sketches: tuple[Any, ...]

    def __init__(
        self, group: Group, workload: Workload, hardware: Hardware, candidates: Sequence[C]
    ) -> None:
        if group.best_s is None:
            raise BadInputError(
                f"a table needs a program that ran, but none of group {group.key} did: leave it out"
            )
        self.group = group
        self.workload = workload
        self.hardware = hardware
        self.optimum_s = group.best_s
        self.shares = group.labels
        self._candidates = tuple(candidates)
        self._trials = {
            candidate.key: _trial(candidate, seconds)
            for candidate, seconds in zip(candidates, group.seconds.tolist(), strict=True)
        }
        if len(self._trials) < len(self._candidates):
            raise BadInputError(
                f"a table holds each candidate once, but group {group.key} has "
                f"{len(self._candidates)} programs of which {len(self._trials)} differ: "
                "keep one measurement of each"
            )

    @property
    def size(self) -> int:
        """Number of legal candidates, those that fail included."""
        return len(self._candidates)

    @property
    def default(self) -> None:
        """There is no default schedule: it would be outside the table."""
        return None

    @property
    def starts(self) -> tuple[()]:
        """Nobody says what is good in a table."""
        return ()

    def trials(self) -> list[Trial[C]]:
        """The whole table."""
        return list(self._trials.values())

    def measurer(self) -> ReplayMeasurer:
        """Hands out the table's seconds."""
        return ReplayMeasurer(self.trials())

    def trial(self, candidate: C) -> Trial[C]:
        """That of a legal candidate."""
        return self._trials[candidate.key]

    def good(self, within: float) -> int:
        """Number of candidates that take at most ``within`` times as long as the optimum."""
        return int((self.shares >= 1.0 / within).sum())

    def sample(self, rng: np.random.Generator, n: int) -> list[C]:
        """``n`` distinct candidates, each uniform over the table; all where it has no more."""
        drawn = rng.choice(self.size, min(n, self.size), replace=False)
        return [self._candidates[i] for i in drawn.tolist()]

    @property
    @abc.abstractmethod
    def untuned(self) -> C:
        """The program without a schedule; not in the table."""

    @abc.abstractmethod
    def mutate(
        self, candidate: C, rng: np.random.Generator, among: Sequence[int] | None = None
    ) -> C:
        """A candidate that differs in one decision; ``candidate`` itself if there is no other."""

    @abc.abstractmethod
    def edit(self, candidate: C, changes: Mapping[int, Any], rng: np.random.Generator) -> C:
        """A candidate with decisions replaced, by index."""

    @abc.abstractmethod
    def crossover(self, a: C, b: C, rng: np.random.Generator) -> C:
        """A candidate with the decisions of either parent."""

    @abc.abstractmethod
    def model(self, name: str, seed: int) -> CostModel[C]:
        """The cost model called ``name``, able to read this table's candidates.

        Raises:
            BadInputError: The name is unknown, or the model needs what the table has not.
        """

    def candidate(self, data: Mapping[str, Any]) -> C:
        """Reads what ``to_json`` of a candidate wrote.

        Raises:
            IllegalCandidateError: It is not in the table.
        """
        for candidate in self._candidates:
            if candidate.to_json() == dict(data):
                return candidate
        raise IllegalCandidateError(f"{dict(data)} is not in the table of {self.group.key}")


@dataclass(frozen=True)
class ConfigurationSketch:
    """The parameters of a tuned kernel, those with one value left out.

    Attributes:
        key: Key of the group.
        variables: One choice per parameter.
    """

    key: str
    variables: tuple[Choice, ...]

    @property
    def size(self) -> int:
        """Number of decision vectors, legal or not."""
        return math.prod(variable.size for variable in self.variables)


@dataclass(frozen=True)
class ConfigurationCandidate:
    """Parameter values with the attributes of a real candidate.

    Attributes:
        decisions: Per variable the index of its value.
        legal: Whether the table holds it.
    """

    sketch: ConfigurationSketch
    decisions: tuple[int, ...]
    workload: Workload = field(compare=False, repr=False)
    hardware: Hardware = field(compare=False, repr=False)
    legal: bool = field(compare=False)

    @property
    def key(self) -> str:
        """Text that is equal exactly when the candidates are."""
        return f"{self.sketch.key}:{self.decisions}"

    def apply(self) -> None:
        """Raises IllegalCandidateError where the table has no such configuration."""
        if not self.legal:
            raise IllegalCandidateError(
                f"configuration {list(self.decisions)} is not in the table of {self.sketch.key}"
            )

    def to_json(self) -> dict[str, Any]:
        """Like a real candidate's."""
        return {"sketch": self.sketch.key, "decisions": list(self.decisions)}


class ConfigurationSpace(TableSpace[ConfigurationCandidate]):
    """The configurations of a tuned kernel, for example a Kernel Tuner cache.

    Args:
        group: Programs with a ``configuration``, all of the same parameters.

    Raises:
        BadInputError: Parameters differ or are missing; see ``TableSpace`` for the rest.
    """

    def __init__(self, group: Group) -> None:
        rows = _configurations(group)
        every = {name: _distinct(row[name] for row in rows) for name in rows[0]}
        values = {name: found for name, found in every.items() if len(found) > 1}
        self._sketch = ConfigurationSketch(
            group.key,
            tuple(
                Choice(name, tuple(range(len(found))), (1.0 / len(found),) * len(found))
                for name, found in values.items()
            ),
        )
        self.sketches = (self._sketch,)
        self.workload = Workload(group.name, group.workload, "", 0.0)
        self.hardware = group.machine or Hardware(group.hardware, '{"kind": "unknown"}', 1)
        at = {name: {v: i for i, v in enumerate(found)} for name, found in values.items()}
        vectors = [tuple(at[name][row[name]] for name in at) for row in rows]
        self._legal = set(vectors)
        self._encodings = [_encodings(found) for found in values.values()]
        candidates = [self._make(vector) for vector in vectors]
        super().__init__(group, self.workload, self.hardware, candidates)

    @property
    def untuned(self) -> ConfigurationCandidate:
        """A candidate without parameters, which the table does not hold."""
        sketch = ConfigurationSketch(f"{self._sketch.key}:untuned", ())
        return ConfigurationCandidate(sketch, (), self.workload, self.hardware, False)

    def mutate(
        self,
        candidate: ConfigurationCandidate,
        rng: np.random.Generator,
        among: Sequence[int] | None = None,
    ) -> ConfigurationCandidate:
        """Another value of one parameter; it may be illegal."""
        variables = candidate.sketch.variables
        indices = range(len(variables)) if among is None else among
        if not indices:
            return candidate
        index = indices[int(rng.integers(len(indices)))]
        other = variables[index].other(candidate.decisions[index], rng)
        assert other is not None, "parameters with one value are left out"
        return self.edit(candidate, {index: other}, rng)

    def edit(
        self,
        candidate: ConfigurationCandidate,
        changes: Mapping[int, Any],
        rng: np.random.Generator,
    ) -> ConfigurationCandidate:
        """Other values of some parameters, by index; it may be illegal."""
        decisions = enumerate(candidate.decisions)
        return self._make(tuple(int(changes.get(at, decision)) for at, decision in decisions))

    def crossover(
        self, a: ConfigurationCandidate, b: ConfigurationCandidate, rng: np.random.Generator
    ) -> ConfigurationCandidate:
        """Each parameter's value from either parent; it may be illegal."""
        of_a = (rng.random(len(a.decisions)) < 0.5).tolist()
        pairs = zip(of_a, a.decisions, b.decisions, strict=True)
        return self._make(tuple(x if first else y for first, x, y in pairs))

    def model(self, name: str, seed: int) -> CostModel[ConfigurationCandidate]:
        """``random``, or ``gbdt:scratch`` on one-hot and logarithmic parameter values."""
        if name == _NO_FEATURES:
            return cost.create(name, rng=seed, hardware=self.hardware)
        if name == _OWN_FEATURES:
            return cost.create(
                name,
                rng=seed,
                hardware=self.hardware,
                extract=self.features,
            )
        if name not in cost.names():
            raise unknown_name("cost model", name, cost.names())
        raise BadInputError(
            f"cost model {name!r} reads programs, but the table of {self.group.key} has "
            f"configurations only: use {_NO_FEATURES!r} or {_OWN_FEATURES!r}"
        )

    def features(self, candidates: Sequence[ConfigurationCandidate]) -> list[Float32Array | None]:
        """One row per candidate: each parameter one-hot and, for numbers, as a logarithm.

        ``None`` for an illegal candidate, as ``foretune.features.extract_per_store`` gives it.
        """
        return [self._row(candidate) if candidate.legal else None for candidate in candidates]

    def _row(self, candidate: ConfigurationCandidate) -> Float32Array:
        parts = [
            encoding[decision]
            for encoding, decision in zip(self._encodings, candidate.decisions, strict=True)
        ]
        row: Float32Array = np.concatenate([*parts, np.zeros(1, np.float32)])[None]
        return row

    def _make(self, decisions: tuple[int, ...]) -> ConfigurationCandidate:
        return ConfigurationCandidate(
            self._sketch, decisions, self.workload, self.hardware, decisions in self._legal
        )


class MeasuredSpace(TableSpace[Candidate]):
    """A small space of ours all of whose candidates were measured.

    Args:
        group: Programs with a ``candidate``: all of one space.

    Raises:
        BadInputError: A candidate of the space is missing; see ``TableSpace`` for the rest.
    """

    def __init__(self, group: Group) -> None:
        candidates = [program.candidate for program in group.programs]
        found = [candidate for candidate in candidates if candidate is not None]
        if not found or len(found) < len(candidates):
            raise BadInputError(
                f"a measured space has candidates, but {len(candidates) - len(found)} of the "
                f"{len(candidates)} programs of group {group.key} have none: collect it anew"
            )
        self.sketches = tuple({c.sketch.key: c.sketch for c in found}.values())
        first = found[0]
        self._space = Space(first.workload, first.hardware, self.sketches)
        super().__init__(group, first.workload, first.hardware, found)
        missing = sum(c.key not in self._trials for c in every_candidate(self._space))
        if missing:
            raise BadInputError(
                f"a table holds every candidate of its space, but {missing} of group {group.key} "
                "are missing: measure them, or the optimum is unknown"
            )

    @property
    def untuned(self) -> Candidate:
        """The untuned program."""
        return self._space.untuned

    def mutate(
        self, candidate: Candidate, rng: np.random.Generator, among: Sequence[int] | None = None
    ) -> Candidate:
        """See ``Space.mutate``."""
        return self._space.mutate(candidate, rng, among)

    def edit(
        self, candidate: Candidate, changes: Mapping[int, Any], rng: np.random.Generator
    ) -> Candidate:
        """See ``Space.edit``."""
        return self._space.edit(candidate, changes, rng)

    def crossover(self, a: Candidate, b: Candidate, rng: np.random.Generator) -> Candidate:
        """See ``Space.crossover``."""
        return self._space.crossover(a, b, rng)

    def model(self, name: str, seed: int) -> CostModel[Candidate]:
        """Any cost model."""
        return cost.create(name, rng=seed, hardware=self.hardware)


def table_space(group: Group) -> TableSpace[Any]:
    """The table space of a group: of configurations, or of candidates of ours.

    Raises:
        BadInputError: See ``ConfigurationSpace`` and ``MeasuredSpace``.
    """
    if any(program.configuration is not None for program in group.programs):
        return ConfigurationSpace(group)
    return MeasuredSpace(group)


def _configurations(group: Group) -> list[Mapping[str, Any]]:
    rows = [program.configuration for program in group.programs]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        raise BadInputError(
            f"a table of configurations needs one per program, but {len(rows) - len(known)} of "
            f"the {len(rows)} programs of group {group.key} have none: read it from a tuner's cache"
        )
    names = set(known[0])
    for row in known:
        if set(row) != names:
            raise BadInputError(
                f"the configurations of a table have the same parameters, but group {group.key} "
                f"has one with {sorted(row)} and one with {sorted(names)}: make it two groups"
            )
    return known


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Distinct values, numbers in their order before everything else."""
    found = dict.fromkeys(values)
    return sorted(found, key=lambda v: (0, v, "") if _is_number(v) else (1, 0, str(v)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _encodings(values: Sequence[Any]) -> list[Float32Array]:
    """For each value of a parameter its columns: one-hot, and for numbers a signed logarithm.

    Before → after: ``[1, 3]`` → ``[[1, 0, 1], [0, 1, 2]]``.
    """
    columns = np.eye(len(values), dtype=np.float32)
    if all(_is_number(value) for value in values):
        logs = [math.copysign(math.log2(1 + abs(value)), value) for value in values]
        columns = np.column_stack([columns, np.array(logs, dtype=np.float32)])
    return list(columns)


def _trial(candidate: C, seconds: float) -> Trial[C]:
    if math.isnan(seconds):
        measurement = Measurement(Status.RUN_ERROR, message="it failed when the table was made")
    else:
        measurement = Measurement(Status.OK, (seconds,), (True,))
    return Trial.of(candidate, measurement, "replay", {}, ended=0.0)
