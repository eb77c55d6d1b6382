"""The compiler world model on workloads that it has not learned from: what it predicts, what for.

Three tables. How near predicted terminal states are to the true ones, by the length of the path,
beside who predicts nothing. How well the ranker ``world`` orders programs, with every switch, and
paired differences to the full model. What scoring a candidate costs, beside making it.

Within a fold, encoder and transitions are learned once and shared; trees are grown for every
variant. What a fold has learned and every finished cell are kept in the work directory under a hash
of settings, data and code, so that the benchmark goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._cell_store import fingerprint
from benchmarks._cells import metrics_from_json
from benchmarks._world_cells import FULL, SWAPPED, VARIANTS, Fold, train_and_judge
from benchmarks.model_speed import Unscored
from benchmarks.results import ROOT, conditions, figure, publish, read_json, say, table
from benchmarks.sources import code_of
from foretune.bench import write_json
from foretune.cost import Ranker
from foretune.cost._world_readers import READERS
from foretune.cost.world import WorldConfig
from foretune.dataset import Group, Program
from foretune.evaluate import (
    PICKS,
    Bootstrap,
    GroupMetrics,
    cross_validation,
    keep_judgeable,
    random_order,
    read_data,
)
from foretune.features import extract_per_store

_TITLE = "The compiler world model"
_SCHEMA = "foretune.world/1"
_METRICS = ("top1", "top5", "kendall_tau", "ndcg16")
_LENGTHS = ((1, 4), (5, 8), (9, 12), (13, 16), (17, 10_000))
"""Steps of the paths in a row of the first table."""
_RATED = ("matmul_512", "conv2d_3x3", "softmax")


def time_scoring(
    ranker: Ranker, sources: Sequence[Unscored], batch: int, made: int
) -> list[dict[str, Any]]:
    """Candidates a second: scored for the first time, scored again, made and described.

    Args:
        ranker: Trained.
        sources: Of candidates.
        batch: Candidates scored at once.
        made: Candidates that are replayed and described by their stores.
    """
    rows = []
    for source in sources:
        candidates = source.take(batch)
        programs = [Program(candidate) for candidate in candidates]
        machine = candidates[0].hardware
        row: dict[str, Any] = {"workload": source.name, "candidates": len(candidates)}
        for name in ("cold", "warm"):
            row[name] = _rate(candidates, lambda _: ranker.score(programs, machine))  # noqa: B023
        row["made"] = _rate(source.take(made) or candidates[:made], extract_per_store)
        rows.append(row)
    return rows


def _rate(candidates: Sequence[Any], call: Callable[[Any], Any]) -> float:
    started = time.perf_counter()
    call(candidates)
    return len(candidates) / (time.perf_counter() - started)


def terminal_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Means over the paths of a length, and over all, with intervals over workloads."""
    names = ("initial", "mean", "untrained", "actions_only", "trained")
    found = []
    for low, high in (*_LENGTHS, (_LENGTHS[0][0], _LENGTHS[-1][1])):
        own = [row for row in rows if low <= row["steps"] <= high]
        if not own:
            continue
        bootstrap = Bootstrap([row["workload"] for row in own])
        figures = {name: bootstrap.mean([row[name] for row in own]) for name in names}
        hits = {
            f"{name} found": bootstrap.mean([float(row[f"{name} found"]) for row in own])
            for name in names[2:]
        }
        explained = {f"{name} explained": _explained(bootstrap, own, name) for name in names[2:]}
        found.append({"steps": [low, high], "paths": len(own), **figures, **hits, **explained})
    return found


def _explained(
    bootstrap: Bootstrap, rows: Sequence[Mapping[str, Any]], name: str
) -> dict[str, float]:
    """Share of the squared distances between the terminal states of a workload and their mean."""
    # Of vectors of length 1, twice 1 - cosine.
    error = 2.0 * np.array([row[name] for row in rows])
    apart = np.array([row["apart"] for row in rows])
    return bootstrap.interval(lambda draws: 1.0 - (draws @ error) / (draws @ apart))


