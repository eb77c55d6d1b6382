"""What states say of a program's speed that its decisions do not.

A ranker of actions scores programs of workloads that it has not learned from. What is left of their
times is then predicted from columns that the ranker had not: the encoded program itself, the state
that the world model predicts for it, and controls. A linear and a small boosted model learn that
from other workloads; columns and residuals are centred within workloads, because nothing else is
needed to rank. Only programs that were drawn uniformly are asked about, where it is known which
are: those that a search has found are fast and alike, so that the means of a group which holds
them would tell who is who. If the encoded program says nothing, no transition could; if it does and
the prediction does not, the transition loses it. Per-store features of the program are the positive
control, numbers drawn at random the negative one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost
from scipy import stats

from benchmarks._world.cells import Fold
from benchmarks._world.folds import learning_of, learning_options, told
from benchmarks.results import conditions, figure, publish, say, table
from foretune.collect import UNIFORM
from foretune.cost import Ranker, rankers
from foretune.dataset import Group
from foretune.evaluate import Bootstrap, judge, keep_judgeable, read_data
from foretune.evaluate.metrics import labels

Floats = npt.NDArray[np.float64]

_TITLE = "What states say beyond decisions"
_PARTS = 5
"""Parts of the workloads in which residuals are predicted by models of the other parts."""
_RIDGES = (1.0, 10.0, 100.0, 1000.0, 10000.0)
_TREES = {
    "max_depth": 4,
    "eta": 0.05,
    "subsample": 0.7,
    "colsample_bytree": 0.3,
    "min_child_weight": 5,
    "nthread": 1,
}
_ROUNDS = 200
_NOISE = 128
_TRANSITIONS = {
    "trained": "predicted state",
    "untrained": "predicted, untrained",
    "actions_only": "predicted, actions only",
    "direct": "predicted in one step",
}
"""Which transitions, or control of them, and what the columns that they predict are called."""
_TRUE = {"text": "encoded program", "features": "program's state"}
"""What the columns of true terminal states are called."""


def centred(matrix: Floats) -> Floats:
    """A matrix of one workload without the means of its columns."""
    return matrix - matrix.mean(axis=0)


def ridge(x: Floats, y: Floats, owner: npt.NDArray[np.int64], new: Floats) -> Floats:
    """Ridge regression on standardised columns; its penalty is chosen by workloads left out."""
    scale = np.maximum(x.std(axis=0), 1e-9)
    x, new = x / scale, new / scale

    def fitted(some: npt.NDArray[np.bool_], penalty: float) -> Floats:
        gram = x[some].T @ x[some] + penalty * np.eye(x.shape[1])
        solved: Floats = np.linalg.solve(gram, x[some].T @ y[some])
        return solved

    def error(penalty: float) -> float:
        found = 0.0
        for part in range(_PARTS):
            out = owner % _PARTS == part
            found += float(((y[out] - x[out] @ fitted(~out, penalty)) ** 2).sum())
        return found

    best = min(_RIDGES, key=error)
    return np.asarray(new @ fitted(np.ones(len(y), dtype=bool), best))


def trees(x: Floats, y: Floats, owner: npt.NDArray[np.int64], new: Floats) -> Floats:
    """A small boosted model."""
    del owner
    data = xgboost.DMatrix(x.astype(np.float32), y)
    booster = xgboost.train({**_TREES, "seed": 0}, data, _ROUNDS)
    return np.asarray(booster.predict(xgboost.DMatrix(new.astype(np.float32))), dtype=np.float64)


LEARNERS = {"ridge": ridge, "trees": trees}


def predicted(
    columns: Sequence[Floats], wanted: Sequence[Floats], workloads: Sequence[str], learner: str
) -> list[Floats]:
    """What is wanted of every group, predicted by models of other workloads.

    Args:
        columns: Of each group, shape (n, columns), centred.
        wanted: Of each group, shape (n,), centred.
        workloads: Of each group.
        learner: A name of ``LEARNERS``.
    """
    number = np.unique(list(workloads), return_inverse=True)[1]
    found: list[Floats] = [np.zeros(0)] * len(columns)
    for part in range(_PARTS):
        out = number % _PARTS == part
        inside = np.flatnonzero(~out)
        x = np.concatenate([columns[at] for at in inside])
        y = np.concatenate([wanted[at] for at in inside])
        # Numbers of workloads among those that are left, so that parts of them are alike in size.
        kept = np.unique(number[inside], return_inverse=True)[1]
        owner = np.repeat(kept, [len(wanted[at]) for at in inside])
        outside = np.flatnonzero(out)
        if not len(outside):
            continue
        guesses = LEARNERS[learner](x, y, owner, np.concatenate([columns[at] for at in outside]))
        ends = np.cumsum([len(wanted[at]) for at in outside])[:-1]
        for at, guess in zip(outside, np.split(guesses, ends), strict=True):
            found[at] = centred(guess)
    return found


def score_rows(
    groups: Sequence[Group],
    scores: Sequence[Floats],
    columns: Mapping[str, Sequence[Floats]],
) -> list[dict[str, Any]]:
    """One row per kind of columns and learner, each with the groups' figures.

    Args:
        groups: Of one fold.
        scores: Of the ranker of actions, log2 of how many times slower, higher is faster.
        columns: By name, of each group.
    """
    truth = [centred(np.log2(labels(group.seconds))) for group in groups]
    given = [centred(np.asarray(score, dtype=np.float64)) for score in scores]
    flat, right = np.concatenate(given), np.concatenate(truth)
    slope = float(flat @ right / max(flat @ flat, 1e-12))
    left = [real - slope * score for real, score in zip(truth, given, strict=True)]
    workloads = [group.workload for group in groups]
    rows = []
    for name, matrices in columns.items():
        own = [centred(np.asarray(matrix, dtype=np.float64)) for matrix in matrices]
        for learner in LEARNERS:
            guesses = predicted(own, left, workloads, learner)
            alone = predicted(own, truth, workloads, learner)
            rows.append(
                {
                    "columns": name,
                    "learner": learner,
                    "groups": [
                        _figures(group, real, score, rest, guess, one, slope)
                        for group, real, score, rest, guess, one in zip(
                            groups, truth, given, left, guesses, alone, strict=True
                        )
                    ],
                }
            )
    return rows


def _figures(
    group: Group,
    truth: Floats,
    score: Floats,
    left: Floats,
    guess: Floats,
    alone: Floats,
    slope: float,
) -> dict[str, Any]:
    def quality(values: Floats) -> tuple[float, float]:
        tau = float(np.nan_to_num(stats.kendalltau(values, truth).statistic))
        rng = np.random.default_rng(0)
        return tau, float(judge(values, group.seconds, rng).ratio[0])

    before, after = quality(slope * score), quality(slope * score + guess)
    return {
        "workload": group.workload,
        "kind": group.kind,
        "left": float((left**2).sum()),
        "unexplained": float(((left - guess) ** 2).sum()),
        "all": float((truth**2).sum()),
        "unexplained alone": float(((truth - alone) ** 2).sum()),
        "tau": before[0],
        "tau gained": after[0] - before[0],
        "top1": before[1],
        "top1 gained": after[1] - before[1],
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one kind of columns and learner over the groups of all folds."""
    bootstrap = Bootstrap([row["workload"] for row in rows])

    def share(total: str, unexplained: str) -> dict[str, float]:
        whole = np.array([row[total] for row in rows])
        rest = np.array([row[unexplained] for row in rows])
        return bootstrap.interval(lambda draws: 1.0 - (draws @ rest) / (draws @ whole))

    return {
        "groups": len(rows),
        "alone": share("all", "unexplained alone"),
        "residual": share("left", "unexplained"),
        **{
            name: bootstrap.mean([row[name] for row in rows])
            for name in ("tau", "tau gained", "top1", "top1 gained")
        },
    }


