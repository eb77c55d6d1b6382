"""What a strategy or a cost model is to reach in a search, and whether it did.

A goal asks for one figure of a table of ``benchmarks.search22``'s summary. It belongs to the name
of a strategy or of a cost model; a side has the goals of both of its own. To add one, add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._search.figures import label
from foretune.bench import Side
from foretune.cost import DEFAULT_MODEL
from foretune.search import split_name

PEER = "metaschedule-quick-start"
_SAME_MODEL = "evolutionary + {model}"
"""The label of evolution with the cost model of the side that is judged."""
_NEAR = 0.95


@dataclass(frozen=True)
class Goal:
    """A figure that is to be reached.

    Attributes:
        of: The strategy or the cost model that is to reach it.
        text: In words.
        table: Of the summary.
        at: What the row of the side has besides.
        bound: What its ``ratio`` is to be at least.
        at_most: It is to be at most that.
    """

    of: str
    text: str
    table: str
    at: Mapping[str, Any]
    bound: float
    at_most: bool = False

    def judged(self, summary: Mapping[str, Any], side: Side) -> str:
        """A line: what was reached, and whether that is enough."""
        model = _model(side)
        at = {k: v.format(model=model) if isinstance(v, str) else v for k, v in self.at.items()}
        at["side"] = label(side)
        for row in summary[self.table]:
            if at.items() <= row.items():
                ratio = row["ratio"]
                met = ratio <= self.bound if self.at_most else ratio >= self.bound
                result = f"{ratio:.3f}, {'met' if met else 'not met'}"
                break
        else:
            result = "not judged, as these runs do not have that figure"
        return f"- Goal: {self.text.format(model=model)}: {result}."


def _faster(of: str, times: float, trials: int) -> Goal:
    text = f"at least {times:g}x over {PEER} at {trials} trials"
    return Goal(of, text, "speedups", {"over": PEER, "trials": trials}, times)


def _found(of: str, share: float, trials: int) -> Goal:
    text = f"at least {share:g} of the best latency known after {trials} trials"
    return Goal(of, text, "shares", {"trials": trials}, share)


def _fewer(of: str, share: float) -> Goal:
    text = f"at most {share:g} of the trials of {PEER} to {_NEAR:.0%} of the best latency known"
    at = {"over": PEER, "near": _NEAR}
    return Goal(of, text, "trials_to_near", at, share, at_most=True)


def _sooner(of: str, times: float, over: str) -> Goal:
    text = f"at least {times:g}x sooner than {over} to {_NEAR:.0%} of the best latency known"
    return Goal(of, text, "seconds_to_near", {"over": over, "near": _NEAR}, times)


GOALS = (
    _faster(DEFAULT_MODEL, 1.6, 8),
    _faster(DEFAULT_MODEL, 1.45, 16),
    _faster(DEFAULT_MODEL, 1.2, 64),
    _found(DEFAULT_MODEL, 0.93, 16),
    _fewer(DEFAULT_MODEL, 0.25),
    _faster("world", 1.5, 8),
    _faster("world", 1.3, 16),
    _faster("world", 1.07, 64),
    _found("world", 0.97, 16),
    _fewer("world", 0.125),
    _sooner("gradient", 3.0, PEER),
    _sooner("gradient", 3.0, _SAME_MODEL),
)


def goals(summary: Mapping[str, Any], side: Side) -> list[str]:
    """One line for each goal of a side.

    Args:
        summary: Tables with rows of ``side`` and ``ratio``.
        side: Who is judged.
    """
    names = (split_name(side.strategy)[0], _model(side).removesuffix(".npz").partition(":")[0])
    return [goal.judged(summary, side) for goal in GOALS if goal.of in names]


def _model(side: Side) -> str:
    """The cost model as ``label`` has it."""
    return Path(side.cost_model).name
