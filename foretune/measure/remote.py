"""Measuring where building and timing do not share a processor, and so go on at the same time.

Programs are compiled and linked here or on a cluster; they are checked and timed on devices that
are reached over TVM's RPC, or, where a cluster builds, on this machine. Several devices time at the
same time. The rest is as on this machine: windows, the gate, the canary beside each reading, the
noise policy.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError
from foretune.measure._device import Device, Patience
from foretune.measure._devices import Devices
from foretune.measure._jobs import Job, Stage
from foretune.measure._protocol import LIBRARY_BUILDER
from foretune.measure._windows import JobMeasurer
from foretune.measure.devices import DeviceAddress, place_of
from foretune.measure.local import require_device
from foretune.measure.policy import MeasurePolicy
from foretune.measure.transport.tracker import Tracker, TrackerError

if TYPE_CHECKING:
    from foretune.cluster import Cluster
    from foretune.hardware import Hardware

_WINDOW_PER_DEVICE = 16
_WINDOW_PER_BUILDER = 2
# A small board may be so much slower than this machine, on which references are computed.
_SLOWER = 10.0
_CONNECT_S = 5.0
_MOST_SESSIONS = 16
"""Of one key: more would need more children than a host should have."""


class RemoteMeasurer(JobMeasurer):
    """Builds candidates on this machine or a cluster; times them on devices elsewhere or here.

    Timing is by the device's own clock. On devices elsewhere kernels find what they read in the
    caches: copies of weights that lie as far away as in a network are kept on this machine only, so
    ``workspace_bytes`` of the policy is None there.

    Args:
        hardware: What the devices are. Its ``place`` must say that it is they.
        addresses: Where they are. Of a key at a tracker, every device that is free is used. None
            for this machine, where a cluster builds.
        policy: Deadlines, budgets, tolerances.
        builder: ``"module:function"`` run in a child: candidate -> TVM executable.
        patience: How long lost devices are asked for.
        cluster: Whose nodes build; left open. None builds on this machine.

    Raises:
        BadInputError: A tracker or a device cannot be reached, has nothing of that key, or does not
            fit the hardware; or no compiler links for it.
        ForetuneError: No device is left (in the methods that need one), or the disk is full.
    """

    def __init__(
        self,
        hardware: Hardware,
        addresses: Sequence[DeviceAddress],
        policy: MeasurePolicy | None = None,
        builder: str = LIBRARY_BUILDER,
        patience: Patience | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        if not addresses and cluster is None:
            raise BadInputError(
                "`addresses or cluster` must be given, for somebody has to build elsewhere or time "
                "elsewhere: LocalMeasurer does both here"
            )
        if hardware.place != place_of(addresses):
            raise BadInputError(
                "`hardware.place == place_of(addresses)` must hold, but got "
                f"(place={hardware.place!r}, addresses={place_of(addresses)!r}): pass "
                "dataclasses.replace(hardware, place=place_of(addresses))"
            )
        from foretune.graph import linker_for

        linker = linker_for(hardware.target)
        policy = policy or MeasurePolicy()
        sessions: list[DeviceAddress | None] = [None]
        if addresses:
            policy = replace(policy, workspace_bytes=None)
            sessions = [each for address in addresses for each in _sessions(address)]
        else:
            require_device(hardware)
        self._devices = Devices(
            hardware, policy, sessions, linker, builder, patience or Patience(), cluster
        )
        builders = 0 if cluster is None else _WINDOW_PER_BUILDER * cluster.cores
        window = policy.window or max(builders, _WINDOW_PER_DEVICE * len(sessions))
        super().__init__(hardware, policy, self._devices, window)
        self._before_s: dict[int, float] = {}
        self._baselines = {name: dict(told) for name, told in self._devices.baselines.items()}

    @property
    def names(self) -> list[str]:
        """Names of the devices that are not given up, as far as they were ever reached."""
        return [device.name for device in self._devices.devices if not device.given_up]

    def environment(self) -> dict[str, Any]:
        """See ``JobMeasurer.environment``; ``devices`` has each device's facts and baseline.

        Of this machine it has what ``LocalMeasurer.environment`` has.
        """
        if not self.hardware.place:
            return {**super().environment(), "fixed_addresses": self._devices.fixed_addresses}
        return {**super().environment(), "devices": self._baselines}

    def _finish_window(
        self, fresh: Sequence[Job], noisy: Sequence[Job], best: dict[str, float]
    ) -> Iterator[None]:
        """See ``JobMeasurer``: builds and devices go on at the same time."""
        desk = self._devices
        again = [job for job in noisy if job.stage is Stage.READ]
        for hopeless in [job for job in again if self._is_hopeless(job, best)]:
            again.remove(hopeless)
            self._decide(hopeless, best)
        running: list[Job] = []
        while running or again or any(_is_open(job) for job in fresh):
            waiting = desk.dispatch(fresh)
            for device in desk.free():
                job = self._next(device, fresh, again)
                if job is not None:
                    again = [other for other in again if other is not job]
                    self._time(job, device, best)
                    running.append(job)
            desk.pump(building=waiting and not running)
            for ended in [job for job in running if job.stage is not Stage.RUNNING]:
                running.remove(ended)
                self._ended(ended, best)
            # Those whose device was lost ended with the readings that they have.
            again = [job for job in again if job.stage is Stage.READ]
            yield
        yield

    def _next(self, device: Device, fresh: Sequence[Job], again: Sequence[Job]) -> Job | None:
        """What a free device does next: something new, or what it has read before in noise."""
        for job in fresh:
            if job.stage is Stage.BUILT and self._devices.takes(device, job) and self._may_run(job):
                return job
        return next((job for job in again if self._devices.holds(device, job)), None)

    def _time(self, job: Job, device: Device, best: Mapping[str, float], count: int | None = None
              ) -> None:  # fmt: skip
        desk = self._devices
        again = job.stage is Stage.READ and desk.holds(device, job)
        job.device = device.name
        fields = self._run_fields(job, best, count)
        usual_s = _SLOWER * self._devices.reference(job).seconds
        cut_s = fields["cut_s"]
        fields["usual_s"] = usual_s if cut_s is None else min(usual_s, cut_s)
        # What disturbed its first readings may go on.
        fields["quiet_s"] = desk.floor_of(job).limit if again and count is None else None
        if again and count is None:
            job.rereads += 1
            self._before_s[job.id] = job.run_s
        desk.time(job, device, again, **fields)

    def _ended(self, job: Job, best: dict[str, float]) -> None:
        self._reread_s += job.run_s - self._before_s.pop(job.id, job.run_s)
        self._doubt(job)
        self._decide(job, best)

    def _read_in_turn(self, jobs: Sequence[Job], turn: int) -> None:
        """See ``JobMeasurer``. All of a workload are read by one device, in the order given."""
        desk = self._devices
        waiting = list(jobs)
        running: list[Job] = []
        while running or waiting:
            desk.dispatch(waiting)
            for device in desk.free():
                job = self._next_compared(device, waiting)
                if job is not None:
                    waiting.remove(job)
                    self._time(job, device, {}, count=1)
                    running.append(job)
            desk.pump()
            for ended in [job for job in running if job.stage is not Stage.RUNNING]:
                running.remove(ended)
                self._doubt(ended)
                if not ended.done and ended.stage is not Stage.READ:
                    waiting.append(ended)
            # Those that were read by a device that is lost begin anew.
            lost = [j for j in jobs if j.stage is Stage.BUILT and j not in waiting + running]
            waiting = [job for job in [*waiting, *lost] if not job.done]

    def _next_compared(self, device: Device, waiting: Sequence[Job]) -> Job | None:
        for job in waiting:
            ready = job.stage in (Stage.BUILT, Stage.READ)
            if ready and self._devices.takes(device, job) and self._may_run(job):
                return job
        return None


def check_devices(addresses: Sequence[DeviceAddress]) -> None:
    """Refuses trackers that cannot be reached, and keys that they do not know.

    Raises:
        BadInputError: The message says which, and which keys there are.
    """
    for address in addresses:
        _sessions(address)


def _sessions(address: DeviceAddress) -> list[DeviceAddress]:
    """The address once for each device that is free there."""
    if not address.key:
        try:
            socket.create_connection((address.host, address.port), _CONNECT_S).close()
        except OSError as error:
            raise BadInputError(
                f"--device {address} needs a server, but none can be reached at "
                f"{address.endpoint} ({error.strerror or error}): correct the address, or start "
                "`foretune device serve` there"
            ) from None
        return [address]
    try:
        with Tracker(address.host, address.port) as tracker:
            known = tracker.devices()
    except TrackerError as error:
        raise BadInputError(
            f"--device {address} needs a tracker, but {error}: correct the address, or start one "
            "with `foretune device serve --start-tracker`"
        ) from None
    if address.key not in known:
        there = f"it knows {', '.join(sorted(known)[:12])}" if known else "it knows none"
        raise BadInputError(
            f"a device of the key {address.key!r} must be at the tracker {address.endpoint}, but "
            f"{there}: correct the key, or start `foretune device serve --key {address.key} "
            f"--tracker {address.endpoint}` on the device"
        )
    return [address] * min(_MOST_SESSIONS, max(1, known[address.key][1]))


def _is_open(job: Job) -> bool:
    """Whether a job of a window waits for something still."""
    return job.stage is not Stage.READ and not job.done
