"""The last contenders of the heaviest kernels, tried in the compiled network itself.

A kernel is timed alone, with weights as cold as in the network. What it computes from lies where
the kernel before left it, and its result is read by the next one: which core has what in its cache
depends on the schedules of all three. So in the end those within a few percent of the best of a
task take its place in the network, one at a time, and what is faster there is shipped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from foretune.graph import Extraction
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.tuning.task import Task
    from foretune.workload import Model

_SHARE = 0.02
"""Tasks below this share of the network's kernels have no contenders tried."""
_EACH, _WITHIN, _MOST = 2, 1.08, 16
"""Contenders of a task, how far behind its best, and of all tasks."""
_READING_S = 0.02
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 15
TRYING_S = 15.0
"""Seconds that the rounds take, about. In a network that is too slow, fewer are tried."""
_BETWEEN = 3
"""Contenders that are timed between two readings of the best network so far."""
_FASTER = 0.997


@dataclass(frozen=True)
class Contender:
    """Another schedule of a task, nearly as fast as its best.

    Attributes:
        task: Name of the task.
        key: Of its workload.
        candidate: The schedule.
    """

    task: str
    key: str
    candidate: Candidate


@dataclass(frozen=True)
class Trying:
    """What became of a contender in the network.

    Attributes:
        contender: Which.
        ratio: Median over rounds of the network's seconds with it over those without it.
        upper: Upper quartile of these.
    """

    contender: Contender
    ratio: float
    upper: float

    @property
    def faster(self) -> bool:
        """Whether the network is faster with it, beyond what readings vary."""
        return self.ratio < _FASTER and self.upper < 1.0

    def to_json(self) -> dict[str, Any]:
        """An entry of ``network.tried`` in ``foretune.tune/1``."""
        return {
            "task": self.contender.task,
            "candidate": self.contender.candidate.key,
            "ratio": self.ratio,
            "upper": self.upper,
            "faster": self.faster,
        }


def contenders(tasks: Sequence[Task]) -> list[Contender]:
    """What is worth trying, for the heaviest tasks first."""
    known = [task for task in tasks if task.best is not None and task.best_s is not None]
    seconds = {task: task.workload.weight * (task.best_s or 0.0) for task in known}
    total = sum(seconds.values())
    contenders: list[Contender] = []
    for task in sorted(known, key=lambda each: -seconds[each]):
        best = task.best
        if seconds[task] < _SHARE * total or best is None or not task.tuned:
            continue
        others = [c for c in task.contenders(_EACH + 1, _WITHIN) if c.key != best.key]
        contenders += [Contender(task.workload.name, task.workload.key, c) for c in others[:_EACH]]
    return contenders[:_MOST]


def most_contenders(network_s: float) -> int:
    """How many can be tried in a network that takes so many seconds a call."""
    readings = TRYING_S / max(_FEWEST_ROUNDS * _calls_of_reading(network_s) * network_s, 1e-6)
    return max(0, min(_MOST, int((readings - 2) * _BETWEEN / (_BETWEEN + 1))))


def _calls_of_reading(network_s: float) -> int:
    return max(1, math.ceil(_READING_S / max(network_s, 1e-6)))


def try_in_network(
    model: Model,
    hardware: Hardware,
    extraction: Extraction,
    chosen: Mapping[str, Candidate],
    others: Sequence[Contender],
) -> list[Trying]:
    """Times the network with each of the contenders in turn, beside the network without them.

    Args:
        model: The network, of which the examples are run.
        hardware: This machine.
        extraction: How the network was taken apart.
        chosen: Workload key to the best candidate.
        others: What is tried.
    """
    from foretune.graph import compile_variants, entry_of

    pairs = [(each.key, each.candidate) for each in others]
    artifact = compile_variants(model, hardware, chosen, pairs, extraction)
    artifact.link()
    calls = [artifact.prepare(model.examples, entry_of(at)) for at in range(len(pairs) + 1)]
    for call in calls:
        call()
    first_s = _seconds(calls[0], 1)
    each = _calls_of_reading(first_s)
    readings = len(others) + math.ceil(len(others) / _BETWEEN) + 1
    rounds = int(TRYING_S / (readings * each * max(first_s, 1e-6)))
    rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, rounds))
    ratios = np.array([_round(calls, each) for _ in range(rounds)])
    return [
        Trying(other, float(np.median(column)), float(np.quantile(column, 0.75)))
        for other, column in zip(others, ratios.T, strict=True)
    ]


def faster_ones(tried: Sequence[Trying]) -> dict[str, Candidate]:
    """The fastest contender of each task for which there is a faster one, by workload key."""
    fastest: dict[str, Trying] = {}
    for each in tried:
        known = fastest.get(each.contender.key)
        if each.faster and (known is None or each.ratio < known.ratio):
            fastest[each.contender.key] = each
    return {key: each.contender.candidate for key, each in fastest.items()}


def _round(calls: Sequence[Callable[[], Any]], each: int) -> list[float]:
    """Ratios of every network but the first to that one, timed just before and after."""
    ratios: list[float] = []
    before = _seconds(calls[0], each)
    for begin in range(1, len(calls), _BETWEEN):
        group = [_seconds(call, each) for call in calls[begin : begin + _BETWEEN]]
        after = _seconds(calls[0], each)
        ratios += [2.0 * seconds / (before + after) for seconds in group]
        before = after
    return ratios


def _seconds(call: Callable[[], Any], calls: int) -> float:
    """Median seconds of some calls in a row."""
    readings = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        readings.append(time.perf_counter() - began)
    return float(np.median(readings))
