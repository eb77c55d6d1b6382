"""What a measurer keeps about candidates while it works on them."""

from __future__ import annotations

import enum
import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretune.measure._base import Measurement, Status

if TYPE_CHECKING:
    from foretune.measure.policy import MeasurePolicy
    from foretune.measure.timing import QuietFloor, Reading
    from foretune.measure.transport import Worker
    from foretune.space import Candidate

_RECENT_BUILDS = 64
_FEWEST_BUILDS = 3


class Stage(enum.Enum):
    """How far a candidate is."""

    QUEUED = "queued"
    BUILDING = "building"
    BUILT = "built"
    RUNNING = "running"
    READ = "read"
    """Has readings, and may get more."""
    DONE = "done"


@dataclass(eq=False)
class Job:
    """One candidate on its way to a measurement.

    Attributes:
        id: Number of the requests about it.
        candidate: What is measured.
        together: Whether all jobs of its workload must be held by one child, to be interleaved.
        worker: The child that holds the built program.
        checked: Whether that child has compared its output.
        attempts: Builds so far; more than one only after a child died that held it.
        rereads: How often it was read again.
        library: File of the built program, where it is timed elsewhere; empty where not.
        device: Name of the device that read it; empty for this machine.
        losses: How often a device was lost while it ran there.
        avoid: Names of devices that it is not tried on any more.
    """

    id: int
    candidate: Candidate
    together: bool = False
    stage: Stage = Stage.QUEUED
    worker: Worker | None = None
    checked: bool = False
    attempts: int = 0
    rereads: int = 0
    status: Status = Status.RUN_ERROR
    message: str = ""
    build_s: float = 0.0
    run_s: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    max_error: float | None = None
    library: str = ""
    device: str = ""
    losses: int = 0
    avoid: set[str] = field(default_factory=set)

    @property
    def untuned(self) -> bool:
        """Whether it is the untuned program itself."""
        return self.candidate.sketch.is_untuned

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.stage is Stage.DONE

    def finish(self, status: Status, message: str = "") -> None:
        """Notes how it ended."""
        self.stage, self.status, self.message = Stage.DONE, status, message

    def lose_worker(self) -> None:
        """The child that held it is gone, through no fault of this candidate."""
        self.worker, self.checked = None, False
        if self.readings and not self.done and not self.together:
            self.finish(self.status)
        elif not self.done:
            self.stage = Stage.QUEUED

    def lose_device(self) -> None:
        """The device that timed it is gone, or it is to be timed on another one.

        What has readings ends with them; what is compared begins anew, for readings of several
        devices do not compare. The built program is there still.
        """
        self.worker, self.checked = None, False
        if self.readings and not self.done and not self.together:
            self.finish(self.status)
        elif not self.done:
            self.stage, self.readings, self.device = Stage.BUILT, [], ""

    def calm(self, floor: QuietFloor) -> int:
        """Number of quiet readings."""
        return sum(floor.is_quiet(reading) for reading in self.readings)

    def measurement(self, floor: QuietFloor) -> Measurement:
        """The result, with the readings judged by what is known of the quiet floor now."""
        timed = self.status in (Status.OK, Status.CUT_SHORT)
        readings = self.readings if timed else []
        return Measurement(
            status=self.status,
            seconds=tuple(reading.seconds for reading in readings),
            quiet=tuple(floor.is_quiet(reading) for reading in readings),
            build_s=self.build_s,
            run_s=self.run_s,
            message=self.message,
            max_error=self.max_error,
            device=self.device,
        )


class BuildPace:
    """How long a build of a workload may take, judged by those that went well.

    Args:
        policy: Its limits of builds.
    """

    def __init__(self, policy: MeasurePolicy) -> None:
        self._policy = policy
        self._seconds: dict[str, deque[float]] = {}

    def add(self, workload: str, seconds: float) -> None:
        """Notes a build of a workload that went well."""
        self._seconds.setdefault(workload, deque(maxlen=_RECENT_BUILDS)).append(seconds)

    def limit_s(self, workload: str) -> float:
        """Seconds after which a build is given up."""
        policy, known = self._policy, self._seconds.get(workload, ())
        if len(known) < _FEWEST_BUILDS:
            return policy.build_timeout_s
        usual = policy.build_factor * statistics.median(known)
        return min(policy.build_timeout_s, max(policy.build_least_s, usual))


@dataclass
class Costs:
    """Where the wall time of a measurer went, in seconds, since it was made.

    Attributes:
        active_s: Inside the measurer, all in all.
        start_s: Waiting for child processes to start.
        build_s: Waiting for builds, reference runs included.
        run_s: Checking and timing candidates, as the children report it.
        canary_s: Running the canary.
    """

    active_s: float = 0.0
    start_s: float = 0.0
    build_s: float = 0.0
    run_s: float = 0.0
    canary_s: float = 0.0

    @property
    def overhead_s(self) -> float:
        """Everything that is neither building nor running nor starting."""
        return self.active_s - self.start_s - self.build_s - self.run_s - self.canary_s

    @contextmanager
    def active(self) -> Iterator[None]:
        """Counts the time inside a ``with`` block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.active_s += time.perf_counter() - began
