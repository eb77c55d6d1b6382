"""What a cost model believes before measurements.

A prior maps candidates to expected scores, float64 of shape (n,), in the unit minus log2 of a
slow-down. ``machine_fit`` is the one that needs no training; a trained ranker gives another
(``foretune.cost.pretrained``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foretune.cost._base import FloatArray
from foretune.features import machine_fit

Prior = Callable[[Sequence[Any]], FloatArray]

__all__ = ["Prior", "machine_fit"]
