"""What scoring a candidate costs: features and prediction together, in batches.

For every ranker and for cost models of a tuning run, the default among them (and its draft, which
thins out what the model itself scores), in a process that has scored other candidates before.
Beside them, without any model, what a ranker of programs has to do first: replay a candidate and
read its per-store features. *Cold*: candidates that nothing has looked at yet, so that a model
which reads programs has to make them first. *Warm*: the same candidates once more, with whatever
was kept.

Rankers are trained on made-up seconds of a few candidates first: what they say does not matter
here, but an untrained one would not compute anything. Cost models are those of the package.

Of cost models and of reading programs the page also says how many cold candidates are scored in a
second: in one process, as a search scores (its model has one thread, programs are made on all
cores), and in as many processes at once as there are cores, each with one thread.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._at_once import at_once
from benchmarks.results import conditions, publish, say, table
from foretune import cost
from foretune.cost import rankers
from foretune.dataset import Group, Program
from foretune.errors import MissingDependencyError
from foretune.features import extract_per_store
from foretune.hardware import Hardware
from foretune.space import Candidate, Space
from foretune.tuning import resolve_names
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "conv2d_add_relu", "softmax")
BATCHES = (1, 64, 512)
GOAL_MS = 1.0
"""Features and prediction together, per candidate, in batches."""
_GOAL_BATCH = 64
GOAL_RATE = {"world": 5000.0}
"""Cold candidates a second, by cost model, in batches of ``RATE_BATCH``."""
RATE_BATCH = 512
_RATE_CALLS, _RATE_S = 3, 2.0
"""Batches timed of a workload, unless fewer have taken so long already."""
PROGRAMS = "replay + per-store features, no model"
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
        seed: Of the candidates.
    """

    def __init__(self, name: str, hardware: Hardware, seed: int = 0) -> None:
        workload = load_input(name)
        assert isinstance(workload, Workload), f"{name} is a model: name a single tensor program"
        self.name = name
        self._space = Space.generate(workload, hardware)
        self._rng = np.random.default_rng(seed)
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
    """What is timed, by name: rankers, cost models, and reading programs without a model."""
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
        model = _model(name, hardware)
        found[label(name)] = model.predict
        if name == "default":
            found[f"{label(name)}, draft only"] = model.draft
    return {**found, PROGRAMS: extract_per_store}


def _model(name: str, hardware: Hardware) -> cost.CostModel:
    return cost.create(resolve_names("default", name)[1], rng=0, hardware=hardware)


def label(name: str) -> str:
    """A cost model, or ``PROGRAMS``, in the tables."""
    if name == PROGRAMS:
        return name
    resolved = resolve_names("default", name)[1]
    return f"cost model {resolved}" + (" (default)" if name == "default" else "")


def _scores_of(ranker: Any, hardware: Hardware) -> Scorer:
    def score(candidates: Sequence[Candidate]) -> Any:
        programs = [Program(candidate=candidate) for candidate in candidates]
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


# Candidates a second


def rates(
    names: Sequence[str],
    workloads: Sequence[str],
    hardware: Hardware,
    processes: int,
    batch: int = RATE_BATCH,
) -> list[dict[str, Any]]:
    """Cold candidates a second of processes that score at the same time.

    Args:
        names: Cost models, or ``PROGRAMS``.
        workloads: Whose candidates are scored.
        hardware: What for.
        processes: How many score. One alone makes programs on all cores, as in a search; several
            have one thread each.
        batch: Candidates at a time; what is left of a smaller space.

    Returns:
        By name and workload: ``model, workload, processes``, and ``rate``, the sum over processes.
    """
    found = at_once(processes, _score_beside, names, workloads, hardware, processes, batch)
    return [
        {"model": label(name), "workload": workload, "processes": processes, "rate": sum(each)}
        for (name, workload), each in zip(
            ((name, workload) for name in names for workload in workloads),
            zip(*found, strict=True),
            strict=True,
        )
    ]


