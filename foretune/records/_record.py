"""The record: one measured candidate, with everything needed to use it again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretune.measure import Measurement

if TYPE_CHECKING:
    from foretune.space import Candidate

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
        candidate: The candidate itself while its space is loaded; not written to disk.
    """

    workload: str
    hardware: str
    candidate_key: str
    decisions: Mapping[str, Any]
    measurement: Measurement
    origin: str = ""
    time: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    candidate: Candidate | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        measurement: Measurement,
        origin: str,
        environment: Mapping[str, Any],
    ) -> Record:
        """The record of a candidate that was measured just now."""
        return cls(
            workload=candidate.workload.key,
            hardware=candidate.hardware.key,
            candidate_key=candidate.key,
            decisions=candidate.to_json(),
            measurement=measurement,
            origin=origin,
            time=time.time(),
            environment=environment,
            candidate=candidate,
        )

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
    def is_trial(self) -> bool:
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
        return cls(
            workload=str(data["workload"]),
            hardware=str(data["hardware"]),
            candidate_key=str(data["candidate"]),
            decisions=dict(data["decisions"]),
            measurement=Measurement.from_json(data["measurement"]),
            origin=str(data["origin"]),
            time=float(data["time"]),
            environment=dict(data["environment"]),
        )


def settings_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What must agree between environments for seconds to be comparable."""
    return {name: value for name, value in environment.items() if name not in _OF_NO_MATTER}
