"""What carries requests to workers and brings back what became of them.

A transport never interprets what a worker is asked to do. It delivers requests, hands back replies,
and turns everything else that can happen to a worker into a ``Death`` with a status. Who is asked
for what, and what an answer means for a candidate, is decided by those who hold the jobs
(``measure/_desk.py``).
"""

from __future__ import annotations

import abc
import pickle
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foretune.measure._base import Status

TICK_S = 0.05
"""How long a transport waits for news at most, before its user looks around again."""


@dataclass
class Task:
    """What a busy worker is doing.

    Attributes:
        id: Number of the request; 0 while the worker starts.
        deadline: Monotonic time at which it is overdue.
        what: For messages: ``"building"``, ``"running"``...
        limit_s: The limit that ``deadline`` came from.
        resident_bytes: Memory the worker had in use when it was asked.
        begun: Whether the worker has said that it began.
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
    """An answer of a worker to the request ``id``."""

    worker: Worker
    id: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Death:
    """A worker is gone.

    Attributes:
        worker: The worker.
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


class Worker(abc.ABC):
    """One that builds and runs programs, as seen by those who ask. Created busy with starting.

    Attributes:
        pid: A number that tells it from others; of a local process its process id.
        device: Name of the device that it times on, where that is not the machine itself.
        sketches: Names of the sketches that it was told.
        contents: Numbers of the references whose content it was sent.
        builds: Programs that it was asked to build.
        ready: Whether it has said hello.
        hello: What it said then, or before it ended without.
        fixed_addresses: Whether it runs without address-space randomisation.
        alive: Whether it may still answer.
        task: What it is doing; None if nothing.
    """

    def __init__(self, pid: int, device: str = "") -> None:
        self.pid = pid
        self.device = device
        self.sketches: set[str] = set()
        self.contents: set[int] = set()
        self.builds = 0
        self.ready = False
        self.hello: dict[str, Any] = {}
        self.fixed_addresses = False
        self.alive = True
        self.task: Task | None = None

    @property
    def idle(self) -> bool:
        """Whether it is alive, started and has nothing to do."""
        return self.alive and self.ready and self.task is None

    def request(self, op: str, limit_s: float, what: str, **fields: Any) -> None:
        """Asks for something that is answered; ``fields`` holds its ``id``."""
        assert self.task is None
        self.task = self.new_task(fields["id"], limit_s, what)
        self.tell(op, **fields)

    def tell(self, op: str, **fields: Any) -> None:
        """Sends a request that is not answered."""
        self.send(pickle.dumps({"op": op, **fields}, protocol=pickle.HIGHEST_PROTOCOL))

    def allow(self, limit_s: float) -> None:
        """Changes how long what it is doing may take, counted from its beginning."""
        if self.task is not None:
            self.task.allow(limit_s)

    def new_task(self, id: int, limit_s: float, what: str) -> Task:
        """What it will be doing from now on."""
        return Task(id, time.monotonic() + limit_s, what, limit_s, self.resident())

    def resident(self) -> int:
        """Bytes of memory in use; 0 where that is not known."""
        return 0

    @abc.abstractmethod
    def send(self, payload: bytes) -> None:
        """Has a message carried to it, in order, without waiting."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends it from outside; what it held is built again elsewhere."""

    @abc.abstractmethod
    def exited(self) -> bool:
        """Whether it has ended."""


class Transport(abc.ABC):
    """Several workers, and the news of them.

    Life cycle: construct, ``refill`` and ``wait`` as often as wanted, ``close`` once. The caller
    asks workers that are idle for something, one thing at a time, and takes in what ``wait`` tells.

    Attributes:
        shares_files: Whether workers can open files of this process by their paths. Where they
            cannot, references travel by content.
        workers: Those that are there, starting ones included.
    """

    shares_files: bool = True

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def idle(self, device: str | None = "") -> list[Worker]:
        """Workers that can be asked for something.

        Args:
            device: Those that time on it; "" those that build, None all.
        """
        return [
            worker
            for worker in self.workers
            if worker.idle and device in (None, worker.device) and not worker.exited()
        ]

    @property
    def busy(self) -> bool:
        """Whether any worker starts or works."""
        return any(worker.task is not None for worker in self.workers)

    @abc.abstractmethod
    def refill(self) -> None:
        """Starts workers until there are as many as wanted.

        Raises:
            ForetuneError: None can be started.
        """

    @abc.abstractmethod
    def wait(self, seconds: float = TICK_S) -> Sequence[Reply | Death]:
        """Waits for something to happen.

        Args:
            seconds: For so long at most.

        Raises:
            ForetuneError: Several workers in a row died before they were ready.
        """

    @abc.abstractmethod
    def retire(self, workers: Iterable[Worker]) -> None:
        """Ends workers without calling it a failure."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends every worker. May be called twice."""
