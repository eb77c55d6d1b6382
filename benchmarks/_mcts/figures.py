"""What runs of the benchmark of tree search say: speed-ups by samples, and who gets there when.

A *sample* is a measured program, a *cell* the runs of one side on one kernel. What a run has found
after some samples is what it had read as best by then, measured again. So it is after the last one,
too: the choice among its last contenders that a tuner of ours makes at its end is left out
(``foretune.bench.unconfirmed``), because nobody makes it after 36.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._search.figures import mean_ratio, side_of
from foretune.bench import Side, best_at, sitting, unconfirmed, went_to

EVOLUTION = "evolutionary"
PEER = "metaschedule-equal"
"""TVM's own evolutionary search, the one of the paper's table, with batches as large as ours."""
TREE = "mcts:learned"
"""The tree search that comes as the default, whom a goal can judge without choosing among sides."""
EARLY = 36
"""Samples within which the best of ours is to reach what evolutionary search has at the end."""
MODEL = "cost model"
SIZE = "batch"
ABLATED = ("history", "branching", "rollout", "temperature", MODEL, SIZE)
"""Options of strategies, the cost model and the batch, that are compared by themselves."""
_AS_GOOD = 1.02
"""Seconds that are as good: two readings of one program differ by a percent or two."""
_CONFIDENCE = 0.95

Run = Mapping[str, Any]


def named(runs: Sequence[Run], cost_model: str, batch: int | None = None) -> list[Run]:
    """Runs without the last choice of their tuners, each with the name of its ``side``.

    Args:
        runs: Of the benchmark.
        cost_model: That of most sides, which is no part of their names.
        batch: The same of candidates per round.
    """
    return [{**unconfirmed(run), "side": name_of(side_of(run), cost_model, batch)} for run in runs]


def name_of(side: Side, cost_model: str, batch: int | None = None) -> str:
    """A strategy, its cost model and its batch where these are others: ``mcts:learned+world@4``."""
    plain = side.is_peer or side.cost_model == cost_model
    name = side.strategy if plain else f"{side.strategy}+{side.cost_model}"
    return name if side.batch in (None, batch) else f"{name}@{side.batch}"


def interval(logs: Sequence[float]) -> dict[str, float | None]:
    """Geometric mean and its 95 % interval after Student, of logs that are taken to be normal.

    Returns:
        ``mean, low, high``; the last two are None of a single value.
    """
    middle = float(np.mean(logs))
    if len(logs) < 2:
        return {"mean": math.exp(middle), "low": None, "high": None}
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = error * float(stats.t.ppf(0.5 + _CONFIDENCE / 2, len(logs) - 1))
    return {
        "mean": math.exp(middle),
        "low": math.exp(middle - half),
        "high": math.exp(middle + half),
    }


def speedups(runs: Sequence[Run], samples: Sequence[int]) -> list[dict[str, Any]]:
    """Speed-up over the untuned program by machine, kernel, side and samples.

    Returns:
        For each cell and each of ``samples`` that its runs were given: ``machine, workload, side,
        samples``, the ``seeds`` that it rests on and of how many (``of``), on how many of them a
        language model was ``left_out`` before the end, and the ``mean, low, high`` of ``interval``.
        A seed is missing where its run failed, or nothing is known of the untuned program.
    """
    everyone: dict[tuple[str, str], set[int]] = {}
    cells: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        everyone.setdefault((run["machine"], run["workload"]), set()).add(run["seed"])
        cells.setdefault((run["machine"], run["workload"], run["side"]), []).append(run)
    rows = []
    for (machine, workload, side), found in cells.items():
        for count in samples:
            known = [
                (math.log(run["untuned_s"] / best), run)
                for run in found
                if went_to(run, count) and run["untuned_s"] and (best := best_at(run, count))
            ]
            if known:
                rows.append(
                    {"machine": machine, "workload": workload, "side": side, "samples": count,
                     "seeds": len(known), "of": len(everyone[machine, workload]),
                     "left_out": sum(bool(left_out(run)) for _, run in known),
                     **interval([log for log, _ in known])}
                )  # fmt: skip
    return rows


def over_reference(
    runs: Sequence[Run], samples: Sequence[int], reference: str = EVOLUTION
) -> list[dict[str, Any]]:
    """How much faster the programs of each side are than a reference's, after as many samples.

    Ratios of what was measured side by side, so that machines do not matter.

    Returns:
        For each side but the reference and each of ``samples``: ``side, samples``; what
        ``mean_ratio`` gives of all pairs of a kernel and a seed; and in ``kernels`` the geometric
        mean of each kernel.
    """
    rows = []
    for count in samples:
        theirs = _ends(runs, count, reference)
        pairs: dict[str, dict[str, list[float]]] = {}
        for run in runs:
            other, own = theirs.get(sitting(run)), best_at(run, count)
            if run["side"] != reference and went_to(run, count) and other and own:
                logs = pairs.setdefault(run["side"], {}).setdefault(run["workload"], [])
                logs.append(math.log(other / own))
        for side, found in pairs.items():
            kernels = {name: math.exp(float(np.mean(logs))) for name, logs in found.items()}
            ratio = mean_ratio(found, np.random.default_rng(0))
            rows.append({"side": side, "samples": count, **ratio, "kernels": kernels})
    return rows


def families(
    runs: Sequence[Run], names: Sequence[str], samples: Sequence[int]
) -> list[dict[str, Any]]:
    """Ablations by the option that makes them differ, each beside the side that lacks it.

    Args:
        runs: Named.
        names: Of ablations.
        samples: After how many they are compared.

    Returns:
        For each of ``ABLATED`` and side without it: ``option``; ``sides``, of which the first is
        the one without the option, if it was measured beside one of the others, else the first
        that has it; and ``over``, the others over the first as ``over_reference`` gives it. None of
        a single side.
    """
    beside: dict[str, set[tuple[str, int, float]]] = {}
    for run in runs:
        beside.setdefault(run["side"], set()).add(sitting(run))
    found = []
    for option in ABLATED:
        members: dict[str, list[str]] = {}
        for name in names:
            if without(name, option) != name:
                members.setdefault(without(name, option), []).append(name)
        for base, sides in members.items():
            theirs = set().union(*(beside.get(side, set()) for side in sides))
            if beside.get(base, set()) & theirs:
                sides.insert(0, base)
            if len(sides) > 1:
                own = [run for run in runs if run["side"] in sides]
                over = over_reference(own, samples, sides[0])
                found.append({"option": option, "sides": sides, "over": over})
    return found


def without(name: str, option: str) -> str:
    """The side with whom one that has an option is compared.

    Before → after: of ``mcts-rollouts:learned:rollout=2+world@4`` and ``rollout`` →
    ``mcts:learned+world@4``, ``MODEL`` → ``mcts-rollouts:learned:rollout=2@4``, ``SIZE`` →
    ``mcts-rollouts:learned:rollout=2+world``.
    """
    side, batch = re.fullmatch(r"(.*?)(@\d+)?", name).groups(default="")
    if option == SIZE:
        return side
    strategy, plus, model = side.partition("+")
    if option == MODEL:
        return strategy + batch
    words = [word for word in strategy.split(":") if not word.startswith(f"{option}=")]
    if option == "rollout":
        words[0] = words[0].removesuffix("-rollouts")
    return ":".join(words) + plus + model + batch


def left_out(run: Run) -> str:
    """Why a language model was not asked until the end of a run; empty where it was, or is none."""
    return (run.get("llm") or {}).get("left_out") or ""


def early(runs: Sequence[Run], trials: int, reference: str = EVOLUTION) -> list[dict[str, Any]]:
    """Seconds of a reference at the end / those of each side after ``EARLY`` samples.

    At least 1 where the goal is reached. Pairs of the same kernel and seed, measured side by side;
    geometric mean with its bootstrap interval over kernels and seeds.
    """
    ends = _ends(runs, trials, reference)
    rng = np.random.default_rng(0)
    rows = []
    for side in dict.fromkeys(run["side"] for run in runs):
        pairs: dict[str, list[float]] = {}
        for run in runs:
            end, best = ends.get(sitting(run)), best_at(run, EARLY)
            if run["side"] == side and went_to(run, EARLY) and end and best:
                pairs.setdefault(run["key"], []).append(math.log(end / best))
        if pairs:
            rows.append({"side": side, **mean_ratio(pairs, rng)})
    return rows


def reaching(runs: Sequence[Run], trials: int, reference: str = EVOLUTION) -> list[dict[str, Any]]:
    """Samples after which each side has what a reference has at the end, within 2 %.

    Over pairs of the same kernel and seed, measured side by side, of sides whose runs are as long:
    ``reached``, the share that get there at all, and ``samples``, the median, where one that does
    not counts as more than any; None if that is it.
    """
    ends = _ends(runs, trials, reference)
    found: dict[str, list[float]] = {}
    for run in runs:
        end = ends.get(sitting(run))
        if end and went_to(run, trials):
            enough = _AS_GOOD * end
            within = [n for n, _, best in run["curve"] if n <= trials and best <= enough]
            found.setdefault(run["side"], []).append(min(within, default=math.inf))
    rows = []
    for side, counts in found.items():
        middle = float(np.median(counts))
        rows.append(
            {"side": side, "reached": float(np.mean(np.isfinite(counts))), "pairs": len(counts),
             "samples": middle if math.isfinite(middle) else None}
        )  # fmt: skip
    return rows


def _ends(
    runs: Sequence[Run], trials: int, reference: str
) -> dict[tuple[str, int, float], float | None]:
    """What a reference has after so many samples, by sitting."""
    return {
        sitting(run): best_at(run, trials)
        for run in runs
        if run["side"] == reference and went_to(run, trials)
    }
