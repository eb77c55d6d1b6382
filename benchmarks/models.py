"""Learned models on workloads, operators and devices that they have not learned from.

One table per data set and split: model x metric, with the floor of random order. Every cell (one
model trained with one seed on one part of a split) is kept in the work directory under a hash of
its settings, of the data, and of the code that reads, describes, learns and judges; so the
benchmark goes on where it was interrupted, and trains anew only what a change has touched. What is
written replaces the tables that were computed, and leaves those of other calls.
"""

from __future__ import annotations

import argparse
import functools
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._rankers import Cell, cells_of, depends_on_chance, judged_by_group, result_of
from benchmarks.pages import Section, curves, publish
from benchmarks.results import ROOT, conditions, figure, quoted, readings_of, say, table
from foretune.cost import rankers, split_name
from foretune.dataset import Group
from foretune.errors import ForetuneError, unknown_name
from foretune.evaluate import (
    Bootstrap,
    GroupMetrics,
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

SHARED = ROOT.parent / "shared" / "data"
DATA: Mapping[str, tuple[Path, ...]] = {
    "cpu": (ROOT / "data" / "cpu",),
    "k80": (SHARED / "ansor" / "k80.tar.gz",),
    "mi50": (SHARED / "ansor" / "mi50.tar.gz",),
    "k80+mi50": (SHARED / "ansor" / "k80.tar.gz", SHARED / "ansor" / "mi50.tar.gz"),
    "a100": (SHARED / "metaschedule-a100-resnet34",),
}
"""Measurements by name: our own, and those that others published (../shared/data/README.md)."""
WORK = Path("foretune-work/models")
FEATURES = WORK / "features"
"""Where rankers that read programs keep what they read."""
GOAL = {"top1": 0.90, "top5": 0.97}
"""What the best model is to reach on held-out workloads of our own data."""
_MAIN = "cpu/workload"
_ACTIONS = ("gbdt_actions", "mlp_actions", "tlp", "tgraph")
_TREES = ("gbdt_actions", "gbdt_behaviour", "gbdt")
_OURS = (*_TREES, "mlp_actions", "mlp_behaviour", "joined", "mlp", "tlp", "mtl_tlp", "tgraph")
_REFERENCES = ("mlp:reference", "tlp:reference", "mtl_tlp:reference")
"""As published: larger and slower than ours, so that not every table has them, and one seed."""
_METRICS = {"top-1": "top1", "top-5": "top5", "pairs": "pair_accuracy", "tau": "kendall_tau",
            "NDCG@16": "ndcg16"}  # fmt: skip
_OTHERS = [f"top{k}_{name}" for name in ("pooled", "running") for k in (1, 5)]
_PICKS = 16
_BELOW = " ▼"
"""Marks a figure that random order surpasses."""


@dataclass(frozen=True)
class Job:
    """One table.

    Attributes:
        data: A name of ``DATA``.
        by: A name of ``foretune.evaluate.splits``.
        folds: See there.
        on_all_devices: Whether only workloads that were measured on every device count, so that
            tables with and without workloads seen on another device test the same groups.
        programs: Learned from per group, at most.
        models: Names of rankers.
    """

    data: str
    by: str
    folds: int | None = None
    on_all_devices: bool = False
    programs: int = 32
    models: tuple[str, ...] = _OURS

    @property
    def name(self) -> str:
        """``data/split``."""
        return f"{self.data}/{self.by}"


JOBS = (
    Job("cpu", "workload", 5, models=(*_OURS, *_REFERENCES)),
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
    return range(seeds if depends_on_chance(model) and model not in _REFERENCES else 1)


def why_not(model: str, part: Split) -> str:
    """Why a model cannot be judged on a part; empty if it can."""
    everything = (*part.train, *part.validation, *part.test)
    actions_only = any(group.programs[0].candidate is None for group in everything)
    if actions_only and rankers.needs(split_name(model)[0]).programs:
        return "reads programs, of which this data has only the actions"
    if model.startswith("mtl_tlp") and len({g.hardware for g in part.train}) < 2:
        return "one device to learn from, so that it is the same with one head"
    return ""


def row_of(
    job: Job, parts: Sequence[Split], model: str, options: argparse.Namespace, data: str
) -> tuple[dict[str, Any], dict[str, GroupMetrics]]:
    """What cells of a model took, and its metrics of every tested group.

    Args:
        job: The table.
        parts: Of its split.
        model: Name of a ranker, with options.
        options: ``seeds``, ``work_dir`` and ``precision``.
        data: A fingerprint of the groups.
    """
    kept = cells_of(options.work_dir, model, data, job.programs, options.precision)
    seeds = seeds_of(model, options.seeds)
    found = [
        [
            result_of(
                Cell(number, part, model, seed, job.programs),
                kept,
                options.work_dir / "features",
                options.precision,
            )
            for seed in seeds
        ]
        for number, part in enumerate(parts)
    ]
    times = {
        name: float(np.mean([result[name] for each in found for result in each]))
        for name in ("train_s", "score_s_per_program", "train_programs")
    }
    row = {"model": model, "seeds": len(seeds), **times}
    return row, judged_by_group(parts, found)


def table_of(job: Job, models: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """A table: the floor of random order, and a row per model."""
    groups = groups_of(job)
    parts = cross_validation(groups, job.by, job.folds)[: options.parts]
    tested = [group for part in parts for group in part.test]
    bootstrap = Bootstrap([group.workload for group in tested])
    data = fingerprint(groups)
    rows: list[dict[str, Any]] = []
    top1: dict[str, np.ndarray] = {}
    for model in models:
        reason = next(filter(None, (why_not(model, part) for part in parts)), "")
        if not reason:
            try:
                row, judged = row_of(job, parts, model, options, data)
            except ForetuneError as error:
                reason = str(error)
        if reason:
            say(f"{job.name}: {model} is left out: {reason}")
            rows.append({"model": model, "left_out": reason})
            continue
        every = [judged[group.key] for group in tested]
        top1[model] = np.array([one.ratio[0] for one in every])
        readings = {"top1": top1[model], "kendall_tau": [one.kendall_tau for one in every]}
        row |= {"metrics": summarise(tested, every, bootstrap), "curve": curve(every, bootstrap)}
        rows.append({**row, "readings": {k: _short(v) for k, v in readings.items()}})
    if top1:
        best = max(top1.values(), key=np.mean)
        for row in rows:
            if row["model"] in top1:
                row["behind"] = bootstrap.mean(best - top1[row["model"]])
    random = [random_order(group.seconds) for group in tested]
    return {
        "data": job.data,
        "split": job.by,
        "programs_per_group": job.programs,
        "precision": options.precision,
        "command": eval_command(job),
        "parts": len(parts),
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(len(group) for group in tested),
        "skipped": load(job.data)[1],
        "rows": rows,
        "random": {
            "metrics": summarise(tested, random, bootstrap),
            "curve": curve(random, bootstrap),
        },
        "keys": [group.key for group in tested],
    }


def _short(values: Sequence[float] | np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in values]


# The page


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    tables = data["tables"]
    main = next((t for t in tables if _name(t) == _MAIN), tables[0])
    shown = [row for row in main["rows"] if "metrics" in row]
    floor = main["random"]
    answer = f"No row of {_name(main)} is complete."
    if shown:
        best = max(shown, key=lambda row: row["metrics"]["top1"]["mean"])
        goals = ", ".join(
            f"{name.replace('top', 'top-')} {goal:.2f}: "
            f"{'met' if best['metrics'][name]['mean'] >= goal else 'missed'}"
            for name, goal in GOAL.items()
        )
        answer = (
            f"The program that `{best['model']}` puts first reaches "
            f"{figure(best['metrics']['top1'])} of the fastest measured one, where a random "
            f"program reaches {figure(floor['metrics']['top1'])} (asked: {goals})."
        )
    rows = [_row({"model": "random order", **floor}, floor)]
    rows += [_row(row, floor) for row in shown]
    by_picks = {
        row["model"]: [
            (p["picks"], *(p["share_of_best"][end] for end in ("mean", "low", "high")))
            for p in row["curve"]
        ]
        for row in ({"model": "random order", **floor}, *shown)
    }
    return Section(
        "How good is a model's first guess on a workload that it never saw?",
        answer,
        f"{_of(main)}\n\n{table(_HEADER, rows)}",
        "\n\n".join([_READING, *(_details(one) for one in tables)]),
        lambda axes: curves(axes, by_picks, "programs picked", "best of them / best"),
        "share of the best by programs picked",
    )


_HEADER = ["model", "top-1", "top-5", f"best of {_PICKS}", "tau", "ms a program", "seeds"]
_READING = (
    "Every group of programs (one workload on one hardware) is tested once, by models that have "
    "not learned from its workload (in `hardware_seen`: not from its hardware). top-k: seconds "
    "of the fastest program / fastest of the first k picks, mean over groups. Behind the best: "
    f"top-1 of the best row less that of this one, group by group. A figure with{_BELOW} is worse "
    "than random order, which is computed exactly. Intervals: bootstrap over workloads, 95 %; "
    "networks are means over seeds. Milliseconds are with features of programs that were read "
    "before. Pooled and running are other definitions of top-k (`foretune.evaluate.metrics`). "
    "For orientation, the LLMTuner paper reports on TenSet (top-1 / top-5, pooled) TenSet's MLP "
    "0.875 / 0.953 on a Platinum 8272 and 0.908 / 0.963 on a K80, TLP 0.919 / 0.971 and 0.906 / "
    "0.974; figures of different data do not compare."
)


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['data']}/{found['split']}"


def _of(found: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{n} {reason}" for reason, n in found["skipped"].items())
    return (
        f"Data `{found['data']}`, split by {found['split']}: {found['groups']} groups of "
        f"{found['workloads']} workloads, {found['programs']:,} programs"
        + (f" (left out: {sizes})" if sizes else "")
        + "."
    )


def _row(row: Mapping[str, Any], floor: Mapping[str, Any]) -> list[str]:
    top1, top5, _, tau, _ = (
        _marked(row["metrics"], floor["metrics"], n) for n in _METRICS.values()
    )
    milliseconds = row.get("score_s_per_program")
    return [
        row["model"],
        top1,
        top5,
        _marked(_picks(row), _picks(floor), "share_of_best"),
        tau,
        "" if milliseconds is None else f"{1e3 * milliseconds:.2f}",
        str(row.get("seeds", "")),
    ]


def _details(found: Mapping[str, Any]) -> str:
    floor, rows, notes = found["random"], [], []
    for row in ({"model": "random order", **floor}, *found["rows"]):
        if "metrics" not in row:
            notes.append(f"- {row['model']}: {row.get('left_out', 'not every part is computed')}.")
            continue
        behind = row.get("behind")
        others = [_bare(row["metrics"][name], floor["metrics"][name]) for name in _OTHERS]
        rows.append(
            [
                row["model"],
                *(_marked(row["metrics"], floor["metrics"], name) for name in _METRICS.values()),
                "" if behind is None or behind["low"] == behind["high"] else figure(behind),
                *others,
                f"{row['train_s']:.0f}" if "train_s" in row else "",
            ]
        )
    header = ["model", *_METRICS, "behind the best", "top-1 pooled", "top-5 pooled",
              "top-1 running", "top-5 running", "trained in s"]  # fmt: skip
    learned = (
        f"At most {found['programs_per_group']} programs of a group are learned from; those tested "
        f"are whole. A row alone: `{found['command']}` (networks with `--seeds` as above and "
        f"`--option precision={found['precision']}`)."
    )
    ran = found.get("conditions")
    if ran:
        learned += (
            f" Computed by {quoted(ran['command'])} on {ran['hardware']['name']}, {ran['began']}."
        )
    texts = [f"#### {_name(found)}", _of(found), table(header, rows), "\n".join(notes), learned]
    return "\n\n".join(text for text in texts if text)


def _picks(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(p for p in row["curve"] if p["picks"] == _PICKS)


def _bare(found: Mapping[str, float], floor: Mapping[str, float]) -> str:
    """The mean, marked where it is worse than the floor's by as much as is printed."""
    text = f"{found['mean']:.3f}"
    return text + (_BELOW if float(text) < round(floor["mean"], 3) else "")


def _marked(metrics: Mapping[str, Any], floor: Mapping[str, Any], name: str) -> str:
    found = metrics[name]
    return f"{_bare(found, floor[name])} ({found['low']:.3f} to {found['high']:.3f})"


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    where = conditions("models", list(range(options.seeds)))
    tables = []
    for job in _chosen(options):
        missing = [path for path in DATA[job.data] if not path.exists()]
        if missing:
            say(f"{job.name} is left out: {missing[0].name} is not on this machine")
            continue
        models = options.models or job.models
        tables.append(table_of(job, models, options))
    ended = where.end()
    # Each table says by itself how it was computed: the next call may compute another one.
    tables = [{**one, "conditions": ended} for one in tables]
    known = (readings_of("models") or {"tables": []})["tables"]
    names = {_name(one) for one in tables}
    kept = [one for one in known if _name(one) not in names] if options.write else []
    order = [job.name for job in JOBS]
    result = {
        "schema": "foretune.models/2",
        "tables": sorted([*kept, *tables], key=lambda one: order.index(_name(one))),
    }
    if result["tables"]:
        publish("models", section, result, ended, options.write)


def model_options(description: str | None) -> argparse.ArgumentParser:
    """A parser of what all who train rankers of a table take."""
    parser = argparse.ArgumentParser(description=description)
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
    parser.add_argument("--work-dir", type=Path, default=WORK)
    parser.add_argument("--write", action="store_true")
    return parser


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = model_options(__doc__)
    parser.add_argument("--only", default="", help=f"tables: {', '.join(j.name for j in JOBS)}")
    parser.add_argument("--data", default="", help=f"data sets: {', '.join(DATA)}")
    parser.add_argument(
        "--models",
        default="",
        help="rankers, with options behind (world:variants:state=none); those of each table if "
        "left out",
    )
    options = parser.parse_args(arguments)
    options.only = _names("table", options.only, [job.name for job in JOBS])
    options.data = _names("data set", options.data, list(DATA))
    options.models = _names("model", options.models, rankers.names())
    return options


def _names(kind: str, text: str, known: Sequence[str]) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if split_name(name)[0] not in known:
            raise unknown_name(kind, name, known)
    return names


def _chosen(options: argparse.Namespace) -> list[Job]:
    return [
        job if options.programs is None else replace(job, programs=options.programs)
        for job in JOBS
        if (not options.only or job.name in options.only)
        and (not options.data or job.data in options.data)
    ]


if __name__ == "__main__":
    main()