def _score_beside(
    seed: int,
    together: Any,
    names: Sequence[str],
    workloads: Sequence[str],
    hardware: Hardware,
    processes: int,
    batch: int,
) -> list[float]:
    """A process of ``rates``: its candidates a second, by name and workload."""
    # One alone has all cores to make programs on.
    extract = functools.partial(extract_per_store, threads=0 if processes == 1 else 1)
    found = []
    # One source for all models: what one of them has read, the next one must not find.
    sources = [Unscored(workload, hardware, seed) for workload in workloads]
    for name in names:
        scorer = extract if name == PROGRAMS else _model(name, hardware).predict
        for source in sources:
            scorer(source.take(_WARM_UP))
            batches = [source.take(batch) for _ in range(_RATE_CALLS)]
            together.wait()
            found.append(rate(scorer, batches))
    return found


def rate(scorer: Scorer, batches: Iterable[Sequence[Candidate]]) -> float:
    """Candidates a second over batches, all of them or as many as some seconds allow."""
    scored, began = 0, time.perf_counter()
    for batch in batches:
        scorer(batch)
        scored += len(batch)
        if time.perf_counter() - began > _RATE_S:
            break
    return scored / (time.perf_counter() - began)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    # The world model, whose training alone takes minutes, is timed as a cost model.
    usual = [name for name in rankers.names() if not name.startswith(("random", "world"))]
    parser.add_argument("--models", default=",".join(usual))
    parser.add_argument("--cost-models", default="default,world")
    parser.add_argument("--page", default="model_speed", help="name of what --write writes")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--processes", type=int, help="that score at once; one per core unless set")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    batches = [int(text) for text in options.batches.split(",")]
    if not set(batches) <= set(BATCHES):
        parser.error(f"batches are {', '.join(map(str, BATCHES))}")
    if options.processes is not None and options.processes < 1:
        parser.error(f"processes >= 1 must hold, but got {options.processes}")
    where = conditions("model_speed", [0])
    models = [name for name in options.models.split(",") if name]
    cost_models = [name for name in options.cost_models.split(",") if name]
    workloads = options.workloads.split(",")
    # First, while nothing else runs in this process.
    found = []
    for processes in sorted({1, options.processes or where.hardware.threads}):
        found += rates([*cost_models, PROGRAMS], workloads, where.hardware, processes)
        say(f"candidates a second of {_processes(processes)}")
    timed = scorers(models, cost_models, where.hardware)
    sources = [Unscored(name, where.hardware) for name in workloads]
    rows = []
    for name, scorer in timed.items():
        for source in sources:
            scorer(source.take(_WARM_UP))
            for batch in batches:
                found_ms = time_batches(scorer, source, batch)
                rows.append({"model": name, "workload": source.name, "batch": batch, **found_ms})
            say(f"{name} on {source.name}")
    body = f"{_body(rows)}\n\n{_rates_body(found)}"
    data = {"rows": rows, "rates": found}
    publish(options.page, _TITLE, body, data, where.end(), options.write)


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


def _rates_body(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of candidates a second, and who has reached a goal."""
    by_model: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {}).setdefault(row["processes"], []).append(row["rate"])
    counts = sorted({row["processes"] for row in rows})
    header = ["candidates a second", *(_processes(count) for count in counts)]
    lines = [
        [model, *(f"{np.mean(each[n]):,.0f} ({min(each[n]):,.0f})" for n in counts)]
        for model, each in by_model.items()
    ]
    goals = [
        f"- Goal: at least {least:,.0f} candidates a second with the cost model {name}, on the "
        f"slowest workload: {_reached(by_model[label(name)], counts, least)}."
        for name, least in GOAL_RATE.items()
        if label(name) in by_model
    ]
    return "\n\n".join(
        [
            "## Candidates a second",
            f"Cold, {RATE_BATCH} at a time: mean over the workloads and, in brackets, the slowest "
            "workload. A search scores in one process, in which a model has one thread, and "
            "programs are made on all cores. Several processes have one thread each, and their "
            "candidates are added up: that is what searches side by side get through.",
            table(header, lines),
            "\n".join(goals),
        ]
    ).rstrip()


def _reached(each: Mapping[int, Sequence[float]], counts: Sequence[int], least: float) -> str:
    return "; ".join(
        f"{_processes(count)} {min(each[count]):,.0f}, "
        f"{'met' if min(each[count]) >= least else 'not met'}"
        for count in counts
    )


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ({max(values):.3f})" if values else "–"


if __name__ == "__main__":
    main()
