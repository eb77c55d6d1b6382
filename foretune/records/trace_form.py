"""Normal form of MetaSchedule traces, in which traces of one sketch are equal.

Two traces of one sketch differ in their decisions, in the limits for parallel and vector loops (or
whether there are any), in what post-processors appended, in instructions without effect, which TVM
drops when it stores a trace, and so in the numbering of variables. Before → after::

    b0 = GetSBlock("C")                              x0 = GetSBlock("C")
    b1 = GetSBlock("root")
    l2 = GetLoops(b0)                                x1 = GetLoops(x0)
    v3, v4 = SamplePerfectTile(l2)  # [4, 16]    →   x2, x3 = SamplePerfectTile(x1)  # a hole
    Annotate(b1, 32, parallel)                       # a hole
    GetConsumers(b0)
    EnterPostproc(), ...

The holes keep what was decided, and where.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import IllegalCandidateError
from foretune.space import Choice
from foretune.space.trace import Trace

if TYPE_CHECKING:
    from foretune.space import Candidate, Sketch

LIMIT = "limit "
"""Holes whose value is a limit, not the index of a choice, start with this."""
_WITHOUT = 0
"""What stands for the value of a limit that is not there."""


@dataclass(frozen=True)
class TraceForm:
    """A trace taken apart.

    Attributes:
        skeleton: What all traces of one sketch have in common, as text.
        decided: Hole to what was decided there, as JSON.
        positions: Hole to the index of its instruction in the trace.
    """

    skeleton: str
    decided: dict[str, Any]
    positions: dict[str, int]

    def value(self, hole: str) -> Any:
        """What was decided at a hole; None where nothing was."""
        return self.decided.get(hole, _WITHOUT if hole.startswith(LIMIT) else None)


def trace_form(written: Any) -> TraceForm:
    """Takes a trace apart.

    Args:
        written: The JSON object ``[instructions, decisions]``.

    Raises:
        BadInputError: It is no trace.
    """
    return _form_of(Trace.from_json(written))


def _form_of(trace: Trace) -> TraceForm:
    decided: dict[str, Any] = {}
    positions: dict[str, int] = {}
    kept: list[int] = []
    blocks: dict[str, str] = {}
    for at, each in enumerate(trace.instructions):
        if each.kind == "GetSBlock":
            blocks.update(dict.fromkeys(each.outputs, json.dumps(each.attrs)))
        if each.limit is None:
            kept.append(at)
        else:
            block, value = each.inputs
            hole = f"{LIMIT}{each.limit} of {blocks.get(block, block)}"
            decided[hole], positions[hole] = value, at
    renamed: dict[str, str] = {}
    skeleton = []
    for at in _live(trace, kept):
        kind, inputs, attrs, outputs = trace.instructions[at]
        skeleton.append([kind, _renamed(inputs, renamed), _renamed(attrs, {}), len(outputs)])
        for output in outputs:
            renamed[output] = f"x{len(renamed)}"
        if at in trace.decisions:
            hole = f"decision {len(skeleton)}"
            decided[hole], positions[hole] = trace.decisions[at], at
    return TraceForm(json.dumps(skeleton, separators=(",", ":")), decided, positions)


def _live(trace: Trace, kept: Sequence[int]) -> list[int]:
    """The kept instructions but those that only look something up that nobody uses."""
    used: set[str] = set()
    live = []
    for at in reversed(kept):
        each = trace.instructions[at]
        if (each.looks_up or each.samples) and used.isdisjoint(each.outputs):
            continue
        live.append(at)
        _collect(each.inputs, used)
    return live[::-1]


def _collect(value: Any, names: set[str]) -> None:
    if isinstance(value, str):
        names.add(value)
    elif isinstance(value, list):
        for part in value:
            _collect(part, names)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    # Databases hold 0 and 1 where a fresh trace holds false and true.
    return int(value) if isinstance(value, bool) else value


class TraceMatcher:
    """Turns traces of one sketch into its candidates."""

    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch
        self.form = _form_of(Trace.from_text(sketch.trace))
        holes = {at: hole for hole, at in self.form.positions.items()}
        self._holes = [holes.get(at) for at in sketch.positions]
        self._fixed = [hole for hole in self.form.decided if hole not in self._holes]

    def candidate(self, form: TraceForm) -> Candidate:
        """The candidate whose decisions a trace of this sketch holds, or IllegalCandidateError."""
        extra = form.decided.keys() - self.form.decided.keys()
        if extra or any(form.value(hole) != self.form.value(hole) for hole in self._fixed):
            raise IllegalCandidateError("the trace decides what the sketch has fixed")
        decisions: list[Any] = []
        for variable, hole in zip(self._sketch.variables, self._holes, strict=True):
            value = None if hole is None else form.value(hole)
            if hole is not None and hole.startswith(LIMIT) and isinstance(variable, Choice):
                if value not in variable.values:
                    raise IllegalCandidateError(f"{variable.name} is never {value!r}")
                value = variable.values.index(value)
            decisions.append(tuple(value) if isinstance(value, list) else value)
        return self._sketch.candidate(decisions)


def matchers_of(sketches: Sequence[Sketch]) -> dict[str, TraceMatcher]:
    """Skeleton to the matcher of the sketch that has it."""
    return {matcher.form.skeleton: matcher for matcher in map(TraceMatcher, sketches)}
