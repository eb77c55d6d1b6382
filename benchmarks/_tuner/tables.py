"""What the comparison of tuners on whole networks says: figures from curves, and their tables.

A network here is what ``compare.compared`` returned. Its sides are paired by seed, and intervals
are bootstraps over seeds and, for whole networks, the rounds in which they were timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._tuner.runs import label
from benchmarks.results import table
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
_NONE = "–"

Found = Mapping[str, Any]
Sooner = tuple[float, bool]
"""Log of a reference's seconds over a side's, and whether the side got there at all."""
Logs = Mapping[str, Sequence[float]]
"""Seed to logarithms: of one ratio, or of one for each round."""


def best_known(found: Found) -> float:
    """The lowest latency that any run of a network had at any time, earlier runs included."""
    latencies = [latency for run in found["runs"] for _, latency in run["curve"]]
    return float(min([*latencies, *found["known"].values()]))


def seconds_until(run: Found, latency_s: float) -> float | None:
    """When a run first had a network that takes at most so long; None: it never had."""
    return next((elapsed for elapsed, latency in run["curve"] if latency <= latency_s), None)


def ends(found: Found) -> list[dict[str, Any]]:
    """What each side of a network had when its time was over.

    Returns:
        By side: ``latency_s``, the weighted sum of its programs, ``over_untuned``, ``other``: the
        side that is best without it, ``over_other``; and the same of the whole network:
        ``whole_s``, ``whole_other``, ``whole_over_other``; None where it was not timed.
    """
    rng = np.random.default_rng(0)
    finals = {side: _by_seed(found, side, _final) for side in _sides(found)}
    rounds = {side: _rounds(found, side) for side in _sides(found)}
    rows = []
    for side, latencies in finals.items():
        runs = [run for run in found["runs"] if run["side"] == side]
        over_untuned = {s: [math.log(found["untuned_s"] / v[0])] for s, v in latencies.items()}
        other, whole_other = _best_other(finals, side), _best_other(rounds, side)
        rows.append(
            {
                "side": side,
                "seeds": len(runs),
                "trials": float(np.mean([run["trials"] for run in runs])),
                "failed": float(np.mean([run["failed"] for run in runs])),
                "reached": float(np.mean([run["reached"] for run in runs])),
                "elapsed_s": float(np.mean([run["elapsed_s"] for run in runs])),
                "latency_s": _interval(_logs(latencies), rng),
                "over_untuned": _interval(over_untuned, rng),
                "other": other,
                "over_other": _interval(_ratios(finals, other, side), rng),
                "whole_s": _interval(_logs(rounds[side]), rng),
                "whole_other": whole_other,
                "whole_over_other": _interval(_ratios(rounds, whole_other, side), rng),
                "wrong": _is_wrong(found, side),
            }
        )
    return rows


def until(found: Found, latency_s: float) -> list[dict[str, Any]]:
    """By side the minutes of each seed until it is within each of ``WITHIN`` of a latency."""
    rows = []
    for side in _sides(found):
        runs = [run for run in found["runs"] if run["side"] == side]
        minutes = {}
        for share in WITHIN:
            seconds = [seconds_until(run, latency_s * (1 + share)) for run in runs]
            minutes[f"{share:g}"] = [None if s is None else s / 60 for s in seconds]
        rows.append({"side": side, "minutes": minutes})
    return rows


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
            per_network: dict[str, dict[float, list[Sooner]]] = {}
            for name, found in networks.items():
                pairs = _sooner_of(found, reference, side)
                if any(pairs.values()):
                    per_network[name] = pairs
            for name, pairs in per_network.items():
                rows.append(_milestones(reference, side, name, {name: pairs}, rng))
            if per_network:
                rows.append(_milestones(reference, side, None, per_network, rng))
    return rows


def _milestones(
    reference: str,
    side: str,
    network: str | None,
    pairs: Mapping[str, Mapping[float, Sequence[Sooner]]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    peaks = {
        f"{peak:g}": _peak({name: logs[peak] for name, logs in pairs.items()}, rng)
        for peak in PEAKS
    }
    return {"reference": reference, "side": side, "network": network, "peaks": peaks}


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


def summarise(networks: Mapping[str, Found]) -> dict[str, Any]:
    """Everything the tables show, by network; ``sooner`` over all of them."""
    return {
        "networks": {
            name: {
                "best_known_s": best_known(found),
                "ends": ends(found),
                "until": until(found, best_known(found)),
                "until_published": until(found, found["published"]["seconds"])
                if found["published"].get("seconds")
                else None,
            }
            for name, found in networks.items()
        },
        "sooner": sooner(networks),
    }


def goal(summary: Mapping[str, Any], side: str) -> list[str]:
    """Whether a side is near the best latency known as soon as it is to be, beside the peers."""
    found = summary["networks"].get(GOAL_NETWORK)
    if found is None:
        return []
    minutes = {row["side"]: _median(row["minutes"][f"{GOAL_WITHIN:g}"]) for row in found["until"]}
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


def body(networks: Mapping[str, Found], summary: Mapping[str, Any], time_s: float) -> str:
    """The tables, in Markdown."""
    parts = [
        f"What each side has after {time_s:g} s for a network, start-up included; what it came to "
        "know later, trials as well, does not count. Kernels: the weighted sum of its programs, "
        "all measured again by one measurer, interleaved task by task. Whole: the compiled "
        "networks, timed in turns. A ratio above 1 means faster; intervals are over seeds and, of "
        "whole networks, over rounds as well.",
        _ends_table(networks, summary),
        "Minutes until the kernels are within a share of the best latency known, of any side and "
        "seed here and of earlier runs whose programs were measured again; median over seeds:",
        _until_table(summary, "until"),
    ]
    if any(found["until_published"] for found in summary["networks"].values()):
        parts += [
            "The same for what was published earlier, measured on another day:",
            _until_table(summary, "until_published"),
        ]
    if summary["sooner"]:
        parts += [
            "Seconds of a reference until it has a share of its own best performance, over those "
            "of each side until it has as much: above 1 is sooner. References are the peers and, "
            "as in the paper, evolution with the perceptron that gradient search climbs. Pairs of "
            "one seed; a side that is never there counts as twice the longer of the two runs, in "
            "brackets how many are:",
            _sooner_table(summary["sooner"]),
        ]
    return "\n\n".join([*parts, "\n".join(_baselines(networks, summary))])


def _ends_table(networks: Mapping[str, Found], summary: Mapping[str, Any]) -> str:
    rows = [
        [
            name,
            row["side"] + (" (wrong output)" if row["wrong"] else ""),
            str(row["seeds"]),
            f"{row['trials']:.0f}",
            f"{row['reached']:.0f} of {networks[name]['tasks']}",
            _cell(row["latency_s"], 1e3),
            _cell(row["over_untuned"]),
            _cell(row["over_other"], name=row["other"]),
            _cell(row["whole_s"], 1e3),
            _cell(row["whole_over_other"], name=row["whole_other"]),
        ]
        for name, found in summary["networks"].items()
        for row in found["ends"]
    ]
    header = ["network", "side", "seeds", "trials", "tasks reached", "kernels, ms", "over untuned",
              "over the best other", "whole, ms", "over the best other"]  # fmt: skip
    return table(header, rows)


def _until_table(summary: Mapping[str, Any], which: str) -> str:
    rows = [
        [name, row["side"], *(_minutes(row["minutes"][f"{share:g}"]) for share in WITHIN)]
        for name, found in summary["networks"].items()
        for row in found[which] or ()
    ]
    return table(["network", "side", *(f"{share:.0%}" for share in WITHIN)], rows)


def _sooner_table(rows: Iterable[Mapping[str, Any]]) -> str:
    cells = [
        [
            row["reference"],
            row["side"],
            row["network"] or "all",
            *(_peak_cell(row["peaks"][f"{peak:g}"]) for peak in PEAKS),
        ]
        for row in rows
    ]
    return table(["reference", "side", "network", *(f"{peak:.0%}" for peak in PEAKS)], cells)


def _baselines(networks: Mapping[str, Found], summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, found in networks.items():
        published = found["published"]
        lines.append(
            f"- {name}: {found['tasks']} tasks; untuned {found['untuned_s'] * 1e3:.2f} ms, default "
            f"schedules {found['default_s'] * 1e3:.2f} ms, best known "
            f"{summary['networks'][name]['best_known_s'] * 1e3:.3f} ms"
            + "".join(f", {known} {s * 1e3:.3f} ms" for known, s in found["known"].items())
            + (f"; {published['says']}" if published["says"] else "")
            + "."
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
        return _NONE
    among = "" if row["pairs"] == row["of"] else f" [{row['pairs']} of {row['of']}]"
    if row["pairs"] == 1:
        return f"{row['ratio']:.2f}{among}"
    return f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}){among}"


def _minutes(values: Sequence[float | None]) -> str:
    median, there = _median(values), sum(value is not None for value in values)
    text = "never" if math.isinf(median) else f"{median:.1f}"
    return text if there in (0, len(values)) else f"{text} ({there} of {len(values)})"


def _median(values: Sequence[float | None]) -> float:
    return float(np.median([math.inf if value is None else value for value in values]))


def _cell(interval: Mapping[str, Any] | None, scale: float = 1.0, name: str | None = None) -> str:
    if interval is None:
        return _NONE
    mean, low, high = (_digits(interval[key] * scale) for key in ("mean", "low", "high"))
    text = f"{mean} ({low} to {high})" if interval["count"] > 1 else mean
    return text if name is None else f"{text}, {name}"


def _digits(value: float) -> str:
    """Four digits that count, without a point behind the last one."""
    return f"{value:#.4g}".rstrip(".")


def _sides(found: Found) -> list[str]:
    return list(dict.fromkeys(run["side"] for run in found["runs"]))


def _final(run: Found) -> list[float]:
    return [float(run["curve"][-1][1])]


def _by_seed(
    found: Found, side: str, value: Callable[[Found], list[float]]
) -> dict[str, list[float]]:
    return {str(run["seed"]): value(run) for run in found["runs"] if run["side"] == side}


def _rounds(found: Found, side: str) -> dict[str, list[float]]:
    """Seed to the readings of the whole network, where there are any."""
    return {
        seed: results[side]["readings"]
        for seed, results in found["whole"].items()
        if results.get(side, {}).get("readings")
    }


def _is_wrong(found: Found, side: str) -> bool:
    return any(
        results[side]["within_tolerance"] is False
        for results in found["whole"].values()
        if side in results
    )


def _best_other(values: Mapping[str, Mapping[str, Sequence[float]]], side: str) -> str | None:
    """The side with the lowest latency but one, on what seeds it has in common with that one."""
    means = {
        other: np.mean([np.median(np.log(found[seed])) for seed in found.keys() & values[side]])
        for other, found in values.items()
        if other != side and found.keys() & values[side]
    }
    return min(means, key=lambda other: float(means[other]), default=None)


def _ratios(
    values: Mapping[str, Mapping[str, Sequence[float]]], above: str | None, below: str
) -> dict[str, list[float]]:
    """Seed to log of one side's seconds over another one's, round by round."""
    if above is None:
        return {}
    return {
        seed: [
            math.log(a / b) for a, b in zip(values[above][seed], values[below][seed], strict=False)
        ]
        for seed in sorted(values[above].keys() & values[below].keys())
    }


def _logs(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {seed: [math.log(each) for each in found] for seed, found in values.items()}


def _interval(logs: Logs, rng: np.random.Generator) -> dict[str, Any] | None:
    """Geometric mean over seeds of the medians over rounds, with its 95 % bootstrap interval."""
    groups = [np.asarray(values, dtype=np.float64) for values in logs.values()]
    if not groups:
        return None
    # A resample of every group for every place that it may be drawn into: (group, place, draw).
    medians = np.array(
        [
            [np.median(rng.choice(values, (_RESAMPLES, len(values))), axis=1) for _ in groups]
            for values in groups
        ]
    )
    places, draws = np.arange(len(groups))[:, None], np.arange(_RESAMPLES)
    chosen = rng.integers(0, len(groups), (len(groups), _RESAMPLES))
    drawn = medians[chosen, places, draws].mean(axis=0)
    low, high = np.exp(np.percentile(drawn, [2.5, 97.5]))
    mean = float(np.exp(np.mean([np.median(values) for values in groups])))
    return {"mean": mean, "low": float(low), "high": float(high), "count": sum(map(len, groups))}
