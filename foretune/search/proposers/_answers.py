"""Reading what a language model answers: strictly, because a wrong tile would kill TVM's process.

An answer is data. What is not a known name or a decision inside its domain is dropped with a
sentence that says why, for the model to read; nothing is repaired by guessing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import IllegalCandidateError
from foretune.search.proposers._prompts import shown
from foretune.space import INLINE, ROOT, Choice, ComputeLocation

if TYPE_CHECKING:
    from foretune.space import Candidate, Space

_MOST_CORRECTIONS = 6
_LONGEST_CORRECTION = 240
_LONGEST_ANSWER = 1 << 16
_MOST_OBJECTS = 32
"""Places at which a JSON object is looked for."""
_LOCATIONS = {"root": ROOT, "inline": INLINE}


@dataclass
class Reading:
    """What an answer came to.

    Attributes:
        edits: Distinct candidates that can be made, in the order of the answer.
        corrections: What is wrong with it, and what became of it otherwise, a few sentences.
        dropped: Parts that could not be used.
    """

    edits: list[Candidate] = field(default_factory=list)
    corrections: list[str] = field(default_factory=list)
    dropped: int = 0

    def drop(self, why: str) -> None:
        """Counts a part that cannot be used, and keeps why."""
        self.dropped += 1
        self.tell(why)

    def tell(self, what: str) -> None:
        """Keeps what the model should know, in one line."""
        line = "".join(c if c.isprintable() else " " for c in what)[:_LONGEST_CORRECTION]
        if len(self.corrections) < _MOST_CORRECTIONS and line not in self.corrections:
            self.corrections.append(line)


def decided(text: str, reading: Reading) -> list[Any]:
    """The proposals of an answer, as they stand in its JSON object."""
    data = first_object(said(text))
    if data is not None:
        listed = data.get("proposals")
        if isinstance(listed, list) and listed:
            return listed
        reading.drop('the object has no list "proposals" with at least one proposal')
        return []
    reading.drop("no JSON object could be read: answer with one object, without trailing commas")
    return []


def by_decisions(
    proposal: Any, program: Candidate, space: Space, rng: np.random.Generator, reading: Reading
) -> Candidate | None:
    """Changes the decisions that are legal; None if there is none."""
    if not isinstance(proposal, dict):
        reading.drop(f"a proposal is an object of identifiers and values, not {quoted(proposal)}")
        return None
    if not proposal:
        reading.drop("a proposal is empty: give at least one identifier with its new value")
    edit, taken = program, set[int]()
    values: dict[int, Any] = {}
    for name, value in proposal.items():
        known = _index(name, program)
        if known is None:
            reading.drop(f"{quoted(name)} is no identifier of the table")
        else:
            values[known] = value
    # Locations last, in their order: which ones there are depends on the tiles and on earlier ones.
    for index in sorted(values, key=lambda index: _turn(index, program)):
        try:
            decision = _decision(program.sketch.variables[index], values[index])
            edit = space.edit(edit, {index: decision}, rng)
            taken.add(index)
        except IllegalCandidateError as error:
            reading.drop(f"v{index}: {error}")
    if taken:
        _tell_redrawn(program, edit, taken, reading)
    return edit if taken else None


Proposals = Callable[[str, Reading], "list[Any]"]
"""Finds the proposals of an answer."""
Edit = Callable[[Any, "Candidate", "Space", np.random.Generator, Reading], "Candidate | None"]
"""Makes an edit of a program of a proposal; None where nothing of it can be used."""


def read(
    text: str,
    program: Candidate,
    space: Space,
    rng: np.random.Generator,
    *,
    alternatives: int,
    proposals: Proposals = decided,
    edited: Edit = by_decisions,
) -> Reading:
    """The usable edits of an answer.

    Args:
        text: What the model said.
        program: What was to be edited.
        space: Its space.
        rng: Draws what an answer leaves open.
        alternatives: Proposals read at most.
        proposals: Finds them.
        edited: Makes an edit of one.
    """
    reading = Reading()
    asked_for = proposals(text, reading)
    if len(asked_for) > alternatives:
        reading.drop(f"there were {len(asked_for)} proposals: give {alternatives} at most")
    for proposal in asked_for[:alternatives]:
        edit = edited(proposal, program, space, rng, reading)
        if edit is None:
            continue
        if edit == program:
            reading.drop("a proposal changes nothing: change at least one decision")
        elif edit not in reading.edits and _can_be_made(edit, reading):
            reading.edits.append(edit)
    return reading


def said(text: str) -> str:
    """An answer without what a reasoning model thinks aloud; its template may open the thought."""
    return text.rpartition("</think>")[2].partition("<think>")[0][:_LONGEST_ANSWER]


def first_object(text: str) -> Mapping[str, Any] | None:
    """The first JSON object of a text that has proposals."""
    decoder = json.JSONDecoder()
    for match in list(re.finditer(r"\{", text))[:_MOST_OBJECTS]:
        try:
            data, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and "proposals" in data:
            return data
    return None


def _can_be_made(edit: Candidate, reading: Reading) -> bool:
    """Whether TVM accepts a program; what is wrong with it is for the model to know.

    Making it takes milliseconds, the answer took seconds. What is measured was made anyway.
    """
    try:
        edit.apply()
    except IllegalCandidateError as error:
        reading.drop(f"a proposal makes no program: {error}")
        return False
    return True


def _tell_redrawn(program: Candidate, edit: Candidate, named: set[int], reading: Reading) -> None:
    """Says which locations changed although the proposal did not name them."""
    for index in program.sketch.location_order:
        before, now = program.decisions[index], edit.decisions[index]
        if index not in named and before != now:
            variable = program.sketch.variables[index]
            reading.tell(
                f"v{index}: location {shown(variable, before)} does not fit the other decisions of "
                f"a proposal, so it was drawn anew: {shown(variable, now)}"
            )


def _index(name: str, program: Candidate) -> int | None:
    matched = re.fullmatch(r"v(\d{1,4})", name)
    index = int(matched[1]) if matched else -1
    return index if 0 <= index < len(program.sketch.variables) else None


def _turn(index: int, program: Candidate) -> int:
    """When a decision is taken: 0, or its place among the locations, from 1."""
    order = program.sketch.location_order
    return 1 + order.index(index) if index in order else 0


def _decision(variable: Any, value: Any) -> Any:
    """The decision that a value of an answer stands for; checked by whoever applies it."""
    if isinstance(variable, Choice):
        if type(value) is not int or value not in variable.values:
            raise IllegalCandidateError(
                f"{variable.name} is one of {list(variable.values)}, but got {quoted(value)}"
            )
        return variable.values.index(value)
    if isinstance(variable, ComputeLocation) and isinstance(value, str):
        return _LOCATIONS.get(value.lower(), value)
    return value


def quoted(value: Any) -> str:
    """A value as a sentence shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
