"""Learned models on workloads, operators and devices that they have not learned from.

One table per data set and split: model x metric, with the floor of random order. Every cell (one
model trained with one seed on one part of a split) is kept in the work directory under a hash of
its settings, of the data, and of the code that reads, describes, learns and judges; so the
benchmark goes on where it was interrupted, and trains anew only what a change has touched.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT, conditions, publish, read_json, say, table
from benchmarks.sources import code_of
from foretune.bench import write_json
from foretune.cost import rankers
from foretune.dataset import Group
from foretune.errors import ForetuneError, unknown_name
from foretune.evaluate import (
    Bootstrap,
    GroupMetrics,
    Split,
    cross_validation,
    curve,
    judge,
    keep_judgeable,
    random_order,
    read_data,
    refuse_excluded,
    summarise,
)
from foretune.evaluate.metrics import average

SHARED = ROOT.parent / "shared" / "data"
DATA: Mapping[str, tuple[Path, ...]] = {
    "cpu": (ROOT / "data" / "cpu",),
    "k80": (SHARED / "ansor" / "k80.tar.gz",),
    "mi50": (SHARED / "ansor" / "mi50.tar.gz",),
    "k80+mi50": (SHARED / "ansor" / "k80.tar.gz", SHARED / "ansor" / "mi50.tar.gz"),
    "a100": (SHARED / "metaschedule-a100-resnet34",),
}
"""Measurements by name: our own, and those that others published (../shared/data/README.md)."""
MODELS = (
    "gbdt_actions",
    "gbdt",
    "mlp",
    "tlp",
    "mtl_tlp",
    "mlp:reference",
    "tlp:reference",
    "mtl_tlp:reference",
)
GOAL = {"top1": 0.90, "top5": 0.97}
"""What the best model is to reach on held-out workloads of our own data."""
_GOAL_TABLE = "cpu/workload"
_NETWORKS = ("mlp", "tlp", "mtl_tlp")
_SEVERAL_DEVICES = "mtl_tlp"
_SCHEMA = "foretune.models/1"
_TITLE = "Learned models on what they have not learned from"
_MAIN = ("top1", "top5", "pair_accuracy", "kendall_tau", "ndcg16")
_OTHERS = ("pooled", "per_network", "running")
_SHOWN_PICKS = 16
_PUBLISHED = (
    "For orientation, what the LLMTuner paper reports on TenSet, where the workloads of five "
    "networks are held out (top-1 / top-5, pooled): TenSet's MLP 0.875 / 0.953 on a Platinum 8272 "
    "and 0.908 / 0.963 on a K80, TLP 0.919 / 0.971 and 0.906 / 0.974. Figures of different data do "
    "not compare."
)


@dataclass(frozen=True)
class Job:
    """One table.

    Attributes:
        data: A name of ``DATA``.
        by: A name of ``foretune.evaluate.splits``.
        folds: See there.
        on_all_devices: Whether only workloads that were measured on every device count, so that
            tables with and without workloads seen on another device test the same groups.
    """

    data: str
    by: str
    folds: int | None = None
    on_all_devices: bool = False

    @property
    def name(self) -> str:
        """``data/split``."""
        return f"{self.data}/{self.by}"


JOBS = (
    Job("cpu", "workload", 5),
    Job("k80", "workload", 5),
    Job("mi50", "workload", 5),
    Job("a100", "workload", 5),
    Job("cpu", "kind", 5),
    Job("cpu", "hardware_seen", None, True),
    Job("cpu", "hardware", 2, True),
    Job("k80+mi50", "hardware_seen", None, True),
    Job("k80+mi50", "hardware", 3, True),
    Job("k80+mi50", "workload", 5),
)


@dataclass(frozen=True)
class Cell:
    """One model, trained once.

    Attributes:
        job: The table.
        number: Position of the part among the splits.
        part: What is trained on and tested.
        model: Name of a ranker.
        seed: Of its training.
    """

    job: Job
    number: int
    part: Split
    model: str
    seed: int


@dataclass(frozen=True)
class Store:
    """Where finished cells are.

    Attributes:
        folder: The directory; made when something is written.
        programs: Programs learned from per group, at most.
        fingerprint: Of the groups of the table at hand.
    """

    folder: Path
    programs: int
    fingerprint: str

    def file(self, cell: Cell) -> Path:
        """The file of a cell."""
        settings = {
            **asdict(cell.job),
            "number": cell.number,
            "part": cell.part.name,
            "model": cell.model,
            "seed": cell.seed,
            "programs": self.programs,
            "fingerprint": self.fingerprint,
            "code": model_code(cell.model),
        }
        digest = _digest(json.dumps(settings, sort_keys=True))
        names = (cell.job.data, cell.job.by, cell.model, cell.number, cell.seed, digest)
        return self.folder / ("-".join(map(str, names)).replace(":", "_") + ".json")

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """A finished cell, or None."""
        file = self.file(cell)
        return dict(read_json(file)) if file.exists() else None

    def write(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Keeps a finished cell."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.file(cell), result)


@functools.lru_cache(maxsize=1)
def load(data: str) -> tuple[tuple[Group, ...], dict[str, int]]:
    """Judgeable groups of a data set, and what was left out by reason."""
    read = read_data(DATA[data])
    groups, few = keep_judgeable(read.groups)
    return tuple(groups), dict(read.skipped + few)


def groups_of(job: Job) -> list[Group]:
    """The groups of a table."""
    groups = list(load(job.data)[0])
    if not job.on_all_devices:
        return groups
    devices = {group.hardware for group in groups}
    measured_on: dict[str, set[str]] = {}
    for group in groups:
        measured_on.setdefault(group.workload, set()).add(group.hardware)
    return [group for group in groups if measured_on[group.workload] == devices]


def fingerprint(groups: Iterable[Group]) -> str:
    """Changes with the groups, the order of their programs and their seconds."""
    digest = hashlib.blake2b(digest_size=8)
    for group in groups:
        named = [group.key, group.kind, group.weight, len(group), sorted(group.networks)]
        digest.update(json.dumps(named).encode())
        digest.update(group.seconds.tobytes())
    return digest.hexdigest()


@functools.cache
def model_code(model: str) -> str:
    """A hash of the code that a cell of this model runs, comments and formatting left out."""
    own = type(rankers.create(model, seed=0)).__module__
    return code_of(
        own,
        "foretune.cost.rankers",
        "foretune.dataset.readers",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        within=("cost", "features", "dataset", "evaluate"),
    )


def seeds_of(model: str, seeds: int) -> range:
    """Seeds of a model: several for networks, one for what depends on chance little."""
    return range(seeds if model.partition(":")[0] in _NETWORKS else 1)


def why_not(model: str, part: Split) -> str:
    """Why a model cannot be judged on a part; empty if it can."""
    everything = (*part.train, *part.validation, *part.test)
    actions_only = any(group.programs[0].candidate is None for group in everything)
    if actions_only and rankers.reads_programs(model):
        return "reads programs, of which this data has only the actions"
    if model.startswith(_SEVERAL_DEVICES) and len({g.hardware for g in part.train}) < 2:
        return "one device to learn from, so that it is the same as tlp"
    return ""


def cells(job: Job, parts: Sequence[Split], models: Sequence[str], seeds: int) -> Iterator[Cell]:
    """All cells of a table: every model with its first seed before any with its second."""
    for seed in range(seeds):
        for model in models:
            if seed in seeds_of(model, seeds):
                for number, part in enumerate(parts):
                    if not why_not(model, part):
                        yield Cell(job, number, part, model, seed)


def train_and_judge(cell: Cell, programs: int, features: Path) -> dict[str, Any]:
    """Trains the model of a cell and judges it on every test group.

    Args:
        cell: What to train.
        programs: Learned from per group, at most.
        features: Folder in which models that read programs keep what they read.
    """
    rng = np.random.default_rng(cell.number)
    train, validation = (
        [_some(group, programs, rng) for group in groups]
        for groups in (cell.part.train, cell.part.validation)
    )
    refuse_excluded([*train, *validation])
    kept = {"cache": features} if rankers.reads_programs(cell.model) else {}
    ranker = rankers.create(cell.model, seed=cell.seed, **kept)
    started = time.perf_counter()
    ranker.fit(train, validation)
    train_s = time.perf_counter() - started
    judged, scored, score_s = {}, 0, 0.0
    for group in cell.part.test:
        started = time.perf_counter()
        scores = ranker.score(group.programs, group.machine, group.hardware)
        score_s += time.perf_counter() - started
        scored += len(group)
        found = judge(
            np.asarray(scores, dtype=np.float64),
            group.seconds,
            np.random.default_rng([cell.seed, int(_digest(group.key), 16)]),
        )
        judged[group.key] = _metrics_json(found)
    return {
        "cell": [cell.job.name, cell.part.name, cell.model, cell.seed],
        "train_groups": len(train),
        "train_programs": sum(len(group) for group in train),
        "train_s": train_s,
        "score_s_per_program": score_s / max(scored, 1),
        "groups": judged,
    }


def _some(group: Group, programs: int, rng: np.random.Generator) -> Group:
    """At most so many programs of a group, drawn uniformly; enough of them with a time."""
    if len(group) <= programs:
        return group
    drawn = np.sort(rng.choice(len(group), programs, replace=False))
    fewer = group.subset(drawn)
    return fewer if fewer.valid.sum() >= 2 else group


def _metrics_json(metrics: GroupMetrics) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(metrics).items()
    }


def metrics_from_json(data: Mapping[str, Any]) -> GroupMetrics:
    """Reverses what a cell keeps."""
    return GroupMetrics(
        **{k: np.array(v, dtype=np.float64) if isinstance(v, list) else v for k, v in data.items()}
    )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def summarise_table(
    job: Job, parts: Sequence[Split], models: Sequence[str], seeds: int, store: Store
) -> dict[str, Any]:
    """What is known of a table so far: floors, and a row per model.

    A model has figures once each part of the split was tested with at least one seed.
    """
    tested = [group for part in parts for group in part.test]
    bootstrap = Bootstrap([group.workload for group in tested])
    rows = []
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
            "cells": sum(result is not None for each in found for result in each),
            "of": sum(len(each) for each in found),
        }
        if all(any(each) for each in found):
            row |= _figures(tested, parts, [[r for r in each if r] for each in found], bootstrap)
        rows.append(row)
    random = [random_order(group.seconds) for group in tested]
    return {
        "data": job.data,
        "split": job.by,
        "parts": [
            {"name": p.name, "train": len(p.train), "validation": len(p.validation),
             "test": len(p.test)} for p in parts
        ],
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(len(group) for group in tested),
        "skipped": load(job.data)[1],
        "rows": rows,
        "random": {
            "metrics": summarise(tested, random, bootstrap),
            "curve": curve(random, bootstrap),
        },
    }  # fmt: skip


def _figures(
    tested: Sequence[Group],
    parts: Sequence[Split],
    found: Sequence[Sequence[Mapping[str, Any]]],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """The metrics of a model from the results of each part, one per seed."""
    judged = [
        average([metrics_from_json(result["groups"][group.key]) for result in results])
        for part, results in zip(parts, found, strict=True)
        for group in part.test
    ]
    flat = [result for results in found for result in results]
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
        "train_s": float(np.mean([result["train_s"] for result in flat])),
        "score_s_per_program": float(np.mean([r["score_s_per_program"] for r in flat])),
        "train_programs": float(np.mean([result["train_programs"] for result in flat])),
    }


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    where = conditions("models", list(range(options.seeds)))
    deadline = None if options.time is None else time.monotonic() + options.time
    tables, absent = [], []
    for job in _chosen(options):
        missing = [path for path in DATA[job.data] if not path.exists()]
        if missing:
            absent.append(f"{job.name}: {missing[0].name} is not on this machine")
            continue
        groups = groups_of(job)
        parts = cross_validation(groups, job.by, job.folds)
        store = Store(options.work_dir, options.programs, fingerprint(groups))
        failed = _fill(cells(job, parts, options.models, options.seeds), store, deadline)
        summary = summarise_table(job, parts, options.models, options.seeds, store)
        tables.append({**summary, "failed": failed})
    result = {
        "schema": _SCHEMA,
        "programs_per_group": options.programs,
        "goal": GOAL,
        "tables": tables,
        "absent": absent,
    }
    publish("models", _TITLE, _body(result), result, where.end(), options.write)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"tables: {', '.join(j.name for j in JOBS)}")
    parser.add_argument("--data", default="", help=f"data sets: {', '.join(DATA)}")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="for networks; others have one")
    parser.add_argument("--programs", type=int, default=200, help="learned from per group, at most")
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
        job
        for job in JOBS
        if (not options.only or job.name in options.only)
        and (not options.data or job.data in options.data)
    ]


def _fill(every: Iterable[Cell], store: Store, deadline: float | None) -> list[str]:
    """Trains what is missing until the deadline; returns what failed, with the reason."""
    failed = []
    for cell in every:
        if store.file(cell).exists():
            continue
        if deadline is not None and time.monotonic() >= deadline:
            break
        label = f"{cell.job.name}  {cell.part.name}  {cell.model}  seed {cell.seed}"
        try:
            result = train_and_judge(cell, store.programs, store.folder / "features")
        except ForetuneError as error:
            failed.append(f"{label}: {error}")
            say(f"failed: {failed[-1]}")
            continue
        store.write(cell, result)
        top = np.mean([group["ratio"][0] for group in result["groups"].values()])
        say(f"{label}: trained in {result['train_s']:.0f} s, top-1 {top:.3f}")
    return failed


def _body(result: Mapping[str, Any]) -> str:
    parts = [
        "Every group of programs (one workload on one hardware) is tested once, by models that "
        "have not learned from its workload (in `hardware_seen`: not from its hardware). top-k: "
        "seconds of the fastest program / fastest of the first k picks, mean over groups; picks: "
        f"the same after {_SHOWN_PICKS}. Intervals: bootstrap over workloads, 95 %; networks are "
        "means over seeds. Random order is computed exactly; its top-5 is the best of five random "
        f"draws. Of each group at most {result['programs_per_group']} programs are learned from, "
        "and all are tested.",
        _PUBLISHED,
    ]
    parts += [_table_text(found) for found in result["tables"]]
    parts.append(_goal_text(result["tables"]))
    parts += [f"- missing: {text}" for text in (*result["absent"], *_missing(result["tables"]))]
    return "\n\n".join(parts)


def _table_text(found: Mapping[str, Any]) -> str:
    main_rows, other_rows, notes = [], [], []
    random = {"model": "random order", **found["random"]}
    for row in (random, *found["rows"]):
        if "left_out" in row:
            notes.append(f"- {row['model']} is left out: {row['left_out']}.")
        elif "metrics" in row:
            main_rows.append(_main_row(row))
            other_rows.append(_other_row(row))
    sizes = ", ".join(f"{n} {reason}" for reason, n in found["skipped"].items())
    return "\n\n".join(
        text
        for text in (
            f"## {found['data']}, split by {found['split']}",
            f"{found['groups']} groups of {found['workloads']} workloads, {found['programs']:,} "
            f"programs, {len(found['parts'])} parts. Left out when reading: {sizes or 'nothing'}.",
            table(
                ["model", "top-1", "top-5", f"{_SHOWN_PICKS} picks", "pairs", "tau", "NDCG@16",
                 "trained in s", "ms/program", "cells"],
                main_rows,
            ),
            "The other definitions of top-k (`foretune.evaluate.metrics`):",
            table(["model", *(f"top-{k} {d}" for d in _OTHERS for k in (1, 5))], other_rows),
            "\n".join(notes),
        )
        if text
    )  # fmt: skip


def _main_row(row: Mapping[str, Any]) -> list[str]:
    metrics = row["metrics"]
    top1, top5, pairs, tau, ndcg = (_interval(metrics[name]) for name in _MAIN)
    picks = next(p["share_of_best"] for p in row["curve"] if p["picks"] == _SHOWN_PICKS)
    measured = "train_s" in row
    return [
        row["model"],
        top1,
        top5,
        _interval(picks),
        pairs,
        tau,
        ndcg,
        f"{row['train_s']:.0f}" if measured else "",
        f"{row['score_s_per_program'] * 1e3:.2f}" if measured else "",
        f"{row['cells']}/{row['of']}" if measured else "",
    ]


def _other_row(row: Mapping[str, Any]) -> list[str]:
    metrics = row["metrics"]
    return [
        row["model"],
        *(f"{metrics[f'top{k}_{name}']['mean']:.3f}" for name in _OTHERS for k in (1, 5)),
    ]


def _interval(figure: Mapping[str, float]) -> str:
    return f"{figure['mean']:.3f} ({figure['low']:.3f}–{figure['high']:.3f})"


def _goal_text(tables: Sequence[Mapping[str, Any]]) -> str:
    for found in tables:
        if f"{found['data']}/{found['split']}" == _GOAL_TABLE:
            rows = [row for row in found["rows"] if "metrics" in row]
            if not rows:
                break
            best = max(rows, key=lambda row: row["metrics"]["top1"]["mean"])
            return "\n".join(
                f"- Goal: {name} at least {goal:.2f} on held-out workloads for the best model: "
                f"{best['model']} has {best['metrics'][name]['mean']:.3f}, "
                f"{'met' if best['metrics'][name]['mean'] >= goal else 'not met'}."
                for name, goal in GOAL.items()
            )
    return f"- Goal: not judged, the table {_GOAL_TABLE} has no complete row."


def _missing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for every row that lacks cells."""
    lines = [
        f"{found['data']}/{found['split']} {row['model']}: {row['of'] - row['cells']} of "
        f"{row['of']} cells are not computed"
        for found in tables
        for row in found["rows"]
        if "left_out" not in row and row["cells"] < row["of"]
    ]
    return lines + [text for found in tables for text in found["failed"]]


if __name__ == "__main__":
    main()
