"""Sketches and candidates: a program's transformations with holes, and what fills the holes."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.space import _replay
from foretune.space._device_default import device_schedule
from foretune.space.actions import Action, actions_of
from foretune.space.decision import (
    ComputeLocation,
    Decision,
    Variable,
    variable_from_json,
    variable_to_json,
)
from foretune.space.location import Context, LocationModel, location_indices
from foretune.space.trace import Trace
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule

_MODULES = 128
"""Scheduled modules kept per process."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """A MetaSchedule design space: a trace whose sampling instructions are decision variables.

    Two sketches are equal when their keys are.

    Attributes:
        workload: The program.
        hardware: What it is tuned for.
        trace: The trace as canonical JSON text, with one legal decision per sampling instruction.
        variables: The decision variables in the order of the trace.
        positions: For each variable, the index of its instruction in the trace.
        locations: Which compute locations are legal.
        axes: Block name -> names of its loops in the untransformed program.
    """

    workload: Workload
    hardware: Hardware
    trace: str
    variables: tuple[Variable, ...]
    positions: tuple[int, ...]
    locations: LocationModel = field(default_factory=LocationModel)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @functools.cached_property
    def key(self) -> str:
        """16 hex digits: hash of the workload, the target, the trace and the variables."""
        instructions = list(Trace.from_text(self.trace).instructions)
        for at in self.positions:
            instructions[at] = instructions[at]._replace(inputs=instructions[at].inputs[:1])
        # The bound of a location is knowledge about the domain, not part of it.
        shapes = [
            {k: v for k, v in variable_to_json(v).items() if k != "bound"} for v in self.variables
        ]
        target = json.loads(self.hardware.target)
        return _digest([self.workload.key, target, instructions, shapes])

    @functools.cached_property
    def size(self) -> int:
        """Number of candidates: an upper bound where locations depend on other decisions."""
        size = 1
        for variable in self.variables:
            size *= variable.size
        return size

    @functools.cached_property
    def location_order(self) -> tuple[int, ...]:
        """Indices of the location variables, in the order in which they are decided."""
        return location_indices(self.variables)

    @functools.cached_property
    def template(self) -> _replay.Template:
        """The sketch as TVM objects, made on first use in each process."""
        return _template(self)

    @property
    def is_untuned(self) -> bool:
        """Whether it changes nothing."""
        return not self.positions and self.trace == UNTUNED

    def located(
        self,
        decisions: Sequence[Any],
        choose: Callable[[int, tuple[int, ...]], int],
        units: int | None = None,
    ) -> tuple[Decision, ...]:
        """Decides the locations one by one: which ones there are depends on those before.

        Args:
            decisions: One per variable; those of tiles count.
            choose: Given the index of a variable and its legal locations, ascending; returns one.
            units: Unit bits of the tiles where they are known.
        """
        if not self.location_order:
            return tuple(decisions)
        whole = list(decisions)
        units = self.locations.units(whole) if units is None else units
        context: Context = ()
        for index in self.location_order:
            location = choose(index, self.locations.domain(index, context, units))
            whole[index] = location
            context += (location,)
        return tuple(whole)

    def contexts(self, decisions: Sequence[Any]) -> Iterator[tuple[int, Context, int]]:
        """Of each location variable its index, the locations decided before, and its own."""
        context: Context = ()
        for index in self.location_order:
            yield index, context, decisions[index]
            context += (decisions[index],)

    def location_domain(self, decisions: Sequence[Any], index: int) -> tuple[int, ...]:
        """Legal locations of a variable with the other decisions of a candidate, ascending."""
        context = next(before for at, before, _ in self.contexts(decisions) if at == index)
        return self.locations.domain(index, context, self.locations.units(decisions))

    def location_names(self, decisions: Sequence[Any]) -> dict[int, str]:
        """Index of each location variable to what the location decided is called."""
        name = self.locations.name
        return {each[0]: name(*each) for each in self.contexts(decisions)}

    def candidate(self, decisions: Sequence[Any]) -> Candidate:
        """A validated candidate of this sketch.

        Raises:
            IllegalCandidateError: A decision is outside its domain.
        """
        return Candidate(self, tuple(decisions))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that holds the whole sketch; ``from_json`` reverses it."""
        workload = {f: getattr(self.workload, f) for f in _WORKLOAD_FIELDS}
        return {
            "key": self.key,
            "workload": workload,
            "hardware": {k: v for k, v in self.hardware.to_json().items() if k != "key"},
            "trace": json.loads(self.trace),
            "variables": [variable_to_json(v) for v in self.variables],
            "positions": list(self.positions),
            "locations": self.locations.to_json(),
            "axes": {block: list(names) for block, names in self.axes.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sketch:
        """Reads what ``to_json`` wrote.

        Raises:
            BadInputError: A field is missing or the key does not fit the rest.
        """
        try:
            sketch = cls(
                Workload(**data["workload"]),
                Hardware.from_json(data["hardware"]),
                _canonical(data["trace"]),
                tuple(variable_from_json(v) for v in data["variables"]),
                tuple(data["positions"]),
                LocationModel.from_json(data["locations"]),
                {block: tuple(names) for block, names in data["axes"].items()},
            )
            key = data["key"]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"not a sketch: {error!r}; generate the space again") from error
        if sketch.key != key:
            raise BadInputError(
                f"a sketch's key is the hash of its content, but it is {key} and the hash is "
                f"{sketch.key}: generate the space again"
            )
        return sketch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sketch) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __getstate__(self) -> dict[str, Any]:
        # The workload may hold its parsed module: send text only.
        state = {f: self.__dict__[f] for f in self.__dataclass_fields__}
        state["workload"] = Workload(*(getattr(self.workload, f) for f in _WORKLOAD_FIELDS))
        state["key"] = self.key
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


