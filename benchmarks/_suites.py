"""What suites of many small networks share: processes, records, outcomes, the command line.

Long-lived processes answer one task after the other; one that dies is replaced. Results are kept as
they come, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.results import say, table

OUTCOMES = ("pass", "refused", "another result", "broken", "crash")
_PATIENCE_S = 180.0
_PROGRAM_S = 600.0

Results = dict[str, dict[str, Any]]
"""Outcome, message and more of each task, by name."""

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


def add_options(parser: argparse.ArgumentParser, records: str) -> None:
    """The options that every suite has."""
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--records", type=Path, default=Path(records), metavar="FILE")
    parser.add_argument("--fresh", action="store_true", help="forgets what FILE holds")
    parser.add_argument("--write", action="store_true", help="writes the page of results")


def recorded(path: Path, fresh: bool = False) -> Results:
    """The results that a file of records holds, the last one of each name."""
    if fresh:
        path.unlink(missing_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def run_recorded(
    serve: Serve, names: Sequence[str], path: Path, workers: int, silent: Collection[str]
) -> Results:
    """Results of tasks, each written to the file of records as it comes.

    Args:
        serve: See ``run``.
        names: Of the tasks.
        path: The file of records; lines are added.
        workers: Processes at once.
        silent: Outcomes that are not said.
    """
    results: Results = {}
    with path.open("a", encoding="utf-8") as file:
        for result in run(serve, names, workers):
            results[result["name"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            if result["outcome"] not in silent:
                told = " ".join(result.get("operators", []))
                said = f"{result['name']}: {result['outcome']}: {result['message'][:200]}"
                say(f"{said} [{told}]" if told else said)
    return results


def spread(results: Mapping[str, Any], count: int) -> list[str]:
    """Names of ``count`` tasks that passed or were refused, evenly spread over all."""
    fit = [name for name, r in results.items() if r["outcome"] in ("pass", "refused")]
    return fit[:: max(1, len(fit) // count)][:count] if count else []


def through_command_line(
    results: Mapping[str, Any], names: Iterable[str], write: Callable[[str, Path], str]
) -> list[str]:
    """Tasks whose ``foretune tune`` does not end as they did in a worker, and how it ended.

    One that passed ends with 0, one that was refused with 2 and one line.

    Args:
        results: Outcomes by name.
        names: Which to try.
        write: Writes the model of a name into a folder; returns what the program is given.
    """
    wrong = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="foretune-suite-") as folder:
            given = write(name, Path(folder))
            command = [str(Path(sys.executable).with_name("foretune")), "tune", given]
            command += ["--trials", "1", "--store", "none"]
            command += ["--work-dir", f"{folder}/work", "-o", f"{folder}/out.so"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
                )
            except subprocess.TimeoutExpired:
                wrong.append(f"{name}: no end in {_PROGRAM_S:g} s")
                continue
        wanted = 0 if results[name]["outcome"] == "pass" else 2
        lines = done.stderr.strip().splitlines()
        clean = wanted == 0 or (len(lines) == 1 and "Traceback" not in done.stderr)
        if done.returncode != wanted or not clean:
            wrong.append(f"{name}: exit {done.returncode} instead of {wanted}: {lines[-1:]}")
            say(wrong[-1])
    return wrong


def outcome_table(
    header: str, results: Iterable[Mapping[str, Any]], group: Callable[..., Any]
) -> str:
    """How many results of each group have which outcome.

    Args:
        header: What the groups are.
        results: Outcomes.
        group: The group's name of a result.
    """
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(group(result), Counter())[result["outcome"]] += 1
    rows = [[name, *(str(count[o] or "") for o in OUTCOMES)] for name, count in counts.items()]
    return table([header, *OUTCOMES], sorted(rows))


def told(results: Iterable[Mapping[str, Any]], good: Collection[str]) -> list[str]:
    """A line for each result that is none of the good ones."""
    return [
        f"- `{r['name']}`: {r['outcome']}: {' '.join(r['message'].split())}"
        for r in results
        if r["outcome"] not in good
    ]


def tried_by_command(wrong: Sequence[str], count: int) -> str:
    """The paragraph on what ``through_command_line`` found; empty where nothing was tried."""
    if not count:
        return ""
    lines = [f"Through the command line: {count}, {len(wrong)} of them end otherwise."]
    return "\n".join(["", "", *lines, *(f"- {line}" for line in wrong)])
