"""What plans take, from all that was measured of them.

A machine becomes slower and quicker in the hours of a collection, and each process lays a network
out in memory anew. The default plan, measured again every so often in each process, says by how
much: seconds of a plan are those that it would have taken on the whole's average. Plans that were
measured beside the default plan, readings taking turns, have what was found there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

import numpy as np

from foretune._arrays import FloatArray
from foretune.measure import Measurement
from foretune.records import CONFIRM, in_order
from foretune.records.standings import R

if TYPE_CHECKING:
    from foretune.records import Record

DEFAULT, TVM, RANDOM, EVOLVED = "default", "tvm", "random", "evolved"
"""Origins of records: what the passes choose, what TVM does by itself, drawn uniformly, bred from
the fastest."""
PROCESS, OTHERWISE = "process", "otherwise"
"""Keys of a record's environment: the child that measured, operators decided about otherwise."""
FEWEST_QUIET = 3
"""Quiet readings of a plan; fewer are not to be learned from."""
_NEIGHBOURS = 1
"""Measurements of the default plan before and after one, of all of which the median counts."""


@dataclass(frozen=True)
class PlanStanding(Generic[R]):
    """What is known of a plan that ran.

    Attributes:
        record: The one with the most quiet readings, the first of these.
        alone_s: Seconds where it was measured alone, on the whole's average.
        beside_s: Seconds beside the default plan, the median of its comparisons, on the whole's
            average; None where it was not compared.
    """

    record: R
    alone_s: float
    beside_s: float | None

    @property
    def seconds(self) -> float:
        """What it takes."""
        return self.alone_s if self.beside_s is None else self.beside_s

    @property
    def quiet(self) -> int:
        """Quiet readings."""
        return sum(self.record.measurement.quiet)


@dataclass(frozen=True)
class PlanStandings(Generic[R]):
    """What is known of all plans of a network.

    Attributes:
        plans: Those that ran, by key, in the order of measurement; the default plan first. None
            where that never ran.
        default_readings: Seconds of the default plan, measurement by measurement.
        otherwise: Keys of plans that passes made into other plans; they are not among ``plans``.
    """

    plans: dict[str, PlanStanding[R]] = field(default_factory=dict)
    default_readings: tuple[float, ...] = ()
    otherwise: frozenset[str] = frozenset()

    @classmethod
    def of(cls, measured: Iterable[R]) -> PlanStandings[R]:
        """Sorts records, given in any order."""
        records = in_order(measured)
        drift = _Drift.of(records)
        if drift is None:
            return cls()
        beside = _beside_default(records)
        quietest: dict[str, PlanStanding[R]] = {}
        otherwise = set()
        for at, record in enumerate(records):
            seconds = seconds_of(record.measurement)
            if record.origin == CONFIRM or seconds is None:
                continue
            key = record.candidate_key
            if record.environment.get(OTHERWISE):
                otherwise.add(key)
                continue
            ratio = beside.get(key)
            one = PlanStanding(
                record,
                drift.whole_s if record.origin == DEFAULT else seconds / drift.at(at),
                None if ratio is None else ratio * drift.whole_s,
            )
            if key not in quietest or one.quiet > quietest[key].quiet:
                quietest[key] = one
        plans = {key: one for key, one in quietest.items() if key not in otherwise}
        ordered = sorted(plans.items(), key=lambda item: item[1].record.origin != DEFAULT)
        return cls(dict(ordered), drift.readings, frozenset(otherwise))

    @property
    def whole_s(self) -> float:
        """Seconds of the default plan."""
        return float(np.median(self.default_readings))

    @property
    def compared(self) -> list[str]:
        """Keys of plans other than the default plan that were measured beside it."""
        return [key for key, one in self.plans.items() if one.beside_s is not None]

    @property
    def unquiet(self) -> list[str]:
        """Keys of plans that have too few quiet readings, and were not compared."""
        return [
            key
            for key, one in self.plans.items()
            if one.quiet < FEWEST_QUIET and one.beside_s is None and one.record.origin != DEFAULT
        ]

    def best(self, count: int) -> list[PlanStanding[R]]:
        """The plans that are fastest alone, without the default plan."""
        others = [one for one in self.plans.values() if one.record.origin != DEFAULT]
        ordered = sorted(others, key=lambda one: (one.alone_s, one.record.candidate_key))
        return ordered[:count]


@dataclass(frozen=True)
class _Drift:
    """How slow the machine was, by what its default plan took.

    Attributes:
        readings: Seconds of the default plan, measurement by measurement.
        known: Process to the places where it measured the default plan, and how slow it was there.
        processes: Of each record.
    """

    readings: tuple[float, ...]
    known: dict[str, tuple[FloatArray, FloatArray]]
    processes: tuple[str, ...]

    @classmethod
    def of(cls, records: Sequence[Record]) -> _Drift | None:
        """None where the default plan never ran."""
        processes = tuple(str(record.environment.get(PROCESS, "")) for record in records)
        timed = [
            (at, seconds)
            for at, record in enumerate(records)
            if record.origin == DEFAULT and (seconds := seconds_of(record.measurement)) is not None
        ]
        if not timed:
            return None
        readings = tuple(seconds for _, seconds in timed)
        whole_s = float(np.median(readings))
        known = {}
        for process in dict.fromkeys(processes[at] for at, _ in timed):
            own = [(at, seconds) for at, seconds in timed if processes[at] == process]
            taken = np.array([seconds for _, seconds in own])
            near = [
                taken[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1] for at in range(len(taken))
            ]
            factors = np.array([np.median(each) for each in near]) / whole_s
            known[process] = np.array([at for at, _ in own], np.float64), factors
        return cls(readings, known, processes)

    @property
    def whole_s(self) -> float:
        """Seconds of the default plan, the median of all its measurements."""
        return float(np.median(self.readings))

    def at(self, place: int) -> float:
        """Seconds at a record's place over seconds on average; nothing is told across processes."""
        curve = self.known.get(self.processes[place])
        return 1.0 if curve is None else float(np.interp(place, *curve))


def _beside_default(records: Sequence[Record]) -> dict[str, float]:
    """Key of a plan to its seconds over the default plan's, where readings took turns."""
    by_plan: dict[str, list[float]] = {}
    default_key = next((r.candidate_key for r in records if r.origin == DEFAULT), "")
    default_s = None
    for record in records:
        if record.origin != CONFIRM:
            continue
        seconds = seconds_of(record.measurement)
        if record.candidate_key == default_key:
            default_s = seconds
        elif default_s and seconds is not None:
            by_plan.setdefault(record.candidate_key, []).append(seconds / default_s)
    return {key: float(np.median(ratios)) for key, ratios in by_plan.items()}


def seconds_of(measurement: Measurement) -> float | None:
    """Seconds of a plan: the median of its quiet readings, of all where fewer than 3 were quiet."""
    if not measurement.ok or not measurement.seconds:
        return None
    pairs = zip(measurement.seconds, measurement.quiet, strict=True)
    quiet = [seconds for seconds, is_quiet in pairs if is_quiet]
    return float(np.median(quiet if len(quiet) >= FEWEST_QUIET else measurement.seconds))