def compare(
    groups: Sequence[Group], judged: Mapping[str, Mapping[str, GroupMetrics]]
) -> list[dict[str, Any]]:
    """Figures of every variant, and differences to the full model on the same groups.

    Args:
        groups: All that were tested.
        judged: Name of a variant -> key of a group -> its metrics; not every variant has all.
    """
    rows = []
    for name, own in judged.items():
        tested = [group for group in groups if group.key in own]
        if not tested:
            continue
        bootstrap = Bootstrap([group.workload for group in tested])
        row: dict[str, Any] = {"variant": name, "groups": len(tested)}
        for metric in _METRICS:
            values = np.array([_value(own[group.key], metric) for group in tested])
            row[metric] = bootstrap.mean(values)
            full = judged.get(FULL, {})
            if name != FULL and all(group.key in full for group in tested):
                theirs = np.array([_value(full[group.key], metric) for group in tested])
                row[f"{metric} - full"] = bootstrap.mean(values - theirs)
        rows.append(row)
    return rows


def _value(metrics: GroupMetrics, name: str) -> float:
    if name.startswith("top"):
        return float(metrics.ratio[PICKS.index(int(name[3:]))])
    return float(getattr(metrics, name))


def world_code() -> str:
    """A hash of the code that what a fold learns, and its figures, depend on."""
    return code_of(
        "foretune.cost.world",
        "benchmarks._world_cells",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        within=("cost", "features", "dataset", "evaluate", "space", "hardware", "world"),
    )


