"""What a tuned network is worth to the next one: ``tune --learn-from``.

A network is tuned once. Then another one is tuned twice with every seed, once with the records of
the first and once without, one after the other and in changing order. Runs are kept in the work
directory, so that the benchmark goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._networks.figures import geometric_mean, mean_interval
from benchmarks._networks.runs import tuned
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, say, table

PAIRS = (
    "mobilenet_v2>efficientnet_b0",
    "vit_b_32>bert_base",
    "gpt2>llama_block",
    "resnet50>unet",
)
"""What is tuned first, and what learns from it."""
WITH, WITHOUT = "with", "without"
_SHARES = (0.1, 0.25, 0.5, 1.0)
"""Of the time: when both sides are looked at."""


def _before_s(task: Mapping[str, Any]) -> float | None:
    """Seconds of a task before any trial; None where it was not measured."""
    seconds: float | None = task["default_s"] or task["untuned_s"]
    return seconds


def comparable(results: Iterable[Mapping[str, Any]]) -> set[str]:
    """Keys of the tasks that every run has measured before its first trial."""
    known = [{task["key"] for task in each["tasks"] if _before_s(task)} for each in results]
    return set.intersection(*known)


def kernels_s(result: Mapping[str, Any], until_s: float, keys: Collection[str]) -> float:
    """Seconds of kernels of a network with the best schedules that a run knew by then.

    A task counts with its default schedule until a trial is faster.

    Args:
        result: As ``foretune.tune/1`` has it.
        until_s: Seconds since the run began.
        keys: Of the tasks that count, each measured before the first trial.
    """
    total = 0.0
    for task in result["tasks"]:
        if task["key"] not in keys:
            continue
        best = _before_s(task)
        assert best is not None
        for trial in task["trials"]:
            if trial["elapsed_s"] <= until_s and trial["best_s"] is not None:
                best = min(best, trial["best_s"])
        total += task["weight"] * best
    return total


def figures(runs: Mapping[str, Mapping[str, Any]], seconds: float) -> dict[str, float]:
    """Of one pair and seed: without over with, of kernels at shares of the time and of networks."""
    own, other = runs[WITH], runs[WITHOUT]
    keys = comparable(runs.values())
    # Both sides measured the default schedules: what differs between their readings is noise.
    scale = kernels_s(own, 0.0, keys) / kernels_s(other, 0.0, keys)
    found = {
        f"{share:g}": scale
        * kernels_s(other, share * seconds, keys)
        / kernels_s(own, share * seconds, keys)
        for share in _SHARES
    }
    speedups = {
        name: run["network"]["original_s"] / run["network"]["tuned_s"]
        for name, run in runs.items()
        if run["network"]["tuned_s"] and run["network"]["original_s"]
    }
    if len(speedups) == len(runs):
        found["network"] = speedups[WITH] / speedups[WITHOUT]
    return found


def section(data: Mapping[str, Any]) -> Section:
    """What learning brings at shares of the time, and at the end."""
    rows, seconds = data["rows"], data["time_s"]
    columns = [*(f"{share:g}" for share in _SHARES), "network"]
    known = {name: [r["figures"][name] for r in rows if name in r["figures"]] for name in columns}
    means = [_told(values) for values in known.values()]
    header = ["first", "then", "seed", *(f"{s * seconds:.0f} s" for s in _SHARES),
              "network at the end"]  # fmt: skip
    cells = [
        [row["first"], row["then"], str(row["seed"]),
         *(_told([row["figures"][n]] if n in row["figures"] else []) for n in columns)]
        for row in rows
    ]  # fmt: skip
    return Section(
        "Does a tuned network teach the next one?",
        f"After {_SHARES[0] * seconds:.0f} s the kernels of a network that learns from another one "
        f"are **{means[0]} times as fast** as without, after {seconds:.0f} s {means[-2]} times.",
        table(header, [*cells, ["mean", "", "", *means]]),
        "Seconds without over seconds with: above 1, learning pays. Kernels: the sum over all "
        "kernels of the best schedule that the run knew, by its own readings, those of the two "
        "runs made equal where both have the default schedules. Network: speed-up over the "
        "original at the end, as deployed, of one side over that of the other. Means are "
        "geometric, with a 95 % interval over pairs and seeds.",
    )


def _told(values: Sequence[float]) -> str:
    """A value, or the geometric mean of several with its interval."""
    if len(values) < 2:
        return f"{values[0]:.3f}" if values else "–"
    found = mean_interval(values)
    return f"{geometric_mean(values):.3f} ({found['low']:.3f} to {found['high']:.3f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks learned_from", description=__doc__)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--time", type=float, default=180.0, help="seconds of each run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/learned_from"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("learned_from", range(options.seeds))
    rows = []
    for pair in options.pairs.split(","):
        first, _, then = pair.partition(">")
        # Runs of another time are other runs.
        folder = options.work_dir / f"{options.time:g}s"
        source = folder / first
        tuned(first, source, options.time, 0)
        for seed in range(options.seeds):
            learning = ["--learn-from", str(source / "work")]
            sides: dict[str, list[str]] = {WITH: learning, WITHOUT: []}
            order = list(sides) if seed % 2 == 0 else list(reversed(sides))
            runs = {
                name: tuned(
                    then,
                    folder / f"{first}-{then}-{name}-{seed}",
                    options.time,
                    seed,
                    sides[name],
                )[1]
                for name in order
            }
            found = figures(runs, options.time)
            say(f"{pair}, seed {seed}: {found}")
            rows.append({"first": first, "then": then, "seed": seed, "figures": found})
    data = {"rows": rows, "time_s": options.time}
    publish("learned_from", section, data, where.end(), options.write)


if __name__ == "__main__":
    main()
