"""Arguments of a kernel that differ from call to call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any


class InTurn:
    """Copies of a kernel's arguments, one after the other, over and over.

    Each argument takes turns with its own copies, however many the others have: between two calls
    with one copy all other copies of that argument were used.

    Where it stands is kept from reading to reading: a second reading goes on with those copies that
    the first one left longest ago.

    Args:
        copies: Of each argument one or more.

    Attributes:
        first: The first copy of each.
        last: The copies that were taken last.
        alike: Whether all calls have the same.
    """

    def __init__(self, copies: Sequence[Sequence[Any]]) -> None:
        self.first = [each[0] for each in copies]
        self.last: Sequence[Any] = self.first
        self.alike = all(len(each) == 1 for each in copies)
        turns = [itertools.cycle(each) for each in copies]
        self._all: Iterator[Sequence[Any]] = (
            zip(*turns, strict=True) if turns else itertools.repeat(())
        )

    def take(self, count: int) -> list[Sequence[Any]]:
        """The arguments of the next ``count`` calls."""
        taken = list(itertools.islice(self._all, count))
        self.last = taken[-1] if taken else self.last
        return taken
