"""Child processes that build in one place what is timed in another: builders, timers, sessions.

A library goes from one to the other through a file, whose path the parent chooses. What a device
does that is not a program's doing is an answer of its own: ``lost`` where the session is over,
``faulty`` where the device cannot go on measuring. The process ends with it.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from foretune.measure._base import Status
from foretune.measure._layout import addresses_are_fixed
from foretune.measure._protocol import WorkerConfig, load_candidate
from foretune.measure._session import (
    DeviceLostError,
    DeviceRefusedError,
    DeviceStopwatch,
    Session,
)
from foretune.measure._worker import Loaded, WorkerLoop, is_out_of_memory, one_line
from foretune.measure.timing import Stopwatch

_BASELINE_CANARIES = 10
_NO_ROOM = ("no space left", "disk quota exceeded")


def device_worker(config: WorkerConfig, reply_fd: int) -> WorkerLoop:
    """A child that builds libraries, one that times them here, or one that holds a session."""
    if config.address is not None:
        return DeviceWorker(config, reply_fd)
    if config.device:
        return LibraryTimer(config, reply_fd, Stopwatch(config.hardware, config.policy))
    return LibraryBuilder(config, reply_fd, None)


class LibraryBuilder(WorkerLoop):
    """Compiles programs for a device and links each into a shared library."""

    def prepare(self) -> None:
        """See ``WorkerLoop.prepare``: imports what builds need."""
        importlib.import_module("foretune.codegen")

    def do_build(self, id: int, candidate: bytes, library: str = "") -> dict[str, Any]:
        """Builds a candidate into the file ``library``."""
        began = time.perf_counter()
        try:
            loaded = load_candidate(candidate, self._sketches)
            executable = self._build(loaded, **self._options)
            folder = str(Path(library).parent)
            executable.export_library(library, cc=self._config.linker, workspace_dir=folder)
        except Exception as error:  # foreign code: whatever it raises is the candidate's result
            if any(sign in str(error).lower() for sign in _NO_ROOM):
                return {"id": id, "no_room": one_line(error)}
            status = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.COMPILE_ERROR
            message, seconds = one_line(error), time.perf_counter() - began
            return {"id": id, "status": status.value, "message": message, "seconds": seconds}
        return {"id": id, "status": "ok", "seconds": time.perf_counter() - began}


class LibraryTimer(WorkerLoop):
    """Times libraries that were built elsewhere, on this machine."""

    def __init__(self, config: WorkerConfig, reply_fd: int, watch: Stopwatch | None) -> None:
        super().__init__(config, reply_fd, watch)
        self._current = 0

    def hello(self) -> None:
        """See ``WorkerLoop.hello``; this machine has no name, as in other records of it."""
        canaries = [self._watch.canary() for _ in range(_BASELINE_CANARIES)]
        fixed = addresses_are_fixed()
        self.reply(hello=True, name="", facts={}, canaries=canaries, fixed_addresses=fixed)

    def _load(self, library: str) -> Any:
        from foretune._tvm import tvm

        return tvm.runtime.load_module(library)

    def do_time(
        self,
        id: int,
        library: str,
        workload: str,
        again: bool,
        quiet_s: float | None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Checks a library's program and reads its time, or only reads it again.

        Args:
            id: Number of the job.
            library: Its file.
            workload: Key of its workload.
            again: Whether it was checked by this child before.
            quiet_s: Seconds of the canary from which it is not worth while to read again; None to
                read in any case.
            arguments: Of ``_check_and_read``.
        """
        self._current = id

        def work() -> dict[str, Any]:
            loaded = self._programs.get(id)
            if loaded is None:
                loaded = self._programs[id] = Loaded(self._load(library), workload)
            if not again or loaded.buffers is None:
                return self._check_and_read(id, **arguments)
            if quiet_s is not None and self._watch.canary() > quiet_s:
                return {"status": Status.OK.value, "readings": []}
            return self._read(id, arguments["count"])

        return self._timed(id, work)


class DeviceWorker(LibraryTimer):
    """Holds a session on a device and times libraries there."""

    def __init__(self, config: WorkerConfig, reply_fd: int) -> None:
        assert config.address is not None
        super().__init__(config, reply_fd, None)
        try:
            self._session = Session(config.address, config.hardware)
            watch = DeviceStopwatch(self._session, config.hardware, config.policy, config.linker)
            self._own_watch = watch
            self._baseline = watch.baseline(_BASELINE_CANARIES)
        except DeviceRefusedError as error:
            self.reply(refused=str(error), lasting=True)
            raise SystemExit(0) from None
        except DeviceLostError as error:
            self.reply(refused=str(error), lasting=False)
            raise SystemExit(0) from None

    def prepare(self) -> None:
        """See ``WorkerLoop.prepare``: the canary runs elsewhere, and has."""

    def hello(self) -> None:
        """See ``WorkerLoop.hello``; tells who the device is and how fast its canary was."""
        self.reply(
            hello=True,
            name=self._session.name,
            facts=self._session.facts,
            canaries=self._baseline,
        )

    def serve(self, request_fd: int) -> None:
        """See ``WorkerLoop.serve``; ends with the session."""
        try:
            super().serve(request_fd)
        except DeviceLostError as error:
            self.reply(id=self._current, lost=str(error))
        except DeviceRefusedError as error:
            self.reply(id=self._current, faulty=str(error))

    def _consider(self, error: Exception) -> None:
        if isinstance(error, (DeviceLostError, DeviceRefusedError)):
            raise error
        self._session.require()

    def _load(self, library: str) -> Any:
        return self._session.load(library)
