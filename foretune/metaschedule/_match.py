"""TVM's traces as our candidates, and back.

A candidate is a sketch with decisions; a trace is a list of instructions with decisions. A trace
belongs to a sketch when it has the sketch's instructions, apart from what the sketch's variables
stand for. Before -> after, for one instruction of a trace and the variable of the sketch::

    v5, v6 = sch.sample_perfect_tile(loop=l2, n=2, decision=[16, 8])  ->  PerfectTile: (16, 8)
    sch.annotate(b1, "meta_schedule.parallel", 32)                    ->  Choice: index of 32

Post-processing instructions are no part of it: they follow from the rest and the target.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.space import Candidate, Choice, PerfectTile, Sketch, Space

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule

_POSTPROCESSING = "EnterPostproc"
_ANNOTATE = "Annotate"


class FrozenSketch(Sketch):
    """A sketch without variables, made from one trace that no sketch of the space explains.

    Its key covers the decisions in the trace, which are not variables here.
    """

    @functools.cached_property
    def key(self) -> str:  # type: ignore[override]
        """16 hex digits: hash of the workload, the target, the trace and its decisions."""
        text = json.dumps([self.workload.key, json.loads(self.hardware.target), self.trace])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class ScheduledCandidate(Candidate):
    """A candidate whose program TVM has made already, so that it need not be made again.

    Equal to, and in another process replaced by, the plain candidate with the same decisions.
    """

    __slots__ = ("_schedule",)

    _schedule: Schedule

    @classmethod
    def of(cls, candidate: Candidate, schedule: Schedule) -> ScheduledCandidate:
        """Joins a candidate with TVM's schedule of it, post-processors applied."""
        joined = cls.trusted(candidate.sketch, candidate.decisions)
        assert isinstance(joined, ScheduledCandidate)
        object.__setattr__(joined, "_schedule", schedule)
        return joined

    def schedule(self) -> Schedule:
        """TVM's schedule, copied."""
        return self._schedule.copy()

    def apply(self) -> IRModule:
        """The scheduled module."""
        return self._schedule.mod


def trace_json(schedule: Schedule) -> list[Any]:
    """The trace of a schedule as JSON: ``[instructions, decisions]``, post-processing left out."""
    plain: list[Any] = plain_json(schedule.trace.as_json(remove_postproc=True))
    return plain


def plain_json(value: Any) -> Any:
    """TVM's numbers inside lists as Python's."""
    if isinstance(value, (list, tuple)):
        return [plain_json(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain_json(v) for k, v in value.items()}
    number = getattr(value, "value", None)
    return value if number is None else number


def match_trace(trace: Sequence[Any], space: Space) -> Candidate | None:
    """The candidate of a space that a trace stands for, or None when no sketch explains it.

    The trace is one of a live schedule. TVM drops instructions without effect when it stores a
    trace; ``foretune.records.import_metaschedule`` reads those.

    Args:
        trace: ``[instructions, decisions]`` as TVM serialises a trace, with or without its
            post-processing instructions.
        space: Where the candidate should belong.
    """
    instructions, decisions = _without_postprocessing(trace)
    if not instructions:
        return space.untuned
    for sketch in space.sketches:
        found = _decisions(sketch, instructions, decisions)
        if found is None:
            continue
        try:
            return sketch.candidate(found)
        except IllegalCandidateError:
            continue
    return None


def candidate_of_trace(trace: Sequence[Any], space: Space) -> Candidate:
    """``match_trace``, or a candidate of a frozen sketch where nothing matches.

    A frozen candidate can be applied, measured and compared; it cannot be mutated.
    """
    matched = match_trace(trace, space)
    return matched if matched is not None else frozen_candidate(trace, space)


def frozen_candidate(trace: Sequence[Any], space: Space) -> Candidate:
    """A candidate without variables that replays a trace as it is.

    Raises:
        BadInputError: It is no trace.
    """
    instructions, decisions = _without_postprocessing(trace)
    text = json.dumps(
        [instructions, [[i, d] for i, d in sorted(decisions.items())]],
        sort_keys=True,
        separators=(",", ":"),
    )
    return FrozenSketch(space.workload, space.hardware, text, (), ()).candidate(())


def candidate_of_schedule(schedule: Schedule, space: Space) -> Candidate:
    """The candidate that a TVM schedule stands for, with the program TVM made already."""
    return ScheduledCandidate.of(candidate_of_trace(trace_json(schedule), space), schedule)


def _without_postprocessing(trace: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
    try:
        instructions, pairs = trace
        decisions = {int(index): decision for index, decision in pairs}
        kinds = [instruction[0] for instruction in instructions]
    except (TypeError, ValueError, IndexError) as error:
        raise BadInputError(
            f"a trace is [instructions, decisions], but got {str(trace)[:80]!r}: {error}"
        ) from error
    end = kinds.index(_POSTPROCESSING) if _POSTPROCESSING in kinds else len(kinds)
    return list(instructions[:end]), {i: d for i, d in decisions.items() if i < end}


@functools.lru_cache(maxsize=64)
def _skeleton(sketch: Sketch) -> tuple[list[Any], dict[int, Any], dict[int, int]]:
    instructions, pairs = json.loads(sketch.trace)
    fixed = {int(i): d for i, d in pairs if int(i) not in sketch.positions}
    return instructions, fixed, {at: n for n, at in enumerate(sketch.positions)}


def _decisions(
    sketch: Sketch, instructions: Sequence[Any], decisions: Mapping[int, Any]
) -> list[Any] | None:
    wanted, fixed, variables = _skeleton(sketch)
    found: dict[int, Any] = {}
    at = 0
    for index, ours in enumerate(wanted):
        theirs = instructions[at] if at < len(instructions) else None
        number = variables.get(index)
        if theirs is None or not _same(ours, theirs, exact=number is None):
            left_out = None if number is None else _left_out(sketch.variables[number], ours)
            if number is None or left_out is None:
                return None
            found[number] = left_out
            continue
        if number is None:
            if fixed.get(index) != decisions.get(at):
                return None
        else:
            decision = _decision(sketch.variables[number], theirs, decisions.get(at))
            if decision is None:
                return None
            found[number] = decision
        at += 1
    if at != len(instructions):
        return None
    return [found[n] for n in range(len(sketch.variables))]


def _same(ours: Sequence[Any], theirs: Sequence[Any], exact: bool) -> bool:
    """Whether two instructions are equal, up to the value of an annotation if not exact."""
    kind, inputs, attributes, outputs = theirs
    if exact or kind != _ANNOTATE:
        return bool(ours == [kind, inputs, attributes, outputs])
    return bool([ours[0], ours[1][:1], *ours[2:]] == [kind, inputs[:1], attributes, outputs])


def _left_out(variable: Any, ours: Sequence[Any]) -> int | None:
    """The index of the choice that leaves the annotation out, if it may be left out."""
    if ours[0] == _ANNOTATE and isinstance(variable, Choice) and 0 in variable.values:
        return variable.values.index(0)
    return None


def _decision(variable: Any, theirs: Sequence[Any], decision: Any) -> Any:
    if theirs[0] == _ANNOTATE:
        value = theirs[1][1]
        known = isinstance(variable, Choice) and value in variable.values
        return variable.values.index(value) if known else None
    if decision is None:
        return None
    return tuple(int(f) for f in decision) if isinstance(variable, PerfectTile) else int(decision)
