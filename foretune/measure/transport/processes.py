"""Child processes: starting, deadlines, and what a death means."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foretune import _child
from foretune._child import how_it_ended, tells_of_no_memory
from foretune.errors import ForetuneError
from foretune.measure._base import Status
from foretune.measure._layout import fixed_addresses
from foretune.measure._protocol import FrameReader, GarbageError, WorkerConfig, frame
from foretune.measure.transport._base import TICK_S, Death, Reply, Transport, Worker

_ERROR_TAIL = 4000
_CODE = (
    "sys.modules['torch'] = None; "
    "from foretune.measure._child_main import main; main(*map(int, sys.argv[1:]))"
)


class ProcessWorker(Worker):
    """One child process and the pipes to it. Created busy with starting.

    Args:
        config: The child's first message.
        threads: Size of the thread pool that kernels run on.
        start_timeout_s: Until when it must have said hello.
    """

    def __init__(self, config: WorkerConfig, threads: int, start_timeout_s: float) -> None:
        # What builds candidates may come from wherever this process found it.
        path = os.pathsep.join(path for path in sys.path if path)
        variables = _child.environment(threads, **_child.STEADY, PYTHONPATH=path)
        with fixed_addresses() as fixed:
            self._process, self._request_fd, self.reply_fd = _child.start_piped(
                _CODE, variables, subprocess.PIPE
            )
        assert self._process.stderr is not None
        self.error_fd = self._process.stderr.fileno()
        for fd in (self._request_fd, self.reply_fd, self.error_fd):
            os.set_blocking(fd, False)
        super().__init__(self._process.pid, config.device)
        # What was asked for, until the child says what it got.
        self.fixed_addresses = fixed
        self.killed_for: tuple[Status, str] | None = None
        self.ended_by: int | None = None
        self._unsent = bytearray()
        self._frames = FrameReader()
        self._errors = bytearray()
        self.task = self.new_task(0, start_timeout_s, "starting")
        self.send(pickle.dumps(config))

    @property
    def has_unsent(self) -> bool:
        """Whether a part of a request still waits for room in the pipe."""
        return bool(self._unsent)

    def request(self, op: str, limit_s: float, what: str, **fields: Any) -> None:
        """See ``Worker.request``."""
        # What it complained of before is no news of this.
        self.receive_errors()
        self._errors.clear()
        super().request(op, limit_s, what, **fields)

    def send(self, payload: bytes) -> None:
        """See ``Worker.send``."""
        self._unsent += frame(payload)
        self.flush()

    def flush(self) -> None:
        """Writes what fits into the pipe. A child that is gone is found out by its replies."""
        if not self.alive:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._unsent:
                del self._unsent[: os.write(self._request_fd, self._unsent)]

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Complete replies, and whether the child can still send more.

        Raises:
            GarbageError: What came is no reply.
        """
        try:
            data = os.read(self.reply_fd, 1 << 20)
        except BlockingIOError:
            return [], True
        replies = []
        for message in self._frames.feed(data):
            try:
                reply = json.loads(message)
            except ValueError:
                raise GarbageError(message[:16].hex()) from None
            if not isinstance(reply, dict):
                raise GarbageError(message[:16].hex())
            replies.append(reply)
        return replies, bool(data)

    def receive_errors(self) -> None:
        """Keeps the end of what the child wrote to its standard error."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._errors += os.read(self.error_fd, 1 << 16)
            del self._errors[:-_ERROR_TAIL]

    def resident(self) -> int:
        """See ``Worker.resident``; 0 once the process is gone."""
        return _child.memory_in_use(self.pid)[1]

    def kill(self) -> None:
        """See ``Worker.kill``; its own children end, too."""
        _child.signal_group(self._process, signal.SIGKILL)

    def exited(self) -> bool:
        """See ``Worker.exited``."""
        return self._process.poll() is not None

    def end(self, dying: bool = True) -> tuple[Status, str]:
        """Kills the process and all its children, closes the pipes and says what happened.

        Args:
            dying: It closed its pipe by itself: it gets a moment until its status is known.
        """
        self.alive = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2 if dying and not self.killed_for else 0.0)
        code = self._process.poll()
        self.ended_by = -code if code is not None and code < 0 else None
        _child.kill_group(self._process)
        self.receive_errors()
        os.close(self._request_fd)
        os.close(self.reply_fd)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return self.killed_for or self._classify(code)

    def _classify(self, code: int | None) -> tuple[Status, str]:
        text = self._errors.decode(errors="replace")
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        if tells_of_no_memory(text):
            return Status.OUT_OF_MEMORY, f"out of memory: {last[:300]}"
        if code is None:
            return Status.CRASH, "closed its pipe and went on running"
        if code >= 0:
            return Status.CRASH, f"the process ended, {how_it_ended(code)} {last[:300]}".rstrip()
        killed = code == -signal.SIGKILL
        hint = " (the system's out-of-memory killer, or somebody's hand)" if killed else ""
        return Status.CRASH, f"{how_it_ended(code)}{hint}"


@dataclass(eq=False)
class Slot:
    """A place for one child, which is filled again when the child is gone.

    Attributes:
        spawn: Starts the child.
        patient: Whether a child that dies before it is ready is told as a ``Death``, for its user
            to decide; otherwise a few in a row are an error.
        not_before: Monotonic time until which it stays empty.
        closed: Whether it stays empty for good.
        worker: Who is in it.
    """

    spawn: Callable[[], ProcessWorker]
    patient: bool = False
    not_before: float = 0.0
    closed: bool = False
    worker: ProcessWorker | None = None

    @property
    def due(self) -> bool:
        """Whether a child should be started."""
        return self.worker is None and not self.closed and time.monotonic() >= self.not_before


class Processes(Transport):
    """Child processes of this machine.

    Args:
        slots: Places for them.
        memory_bytes: Resident memory a child may add while it works on one task.
        max_start_failures: Children in a row that may die before they were ready.
        shares_files: See ``Transport``.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        memory_bytes: int,
        max_start_failures: int,
        shares_files: bool = True,
    ) -> None:
        super().__init__()
        self.shares_files = shares_files
        self.slots = list(slots)
        self._memory_bytes = memory_bytes
        self._max_start_failures = max_start_failures
        self._start_failures = 0
        self._selector = selectors.DefaultSelector()

    def refill(self) -> None:
        """See ``Transport.refill``."""
        for slot in self.slots:
            if not slot.due:
                continue
            try:
                worker = slot.worker = slot.spawn()
            except OSError as error:
                raise ForetuneError(
                    f"measuring needs child processes, but starting one failed: {error}"
                ) from error
            self.workers.append(worker)
            self._selector.register(worker.reply_fd, selectors.EVENT_READ, (worker, "reply"))
            self._selector.register(worker.error_fd, selectors.EVENT_READ, (worker, "error"))

    @property
    def _children(self) -> list[ProcessWorker]:
        return [slot.worker for slot in self.slots if slot.worker is not None]

    def wait(self, seconds: float = TICK_S) -> list[Reply | Death]:
        """See ``Transport.wait``."""
        for worker in self._children:
            worker.flush()
        timeout = 0.001 if any(worker.has_unsent for worker in self._children) else seconds
        events: list[Reply | Death] = []
        for key, _ in self._selector.select(timeout):
            worker, kind = key.data
            if kind == "error":
                self._drain_errors(worker)
            elif worker.alive:
                events += self._receive(worker)
        for worker in self._children:
            self._watch(worker)
            if worker.killed_for is not None or worker.exited():
                # Its last words may still be in the pipe.
                if worker.killed_for is None:
                    events += self._receive(worker)
                if worker.alive:
                    events.append(self._bury(worker))
        return events

    def _drain_errors(self, worker: ProcessWorker) -> None:
        if not worker.alive:
            # Buried since: by now the number of its pipe may be another file's.
            return
        worker.receive_errors()
        if worker.exited():
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.error_fd)

    def _receive(self, worker: ProcessWorker) -> list[Reply | Death]:
        try:
            replies, open_still = worker.receive()
        except GarbageError as error:
            worker.killed_for = (Status.CRASH, f"wrote garbage to the reply pipe: {error}")
            return [self._bury(worker)]
        events: list[Reply | Death] = []
        for fields in replies:
            number = fields.pop("id", 0)
            if fields.pop("begun", False):
                if worker.task is not None and worker.task.id == number:
                    worker.task.begun = True
                continue
            if fields.pop("hello", False):
                worker.ready, worker.hello = True, fields
                worker.fixed_addresses = bool(fields.pop("fixed_addresses", False))
                self._start_failures = 0
            elif not number:
                worker.hello.update(fields)
            if fields.pop("more", False):
                events.append(Reply(worker, number, fields))
                continue
            if worker.task is not None and worker.task.id == number:
                worker.task = None
            if number:
                events.append(Reply(worker, number, fields))
        if not open_still:
            events.append(self._bury(worker))
        return events

    def _watch(self, worker: ProcessWorker) -> None:
        task = worker.task
        if task is None or not worker.alive or worker.killed_for is not None:
            return
        if time.monotonic() > task.deadline:
            message = f"{task.what} took longer than {task.limit_s:.3g} s"
            worker.killed_for = (Status.TIMEOUT, message)
        elif worker.ready and worker.resident() - task.resident_bytes > self._memory_bytes:
            megabytes = self._memory_bytes / 2**20
            message = f"{task.what} took more than {megabytes:.0f} MiB of memory"
            worker.killed_for = (Status.OUT_OF_MEMORY, message)

    def _bury(self, worker: ProcessWorker) -> Death:
        self._forget(worker)
        status, message = worker.end()
        task, worker.task = worker.task, None
        slot = self._slot_of(worker)
        slot.worker = None
        if not worker.ready and not slot.patient:
            self._start_failures += 1
            if self._start_failures >= self._max_start_failures:
                raise ForetuneError(
                    f"{self._start_failures} measurement processes in a row ended before they were "
                    f"ready; the last one: {message}. "
                    f"Check that `import tvm` works in {sys.executable}"
                )
        # One that dies before it began was dying already when it was asked.
        guilty = task is not None and (task.begun or worker.killed_for is not None)
        return Death(
            worker=worker,
            id=task.id if task is not None and guilty and task.id else None,
            status=status,
            message=message,
            from_outside=worker.killed_for is None and worker.ended_by == signal.SIGKILL,
        )

    def _slot_of(self, worker: Worker) -> Slot:
        return next(slot for slot in self.slots if slot.worker is worker)

    def _forget(self, worker: ProcessWorker) -> None:
        self.workers.remove(worker)
        for fd in (worker.reply_fd, worker.error_fd):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)

    def retire(self, workers: Iterable[Worker]) -> None:
        """See ``Transport.retire``."""
        for worker in list(workers):
            slot = self._slot_of(worker)
            assert slot.worker is not None
            self._forget(slot.worker)
            slot.worker.end(dying=False)
            slot.worker = None

    def close(self) -> None:
        """See ``Transport.close``."""
        self.retire(list(self.workers))
        self._selector.close()
