"""The first picks from pools of measured programs, learning along the way.

A search without sampling and without noise: a cost model picks from the measured programs of a
workload that its ranker has not learned from, a few at a time, and is told what they took. What
differs between the sides is only what they read: decisions, or also the per-store features of
programs, which have to be made first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results import ROOT, conditions, publish, say, table
from foretune import features
from foretune.cost import CostModel, Ranker, rankers
from foretune.cost.gbdt import GradientBoosting
from foretune.cost.pretrained import PretrainedModel
from foretune.dataset import AUDIT, Group, read_dataset
from foretune.evaluate import Bootstrap, cross_validation, keep_judgeable
from foretune.evaluate.metrics import labels
from foretune.records import Record
from foretune_research.replay import expected_share

_TITLE = "The first picks from measured programs"
_SHOWN = (1, 4, 8, 16, 24)
_ACTIONS, _PROGRAMS = "gbdt_actions", "gbdt"

FloatArray = npt.NDArray[np.float64]
Maker = Callable[[Group, np.random.Generator], CostModel]


def picks(
    model: CostModel, group: Group, records: Mapping[str, Record], batch: int, most: int
) -> FloatArray:
    """Fastest program / fastest picked so far, after 1, 2... picks, shape (most,).

    Args:
        model: Picks what it scores best, and learns from it.
        group: The pool.
        records: Of its programs, by the key of their candidate.
        batch: Picks between two updates.
        most: Picks in all; the last value stays once the pool is empty.
    """
    candidates = [p.candidate for p in group.programs if p.candidate is not None]
    left = list(range(len(candidates)))
    order: list[int] = []
    while left and len(order) < most:
        scores = np.nan_to_num(model.predict([candidates[i] for i in left]).score, nan=-np.inf)
        chosen = [left[at] for at in np.argsort(-scores, kind="stable")[:batch].tolist()]
        model.update([records[candidates[i].key] for i in chosen])
        order += chosen
        left = [i for i in left if i not in set(chosen)]
    so_far = np.fmin.accumulate(group.seconds[order[:most]])
    shares = np.nan_to_num(np.nanmin(group.seconds) / so_far, nan=0.0)
    return np.concatenate([shares, np.full(most - len(shares), shares[-1])])


def by_chance(seconds: FloatArray, most: int = _SHOWN[-1]) -> FloatArray:
    """What ``picks`` gives on average where the order is random, shape (most,)."""
    return expected_share(labels(seconds), most)


def sides(actions: Ranker, programs: Ranker) -> dict[str, Maker]:
    """What each side makes for a pool, from rankers trained on other workloads."""
    store = {"extract": features.candidate_rows}

    def pretrained(ranker: Ranker, **options: Any) -> Maker:
        return lambda group, rng: PretrainedModel(
            rng=rng, hardware=group.machine, ranker=ranker, draft=actions, **options
        )

    return {
        "ranker of decisions, trees of decisions (default)": pretrained(actions),
        "ranker of decisions, trees of per-store features": pretrained(actions, **store),
        "ranker and trees of per-store features": pretrained(programs),
        "not pretrained, trees of per-store features": lambda group, rng: GradientBoosting(
            rng=rng, hardware=group.machine
        ),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every side on the same pools."""
    data = read_dataset(options.data)
    records: dict[tuple[str, str], dict[str, Record]] = {}
    for record in data.records:
        if record.origin != AUDIT:
            records.setdefault((record.workload, record.hardware), {})[record.candidate_key] = (
                record
            )
    groups, _few = keep_judgeable(data.groups())
    rng = np.random.default_rng(options.seed)
    curves: dict[str, list[FloatArray]] = {}
    tested: list[Group] = []
    for part in cross_validation(groups, "workload", options.folds, seed=options.seed):
        trained = []
        for name in (_ACTIONS, _PROGRAMS):
            kept = {"cache": options.features} if rankers.reads_programs(name) else {}
            trained.append(rankers.create(name, seed=options.seed, **kept))
            trained[-1].fit(part.train, part.validation)
        drawn = rng.permutation(len(part.test))[: options.pools]
        pools = [part.test[i] for i in np.sort(drawn).tolist()]
        for side, make in sides(*trained).items():
            started = time.perf_counter()
            for group in pools:
                model = make(group, np.random.default_rng(options.seed))
                known = records[group.workload, group.hardware]
                curve = picks(model, group, known, options.batch, _SHOWN[-1])
                curves.setdefault(side, []).append(curve)
            say(f"{part.name}, {side}: {time.perf_counter() - started:.0f} s")
        tested += pools
    bootstrap = Bootstrap([group.workload for group in tested])
    rows = [_row("random order", np.array([by_chance(g.seconds) for g in tested]), bootstrap)]
    rows += [_row(side, np.array(found), bootstrap) for side, found in curves.items()]
    base = np.array(next(iter(curves.values())))
    gaps = [
        _row(f"default less: {side}", base - np.array(found), bootstrap)
        for side, found in list(curves.items())[1:]
    ]
    return {
        "schema": "foretune.pools/1",
        "batch": options.batch,
        "pools": len(tested),
        "workloads": len({group.workload for group in tested}),
        "rows": rows,
        "gaps": gaps,
    }


def _row(side: str, shares: FloatArray, bootstrap: Bootstrap) -> dict[str, Any]:
    return {"side": side, "after": {n: bootstrap.mean(shares[:, n - 1]) for n in _SHOWN}}


def _body(result: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            f"{result['pools']} pools of {result['workloads']} workloads, {result['batch']} picks "
            "between two updates. Fastest of the pool / fastest picked so far, mean over pools; "
            "intervals: bootstrap over workloads, 95 %.",
            _table(result["rows"]),
            "Paired differences; above 0, the default is better:",
            _table(result["gaps"], "+"),
        ]
    )


def _table(rows: Sequence[Mapping[str, Any]], sign: str = "") -> str:
    return table(
        ["side", *(f"{n} picks" for n in _SHOWN)],
        [
            [
                row["side"],
                *(
                    f"{v['mean']:{sign}.3f} ({v['low']:{sign}.3f}–{v['high']:{sign}.3f})"
                    for v in row["after"].values()
                ),
            ]
            for row in rows
        ],
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--pools", type=int, default=40, help="of each fold, at most")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features", type=Path, default=Path("foretune-work/models/features"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("pools", [options.seed])
    result = run(options)
    publish("pools", _TITLE, _body(result), result, where.end(), options.write)


if __name__ == "__main__":
    main()
