"""Features that were read once, as far as they fit into so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar

from foretune._arrays import Float32Array

Kept = TypeVar("Kept", Float32Array, "Float32Array | None")

_ENTRY_BYTES = 384
"""What a program takes beside its rows: a short key, an array's head, a place in the order. So
those without rows are bounded, too."""


class Memory(Generic[Kept]):
    """Rows of features by a short key that covers all that they depend on.

    The longest unused go first.

    Args:
        limit: Bytes that may be kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._rows: OrderedDict[str, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Kept:
        return self._rows[key]

    def remember(self, made: Mapping[str, Kept]) -> None:
        """Takes programs in, or notes that they were used; forgets what does not fit."""
        for key, rows in made.items():
            if key in self._rows:
                self.bytes -= _size(self._rows[key])
            self._rows[key] = rows
            self._rows.move_to_end(key)
            self.bytes += _size(rows)
        while self.bytes > self.limit:
            self.bytes -= _size(self._rows.popitem(last=False)[1])


def _size(rows: Float32Array | None) -> int:
    return _ENTRY_BYTES + (0 if rows is None else rows.nbytes)
