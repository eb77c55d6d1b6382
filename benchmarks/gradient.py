"""Gradient search, evolution and random candidates on one frozen model: the Felix paper's figure 8.

The model is the perceptron that comes with the package; nothing is measured, nothing learns, and no
other model is asked. On each subgraph evolution makes four generations of 2,048 candidates, random
search draws as many, and gradient search makes as many predictions in rounds; what it makes beyond
that in its last round does not count. For each side: after how many predictions, and after how many
seconds, the best exact score is the best that evolution has in the end; and the best and the 64th
best score after so many predictions. All sides score from formulas; a point of a climb counts as
one prediction, like a candidate. Seconds are of the processor, on one thread, and hold everything,
compiling formulas too: every cell is a process of its own, so that none finds what another has
compiled. Of candidates that are scored together, each counts as known after its share of the time.

Cells are kept in the work directory; called again, it goes on where it was interrupted. Calls with
a core each can share it by ``--workloads``, and a last one writes the page. The search itself, with
measurements, is the benchmark ``search22``::

    python -m benchmarks.search22 --strategies gradient,evolutionary,metaschedule-quick-start \\
        --cost-models mlp:formulas --controls "" --page search22-gradient \\
        --work-dir foretune-work/search22-gradient --write
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results import conditions, publish, read_json, say, table
from benchmarks.sources import state_of_ours
from foretune import cost
from foretune.bench import geometric_mean, write_json
from foretune.cli._options import parse_options
from foretune.cost import CostModel, Prediction
from foretune.hardware import Hardware
from foretune.search._descent import Landscape
from foretune.search._guide import Guide
from foretune.space import Space
from foretune.workload import Workload, catalog, load_input
from foretune_research.climbs import OBJECTIVES, GradientStudy, StudyConfig, study_guide

PREDICTIONS = 8192
"""Of evolution: four generations of 2,048."""
_STEPS = 16
"""What the predictions of a side that does not climb are divided by, to give its seeds."""
_WARM_UP = "matmul:16x16x16"
_TOLERANCE = 1e-4
"""Scores that are as good: features are stored in single precision."""
_TITLE = "Predictions and seconds until the best predicted score of evolution"
_SPREAD = 64
"""The figure of the paper shows the best and the 64th best candidate."""
_EVERY = 128
"""Predictions after which a trace has a point at the latest, while candidates are scored."""
_SHOWN = (512, 1024, 2048, 4096, 8192)

Trace = list[list[Any]]
"""Predictions, processor seconds, the best exact score, and the 64th best or None: whenever the
best became better, and now and then."""


class Frozen(CostModel):
    """The guide's own scores: no measurement changes them."""

    informed = True

    def __init__(self, guide: Guide) -> None:
        self._guide = guide

    def fit(self, records: Sequence[Any]) -> None:
        """Learns nothing."""

    def update(self, records: Sequence[Any]) -> None:
        """Learns nothing."""

    def predict(self, candidates: Sequence[Any]) -> Prediction:
        """What is climbed."""
        return Prediction(self._guide.scores(candidates), np.zeros(len(candidates)))

    def draft(self, candidates: Sequence[Any]) -> Any:
        """Nothing: the other sides have no second model either."""
        return np.zeros(len(candidates))


class Watched(Guide):
    """Another guide, with a trace of what it was asked."""

    def __init__(self, guide: Guide) -> None:
        self._guide = guide
        self._began = time.process_time()
        self._best = -math.inf
        self._spread: list[float] = []
        self.predictions = 0
        self.trace: Trace = []

    def group(self, candidate: Any) -> Any:
        """The other guide's."""
        return self._guide.group(candidate)

    def landscape(self, candidate: Any) -> Landscape:
        """The other guide's, counted."""
        return _WatchedLandscape(self, self._guide.landscape(candidate))

    def scores(self, candidates: Sequence[Any]) -> Any:
        """The other guide's, counted and noted."""
        began = time.process_time() - self._began
        found = self._guide.scores(candidates)
        each = (time.process_time() - self._began - began) / max(1, len(found))
        for place, score in enumerate(found.tolist(), 1):
            better = score > self._best
            if not math.isnan(score):
                self._best = max(self._best, score)
                push = heapq.heappush if len(self._spread) < _SPREAD else heapq.heappushpop
                push(self._spread, score)
            self.predictions += 1
            if better or (self._spread and self.predictions % _EVERY == 0) or place == len(found):
                spread = self._spread[0] if len(self._spread) == _SPREAD else None
                self.trace.append([self.predictions, began + place * each, self._best, spread])
        return found


