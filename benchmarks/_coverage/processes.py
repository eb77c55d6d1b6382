"""Networks of a suite in processes that may die; results are kept.

Processes answer one name after the other; one that dies is replaced. Results are kept as they come,
and an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from benchmarks._coverage.suite import CRASH, PASS, Result, Suite
from benchmarks.results import say

_LONGEST_SAID = 200


class _Worker:
    def __init__(self, suite: Suite) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, suite), daemon=True)
        self.process.start()
        other.close()
        self.task = ""
        self.done = 0

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _serve(connection: Connection, suite: Suite) -> None:
    """Answers names with results until the other end closes."""
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    import torch

    from foretune.hardware import probe

    torch.set_num_threads(1)
    hardware = probe(threads=1)
    connection.send({"ready": True})
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        began = time.perf_counter()
        result = suite.attempt(name, hardware)
        connection.send({"name": name, **result, "seconds": time.perf_counter() - began})


def run(suite: Suite, names: Sequence[str], workers: int) -> Iterator[Result]:
    """Results in the order in which they come; the end of a process is the outcome ``crash``."""
    waiting = list(reversed(names))
    alive = [_Worker(suite) for _ in range(min(workers, len(names)))]
    while alive:
        ready = wait([worker.connection for worker in alive], suite.patience_s)
        for worker in [w for w in alive if w.connection in ready or not ready]:
            try:
                result = worker.connection.recv() if ready else None
            except EOFError:
                result = None
            if worker.task:
                message = f"exit {worker.process.exitcode}" if ready else "no answer in time"
                crash = {"outcome": CRASH, "message": message, "seconds": 0.0}
                yield result or {"name": worker.task, **crash}
                worker.done += 1
            if result is None or worker.done == suite.tasks_each or not waiting:
                worker.end()
                alive.remove(worker)
                if waiting:
                    alive.append(_Worker(suite))
                continue
            worker.task = waiting.pop()
            worker.connection.send(worker.task)


def recorded(path: Path) -> dict[str, Result]:
    """The results that a file of records holds, the last one of each name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def run_recorded(suite: Suite, names: Sequence[str], path: Path, workers: int) -> list[Result]:
    """Results of networks in order; each is added to a file of records as it comes.

    Args:
        suite: Theirs.
        names: Of the networks; those that the file holds are not tried again.
        path: The file of records.
        workers: Processes at once.
    """
    results = recorded(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for result in run(suite, [name for name in names if name not in results], workers):
            results[result["name"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            if result["outcome"] != PASS and result["message"]:
                told = " ".join(result["message"].split())[:_LONGEST_SAID]
                say(f"{result['name']}: {result['outcome']}: {told}")
    return [results[name] for name in names]
