"""The search benchmark without noise: strategies on tables in which every candidate is known.

Idea: a strategy that searches a table (``foretune_research.tables``) is told the table's seconds,
so that a run costs nothing, no reading is disturbed, the optimum is known, and what random search
finds is known exactly, without drawing anything.

Symbols: a table holds ``n`` candidates, failures included. The *share* of a candidate is the
optimum's seconds over its own, 0 for a failure. ``T`` is the trial at which a search finds its
first candidate that is good enough, ``B`` the trials it is given. With the chances ``p(t, i)`` that
the best of ``t`` random draws is the ``i``-th fastest (``foretune.evaluate.floors``), random search
without replacement has

    E[share after t] = sum over i of p(t, i) share_i
    P(T > t)         = sum of p(t, i) over the candidates i that are not good enough
    E[min(T, B)]     = 1 + sum over t = 1..B-1 of P(T > t)

Source: replaying brute-forced spaces is the simulation mode of Kernel Tuner (van Werkhoven, 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import search
from foretune._arrays import BoolArray, FloatArray
from foretune.errors import BadInputError
from foretune.evaluate.floors import best_of_draws
from foretune.evaluate.summary import Bootstrap
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.search import Strategy
    from foretune_research.tables import TableSpace

SCHEMA = "foretune.replay/1"
WITHIN = (1.05, 1.01)
"""A candidate is good enough when it takes at most this many times as long as the optimum."""
BUDGETS = (1, 8, 16, 32, 64, 128, 256)
"""Trials at which strategies are compared, those that a run has."""
DEFINITIONS = {
    "share": "seconds of the optimum / best so far, 0 while nothing ran; mean over seeds",
    "trials_to": "trials until the best takes at most 1.05 (1.01) times as long as the optimum; a "
    "run that never gets there counts with all its trials, random search likewise",
    "random": "exact expectations of random search without replacement",
    "ratio": "share over random search's, or random search's trials over these; geometric mean "
    "over the tables, above 1 is better than random",
    "low, high": "95 % bootstrap over seeds; the tables are taken as given",
}
"""What the figures mean, for whoever reads the JSON object only."""

_LEAST_SHARE = 1e-3
"""Seeds that have found nothing yet count as if their best were this share of the optimum."""


def expected_share(shares: FloatArray, trials: int) -> FloatArray:
    """Expected best share of random search without replacement, exactly.

    Args:
        shares: Optimum / seconds of every candidate, 0 for a failure, shape (n,).
        trials: How many draws, at least 1.

    Returns:
        float64 of shape (trials,): after 1, 2... draws; constant once all are drawn.
    """
    drawn = min(trials, len(shares))
    found = best_of_draws(len(shares), drawn) @ np.sort(shares)[::-1]
    return np.asarray(found[np.minimum(np.arange(trials), drawn - 1)], dtype=np.float64)


def expected_trials(good: int, n: int, trials: int | None = None) -> float:
    """Expected trials of random search until a good candidate, exactly.

    Args:
        good: Candidates that are good enough, at least one.
        n: All candidates.
        trials: Where counting stops, ``B``; None: never, which gives ``(n + 1) / (good + 1)``.
    """
    if trials is None or trials >= n:
        return (n + 1) / (good + 1)
    if trials == 1:
        return 1.0
    not_yet = best_of_draws(n, trials - 1)[:, good:].sum()
    return float(1.0 + not_yet)


def replay(strategy: Strategy[C], space: TableSpace[C], trials: int, batch: int) -> FloatArray:
    """Runs a strategy on a table, as the tuner does.

    Args:
        strategy: Made for ``space``, with its model.
        space: The table.
        trials: Candidates told.
        batch: Candidates asked for at a time.

    Returns:
        float64 of shape (trials,): share of the best candidate after 1, 2... trials, 0 while none
        ran. Constant once the table is exhausted.
    """
    measurer = space.measurer()
    shares = np.zeros(trials)
    told = 0
    while told < trials:
        asked = strategy.ask(min(batch, trials - told))
        if not asked:
            break
        measured = []
        for candidate, measurement in measurer.measure(asked):
            measured.append(space.trial(candidate))
            if measurement.best_s is not None:
                shares[told] = space.optimum_s / measurement.best_s
            told += 1
        strategy.model.update(measured)
        strategy.tell(measured)
    return np.asarray(np.maximum.accumulate(shares), dtype=np.float64)


def trials_until(curves: FloatArray, within: float) -> tuple[FloatArray, BoolArray]:
    """Trials of each run until its best takes at most ``within`` times as long as the optimum.

    Args:
        curves: Best share so far, shape (runs, trials).
        within: At least 1.

    Returns:
        Trials of shape (runs,), all of them for a run that never gets there, and whether it does.
    """
    good = curves >= 1.0 / within
    reached = np.asarray(good.any(axis=1), dtype=np.bool_)
    spent = np.where(reached, good.argmax(axis=1) + 1, curves.shape[1])
    return np.asarray(spent, dtype=np.float64), reached


def run_replay(
    strategies: Sequence[tuple[str, str]],
    spaces: Sequence[TableSpace[Any]],
    trials: int,
    seeds: int,
    *,
    batch: int = 8,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Compares strategies with one another and with the exact expectation of random search.

    Args:
        strategies: Pairs: name of a strategy, name of the cost model that it is given.
        spaces: The tables.
        trials: Candidates measured per run.
        seeds: Runs of each strategy on each table, with seeds 0, 1, 2...
        batch: Candidates asked for at a time.
        progress: Called with one line of text per strategy and table.

    Returns:
        The ``foretune.replay/1`` object, the same for the same arguments. ``spaces``: each with its
        optimum and the closed forms of random search. ``runs``: per strategy, cost model and table
        ``share`` after each trial and ``trials_to``. ``summary``: ``share`` at ``BUDGETS`` and
        ``trials_to`` over all tables, as ratios over random search. ``DEFINITIONS`` says what each
        means and is included.

    Raises:
        BadInputError: An unknown name, a model that cannot read a table, a number below one, or
            two tables with the same key.
    """
    _check(strategies, spaces, {"trials": trials, "seeds": seeds, "batch": batch})
    curves: dict[tuple[str, str], list[FloatArray]] = {}
    for names in dict.fromkeys(strategies):
        for number, space in enumerate(spaces):
            runs = np.stack([_run(names, space, [seed, number], trials, batch)
                             for seed in range(seeds)])  # fmt: skip
            curves.setdefault(names, []).append(runs)
            if progress is not None:
                progress(
                    f"{names[0]}+{names[1]} on {space.group.name} ({space.group.hardware}): "
                    f"{runs[:, -1].mean():.3f} of the optimum after {trials} trials"
                )
    bootstrap = Bootstrap([str(seed) for seed in range(seeds)])
    return {
        "schema": SCHEMA,
        "definitions": DEFINITIONS,
        "trials": trials,
        "seeds": seeds,
        "batch": batch,
        "spaces": [_space_row(space, trials) for space in spaces],
        "runs": [
            {"strategy": names[0], "cost_model": names[1], "space": space.group.key}
            | _run_row(runs, bootstrap)
            for names, found in curves.items()
            for space, runs in zip(spaces, found, strict=True)
        ],
        "summary": _summary(curves, spaces, trials, bootstrap),
    }


