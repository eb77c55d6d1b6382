"""Measuring on this machine, in long-lived child processes.

Builds run in all children at once; timing runs in one child at a time while the others rest. The
two alternate in windows of candidates: all of a window are built, then one after the other is
checked and timed by the child that holds it. Candidates whose readings were not quiet are read
again at the end of the next window, because slow episodes of a shared machine pass.

A child that is overdue, grows too large, dies or talks nonsense is killed and replaced. What it
was working on gets that as its result; what it merely held is built again.
"""

from __future__ import annotations

import math
import platform
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import Hardware, why_not_here
from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure._children import Children, by_worker
from foretune.measure._jobs import Costs, Job, Stage
from foretune.measure._protocol import BUILDER
from foretune.measure.policy import MEASUREMENT_VERSION, MeasurePolicy

if TYPE_CHECKING:
    from foretune.space import Candidate

_WINDOW_PER_WORKER = 8
_QUIET_READINGS = 3
_PAUSE_S = 0.02
_WAIT_SHARE = 0.05


class LocalMeasurer(Measurer):
    """Builds, checks and times candidates in child processes on this machine.

    Child processes end when the thread that made the measurer ends: keep that thread alive.

    Args:
        hardware: What candidates are compiled for; its kind decides the device.
        policy: Deadlines, budgets, tolerances.
        builder: ``"module:function"`` run in the child: candidate -> TVM runtime module or
            callable.

    Raises:
        BadInputError: Kernels for ``hardware`` cannot run on this machine.
        ForetuneError: Child processes cannot be started (here or in the methods that need them).
    """

    def __init__(
        self,
        hardware: Hardware,
        policy: MeasurePolicy | None = None,
        builder: str = BUILDER,
    ) -> None:
        require_device(hardware)
        self.hardware = hardware
        self.policy = policy or MeasurePolicy()
        self._children = Children(hardware, self.policy, builder)
        self._window = self.policy.window or _WINDOW_PER_WORKER * self._children.count
        self._reread_s = 0.0
        self._waited_s = 0.0

    @property
    def costs(self) -> Costs:
        """Where this measurer's wall time went so far."""
        return self._children.costs

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are alive."""
        return self._children.pids

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
                    self._children.release(ended)
                    for job in ended:
                        yield job.candidate, job.measurement(self._children.floor)
        finally:
            self._children.release(jobs)

    def _finish_window(
        self, fresh: Sequence[Job], noisy: Sequence[Job], best: dict[str, float]
    ) -> Iterator[None]:
        """Builds and reads the fresh jobs, reads the noisy ones again; yields after every step."""
        children = self._children
        while any(job.stage is not Stage.READ and not job.done for job in fresh):
            while children.dispatch(fresh):
                children.pump(building=True)
                yield
            children.rest()
            for job in by_worker(fresh, Stage.BUILT):
                self._check_and_read(job, best)
                self._decide(job, best)
                yield
        for job in by_worker(noisy, Stage.READ):
            if not self._is_hopeless(job, best):
                self._read_again(job)
            self._decide(job, best)
            yield
        yield

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """See ``Measurer.compare``. Candidates of one workload are read in turns by one child."""
        policy, children = self.policy, self._children
        jobs = self._new_jobs(candidates, together=True)
        try:
            for turn in range(policy.compare_rounds + policy.compare_extra_rounds):
                due = self._due(jobs, turn)
                if not due:
                    break
                while children.dispatch(due):
                    children.pump(building=True)
                children.rest()
                if turn >= policy.compare_rounds:
                    self._await_quiet(due)
                for job in by_worker(due, Stage.BUILT, Stage.READ):
                    if job.checked:
                        children.run(job, "read", count=1)
                    else:
                        self._check_and_read(job, {}, count=1)
            for job in jobs:
                if job.stage is Stage.READ or (job.readings and not job.done):
                    job.finish(Status.OK)
                elif not job.done:
                    job.finish(Status.CRASH, "the process that held it died in every round")
            return [job.measurement(children.floor) for job in jobs]
        finally:
            children.release(jobs)

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
        return turn < self.policy.compare_rounds or job.calm(self._children.floor) < _QUIET_READINGS

    def close(self) -> None:
        """Ends every child process. May be called twice."""
        self._children.close()

    def environment(self) -> dict[str, Any]:
        """Versions, policy and processor; the same for every run on one machine.

        ``measurement_version`` is ``policy.MEASUREMENT_VERSION``; ``fixed_addresses`` says whether
        children could be started without address-space randomisation.
        """
        from foretune import _tvm

        return {
            **_tvm.versions(),
            "python": platform.python_version(),
            "cpu": self.hardware.name,
            "threads": self.hardware.threads,
            "policy": self.policy.to_json(),
            "measurement_version": MEASUREMENT_VERSION,
            "fixed_addresses": self._children.fixed_addresses,
        }

    def _new_jobs(self, candidates: Sequence[Candidate], together: bool = False) -> list[Job]:
        if self._children.closed:
            raise ForetuneError("a closed measurer cannot measure: make a new one")
        return self._children.new_jobs(candidates, together)

    def _check_and_read(
        self, job: Job, best: Mapping[str, float], count: int | None = None
    ) -> None:
        key = job.candidate.workload.key
        if self._children.fail_without_reference(job):
            return
        reference = self._children.reference(job)
        if not reference.settled:
            return  # it was doubted after this was built, and is computed again first
        cut_s = best[key] * self.policy.cut_factor if key in best else None
        self._children.run(
            job,
            "run",
            # What will be cut short has no need to go on for as long as the untuned program does.
            usual_s=min(reference.seconds, math.inf if cut_s is None else cut_s),
            signature=reference.signature,
            path=reference.path if self.policy.check_output else None,
            cut_s=cut_s,
            floor_s=self._children.floor.seconds,
            count=count,
        )
        if job.untuned and job.status is Status.WRONG_OUTPUT and not reference.as_written:
            self._children.doubt_reference(job)

    def _read_again(self, job: Job) -> None:
        job.rereads += 1
        canary = self._children.canary(job)
        if canary is not None and canary > self._children.floor.limit:
            return  # what disturbed the first readings goes on, often for tens of seconds
        before = self.costs.run_s
        self._children.run(job, "read", count=None)
        self._reread_s += self.costs.run_s - before

    def _decide(self, job: Job, best: dict[str, float]) -> None:
        """Ends a job that was read, unless it should be read again in quiet."""
        if job.stage is not Stage.READ:
            return
        key = job.candidate.workload.key
        if job.status is Status.OK:
            value = job.measurement(self._children.floor).best_s
            assert value is not None
            best[key] = min(best.get(key, value), value)
            calm = job.calm(self._children.floor) >= min(2, len(job.readings))
            affordable = self._reread_s <= self.policy.reread_share * self.costs.run_s
            worth = affordable and not self._is_hopeless(job, best)
            if not calm and worth and job.rereads < self.policy.max_rereads:
                return
        job.finish(job.status)

    def _is_hopeless(self, job: Job, best: Mapping[str, float]) -> bool:
        """Whether it would have been cut short, had the best been known when it was read."""
        value = min(reading.seconds for reading in job.readings)
        return value > self.policy.cut_factor * best[job.candidate.workload.key]

    def _await_quiet(self, jobs: Sequence[Job]) -> None:
        """Waits a little for the machine to become quiet before readings that cannot be put off.

        Over the measurer's life waiting is bounded by its share of the time, too: a machine that
        is never quiet must not be waited for again and again.
        """
        children = self._children
        held = by_worker(jobs, Stage.READ)
        if not held:
            return
        children.rest()
        began = time.monotonic()
        allowed = _WAIT_SHARE * self.costs.active_s - self._waited_s
        until = began + min(self.policy.quiet_wait_s, allowed)
        while time.monotonic() < until:
            canary = children.canary(held[0])
            if canary is None or canary <= children.floor.limit:
                break
            with self.costs.active():
                time.sleep(_PAUSE_S)
        self._waited_s += time.monotonic() - began


def require_device(hardware: Hardware) -> None:
    """Refuses hardware that kernels cannot be measured for on this machine.

    Raises:
        BadInputError: It is not here; the message says why.
    """
    reason = why_not_here(hardware)
    if reason is not None:
        raise BadInputError(f"target {hardware.name!r} cannot be measured here: {reason}")
