"""The desk of one measurer: jobs, references, builds, answers, deaths.

Whoever waits for something, all events are taken in here and noted at the job they belong to. So a
comparison may run in the middle of a measurement, and an iterator that is closed early leaves
nothing behind but answers that find no taker. Who carries the requests is a ``Transport``; where
programs are timed is decided by the two kinds of desks: ``_children.py`` times on this machine, in
the child that built a program, ``_devices.py`` on devices that children hold sessions with.
"""

from __future__ import annotations

import abc
import itertools
import logging
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune.measure._base import Status
from foretune.measure._jobs import BuildPace, Costs, Job, Stage
from foretune.measure._protocol import dump_candidate, sketch_name
from foretune.measure._reference import Reference
from foretune.measure.timing import Reading
from foretune.measure.transport import Death, Reply, Transport, Worker

if TYPE_CHECKING:
    from foretune.measure.policy import MeasurePolicy
    from foretune.measure.timing import QuietFloor
    from foretune.space import Candidate

_MOST_ATTEMPTS = 4
# Untuned results that are kept: each is an open file as large as its workload's buffers.
_MOST_REFERENCES = 32

_log = logging.getLogger(__name__)


class Desk(abc.ABC):
    """Has jobs built and run by the workers of a transport.

    Args:
        policy: Deadlines and limits.
        transport: Who carries; closed with the desk.
    """

    def __init__(self, policy: MeasurePolicy, transport: Transport) -> None:
        self._policy = policy
        self._transport = transport
        self.costs = Costs()
        self._pace = BuildPace(policy)
        self.closed = False
        self._ids = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._references: dict[str, Reference] = {}
        transport.refill()

    @abc.abstractmethod
    def floor_of(self, job: Job) -> QuietFloor:
        """What the canary takes in quiet where a job is timed."""

    @abc.abstractmethod
    def _builder_for(self, job: Job) -> Worker | None:
        """Who builds a job now; None if nobody is free who may."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that are alive."""
        return [worker.pid for worker in self._transport.workers]

    def close(self) -> None:
        """Ends every child and frees the references. May be called twice."""
        if not self.closed:
            self.closed = True
            self._transport.close()
            for reference in self._references.values():
                reference.close()

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
            self._free(self._references.pop(key))

    def _free(self, reference: Reference) -> None:
        reference.close()
        for worker in self._transport.workers:
            if reference.id in worker.contents:
                worker.tell("forget", number=reference.id)

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
                self._transport.refill()
            for reference in pending:
                if reference.worker is None and (idle := self._transport.idle()):
                    self._request_reference(reference, idle[0])
            for job in queued:
                if not self._transport.idle():
                    break
                self._offer(job)
            return bool(pending) or any(job.stage in (Stage.QUEUED, Stage.BUILDING) for job in jobs)

    @staticmethod
    def _keys(jobs: Sequence[Job]) -> list[str]:
        return list(dict.fromkeys(job.candidate.workload.key for job in jobs))

    def _offer(self, job: Job) -> None:
        worker = self._builder_for(job)
        if worker is None:
            return
        if job.attempts >= _MOST_ATTEMPTS:
            job.finish(Status.CRASH, f"the process that held it died {job.attempts} times")
            return
        self._define(job.candidate, worker)
        job.stage, job.worker, job.attempts = Stage.BUILDING, worker, job.attempts + 1
        worker.builds += 1
        data = dump_candidate(job.candidate)
        limit = self._build_limit_s(job)
        worker.request(
            "build", limit, "building", id=job.id, candidate=data, **self._build_fields(job)
        )

    def _build_fields(self, job: Job) -> dict[str, Any]:
        """What a builder has to know beside the candidate."""
        return {}

    def _define(self, candidate: Candidate, worker: Worker) -> None:
        name = sketch_name(candidate)
        if name not in worker.sketches:
            worker.sketches.add(name)
            worker.tell("define", name=name, data=pickle.dumps(candidate.sketch))

    def _request_reference(self, reference: Reference, worker: Worker) -> None:
        self._define(reference.candidate, worker)
        reference.begin(worker)
        worker.request(
            "reference",
            self._policy.reference_timeout_s,
            "running the untuned program",
            id=reference.id,
            candidate=dump_candidate(reference.candidate),
            path=reference.path if self._transport.shares_files else None,
            as_written=reference.as_written,
        )

    def _recycle(self) -> None:
        """Replaces children that have built much, once they hold nothing that is needed."""
        holders = {job.worker for job in self._jobs.values()}
        self._transport.retire(
            worker
            for worker in self._transport.idle()
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
        self._free(doubted)
        if job.worker is not None and job.worker.alive:
            job.worker.tell("drop", ids=[job.id])
        job.worker, job.stage, job.readings, job.checked = None, Stage.QUEUED, [], False

    def _path_of(self, reference: Reference, worker: Worker) -> str:
        """Where a worker finds what a program must compute; sent to it once if need be."""
        if self._transport.shares_files:
            return reference.path
        if reference.id not in worker.contents:
            worker.contents.add(reference.id)
            worker.tell("content", number=reference.id, data=reference.packed())
        return f"content:{reference.id}"

    def _start(
        self, job: Job, worker: Worker, op: str, usual_s: float | None, **fields: Any
    ) -> None:
        """Asks a worker to run a program.

        Args:
            job: Whose program.
            worker: Who has it, and nothing to do.
            op: What is done with it.
            usual_s: Seconds per call that are nothing unusual; the reference's if None.
            fields: Arguments of ``op``.
        """
        job.stage = Stage.RUNNING
        reference = self.reference(job)
        if op in ("run", "time"):
            checked = self._policy.check_output
            fields["signature"] = reference.signature
            fields["path"] = self._path_of(reference, worker) if checked else None
        usual_s = reference.seconds if usual_s is None else usual_s
        limit = self._policy.run_timeout_s + 4 * usual_s
        if job.untuned:
            # The reference may have been computed in a much better order of loops.
            limit = max(limit, self._policy.reference_timeout_s)
        worker.request(op, limit, "running", id=job.id, **fields)

    def pump(self, building: bool = False) -> None:
        """Waits for something to happen and takes it in."""
        with self.costs.active():
            starting = not any(worker.ready for worker in self._transport.workers)
            began = time.perf_counter()
            events = self._transport.wait()
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
            self._on_canaries(reply.worker, [float(value) for value in fields["canaries"]])
        elif "part" in fields or "error" in fields:
            self._on_reference(reply)
        elif job is None:
            reply.worker.tell("drop", ids=[reply.id])
        elif job.stage is Stage.BUILDING:
            self._on_built(job, fields)
        else:
            self._on_readings(job, reply.worker, fields)

    @abc.abstractmethod
    def _on_canaries(self, worker: Worker, seconds: Sequence[float]) -> None:
        """Takes in canary times."""

    def _on_built(self, job: Job, fields: Mapping[str, Any]) -> None:
        job.build_s += float(fields["seconds"])
        if fields["status"] == "ok":
            job.stage = Stage.BUILT
            self._note_build(job.candidate.workload.key, float(fields["seconds"]))
        else:
            job.finish(Status(fields["status"]), fields["message"])

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

    def _on_readings(self, job: Job, worker: Worker, fields: Mapping[str, Any]) -> None:
        job.run_s += float(fields["run_s"])
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
        floor = self.floor_of(job)
        for reading in readings:
            floor.add((reading.before, reading.after))
        job.stage, job.status, job.checked = Stage.READ, status, True

    def _on_reference(self, reply: Reply) -> None:
        for reference in self._references.values():
            if reference.id == reply.id:
                reference.take(reply.fields)

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
