"""The door to proposers: which edits of a program are worth a look?"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.space import SearchSpace


@dataclass(frozen=True)
class Variant(Generic[C]):
    """A program and what is known of it.

    Attributes:
        candidate: The program.
        score: What the cost model says of it, higher is better; None if it was not asked.
        seconds: Measured seconds per call; None if it was not measured, or failed.
        failed: Whether measuring it failed.
    """

    candidate: C
    score: float | None = None
    seconds: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Situation(Generic[C]):
    """A program that is to be edited, and what is known around it.

    Attributes:
        program: The program.
        wanted: Edits asked for, at least 1.
        ancestors: The programs it came from, its parent first.
        best: The fastest program measured so far.
    """

    program: Variant[C]
    wanted: int
    ancestors: tuple[Variant[C], ...] = ()
    best: Variant[C] | None = None


class Proposer(abc.ABC, Generic[C]):
    """Proposes edits of programs of one space.

    Life cycle: construct with a space and a random generator, then call ``propose`` as often as
    needed. What is slow may begin early: a strategy hands ``foresight`` situations to ``prepare``
    before candidates are measured, and the same ones to ``propose`` afterwards. A proposer never
    measures, never scores with the cost model and never remembers what was proposed: the strategy
    drops what is known.

    Args:
        space: Where programs come from.
        rng: The only source of randomness.
    """

    def __init__(self, space: SearchSpace[C], rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses options whose values would be refused for any space, before there is one.

        Raises:
            BadInputError: An option is unknown, of a wrong type, or makes no sense.
        """

    @abc.abstractmethod
    def propose(self, situations: Sequence[Situation[C]]) -> list[list[C]]:
        """For each situation up to ``wanted`` distinct candidates of this space, the best first.

        They differ from the program; some may be illegal or known already. A list may be empty.
        """

    @property
    def foresight(self) -> int:
        """Situations that are worth preparing while candidates are measured."""
        return 0

    def prepare(self, situations: Sequence[Situation[C]]) -> None:
        """Begins to work on situations that ``propose`` will be asked about. Returns at once."""

    def judged(self, situation: Situation[C], children: Sequence[Variant[C]]) -> None:
        """Told what the cost model thinks of what was proposed for a situation."""

    @property
    def status(self) -> str:
        """A few words for the progress of a run; empty where there is nothing to say."""
        return ""
