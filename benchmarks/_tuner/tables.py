"""What the comparison of tuners on whole networks says: figures from curves, and their tables.

A network here is what ``compare.compared`` returned. Its sides are paired by seed, and intervals
are bootstraps over seeds and, for whole networks, the rounds in which they were timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._tuner.runs import label
from benchmarks.pages import Section
from benchmarks.results import table
from foretune._interval import interval
from foretune.bench import Side, geometric_mean
from foretune.metaschedule import PEERS

WITHIN = (0.10, 0.05, 0.03, 0.01)
"""How near to the best latency known, as a share of it."""
PEAKS = (0.90, 0.95, 0.99)
"""Shares of the best performance of a peer, the milestones of the Felix paper's Table 2."""
SAME_MODEL = Side("evolutionary", "mlp:formulas")
"""The baseline of the paper's Table 2: evolution on the perceptron that gradient search climbs."""
REFERENCES = (*PEERS, label(SAME_MODEL))
"""Sides whose milestones the others are compared at."""
GOAL_NETWORK, GOAL_WITHIN, GOAL_MINUTES = "resnet50", 0.03, 3.0
_RESAMPLES = 2000
_NOTE = (
    "Start-up is included in the time; what a side came to know later, trials as well, does not "
    "count. Kernels: the weighted sum of its programs, all measured again by one measurer, "
    "interleaved task by task. Whole: the compiled networks, timed in turns, median of the rounds. "
    "Minutes until the kernels are within a share of the best latency that any side had, median "
    "over seeds."
)
_SOONER = (
    "Seconds of a reference until it has a share of its own best performance, over those of each "
    "side until it has as much: above 1 is sooner. References are the peers and, as in the paper, "
    "evolution with the perceptron that gradient search climbs. Pairs of one seed; a side that is "
    "never there counts as twice the longer of the two runs, in brackets how many are:"
)

Found = Mapping[str, Any]
Sooner = tuple[float, bool]
"""Log of a reference's seconds over a side's, and whether the side got there at all."""


def best_known(found: Found) -> float:
    """The lowest latency that any run of a network had at any time."""
    return min(float(latency) for run in found["runs"] for _, latency in run["curve"])


def seconds_until(run: Found, latency_s: float) -> float | None:
    """When a run first had a network that takes at most so long; None: it never had."""
    return next((elapsed for elapsed, latency in run["curve"] if latency <= latency_s), None)


def contestants(found: Found) -> list[dict[str, Any]]:
    """What each side of a network had when its time was over, and how soon it was near the best.

    Returns:
        By side: means of ``trials``, ``failed`` and ``reached`` over seeds; ``latency_s``, the
        weighted sum of its programs, and ``whole_s``, the compiled network, None where it was not
        timed; whether its output was ``wrong``; and ``minutes`` of each seed until it is within
        each of ``WITHIN`` of the best latency known.
    """
    rng, best = np.random.default_rng(0), best_known(found)
    rows = []
    for side in _sides(found):
        runs = [run for run in found["runs"] if run["side"] == side]
        timed = [seed[side] for seed in found["whole"].values() if side in seed]
        readings = [result["readings"] for result in timed if result["readings"]]
        names = ("trials", "failed", "reached")
        rows.append(
            {
                "side": side,
                **{name: float(np.mean([run[name] for run in runs])) for name in names},
                "latency_s": _interval([[run["curve"][-1][1]] for run in runs], rng),
                "whole_s": _interval(readings, rng) if readings else None,
                "wrong": any(result["within_tolerance"] is False for result in timed),
                "minutes": {
                    f"{share:g}": [_minutes_until(run, best * (1 + share)) for run in runs]
                    for share in WITHIN
                },
            }
        )
    return rows


def _minutes_until(run: Found, latency_s: float) -> float | None:
    seconds = seconds_until(run, latency_s)
    return None if seconds is None else seconds / 60


def sooner(networks: Mapping[str, Found]) -> list[dict[str, Any]]:
    """How many times as long a reference takes to shares of its own best, as in Table 2 of Felix.

    Returns:
        By reference, side and network, and for all networks (``network`` is None): ``peaks``,
        share to ``ratio, low, high, pairs, of``, of which ``of - pairs`` never got there: those
        count as if they had taken twice the longer of the two runs.
    """
    rng = np.random.default_rng(0)
    present = list(dict.fromkeys(s for found in networks.values() for s in _sides(found)))
    rows = []
    for reference in (side for side in present if side in REFERENCES):
        for side in (side for side in present if side != reference):
            each = {name: _sooner_of(found, reference, side) for name, found in networks.items()}
            each = {name: pairs for name, pairs in each.items() if any(pairs.values())}
            for name in [*each, None] if each else []:
                own = each if name is None else {name: each[name]}
                peaks = {
                    f"{p:g}": _peak({n: pairs[p] for n, pairs in own.items()}, rng) for p in PEAKS
                }
                rows.append({"reference": reference, "side": side, "network": name, "peaks": peaks})
    return rows


