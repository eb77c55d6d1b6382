"""An explanation with numbers that were made up, for tests of what is done with them."""

from __future__ import annotations

from typing import Any

from foretune.describe import METRICS
from foretune.explain import Advice, Explanation


def made_up(**changed: Any) -> Explanation:
    """Of a kernel that the second cache bounds."""
    scores = {metric.name: 0.9 if "cpu" in metric.kinds else None for metric in METRICS}
    given: dict[str, Any] = {
        "name": "dense 128",
        "key": "k",
        "weight": 2,
        "device": "desktop",
        "seconds": 2e-6,
        "predicted_s": 1.5e-6,
        "bound": "l2",
        "share_of_bound": 0.5,
        "scores": scores,
        "limits_s": {"arithmetic": 4e-7, "l2": 1e-6, "overhead": 1e-8},
        "numbers": {"parallel_jobs": 16.0, "bytes_from_l2": 3e6, "instructions": 1000.0},
        "advice": (Advice("grow the tile", "i: 1 x 4 -> 4 x 1", 1.5, ((4, 1), 0), "s"),),
        "loops": "for 4",
        "device_name": "A desktop, 8 cores",
        "hardware": "h",
        "assumed": {"l2_kib": 2048.0},
    }
    return Explanation(**{**given, **changed})
