"""Learned models on workloads, operators and devices that they have not learned from.

One table per data set and split: model x metric, with the floor of random order. Every cell (one
model trained with one seed on one part of a split) is kept in the work directory under a hash of
its settings, of the data, and of the code that reads, describes, learns and judges; so the
benchmark goes on where it was interrupted, and trains anew only what a change has touched.
"""

from __future__ import annotations

import argparse
import functools
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._model.cells import (
    MODELS,
    Cell,
    Job,
    depends_on_chance,
    metrics_from_json,
    train_and_judge,
)
from benchmarks._model.store import Store
from benchmarks._model.tables import GOAL, body_of
from benchmarks.results import ROOT, conditions, publish, say
from foretune.cost import rankers
from foretune.dataset import Group
from foretune.errors import ForetuneError, unknown_name
from foretune.evaluate import (
    Bootstrap,
    Split,
    cross_validation,
    curve,
    keep_judgeable,
    measured_everywhere,
    random_order,
    read_data,
    summarise,
)
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.metrics import GroupMetrics, average
from foretune.evaluate.summary import networks_of

SHARED = ROOT.parent / "shared" / "data"
DATA: Mapping[str, tuple[Path, ...]] = {
    "cpu": (ROOT / "data" / "cpu",),
    "k80": (SHARED / "ansor" / "k80.tar.gz",),
    "mi50": (SHARED / "ansor" / "mi50.tar.gz",),
    "k80+mi50": (SHARED / "ansor" / "k80.tar.gz", SHARED / "ansor" / "mi50.tar.gz"),
    "a100": (SHARED / "metaschedule-a100-resnet34",),
}
"""Measurements by name: our own, and those that others published (../shared/data/README.md)."""
REFERENCES = ("mlp:reference", "tlp:reference", "mtl_tlp:reference")
"""As published: larger and slower than ours, so that not every table has them, and one seed."""
_ALL = (*MODELS, *REFERENCES)
_SEVERAL_DEVICES = "mtl_tlp"
_SCHEMA = "foretune.models/1"
_TITLE = "Learned models on what they have not learned from"
_NOT_COMPUTED = "nobody has computed it"
_TREES = ("gbdt_actions", "gbdt_behaviour", "gbdt")
_ACTIONS = ("gbdt_actions", "mlp_actions", "tlp", "tgraph")
JOBS = (
    Job("cpu", "workload", 5, models=_ALL),
    Job("k80", "workload", 3, programs=100, models=_ACTIONS),
    Job("mi50", "workload", 3, programs=100, models=_ACTIONS),
    Job("a100", "workload", 3, programs=200, models=_ACTIONS),
    Job("cpu", "kind", 3, models=(*_TREES, "mlp_behaviour", "joined", "mlp")),
    Job("cpu", "hardware_seen", None, True, models=_TREES),
    Job("cpu", "hardware", 2, True, models=_TREES),
    Job("k80+mi50", "hardware_seen", None, True, programs=100, models=_ACTIONS),
    Job("k80+mi50", "hardware", 2, True, programs=100, models=_ACTIONS),
    Job("k80+mi50", "workload", 3, programs=50, models=(*_ACTIONS, "mtl_tlp")),
)
"""Networks stand where a question is about them: a table of all would take days on two cores."""


@functools.lru_cache(maxsize=1)
def load(data: str) -> tuple[tuple[Group, ...], dict[str, int]]:
    """Judgeable groups of a data set, and what was left out by reason."""
    read = read_data(DATA[data])
    groups, few = keep_judgeable(read.groups)
    return tuple(groups), dict(read.skipped + few)


def groups_of(job: Job) -> list[Group]:
    """The groups of a table."""
    groups = list(load(job.data)[0])
    return measured_everywhere(groups) if job.on_all_devices else groups


def eval_command(job: Job) -> str:
    """The ``foretune eval`` that computes a row of a table alone, in the root of the project."""
    data = ",".join(os.path.relpath(path, ROOT) for path in DATA[job.data])
    words = ["foretune", "eval", "MODEL", "--data", data, "--split", job.by]
    if job.folds is not None:
        words += ["--folds", str(job.folds)]
    if job.on_all_devices:
        words.append("--on-all-hardware")
    return shlex.join([*words, "--programs", str(job.programs)])


