"""Canonical scheduling actions: a candidate as text that does not depend on TVM's numbering.

A trace names blocks and loops by running numbers (``b1``, ``l17``), which differ between sketches
that do the same thing. An action names them by where they come from: ``C.i.0`` is the outermost
part of axis ``i`` of block ``C``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from foretune.space.decision import Choice, PerfectTile, location_name
from foretune.space.trace import Instruction, Trace, snake_case

if TYPE_CHECKING:
    from foretune.space.decision import Decision, Variable
    from foretune.space.sketch import Sketch

Argument = Union[str, int, float]  # noqa: UP007 - evaluated at run time on Python 3.10

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


@dataclass(frozen=True)
class Slot:
    """Stands in a step for what a decision fills in.

    Attributes:
        variable: Index of the variable.
        part: Factor of a tile; 0 for choices and locations.
    """

    variable: int
    part: int = 0


@dataclass(frozen=True)
class Step:
    """One action of a sketch.

    Attributes:
        kind: As in ``Action``.
        args: As in ``Action``, with slots.
        switch: Index of the choice whose value 0 leaves the step out; -1: it is always there.
    """

    kind: str
    args: tuple[Any, ...]
    switch: int = -1


@functools.lru_cache(maxsize=512)
def skeleton_of(sketch: Any) -> tuple[Step, ...]:
    """The steps of a sketch, in the order in which they are applied.

    Reading a trace costs a tenth of a millisecond, so it is done once per sketch; what is left per
    candidate is filling in its decisions.
    """
    trace = Trace.from_text(sketch.trace)
    chosen = dict(trace.decisions)
    switches: dict[int, int] = {}
    # Variables of a sketch that was made by hand may stand for no instruction.
    placed = zip(sketch.variables, sketch.positions, strict=False)
    for index, (variable, at) in enumerate(placed):
        if at not in chosen:
            switches[at] = index
        elif isinstance(variable, PerfectTile):
            chosen[at] = [Slot(index, part) for part in range(variable.parts)]
        else:
            chosen[at] = Slot(index)
    names = Names(sketch.axes)
    steps = []
    for at, instruction in enumerate(trace.instructions):
        decision = chosen.get(at)
        if at in switches:
            switched = [instruction.inputs[0], Slot(switches[at])]
            instruction = instruction._replace(inputs=switched)  # noqa: PLW2901
        action = names.step(instruction, decision)
        if action is not None:
            steps.append(Step(action.kind, action.args, switches.get(at, -1)))
    return tuple(steps)


def actions_of(sketch: Sketch, decisions: Sequence[Decision]) -> tuple[Action, ...]:
    """The actions of a candidate, in the order in which they are applied."""
    locations = sketch.location_names(decisions)

    def value(argument: Any) -> Any:
        if not isinstance(argument, Slot):
            return argument
        variable: Variable = sketch.variables[argument.variable]
        decision: Any = decisions[argument.variable]
        if isinstance(variable, PerfectTile):
            return decision[argument.part]
        if isinstance(variable, Choice):
            return variable.values[decision]
        return locations[argument.variable]

    return tuple(
        Action(step.kind, tuple(map(value, step.args)))
        for step in skeleton_of(sketch)
        if step.switch < 0 or value(Slot(step.switch)) != 0
    )


class Names:
    """Follows blocks and loops through a trace and gives each its canonical name.

    Args:
        axes: Block -> names of its loops in the untransformed program.
    """

    def __init__(self, axes: Mapping[str, Sequence[str]]) -> None:
        self._axes = axes
        self._values: dict[str, Any] = {}
        self._taken: dict[str, int] = {}

    def of(self, variable: Any) -> Any:
        """The name or value of an operand of a trace, or the slot that it will come from."""
        if variable is None or variable == "None":
            return "auto"
        if isinstance(variable, str):
            return self._values.get(variable, variable.strip('"'))
        return variable

    def step(self, instruction: Instruction, decision: Any) -> Action | None:
        """Takes in one instruction; the action it is, or None for queries and sampling.

        Args:
            instruction: The next one of the trace.
            decision: What it drew, or a slot in place of what it will draw; None if it draws
                nothing. A location is known by its number: which loop it is depends on the nest.
        """
        args = [self.of(i) for i in _flat(instruction.inputs)]
        if instruction.samples:
            self._sampled(instruction, decision)
            return None
        self._name_outputs(instruction, args)
        if instruction.looks_up:
            return None
        kind, attrs = instruction.kind, instruction.attrs
        numbers = [] if kind in _BARE else [a for a in _flat(attrs) if not isinstance(a, bool)]
        name = snake_case(kind)
        if kind == "Annotate":
            return Action(name, (args[0], numbers[0], *args[1:]))
        return Action(name, (*args, *numbers))

    def _sampled(self, instruction: Instruction, decision: Any) -> None:
        kind, outputs = instruction.kind, instruction.outputs
        if kind not in ("SampleCategorical", "SampleComputeLocation"):
            self._values.update(zip(outputs, decision, strict=True))
        elif isinstance(decision, Slot):
            self._values[outputs[0]] = decision
        elif kind == "SampleCategorical":
            self._values[outputs[0]] = instruction.attrs[0][decision]
        else:
            self._values[outputs[0]] = location_name(decision)

    def _name_outputs(self, instruction: Instruction, args: Sequence[Any]) -> None:
        kind, _, attrs, outputs = instruction
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


def loop_names(trace: Trace, axes: Mapping[str, Sequence[str]]) -> dict[int, str]:
    """For each sampling instruction of a trace, the canonical name of what it is about.

    Args:
        trace: Whose instructions.
        axes: Block -> names of its loops in the untransformed program.
    """
    names = Names(axes)
    names_at: dict[int, str] = {}
    for at, instruction in enumerate(trace.instructions):
        if instruction.samples and instruction.inputs:
            names_at[at] = str(names.of(instruction.inputs[0]))
        drawn: Any = [1] * len(instruction.outputs)
        if instruction.kind in ("SampleCategorical", "SampleComputeLocation"):
            drawn = 0
        names.step(instruction, drawn)
    return names_at
