"""The parent's side of the child processes: starting, deadlines, and what a death means.

A pool never interprets what a child is asked to do: it delivers requests, hands back replies, and
turns everything else that can happen to a process into a ``Death`` with a status.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from foretune._child import how_it_ended, tells_of_no_memory
from foretune.errors import ForetuneError
from foretune.measure._base import Status
from foretune.measure._layout import fixed_addresses
from foretune.measure._protocol import FrameReader, GarbageError, WorkerConfig, frame

_TICK_S = 0.05
_ERROR_TAIL = 4000
_COMMAND = (
    "import sys; sys.modules['torch'] = None; "
    "from foretune.measure._worker import main; main({}, {})"
)


@dataclass
class Task:
    """What a busy child is doing.

    Attributes:
        id: Number of the request; 0 while the child starts.
        deadline: Monotonic time at which it is overdue.
        what: For messages: ``"building"``, ``"running"``...
        limit_s: The limit that ``deadline`` came from.
        resident_bytes: Memory the child had in use when it was asked.
        begun: Whether the child has said that it began.
    """

    id: int
    deadline: float
    what: str
    limit_s: float
    resident_bytes: int
    begun: bool = False

    def allow(self, limit_s: float) -> None:
        """Changes how long it may take, counted from its beginning."""
        self.deadline += limit_s - self.limit_s
        self.limit_s = limit_s


@dataclass(frozen=True)
class Reply:
    """An answer of a child to the request ``id``."""

    worker: Worker
    id: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Death:
    """A child is gone.

    Attributes:
        worker: The child.
        id: The request it was working on; None if it was idle or had not begun.
        status: What that request's result is.
        message: Why.
        from_outside: Whether somebody else killed it, so that what it was working on may be
            innocent.
    """

    worker: Worker
    id: int | None
    status: Status
    message: str
    from_outside: bool = False


class Worker:
    """One child process and the pipes to it. Created busy with starting.

    Args:
        config: The child's first message.
        threads: Size of the thread pool that kernels run on.
        start_timeout_s: Until when it must have said hello.
    """

    def __init__(self, config: WorkerConfig, threads: int, start_timeout_s: float) -> None:
        request_read, self._request_fd = os.pipe()
        self.reply_fd, reply_write = os.pipe()
        environment = {
            **os.environ,
            "TVM_NUM_THREADS": str(threads),
            # TVM's threads poll that often for more work before they sleep, by default for 0.1 to
            # 0.3 s: in that time the kernels of another process take two to three times as long.
            "TVM_THREAD_POOL_SPIN_COUNT": "2000",
            # The order of allocations decides where small ones lie.
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        try:
            with fixed_addresses() as fixed:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _COMMAND.format(request_read, reply_write)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=(request_read, reply_write),
                    start_new_session=True,
                    env=environment,
                )
        except OSError:
            os.close(self._request_fd)
            os.close(self.reply_fd)
            raise
        finally:
            os.close(request_read)
            os.close(reply_write)
        assert self._process.stderr is not None
        self.error_fd = self._process.stderr.fileno()
        for fd in (self._request_fd, self.reply_fd, self.error_fd):
            os.set_blocking(fd, False)
        self.pid = self._process.pid
        self.sketches: set[str] = set()
        self.builds = 0
        self.ready = False
        # What was asked for, until the child says what it got.
        self.fixed_addresses = fixed
        self.alive = True
        self.killed_for: tuple[Status, str] | None = None
        self.ended_by: int | None = None
        self._unsent = bytearray()
        self._frames = FrameReader()
        self._errors = bytearray()
        self.task: Task | None = self._task(0, start_timeout_s, "starting")
        self._send(pickle.dumps(config))

    @property
    def idle(self) -> bool:
        """Whether it is alive, started and has nothing to do."""
        return self.alive and self.ready and self.task is None

    @property
    def has_unsent(self) -> bool:
        """Whether a part of a request still waits for room in the pipe."""
        return bool(self._unsent)

    def request(self, op: str, limit_s: float, what: str, **fields: Any) -> None:
        """Asks for something that is answered; ``fields`` holds its ``id``."""
        assert self.task is None
        # What it complained of before is no news of this.
        self.receive_errors()
        self._errors.clear()
        self.task = self._task(fields["id"], limit_s, what)
        self.tell(op, **fields)

    def allow(self, limit_s: float) -> None:
        """Changes how long what it is doing may take, counted from its beginning."""
        if self.task is not None:
            self.task.allow(limit_s)

    def tell(self, op: str, **fields: Any) -> None:
        """Sends a request that is not answered."""
        self._send(pickle.dumps({"op": op, **fields}, protocol=pickle.HIGHEST_PROTOCOL))

    def _send(self, payload: bytes) -> None:
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
        """Bytes of memory in use; 0 once the process is gone."""
        try:
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except (OSError, IndexError):
            return 0

    def kill(self) -> None:
        """Ends the process from outside; what it held is built again elsewhere."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def exited(self) -> bool:
        """Whether the process has ended."""
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
        self.kill()
        self._process.wait()
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

    def _task(self, id: int, limit_s: float, what: str) -> Task:
        return Task(id, time.monotonic() + limit_s, what, limit_s, self.resident())