def _sooner_of(found: Found, reference: str, side: str) -> dict[float, list[Sooner]]:
    """By share and seed."""
    runs = {(run["side"], run["seed"]): run for run in found["runs"]}
    logs: dict[float, list[Sooner]] = {peak: [] for peak in PEAKS}
    for (name, seed), theirs in runs.items():
        ours = runs.get((side, seed))
        if name != reference or ours is None:
            continue
        best = min(latency for _, latency in theirs["curve"])
        for peak in PEAKS:
            base, own = (seconds_until(run, best / peak) for run in (theirs, ours))
            # Where the default schedule is as near already, nobody needs any time.
            if base:
                never = 2 * max(run["elapsed_s"] for run in (theirs, ours))
                logs[peak].append((math.log(base / (own or never)), bool(own)))
    return logs


def _peak(logs: Mapping[str, Sequence[Sooner]], rng: np.random.Generator) -> dict[str, Any]:
    every = [there for values in logs.values() for _, there in values]
    row: dict[str, Any] = {"pairs": sum(every), "of": len(every)}
    ratios = {name: [log for log, _ in values] for name, values in logs.items() if values}
    if ratios:
        row |= dict(zip(("ratio", "low", "high"), geometric_mean(ratios, rng), strict=True))
    return row


def ahead(networks: Mapping[str, Found]) -> list[dict[str, Any]]:
    """How many times as fast the kernels of the first side are as those of each other one.

    Returns:
        ``side, over, ratio, low, high``: geometric mean over networks, and seeds of each.
    """
    rng = np.random.default_rng(0)
    first, *others = dict.fromkeys(side for found in networks.values() for side in _sides(found))
    rows = []
    for other in others:
        logs = {}
        for name, found in networks.items():
            last = {(run["side"], run["seed"]): run["curve"][-1][1] for run in found["runs"]}
            seeds = [seed for side, seed in last if side == first and (other, seed) in last]
            logs[name] = [math.log(last[other, seed] / last[first, seed]) for seed in seeds]
        logs = {name: values for name, values in logs.items() if values}
        if logs:
            ratio = dict(zip(("ratio", "low", "high"), geometric_mean(logs, rng), strict=True))
            rows.append({"side": first, "over": other, **ratio})
    return rows


def summarise(networks: Mapping[str, Found]) -> dict[str, Any]:
    """Everything the tables show, by network; ``sooner`` and ``ahead`` over all of them."""
    return {
        "networks": {
            name: {"best_known_s": best_known(found), "sides": contestants(found)}
            for name, found in networks.items()
        },
        "sooner": sooner(networks),
        "ahead": ahead(networks) if networks else [],
    }


def goal(summary: Mapping[str, Any], side: str) -> list[str]:
    """Whether a side is near the best latency known as soon as it is to be, beside the peers."""
    found = summary["networks"].get(GOAL_NETWORK)
    if found is None:
        return []
    minutes = {row["side"]: _median(row["minutes"][f"{GOAL_WITHIN:g}"]) for row in found["sides"]}
    if side not in minutes:
        return []
    peers = [f"; {name}: {_until(after)}" for name, after in minutes.items() if name in PEERS]
    return [
        f"- Goal: {GOAL_NETWORK} within {GOAL_WITHIN:.0%} of the best latency known in "
        f"{GOAL_MINUTES:g} minutes with {side}: {_until(minutes[side])}, "
        f"{'met' if minutes[side] <= GOAL_MINUTES else 'not met'}{''.join(peers)}."
    ]


def _until(minutes: float) -> str:
    return "never" if math.isinf(minutes) else f"{minutes:.1f} minutes"


def section(data: Mapping[str, Any]) -> Section:
    """Kernels of the first side beside the others', and by network what each has and when."""
    networks, summary = data["networks"], data["summary"]
    names = ", ".join(networks)
    each = ", ".join(f"{_ratio(row)} of {row['over']}" for row in summary["ahead"])
    first = summary["ahead"][0]["side"] if summary["ahead"] else ""
    parts = [
        "\n".join(data.get("goals", ())),
        _NOTE,
        *([_SOONER, _sooner_table(summary["sooner"])] if summary["sooner"] else []),
        "\n".join([*_baselines(networks, summary), *data.get("notes", ())]),
    ]
    return Section(
        f"Which tuner makes whole networks fast in {data['time_s']:,g} seconds?",
        f"Kernels of {first}, times as fast on {names}, in geometric mean: {each}."
        if each
        else "Every run failed, or there was one side.",
        _ends_table(networks, summary),
        "\n\n".join(part for part in parts if part),
        (lambda axes: _plot(axes, networks)) if networks else None,
        "latency of the kernels over time",
    )


