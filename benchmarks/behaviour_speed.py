"""What each stage of behaviour costs per candidate, in batches, without making programs.

The shipped classifier (stage 1), the shipped regressor behind scores by formulas (stage 2) and the
formulas alone, each in a fresh process, which has scored another operator before. *First*: a batch
of a space that this process has not seen, so that every structure of loops is taken apart once.
*Next*: other candidates of the same space. Time of the processor, with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._at_once import at_once
from benchmarks.model_speed import Unscored
from benchmarks.results import conditions, publish, say, table
from foretune.cost.pretrained import shipped
from foretune.dataset import Program
from foretune.describe import behaviours, joined, nests_of
from foretune.hardware import Hardware, device_of
from foretune.space import Candidate

WORKLOADS = (
    "matmul_512", "dense", "conv2d_3x3", "conv2d_add_relu", "depthwise_3x3", "conv3d",
    "attention_qk", "maxpool2d", "softmax", "layernorm_mean", "layernorm_variance",
)  # fmt: skip
BATCHES = (256, 1024)
STAGES = ("stage 1", "stage 2", "formulas alone")
GOAL_MS = 2.0
_NEXT = 3
"""Batches of the same space after the first."""
_BEFORE = "matmul:96x96x96"
_TITLE = "Time of the stages of behaviour"
Scorer = Callable[[Sequence[Candidate]], Any]


def scorer(stage: str, hardware: Hardware) -> Scorer:
    """What a stage does with candidates."""
    if stage == STAGES[2]:
        device = device_of(hardware)

        def formulas(candidates: Sequence[Candidate]) -> None:
            for _, nests in joined(nests_of(candidates)):
                behaviours(nests, device)

        return formulas
    ranker = shipped("classifier" if stage == STAGES[0] else "behaviour", hardware.kind)
    assert ranker is not None

    def score(candidates: Sequence[Candidate]) -> None:
        ranker.score([Program(candidate=each) for each in candidates], hardware, hardware.key)

    return score


def timed(
    place: int, together: Any, stage: str, workload: str, batch: int, hardware: Hardware, seed: int
) -> dict[str, float]:
    """Milliseconds per candidate of the first batch and of the next; run in a fresh process."""
    score = scorer(stage, hardware)
    score(Unscored(_BEFORE, hardware, seed).take(64))
    source = Unscored(workload, hardware, seed)
    spent = []
    for _ in range(1 + _NEXT):
        candidates = source.take(batch)
        if not candidates:
            break
        began = time.process_time()
        score(candidates)
        spent.append(1e3 * (time.process_time() - began) / len(candidates))
    found = {"first": spent[0]}
    return {**found, "next": float(np.median(spent[1:]))} if spent[1:] else found


def body(cells: Mapping[tuple[str, str, int, str], Sequence[float]]) -> str:
    """A table per stage: workloads by batch, and whether the goal is met."""
    columns = [(batch, when) for batch in BATCHES for when in ("first", "next")]
    sections = []
    for stage in STAGES:
        rows = []
        for workload in dict.fromkeys(key[1] for key in cells):
            medians = [cells.get((stage, workload, *column)) for column in columns]
            rows.append([workload, *(f"{np.median(each):.2f}" if each else "" for each in medians)])
        header = ["workload", *(f"{when} {batch}" for batch, when in columns)]
        sections.append(f"## {stage}\n\n{table(header, rows)}")
    return "\n\n".join(
        [
            "Milliseconds of the processor per candidate, median over seeds; the goal is "
            f"{GOAL_MS:g}. No program is made.",
            *sections,
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Times everything and prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.behaviour_speed")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    where = conditions("behaviour_speed", range(args.seeds))
    cells: dict[tuple[str, str, int, str], list[float]] = {}
    for workload in args.workloads.split(","):
        for seed in range(args.seeds):
            for stage in STAGES:
                for batch in BATCHES:
                    given = (stage, workload, batch, where.hardware, seed)
                    (found,) = at_once(1, timed, *given)
                    for when, ms in found.items():
                        cells.setdefault((stage, workload, batch, when), []).append(ms)
        say(workload)
    rows = [
        {"stage": stage, "workload": workload, "batch": batch, "when": when, "ms": each}
        for (stage, workload, batch, when), each in cells.items()
    ]
    publish("behaviour_speed", _TITLE, body(cells), {"rows": rows}, where.end(), args.write)


if __name__ == "__main__":
    main()
