"""The portfolio: schedules that were fast for other programs, moved to the one at hand.

Idea. What is best for one product is rarely bad for another of nearly the same shape. So the
fastest schedules of programs that were tuned before are kept as recipes
(``foretune.space.Recipe``), and those of the most similar programs are tried in the first batches
of the next one. Similar are programs whose spaces have a sketch of the same frame; the nearest ones
have loops of nearly the same lengths, on a machine that is alike.

A portfolio may be filled while it is used: what one task of a network finds is there for its
sisters in the next round.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import json
import math
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_bytes
from foretune.errors import IllegalCandidateError, RecordError, VersionMismatchError
from foretune.space import Decision, Recipe, Variable, frame_of
from foretune.space.decision import variable_from_json, variable_to_json

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from foretune.hardware import Hardware
    from foretune.space import Candidate, Sketch, Space

SCHEMA = "foretune.portfolio/1"
KEPT = 4
"""Schedules of one program on one hardware that are kept."""
WITHIN = 1.15
"""None that takes this many times as long as the fastest."""


@dataclass(frozen=True)
class Machine:
    """What of a machine decides whether a schedule for it is one for another.

    Attributes:
        kind: Of its target.
        threads: Threads a kernel runs on.
        simd_bits: Width of a vector.
    """

    kind: str
    threads: int
    simd_bits: int

    @classmethod
    def of(cls, hardware: Hardware) -> Machine:
        """The one of a hardware."""
        return cls(hardware.kind, hardware.threads, hardware.simd_bits)

    def distance(self, other: Machine) -> float:
        """Doublings between vectors, and half of those between threads; infinite between kinds."""
        if self.kind != other.kind:
            return math.inf
        vectors = math.log2(max(1, self.simd_bits) / max(1, other.simd_bits))
        threads = math.log2(max(1, self.threads) / max(1, other.threads))
        return abs(vectors) + abs(threads) / 2


@dataclass
class _Program:
    """The fastest schedules of a program on a machine.

    Attributes:
        machine: Where they were measured.
        known: Candidate key -> seconds, frame and decisions; of a file, decisions are as JSON has
            them, like variables: most programs are never looked at.
        variables: Frame -> variables, as JSON has them.
    """

    machine: Machine
    known: dict[str, tuple[float, str, Sequence[Any]]] = field(default_factory=dict)
    variables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _made: dict[str, tuple[Variable, ...]] = field(default_factory=dict, repr=False)

    def add(self, candidate: Candidate, seconds: float) -> bool:
        """Keeps a candidate that is one of the fastest; whether it is."""
        ranking = [known[0] for known in self.known.values()]
        before = self.known.get(candidate.key)
        full = before is None and len(ranking) >= KEPT and seconds >= ranking[-1]
        slow = bool(ranking) and seconds > WITHIN * ranking[0]
        if full or slow or (before is not None and seconds >= before[0]):
            return False
        frame = frame_of(candidate.sketch)
        self.known[candidate.key] = (seconds, frame, candidate.decisions)
        self.variables[frame] = [variable_to_json(v) for v in candidate.sketch.variables]
        self._thin_out()
        return True

    def _thin_out(self) -> None:
        best = min(seconds for seconds, *_ in self.known.values())
        ranked = sorted(self.known.items(), key=lambda item: (item[1][0], item[0]))
        self.known = {k: v for k, v in ranked[:KEPT] if v[0] <= WITHIN * best}
        frames = {frame for _, frame, _ in self.known.values()}
        self.variables = {f: v for f, v in self.variables.items() if f in frames}
        self._made = {}

    def recipes(self, frames: Container[str]) -> list[Recipe]:
        """Those of some frames, the fastest first."""
        for frame in self.variables:
            if frame in frames and frame not in self._made:
                self._made[frame] = tuple(map(variable_from_json, self.variables[frame]))
        return [
            Recipe(frame, self._made[frame], _decisions(decisions))
            for _, frame, decisions in self.known.values()
            if frame in frames
        ]


_Near = tuple[bool, float, list[tuple[Recipe, "Sketch"]]]
"""Whether it is another program, how far away, and its recipes with sketches that they fit."""


class Portfolio:
    """Fast schedules by program and machine, to be moved to other programs.

    Args:
        before: Portfolios whose schedules are known, too; they stay as they are.
    """

    def __init__(self, *before: Portfolio) -> None:
        self._before = before
        self._programs: dict[tuple[str, Machine], _Program] = {}
        self._changes = 0
        self._ranked: dict[tuple[str, str], list[_Near]] = {}
        """What those before say of a workload on a hardware: they stay as they are, and a task asks
        in every round."""

    def __len__(self) -> int:
        """Programs of which schedules are known, each machine for itself."""
        return len(self._programs) + sum(map(len, self._before))

    @property
    def version(self) -> int:
        """A number that is another one whenever something was added."""
        return self._changes

    def add(self, candidate: Candidate, seconds: float) -> None:
        """Keeps a measured candidate, if it is one of the fastest of its program and machine.

        Args:
            candidate: One with decisions; what has none is no schedule to be moved.
            seconds: Per call, above 0.
        """
        if candidate.decisions:
            machine = Machine.of(candidate.hardware)
            place = (candidate.workload.key, machine)
            program = self._programs.setdefault(place, _Program(machine))
            self._changes += program.add(candidate, seconds)

    def suggest(self, space: Space, n: int) -> list[Candidate]:
        """Up to ``n`` candidates of a space: schedules of the nearest programs, moved.

        The fastest of each program first, then the second of each; nearest programs come first,
        and the program itself, where it is known, before all others.
        """
        place = (space.workload.key, space.hardware.key)
        if place not in self._ranked:
            before = [near for each in self._before for near in each._near(space)]
            self._ranked[place] = sorted(before, key=lambda near: near[:2])
        near = sorted([*self._near(space), *self._ranked[place]], key=lambda near: near[:2])[:n]
        suggested: dict[str, Candidate] = {}
        for candidate in _in_turns([fitting for *_, fitting in near]):
            suggested.setdefault(candidate.key, candidate)
            if len(suggested) >= n:
                break
        return list(suggested.values())[:n]

    def _near(self, space: Space) -> list[_Near]:
        """Its own programs that have a recipe for a sketch of the space."""
        machine = Machine.of(space.hardware)
        sketches: dict[str, list[Sketch]] = {}
        for sketch in space.sketches:
            sketches.setdefault(frame_of(sketch), []).append(sketch)
        near: list[_Near] = []
        for (workload, _), program in self._programs.items():
            fitting = [
                (recipe, sketch)
                for recipe in program.recipes(sketches)
                for sketch in sketches[recipe.frame]
            ]
            apart = machine.distance(program.machine)
            if fitting and apart < math.inf:
                least = min(recipe.distance(sketch) for recipe, sketch in fitting)
                near.append((workload != space.workload.key, apart + least, fitting))
        return near

    def save(self, path: Path) -> None:
        """Writes what was added into one file, compressed; not what was known before."""
        entries = [
            {
                "workload": workload,
                "machine": [machine.kind, machine.threads, machine.simd_bits],
                "variables": program.variables,
                "known": [[key, *rest] for key, rest in program.known.items()],
            }
            for (workload, machine), program in self._programs.items()
        ]
        text = json.dumps({"schema": SCHEMA, "programs": entries}, separators=(",", ":"))
        write_bytes(path, gzip.compress(text.encode(), 9, mtime=0))

    @classmethod
    def load(cls, path: Path) -> Portfolio:
        """Reads what ``save`` wrote.

        Raises:
            RecordError: The file cannot be read or is no such file.
            VersionMismatchError: Written under another schema.
        """
        portfolio = cls()
        try:
            document = json.loads(gzip.decompress(Path(path).read_bytes()))
            if document["schema"] != SCHEMA:
                raise VersionMismatchError(
                    f"the schema of {path} must be {SCHEMA!r}, but got {document['schema']!r}: "
                    "make it again with `python -m benchmarks.portfolio --train`"
                )
            for entry in document["programs"]:
                machine = Machine(*entry["machine"])
                known = dict(map(_known, entry["known"]))
                program = _Program(machine, known, dict(entry["variables"]))
                portfolio._programs[str(entry["workload"]), machine] = program
        except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
            raise RecordError(
                f"{path} is no portfolio ({error}): make it again with "
                "`python -m benchmarks.portfolio --train`"
            ) from error
        return portfolio


def file_of(kind: str) -> Traversable:
    """Where the portfolio lies that comes with the package for targets of a kind."""
    return importlib.resources.files("foretune.search") / "weights" / f"portfolio-{kind}.json.gz"


@functools.cache
def shipped(kind: str) -> Portfolio:
    """What comes with the package for targets of a kind, empty if nothing does.

    Raises:
        RecordError: The file is damaged.
    """
    file = file_of(kind)
    if not file.is_file():
        return Portfolio()
    with importlib.resources.as_file(file) as path:
        return Portfolio.load(path)


def _known(entry: Sequence[Any]) -> tuple[str, tuple[float, str, Sequence[Any]]]:
    key, seconds, frame, decisions = entry
    return str(key), (float(seconds), str(frame), list(decisions))


def _decisions(known: Sequence[Any]) -> tuple[Decision, ...]:
    return tuple(tuple(d) if isinstance(d, list) else d for d in known)


def _in_turns(queues: Iterable[list[tuple[Recipe, Sketch]]]) -> Iterator[Candidate]:
    """The first of each, moved, then the second of each; what fits nowhere is left out."""
    waiting = [list(queue) for queue in queues]
    while any(waiting):
        for queue in waiting:
            if queue:
                recipe, sketch = queue.pop(0)
                try:
                    yield recipe.follow(sketch)
                except IllegalCandidateError:
                    continue
