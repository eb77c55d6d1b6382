"""Child processes for devices elsewhere: those that build libraries, and those that hold sessions.

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
from foretune.measure._protocol import WorkerConfig, load_candidate
from foretune.measure._session import (
    DeviceLostError,
    DeviceRefusedError,
    DeviceStopwatch,
    Session,
)
from foretune.measure._worker import Loaded, WorkerLoop, is_out_of_memory, one_line

_BASELINE_CANARIES = 10
_NO_ROOM = ("no space left", "disk quota exceeded")


def device_worker(config: WorkerConfig, reply_fd: int) -> WorkerLoop:
    """A child that builds libraries, or one that holds a session where there is an address."""
    if config.address is None:
        return LibraryBuilder(config, reply_fd, None)
    return DeviceWorker(config, reply_fd)


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


class DeviceWorker(WorkerLoop):
    """Holds a session on a device and times libraries there."""

    def __init__(self, config: WorkerConfig, reply_fd: int) -> None:
        assert config.address is not None
        super().__init__(config, reply_fd, None)
        self._current = 0
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

    def do_time(
        self,
        id: int,
        library: str,
        workload: str,
        again: bool,
        quiet_s: float | None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Checks a library's program on the device and reads its time, or only reads it again.

        Args:
            id: Number of the job.
            library: Its file.
            workload: Key of its workload.
            again: Whether it was checked in this session before.
            quiet_s: Seconds of the canary from which it is not worth while to read again; None to
                read in any case.
            arguments: Of ``_check_and_read``.
        """
        self._current = id

        def work() -> dict[str, Any]:
            loaded = self._programs.get(id)
            if loaded is None:
                loaded = self._programs[id] = Loaded(self._session.load(library), workload)
            if not again or loaded.buffers is None:
                return self._check_and_read(id, **arguments)
            if quiet_s is not None and self._watch.canary() > quiet_s:
                return {"status": Status.OK.value, "readings": []}
            return self._read(id, arguments["count"])

        return self._timed(id, work)
