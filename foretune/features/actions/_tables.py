"""What the sections of the action features share: names and sizes of their tables."""

from __future__ import annotations

from collections.abc import Sequence

from foretune.features.table import Column

MOST_SPATIAL_PARTS = 5
"""Factors of a spatial loop at most: five on GPUs, four on CPUs."""
MOST_REDUCTION_PARTS = 3
"""Factors of a reduction loop at most: three on GPUs, two on CPUs."""

LEVEL_NAMES = (
    *(f"s{part}" for part in range(MOST_SPATIAL_PARTS)),
    *(f"r{part}" for part in range(MOST_REDUCTION_PARTS)),
)
"""Spatial and reduction parts, counted from the innermost."""

CHOICES = ("parallel", "vectorize", "unroll_explicit", "unroll_implicit", "cooperative_fetch")
"""Choices with a column of their own."""


def columns_of(group: str, names: Sequence[str], unit: str) -> list[Column]:
    """Columns of one group and unit."""
    return [Column(f"{group}.{name}", unit) for name in names]
