"""What scoring a candidate costs: features and prediction together, in batches.

For every ranker and for cost models of a tuning run, the default among them (and its draft, which
thins out what the model itself scores), in a process that has scored other candidates before.
*Cold*: candidates that nothing has looked at yet, so that a model which reads programs has to make
them first. *Warm*: the same candidates once more, with whatever was kept.

Rankers are trained on made-up seconds of a few candidates first: what they say does not matter
here, but an untrained one would not compute anything. Cost models are those of the package.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from foretune import cost
from foretune.cost import rankers
from foretune.dataset import Group, Program
from foretune.errors import MissingDependencyError
from foretune.hardware import Hardware
from foretune.space import Candidate, Space
from foretune.tuning import resolve_names
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "conv2d_add_relu", "softmax")
BATCHES = (1, 64, 512)
GOAL_MS = 1.0
"""Features and prediction together, per candidate, in batches."""
_GOAL_BATCH = 64
_CALLS = {1: 32, 64: 3, 512: 1}
"""Calls timed per batch size."""
_TRAINED_ON = ("matmul:96x96x96", "conv2d:1x14x14x32x32x3x1")
_TRAINING = 64
_WARM_UP = 16
_TITLE = "Time to score a candidate"

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


def training_groups(hardware: Hardware) -> list[Group]:
    """Two small groups with made-up seconds."""
    rng = np.random.default_rng(0)
    groups = []
    for name in _TRAINED_ON:
        candidates = Unscored(name, hardware).take(_TRAINING)
        first = candidates[0]
        groups.append(
            Group(
                workload=first.workload.key,
                name=name,
                kind=name.partition(":")[0],
                hardware=hardware.key,
                programs=[Program(candidate) for candidate in candidates],
                seconds=np.exp(rng.normal(-7.0, 1.0, len(candidates))),
                machine=hardware,
            )
        )
    return groups


def scorers(
    names: Sequence[str], cost_models: Sequence[str], hardware: Hardware
) -> dict[str, Scorer]:
    """What is timed, by name: rankers, then cost models."""
    groups = training_groups(hardware) if names else []
    found: dict[str, Scorer] = {}
    for name in names:
        try:
            ranker = rankers.create(name, seed=0)
        except MissingDependencyError as error:
            say(f"{name} is left out: {error}")
            continue
        ranker.fit(groups)
        found[name] = _scores_of(ranker, hardware)
        say(f"{name} is trained")
    for name in cost_models:
        resolved = resolve_names("default", name)[1]
        label = f"cost model {resolved}" + (" (default)" if name == "default" else "")
        model = cost.create(resolved, rng=0, hardware=hardware)
        found[label] = model.predict
        if name == "default":
            found[f"{label}, draft only"] = model.draft
    return found


def _scores_of(ranker: Any, hardware: Hardware) -> Scorer:
    def score(candidates: Sequence[Candidate]) -> Any:
        programs = [Program(candidate) for candidate in candidates]
        return ranker.score(programs, hardware, hardware.key)

    return score


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
            elapsed = time.perf_counter() - began
            readings.append(elapsed * 1e3 / batch)
    return milliseconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    # The world model, whose training alone takes minutes, is timed as a cost model.
    timed = [name for name in rankers.names() if not name.startswith(("random", "world"))]
    parser.add_argument("--models", default=",".join(timed))
    parser.add_argument("--cost-models", default="default,world")
    parser.add_argument("--page", default="model_speed", help="name of what --write writes")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    batches = [int(text) for text in options.batches.split(",")]
    if not set(batches) <= set(BATCHES):
        parser.error(f"batches are {', '.join(map(str, BATCHES))}")
    where = conditions("model_speed", [0])
    models, cost_models = (
        [name for name in text.split(",") if name] for text in (options.models, options.cost_models)
    )
    timed = scorers(models, cost_models, where.hardware)
    sources = [Unscored(name, where.hardware) for name in options.workloads.split(",")]
    rows = []
    for name, scorer in timed.items():
        for source in sources:
            scorer(source.take(_WARM_UP))
            for batch in batches:
                found = time_batches(scorer, source, batch)
                rows.append({"model": name, "workload": source.name, "batch": batch, **found})
            say(f"{name} on {source.name}")
    publish(options.page, _TITLE, _body(rows), {"rows": rows}, where.end(), options.write)


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str], list[float]]:
    """Median milliseconds per candidate of every workload, by model, batch and state."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for row in rows:
        for state in ("cold", "warm"):
            if row[state]:
                key = (row["model"], row["batch"], state)
                found.setdefault(key, []).append(float(np.median(row[state])))
    return found


def _body(rows: Sequence[Mapping[str, Any]]) -> str:
    medians = summarise(rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    batches = sorted({row["batch"] for row in rows})
    columns = [(batch, state) for batch in batches for state in ("cold", "warm")]
    judged = max((batch for batch in batches if batch <= _GOAL_BATCH), default=batches[0])
    lines = []
    for model in models:
        slowest = max(medians.get((model, judged, "cold"), [float("inf")]))
        met = "met" if slowest < GOAL_MS else "not met"
        lines.append(
            [model, *(_cell(medians.get((model, *column), [])) for column in columns), met]
        )
    header = ["model", *(f"{batch} at a time, {state}" for batch, state in columns),
              f"goal < {GOAL_MS:g} ms"]  # fmt: skip
    return table(header, lines) + (
        "\n\nMilliseconds per candidate, features and prediction together: mean over the workloads "
        f"and, in brackets, the slowest workload. The goal is judged by the slowest workload, "
        f"{judged} at a time, cold."
    )


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ({max(values):.3f})" if values else "–"


if __name__ == "__main__":
    main()
