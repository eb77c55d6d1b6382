"""Calls of the command line whose results are kept, so that a run goes on where it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._networks.figures import ratio
from benchmarks.results import read_json, say

# The whole time is used, however long a task has not gained.
_NEVER_STOPS = 10**9
_ROUNDS = 40


def foretune(*arguments: str) -> None:
    """Runs the program as a user does.

    Raises:
        RuntimeError: It did not end with 0; the message has its last words.
    """
    program = str(Path(sys.executable).with_name("foretune"))
    say(" ".join(["foretune", *arguments]))
    last = "without a word"
    with subprocess.Popen([program, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            last = line.strip() or last
    if process.returncode:
        raise RuntimeError(f"foretune {arguments[0]} ended with {process.returncode}: {last}")


def tuned(source: str, folder: Path, seconds: float, seed: int, extra: Sequence[str] = ()
          ) -> tuple[Path, dict[str, Any]]:  # fmt: skip
    """The artifact of a network and the result of its tuning.

    Both are kept in ``folder``. Tuning that was interrupted goes on from the journal there.

    Args:
        source: What is tuned: a name of the catalog or a file.
        folder: Of this network alone.
        seconds: Of tuning.
        seed: Of everything random.
        extra: Further arguments of ``foretune tune``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    artifact, result = folder / "network.so", folder / "tune.json"
    if not _is_whole(artifact, result):
        foretune(
            "tune", source, "--time", f"{seconds:g}", "--seed", str(seed),
            "--patience", str(_NEVER_STOPS), "--work-dir", str(folder / "work"),
            "-o", str(artifact), "--json", str(result), "--store", "none", *extra,
        )  # fmt: skip
    return artifact, without_repeats(read_json(result))


def _is_whole(artifact: Path, result: Path) -> bool:
    """An artifact is there early, and a result also after Ctrl-C."""
    return artifact.exists() and result.exists() and not read_json(result)["interrupted"]


def in_turns(name: str, artifacts: Mapping[str, Path], seed: int) -> dict[str, Any]:
    """Two artifacts of a network timed in turn, each in a process of its own.

    Args:
        name: Of the network, in the catalog.
        artifacts: Label to artifact, two.
        seed: Of orders and intervals.

    Returns:
        ``ratio`` of the second's latency to the first's, ``median`` and ``readings`` of both, and
        ``within_tolerance`` of the second.

    Raises:
        RuntimeError: One of them does not run.
    """
    from foretune.engines import compare
    from foretune.hardware import probe
    from foretune.workload import Model, load_input

    model = load_input(name)
    assert isinstance(model, Model)
    found = compare(
        model, artifacts, [], threads=probe().threads, rounds=_ROUNDS, seed=seed, progress=say
    )
    for side, one in found.items():
        if one.error:
            raise RuntimeError(f"{side}: {one.error}")
    first, second = artifacts
    return {
        "ratio": ratio(found[second].readings, found[first].readings, seed),
        "median": {side: one.median for side, one in found.items()},
        "readings": {side: list(one.readings) for side, one in found.items()},
        "within_tolerance": found[second].within_tolerance,
    }


def or_error(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` returns, or ``error``: one that fails must not lose the others."""
    try:
        return make()
    except Exception as error:  # whatever a network, an engine or a compiler may raise
        lines = str(error).strip().splitlines() or [""]
        say(f"{name} failed: {type(error).__name__}: {lines[0]}")
        return {"error": f"{type(error).__name__}: {lines[0]}"}


def without_repeats(tune: dict[str, Any]) -> dict[str, Any]:
    """A result of thousands of trials with only those that improved a task, and their number."""
    tasks = []
    for task in tune["tasks"]:
        improved, best = [], None
        for trial in task["trials"]:
            if trial["best_s"] != best:
                best = trial["best_s"]
                improved.append(trial)
        tasks.append({**task, "trials": improved, "trial_count": len(task["trials"])})
    return {**tune, "tasks": tasks}
