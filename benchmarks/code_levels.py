"""What LLVM's optimisation levels are worth: seconds to build a program, and seconds it takes.

Candidates that a search would measure: of random ones of each workload, those that the default cost
model likes best. Each is built at every level in turn, then all levels are read in turns, in one
process. What is compared is one candidate at two levels: ratios, geometric means, an interval from
a bootstrap over workloads and candidates.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.results import conditions, publish, say, table
from foretune import _tvm, cost
from foretune.bench import geometric_mean
from foretune.hardware import Hardware
from foretune.measure import MeasurePolicy
from foretune.measure._layout import host_tensor
from foretune.measure._turns import InTurn
from foretune.measure.gate import Signature, make_inputs
from foretune.measure.timing import Stopwatch, entry
from foretune.space import Candidate, Space
from foretune.tuning import prepare
from foretune.workload import catalog

NO_POST_RA = ["-disable-post-ra:bool=1"]
LEVELS: Mapping[str, Mapping[str, Any]] = {
    "2": {"opt-level": 2},
    "3": {"opt-level": 3},
    "1": {"opt-level": 1},
    "2, no post-RA": {"opt-level": 2, "cl-opt": NO_POST_RA},
    "3, no post-RA": {"opt-level": 3, "cl-opt": NO_POST_RA},
}
"""Attributes of targets; the first is compared with each of the others. *Post-RA*: LLVM schedules
instructions once more after registers are assigned."""
EVERYTHING = (*catalog.names("subgraph"), *catalog.names("kernel"))
_TITLE = "LLVM's optimisation levels"
_SEED = 0
_POOL = 512
_AMONG = 64
"""Of a pool's best, about as many as a short search measures, the candidates are drawn."""


def built(candidate: Candidate, level: str) -> Any:
    """A candidate as ``foretune.measure`` builds it, but at a level."""
    target = {**json.loads(candidate.hardware.target), **LEVELS[level]}
    hardware = replace(candidate.hardware, target=json.dumps(target))
    module = _tvm.tvm.compile(candidate.schedule().mod, hardware.code_target()).jit()
    module["main"]
    return module


def chosen(name: str, hardware: Hardware, count: int) -> list[Candidate]:
    """``count`` of the best of a pool, always the same ones; the very best is among them."""
    (workload,) = prepare(name, hardware).workloads
    space = Space.generate(workload, hardware)
    rng = np.random.default_rng(_SEED)
    pool = space.sample(rng, _POOL)
    model = cost.create("gbdt", rng=_SEED, hardware=hardware)
    best = np.argsort(-model.predict(pool).score, kind="stable")[:_AMONG]
    others = rng.permutation(best[1:])[: count - 1]
    return [pool[at] for at in (best[0], *others)]


def compare(candidate: Candidate, watch: Stopwatch, rounds: int) -> dict[str, dict[str, float]]:
    """``build_s`` and ``run_s`` of each level: one build, the lowest of ``rounds`` in turns."""
    inputs = make_inputs(Signature.of(candidate.workload), candidate.workload.key)
    arguments = InTurn([[host_tensor(array)] for array in inputs])
    programs, found = {}, {}
    for level in LEVELS:
        began = time.perf_counter()
        programs[level] = built(candidate, level)
        found[level] = {"build_s": time.perf_counter() - began, "run_s": math.inf}
    with _tvm.calling_from_a_free_core():
        first = {level: watch.call(entry(programs[level]), arguments.first) for level in LEVELS}
        for _ in range(rounds):
            for level in LEVELS:
                (reading,) = watch.readings(programs[level], arguments, first[level], count=1)
                mine = found[level]
                mine["run_s"] = min(mine["run_s"], reading.seconds)
    return found


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each other level over the first: ratios of both kinds of seconds, with intervals."""
    rng = np.random.default_rng(_SEED)
    first, *others = LEVELS
    found = []
    for level in others:
        for what in ("build_s", "run_s"):
            pairs: dict[str, list[float]] = {}
            for row in rows:
                ratio = row["levels"][level][what] / row["levels"][first][what]
                pairs.setdefault(row["workload"], []).append(math.log(ratio))
            mean, low, high = geometric_mean(pairs, rng)
            found.append({"level": level, "what": what, "mean": mean, "low": low, "high": high})
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(EVERYTHING))
    parser.add_argument("--candidates", type=int, default=4, help="of each workload")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("code_levels", [_SEED])
    watch = Stopwatch(where.hardware, MeasurePolicy())
    rows = []
    for name in options.workloads.split(","):
        for candidate in chosen(name, where.hardware, options.candidates):
            levels = compare(candidate, watch, options.rounds)
            rows.append({"workload": name, "candidate": candidate.key, "levels": levels})
        say(name)
    result = {"levels": list(LEVELS), "rows": rows, "summary": summary(rows)}
    publish("code_levels", _TITLE, body(result), result, where.end(), options.write)


def body(result: dict[str, Any]) -> str:
    """The page: ratios over all workloads, then for each."""
    first, *others = result["levels"]
    words = {"build_s": "to build", "run_s": "of a call"}
    total = [
        [f"{row['level']} over {first}", words[row["what"]],
         f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f})"]
        for row in result["summary"]
    ]  # fmt: skip
    names = list(dict.fromkeys(row["workload"] for row in result["rows"]))
    rows = []
    for name in names:
        own = [row["levels"] for row in result["rows"] if row["workload"] == name]
        ratios = [[x[n][what] / x[first][what] for x in own] for n in others for what in words]
        cells = [f"{math.exp(float(np.mean(np.log(each)))):.2f}" for each in ratios]
        mean_s = sum(x[first]["build_s"] for x in own) / len(own)
        rows.append([name, str(len(own)), f"{mean_s:.2f}", *cells])
    header = ["workload", "candidates", f"build at {first}, s",
              *(f"{level}: {word}" for level in others for word in words.values())]  # fmt: skip
    return "\n\n".join(
        [
            f"Seconds at each level over those at level {first} of the same candidate; above 1 is "
            "slower. Geometric means, intervals from a bootstrap over workloads and candidates.",
            table(["level", "seconds", "ratio, 95 % interval"], total),
            "By workload, geometric means:",
            table(header, rows),
        ]
    )


if __name__ == "__main__":
    main()
