"""A session on a device over TVM's RPC, as a child process holds it, and a watch that times there.

Everything that the other side says is checked before it is used: sizes, numbers, names. An error
that a program raised there is told from a session that ended by asking once more.
"""

from __future__ import annotations

import itertools
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import last_line
from foretune.hardware import foreign_triple
from foretune.measure._canary import build_canary, canary_result
from foretune.measure.timing import COLD_START_S, Reading, Stopwatch
from foretune.measure.transport.serve import FACTS, SIZE
from foretune.measure.transport.tracker import Tracker, TrackerError

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure.devices import DeviceAddress
    from foretune.measure.policy import MeasurePolicy

SESSION_S = 1800
"""After this a server ends a session by itself, so that one with a hung program is free again."""
_WAIT_S = 45.0
_LONGEST_FACTS = 4096
_LONGEST_TEXT = 120
_SLOWEST_S = 1e6
# What a network may add to a call, beyond its usual way there and back.
_NETWORK_S = 0.1
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class DeviceLostError(Exception):
    """The session is over: the server ended, the device restarted, or the network is away."""


class DeviceRefusedError(Exception):
    """The device cannot measure, and asking again would not change that."""


class Session:
    """A session on a device.

    Args:
        address: Where it is asked for.
        hardware: What programs are compiled for.

    Attributes:
        name: ``"host:port"`` of the server, which tells devices of one key apart.
        facts: What the server says of itself: ``machine, tvm, cpu, cores, threads``, as far as it
            does.
        device: TVM's device, where tensors live.

    Raises:
        DeviceLostError: There is none to be had now.
        DeviceRefusedError: It does not fit the hardware.
    """

    def __init__(self, address: DeviceAddress, hardware: Hardware) -> None:
        from foretune import _tvm

        host, port, key = address.host, address.port, ""
        try:
            if address.key:
                with Tracker(host, port) as tracker:
                    host, port, key = tracker.request(address.key, _WAIT_S)
            self.name = f"{host}:{port}"
            self._session = _tvm.rpc().connect(host, port, key, session_timeout=SESSION_S)
        except TrackerError as error:
            raise DeviceLostError(str(error)) from None
        except Exception as error:  # TVM raises what its sockets tell
            told = last_line(error, _LONGEST_TEXT)
            if "mismatch" in told and "key" not in told:
                raise DeviceRefusedError(
                    f"the device {self.name} speaks another version of TVM's RPC ({told}): install "
                    f"apache-tvm=={_tvm.versions()['tvm']} there"
                ) from None
            raise DeviceLostError(
                f"connecting to the device {host}:{port} failed: {told}"
            ) from None
        self._names = itertools.count()
        self._kind = hardware.runtime_device
        self.device: Any = self._session.device(self._kind, 0)
        self.facts = self._facts()
        self._tells_sizes = self._call(SIZE, ".") is not None
        self._refuse(hardware)

    def _facts(self) -> dict[str, Any]:
        """What the server says of itself; a server of TVM's own says less."""
        told = self._call(FACTS)
        if isinstance(told, str) and len(told) <= _LONGEST_FACTS:
            try:
                facts = json.loads(told)
            except ValueError:
                facts = None
            return _checked(facts) if isinstance(facts, dict) else {}
        triple = self._call("target.llvm_get_system_triple")
        threads = self._call("runtime.NumThreads")
        machine = str(triple).partition("-")[0] if isinstance(triple, str) else ""
        return _checked({"machine": machine, "threads": threads})

    def _call(self, name: str, *arguments: str) -> Any:
        """What a function of the server returns; None where it has none of that name."""
        try:
            result = self._session.get_function(name)(*arguments)
        except Exception:  # the server's own words about a function that it lacks, or its end
            self.require()
            return None
        return result if isinstance(result, int) else str(result)[: _LONGEST_FACTS + 1]

    def _refuse(self, hardware: Hardware) -> None:
        from foretune import _tvm

        facts, ours = self.facts, _tvm.versions()["tvm"]
        if hardware.has_cores:
            machine = foreign_triple(hardware.target).partition("-")[0] or platform.machine()
            there = _MACHINES.get(facts.get("machine", ""), facts.get("machine", ""))
            if there and there != _MACHINES.get(machine, machine):
                raise DeviceRefusedError(
                    f"the target {hardware.name!r} is code for {machine}, but the device "
                    f"{self.name} is {there}: give --target what the device is, or another --device"
                )
        if facts.get("tvm", ours) != ours:
            raise DeviceRefusedError(
                f"a device must have the TVM of this machine, {ours}, but {self.name} has "
                f"{facts['tvm']}: pip install apache-tvm=={ours} there"
            )
        threads = facts.get("threads", hardware.threads)
        if hardware.has_cores and threads < hardware.threads:
            raise DeviceRefusedError(
                f"the target {hardware.name!r} has {hardware.threads} threads, but the device "
                f"{self.name} runs kernels on {threads}: pass --threads {threads}, or restart its "
                f"server with --threads {hardware.threads}"
            )

    def load(self, library: str | Path) -> Any:
        """Uploads a shared library and loads it there; returns TVM's remote module.

        Raises:
            DeviceLostError: The session ended.
            DeviceRefusedError: The library did not arrive: the device's disk is full.
            Exception: The device cannot load it.
        """
        # Each time another name: what is loaded stays mapped, and must not be written over.
        name, data = f"{next(self._names)}.so", Path(library).read_bytes()
        arrived = self._upload(name, data)
        if arrived < len(data):
            # Loading half of a library would end the session.
            raise DeviceRefusedError(
                f"a program must fit on the disk of the device {self.name}, but {arrived} of "
                f"{len(data)} bytes arrived: make room in its folder for temporary files"
            )
        try:
            return self._session.load_module(name)
        except Exception:
            self.require()
            raise

    def _upload(self, name: str, data: bytes) -> int:
        """Bytes that arrived; servers do not say it by themselves."""
        try:
            self._session.upload(bytearray(data), name)
        except Exception:  # not even an empty file could be made
            self.require()
            return 0
        if self._tells_sizes:
            size = self._call(SIZE, name)
            return size if isinstance(size, int) else 0
        return len(self._session.download(name))

    def roundtrip_s(self) -> float:
        """Seconds of the way there and back: the least of a few."""
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            self.device.sync()
            taken.append(time.perf_counter() - began)
        return min(taken)

    def require(self) -> None:
        """Raises DeviceLostError where the session is over."""
        try:
            self.device.sync()
        except Exception as error:  # a socket's end has as many names as there are places to notice
            told = last_line(error, _LONGEST_TEXT)
            raise DeviceLostError(f"the session on the device {self.name} ended: {told}") from None


