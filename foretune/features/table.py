"""Columns of features."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes:
        name: Group and quantity, for example ``"access0.bytes"``.
        unit: What is counted, as ``"log2(1 + bytes)"``, or ``"flag"`` for 0 and 1.
    """

    name: str
    unit: str