def seeds_of(model: str, seeds: int) -> range:
    """Seeds of a model: several for our networks, one for what depends on chance little."""
    return range(seeds if depends_on_chance(model) and model not in REFERENCES else 1)


def why_not(model: str, part: Split) -> str:
    """Why a model cannot be judged on a part; empty if it can."""
    everything = (*part.train, *part.validation, *part.test)
    actions_only = any(group.programs[0].candidate is None for group in everything)
    if actions_only and rankers.reads_programs(model):
        return "reads programs, of which this data has only the actions"
    if model.startswith(_SEVERAL_DEVICES) and len({g.hardware for g in part.train}) < 2:
        return "one device to learn from, so that it is the same with one head"
    return ""


def cells(job: Job, parts: Sequence[Split], models: Sequence[str], seeds: int) -> Iterator[Cell]:
    """All cells of a table: every model with its first seed before any with its second."""
    for seed in range(seeds):
        for model in models:
            if seed in seeds_of(model, seeds):
                for number, part in enumerate(parts):
                    if not why_not(model, part):
                        yield Cell(job, number, part, model, seed)


def summarise_table(
    job: Job,
    parts: Sequence[Split],
    models: Sequence[str],
    seeds: int,
    store: Store,
    absent: Sequence[str] = (),
) -> dict[str, Any]:
    """What is known of a table so far: floors, and a row per model.

    A model has figures once each part of the split was tested with at least one seed. Models that
    are ``absent`` from the table get a row that says why.
    """
    tested = [group for part in parts for group in part.test]
    bootstrap = Bootstrap([group.workload for group in tested])
    rows: list[dict[str, Any]] = []
    top1: dict[str, np.ndarray] = {}
    for model in models:
        reasons = {why_not(model, part) for part in parts} - {""}
        if reasons:
            rows.append({"model": model, "left_out": reasons.pop()})
            continue
        found = [
            [store.read(Cell(job, n, part, model, seed)) for seed in seeds_of(model, seeds)]
            for n, part in enumerate(parts)
        ]
        row = {
            "model": model,
            "seeds": max(sum(result is not None for result in each) for each in found),
            "cells": sum(result is not None for each in found for result in each),
            "of": sum(len(each) for each in found),
        }
        if all(any(each) for each in found):
            judged = _judged(parts, [[r for r in each if r] for each in found])
            top1[model] = np.array([one.ratio[0] for one in judged])
            row |= _figures(tested, judged, bootstrap)
            row |= _means([result for each in found for result in each if result])
        rows.append(row)
    if top1:
        best = max(top1.values(), key=np.mean)
        for row in rows:
            if row["model"] in top1:
                row["behind"] = bootstrap.mean(best - top1[row["model"]])
    for model in absent:
        why = next(filter(None, (why_not(model, part) for part in parts)), _NOT_COMPUTED)
        rows.append({"model": model, "left_out": why})
    random = [random_order(group.seconds) for group in tested]
    return {
        "data": job.data,
        "split": job.by,
        "programs_per_group": job.programs,
        "precision": store.precision,
        "seeds": seeds,
        "command": eval_command(job),
        "parts": [
            {"name": p.name, "train": len(p.train), "validation": len(p.validation),
             "test": len(p.test)} for p in parts
        ],
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(len(group) for group in tested),
        "networks": any(networks_of(group) for group in tested),
        "skipped": load(job.data)[1],
        "rows": rows,
        "random": {
            "metrics": summarise(tested, random, bootstrap),
            "curve": curve(random, bootstrap),
        },
    }  # fmt: skip


def _judged(
    parts: Sequence[Split], found: Sequence[Sequence[Mapping[str, Any]]]
) -> list[GroupMetrics]:
    """A model on every tested group, from the results of each part, one per seed."""
    return [
        average([metrics_from_json(result["groups"][group.key]) for result in results])
        for part, results in zip(parts, found, strict=True)
        for group in part.test
    ]


