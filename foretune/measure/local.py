"""Measuring on this machine, in long-lived child processes.

Builds run in all children at once; timing runs in one child at a time while the others rest. The
two alternate in windows of candidates: all of a window are built, then one after the other is
checked and timed by the child that holds it. Results of a window are handed out while the next one
is being built.

A child that is overdue, grows too large, dies or talks nonsense is killed and replaced. What it
was working on gets that as its result; what it merely held is built again.
"""

from __future__ import annotations

import itertools
import os
import pickle
import platform
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, ForetuneError
from foretune.measure._base import Measurement, Measurer, Status
from foretune.measure._jobs import Costs, Job, Reference, Stage
from foretune.measure._process import Death, Reply, Worker, WorkerPool
from foretune.measure._protocol import BUILDER, WorkerConfig, dump_candidate, sketch_name
from foretune.measure.policy import MeasurePolicy
from foretune.measure.timing import QuietFloor, Reading

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Candidate

# Threads of TVM's pool spin for a moment after their last kernel; they must not do so beside
# another child's readings.
_SETTLE_S = 0.005
_FLOOR_CANARIES = 10
_WINDOW_PER_WORKER = 8
_MOST_ATTEMPTS = 4
_QUIET_READINGS = 3
_SPARE_BYTES = 1 << 30