def _ratio(row: Mapping[str, Any]) -> str:
    """With its interval, which a single pair has not."""
    alone = row["low"] == row["high"]
    return f"{row['ratio']:.2f}" + ("" if alone else f" ({row['low']:.2f} to {row['high']:.2f})")


def _plot(axes: Any, networks: Mapping[str, Found]) -> None:
    """The goal's network if it is there, else the first; every run from the default schedules."""
    name = GOAL_NETWORK if GOAL_NETWORK in networks else next(iter(networks))
    for number, side in enumerate(_sides(networks[name])):
        for run in networks[name]["runs"]:
            if run["side"] == side:
                elapsed, latency = zip(*run["curve"], (run["elapsed_s"], run["curve"][-1][1]),
                                       strict=True)  # fmt: skip
                axes.step(elapsed, [1e3 * s for s in latency], where="post", color=f"C{number}",
                          label=side if run["seed"] == 0 else None)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel(f"kernels of {name}, ms")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _ends_table(networks: Mapping[str, Found], summary: Mapping[str, Any]) -> str:
    rows = [
        [
            name,
            row["side"] + (" (wrong output)" if row["wrong"] else ""),
            f"{row['trials']:.0f}",
            f"{row['reached']:.0f} of {networks[name]['tasks']}",
            _cell(row["latency_s"]),
            _cell(row["whole_s"]),
            " / ".join(map(_minutes, row["minutes"].values())),
        ]
        for name, found in summary["networks"].items()
        for row in found["sides"]
    ]
    near = " / ".join(f"{share:.0%}" for share in WITHIN)
    header = ["network", "side", "trials", "tasks reached", "kernels, ms", "whole, ms",
              f"minutes to {near}"]  # fmt: skip
    return table(header, rows)


def _sooner_table(rows: Iterable[Mapping[str, Any]]) -> str:
    return table(
        ["reference", "side", "network", *(f"{peak:.0%}" for peak in PEAKS)],
        [
            [row["reference"], row["side"], row["network"] or "all",
             *(_peak_cell(row["peaks"][f"{peak:g}"]) for peak in PEAKS)]
            for row in rows
        ],
    )  # fmt: skip


def _baselines(networks: Mapping[str, Found], summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, found in networks.items():
        lines.append(
            f"- {name}: {found['tasks']} tasks; untuned {found['untuned_s'] * 1e3:.2f} ms, default "
            f"schedules {found['default_s'] * 1e3:.2f} ms, best known "
            f"{summary['networks'][name]['best_known_s'] * 1e3:.3f} ms."
        )
        lines += [
            f"- {name}: the {which} program of {task} could not be measured; the task's slowest "
            "one stands in for it."
            for task, which in found["unread"]
        ]
        lines += [
            f"- {name}: the network of {side}, seed {seed}, could not be timed: {result['error']}"
            for seed, whole in found["whole"].items()
            for side, result in whole.items()
            if result["error"]
        ]
    return lines


def _peak_cell(row: Mapping[str, Any]) -> str:
    if "ratio" not in row:
        return "–"
    among = "" if row["pairs"] == row["of"] else f" [{row['pairs']} of {row['of']}]"
    return _ratio(row) + among


def _minutes(values: Sequence[float | None]) -> str:
    median, there = _median(values), sum(value is not None for value in values)
    text = "never" if math.isinf(median) else f"{median:.1f}"
    return text if there in (0, len(values)) else f"{text} ({there} of {len(values)})"


def _median(values: Sequence[float | None]) -> float:
    return float(np.median([math.inf if value is None else value for value in values]))


def _cell(found: Mapping[str, Any] | None) -> str:
    """Milliseconds with four digits that count, without a point behind the last one."""
    if found is None:
        return "–"
    mean, low, high = (f"{found[k] * 1e3:#.4g}".rstrip(".") for k in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})" if found["count"] > 1 else mean


def _sides(found: Found) -> list[str]:
    return list(dict.fromkeys(run["side"] for run in found["runs"]))


def _interval(groups: Sequence[Sequence[float]], rng: np.random.Generator) -> dict[str, Any]:
    """Geometric mean over seeds of the medians over rounds, with its 95 % bootstrap interval."""
    logs = [np.log(values) for values in groups]
    drawn = [np.median(rng.choice(v, (_RESAMPLES, len(v))), axis=1) for v in logs]
    chosen = rng.integers(0, len(logs), (_RESAMPLES, len(logs)))
    low, high = np.exp(interval(np.take_along_axis(np.array(drawn).T, chosen, 1).mean(axis=1)))
    mean = float(np.exp(np.mean([np.median(v) for v in logs])))
    return {"mean": mean, "low": float(low), "high": float(high), "count": sum(map(len, groups))}