class Cells:
    """Finished cells, each a file that holds its settings' hash.

    Args:
        folder: Where.
        settings: What every cell depends on.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        self.folder = folder / digest
        self.folder.mkdir(parents=True, exist_ok=True)

    def of_fold(self, number: int) -> Path:
        """The folder of what a fold has learned."""
        return self.folder / f"fold{number}"

    def get(self, name: str, make: Callable[[], Any], say_why: str) -> Any:
        """A finished cell, made now if it is not there."""
        file = self.folder / f"{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}.json"
        if file.exists():
            return read_json(file)["result"]
        started = time.perf_counter()
        result = make()
        write_json(file, {"cell": name, "result": result})
        say(f"{say_why}: {time.perf_counter() - started:.0f} s")
        return result


def run(
    groups: Sequence[Group],
    cells: Cells,
    config: WorldConfig,
    *,
    folds: int,
    seed: int,
    threads: int,
    programs: int,
    paths: int,
    variants: Sequence[str],
    rated: Sequence[str],
    batch: int,
    cache: Path | None = None,
) -> dict[str, Any]:
    """Everything, as a JSON object.

    Args:
        groups: Judgeable ones.
        cells: Where finished ones are.
        config: Of the world.
        folds: Of workloads.
        seed: Of everything.
        threads: That may be used.
        programs: Learned from per group, at most.
        paths: Test programs whose states are predicted, over all folds.
        variants: Names in ``VARIANTS``, the full model among them.
        rated: Workloads whose candidates are scored by the clock.
        batch: Candidates scored at once there.
        cache: See ``Fold``.
    """
    judged: dict[str, dict[str, GroupMetrics]] = {}
    terminals: list[dict[str, Any]] = []
    parts = cross_validation(groups, "workload", folds, seed=seed)
    for number, part in enumerate(parts):
        fold = Fold(part, cells.of_fold(number), config, seed, threads, programs, cache)
        terminals += cells.get(
            f"terminals {number}",
            lambda fold=fold: fold.terminals(max(2, paths // folds)),
            f"{part.name}: terminal states",
        )
        for name in variants:
            found = cells.get(
                f"{name} {number}",
                lambda fold=fold, name=name: train_and_judge(fold, name),
                f"{part.name}: {name}",
            )
            for row, results in found.items():
                own = judged.setdefault(row, {})
                own |= {key: metrics_from_json(one) for key, one in results.items()}
    order = [FULL, SWAPPED, *(name for name in variants if name != FULL)]
    tested = [group for part in parts for group in part.test]
    bootstrap = Bootstrap([group.workload for group in tested])
    floors = [random_order(group.seconds) for group in tested]
    # Time is never read from a file.
    first = Fold(parts[0], cells.of_fold(0), config, seed, threads, programs, cache)
    ranker = first.ranker(VARIANTS[FULL]) if rated else None
    sources = [Unscored(name, groups[0].machine) for name in rated if groups[0].machine is not None]
    return {
        "schema": _SCHEMA,
        "config": asdict(config),
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(map(len, tested)),
        "random": {
            name: bootstrap.mean([_value(one, name) for one in floors]) for name in _METRICS
        },
        "terminals": terminal_table(terminals),
        "variants": compare(tested, {name: judged[name] for name in order if name in judged}),
        "rates": [] if ranker is None else time_scoring(ranker, sources, batch, batch // 10),
        "threads": threads,
    }


def _body(result: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            f"Cross-validation by workload: {result['groups']} groups of {result['workloads']} "
            f"workloads, {result['programs']:,} programs. Intervals: bootstrap over workloads, "
            "95 %.",
            "## Predicted terminal states",
            "1 - cosine to the program's own state, mean over paths of workloads held out: of who "
            "says that actions change nothing, of the mean terminal state of training, of "
            "untrained transitions, of transitions without the initial state, and of the model. "
            "Found: share of predictions nearer to their own program than to that of any other "
            "path of the workload. Explained: share of the squared distances between the terminal "
            "states of a workload and their mean, the differences that ranking needs.",
            table(
                ["steps", "paths", "initial", "mean", "untrained", "actions only", "predicted",
                 "found, untrained", "found, actions only", "found",
                 "explained, untrained", "explained, actions only", "explained"],
                [_terminal_row(row) for row in result["terminals"]],
            ),
            "## Ranking",
            "Below each figure's mean stands the paired difference to the full model. Swapped: "
            "paths begin at the state of another workload with the same kinds of steps, for "
            "workloads that have such another; trees as in the full model.",
            table(
                ["variant", "groups", "top-1", "top-5", "tau", "NDCG@16"],
                [
                    ["random order", str(result["groups"]),
                     *(figure(result["random"][name]) for name in _METRICS)],
                    *(_variant_row(row) for row in result["variants"]),
                ],
            ),
            "## Scoring",
            f"Candidates a second, {result['threads']} threads: scored for the first time, the "
            "same once more, and replayed and described by their stores instead.",
            table(
                ["workload", "candidates", "first", "again", "replay and per-store features"],
                [
                    [row["workload"], str(row["candidates"]),
                     *(f"{row[name]:,.0f}" for name in ("cold", "warm", "made"))]
                    for row in result["rates"]
                ],
            ),
        ]
    )  # fmt: skip


def _terminal_row(row: Mapping[str, Any]) -> list[str]:
    low, high = row["steps"]
    names = ("initial", "mean", "untrained", "actions_only", "trained", "untrained found",
             "actions_only found", "trained found", "untrained explained",
             "actions_only explained", "trained explained")  # fmt: skip
    return [
        f"{low} and more" if high == _LENGTHS[-1][1] else f"{low} to {high}",
        str(row["paths"]),
        *(figure(row[name]) for name in names),
    ]


def _variant_row(row: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in _METRICS:
        difference = row.get(f"{name} - full")
        text = figure(row[name])
        cells.append(text if difference is None else f"{text}; {figure(difference, '+')}")
    return [row["variant"], str(row["groups"]), *cells]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--programs", type=int, default=64, help="learned from per group, at most")
    parser.add_argument("--paths", type=int, default=3000, help="test programs followed")
    parser.add_argument("--target", default=WorldConfig.target, choices=sorted(READERS))
    parser.add_argument("--page", default="world", help="name of what --write writes")
    parser.add_argument("--cache", type=Path, help="folder of replayed states and features")
    parser.add_argument("--trajectories", type=int, default=WorldConfig.trajectories)
    parser.add_argument("--encoder-states", type=int, default=WorldConfig.encoder_states)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="the full model first")
    parser.add_argument("--rated", default=",".join(_RATED))
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/world"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    variants = [name for name in options.variants.split(",") if name]
    if FULL not in variants or not set(variants) <= set(VARIANTS):
        parser.error(f"variants are {', '.join(VARIANTS)}; {FULL} has to be among them")
    where = conditions("world", [options.seed])
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    config = WorldConfig(
        target=options.target,
        trajectories=options.trajectories,
        encoder_states=options.encoder_states,
    )
    shared = {name: getattr(options, name) for name in ("folds", "seed", "programs", "paths")}
    settings = {
        **shared,
        "config": asdict(config),
        "data": fingerprint(groups),
        "code": world_code(),
    }
    result = run(
        groups,
        Cells(options.work_dir, settings),
        config,
        **shared,
        threads=options.threads,
        variants=variants,
        rated=[name for name in options.rated.split(",") if name],
        batch=options.batch,
        cache=options.cache,
    )
    publish(options.page, _TITLE, _body(result), result, where.end(), options.write)


if __name__ == "__main__":
    main()