def columns_of(
    fold: Fold,
    groups: Sequence[Group],
    true: Sequence[Floats],
    transitions: Sequence[str],
    noise: np.random.Generator,
) -> dict[str, list[Any]]:
    """What the residuals are predicted from, by name and group."""
    worlds = {name: fold.world(name) for name in transitions}
    world = worlds["trained"]
    actions = rankers.create("gbdt_actions", seed=0)
    programs = rankers.create("gbdt", seed=0, cache=fold.cache)
    found: dict[str, list[Any]] = {}
    for group, own in zip(groups, true, strict=True):
        candidates = [p.candidate for p in group.programs if p.candidate is not None]
        states = {
            "random numbers": noise.standard_normal((len(group), _NOISE)),
            "decisions": _matrix(actions, group),
            "per-store features": _matrix(programs, group),
            _TRUE[world.reader.target]: own,
            **{_TRANSITIONS[name]: one.predicted(candidates) for name, one in worlds.items()},
        }
        for name, matrix in states.items():
            found.setdefault(name, []).append(matrix)
    return found


def _matrix(ranker: Ranker, group: Group) -> Any:
    rows, legal = ranker._matrix(group.programs, group.machine)  # type: ignore[attr-defined]
    assert legal.all()
    return rows


def some_programs(groups: Sequence[Group], hardware: str, most: int, seed: int) -> list[Group]:
    """The groups of one machine, with programs that ran, at most so many of each.

    Where it is known who proposed the programs, those that were drawn uniformly.
    """
    found = []
    for group in groups:
        if group.hardware != hardware:
            continue
        drawn = np.array([origin == UNIFORM for origin in group.origins], dtype=bool)
        able = np.isfinite(group.seconds)
        ran = np.flatnonzero(able & drawn if len(drawn) else able)
        rng = np.random.default_rng(seed)
        kept = np.sort(rng.permutation(ran)[:most])
        found.append(group.subset(kept))
    return [group for group in found if len(group) > 1]


