"""Windows of candidates on their way to measurements, wherever they are built and timed.

A window of candidates is built, checked and timed. Candidates whose readings were not quiet are
read again at the end of the next window, because slow episodes of a shared machine pass.

A worker that is overdue, grows too large, dies or talks nonsense is killed and replaced. What it
was working on gets that as its result; what it merely held is built again.
"""

from __future__ import annotations

import abc
import math
import platform
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import ForetuneError
from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure._jobs import Costs, Job, Stage
from foretune.measure.policy import MEASUREMENT_VERSION, MeasurePolicy

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure._desk import Desk
    from foretune.space import Candidate

_QUIET_READINGS = 3


class JobMeasurer(Measurer):
    """What measurers have in common that keep their jobs at a desk.

    Args:
        hardware: What candidates are compiled for.
        policy: Deadlines, budgets, tolerances.
        desk: Who has jobs built and run; closed with the measurer.
        window: Candidates that are on their way at once.
    """

    def __init__(self, hardware: Hardware, policy: MeasurePolicy, desk: Desk, window: int) -> None:
        self.hardware = hardware
        self.policy = policy
        self._desk = desk
        self._window = window
        self._reread_s = 0.0

    @abc.abstractmethod
    def _finish_window(
        self, fresh: Sequence[Job], noisy: Sequence[Job], best: dict[str, float]
    ) -> Iterator[None]:
        """Builds and reads the fresh jobs, reads the noisy ones again; yields after every step."""

    @abc.abstractmethod
    def _read_in_turn(self, jobs: Sequence[Job], turn: int) -> None:
        """Has every one of the jobs read once more, for the ``turn``-th time of a comparison."""

    def _await_quiet(self, jobs: Sequence[Job]) -> None:
        """Waits a little for quiet before readings that cannot be put off."""

    @property
    def costs(self) -> Costs:
        """Where this measurer's wall time went so far."""
        return self._desk.costs

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are alive."""
        return self._desk.pids

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        """See ``Measurer.measure``. Closing the iterator early leaves the measurer usable."""
        best = dict(best_s or {})
        jobs = self._new_jobs(candidates)
        waiting = deque(jobs)
        unfinished: list[Job] = []
        try:
            while waiting or unfinished:
                noisy = list(unfinished)
                fresh = [waiting.popleft() for _ in range(min(self._window, len(waiting)))]
                unfinished += fresh
                if not fresh:
                    self._await_quiet(noisy)
                for _ in self._finish_window(fresh, noisy, best):
                    # Whatever ended since the last look, of whichever window: a child that dies
                    # ends everything it held that has readings.
                    ended = [job for job in unfinished if job.done]
                    unfinished = [job for job in unfinished if not job.done]
                    self._desk.release(ended)
                    for job in ended:
                        yield job.candidate, job.measurement(self._desk.floor_of(job))
        finally:
            self._desk.release(jobs)

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """See ``Measurer.compare``. Candidates of one workload are read in turns by one worker."""
        policy, desk = self.policy, self._desk
        jobs = self._new_jobs(candidates, together=True)
        try:
            for turn in range(policy.compare_rounds + policy.compare_extra_rounds):
                due = self._due(jobs, turn)
                if not due:
                    break
                self._read_in_turn(due, turn)
            for job in jobs:
                if job.stage is Stage.READ or (job.readings and not job.done):
                    job.finish(Status.OK)
                elif not job.done:
                    job.finish(Status.CRASH, "the process that held it died in every round")
            return [job.measurement(desk.floor_of(job)) for job in jobs]
        finally:
            desk.release(jobs)

    def _due(self, jobs: Sequence[Job], turn: int) -> list[Job]:
        """The candidates of ``compare`` that need another reading."""
        lowest: dict[str, float] = {}
        for job in jobs:
            key = job.candidate.workload.key
            values = [reading.seconds for reading in job.readings]
            lowest[key] = min([lowest.get(key, math.inf), *values])
        return [job for job in jobs if self._is_due(job, turn, lowest[job.candidate.workload.key])]

    def _is_due(self, job: Job, turn: int, lowest: float) -> bool:
        if job.done:
            return False
        values = [reading.seconds for reading in job.readings]
        hopeless = bool(values) and min(values) > self.policy.cut_factor * lowest
        if len(values) >= 2 and (hopeless or sum(values) > self.policy.compare_budget_s):
            return False
        return (
            turn < self.policy.compare_rounds
            or job.calm(self._desk.floor_of(job)) < _QUIET_READINGS
        )

    def close(self) -> None:
        """Ends every child process. May be called twice."""
        self._desk.close()

    def environment(self) -> dict[str, Any]:
        """Versions, policy and processor; the same for every run on one machine."""
        from foretune import _tvm

        return {
            **_tvm.versions(),
            "python": platform.python_version(),
            "cpu": self.hardware.name,
            "threads": self.hardware.threads,
            "policy": self.policy.to_json(),
            "measurement_version": MEASUREMENT_VERSION,
        }

    def _new_jobs(self, candidates: Sequence[Candidate], together: bool = False) -> list[Job]:
        if self._desk.closed:
            raise ForetuneError("a closed measurer cannot measure: make a new one")
        return self._desk.new_jobs(candidates, together)

    def _may_run(self, job: Job) -> bool:
        """Whether there is something to compare a built program with; ends it where never."""
        if self._desk.fail_without_reference(job):
            return False
        # One may be doubted after this was built, and is computed again first.
        return self._desk.reference(job).settled

    def _run_fields(
        self, job: Job, best: Mapping[str, float], count: int | None = None
    ) -> dict[str, Any]:
        """What running a job for the first time takes."""
        key = job.candidate.workload.key
        reference = self._desk.reference(job)
        cut_s = best[key] * self.policy.cut_factor if key in best else None
        return {
            # What will be cut short has no need to go on for as long as the untuned program does.
            "usual_s": min(reference.seconds, math.inf if cut_s is None else cut_s),
            "cut_s": cut_s,
            "floor_s": self._desk.floor_of(job).seconds,
            "count": count,
        }

    def _doubt(self, job: Job) -> None:
        """An untuned program that seems wrong puts what it is compared with in doubt."""
        reference = self._desk.reference(job)
        if job.untuned and job.status is Status.WRONG_OUTPUT and not reference.as_written:
            self._desk.doubt_reference(job)

    def _decide(self, job: Job, best: dict[str, float]) -> None:
        """Ends a job that was read, unless it should be read again in quiet."""
        if job.stage is not Stage.READ:
            return
        key = job.candidate.workload.key
        if job.status is Status.OK:
            value = job.measurement(self._desk.floor_of(job)).best_s
            assert value is not None
            best[key] = min(best.get(key, value), value)
            calm = job.calm(self._desk.floor_of(job)) >= min(2, len(job.readings))
            affordable = self._reread_s <= self.policy.reread_share * self.costs.run_s
            worth = affordable and not self._is_hopeless(job, best)
            if not calm and worth and job.rereads < self.policy.max_rereads:
                return
        job.finish(job.status)

    def _is_hopeless(self, job: Job, best: Mapping[str, float]) -> bool:
        """Whether it would have been cut short, had the best been known when it was read."""
        value = min(reading.seconds for reading in job.readings)
        return value > self.policy.cut_factor * best[job.candidate.workload.key]