_WORKLOAD_FIELDS = ("name", "key", "module_json", "flops", "weight")


class Candidate:
    """A sketch with a decision for each of its variables. Immutable, hashable, cheap.

    Constructing one checks every decision, so that a candidate that exists can be replayed.

    Args:
        sketch: Where the holes are.
        decisions: One per variable: a tile is a tuple of factors, a choice an index into the
            variable's values, a location an integer (-2 inline, -1 root, else a loop).

    Raises:
        IllegalCandidateError: A decision is outside its domain; the message says which and why.
    """

    __slots__ = ("__weakref__", "_key", "decisions", "sketch")

    sketch: Sketch
    decisions: tuple[Decision, ...]
    _key: str | None

    def __init__(self, sketch: Sketch, decisions: Sequence[Any]) -> None:
        _set(self, "sketch", sketch)
        _set(self, "decisions", _checked(sketch, decisions))
        _set(self, "_key", None)

    @classmethod
    def trusted(cls, sketch: Sketch, decisions: tuple[Decision, ...]) -> Candidate:
        """A candidate whose decisions were drawn from the domains: not checked again."""
        candidate = object.__new__(cls)
        _set(candidate, "sketch", sketch)
        _set(candidate, "decisions", decisions)
        _set(candidate, "_key", None)
        return candidate

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"candidates are immutable, but {name} was assigned: make a new one")

    @property
    def key(self) -> str:
        """16 hex digits: hash of sketch and decisions, equal in every process."""
        if self._key is None:
            _set(self, "_key", _key_of(self.sketch.key, self.decisions))
        assert self._key is not None
        return self._key

    @property
    def workload(self) -> Workload:
        """The program this is a candidate for."""
        return self.sketch.workload

    @property
    def hardware(self) -> Hardware:
        """The hardware this is a candidate for."""
        return self.sketch.hardware

    def to_json(self) -> dict[str, Any]:
        """``{"sketch": key, "decisions": [...]}``; ``Space.candidate`` reverses it."""
        return {
            "sketch": self.sketch.key,
            "decisions": [list(d) if isinstance(d, tuple) else d for d in self.decisions],
        }

    def actions(self) -> tuple[Action, ...]:
        """The same thing as a sequence of canonical scheduling actions; does not touch TVM."""
        return actions_of(self.sketch, self.decisions)

    def schedule(self) -> Schedule:
        """A new TVM schedule, with the post-processors applied and recorded in its trace.

        Raises:
            IllegalCandidateError: A post-processor rejected it (common on GPUs).
        """
        if self.sketch.is_untuned:
            return _untuned(self.sketch)
        return self.sketch.template.apply(self.decisions)

    def apply(self) -> IRModule:
        """The scheduled module. Cached; treat as read-only. Raises as ``schedule``."""
        return _apply(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        return self.decisions == other.decisions and self.sketch == other.sketch

    def __hash__(self) -> int:
        return hash(self.decisions)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.sketch, self.decisions)

    def __repr__(self) -> str:
        return f"Candidate({self.workload.name!r}, {self.key}, {list(self.decisions)!r})"


_set = object.__setattr__

UNTUNED = "[[],[]]"
"""The trace of the sketch that changes nothing."""


def _unpickle(sketch: Sketch, decisions: tuple[Decision, ...]) -> Candidate:
    return Candidate.trusted(sketch, decisions)


def _checked(sketch: Sketch, decisions: Sequence[Any]) -> tuple[Decision, ...]:
    if len(decisions) != len(sketch.variables):
        raise IllegalCandidateError(
            f"a candidate has one decision per variable, but got {len(decisions)} for "
            f"{len(sketch.variables)} variables: pass decisions of this sketch"
        )
    checked: list[Decision] = [
        d if isinstance(v, ComputeLocation) else v.check(d)
        for v, d in zip(sketch.variables, decisions, strict=True)
    ]

    def legal(index: int, domain: tuple[int, ...]) -> int:
        variable = sketch.variables[index]
        assert isinstance(variable, ComputeLocation)
        return variable.check(decisions[index], domain)

    return sketch.located(checked, legal)


def _digest(value: Any) -> str:
    return hashlib.blake2b(_canonical(value).encode(), digest_size=8).hexdigest()


def _key_of(sketch: str, decisions: Sequence[Decision]) -> str:
    """``_digest`` of both, without a JSON encoder: a search asks for thousands in a second."""
    words = [
        f"[{','.join(map(str, each))}]" if isinstance(each, tuple) else str(each)
        for each in decisions
    ]
    text = f'["{sketch}",[{",".join(words)}]]'
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@functools.lru_cache(maxsize=256)
def _template(sketch: Sketch) -> _replay.Template:
    base = _replay.program(sketch.workload.module_json, sketch.hardware.target)
    return _replay.Template(base, sketch.trace, sketch.variables, sketch.positions)


@functools.lru_cache(maxsize=_MODULES)
def _apply(candidate: Candidate) -> IRModule:
    return candidate.schedule().mod


def _untuned(sketch: Sketch) -> Schedule:
    from foretune import _tvm

    module = sketch.workload.module
    if not sketch.hardware.has_cores:
        module = device_schedule(module, sketch.hardware)
    return _tvm.Schedule(module, seed=1)
