"""The children of one measurer and everything they hold: builds, references, answers, deaths.

Whoever waits for something, all events are taken in here and noted at the job they belong to. So a
comparison may run in the middle of a measurement, and an iterator that is closed early leaves
nothing behind but answers that find no taker.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.hardware import usable_cores
from foretune.measure._base import Status
from foretune.measure._jobs import BuildPace, Costs, Job, Reference, Stage
from foretune.measure._memory import usable_memory
from foretune.measure._process import Death, Reply, Worker, WorkerPool
from foretune.measure._protocol import WorkerConfig, dump_candidate, sketch_name
from foretune.measure.timing import QuietFloor, Reading

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure.policy import MeasurePolicy
    from foretune.space import Candidate

# Threads of TVM's pool spin for a moment after their last kernel; they must not do so beside
# another child's readings.
_SETTLE_S = 0.005
_FLOOR_CANARIES = 10
_MOST_ATTEMPTS = 4
_SPARE_BYTES = 1 << 30
# Candidates are timed one at a time: more builders than this only take memory.
_MOST_WORKERS = 16
# Of a device's memory, for the context and the buffers of each.
_DEVICE_BYTES = 4 << 30
_FEWEST_DEVICE_WORKERS = 4
# Untuned results that are kept: each is an open file as large as its workload's buffers.
_MOST_REFERENCES = 32

_log = logging.getLogger(__name__)
_RANDOMISED = (
    "measurement processes run with randomised addresses, so that two of them may give the same "
    "program different times: let the container's system-call filter pass personality()"
)


class Children:
    """Builds and runs jobs in a pool of child processes.

    Args:
        hardware: What candidates are compiled for.
        policy: Deadlines and limits.
        builder: ``"module:function"`` run in the child: candidate -> runtime module or callable.
    """

    def __init__(self, hardware: Hardware, policy: MeasurePolicy, builder: str) -> None:
        self._policy = policy
        self.count = policy.workers or _default_workers(hardware)
        memory = policy.memory_bytes or _default_memory(self.count)
        self._on_host = hardware.kind == "llvm"
        config = WorkerConfig(
            hardware=hardware,
            policy=policy,
            builder=builder,
            # A CUDA process reserves address space without end; there only residency is watched.
            address_space_bytes=2 * memory + _SPARE_BYTES if self._on_host else None,
            parent=os.getpid(),
        )
        self._pool = WorkerPool(
            lambda: Worker(config, hardware.threads, policy.start_timeout_s),
            self.count,
            memory,
            policy.max_start_failures,
        )
        self.costs = Costs()
        self._pace = BuildPace(policy)
        self.floor = QuietFloor(policy.quiet_tolerance)
        self.closed = False
        self._ids = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._references: dict[str, Reference] = {}
        self._home: dict[str, Worker] = {}
        self._calibrated = False
        self._canaries: list[float] = []
        self._last_timed: Worker | None = None
        self._pool.refill()
        self.fixed_addresses = self._all_fixed()

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are alive."""
        return [worker.pid for worker in self._pool.workers]

    def close(self) -> None:
        """Ends every child and frees the references. May be called twice."""
        if not self.closed:
            self.closed = True
            self._pool.close()
            for reference in self._references.values():
                reference.file.close()

    def new_jobs(self, candidates: Sequence[Candidate], together: bool = False) -> list[Job]:
        """Jobs for candidates; ``together``: one child holds all of a workload."""
        jobs = [Job(next(self._ids), candidate, together) for candidate in candidates]
        for job in jobs:
            self._jobs[job.id] = job
            key = job.candidate.workload.key
            known = self._references.pop(key, None)
            # The last one is the one that was used last.
            self._references[key] = known or self._new_reference(job.candidate)
        self._forget_references()
        return jobs

    def _forget_references(self) -> None:
        """Closes those not used for longest; a workload that comes back is run untuned again."""
        surplus = len(self._references) - _MOST_REFERENCES
        if surplus <= 0:
            return
        needed = {job.candidate.workload.key for job in self._jobs.values()}
        spare = [
            key
            for key, reference in self._references.items()
            if key not in needed and (reference.settled or reference.worker is None)
        ]
        for key in spare[:surplus]:
            self._references.pop(key).file.close()

    def _new_reference(self, candidate: Candidate) -> Reference:
        reference = Reference(next(self._ids), candidate)
        if not self._policy.check_output:
            from foretune.measure.gate import Signature

            reference.signature = Signature.of(candidate.workload).to_json()
        return reference

    def release(self, jobs: Sequence[Job]) -> None:
        """Forgets jobs here and in the children; replies that still come find no taker."""
        for job in jobs:
            worker, job.worker = job.worker, None
            known = self._jobs.pop(job.id, None) is not None
            if known and worker is not None and worker.alive:
                worker.tell("drop", ids=[job.id])

    def dispatch(self, jobs: Sequence[Job]) -> bool:
        """Gives idle children something to build; False once nothing is left to wait for."""
        with self.costs.active():
            pending = [self._references[key] for key in self._keys(jobs)]
            pending = [reference for reference in pending if not reference.settled]
            for job in jobs:
                if job.stage is Stage.QUEUED:
                    self.fail_without_reference(job)
            queued = deque(job for job in jobs if job.stage is Stage.QUEUED)
            if pending or queued:
                self._recycle()
                self._pool.refill()
            for reference in pending:
                if reference.worker is None and (idle := self._pool.idle()):
                    self._request_reference(reference, idle[0])
            for job in queued:
                if not self._pool.idle():
                    break
                self._offer(job)
            return bool(pending) or any(job.stage in (Stage.QUEUED, Stage.BUILDING) for job in jobs)

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
        limit = self._build_limit_s(job)
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
            self._policy.reference_timeout_s,
            "running the untuned program",
            id=reference.id,
            candidate=dump_candidate(reference.candidate),
            path=reference.path,
            as_written=reference.as_written,
        )

    def _recycle(self) -> None:
        """Replaces children that have built much, once they hold nothing that is needed."""
        holders = {job.worker for job in self._jobs.values()}
        self._pool.retire(
            worker
            for worker in self._pool.idle()
            if worker.builds >= self._policy.recycle_builds and worker not in holders
        )

    def reference(self, job: Job) -> Reference:
        """What a job's output is compared with."""
        return self._references[job.candidate.workload.key]

    def fail_without_reference(self, job: Job) -> bool:
        """Ends a job whose untuned program failed; whether it did."""
        error = self.reference(job).error
        if error:
            message = f"the untuned program failed, nothing to compare with: {error}"
            job.finish(Status.RUN_ERROR, message)
        return bool(error)

    def doubt_reference(self, job: Job) -> None:
        """Has the reference computed as it is written, and the job begun again."""
        _log.warning(
            "%s: the untuned program differs from the same program in another order of loops; "
            "what it computes as it is written counts",
            job.candidate.workload.name,
        )
        doubted = self.reference(job)
        again = Reference(next(self._ids), doubted.candidate, as_written=True)
        self._references[job.candidate.workload.key] = again
        doubted.file.close()
        if job.worker is not None and job.worker.alive:
            job.worker.tell("drop", ids=[job.id])
        job.worker, job.stage, job.readings, job.checked = None, Stage.QUEUED, [], False

    def canary(self, job: Job) -> float | None:
        """Seconds of the canary now, in the child that holds the job; None if that is gone."""
        worker = job.worker
        if worker is None or not worker.idle:
            return None
        return min(self._ask_canary(worker, 1), default=None)

    def rest(self) -> None:
        """Waits until no child works or starts, and learns the canary's quiet floor."""
        while self._pool.busy:
            self.pump(building=True)
        self._last_timed = None
        if not self._calibrated:
            for worker in self._pool.idle():
                if worker.alive:  # another's canary may have brought news of its death
                    self._ask_canary(worker, _FLOOR_CANARIES)
            self._calibrated = True
            self.fixed_addresses = self._all_fixed()
            if not self.fixed_addresses:
                _log.warning(_RANDOMISED)

    def _all_fixed(self) -> bool:
        return all(worker.fixed_addresses for worker in self._pool.workers)

    def _ask_canary(self, worker: Worker, count: int) -> list[float]:
        self._settle(worker)
        self._canaries, number = [], next(self._ids)
        limit = self._policy.run_timeout_s
        worker.request("canary", limit, "running the canary", id=number, count=count)
        while worker.alive and worker.task is not None:
            self.pump()
        return self._canaries

    def _settle(self, worker: Worker) -> None:
        if self._last_timed is not worker:
            time.sleep(_SETTLE_S)
            self._last_timed = worker

    def run(self, job: Job, op: str, usual_s: float | None = None, **fields: Any) -> None:
        """Has a built program run by the child that holds it, and waits for the end.

        Args:
            job: Whose program.
            op: What the child does with it.
            usual_s: Seconds per call that are nothing unusual; the reference's if None.
            fields: Arguments of ``op``.
        """
        worker = job.worker
        if worker is None or worker.exited():
            self.pump()
            return
        self._settle(worker)
        job.stage = Stage.RUNNING
        usual_s = self.reference(job).seconds if usual_s is None else usual_s
        limit = self._policy.run_timeout_s + 4 * usual_s
        if job.untuned:
            # The reference may have been computed in a much better order of loops.
            limit = max(limit, self._policy.reference_timeout_s)
        worker.request(op, limit, "running", id=job.id, **fields)
        while job.stage is Stage.RUNNING:
            self.pump()

    def pump(self, building: bool = False) -> None:
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
            self.floor.add(self._canaries)
        elif "error" in fields:
            self._on_reference(reply)
        elif job is None:
            reply.worker.tell("drop", ids=[reply.id])
        elif job.stage is Stage.BUILDING:
            job.build_s += float(fields["seconds"])
            if fields["status"] == "ok":
                job.stage = Stage.BUILT
                self._note_build(job.candidate.workload.key, float(fields["seconds"]))
            else:
                job.finish(Status(fields["status"]), fields["message"])
        else:
            self._on_readings(job, fields)

    def _note_build(self, workload: str, seconds: float) -> None:
        self._pace.add(workload, seconds)
        for other in self._jobs.values():
            if other.stage is Stage.BUILDING and other.worker is not None:
                other.worker.allow(self._build_limit_s(other))

    def _build_limit_s(self, job: Job) -> float:
        """Seconds that a build may take; one that went well before must not fail for its pace."""
        if job.together or job.build_s:
            return self._policy.build_timeout_s
        return self._pace.limit_s(job.candidate.workload.key)

    def _on_readings(self, job: Job, fields: Mapping[str, Any]) -> None:
        job.run_s += float(fields["run_s"])
        if fields["status"] == Status.RUN_ERROR.value and not self._on_host and job.worker:
            # An illegal access poisons a device's context for everything that runs in it later.
            job.worker.kill()
        status = Status(fields["status"])
        if "readings" not in fields:
            job.max_error = None
            job.finish(status, fields["message"])
            return
        job.max_error = fields.get("max_error", job.max_error)
        readings = [
            Reading(float(seconds), float(before), float(after), bool(crowded))
            for seconds, before, after, crowded in fields["readings"]
        ]
        job.readings += readings
        for reading in readings:
            self.floor.add((reading.before, reading.after))
        job.stage, job.status, job.checked = Stage.READ, status, True

    def _on_reference(self, reply: Reply) -> None:
        for reference in self._references.values():
            if reference.id == reply.id:
                reference.error = str(reply.fields["error"])
                reference.signature = reply.fields.get("signature")
                reference.seconds = float(reply.fields.get("seconds", 0.0))
                reference.as_written = bool(reply.fields.get("as_written", True))

    def _on_death(self, death: Death) -> None:
        job = self._jobs.get(death.id) if death.id is not None else None
        if job is not None and not (death.from_outside and job.attempts <= 1):
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


def by_worker(jobs: Sequence[Job], *stages: Stage) -> list[Job]:
    """Jobs at one of these stages, those that one child holds next to each other."""
    chosen = [job for job in jobs if job.stage in stages and job.worker is not None]
    return sorted(chosen, key=lambda job: job.worker.pid if job.worker is not None else 0)


def _default_workers(hardware: Hardware) -> int:
    cores = min(usable_cores(), _MOST_WORKERS)
    if hardware.kind == "llvm":
        return cores
    memory = (hardware.gpu or {}).get("memory_bytes", 0.0)
    return min(cores, max(_FEWEST_DEVICE_WORKERS, int(memory // _DEVICE_BYTES)))


def _default_memory(workers: int) -> int:
    return min(4 << 30, usable_memory() // (2 * workers))
