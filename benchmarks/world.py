"""The compiler world model on workloads that it has not learned from: what it predicts, what for.

How near predicted terminal states are to the true ones, by the length of the path, beside who
predicts nothing. How well the ranker ``world`` orders programs, with every switch and beside the
models of ``benchmarks.models`` on the same split, and paired differences to the full model.

Within a fold, encoder and transitions are learned once and shared; trees are grown for every
variant. What a fold has learned and every finished cell are kept in the work directory, each under
a hash of settings, data and code, so that the benchmark goes on where it was interrupted, and
calls with the same settings learn nothing anew. Folds can be computed side by
side, ``--fold 1,2`` beside ``--fold 3,4,5``: such calls only fill cells, and one without it puts
them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks._model.cells import Cell, Job, metrics_from_json
from benchmarks._model.store import Store
from benchmarks._world.cells import FULL, INITIAL, NONE, SWAPPED, VARIANTS, Fold, train_and_judge
from benchmarks._world.folds import MODELS, Cells, Learning, learning_of, learning_options, told
from benchmarks._world.page import (
    METRICS,
    agreement,
    body_of,
    compare,
    readings,
    terminal_table,
    value,
)
from benchmarks.models import DATA, JOBS
from benchmarks.results import conditions, publish, say
from foretune.dataset import Group
from foretune.evaluate import (
    Bootstrap,
    GroupMetrics,
    Split,
    keep_judgeable,
    random_order,
    read_data,
)
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.metrics import average

_TITLE = "The compiler world model"
_SCHEMA = "foretune.world/2"
_JOB = next(job for job in JOBS if job.name == "cpu/workload")
"""The table of ``benchmarks.models`` on the same data and split."""
_PUBLISHED: Mapping[str, Sequence[int]] = {"tlp": range(3), "gbdt": (0,), "gbdt_actions": (0,)}
"""Its rows that are shown here, and their seeds."""
_PRECISION = "bfloat16"
"""Of its networks, when they were published."""
_PEER = "{} (benchmarks.models)"


def fill(
    fold: Fold, number: int, cells: Cells, paths: int, variants: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, GroupMetrics]]]:
    """All cells of a fold, made where they are not there.

    Args:
        fold: Which.
        number: Of it.
        cells: Where finished ones are.
        paths: Test programs whose states are predicted.
        variants: Names in ``VARIANTS``.

    Returns:
        Rows of ``Fold.terminals``, and of each row of the ranking its groups' metrics by key.
    """
    name = fold.part.name
    terminals = cells.get(
        f"terminals {number}, {paths} paths",
        lambda: fold.terminals(paths),
        f"{name}: terminal states",
    )
    judged: dict[str, dict[str, GroupMetrics]] = {}
    for variant in variants:
        found = cells.get(
            f"{variant} {number}",
            lambda variant=variant: train_and_judge(fold, variant),
            f"{name}: {variant}",
        )
        for row, results in found.items():
            judged[row] = {key: metrics_from_json(one) for key, one in results.items()}
    return terminals, judged


def published(
    parts: Sequence[Split], store: Store, job: Job
) -> tuple[dict[str, dict[str, GroupMetrics]], list[str]]:
    """Rows of ``benchmarks.models`` on the same split.

    Args:
        parts: Of the split.
        store: Of its cells.
        job: Its table.

    Returns:
        Name of a row -> key of a group -> its metrics, means over seeds; and in words what is not
        there. A row has all of its cells or is left out.
    """
    found: dict[str, dict[str, GroupMetrics]] = {}
    missing = []
    for model, seeds in _PUBLISHED.items():
        results = [
            [store.read(Cell(job, number, part, model, seed)) for seed in seeds]
            for number, part in enumerate(parts)
        ]
        absent = sum(result is None for each in results for result in each)
        if absent:
            total = len(parts) * len(seeds)
            missing.append(
                f"{_PEER.format(model)}, of which {absent} of {total} cells are not kept under "
                "the hash of this code and data"
            )
            continue
        found[_PEER.format(model)] = {
            group.key: average(
                [metrics_from_json(r["groups"][group.key]) for r in each if r is not None]
            )
            for part, each in zip(parts, results, strict=True)
            for group in part.test
        }
    return found, missing


def peers(
    learning: Learning, groups: Sequence[Group], data: Path
) -> tuple[dict[str, dict[str, GroupMetrics]], list[str]]:
    """``published`` where data and split are those of ``benchmarks.models``, else what they are."""
    own = (learning.folds, learning.programs, learning.seed, data.resolve())
    if own != (_JOB.folds, _JOB.programs, 0, DATA[_JOB.data][0].resolve()):
        return {}, [
            f"{', '.join(_PUBLISHED)} of `benchmarks.models`, which are of the package's data, "
            f"{_JOB.folds} folds, {_JOB.programs} programs of a group and seed 0"
        ]
    store = Store(MODELS, fingerprint(groups), _PRECISION)
    return published(learning.parts(groups), store, _JOB)


def run(
    groups: Sequence[Group],
    cells: Cells,
    learning: Learning,
    *,
    paths: int,
    variants: Sequence[str],
    others: Mapping[str, Mapping[str, GroupMetrics]] | None = None,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything, as a JSON object.

    Args:
        groups: Judgeable ones.
        cells: Where finished ones are.
        learning: What folds learn.
        paths: Test programs whose states are predicted, over all folds.
        variants: Names in ``VARIANTS``, the full model among them.
        others: Further rows of the ranking, judged elsewhere on the same groups.
        missing: What further rows are not there, in words.
    """
    judged: dict[str, dict[str, GroupMetrics]] = {}
    terminals: list[dict[str, Any]] = []
    parts = learning.parts(groups)
    for number, part in enumerate(parts):
        fold = learning.fold(part, number)
        rows, found = fill(fold, number, cells, _paths_of_fold(paths, learning), variants)
        terminals += rows
        for row, own in found.items():
            judged.setdefault(row, {}).update(own)
    order = (FULL, SWAPPED, NONE, INITIAL, *variants)
    own = {name: judged[name] for name in dict.fromkeys(order) if name in judged}
    tested = [group for part in parts for group in part.test]
    bootstrap = Bootstrap([group.workload for group in tested])
    floors = [random_order(group.seconds) for group in tested]
    peer = (others or {}).get(_PEER.format("gbdt_actions"))
    return {
        "schema": _SCHEMA,
        "config": asdict(learning.config),
        "folds": len(parts),
        "seed": learning.seed,
        "programs_per_group": learning.programs,
        "threads": learning.threads,
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(map(len, tested)),
        "random": {name: bootstrap.mean([value(one, name) for one in floors]) for name in METRICS},
        "terminals": terminal_table(terminals),
        "variants": compare(tested, {**(others or {}), **own}),
        "missing": list(missing),
        "peers": {
            _PEER.format(model): len(seeds)
            for model, seeds in _PUBLISHED.items()
            if _PEER.format(model) in (others or {})
        },
        "check": agreement(own[NONE], peer) if peer is not None and NONE in own else None,
        "readings": readings(tested, own, terminals),
    }


