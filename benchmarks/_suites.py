"""Long-lived processes that answer one task after the other; a dead one is replaced."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

OUTCOMES = ("pass", "refused", "another result", "broken", "crash")
_PATIENCE_S = 180.0

Serve = Callable[[Connection], None]
"""What a process does: says that it is ready, then answers names of tasks with results."""


class _Worker:
    def __init__(self, serve: Serve) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.task = ""

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def run(serve: Serve, names: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Results in the order in which they come; the end of a process is the outcome ``crash``."""
    waiting = list(reversed(names))
    alive = [_Worker(serve) for _ in range(min(workers, len(names)))]
    while alive:
        ready = wait([worker.connection for worker in alive], _PATIENCE_S)
        for worker in [w for w in alive if w.connection in ready or not ready]:
            try:
                result = worker.connection.recv() if ready else None
            except EOFError:
                result = None
            if result is None or "name" in result:
                crashed = result is None
                if worker.task:
                    message = f"exit {worker.process.exitcode}" if ready else "no answer in time"
                    yield result or {"name": worker.task, "outcome": "crash", "message": message,
                                     "bound": [], "seconds": 0.0}  # fmt: skip
                if crashed:
                    worker.end()
                    alive.remove(worker)
                    if waiting:
                        alive.append(_Worker(serve))
                    continue
            worker.task = waiting.pop() if waiting else ""
            if worker.task:
                worker.connection.send(worker.task)
            else:
                worker.end()
                alive.remove(worker)