def judged_fold(
    fold: Fold, hardware: str, most: int, transitions: Sequence[str]
) -> list[dict[str, Any]]:
    """Rows of a fold: a ranker of its training workloads, columns of its test workloads."""
    groups = some_programs(fold.part.test, hardware, most, fold.seed)
    reader = fold.world("trained").reader
    kept, true = [], []
    for group in groups:
        candidates = [p.candidate for p in group.programs if p.candidate is not None]
        made = reader.finals(candidates, fold.cache)
        legal = np.array([at for at, state in enumerate(made) if state is not None])
        if len(legal) > 1:
            kept.append(group.subset(legal))
            true.append(np.stack([state for state in made if state is not None]))
    ranker = rankers.create("gbdt_actions", seed=fold.seed)
    ranker.fit(fold.train, fold.validation)
    scores = [ranker.score(group.programs, group.machine) for group in kept]
    say(f"{fold.part.name}: {len(kept)} groups, {sum(map(len, kept))} programs")
    noise = np.random.default_rng(fold.seed)
    return score_rows(kept, scores, columns_of(fold, kept, true, transitions, noise))


def main(arguments: list[str] | None = None) -> None:
    # With the same settings as in `benchmarks.world`, transitions are those that it has learned.
    parser = learning_options(__doc__)
    parser.add_argument("--tested", type=int, default=48, help="programs of a group, at most")
    parser.add_argument("--hardware", help="key; that of most groups if left out")
    parser.add_argument("--transitions", default=",".join(_TRANSITIONS), help="trained among them")
    options = parser.parse_args(arguments)
    transitions = [name for name in options.transitions.split(",") if name]
    if "trained" not in transitions or not set(transitions) <= set(_TRANSITIONS):
        parser.error(f"transitions are {', '.join(_TRANSITIONS)}; trained has to be among them")
    where = conditions("residuals", [options.seed])
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    keys = sorted(group.hardware for group in groups)
    hardware = options.hardware or max(sorted(set(keys)), key=keys.count)
    learning = learning_of(options)
    judged: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with told():
        for number, part in enumerate(learning.parts(groups)):
            fold = learning.fold(part, number)
            for row in judged_fold(fold, hardware, options.tested, transitions):
                judged.setdefault((row["columns"], row["learner"]), []).extend(row["groups"])
    rows = [
        {"columns": name, "learner": learner, **summary(own)}
        for (name, learner), own in judged.items()
    ]
    result = {
        "schema": "foretune.residuals/2",
        "origin": UNIFORM,
        "left_out": keys.count(hardware) - len(next(iter(judged.values()))),
        "hardware": hardware,
        "config": asdict(learning.config),
        "folds": learning.folds,
        "programs_per_group": learning.programs,
        "seed": learning.seed,
        "rows": rows,
        "groups": {f"{name}, {learner}": own for (name, learner), own in judged.items()},
    }
    publish(
        f"residuals-{options.target}", _TITLE, body_of(result), result, where.end(), options.write
    )


def body_of(result: Mapping[str, Any]) -> str:
    """The page."""
    first, config = result["rows"][0], result["config"]
    return "\n\n".join(
        [
            f"States are made of {config['target']}, by a world that has seen about "
            f"{config['trajectories']:,} programs. {first['groups']} groups of held-out workloads "
            f"on one machine, in {result['folds']} folds, programs drawn uniformly "
            f"({result['left_out']} groups with fewer than two are left out); what is "
            "predicted for a fifth of a fold's workloads was learned from its others. The ranker "
            f"of actions alone: tau {figure(first['tau'])}, top-1 "
            f"{figure(first['top1'])}. Explained: share of the variance of log seconds within "
            "workloads, by the columns alone; of the residual: of what the ranker leaves. Gained: "
            "by adding what was predicted of the residual to the ranker's score. Negative: what "
            "was learned from other workloads misleads. Intervals: bootstrap over workloads, 95 %.",
            table(
                ["columns", "learner", "explained", "of the residual", "tau gained",
                 "top-1 gained"],
                [
                    [row["columns"], row["learner"], figure(row["alone"]),
                     figure(row["residual"]), figure(row["tau gained"], "+"),
                     figure(row["top1 gained"], "+")]
                    for row in result["rows"]
                ],
            ),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    main()