def _paths_of_fold(paths: int, learning: Learning) -> int:
    return max(2, paths // learning.folds)


def main(arguments: list[str] | None = None) -> None:
    parser = learning_options(__doc__)
    parser.add_argument("--paths", type=int, default=3000, help="test programs followed")
    parser.add_argument("--page", default="world", help="name of what --write writes")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="the full model first")
    parser.add_argument("--fold", help="numbers from 1: compute these, and do not publish")
    options = parser.parse_args(arguments)
    variants = [name for name in options.variants.split(",") if name]
    if FULL not in variants or not set(variants) <= set(VARIANTS):
        parser.error(f"variants are {', '.join(VARIANTS)}; {FULL} has to be among them")
    chosen = [name for name in (options.fold or "").split(",") if name]
    if not set(chosen) <= set(map(str, range(1, options.folds + 1))):
        parser.error(f"folds are numbers from 1 to {options.folds}, but got {options.fold}")
    where = conditions("world", [options.seed])
    say("reading the data")
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    learning = learning_of(options)
    cells = learning.cells(groups)
    with told():
        if chosen:
            parts = learning.parts(groups)
            for number in sorted({int(name) - 1 for name in chosen}):
                fold = learning.fold(parts[number], number)
                fill(fold, number, cells, _paths_of_fold(options.paths, learning), variants)
            return
        others, missing = peers(learning, groups, options.data)
        result = run(
            groups,
            cells,
            learning,
            paths=options.paths,
            variants=variants,
            others=others,
            missing=missing,
        )
    publish(options.page, _TITLE, body_of(result), result, where.end(), options.write)


if __name__ == "__main__":
    main()
