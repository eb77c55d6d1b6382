"""What bounds a kernel, how far it is from that bound, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.describe import METRICS, Behaviours

if TYPE_CHECKING:
    from foretune.hardware import Device

SCHEMA = "foretune.explain/1"
PARALLELISM, TAIL = "parallelism", "tail"
"""Bounds beside ``foretune.describe.LIMITS``: too few pieces of work for the units, or pieces that
do not divide evenly among them. Both make every limit longer, so they are named first."""
ABOVE = 1.005
"""A share of the measured time that is more than 100 % in words."""
_SPREAD = 0.7
"""A share of the units in use below which that is what to mend first."""


@dataclass(frozen=True)
class Advice:
    """One thing to try.

    Attributes:
        text: In words.
        change: The decision to change, as ``name: before -> after``; empty where the text is all.
        gain: How many times as fast the kernel is predicted to be with it; None where not known.
        decisions: All decisions of the changed candidate, which ``Sketch.candidate`` takes.
        sketch: Key of its sketch; with the decisions, what ``Space.candidate`` takes.
    """

    text: str
    change: str = ""
    gain: float | None = None
    decisions: tuple[Any, ...] = ()
    sketch: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {
            "text": self.text,
            "change": self.change,
            "gain": self.gain,
            "decisions": [list(d) if isinstance(d, tuple) else d for d in self.decisions],
            "sketch": self.sketch,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Advice:
        """Reads what ``to_json`` wrote."""
        decisions = tuple(tuple(d) if isinstance(d, list) else d for d in data["decisions"])
        sketch = data.get("sketch", "")  # early ones have none
        return cls(data["text"], data["change"], data["gain"], decisions, sketch)


@dataclass(frozen=True)
class Explanation:
    """What is said of one kernel.

    Attributes:
        name, key, weight: Of its workload.
        device: Key of what it was judged for.
        seconds: Measured on that device, per call; None where it was not.
        predicted_s: By its behaviour, per call.
        bound: One of ``foretune.describe.LIMITS``, ``"parallelism"`` or ``"tail"``.
        share_of_bound: Seconds that the bound alone would take beside those that the kernel takes
            (measured, else predicted); of ``"parallelism"`` and ``"tail"``, the share of the units
            that work. Above 1, the kernel is faster than the description of the device allows: the
            prediction is wrong by that much at least.
        scores: By the names of ``foretune.describe.METRICS``; None where one does not apply.
        limits_s: Seconds of each limit alone.
        numbers: What scores are made of.
        advice: What to try, most promising first.
        loops: The kernel's loops in a few lines of text.
        approximate: Whether the kernel could be described only closely.
        counted: What hardware counters say of a call, by name; empty where they were not read.
        device_name: What the device is sold as, with the cores that kernels may use.
        hardware: Key of the hardware that the schedule was made for.
        assumed: Factors of the device that nobody stated or measured, and what stood in for them.
    """

    name: str
    key: str
    weight: int
    device: str
    seconds: float | None
    predicted_s: float
    bound: str
    share_of_bound: float
    scores: Mapping[str, float | None]
    limits_s: Mapping[str, float]
    numbers: Mapping[str, float]
    advice: Sequence[Advice] = ()
    loops: str = ""
    approximate: bool = False
    counted: Mapping[str, float] = field(default_factory=dict)
    device_name: str = ""
    hardware: str = ""
    assumed: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """An entry of ``kernels`` of ``foretune.explain/1``."""
        return {
            "name": self.name,
            "key": self.key,
            "weight": self.weight,
            "device": self.device,
            "seconds": self.seconds,
            "predicted_s": self.predicted_s,
            "bound": self.bound,
            "share_of_bound": self.share_of_bound,
            "scores": dict(self.scores),
            "limits_s": dict(self.limits_s),
            "numbers": dict(self.numbers),
            "advice": [each.to_json() for each in self.advice],
            "loops": self.loops,
            "approximate": self.approximate,
            "counted": dict(self.counted),
            "device_name": self.device_name,
            "hardware": self.hardware,
            "assumed": dict(self.assumed),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Explanation:
        """Reads what ``to_json`` wrote.

        Raises:
            KeyError, TypeError: It is something else.
        """
        given = dict(data)
        return cls(**{**given, "advice": tuple(map(Advice.from_json, given["advice"]))})


def bound_of(busy: float, limits_s: Mapping[str, float], jobs: float) -> str:
    """What bounds a kernel.

    Args:
        busy: Share of the units that work, mean over the run: the number ``"units_busy"``.
        limits_s: Of each limit, seconds.
        jobs: Pieces of work for each unit.
    """
    longest = max(limits_s, key=lambda name: limits_s[name])
    if busy >= _SPREAD or longest == "overhead":
        return longest
    return TAIL if jobs >= 1 else PARALLELISM


def on_one_thread(explained: Explanation) -> bool:
    """Whether a kernel starts no threads: what a call costs is then the call alone."""
    return explained.numbers.get("threads_used", float("inf")) <= 1


def explanation(
    behaviours: Behaviours,
    row: int,
    *,
    name: str,
    key: str = "",
    weight: int = 1,
    seconds: float | None = None,
    loops: str = "",
    approximate: bool = False,
    hardware: str = "",
    assumed: Mapping[str, float] | None = None,
) -> Explanation:
    """What is said of one program of a batch; advice comes later.

    Args:
        behaviours: Of the batch.
        row: Of the program.
        name, key, weight, seconds, loops, approximate, hardware, assumed: As ``Explanation`` has
            them.
    """
    scores = {
        metric.name: None if np.isnan(value) else float(value)
        for metric, value in zip(METRICS, behaviours.scores[row], strict=True)
    }
    limits = {limit: float(values[row]) for limit, values in behaviours.limits_s.items()}
    numbers = {number: float(values[row]) for number, values in behaviours.numbers.items()}
    predicted = float(behaviours.seconds[row])
    busy = numbers["units_busy"]
    bound = bound_of(busy, limits, _jobs(numbers, behaviours.device))
    share = limits[bound] / (seconds or predicted) if bound in limits else busy
    return Explanation(
        name=name,
        key=key,
        weight=weight,
        device=behaviours.device.key,
        seconds=seconds,
        predicted_s=predicted,
        bound=bound,
        share_of_bound=share,
        scores=scores,
        limits_s=limits,
        numbers=numbers,
        loops=loops,
        approximate=approximate,
        device_name=_called(behaviours.device),
        hardware=hardware,
        assumed=assumed or {},
    )


def _called(device: Device) -> str:
    if not device.has_cores:
        return device.name
    cores = device.value("cores")
    return f"{device.name}, {cores:.0f} {'core' if cores == 1 else 'cores'}"


def _jobs(numbers: Mapping[str, float], device: Device) -> float:
    """Pieces of work for each core or multiprocessor."""
    if device.has_cores:
        return numbers["parallel_jobs"] / device.value("cores")
    return numbers["blocks"] / device.value("units")
