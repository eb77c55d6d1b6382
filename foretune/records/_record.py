"""The record: one measured candidate, with everything needed to use it again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic

from foretune.measure import Measurement
from foretune.space.protocol import C, C_co

UNTUNED = "untuned"
"""Origin of records of the untuned program; they are not trials."""
DEFAULT = "default"
"""Origin of records of the default schedule, which tuning has to beat; they are not trials."""
CONFIRM = "confirm"
"""Origin of records of bests measured again in quiet; they are not trials either."""
ALLOWED = "allowed"
"""Of the environment of what stands at the end of a run: trials per task that the run allowed."""
KNOWLEDGE = frozenset({"metaschedule"})
"""Origins of records that others measured: no trials of ours, and nobody checked the outputs."""
_OF_NO_MATTER = ("elapsed_s", "devices", ALLOWED)
"""Of an environment: what seconds do not depend on."""


@dataclass(frozen=True)
class Record:
    """One line of a journal.

    Attributes:
        workload: Key of the workload.
        hardware: Key of the hardware.
        candidate_key: ``Candidate.key``.
        decisions: ``Candidate.to_json()``: sketch key and decisions.
        measurement: What was measured.
        origin: Who proposed it: a strategy's name, ``"untuned"``, ``"collect"``...
        time: Seconds since the epoch when the measurement ended.
        environment: Versions and measurement policy.
    """

    workload: str
    hardware: str
    candidate_key: str
    decisions: Mapping[str, Any]
    measurement: Measurement
    origin: str = ""
    time: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str | float, ...]:
        """What tells a record from all others: records of one identity are copies of one line.

        The readings come last.
        """
        return (
            self.workload,
            self.hardware,
            self.candidate_key,
            self.origin,
            self.time,
            self.measurement.status.value,
            *self.measurement.seconds,
        )

    @property
    def is_counted(self) -> bool:
        """Whether it counts against a budget of trials."""
        return self.origin not in (UNTUNED, DEFAULT, CONFIRM) and self.origin not in KNOWLEDGE

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it (all but ``candidate``)."""
        return {
            "workload": self.workload,
            "hardware": self.hardware,
            "candidate": self.candidate_key,
            "decisions": dict(self.decisions),
            "measurement": self.measurement.to_json(),
            "origin": self.origin,
            "time": self.time,
            "environment": dict(self.environment),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Reads what ``to_json`` wrote. Raises KeyError, TypeError or ValueError on other data."""
        return Record(
            workload=str(data["workload"]),
            hardware=str(data["hardware"]),
            candidate_key=str(data["candidate"]),
            decisions=dict(data["decisions"]),
            measurement=Measurement.from_json(data["measurement"]),
            origin=str(data["origin"]),
            time=float(data["time"]),
            environment=dict(data["environment"]),
        )


@dataclass(frozen=True, eq=False)
class Trial(Record, Generic[C_co]):
    """A record with its candidate: what models and strategies learn from.

    Equal to another one where their records are.

    Attributes:
        candidate: What was measured; not written to disk. ``with_candidates`` makes it of a record.
    """

    candidate: C_co = field(kw_only=True, repr=False)

    @classmethod
    def of(
        cls,
        candidate: C,
        measurement: Measurement,
        origin: str,
        environment: Mapping[str, Any],
        ended: float | None = None,
    ) -> Trial[C]:
        """That of a candidate whose measurement ended at a time, now if None."""
        return Trial(
            workload=candidate.workload.key,
            hardware=candidate.hardware.key,
            candidate_key=candidate.key,
            decisions=candidate.to_json(),
            measurement=measurement,
            origin=origin,
            time=time.time() if ended is None else ended,
            environment=environment,
            candidate=candidate,
        )

    @classmethod
    def again(cls, record: Record, candidate: C) -> Trial[C]:
        """A record that was read, with its candidate."""
        return Trial(
            **{each.name: getattr(record, each.name) for each in fields(Record)},
            candidate=candidate,
        )


def settings_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What must agree between environments for seconds to be comparable."""
    return {name: value for name, value in environment.items() if name not in _OF_NO_MATTER}
