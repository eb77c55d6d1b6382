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

from benchmarks import pages
from benchmarks._search.figures import (
    Rows,
    Run,
    arrival,
    interval,
    label,
    log_ratios,
    mean_ratio,
    pairs,
    remarks,
)
from benchmarks._search.goals import PEER
from benchmarks._search.runs import hardware_of, search, search_options, seeds_of, states_of
from benchmarks.pages import Section
from benchmarks.results import conditions, table
from foretune.bench import best_at

WORKLOADS = ("conv2d", "conv3d", "dense", "depthwise_relu", "attention_qk", "softmax")
MODELS = ("world", "default")
STRATEGY = "evolutionary"
TRIALS, PEER_TRIALS = 32, 1024
GOAL, LEAST = 1.0, 0.9
"""Latency of the peer's best over ours: no worse in geometric mean, and on no workload below."""


def against(runs: Sequence[Run], trials: int, peer_trials: int) -> Rows:
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
        ratios = log_ratios(
            both, lambda mine, its: (best_at(its, peer_trials), best_at(mine, trials))
        )
        if not other.is_peer or not ratios:
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
                "each": [_pair(mine, its, trials, peer_trials) for mine, its in both],
            }
        )
    return rows


def _pair(mine: Run, its: Run, trials: int, peer_trials: int) -> dict[str, Any]:
    own = best_at(mine, trials)
    passed = (own is not None and arrival(its, own)) or (None, None)
    return {
        "workload": mine["workload"],
        "seed": mine["seed"],
        "best_s": own,
        "peer_best_s": best_at(its, peer_trials),
        "elapsed_s": mine["elapsed_s"],
        "peer_elapsed_s": its["elapsed_s"],
        "peer_trials": passed[0],
        "peer_s": passed[1],
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
    pages.publish(options.page, section, result, where.end(), options.write)


def section(result: Mapping[str, Any]) -> Section:
    """Each side of ours after its trials over each peer after its own."""
    rows = result["long_search"]["against"]
    trials, peer_trials = result["trials"], result["peer_trials"]
    said = ", ".join(f"{interval(row)} of {row['side']}" for row in rows)
    over = " and ".join(dict.fromkeys(row["over"] for row in rows))
    cells = [
        [row["side"], interval(row), f"{row['no_worse']} of {row['workloads']}",
         f"{row['least']:.3f}"]
        for row in rows
    ]  # fmt: skip
    parts = [
        f"Asked was {GOAL:g} in geometric mean, and {LEAST:g} on the worst workload. Every program "
        "that was the best of a run was measured again, those of all sides of one workload and "
        "seed interleaved by one measurer; the interval is from a bootstrap over workloads and "
        "seeds. Seconds count from the start of a run's process.",
        *(
            f"{row['side']} beside {row['over']}; the last two columns say when the peer had as "
            f"fast a program:\n\n{_pairs_table(row['each'])}"
            for row in rows
        ),
        remarks(result),
    ]
    return Section(
        f"Is a search of {trials:,} trials as good as MetaSchedule's of {peer_trials:,}?",
        f"Programs after {trials:,} trials, times as fast as those of {over} after "
        f"{peer_trials:,}: {said}.",
        table(["side", "times as fast", "no worse on", "on the worst workload"], cells),
        "\n\n".join(part for part in parts if part),
    )


_COLUMNS = {
    "ours, ms": ("best_s", 1e3, 4),
    "peer's, ms": ("peer_best_s", 1e3, 4),
    "peer's / ours": ("ratio", 1.0, 3),
    "ours, s": ("elapsed_s", 1.0, 0),
    "peer, s": ("peer_elapsed_s", 1.0, 0),
    "as fast after trials": ("peer_trials", 1.0, 0),
    "after s": ("peer_s", 1.0, 0),
}


def _pairs_table(each: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for pair in each:
        own, its = pair["best_s"], pair["peer_best_s"]
        values = {**pair, "ratio": its / own if own and its else None}
        cells = [
            "–" if values[name] is None else f"{values[name] * times:.{digits}f}"
            for name, times, digits in _COLUMNS.values()
        ]
        rows.append([pair["workload"], str(pair["seed"]), *cells])
    return table(["workload", "seed", *_COLUMNS], rows)


if __name__ == "__main__":
    main()