def _checked(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a server says, what is of the right type and length."""
    words = {
        name: facts[name]
        for name in ("machine", "tvm", "cpu")
        if isinstance(facts.get(name), str)
        and len(facts[name]) <= _LONGEST_TEXT
        and facts[name].isprintable()
    }
    numbers = {
        name: facts[name]
        for name in ("cores", "threads")
        if isinstance(facts.get(name), int) and 0 < facts[name] < 1 << 16
    }
    return {**words, **numbers}


class DeviceStopwatch(Stopwatch):
    """Times kernels on a device by its own clock, and its canary likewise.

    Args:
        session: On the device.
        hardware: What programs are compiled for.
        policy: Length and number of readings.
        linker: The C++ compiler that links for it.

    Raises:
        DeviceRefusedError: The canary cannot be loaded, or computes something wrong.
        DeviceLostError: The session ended, as it does when the canary has an illegal instruction.
    """

    def __init__(
        self, session: Session, hardware: Hardware, policy: MeasurePolicy, linker: str
    ) -> None:
        from foretune._tvm import tvm

        self.hardware = hardware
        self.canary_s = 0.0
        self._host = False
        self._policy = policy
        self.device = session.device
        self._session = session
        self.roundtrip_s = session.roundtrip_s()
        self.cold_start_s = COLD_START_S + 2 * self.roundtrip_s + _NETWORK_S
        compiled, arrays = build_canary(hardware)
        with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
            library = Path(folder, "canary.so")
            compiled.export_library(str(library), cc=linker, workspace_dir=folder)
            self._canary = self._load(library)
        self._canary_tensors = [tvm.runtime.tensor(array, self.device) for array in arrays]

    def _load(self, library: Path) -> Any:
        try:
            return self._session.load(library)
        except (DeviceLostError, DeviceRefusedError):
            raise
        except Exception as error:  # the loader's words
            raise DeviceRefusedError(
                f"the device {self._session.name} cannot load code for {self.hardware.name!r} "
                f"({last_line(error, _LONGEST_TEXT)}): give --target what the device is"
            ) from None

    def baseline(self, count: int) -> list[float]:
        """Seconds of so many canaries, once it has computed what it must."""
        try:
            self._canary["main"](*self._canary_tensors)
            sums = self._canary_tensors[2].numpy()
            taken = [self.canary() for _ in range(count)]
        except Exception as error:  # whatever the other side raises
            raise DeviceLostError(
                f"the canary, compiled for {self.hardware.name!r}, failed there "
                f"({last_line(error, _LONGEST_TEXT)}), as code for another processor does"
            ) from None
        wanted = canary_result(self.hardware)
        if not np.array_equal(sums, np.full_like(sums, wanted)):
            wrong = int(np.count_nonzero(sums != wanted))
            raise DeviceRefusedError(
                f"the device {self._session.name} computes wrongly: {wrong} of {sums.size} sums of "
                "the canary differ; see to the device, or leave it out"
            )
        return taken

    def first_call(self, program: Any, tensors: Sequence[Any]) -> tuple[float, Reading | None]:
        """See ``Stopwatch.first_call``; never as good as a reading, because of the way there."""
        seconds = self.call(program["main"], tensors)
        return max(1e-7, seconds - self.roundtrip_s), None

    def read(
        self,
        program: Any,
        arguments: Any,
        calls: int,
        prepare: Callable[[], None] | None = None,
    ) -> float:
        """See ``Stopwatch.read``; a time that cannot be is an error."""
        return _possible(super().read(program, arguments, calls, prepare))

    def _canary_call(self) -> float:
        if not self.hardware.has_cores:
            return _possible(super()._canary_call())
        # One call, and the one before it that TVM does not count: a processor's clock is fine.
        timer = self._canary.time_evaluator("main", self.device, number=1, repeat=1)
        return _possible(float(timer(*self._canary_tensors).results[0]))

    def _watched(self, read: Callable[[], float]) -> tuple[float, bool]:
        return read(), False


def _possible(seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 < seconds < _SLOWEST_S):
        raise ValueError(f"the device tells a time of {seconds} s for a call")
    return seconds
