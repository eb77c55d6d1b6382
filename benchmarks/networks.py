"""Whole networks tuned for 20 minutes each, then compared with other engines in one run each.

Calls the command line, as a user does. A network whose result is in the work directory already is
not tuned again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.results import conditions, publish, read_json, say, table

NETWORKS = ("resnet50", "mobilenet_v2", "bert_base")
ENGINES = ("eager", "inductor", "onnxruntime", "openvino")
# The whole time is used, however long a task has not gained.
_NEVER_STOPS = 10**9
_TITLE = "Whole networks beside other engines"


def _foretune(*arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("foretune")), *arguments]
    say(" ".join(["foretune", *arguments]))
    subprocess.run(command, check=True)


def run_network(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tunes one network and compares it; returns both JSON objects."""
    folder = options.work_dir / name
    folder.mkdir(parents=True, exist_ok=True)
    artifact, tuned, compared = (folder / f for f in (f"{name}.so", "tune.json", "compare.json"))
    if not (artifact.exists() and tuned.exists()):
        budget = ["--trials", str(options.trials)] if options.trials else []
        _foretune(
            "tune", name, *(budget or ["--time", str(options.time)]), "--seed", str(options.seed),
            "--patience", str(_NEVER_STOPS),
            "--work-dir", str(folder / "work"), "-o", str(artifact), "--json", str(tuned),
        )  # fmt: skip
    _foretune(
        "compare", name, "--artifact", str(artifact), "--against", options.against,
        "--json", str(compared),
    )  # fmt: skip
    return {"tune": without_repeats(read_json(tuned)), "compare": read_json(compared)}


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--time", type=float, default=1200.0, help="seconds of tuning for each")
    parser.add_argument("--trials", type=int, help="instead of --time")
    parser.add_argument("--against", default=",".join(ENGINES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/networks"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("networks", [options.seed])
    results = {name: run_network(name, options) for name in options.networks.split(",")}
    publish("networks", _TITLE, _body(results), results, where.end(), options.write)


def _body(results: dict[str, Any]) -> str:
    engines: list[str] = []
    for result in results.values():
        for engine in result["compare"]["latency_s"]:
            if engine not in engines:
                engines.append(engine)
    rows = []
    for name, result in results.items():
        latency = result["compare"]["latency_s"]
        tune = result["tune"]
        trials = sum(task["trial_count"] for task in tune["tasks"])
        error = _error(result["compare"].get("max_abs_error"))
        rows.append(
            [name, *(_cell(latency.get(engine)) for engine in engines),
             error, f"{len(tune['tasks'])}", str(trials), f"{tune['elapsed_s']:.0f}"]
        )  # fmt: skip
    header = ["network", *(f"{engine}, ms" for engine in engines), "largest error", "tasks",
              "trials", "tuned for s"]  # fmt: skip
    return table(header, rows) + (
        "\n\nMedian latency of one call with its interval, batch 1, fp32; all engines of a row "
        "measured in one run."
    )


def _error(errors: Any) -> str:
    error = errors.get("foretune") if isinstance(errors, dict) else errors
    return "-" if error is None else f"{error:.1e}"


def _cell(latency: Any) -> str:
    if not latency:
        return "-"
    if isinstance(latency, (int, float)):
        return f"{latency * 1e3:.2f}"
    median = latency.get("median", latency.get("latency_s"))
    if median is None:
        return "-"
    return f"{median * 1e3:.2f} ({latency['low'] * 1e3:.2f} to {latency['high'] * 1e3:.2f})"


if __name__ == "__main__":
    main()
