"""Devices elsewhere: each has a child process that holds a session on it.

Other children build libraries for them meanwhile: a device and the host do not disturb each other.
A device times one program at a time, several devices at once.

A device that is lost (its server ended, it restarts, the network is away) is asked for again, with
growing pauses, for some minutes. What ran on it goes back to the others; what has lost devices
several times ends as a crash. A device that fails its own baseline again and again is given up with
one line: its canary takes far longer than at first, or the untuned program fails there.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import usable_cores
from foretune.measure._base import Status
from foretune.measure._children import MOST_WORKERS
from foretune.measure._desk import Desk
from foretune.measure._device import HERE, Device, Patience
from foretune.measure._jobs import Job, Stage
from foretune.measure._memory import SPARE_BYTES, default_memory
from foretune.measure._protocol import WorkerConfig
from foretune.measure.timing import QuietFloor
from foretune.measure.transport import (
    Death,
    JoinedTransport,
    Processes,
    ProcessWorker,
    Reply,
    Slot,
    Transport,
    Worker,
)

if TYPE_CHECKING:
    from foretune.cluster import Cluster
    from foretune.hardware import Hardware
    from foretune.measure.devices import DeviceAddress
    from foretune.measure.policy import MeasurePolicy

_log = logging.getLogger(__name__)

_MOST_LOSSES = 1
"""A program that ran when a device was lost is tried again so often."""
_MOST_AVOIDED = 2
"""The untuned program, where it fails, is tried on so many other devices."""
_MOST_FAULTS = 3
"""So often in a row a device may fail its own baseline."""
_FAR_SLOWER = 2.0
"""A canary this many times slower than at first is no quiet moment's: the device throttles."""
_FIRST_TRIES = 2
"""Connections that may fail before the first one of a device."""
_PAUSES_S = (0.2, 1.0, 2.0, 5.0, 10.0)
_RENEW_S = 900.0
"""Age from which a session is renewed once it is idle; servers end it at twice that."""
_FAILED = (Status.WRONG_OUTPUT, Status.RUN_ERROR, Status.CRASH, Status.TIMEOUT)


