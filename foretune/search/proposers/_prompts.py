"""What a language model is told about a program, and what it is asked for.

``diff``: the loops that the decisions make, the decisions as a table with their domains, and of the
ancestors only what differs. ``full``: the whole program as TVM prints it, and those of the
ancestors. Either says what is known of speed (measured before predicted), the machine, the best
program so far, and what was wrong with earlier answers. A prompt depends on nothing but its
arguments, so that a recorded answer is found again.

Source: Reasoning Compiler, section 3.1 and appendix A. Its prompt asks to compare the variants, to
weigh how transformations interact, to propose a sequence and to give the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from foretune.describe.words import machine_words
from foretune.errors import IllegalCandidateError
from foretune.space import Choice, ComputeLocation, PerfectTile, location_name

if TYPE_CHECKING:
    from foretune.search.proposers._base import Situation, Variant
    from foretune.space import Candidate

STYLES = ("diff", "full")

_MOST_LISTED = 24
"""Values of a domain that are listed."""
_LONGEST_PROGRAM = 12_000
"""Characters of a program's text."""
_GENERATIONS = ("parent", "grandparent", "great-grandparent")

_ROLE = """\
You optimise one tensor program for the machine below, as the proposer of a search.
A program is fixed by its decisions; you change some of them to make it faster.

1. Compare the program with its ancestors: which changes made it faster, which slower?
2. Consider how changes interact (tiles decide what fits into registers and caches, how long vectors
   are, and how much parallel work there is).
3. Propose new changes, and say briefly why.

"Predicted" scores come from a cost model (minus log2 of a slow-down, higher is faster) and may be
wrong; "measured" milliseconds are right."""

DECISIONS = """\
Answer with one JSON object and nothing else:
{{"reasoning": "...", "proposals": [{{"v0": [4, 8, 1, 16], "v3": 64}}, ...]}}
with 1 to {count} different proposals. Each proposal maps identifiers of the table to new values;
what is left out stays as it is. A tile is a list of as many positive integers as the table shows,
outermost first, whose product is the extent. A choice or a location is one of the values listed."""
"""What an answer has to look like; ``count`` proposals at most."""


def messages(
    situation: Situation[Candidate],
    *,
    history: int,
    style: str,
    alternatives: int,
    corrections: Sequence[str] = (),
    form: str = DECISIONS,
    choices: Sequence[str] = (),
) -> list[dict[str, str]]:
    """The conversation that asks for edits of a program.

    Args:
        situation: The program and what is known around it.
        history: Ancestors that are shown, at most 3.
        style: One of ``STYLES``.
        alternatives: Proposals asked for.
        corrections: What was wrong with earlier answers about programs of the same sketch.
        form: What an answer has to look like, with a place for ``count``, their number.
        choices: What an answer may choose from, beside the decisions.
    """
    candidate = situation.program.candidate
    ancestors = situation.ancestors[:history]
    task = form.format(count=alternatives)
    show = _differences if style == "diff" else _programs
    sections = [
        ("Machine", [machine_words(candidate.hardware)]),
        ("Program", _headline(situation.program)),
        *show(situation.program, ancestors),
        ("Decisions", list(_table(candidate))),
    ]
    if situation.best is not None and situation.best.candidate != candidate:
        sections.append(("Best so far", _best(situation.best, candidate)))
    if choices:
        sections.append(("Available transformations", [", ".join(choices)]))
    if corrections:
        title = "What was wrong with earlier answers, which used the same identifiers"
        sections.append((title, [f"- {c}" for c in corrections]))
    text = "\n\n".join(f"## {title}\n" + "\n".join(lines) for title, lines in sections if lines)
    return [
        {"role": "system", "content": f"{_ROLE}\n\n{task}"},
        {"role": "user", "content": text},
    ]


def _headline(program: Variant[Candidate]) -> list[str]:
    workload = program.candidate.workload
    return [f"{workload.flops:.3g} floating-point operations. Current: {speed(program)}."]


def speed(variant: Variant[Candidate]) -> str:
    """What is known of a program's speed, in words."""
    if variant.failed:
        return "failed when it was run"
    if variant.seconds is not None:
        return f"measured {variant.seconds * 1e3:.4g} ms"
    if variant.score is not None:
        return f"predicted {variant.score:.2f}"
    return "nothing known of its speed"


