"""Networks of a suite in processes that may die, and in the program itself; results are kept.

Processes answer one name after the other; one that dies is replaced. Results are kept as they come,
and an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks._coverage.suite import CRASH, PASS, REFUSED, Result, Suite
from benchmarks.results import say

_PROGRAM_S = 600.0
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


def spread(results: Iterable[Result], count: int) -> list[Result]:
    """So many networks that passed or were refused as they are, evenly spread over all."""
    fit = [r for r in results if r["outcome"] in (PASS, REFUSED) and not r.get("bound")]
    return fit[:: max(1, len(fit) // count)][:count] if count else []


def through_command_line(suite: Suite, results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Networks whose ``foretune tune`` does not end as they did in a process, and how it ended.

    One that passed ends with 0, one that was refused with 2 and one line.
    """
    wrong = []
    for result in results:
        with tempfile.TemporaryDirectory(prefix="foretune-suite-") as folder:
            given = suite.write(result["name"], Path(folder))
            command = [str(Path(sys.executable).with_name("foretune")), "tune", given]
            command += ["--trials", "1", "--store", "none"]
            command += ["--work-dir", f"{folder}/work", "-o", f"{folder}/out.so"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
                )
            except subprocess.TimeoutExpired:
                wrong.append(f"{result['name']}: no end in {_PROGRAM_S:g} s")
                continue
        wanted = 0 if result["outcome"] == PASS else 2
        lines = done.stderr.strip().splitlines()
        clean = wanted == 0 or (len(lines) == 1 and "Traceback" not in done.stderr)
        if done.returncode != wanted or not clean:
            ended = f"exit {done.returncode} instead of {wanted}: {lines[-1:]}"
            wrong.append(f"{result['name']}: {ended}")
            say(wrong[-1])
    return wrong
