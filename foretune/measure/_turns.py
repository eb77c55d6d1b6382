"""Arguments of a kernel that differ from call to call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any


class InTurn:
    """Sets of arguments of one kernel, one after the other, over and over.

    Where it stands is kept from reading to reading: a second reading goes on with those sets that
    the first one left longest ago.

    Args:
        sets: One or more.
    """

    def __init__(self, sets: Sequence[Sequence[Any]]) -> None:
        self._all = itertools.cycle(sets)
        self.first = sets[0]
        self.alike = len(sets) == 1

    def take(self, count: int) -> Iterator[Sequence[Any]]:
        """The next ``count`` sets."""
        return itertools.islice(self._all, count)
