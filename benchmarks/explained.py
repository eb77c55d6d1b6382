"""Does what ``foretune explain`` says to try make bad schedules faster?

For each workload, a good schedule (the first that rules propose, or the fastest of some random
ones) is spoiled: some of its decisions are drawn anew until it is clearly slower when measured.
Then the explanation of the spoiled schedule is followed: the change it names first is made, and
again with what is said of the result, three times at most. All schedules of a workload are measured
in turns. The share of the way back says how much of the slow-down is undone, on a logarithmic
scale; above 100 % it is faster than the good one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from foretune.explain import Explanation, Kernel, explain
from foretune.hardware import Device, Hardware, device_of
from foretune.measure import LocalMeasurer
from foretune.space import Candidate, Space
from foretune.workload import Workload, catalog

WORKLOADS = (
    "matmul:512x512x512",
    "matmul:128x3072x768",
    "matmul:1024x64x1024",
    "batch_matmul:12x128x128x64",
    "conv2d_3x3",
    "conv2d:1x28x28x256x256x1x1",
    "depthwise_3x3",
    "softmax",
    "conv3d",
    "maxpool2d",
)
_SPOILED = 1.5
"""Times as slow as the good schedule that a spoiled one is at least."""
_DRAWS, _CHANGED, _STEPS, _TRIES = 24, 3, 3, 6
_TITLE = "Following what explain says"
_SCHEMA = "foretune.explained/1"


def compared(measurer: LocalMeasurer, candidates: Sequence[Candidate]) -> list[float]:
    """Median seconds of candidates that are measured in turns; NaN for a failure."""
    return [
        float(np.median(one.seconds)) if one.ok else math.nan
        for one in measurer.compare(candidates)
    ]


def spoiled(
    space: Space, good: Candidate, measurer: LocalMeasurer, rng: np.random.Generator
) -> Candidate | None:
    """The good schedule with some decisions drawn anew, measured twice to be clearly slower."""
    drawn: dict[Candidate, None] = {}
    for _ in range(_DRAWS):
        candidate = good
        for _ in range(_CHANGED):
            candidate = space.mutate(candidate, rng)
        drawn.setdefault(candidate)
    found = {c: m.best_s for c, m in measurer.measure([good, *drawn]) if m.best_s is not None}
    own = found.pop(good)
    slow = [
        (seconds, candidate) for candidate, seconds in found.items() if seconds > _SPOILED * own
    ]
    # Not the slowest of all, which any change would make faster.
    slow.sort(key=lambda pair: pair[0])
    middle = len(slow) // 2
    for _, candidate in (slow[middle:] + slow[:middle][::-1])[:_TRIES]:
        one, other = compared(measurer, [good, candidate])
        if other > _SPOILED * one:
            return candidate
    return None


def fastest(space: Space, measurer: LocalMeasurer, rng: np.random.Generator) -> Candidate:
    """The fastest of some candidates, where no rule says which are good."""
    measured = [(m.best_s, c) for c, m in measurer.measure(space.sample(rng, _DRAWS)) if m.ok]
    return min(measured, key=lambda pair: pair[0] or math.inf)[1]


def followed(bad: Candidate, device: Device) -> tuple[list[Candidate], list[Explanation]]:
    """The schedules that come of what is said first, and what is said of each."""
    found, told = [bad], []
    for _ in range(_STEPS):
        told.append(explain(Kernel(found[-1]), device))
        named = [each for each in told[-1].advice if each.decisions]
        if not named:
            break
        found.append(bad.sketch.candidate(named[0].decisions))
    return found, told


def case(name: str, hardware: Hardware, measurer: LocalMeasurer, seed: int) -> dict[str, Any]:
    """One workload: spoiled, explained, followed, measured."""
    workload = catalog.get(name)
    assert isinstance(workload, Workload)
    space = Space.generate(workload, hardware)
    rng = np.random.default_rng(seed)
    good = space.starts[0] if space.starts else fastest(space, measurer, rng)
    bad = spoiled(space, good, measurer, rng)
    if bad is None:
        return {"workload": name, "seed": seed, "spoiled": False}
    steps, told = followed(bad, device_of(hardware))
    seconds = compared(measurer, [good, *steps])
    return {
        "workload": name,
        "seed": seed,
        "spoiled": True,
        "bound": told[0].bound,
        "advice": [one.advice[0].text if one.advice else "" for one in told],
        "good_s": seconds[0],
        "bad_s": seconds[1],
        "steps_s": seconds[2:],
        "first": seconds[1] / seconds[2] if len(seconds) > 2 else 1.0,
        "last": seconds[1] / seconds[-1],
        "way_back": float(np.log(seconds[1] / seconds[-1]) / np.log(seconds[1] / seconds[0])),
    }


def main(arguments: Sequence[str] = ()) -> None:
    """Runs all workloads and prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explained")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(list(arguments) or None)
    where = conditions("explained", range(args.seeds))
    found = []
    with LocalMeasurer(where.hardware) as measurer:
        for seed in range(args.seeds):
            for name in WORKLOADS:
                found.append(case(name, where.hardware, measurer, seed))
                say(str(found[-1]))
    done = [one for one in found if one["spoiled"]]
    rows = [
        (one["workload"], str(one["seed"]), f"{one['bad_s'] / one['good_s']:.2f}", one["bound"],
         f"{one['first']:.2f}", f"{one['last']:.2f}", f"{100 * one['way_back']:.0f} %")
        for one in done
    ]  # fmt: skip
    faster = sum(one["first"] > 1.03 for one in done)
    followed_faster = sum(one["last"] > 1.03 for one in done)
    body = "\n".join(
        [
            f"The first change that is named makes {faster} of {len(done)} bad schedules faster; "
            f"following three times makes {followed_faster} of them faster.",
            "",
            table(("workload", "seed", "times slower", "bound", "first change", "three changes",
                   "of the way back"), rows),
        ]
    )  # fmt: skip
    publish("explained", _TITLE, body, {"schema": _SCHEMA, "cases": found}, where.end(), args.write)


if __name__ == "__main__":
    main()
