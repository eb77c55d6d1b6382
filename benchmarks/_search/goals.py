"""What a strategy or a cost model is to reach in a search, and whether it did.

A goal asks for one figure of a table of ``benchmarks.search22``'s summary. It belongs to the name
of a strategy or of a cost model; a side has the goals of both of its own. To add one, add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._search.figures import label
from foretune.bench import Side
from foretune.cost import DEFAULT_MODEL
from foretune.search import split_name

PEER = "metaschedule-quick-start"
NEAR = 0.95
SAME_MODEL = "evolutionary + {model}"
"""The label of evolution with the cost model of the side that is judged."""


class Goal(NamedTuple):
    """A figure that is to be reached.

    Attributes:
        of: The strategy or the cost model that is to reach it.
        table: Of the summary: how many times as fast, the share of the best latency known, trials
            over another side's to ``NEAR`` of it, or how many times sooner.
        bound: What the figure is to be at least; of trials at most.
        at: Trials of the first two, the other side of the last two.
    """

    of: str
    table: str
    bound: float
    at: int | str


GOALS = (
    Goal(DEFAULT_MODEL, "speedups", 1.6, 8),
    Goal(DEFAULT_MODEL, "speedups", 1.45, 16),
    Goal(DEFAULT_MODEL, "speedups", 1.2, 64),
    Goal(DEFAULT_MODEL, "shares", 0.93, 16),
    Goal(DEFAULT_MODEL, "trials_to_near", 0.25, PEER),
    Goal("world", "speedups", 1.5, 8),
    Goal("world", "speedups", 1.3, 16),
    Goal("world", "speedups", 1.07, 64),
    Goal("world", "shares", 0.97, 16),
    Goal("world", "trials_to_near", 0.125, PEER),
    Goal("gradient", "seconds_to_near", 3.0, PEER),
    Goal("gradient", "seconds_to_near", 3.0, SAME_MODEL),
)
_TEXTS = {
    "speedups": f"at least {{bound:g}}x over {PEER} at {{at}} trials",
    "shares": "at least {bound:g} of the best latency known after {at} trials",
    "trials_to_near": "at most {bound:g} of the trials of {at} to 95% of the best latency known",
    "seconds_to_near": "at least {bound:g}x sooner than {at} to 95% of the best latency known",
}


def goals(summary: Mapping[str, Any], side: Side) -> list[str]:
    """A line for each goal of a side: what was reached, and whether that is enough.

    Args:
        summary: Tables with rows of ``side`` and ``ratio``.
        side: Who is judged.
    """
    model = Path(side.cost_model).name
    names = (split_name(side.strategy)[0], model.removesuffix(".npz").partition(":")[0])
    lines = []
    for goal in GOALS:
        if goal.of not in names:
            continue
        at = goal.at.format(model=model) if isinstance(goal.at, str) else goal.at
        wanted: dict[str, Any] = {"side": label(side)}
        wanted |= {"over": at, "near": NEAR} if isinstance(at, str) else {"trials": at}
        wanted |= {"over": PEER} if goal.table == "speedups" else {}
        rows = [row for row in summary[goal.table] if wanted.items() <= row.items()]
        result = "not judged, as these runs do not have that figure"
        if rows:
            ratio = rows[0]["ratio"]
            at_most = goal.table == "trials_to_near"
            met = ratio <= goal.bound if at_most else ratio >= goal.bound
            result = f"{ratio:.3f}, {'met' if met else 'not met'}"
        text = _TEXTS[goal.table].format(bound=goal.bound, at=at)
        lines.append(f"- {label(side)}, goal: {text}: {result}.")
    return lines