def _check(
    strategies: Sequence[tuple[str, str]],
    spaces: Sequence[TableSpace[Any]],
    numbers: Mapping[str, int],
) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise BadInputError(f"`{name} >= 1` must hold, but got {name}={value}")
    if not strategies or not spaces:
        raise BadInputError("a replay needs at least one strategy and one table: name one of each")
    keys = [space.group.key for space in spaces]
    if len(set(keys)) < len(keys):
        raise BadInputError(
            f"the tables of a replay differ, but got {', '.join(keys)}: give each once"
        )


def _run(
    names: tuple[str, str], space: TableSpace[Any], seed: list[int], trials: int, batch: int
) -> FloatArray:
    rng = np.random.default_rng(seed)
    model = space.model(names[1], seed[0])
    strategy = search.create(names[0], space, model, rng)
    return replay(strategy, space, trials, batch)


def _space_row(space: TableSpace[Any], trials: int) -> dict[str, Any]:
    good = {within: space.good(within) for within in WITHIN}
    return {
        "name": space.group.name,
        "key": space.group.key,
        "hardware": space.group.hardware,
        "size": space.size,
        "valid": int(space.group.valid.sum()),
        "optimum_s": space.optimum_s,
        "good": {str(within): count for within, count in good.items()},
        "random": {
            "share": expected_share(space.shares, trials).tolist(),
            "trials_to": {
                str(within): {
                    "mean": expected_trials(count, space.size, trials),
                    "unlimited": expected_trials(count, space.size),
                }
                for within, count in good.items()
            },
        },
    }