class LocalMeasurer(Measurer):
    """Builds, checks and times candidates in child processes on this machine.

    Args:
        hardware: What candidates are compiled for; its kind decides the device.
        policy: Deadlines, budgets, tolerances.
        builder: ``"module:function"`` run in the child: candidate -> TVM runtime module or
            callable.

    Raises:
        BadInputError: The device that ``hardware`` names is not in this machine.
        ForetuneError: Child processes cannot be started (raised by the methods that need them).
    """

    def __init__(
        self,
        hardware: Hardware,
        policy: MeasurePolicy | None = None,
        builder: str = BUILDER,
    ) -> None:
        self.hardware = hardware
        self.policy = policy or MeasurePolicy()
        self.costs = Costs()
        _require_device(hardware)
        count = self.policy.workers or len(os.sched_getaffinity(0))
        self._window = self.policy.window or _WINDOW_PER_WORKER * count
        memory = self.policy.memory_bytes or _default_memory(count)
        on_host = hardware.kind == "llvm"
        config = WorkerConfig(
            hardware=hardware,
            policy=self.policy,
            builder=builder,
            # A CUDA process reserves address space without end; there only residency is watched.
            address_space_bytes=2 * memory + _SPARE_BYTES if on_host else None,
            parent=os.getpid(),
        )
        self._pool = WorkerPool(
            lambda: Worker(config, hardware.threads, self.policy.start_timeout_s),
            count,
            memory,
            self.policy.max_start_failures,
        )
        self._ids = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._references: dict[str, Reference] = {}
        self._home: dict[str, Worker] = {}
        self._floor = QuietFloor(self.policy.quiet_tolerance)
        self._calibrated = False
        self._canaries: list[float] = []
        self._reread_s = 0.0
        self._last_timed: Worker | None = None
        self._closed = False
        self._pool.refill()

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        """See ``Measurer.measure``. Closing the iterator early leaves the measurer usable."""
        best = dict(best_s or {})
        jobs = self._new_jobs(candidates)
        waiting, results = deque(jobs), deque[Job]()
        noisy: list[Job] = []
        try:
            while waiting or noisy:
                fresh = [waiting.popleft() for _ in range(min(self._window, len(waiting)))]
                while any(job.stage is not Stage.READ and not job.done for job in fresh):
                    while self._dispatch(fresh):
                        if results:
                            yield self._result(results.popleft())
                        else:
                            self._pump(building=True)
                    self._rest()
                    for job in self._by_worker(fresh, Stage.BUILT):
                        self._check_and_read(job, best)
                        self._decide(job, best)
                if not fresh:
                    self._await_quiet(noisy)
                for job in self._by_worker(noisy, Stage.READ):
                    self._read_again(job)
                    self._decide(job, best)
                results.extend(job for job in noisy + fresh if job.done)
                noisy = [job for job in noisy + fresh if not job.done]
                self._release(results)
            while results:
                yield self._result(results.popleft())
        finally:
            self._release(jobs)

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """See ``Measurer.compare``. Candidates of one workload are read in turns by one child."""
        policy = self.policy
        jobs = self._new_jobs(candidates, together=True)
        try:
            for turn in range(policy.compare_rounds + policy.compare_extra_rounds):
                due = [job for job in jobs if self._is_due(job, turn)]
                if not due:
                    break
                while self._dispatch(due):
                    self._pump(building=True)
                self._rest()
                for job in self._by_worker(due, Stage.BUILT, Stage.READ):
                    if job.checked:
                        self._run(job, "read", count=1)
                    else:
                        self._check_and_read(job, {}, count=1)
            return [job.measurement(self._floor) for job in jobs]
        finally:
            self._release(jobs)

    def _is_due(self, job: Job, turn: int) -> bool:
        """Whether a candidate of ``compare`` needs another reading."""
        if job.done:
            return False
        spent = sum(reading.seconds for reading in job.readings)
        if len(job.readings) >= 2 and spent > self.policy.compare_budget_s:
            return False
        return turn < self.policy.compare_rounds or job.calm(self._floor) < _QUIET_READINGS

    def close(self) -> None:
        """Ends every child process. May be called twice."""
        if not self._closed:
            self._closed = True
            self._pool.close()
            for reference in self._references.values():
                reference.file.close()

    def environment(self) -> dict[str, Any]:
        """Versions, policy and processor; the same for every run on one machine."""
        from foretune import _tvm

        return {
            **_tvm.versions(),
            "python": platform.python_version(),
            "cpu": self.hardware.name,
            "threads": self.hardware.threads,
            "policy": self.policy.to_json(),
        }

    def _new_jobs(self, candidates: Sequence[Candidate], together: bool = False) -> list[Job]:
        if self._closed:
            raise ForetuneError("a closed measurer cannot measure: make a new one")
        jobs = [Job(next(self._ids), candidate, together) for candidate in candidates]
        for job in jobs:
            self._jobs[job.id] = job
            key = job.candidate.workload.key
            if key not in self._references:
                self._references[key] = self._new_reference(job.candidate)
        return jobs

    def _new_reference(self, candidate: Candidate) -> Reference:
        reference = Reference(next(self._ids), candidate)
        if not self.policy.check_output:
            from foretune.measure.gate import Signature

            reference.signature = Signature.of(candidate.workload).to_json()
        return reference

    def _result(self, job: Job) -> tuple[Candidate, Measurement]:
        return job.candidate, job.measurement(self._floor)

    def _release(self, jobs: Sequence[Job]) -> None:
        """Forgets jobs here and in the children; replies that still come find no taker."""
        held: dict[Worker, list[int]] = {}
        for job in jobs:
            if self._jobs.pop(job.id, None) is not None and job.worker is not None:
                held.setdefault(job.worker, []).append(job.id)
            job.worker = None if job.done else job.worker
        for worker, ids in held.items():
            if worker.alive:
                worker.tell("drop", ids=ids)

    # Building.

    def _dispatch(self, jobs: Sequence[Job]) -> bool:
        """Gives idle children something to build; False once nothing is left to wait for."""
        with self.costs.active():
            pending = [self._references[key] for key in self._keys(jobs)]
            pending = [reference for reference in pending if not reference.settled]
            queued = deque(job for job in jobs if job.stage is Stage.QUEUED)
            if pending or queued:
                self._recycle()
                self._pool.refill()
            for reference in pending:
                if reference.worker is None and (idle := self._pool.idle()):
                    self._request_reference(reference, idle[0])
            for job in queued:
                self._offer(job)
            return bool(pending) or any(
                job.stage in (Stage.QUEUED, Stage.BUILDING) for job in jobs
            )

    @staticmethod
    def _keys(jobs: Sequence[Job]) -> list[str]:
        return list(dict.fromkeys(job.candidate.workload.key for job in jobs))

    def _offer(self, job: Job) -> None:
        idle = self._pool.idle()
        home = self._home.get(job.candidate.workload.key) if job.together else None
        if home is not None and home.alive:
            idle = [home] if home in idle else []
        if not idle:
            return
        if job.attempts >= _MOST_ATTEMPTS:
            job.finish(Status.CRASH, f"the process that held it died {job.attempts} times")
            return
        worker = idle[0]
        if job.together:
            self._home[job.candidate.workload.key] = worker
        self._define(job.candidate, worker)
        job.stage, job.worker, job.attempts = Stage.BUILDING, worker, job.attempts + 1
        worker.builds += 1
        data = dump_candidate(job.candidate)
        limit = self.policy.build_timeout_s
        worker.request("build", limit, "building", id=job.id, candidate=data)

    def _define(self, candidate: Candidate, worker: Worker) -> None:
        name = sketch_name(candidate)
        if name not in worker.sketches:
            worker.sketches.add(name)
            worker.tell("define", name=name, data=pickle.dumps(candidate.sketch))

    def _request_reference(self, reference: Reference, worker: Worker) -> None:
        self._define(reference.candidate, worker)
        reference.worker, reference.attempts = worker, reference.attempts + 1
        worker.request(
            "reference",
            self.policy.reference_timeout_s,
            "running the untuned program",
            id=reference.id,
            candidate=dump_candidate(reference.candidate),
            path=reference.path,
        )

    def _recycle(self) -> None:
        """Replaces children that have built much, once they hold nothing that is needed."""
        holders = {job.worker for job in self._jobs.values()}
        self._pool.retire(
            worker
            for worker in self._pool.idle()
            if worker.builds >= self.policy.recycle_builds and worker not in holders
        )

    # Timing.

    def _by_worker(self, jobs: Sequence[Job], *stages: Stage) -> list[Job]:
        """Jobs at one of these stages, those that one child holds next to each other."""
        chosen = [job for job in jobs if job.stage in stages and job.worker is not None]
        return sorted(chosen, key=lambda job: job.worker.pid if job.worker is not None else 0)

    def _rest(self) -> None:
        """Waits until no child works or starts, and learns the canary's quiet floor."""
        while self._pool.busy:
            self._pump(building=True)
        self._last_timed = None
        if not self._calibrated:
            for worker in self._pool.idle():
                self._ask_canary(worker, _FLOOR_CANARIES)
            self._calibrated = True

    def _ask_canary(self, worker: Worker, count: int) -> list[float]:
        self._settle(worker)
        self._canaries, number = [], next(self._ids)
        limit = self.policy.run_timeout_s
        worker.request("canary", limit, "running the canary", id=number, count=count)
        while worker.task is not None:
            self._pump()
        return self._canaries

    def _settle(self, worker: Worker) -> None:
        if self._last_timed is not worker:
            time.sleep(_SETTLE_S)
            self._last_timed = worker

    def _check_and_read(self, job: Job, best: Mapping[str, float], count: int | None = None) -> None:
        key = job.candidate.workload.key
        reference = self._references[key]
        if reference.error:
            message = f"the untuned program failed, nothing to compare with: {reference.error}"
            job.finish(Status.RUN_ERROR, message)
            return
        self._run(
            job,
            "run",
            signature=reference.signature,
            path=reference.path if self.policy.check_output else None,
            cut_s=best[key] * self.policy.cut_factor if key in best else None,
            count=count,
        )

    def _run(self, job: Job, op: str, **fields: Any) -> None:
        """Has a built program run by the child that holds it, and waits for the end."""
        worker = job.worker
        if worker is None or worker.exited():
            self._pump()
            return
        self._settle(worker)
        job.stage = Stage.RUNNING
        reference = self._references[job.candidate.workload.key]
        limit = self.policy.run_timeout_s + 4 * reference.seconds
        worker.request(op, limit, "running", id=job.id, **fields)
        while job.stage is Stage.RUNNING:
            self._pump()

    def _read_again(self, job: Job) -> None:
        job.rereads += 1
        before = self.costs.run_s
        self._run(job, "read", count=None)
        self._reread_s += self.costs.run_s - before

    def _decide(self, job: Job, best: dict[str, float]) -> None:
        """Ends a job that was read, unless it should be read again in quiet."""
        if job.stage is not Stage.READ:
            return
        key = job.candidate.workload.key
        if job.status is Status.OK:
            value = job.measurement(self._floor).best_s
            assert value is not None
            best[key] = min(best.get(key, value), value)
            calm = job.calm(self._floor) >= min(2, len(job.readings))
            affordable = self._reread_s <= self.policy.reread_share * self.costs.run_s
            if not calm and affordable and job.rereads < self.policy.max_rereads:
                return
        job.finish(job.status)

    def _await_quiet(self, jobs: Sequence[Job]) -> None:
        """Waits a little for the machine to become quiet before readings that cannot be put off."""
        workers = [job.worker for job in jobs if job.worker is not None and job.worker.idle]
        until = time.monotonic() + self.policy.quiet_wait_s
        while workers and workers[0].idle and time.monotonic() < until:
            canaries = self._ask_canary(workers[0], 1)
            if canaries and canaries[0] <= self._floor.limit:
                return
            with self.costs.active():
                time.sleep(0.02)

    # What the children say.

    def _pump(self, building: bool = False) -> None:
        """Waits for something to happen and takes it in."""
        with self.costs.active():
            starting = not any(worker.ready for worker in self._pool.workers)
            began = time.perf_counter()
            events = self._pool.wait()
            waited = time.perf_counter() - began
            if starting:
                self.costs.start_s += waited
            elif building:
                self.costs.build_s += waited
            for event in events:
                if isinstance(event, Death):
                    self._on_death(event)
                else:
                    self._on_reply(event)

    def _on_reply(self, reply: Reply) -> None:
        fields = reply.fields
        self.costs.run_s += float(fields.get("run_s", 0.0))
        self.costs.canary_s += float(fields.get("canary_s", 0.0))
        job = self._jobs.get(reply.id)
        if "canaries" in fields:
            self._canaries = [float(value) for value in fields["canaries"]]
            self._floor.add(self._canaries)
        elif "error" in fields:
            self._on_reference(reply)
        elif job is None:
            reply.worker.tell("drop", ids=[reply.id])
        elif job.stage is Stage.BUILDING:
            job.build_s += float(fields["seconds"])
            if fields["status"] == "ok":
                job.stage = Stage.BUILT
            else:
                job.finish(Status(fields["status"]), fields["message"])
        else:
            self._on_readings(job, fields)

    def _on_readings(self, job: Job, fields: Mapping[str, Any]) -> None:
        job.run_s += float(fields["run_s"])
        job.max_error = fields.get("max_error", job.max_error)
        status = Status(fields["status"])
        if "readings" not in fields:
            job.finish(status, fields["message"])
            return
        readings = [Reading(*map(float, row)) for row in fields["readings"]]
        job.readings += readings
        for reading in readings:
            self._floor.add((reading.before, reading.after))
        job.stage, job.status, job.checked = Stage.READ, status, True

    def _on_reference(self, reply: Reply) -> None:
        for reference in self._references.values():
            if reference.id == reply.id:
                reference.error = str(reply.fields["error"])
                reference.signature = reply.fields.get("signature")
                reference.seconds = float(reply.fields.get("seconds", 0.0))

    def _on_death(self, death: Death) -> None:
        job = self._jobs.get(death.id) if death.id is not None else None
        if job is not None:
            job.worker = None
            job.finish(death.status, death.message)
        for reference in self._references.values():
            if reference.worker is death.worker and not reference.settled:
                reference.worker = None
                if death.status is Status.TIMEOUT or reference.attempts > 1:
                    reference.error = death.message
        for other in self._jobs.values():
            if other.worker is death.worker:
                other.lose_worker()


def _require_device(hardware: Hardware) -> None:
    if hardware.kind == "llvm":
        return
    from foretune._tvm import tvm

    if not tvm.runtime.device(hardware.kind, 0).exist:
        raise BadInputError(
            f"target kind {hardware.kind!r} needs such a device to measure on, but this machine "
            "has none: choose a target that is here, or replay records"
        )


def _default_memory(workers: int) -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(4 << 30, total // (2 * workers))
