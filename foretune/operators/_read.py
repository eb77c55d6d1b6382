"""Reading one element of a TE tensor."""

from __future__ import annotations

from typing import Any


def value_at(tensor: Any, *position: Any) -> Any:
    """The element at a position, one argument per dimension."""
    return tensor(*position)