def _differences(
    program: Variant[Candidate], ancestors: Sequence[Variant[Candidate]]
) -> Iterator[tuple[str, list[str]]]:
    yield "Loops", loops(program.candidate)
    child = program
    lines: list[str] = []
    for name, ancestor in zip(_GENERATIONS, ancestors, strict=False):
        changed = difference(ancestor.candidate, child.candidate)
        lines.append(f"- {name}, {speed(ancestor)}; what came of it changed {changed}")
        child = ancestor
    yield "Ancestors", lines


def _programs(
    program: Variant[Candidate], ancestors: Sequence[Variant[Candidate]]
) -> Iterator[tuple[str, list[str]]]:
    yield "Code", [_code(program.candidate)]
    child = program
    for name, ancestor in zip(_GENERATIONS, ancestors, strict=False):
        changed = difference(ancestor.candidate, child.candidate)
        heading = f"{speed(ancestor)}; what came of it changed {changed}"
        yield name.capitalize(), [heading, _code(ancestor.candidate)]
        child = ancestor


def _code(candidate: Candidate) -> str:
    try:
        text = str(candidate.apply().script())
    except IllegalCandidateError:
        return "(cannot be made)"
    return text if len(text) <= _LONGEST_PROGRAM else text[:_LONGEST_PROGRAM] + "\n(cut)"


def loops(candidate: Candidate) -> list[str]:
    """The tiled loops of a program, part by part from the outermost, one line each.

    Before → after: tiles ``i [4, 2, 4, 64]``, ``j [1, 8, 8, 8]`` → ``part 0: for i, j in grid(4,
    1)``, ``part 1: for i, j in grid(2, 8)``...
    """
    blocks: dict[tuple[str, int], list[tuple[str, tuple[int, ...]]]] = {}
    for variable, decision in zip(candidate.sketch.variables, candidate.decisions, strict=True):
        if isinstance(variable, PerfectTile) and isinstance(decision, tuple):
            block, _, axis = variable.name.rpartition(".")
            blocks.setdefault((block, variable.parts), []).append((axis, decision))
    lines = []
    for (block, parts), tiles in blocks.items():
        axes = ", ".join(axis for axis, _ in tiles)
        for part in range(parts):
            extents = ", ".join(str(tile[part]) for _, tile in tiles)
            lines.append(f"{block} part {part}: for {axes} in grid({extents})")
    return lines


def _table(candidate: Candidate) -> Iterator[str]:
    sketch = candidate.sketch
    for index, variable in enumerate(sketch.variables):
        now = shown(variable, candidate.decisions[index])
        yield f"v{index}: {_domain(candidate, index)}; now {now}"


def _domain(candidate: Candidate, index: int) -> str:
    variable = candidate.sketch.variables[index]
    if isinstance(variable, PerfectTile):
        limit = f", the last at most {variable.limit}" if variable.limit else ""
        return f"tile of {variable.name}, extent {variable.extent}, {variable.parts} factors{limit}"
    if isinstance(variable, Choice):
        return f"{variable.name}, one of {_listed(variable.values)}"
    values = [shown(variable, location) for location in location_domain(candidate, index)]
    return f"location of {variable.name}, one of {_listed(values)}"


def _listed(values: Sequence[Any]) -> str:
    text = ", ".join(str(value) for value in values[:_MOST_LISTED])
    return f"{text}..." if len(values) > _MOST_LISTED else text


def location_domain(candidate: Candidate, index: int) -> tuple[int, ...]:
    """Locations of a block that are legal with a candidate's other decisions."""
    return candidate.sketch.location_domain(candidate.decisions, index)


def shown(variable: Any, decision: Any) -> Any:
    """A decision as it stands in prompts and answers: factors, the chosen value, a location."""
    if isinstance(variable, PerfectTile):
        return list(decision)
    if isinstance(variable, Choice):
        return variable.values[decision]
    assert isinstance(variable, ComputeLocation)
    return location_name(decision) if decision < 0 else decision


def difference(before: Candidate, after: Candidate) -> str:
    """What changed between two programs, in words."""
    if before.sketch != after.sketch:
        return "everything"
    changes = [
        f"v{index} ({variable.name}) from {shown(variable, a)} to {shown(variable, b)}"
        for index, (variable, a, b) in enumerate(
            zip(before.sketch.variables, before.decisions, after.decisions, strict=True)
        )
        if a != b
    ]
    return ", ".join(changes) or "nothing"


def _best(best: Variant[Candidate], candidate: Candidate) -> list[str]:
    if best.candidate.sketch != candidate.sketch:
        return [f"{speed(best)}, of another structure."]
    return [f"{speed(best)}; it differs from the current one in this: "
            f"{difference(candidate, best.candidate)}"]  # fmt: skip
