"""TVM's traces as our candidates, and back.

A candidate is a sketch with decisions; a trace is a list of instructions with decisions. A trace
belongs to a sketch when both have the same normal form (``foretune.records``, which reads whole
databases the same way). A trace that no sketch explains, for example because TVM's search chose a
limit that our space lacks, becomes a frozen candidate: it can be applied, measured and compared,
but not mutated. Post-processing is no part of it: it follows from the rest and the target.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import IllegalCandidateError
from foretune.records import matchers_of, trace_form
from foretune.space import Candidate, Sketch, Space
from foretune.space.trace import Trace

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule

_matchers = functools.lru_cache(maxsize=64)(matchers_of)


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
    return Trace.of(schedule).to_json()


def match_trace(trace: Sequence[Any], space: Space) -> Candidate | None:
    """The candidate of a space that a trace stands for, or None when no sketch explains it.

    Args:
        trace: ``[instructions, decisions]`` as TVM serialises a trace, with or without its
            post-processing instructions and the instructions without effect, which TVM drops from
            what it has measured.
        space: Where the candidate should belong.

    Raises:
        BadInputError: It is no trace.
    """
    form = trace_form(trace)
    matcher = _matchers((*space.sketches, space.untuned.sketch)).get(form.skeleton)
    if matcher is None:
        return None
    try:
        return matcher.candidate(form)
    except IllegalCandidateError:
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
    text = Trace.from_json(trace).text
    return FrozenSketch(space.workload, space.hardware, text, (), ()).candidate(())


def candidate_of_schedule(schedule: Schedule, space: Space) -> Candidate:
    """The candidate that a TVM schedule stands for, with the program TVM made already."""
    return ScheduledCandidate.of(candidate_of_trace(trace_json(schedule), space), schedule)