class _WatchedLandscape(Landscape):
    def __init__(self, watched: Watched, landscape: Landscape) -> None:
        self._watched, self._landscape = watched, landscape
        self.relaxed = landscape.relaxed

    def anchor(self, x: Any) -> Any:
        return self._landscape.anchor(x)

    def scores(self, x: Any, temperature: float, anchor: Any) -> Any:
        self._watched.predictions += len(x)
        return self._landscape.scores(x, temperature, anchor)

    def excess(self, x: Any) -> Any:
        return self._landscape.excess(x)


def searched(
    space: Space, objective: str, seed: int, predictions: int, options: Mapping[str, Any]
) -> Trace:
    """The trace of one side on one space.

    Args:
        space: Where candidates come from.
        objective: One of ``OBJECTIVES``.
        seed: Of everything random.
        predictions: After which it ends; a round is not broken off.
        options: Of gradient search, those of its guide among them, which all sides have; the others
            make all their predictions in one round.
    """
    torch.set_num_threads(1)
    config = StudyConfig(**options)
    chosen = study_guide(cost.create("random", rng=0), space.hardware, config)
    assert chosen is not None, f"no {config.guide} that comes with the package fits this hardware"
    guide = Watched(chosen)
    options = {name: value for name, value in options.items() if name != "guide"}
    own = {"seeds": max(1, predictions // _STEPS), "steps": _STEPS}
    strategy = GradientStudy(
        space,
        Frozen(guide),
        np.random.default_rng(seed),
        guide=guide,
        objective=objective,
        **(options if objective == "gradient" else own),
    )
    while guide.predictions < predictions:
        before = guide.predictions
        if not strategy.explore() or guide.predictions == before:
            break
        if objective != "gradient":
            break
    return guide.trace


def reached(trace: Trace, score: float) -> list[float] | None:
    """Predictions and seconds after which a trace has a score; None: it never has."""
    return next((step[:2] for step in trace if step[2] >= score - _TOLERANCE), None)


def counted(cell: Mapping[str, Any]) -> Trace:
    """The trace of a cell as far as its predictions go; what a last round made beyond is not."""
    return [step for step in cell["trace"] if step[0] <= cell["predictions"]]


def goals_of(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Trace]:
    """What evolution did, by workload and seed, where it could search."""
    return {
        (cell["workload"], cell["seed"]): trace
        for cell in cells
        if cell["objective"] == "evolution" and (trace := counted(cell))
    }


def compared(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many times as many predictions and seconds evolution needs for its best score.

    Pairs of the same workload and seed. A side that never gets there counts as twice what the
    longer one of the two has spent in all.
    """
    ends = goals_of(cells)
    rows = []
    for objective in OBJECTIVES:
        ratios: tuple[dict[str, list[float]], ...] = ({}, {})
        got = count = 0
        for cell in cells:
            theirs, own = ends.get((cell["workload"], cell["seed"])), counted(cell)
            if cell["objective"] != objective or theirs is None or not own:
                continue
            goal = theirs[-1][2]
            base, mine = reached(theirs, goal), reached(own, goal)
            assert base is not None
            got, count = got + (mine is not None), count + 1
            both = zip(own[-1][:2], theirs[-1][:2], strict=True)
            spent = mine or [2 * max(pair) for pair in both]
            for ratio, one, other in zip(ratios, base, spent, strict=True):
                ratio.setdefault(cell["workload"], []).append(math.log(one / other))
        if count:
            rng = np.random.default_rng(0)
            rows.append(
                {
                    "objective": objective,
                    "reached": got / count,
                    "pairs": count,
                    "predictions": geometric_mean(ratios[0], rng),
                    "seconds": geometric_mean(ratios[1], rng),
                }
            )
    return rows


def figure(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The best and the 64th best after so many predictions, less evolution's best in the end.

    Means over workloads and seeds; None where a run has no 64 candidates yet.
    """
    ends = goals_of(cells)
    rows = []
    for objective in OBJECTIVES:
        for shown in _SHOWN:
            best, spread = [], []
            for cell in cells:
                theirs = ends.get((cell["workload"], cell["seed"]))
                until = [step for step in counted(cell) if step[0] <= shown]
                if cell["objective"] == objective and theirs and until:
                    best.append(until[-1][2] - theirs[-1][2])
                    spread.append(
                        math.nan if until[-1][3] is None else until[-1][3] - theirs[-1][2]
                    )
            if best:
                last = float(np.mean(spread))
                row = {"objective": objective, "predictions": shown, "pairs": len(best)}
                row |= {"best": float(np.mean(best)), "spread": None if math.isnan(last) else last}
                rows.append(row)
    return rows


def cell(work: tuple[str, str, str, int, int, dict[str, Any]]) -> Trace:
    """``searched`` in a process of its own."""
    name, hardware, objective, seed, predictions, options = work
    machine = Hardware(**json.loads(hardware))
    # Imports and first uses are nobody's.
    small = load_input(_WARM_UP)
    workload = load_input(name)
    assert isinstance(small, Workload) and isinstance(workload, Workload)
    searched(Space.generate(small, machine), objective, seed, 1, {"seeds": 2, "steps": 1})
    return searched(Space.generate(workload, machine), objective, seed, predictions, options)


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m benchmarks.gradient [--workloads A,B] [--seeds K] [--write]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(catalog.names("subgraph")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--predictions", type=int, default=PREDICTIONS)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/gradient"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(None if arguments is None else list(arguments))
    where = conditions("gradient", list(range(options.seeds)))
    chosen = parse_options(options.option)
    state = state_of_ours(more=["foretune_research.climbs"])
    hardware = {k: v for k, v in where.hardware.to_json().items() if k != "key"}
    cells = []
    context = multiprocessing.get_context("spawn")
    for name in options.workloads.split(","):
        for seed in range(options.seeds):
            for objective in OBJECTIVES:
                found = {"workload": name, "objective": objective, "seed": seed, "state": state,
                         "predictions": options.predictions, "options": chosen,
                         "hardware": where.hardware.key}  # fmt: skip
                file = options.work_dir / f"{name.replace(':', '_')}-{objective}-{seed}.json"
                kept = read_json(file) if file.exists() else {}
                if {key: kept.get(key) for key in found} != found:
                    with context.Pool(1) as pool:
                        work = (name, json.dumps(hardware), objective, seed, options.predictions,
                                chosen)  # fmt: skip
                        kept = {**found, "trace": pool.apply(cell, (work,))}
                    options.work_dir.mkdir(parents=True, exist_ok=True)
                    write_json(file, kept)
                cells.append(kept)
                end = kept["trace"][-1] if kept["trace"] else [0, 0.0, math.nan]
                say(
                    f"{name} {objective} {seed}: {end[2]:.3f}, {end[0]} predictions, {end[1]:.1f} s"
                )
    data = {
        "cells": cells,
        "compared": compared(cells),
        "figure": figure(cells),
        "options": chosen,
    }
    publish("gradient", _TITLE, report(cells), data, where.end(), options.write)


def report(cells: Sequence[Mapping[str, Any]]) -> str:
    """The tables."""
    rows, points = compared(cells), figure(cells)
    summary = table(
        ["side", "gets there", "fewer predictions", "95 % interval", "fewer seconds",
         "95 % interval", "pairs"],
        [
            [row["objective"], f"{row['reached']:.0%}", *_interval(row["predictions"]),
             *_interval(row["seconds"]), str(row["pairs"])]
            for row in rows
        ],
    )  # fmt: skip
    ends: dict[tuple[str, str], list[float]] = {}
    for each in cells:
        if trace := counted(each):
            ends.setdefault((each["workload"], each["objective"]), []).append(trace[-1][2])
    names = list(dict.fromkeys(each["workload"] for each in cells))
    scores = table(
        ["workload", *OBJECTIVES],
        [
            [name, *(f"{np.mean(ends[name, o]):.3f}" if (name, o) in ends else "–"
                     for o in OBJECTIVES)]
            for name in names
        ],
    )  # fmt: skip
    return "\n\n".join(
        [
            "Predictions and processor seconds of evolution until its best score, over those of "
            "each side until the same score: above 1 is sooner. A side that does not get there "
            "counts as twice what the longer one of the two has spent. Geometric means, bootstrap "
            "over workloads and seeds.",
            summary,
            f"The best / the {_SPREAD}th best exact score after so many predictions, less the best "
            "that evolution has in the end (log2 of a speed-up, means over workloads and seeds):",
            table(
                ["side", *(f"{shown:,}" for shown in _SHOWN)],
                [
                    [o, *(_point(points, o, shown) for shown in _SHOWN)]
                    for o in dict.fromkeys(row["objective"] for row in points)
                ],
            ),
            "Best exact score at the end, mean over seeds (log2 of a speed-up, up to a constant "
            "per workload; – where no formula is known):",
            scores,
        ]
    )


def _point(points: Sequence[Mapping[str, Any]], objective: str, shown: int) -> str:
    for row in points:
        if (row["objective"], row["predictions"]) == (objective, shown):
            spread = "–" if row["spread"] is None else f"{row['spread']:.2f}"
            return f"{row['best']:.2f} / {spread}"
    return "–"


def _interval(found: Sequence[float]) -> list[str]:
    mean, low, high = found
    return [f"{mean:.2f}", f"{low:.2f} to {high:.2f}"]


if __name__ == "__main__":
    main()
