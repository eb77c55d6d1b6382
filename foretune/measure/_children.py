"""Child processes that time programs on this machine, each those that it built.

Any number of them may build at once; one at a time runs the canary or a candidate.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from foretune.hardware import usable_cores
from foretune.measure._base import Status
from foretune.measure._desk import Desk
from foretune.measure._jobs import Job, Stage
from foretune.measure._memory import SPARE_BYTES, default_memory
from foretune.measure._protocol import WorkerConfig
from foretune.measure.timing import QuietFloor
from foretune.measure.transport import Processes, ProcessWorker, Slot, Worker

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure.policy import MeasurePolicy

# Threads of TVM's pool spin for a moment after their last kernel; they must not do so beside
# another child's readings.
_SETTLE_S = 0.005
_FLOOR_CANARIES = 10
# Candidates are timed one at a time: more builders than this only take memory.
MOST_WORKERS = 16
# Of a device's memory, for the context and the buffers of each.
_DEVICE_BYTES = 4 << 30
_FEWEST_DEVICE_WORKERS = 4

_log = logging.getLogger(__name__)
_RANDOMISED = (
    "measurement processes run with randomised addresses, so that two of them may give the same "
    "program different times: let the container's system-call filter pass personality()"
)


class Children(Desk):
    """Builds and runs jobs in a pool of child processes.

    Args:
        hardware: What candidates are compiled for.
        policy: Deadlines and limits.
        builder: ``"module:function"`` run in the child: candidate -> runtime module or callable.
        shares_files: Whether children open references by their paths; otherwise by content.
    """

    def __init__(
        self, hardware: Hardware, policy: MeasurePolicy, builder: str, shares_files: bool = True
    ) -> None:
        self.count = policy.workers or _default_workers(hardware)
        memory = policy.memory_bytes or default_memory(self.count)
        self._on_host = hardware.has_cores
        config = WorkerConfig(
            hardware=hardware,
            policy=policy,
            builder=builder,
            # A CUDA process reserves address space without end; there only residency is watched.
            address_space_bytes=2 * memory + SPARE_BYTES if self._on_host else None,
            parent=os.getpid(),
        )
        spawn = partial(ProcessWorker, config, hardware.threads, policy.start_timeout_s)
        slots = [Slot(spawn) for _ in range(self.count)]
        self.floor = QuietFloor(policy.quiet_tolerance)
        self._home: dict[str, Worker] = {}
        self._calibrated = False
        self._canaries: Sequence[float] = ()
        self._last_timed: Worker | None = None
        super().__init__(policy, Processes(slots, memory, policy.max_start_failures, shares_files))
        self.fixed_addresses = self._all_fixed()

    def floor_of(self, job: Job) -> QuietFloor:
        """See ``Desk.floor_of``: there is one machine."""
        return self.floor

    def _builder_for(self, job: Job) -> Worker | None:
        idle, key = self._transport.idle(), job.candidate.workload.key
        home = self._home.get(key) if job.together else None
        if home is not None and home.alive:
            return home if home in idle else None
        if not idle:
            return None
        if job.together:
            self._home[key] = idle[0]
        return idle[0]

    def canary(self, job: Job) -> float | None:
        """Seconds of the canary now, in the child that holds the job; None if that is gone."""
        worker = job.worker
        if worker is None or not worker.idle:
            return None
        return min(self._ask_canary(worker, 1), default=None)

    def rest(self) -> None:
        """Waits until no child works or starts, and learns the canary's quiet floor."""
        while self._transport.busy:
            self.pump(building=True)
        self._last_timed = None
        if not self._calibrated:
            for worker in self._transport.idle():
                if worker.alive:  # another's canary may have brought news of its death
                    self._ask_canary(worker, _FLOOR_CANARIES)
            self._calibrated = True
            self.fixed_addresses = self._all_fixed()
            if not self.fixed_addresses:
                _log.warning(_RANDOMISED)

    def _all_fixed(self) -> bool:
        return all(worker.fixed_addresses for worker in self._transport.workers)

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
        self._start(job, worker, op, usual_s, **fields)
        while job.stage is Stage.RUNNING:
            self.pump()

    def _on_canaries(self, worker: Worker, seconds: Sequence[float]) -> None:
        self._canaries = seconds
        self.floor.add(seconds)

    def _on_readings(self, job: Job, worker: Worker, fields: Mapping[str, Any]) -> None:
        if fields["status"] == Status.RUN_ERROR.value and not self._on_host:
            # An illegal access poisons a device's context for everything that runs in it later.
            worker.kill()
        super()._on_readings(job, worker, fields)


def by_worker(jobs: Sequence[Job], *stages: Stage) -> list[Job]:
    """Jobs at one of these stages, those that one child holds next to each other."""
    chosen = [job for job in jobs if job.stage in stages and job.worker is not None]
    return sorted(chosen, key=lambda job: job.worker.pid if job.worker is not None else 0)


def _default_workers(hardware: Hardware) -> int:
    cores = min(usable_cores(), MOST_WORKERS)
    if hardware.has_cores:
        return cores
    memory = (hardware.gpu or {}).get("memory_bytes", 0.0)
    return min(cores, max(_FEWEST_DEVICE_WORKERS, int(memory // _DEVICE_BYTES)))
