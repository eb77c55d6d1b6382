"""Canonical scheduling actions: a candidate as text that does not depend on TVM's numbering.

A trace names blocks and loops by running numbers (``b1``, ``l17``), which differ between sketches
that do the same thing. An action names them by where they come from: ``C.i.0`` is the outermost
part of axis ``i`` of block ``C``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from foretune.space.decision import ROOT, Choice, location_name

if TYPE_CHECKING:
    from foretune.space.decision import Decision
    from foretune.space.sketch import Sketch

Argument = Union[str, int, float]  # noqa: UP007 - evaluated at run time on Python 3.10

_QUERIES = {"GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers"}
_BARE = {"Fuse", "ComputeAt", "ReverseComputeAt", "Split", "Reorder"}
"""Instructions whose attributes are TVM's flags (keep unit loops...), the same in every trace."""
_SUFFIXES = {
    "CacheWrite": "write",
    "CacheRead": "read",
    "RFactor": "rf",
    "GetConsumers": "consumer",
    "GetProducers": "producer",
    "GetChildBlocks": "child",
}


@dataclass(frozen=True)
class Action:
    """One scheduling step.

    Attributes:
        kind: ``"split"``, ``"reorder"``, ``"fuse"``, ``"compute_at"``...
        args: Blocks by name, loops by origin (``"C.i.0"``: block C, axis i, outermost part),
            numbers as they are.
    """

    kind: str
    args: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(str(a) for a in self.args)})"


def actions_of(sketch: Sketch, decisions: Sequence[Decision]) -> tuple[Action, ...]:
    """The actions of a candidate, in the order in which they are applied."""
    instructions, recorded = json.loads(sketch.trace)
    names = Names(sketch.axes, _location_names(sketch, decisions))
    chosen = dict(recorded)
    annotated: dict[int, int] = {}
    for variable, at, decision in zip(sketch.variables, sketch.positions, decisions, strict=True):
        if at in chosen:
            chosen[at] = decision
        elif isinstance(variable, Choice) and isinstance(decision, int):
            annotated[at] = variable.values[decision]
    actions: list[Action] = []
    for at, (kind, inputs, attrs, outputs) in enumerate(instructions):
        if annotated.get(at) == 0:
            continue
        given = [inputs[0], annotated[at]] if at in annotated else inputs
        action = names.step(kind, given, attrs, outputs, chosen.get(at))
        if action is not None:
            actions.append(action)
    return tuple(actions)


def _location_names(sketch: Sketch, decisions: Sequence[Decision]) -> Callable[[str, int], str]:
    context: tuple[int, ...] = ()
    named: dict[tuple[str, int], str] = {}
    for index in sketch.location_order:
        location = decisions[index]
        assert isinstance(location, int)
        name = sketch.locations.name(index, context, location)
        named[sketch.variables[index].name, location] = name
        context += (location,)

    return lambda block, location: named.get((block, location)) or location_name(location)


class Names:
    """Follows blocks and loops through a trace and gives each its canonical name.

    Args:
        axes: Block -> names of its loops in the untransformed program.
        location: Names the loop at (block, location).
    """

    def __init__(
        self, axes: Mapping[str, Sequence[str]], location: Callable[[str, int], str]
    ) -> None:
        self._axes = axes
        self._location = location
        self._values: dict[str, Argument] = {}
        self._taken: dict[str, int] = {}

    def of(self, variable: Any) -> Argument:
        """The name or value of an operand of a trace."""
        if variable is None or variable == "None":
            return "auto"
        if isinstance(variable, str):
            return self._values.get(variable, variable.strip('"'))
        number: int | float = variable
        return number

    def step(
        self,
        kind: str,
        inputs: Sequence[Any],
        attrs: Sequence[Any],
        outputs: Sequence[str],
        decision: Any,
    ) -> Action | None:
        """Takes in one instruction; the action it is, or None for queries and sampling."""
        args = [self.of(i) for i in _flat(inputs)]
        if kind.startswith("Sample"):
            self._sampled(kind, args, attrs, outputs, decision)
            return None
        self._name_outputs(kind, args, attrs, outputs)
        if kind in _QUERIES:
            return None
        numbers = [] if kind in _BARE else [a for a in _flat(attrs) if not isinstance(a, bool)]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.replace("RFactor", "Rfactor")).lower()
        if kind == "Annotate":
            return Action(name, (args[0], numbers[0], *args[1:]))
        return Action(name, (*args, *numbers))

    def _sampled(
        self,
        kind: str,
        args: Sequence[Argument],
        attrs: Sequence[Any],
        outputs: Sequence[str],
        decision: Any,
    ) -> None:
        if kind == "SampleCategorical":
            self._values[outputs[0]] = attrs[0][decision]
        elif kind == "SampleComputeLocation":
            self._values[outputs[0]] = self._location(str(args[0]), decision)
        else:
            self._values.update(zip(outputs, decision, strict=True))

    def _name_outputs(
        self, kind: str, args: Sequence[Argument], attrs: Sequence[Any], outputs: Sequence[str]
    ) -> None:
        if kind == "GetSBlock":
            names = [str(attrs[0])]
        elif kind == "GetLoops":
            axes = self._axes.get(str(args[0]), ())
            parts = axes if len(axes) == len(outputs) else [f"loop{i}" for i in range(len(outputs))]
            names = [f"{args[0]}.{part}" for part in parts]
        elif kind == "Split":
            names = [f"{args[0]}.{i}" for i in range(len(outputs))]
        elif kind == "Fuse":
            names = ["+".join(str(a) for a in args)]
        else:
            stem = f"{args[0]}.{_SUFFIXES.get(kind, kind.lower())}" if args else kind.lower()
            names = [self._fresh(stem) for _ in outputs]
        self._values.update(zip(outputs, names, strict=True))

    def _fresh(self, stem: str) -> str:
        count = self._taken[stem] = self._taken.get(stem, -1) + 1
        return f"{stem}{count}"


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def loop_names(instructions: Sequence[Any], axes: Mapping[str, Sequence[str]]) -> dict[int, str]:
    """For each sampling instruction of a trace, the canonical name of what it is about.

    Args:
        instructions: The instructions of a trace as JSON.
        axes: Block -> names of its loops in the untransformed program.
    """
    names = Names(axes, lambda _block, location: str(location))
    found: dict[int, str] = {}
    for at, (kind, inputs, attrs, outputs) in enumerate(instructions):
        if kind in ("SamplePerfectTile", "SamplePartitionedTile", "SampleComputeLocation"):
            found[at] = str(names.of(inputs[0]))
        decision: Any = 0 if kind == "SampleCategorical" else [1] * len(outputs)
        if kind == "SampleComputeLocation":
            decision = ROOT
        names.step(kind, inputs, attrs, outputs, decision)
    return found