class Devices(Desk):
    """Builds jobs in one place and has them timed in another, both at the same time.

    Args:
        hardware: What candidates are compiled for.
        policy: Deadlines and limits.
        addresses: Of the devices, one for each session; None for a child that times here.
        linker: The C++ compiler that links for them.
        builder: ``"module:function"`` run in a child: candidate -> TVM executable.
        patience: How long lost devices are asked for.
        cluster: Whose nodes build, left open; None for children of this machine.

    Raises:
        BadInputError: One of the devices cannot be reached, or does not fit the hardware.
    """

    def __init__(
        self,
        hardware: Hardware,
        policy: MeasurePolicy,
        addresses: Sequence[DeviceAddress | None],
        linker: str,
        builder: str,
        patience: Patience,
        cluster: Cluster | None = None,
    ) -> None:
        self.count = policy.workers or min(usable_cores(), MOST_WORKERS)
        here = 0 if cluster is not None else self.count
        memory = policy.memory_bytes or default_memory(here + len(addresses))
        self._patience = patience
        self._folder = tempfile.mkdtemp(prefix="foretune-")
        config = partial(
            WorkerConfig,
            hardware=hardware,
            policy=policy,
            builder=builder,
            address_space_bytes=2 * memory + SPARE_BYTES,
            parent=os.getpid(),
            linker=linker,
        )
        start_s = policy.start_timeout_s
        build = partial(ProcessWorker, config(), usable_cores(), start_s)
        builders = [Slot(build) for _ in range(here)]
        self.devices: list[Device] = []
        for number, address in enumerate(addresses):
            label = HERE if address is None else f"{address}"
            label += "" if addresses.count(address) == 1 else f" ({number + 1})"
            threads = hardware.threads if address is None else 1
            hold = partial(ProcessWorker, config(device=label, address=address), threads, start_s)
            self.devices.append(Device(label, address, Slot(hold, patient=True)))
        self._floors: dict[str, QuietFloor] = {}
        self.baselines: dict[str, dict[str, Any]] = {}
        self.fixed_addresses = False
        self._home: dict[str, str] = {}
        slots = [*builders, *(device.slot for device in self.devices)]
        try:
            transport: Transport = Processes(
                slots, memory, policy.max_start_failures, shares_files=cluster is None
            )
            if cluster is not None:
                from foretune.measure.transport.ray import RayBuilders

                made = RayBuilders(cluster, config(), policy.workers)
                transport = JoinedTransport([transport, made])
            super().__init__(policy, transport)
            self._await_all()
        except BaseException:
            self.close()
            raise

    def _await_all(self) -> None:
        """Waits for a first session on each device."""
        while any(device.greeted is None for device in self.devices):
            self.pump()
            for device in self.devices:
                if device.given_up:
                    raise BadInputError(device.given_up)
                if device.greeted is None and device.failures >= _FIRST_TRIES:
                    if device.here:
                        raise ForetuneError(
                            f"the process that times programs ended {device.failures} times before "
                            f"it was ready: {device.last}"
                        )
                    raise BadInputError(
                        f"the device {device.label} must be ready to measure, but {device.last}: "
                        "see whether `foretune device serve` runs there"
                    )

    def close(self) -> None:
        """Ends every child and session. May be called twice."""
        if hasattr(self, "_transport"):
            super().close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def floor_of(self, job: Job) -> QuietFloor:
        """See ``Desk.floor_of``: each device has its own."""
        return self._floor(job.device)

    def _floor(self, name: str) -> QuietFloor:
        return self._floors.setdefault(name, QuietFloor(self._policy.quiet_tolerance))

    def free(self) -> list[Device]:
        """Devices that can time something now, the one first that did so longest ago."""
        return sorted(
            (d for d in self.devices if not d.given_up and self._transport.idle(d.label)),
            key=lambda device: device.used,
        )

    def takes(self, device: Device, job: Job) -> bool:
        """Whether a built job may be timed on a device."""
        if device.name in job.avoid and any(
            other.name not in job.avoid and not other.given_up for other in self.devices
        ):
            return False
        home = self._home.get(job.candidate.workload.key) if job.together else None
        return home is None or home == device.name

    def holds(self, device: Device, job: Job) -> bool:
        """Whether a job was checked in the session that a device has now."""
        return job.worker is not None and job.worker is device.slot.worker

    def time(self, job: Job, device: Device, again: bool, **fields: Any) -> None:
        """Has a device check a built program and read it, or only read it once more.

        Args:
            job: Whose program.
            device: Where; it is free.
            again: Whether it was checked there before.
            fields: ``usual_s`` and the arguments of ``_device_worker``.
        """
        worker = self._transport.idle(device.label)[0]
        device.used = time.monotonic()
        job.worker, job.device = worker, device.name
        if job.together:
            self._home[job.candidate.workload.key] = device.name
        key = job.candidate.workload.key
        self._start(job, worker, "time", library=job.library, workload=key, again=again, **fields)

    def pump(self, building: bool = False) -> None:
        """See ``Desk.pump``; greets devices that came, and renews sessions that grew old.

        Raises:
            ForetuneError: No device is left.
        """
        for device in self.devices:
            idle = self._transport.idle(device.label)
            old = not device.here and time.monotonic() > device.since + _RENEW_S
            if idle and device.greeted is idle[0] and (old or device.given_up):
                self._transport.retire(idle)
                self._leave(idle[0])
        self._transport.refill()
        super().pump(building)
        for device in self.devices:
            worker = device.slot.worker
            if worker is not None and worker.ready and device.greeted is not worker:
                self._greet(device, worker)
        if all(device.given_up for device in self.devices) and self.baselines:
            told = "; ".join(f"{device.label}: {device.given_up}" for device in self.devices)
            raise ForetuneError(
                f"no device is left to measure on ({told}): see to them and run the same command "
                "again, what was measured is kept"
            )

    def _greet(self, device: Device, worker: Worker) -> None:
        device.greeted, device.since = worker, time.monotonic()
        device.name = str(worker.hello.get("name", device.label))
        canaries = [float(value) for value in worker.hello["canaries"]]
        first = self.baselines.get(device.name)
        slow = first is not None and min(canaries) > _FAR_SLOWER * first["canary_s"]
        if first is not None and slow and not device.here:
            device.slow += 1
            told = f"its canary takes {min(canaries):.2g} s, at first {first['canary_s']:.2g} s"
            self._fault(device, device.slow, told)
            self._transport.retire([worker])
            device.slot.not_before = time.monotonic() + _PAUSES_S[-1]
            return
        if device.lost_at is not None and device.failures:
            _log.warning("device %s is back", device.label)
        device.lost_at, device.failures, device.slow = None, 0, 0
        self._floor(device.name).add(canaries)
        if first is None:
            self.fixed_addresses = worker.fixed_addresses
            facts = worker.hello.get("facts", {})
            self.baselines[device.name] = {
                **facts, "asked": str(device.address), "canary_s": min(canaries),
            }  # fmt: skip

    def _builder_for(self, job: Job) -> Worker | None:
        return next(iter(self._transport.idle()), None)

    def _build_fields(self, job: Job) -> dict[str, Any]:
        folder = Path(self._folder, str(job.id))
        folder.mkdir(exist_ok=True)
        job.library = str(folder / "program.so")
        return {"library": job.library}

    def release(self, jobs: Sequence[Job]) -> None:
        """See ``Desk.release``; removes their libraries."""
        super().release(jobs)
        for job in jobs:
            if job.library:
                shutil.rmtree(Path(job.library).parent, ignore_errors=True)
        if not any(job.together for job in self._jobs.values()):
            self._home.clear()

    def _on_reply(self, reply: Reply) -> None:
        fields, job = reply.fields, self._jobs.get(reply.id)
        if "no_room" in fields:
            raise ForetuneError(
                f"libraries for devices are built in {self._folder}, but there is no room "
                f"({fields['no_room']}): set TMPDIR to a directory with room"
            )
        device = self._device_of(reply.worker)
        if device is not None and "lost" in fields:
            device.last = str(fields["lost"])
            self._leave(reply.worker, job, device.last)
        elif device is not None and "faulty" in fields:
            self._give_up(device, str(fields["faulty"]))
            self._leave(reply.worker)
        else:
            super()._on_reply(reply)

    def _on_built(self, job: Job, fields: Mapping[str, Any]) -> None:
        super()._on_built(job, fields)
        job.worker = None

    def _on_canaries(self, worker: Worker, seconds: Sequence[float]) -> None:
        self._floor(worker.device).add(seconds)

    def _on_readings(self, job: Job, worker: Worker, fields: Mapping[str, Any]) -> None:
        super()._on_readings(job, worker, fields)
        device = self._device_of(worker)
        if device is not None and job.untuned:
            self._judge_untuned(job, device)

    def _judge_untuned(self, job: Job, device: Device) -> None:
        """The untuned program is a baseline: where it fails, the device may be to blame."""
        if device.here:
            return
        if not job.done:
            device.faults = 0
            return
        reference = self.reference(job)
        doubted = job.status is Status.WRONG_OUTPUT and not reference.as_written
        if job.status not in _FAILED or doubted:
            return
        device.faults += 1
        self._fault(device, device.faults, f"the untuned program fails there ({job.message})")
        tried = {*job.avoid, device.name}
        others = [d for d in self.devices if not d.given_up and d.name not in tried]
        if others and len(job.avoid) < _MOST_AVOIDED:
            job.avoid.add(device.name)
            job.stage, job.message = Stage.BUILT, ""
            job.lose_device()

    def _device_of(self, worker: Worker) -> Device | None:
        return next((d for d in self.devices if d.label == worker.device), None)

    def _on_death(self, death: Death) -> None:
        device = self._device_of(death.worker)
        if device is None:
            super()._on_death(death)
            return
        device.lost_at = device.lost_at or time.monotonic()
        if not death.worker.ready:
            busy = "it does not answer: another session may have it"
            told = busy if death.status is Status.TIMEOUT else death.message
            refused = death.worker.hello.get("refused", told)
            self._failed(device, str(refused), bool(death.worker.hello.get("lasting")))
        job = self._jobs.get(death.id) if death.id is not None else None
        if job is not None and job.stage is Stage.RUNNING:
            own = death.status is Status.OUT_OF_MEMORY
            overdue = death.status is Status.TIMEOUT and self._answers(device)
            if own or device.here or overdue:
                job.worker = None
                job.finish(death.status, death.message)
                job = None
        self._leave(death.worker, job, death.message)

    def _leave(self, worker: Worker, running: Job | None = None, message: str = "") -> None:
        """What a session held that is over goes back; what ran when it was lost may be to blame."""
        held = [job for job in self._jobs.values() if job.worker is worker]
        for job in held:
            if job is running:
                job.losses += 1
            if job.losses > _MOST_LOSSES and not job.done:
                job.worker = None
                job.finish(
                    Status.CRASH,
                    f"{job.losses} sessions on devices ended while it ran; the last: {message}",
                )
            else:
                job.lose_device()
        if running is not None and running.untuned and (device := self._device_of(worker)):
            device.faults += 1
            told = f"a session ended while the untuned program ran: {message}"
            self._fault(device, device.faults, told)
        moved = {job.candidate.workload.key for job in held if job.together}
        for job in self._jobs.values():
            # Those that are compared move together.
            if job.together and job.candidate.workload.key in moved and job.stage is Stage.READ:
                job.lose_device()
        for key in moved:
            self._home.pop(key, None)

    def _failed(self, device: Device, message: str, lasting: bool) -> None:
        """A session could not be had."""
        device.failures, device.last = device.failures + 1, message
        assert device.lost_at is not None
        waited = time.monotonic() - device.lost_at
        if lasting:
            self._give_up(device, message)
        elif waited > self._patience.reboot_s:
            self._give_up(device, f"it was not there for {waited:.0f} s: {message}")
        else:
            if device.failures == 1 and device.greeted is not None:
                _log.warning("device %s is lost, and asked for again: %s", device.label, message)
            pause = _PAUSES_S[min(device.failures, len(_PAUSES_S)) - 1]
            device.slot.not_before = time.monotonic() + pause

    def _fault(self, device: Device, times: int, message: str) -> None:
        """A baseline failed, so often in a row."""
        device.last = message
        if times >= _MOST_FAULTS:
            self._give_up(device, f"it failed its own baseline {times} times: {message}")

    def _give_up(self, device: Device, message: str) -> None:
        if device.given_up:
            return
        device.given_up, device.slot.closed = message, True
        if self.baselines:
            _log.warning("device %s is left out from now on: %s", device.label, message)

    def _answers(self, device: Device) -> bool:
        """Whether the machine of a device takes connections: then what ran there was to blame."""
        host, _, port = device.name.rpartition(":")
        try:
            socket.create_connection((host, int(port)), self._patience.answer_s).close()
        except (OSError, ValueError):
            return False
        return True
