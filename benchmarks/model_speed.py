"""What scoring a candidate costs: features and prediction together, in batches.

For cost models of a tuning run, the default among them (and its draft, which thins out what the
model itself scores), in a process that has scored other candidates before. Beside them, without any
model, what a ranker of programs has to do first: replay a candidate and read its per-store
features. *Cold*: candidates that nothing has looked at yet, so that a model which reads programs
has to make them first. *Warm*: the same candidates once more, with whatever was kept. What is
written replaces the run of the same models on the same machine, and leaves the others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pages import Section, publish
from benchmarks.results import conditions, quoted, readings_of, say, table
from foretune import cost
from foretune.features import extract_per_store
from foretune.hardware import Hardware
from foretune.space import Candidate, Space
from foretune.tuning import resolve_names
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "conv2d_add_relu", "softmax")
GOAL_MS, _GOAL_BATCH = 1.0, 64
"""Features and prediction together, per candidate, in batches."""
PROGRAMS = "replay + per-store features, no model"
_CALLS = {1: 32, 64: 3, 512: 1}
"""Calls timed per batch size."""
_WARM_UP = 16

Scorer = Callable[[Sequence[Candidate]], Any]


class Unscored:
    """Candidates of a workload, none of them given out twice.

    Args:
        name: What to load.
        hardware: What for.
    """

    def __init__(self, name: str, hardware: Hardware) -> None:
        workload = load_input(name)
        assert isinstance(workload, Workload), f"{name} is a model: name a single tensor program"
        self.name = name
        self._space = Space.generate(workload, hardware)
        self._rng = np.random.default_rng(0)
        self._given: set[str] = set()

    def take(self, n: int) -> list[Candidate]:
        """``n`` candidates; fewer once the space is exhausted."""
        found: list[Candidate] = []
        for _ in range(16):
            for candidate in self._space.sample(self._rng, n - len(found)):
                if candidate.key not in self._given:
                    self._given.add(candidate.key)
                    found.append(candidate)
            if len(found) == n:
                break
        return found


def scorers(names: Sequence[str], hardware: Hardware) -> dict[str, Scorer]:
    """What is timed, by name: cost models, and reading programs without a model."""
    found: dict[str, Scorer] = {}
    for name in names:
        resolved = resolve_names("default", name)[1]
        model = cost.create(resolved, rng=0, hardware=hardware)
        label = f"cost model {resolved}" + (" (default)" if name == "default" else "")
        found[label] = model.predict
        if name == "default":
            found[f"{label}, draft only"] = model.draft
    return {**found, PROGRAMS: extract_per_store}


def time_batches(scorer: Scorer, source: Unscored, batch: int) -> dict[str, list[float]]:
    """Milliseconds per candidate of each call, cold and warm; none where a space is too small."""
    milliseconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(_CALLS[batch]):
        candidates = source.take(batch)
        if len(candidates) < batch:
            break
        for readings in milliseconds.values():
            began = time.perf_counter()
            scorer(candidates)
            readings.append((time.perf_counter() - began) * 1e3 / batch)
    return milliseconds


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    main, *others = data["runs"]
    medians = _medians(main["rows"])
    models = list(dict.fromkeys(model for model, _, _ in medians))
    slowest = {model: max(medians.get((model, _GOAL_BATCH, "cold"), [np.inf])) for model in models}
    met = [model for model in models if slowest[model] < GOAL_MS]
    default = next((model for model in models if model.endswith("(default)")), models[0])
    own = medians[default, _GOAL_BATCH, "cold"]
    return Section(
        "What does a score cost?",
        f"`{default}` takes {np.mean(own):.2f} ms a candidate in batches of {_GOAL_BATCH}, "
        f"{max(own):.2f} on the slowest workload; less than the goal of {GOAL_MS:g} ms take "
        f"{len(met)} of {len(models)} models, those that make no programs.",
        _table(medians),
        "Milliseconds per candidate, features and prediction together: mean over the workloads "
        "and, in brackets, the slowest workload.\n\n"
        + "\n\n".join(
            f"{quoted(run['conditions']['command'])} on {run['conditions']['hardware']['name']}, "
            f"{run['conditions']['began']}:\n\n{_table(_medians(run['rows']))}"
            for run in others
        ),
    )


def _medians(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str], list[float]]:
    """Median milliseconds per candidate of every workload, by model, batch and state."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for row in rows:
        for state in ("cold", "warm"):
            if row[state]:
                key = (row["model"], row["batch"], state)
                found.setdefault(key, []).append(float(np.median(row[state])))
    return found


def _table(medians: Mapping[tuple[str, int, str], Sequence[float]]) -> str:
    columns = sorted({(batch, state) for _, batch, state in medians})
    lines = [
        [model, *(_cell(medians.get((model, *column), [])) for column in columns)]
        for model in dict.fromkeys(model for model, _, _ in medians)
    ]
    return table(["model", *(f"{batch} at a time, {state}" for batch, state in columns)], lines)


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ({max(values):.3f})" if values else "–"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--cost-models", default="default,world")
    parser.add_argument("--batches", type=int, nargs="+", choices=_CALLS, default=list(_CALLS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("model_speed", [0])
    names = [name for name in options.cost_models.split(",") if name]
    sources = [Unscored(name, where.hardware) for name in options.workloads.split(",")]
    rows = []
    for name, scorer in scorers(names, where.hardware).items():
        for source in sources:
            scorer(source.take(_WARM_UP))
            for batch in options.batches:
                times = time_batches(scorer, source, batch)
                rows.append({"model": name, "workload": source.name, "batch": batch, **times})
            say(f"{name} on {source.name}")
    run = {"rows": rows, "conditions": where.end()}
    known = (readings_of("model_speed") or {"runs": []})["runs"] if options.write else []
    kept = [one for one in known if _what(one) != _what(run)]
    data = {"schema": "foretune.model_speed/1", "runs": [run, *kept]}
    publish("model_speed", section, data, run["conditions"], options.write)


def _what(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of what and where a run is."""
    models = {(row["model"], row["batch"]) for row in run["rows"]}
    return run["conditions"]["hardware"]["name"], sorted(models)


if __name__ == "__main__":
    main()
