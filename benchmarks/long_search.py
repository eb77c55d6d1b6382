"""A short search of ours against a long one of TVM MetaSchedule's: 32 trials against 1,024.

Six of the 22 subgraphs, one kind of operator each, chosen before the first of these runs; among
them those on which ``search22`` has found ours weak (softmax, depthwise convolution, attention
scores). The bests of all runs are measured again, interleaved. A run of the peer should take a
quarter of an hour to an hour of a core, and is kept once it is whole. Two calls, one on each core,
share the work (``benchmarks._search.runs``)::

    for core in 0 1; do taskset -c $core python -m benchmarks.long_search & done; wait
    taskset -c 0 python -m benchmarks.long_search --write
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._search.figures import (
    Run,
    arrival,
    label,
    log_ratios,
    made,
    mean_ratio,
    pairs,
    remarks,
)
from benchmarks._search.goals import PEER
from benchmarks._search.runs import hardware_of, search, search_options, seeds_of, states_of
from benchmarks.results import conditions, publish, table
from foretune.bench import best_at

WORKLOADS = ("conv2d", "conv3d", "dense", "depthwise_relu", "attention_qk", "softmax")
MODELS = ("world", "default")
STRATEGY = "evolutionary"
TRIALS, PEER_TRIALS = 32, 1024
GOAL, LEAST = 1.0, 0.9
"""Latency of the peer's best over ours: no worse in geometric mean, and on no workload below."""
_TITLE = "A short search of ours against a long one of TVM MetaSchedule's"


def against(runs: Sequence[Run], trials: int, peer_trials: int) -> list[dict[str, Any]]:
    """What each side of ours has after its trials, beside what each peer has after its own.

    Returns:
        ``side, over, ratio, low, high, pairs``, where a ratio above 1 means that ours is faster;
        ``no_worse`` of ``workloads`` (each the geometric mean of its seeds) and the ``least`` of
        their ratios; and in ``each`` the pairs of runs, with the trials and seconds after which
        the peer had as fast a program.
    """
    rng = np.random.default_rng(0)
    rows = []
    for one, other, both in pairs(runs):
        if not other.is_peer:
            continue
        ends = [(best_at(mine, trials), best_at(its, peer_trials)) for mine, its in both]
        ratios = log_ratios(
            both, lambda mine, its: (best_at(its, peer_trials), best_at(mine, trials))
        )
        if not ratios:
            continue
        means = [float(np.mean(own)) for own in ratios.values()]
        rows.append(
            {
                "side": label(one),
                "over": label(other),
                **mean_ratio(ratios, rng),
                "workloads": len(means),
                "no_worse": sum(mean >= math.log(GOAL) for mean in means),
                "least": math.exp(min(means)),
                "each": [
                    _pair(mine, its, *end) for (mine, its), end in zip(both, ends, strict=True)
                ],
            }
        )
    return rows


def _pair(mine: Run, its: Run, own: float | None, end: float | None) -> dict[str, Any]:
    passed = None if own is None else arrival(its, own)
    return {
        "workload": mine["workload"],
        "seed": mine["seed"],
        "best_s": own,
        "peer_best_s": end,
        "elapsed_s": mine["elapsed_s"],
        "peer_elapsed_s": its["elapsed_s"],
        "peer_trials": None if passed is None else passed[0],
        "peer_s": None if passed is None else passed[1],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = search_options(
        __doc__,
        page="long_search",
        workloads=WORKLOADS,
        trials=TRIALS,
        seeds=1,
        timeout_s=4 * 3600.0,
    )
    parser.add_argument("--peer-trials", type=int, default=PEER_TRIALS)
    parser.add_argument("--peer", default=PEER)
    parser.add_argument("--cost-models", default=",".join(MODELS))
    options = parser.parse_args(arguments)
    seeds = seeds_of(options)
    where = conditions("long_search", seeds, hardware_of(options))
    result = search(
        options,
        where.hardware,
        [STRATEGY, options.peer],
        options.cost_models.split(","),
        seeds,
        options.peer_trials,
    )
    if options.seed is not None:
        return
    result["long_search"] = {
        "against": against(result["runs"], options.trials, options.peer_trials),
        "states": states_of(result["runs"]),
    }
    publish(options.page, _TITLE, _body(result), result, where.end(), options.write)


def _body(result: Mapping[str, Any]) -> str:
    rows = result["long_search"]["against"]
    trials, peer_trials = result["trials"], result["peer_trials"]
    parts = [
        "\n".join(
            f"- Goal: {row['side']} after {trials} trials no worse than {row['over']} after "
            f"{peer_trials}: {row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f}) times as fast "
            f"in geometric mean, {_told(row['ratio'] >= GOAL)}; no worse on {row['no_worse']} of "
            f"{row['workloads']} workloads, {row['least']:.3f} on the worst (asked: {LEAST}, "
            f"{_told(row['least'] >= LEAST)})."
            for row in rows
        ),
        *(
            f"{row['side']} beside {row['over']}; the last two columns say when the peer had as "
            f"fast a program:\n\n{_pairs_table(row['each'])}"
            for row in rows
        ),
        "Every program that was the best of a run was measured again, those of all sides of one "
        "workload and seed interleaved by one measurer; the interval is from a bootstrap over "
        "workloads and seeds. Seconds count from the start of a run's process.",
        made(result["runs"]),
        *remarks(result),
    ]
    return "\n\n".join(part for part in parts if part)


def _pairs_table(each: Sequence[Mapping[str, Any]]) -> str:
    return table(
        [
            "workload",
            "seed",
            "ours, ms",
            "peer's, ms",
            "peer's / ours",
            "ours, s",
            "peer, s",
            "as fast after trials",
            "after s",
        ],
        [
            [
                pair["workload"],
                str(pair["seed"]),
                _number(pair["best_s"], 1e3, 4),
                _number(pair["peer_best_s"], 1e3, 4),
                _quotient(pair["peer_best_s"], pair["best_s"]),
                _number(pair["elapsed_s"], 1.0, 0),
                _number(pair["peer_elapsed_s"], 1.0, 0),
                _number(pair["peer_trials"], 1.0, 0),
                _number(pair["peer_s"], 1.0, 0),
            ]
            for pair in each
        ],
    )


def _told(met: bool) -> str:
    return "met" if met else "not met"


def _number(value: float | None, times: float, digits: int) -> str:
    return "–" if value is None else f"{value * times:.{digits}f}"


def _quotient(above: float | None, below: float | None) -> str:
    return f"{above / below:.3f}" if above and below else "–"


if __name__ == "__main__":
    main()
