"""Groups as lessons, as far as a source of scores says something of most of their programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost.behaviour.answers import Counts
    from foretune.cost.behaviour.regressor import Lesson
    from foretune.cost.behaviour.scores import ScoreSource
    from foretune.dataset import Group

_MOST_FALLBACK = 0.5
"""Share of programs of training whose scores may be from formulas in place of a model."""


def taught(
    parts: Sequence[Sequence[Group]],
    lesson: Callable[[Group], Lesson | None],
    source: ScoreSource,
    programs: int,
    who: str,
) -> list[list[Lesson | None]]:
    """The groups of each part as lessons.

    Args:
        parts: Groups to learn from, and to stop by.
        lesson: Makes one of a group, by scores of the source; None: nothing is to be learned.
        source: Of scores.
        programs: Of a group that are asked about at most.
        who: Learns, for the message.

    Raises:
        BadInputError: The source said nothing of most programs; as soon as that is certain.
    """
    before = replace(source.counts)
    most = sum(min(len(group), programs) for groups in parts for group in groups)
    found: list[list[Lesson | None]] = []
    for groups in parts:
        found.append([])
        for group in groups:
            found[-1].append(lesson(group))
            _refuse_formulas(before, source, most, who)
    _refuse_formulas(before, source, source.counts.programs - before.programs, who)
    return found


def _refuse_formulas(before: Counts, source: ScoreSource, programs: int, who: str) -> None:
    fallback = source.counts.fallback - before.fallback
    if fallback > _MOST_FALLBACK * programs:
        raise BadInputError(
            f"{who}: what is trained on scores={source.name} needs them for "
            f"{1 - _MOST_FALLBACK:.0%} of the programs at least, but of {programs} programs "
            f"{fallback} had none that could be used, and formulas answered instead: see to "
            "the language model, or train with scores=analytic"
        )