def _figures(
    tested: Sequence[Group], judged: Sequence[GroupMetrics], bootstrap: Bootstrap
) -> dict[str, Any]:
    """The metrics of a model."""
    by_kind = {}
    for kind in sorted({group.kind for group in tested}):
        at = [i for i, group in enumerate(tested) if group.kind == kind]
        by_kind[kind] = {
            "groups": len(at),
            "top1": float(np.mean([judged[i].ratio[0] for i in at])),
            "random_top1": float(np.mean([random_order(tested[i].seconds).ratio[0] for i in at])),
        }
    return {
        "metrics": summarise(tested, judged, bootstrap),
        "curve": curve(judged, bootstrap),
        "by_kind": by_kind,
    }


def _means(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What cells took, on average."""
    names = ("train_s", "score_s_per_program", "train_programs")
    return {name: float(np.mean([result[name] for result in results])) for name in names}


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    where = conditions("models", list(range(options.seeds)))
    deadline = None if options.time is None else time.monotonic() + options.time
    tables, unread = [], []
    for job in _chosen(options):
        missing = [path for path in DATA[job.data] if not path.exists()]
        if missing:
            unread.append(f"{job.name}: {missing[0].name} is not on this machine")
            continue
        groups = groups_of(job)
        parts = cross_validation(groups, job.by, job.folds)[: options.parts]
        chosen = [model for model in job.models if model in options.models]
        store = Store(options.work_dir, fingerprint(groups), options.precision)
        failed = _fill(cells(job, parts, chosen, options.seeds), store, deadline)
        absent = [model for model in options.models if model not in job.models]
        summary = summarise_table(job, parts, chosen, options.seeds, store, absent)
        if options.write:
            for cell in cells(job, parts, chosen, options.seeds):
                store.publish(cell)
        tables.append({**summary, "failed": failed})
    result = {
        "schema": _SCHEMA,
        "goal": GOAL,
        "tables": tables,
        "absent": unread,
    }
    publish("models", _TITLE, body_of(result), result, where.end(), options.write)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"tables: {', '.join(j.name for j in JOBS)}")
    parser.add_argument("--data", default="", help=f"data sets: {', '.join(DATA)}")
    parser.add_argument("--models", default=",".join(_ALL))
    parser.add_argument("--seeds", type=int, default=3, help="for our networks; others have one")
    parser.add_argument("--programs", type=int, help="learned from per group, at most")
    parser.add_argument(
        "--parts", type=int, help="the first so many of each split; all if left out"
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of networks; bfloat16 is faster where the processor has it",
    )
    parser.add_argument("--time", type=float, help="seconds after which no cell is begun")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/models"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    options.only = _names("table", options.only, [job.name for job in JOBS])
    options.data = _names("data set", options.data, list(DATA))
    options.models = _names("model", options.models, rankers.names())
    return options


def _names(kind: str, text: str, known: Sequence[str]) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)
    return names


def _chosen(options: argparse.Namespace) -> list[Job]:
    return [
        job if options.programs is None else replace(job, programs=options.programs)
        for job in JOBS
        if (not options.only or job.name in options.only)
        and (not options.data or job.data in options.data)
    ]


def _fill(every: Iterable[Cell], store: Store, deadline: float | None) -> list[str]:
    """Trains what is missing until the deadline; returns what failed, with the reason."""
    failed = []
    for cell in every:
        if store.has(cell):
            continue
        if deadline is not None and time.monotonic() >= deadline:
            break
        label = f"{cell.job.name}  {cell.part.name}  {cell.model}  seed {cell.seed}"
        try:
            result = train_and_judge(cell, store.folder / "features", store.precision)
        except ForetuneError as error:
            failed.append(f"{label}: {error}")
            say(f"failed: {failed[-1]}")
            continue
        store.write(cell, result)
        top = np.mean([group["ratio"][0] for group in result["groups"].values()])
        say(f"{label}: trained in {result['train_s']:.0f} s, top-1 {top:.3f}")
    return failed


if __name__ == "__main__":
    main()
