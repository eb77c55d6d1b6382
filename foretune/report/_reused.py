"""What a store of records spared a run, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def told_reused(data: Mapping[str, Any]) -> str:
    """A sentence; empty where nothing was spared.

    Args:
        data: A ``foretune.tune/1`` object.
    """
    reused = data.get("reused")
    tasks = reused["tasks"] if reused else []
    spared = sum(1 for task in tasks if task["enough"])
    best = sum(1 for task in tasks if task["best"])
    if reused is None or not (spared or best):
        return ""
    return (
        f"reused from {reused['store']}: {spared} of {len(tasks)} tasks needed no trial, "
        f"{best} of the best schedules were known"
    )