class WorkerPool:
    """Several children of one configuration.

    Args:
        spawn: Starts one child.
        count: How many to keep.
        memory_bytes: Resident memory a child may add while it works on one task.
        max_start_failures: Children in a row that may die before they were ready.
    """

    def __init__(
        self, spawn: Callable[[], Worker], count: int, memory_bytes: int, max_start_failures: int
    ) -> None:
        self._spawn = spawn
        self._count = count
        self._memory_bytes = memory_bytes
        self._max_start_failures = max_start_failures
        self._start_failures = 0
        self._selector = selectors.DefaultSelector()
        self.workers: list[Worker] = []

    def refill(self) -> None:
        """Starts children until there are as many as wanted.

        Raises:
            ForetuneError: None can be started.
        """
        while len(self.workers) < self._count:
            try:
                worker = self._spawn()
            except OSError as error:
                raise ForetuneError(
                    f"measuring needs child processes, but starting one failed: {error}"
                ) from error
            self.workers.append(worker)
            self._selector.register(worker.reply_fd, selectors.EVENT_READ, (worker, "reply"))
            self._selector.register(worker.error_fd, selectors.EVENT_READ, (worker, "error"))

    def idle(self) -> list[Worker]:
        """Children that can be asked for something."""
        return [worker for worker in self.workers if worker.idle and not worker.exited()]

    @property
    def busy(self) -> bool:
        """Whether any child starts or works."""
        return any(worker.task is not None for worker in self.workers)

    def wait(self) -> list[Reply | Death]:
        """Waits for something to happen, for a twentieth of a second at most.

        Raises:
            ForetuneError: Several children in a row died before they were ready.
        """
        for worker in self.workers:
            worker.flush()
        timeout = 0.001 if any(worker.has_unsent for worker in self.workers) else _TICK_S
        events: list[Reply | Death] = []
        for key, _ in self._selector.select(timeout):
            worker, kind = key.data
            if kind == "error":
                self._drain_errors(worker)
            elif worker.alive:
                events += self._receive(worker)
        for worker in list(self.workers):
            self._watch(worker)
            if worker.killed_for is not None or worker.exited():
                # Its last words may still be in the pipe.
                if worker.killed_for is None:
                    events += self._receive(worker)
                if worker.alive:
                    events.append(self._bury(worker))
        return events

    def _drain_errors(self, worker: Worker) -> None:
        if not worker.alive:
            # Buried since: by now the number of its pipe may be another file's.
            return
        worker.receive_errors()
        if worker.exited():
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.error_fd)

    def _receive(self, worker: Worker) -> list[Reply | Death]:
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
                worker.ready = True
                worker.fixed_addresses = bool(fields.pop("fixed_addresses", False))
                self._start_failures = 0
            if worker.task is not None and worker.task.id == number:
                worker.task = None
            if number:
                events.append(Reply(worker, number, fields))
        if not open_still:
            events.append(self._bury(worker))
        return events

    def _watch(self, worker: Worker) -> None:
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

    def _bury(self, worker: Worker) -> Death:
        self._forget(worker)
        status, message = worker.end()
        task, worker.task = worker.task, None
        if not worker.ready:
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

    def _forget(self, worker: Worker) -> None:
        self.workers.remove(worker)
        for fd in (worker.reply_fd, worker.error_fd):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)

    def retire(self, workers: Iterable[Worker]) -> None:
        """Ends children without calling it a failure."""
        for worker in list(workers):
            self._forget(worker)
            worker.end(dying=False)

    def close(self) -> None:
        """Ends every child. May be called twice."""
        self.retire(list(self.workers))
        self._selector.close()