def _run_row(runs: FloatArray, bootstrap: Bootstrap) -> dict[str, Any]:
    """One strategy on one table; ``runs`` is of shape (seeds, trials)."""
    trials_to = {}
    for within in WITHIN:
        spent, reached = trials_until(runs, within)
        trials_to[str(within)] = {**bootstrap.mean(spent), "reached": float(reached.mean())}
    shares = [bootstrap.mean(column) for column in runs.T]
    return {
        "share": [found["mean"] for found in shares],
        "low": [found["low"] for found in shares],
        "high": [found["high"] for found in shares],
        "trials_to": trials_to,
    }


def _summary(
    curves: Mapping[tuple[str, str], Sequence[FloatArray]],
    spaces: Sequence[TableSpace[Any]],
    trials: int,
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    random = [expected_share(space.shares, trials) for space in spaces]
    by_share = [
        {"strategy": strategy, "cost_model": model, "trials": budget}
        | {
            "share": _geometric(columns, [1.0] * len(spaces), bootstrap)["ratio"],
            "random": float(np.exp(np.mean([np.log(found[budget - 1]) for found in random]))),
        }
        | _geometric(columns, [found[budget - 1] for found in random], bootstrap)
        for (strategy, model), found_by in curves.items()
        for budget, columns in _at_budgets(found_by, trials)
    ]
    by_trials = []
    for (strategy, model), found_by in curves.items():
        for within in WITHIN:
            spent = [trials_until(runs, within)[0] for runs in found_by]
            floors = [expected_trials(s.good(within), s.size, trials) for s in spaces]
            found = _geometric(spent, floors, bootstrap)
            # Fewer trials are better: random search's over these.
            by_trials.append(
                {
                    "strategy": strategy,
                    "cost_model": model,
                    "within": within,
                    "ratio": 1 / found["ratio"],
                    "low": 1 / found["high"],
                    "high": 1 / found["low"],
                }
            )
    return {"share": by_share, "trials_to": by_trials}


def _at_budgets(
    curves: Sequence[FloatArray], trials: int
) -> Iterator[tuple[int, list[FloatArray]]]:
    """Budgets, and at each the shares of every seed, per table of shape (seeds,)."""
    for budget in sorted({*(b for b in BUDGETS if b < trials), trials}):
        yield budget, [runs[:, budget - 1] for runs in curves]


def _geometric(
    values: Sequence[FloatArray], floors: Sequence[float], bootstrap: Bootstrap
) -> dict[str, float]:
    """Mean over seeds / floor, geometric mean over the tables, with its interval.

    Args:
        values: Per table one value of each seed, shape (seeds,).
        floors: Per table what the mean is divided by.
        bootstrap: Over seeds.
    """

    def statistic(draws: FloatArray) -> FloatArray:
        logs = [
            np.log(np.maximum(draws @ value / draws.sum(axis=1), _LEAST_SHARE) / floor)
            for value, floor in zip(values, floors, strict=True)
        ]
        return np.asarray(np.exp(np.mean(logs, axis=0)), dtype=np.float64)

    found = bootstrap.interval(statistic)
    return {"ratio": found["mean"], "low": found["low"], "high": found["high"]}
