"""What each stage of the ranker ``behaviour`` brings: LLMTuner's tables 4 to 6 on real data.

Of each source of data the ranker learns from some workloads (of Kernel Tuner's from three cards)
and orders the programs of others with at least 256: by the first stage alone, by the second alone,
by both with K survivors of the first, and by formulas that learned nothing. What the first stage
discards counts as never chosen. No memory of other devices, and no measurement of the tested group.

A file per source and seed is kept in the work directory.
"""

from __future__ import annotations

import argparse
import copy
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._devices.families import FAMILIES
from benchmarks._devices.rivals import predicted
from benchmarks.recall import split_of
from benchmarks.results import conditions, publish, read_json, say, table
from foretune._files import write_json
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.dataset import Group
from foretune.evaluate import Split, cross_validation
from foretune_research.recall import recalls

Floats = npt.NDArray[np.float64]

KEPT = (10, 16, 32, 64)
_PICKS = (1, 5)
TUNER = "Kernel Tuner, convolution"
SOURCES = ("autotvm, CPUs", "autotvm, GTX 1650", "ansor, K80", TUNER)
FORMULAS, FIRST, SECOND = "formulas alone", "stage 1", "stage 2"
_TITLE = "The stages of behaviour"
_SCHEMA = "foretune.stages/1"
_LEAST = 256


def split(source: str, groups: int, tests: int, seed: int) -> Split:
    """Groups to learn from, and those that are ordered."""
    if source != TUNER:
        return split_of(source, groups, tests)
    parts = cross_validation(FAMILIES["convolution"].groups(), "hardware_seen")
    return parts[seed % len(parts)]


def orders(ranker: BehaviourRanker) -> dict[str, Callable[[Group], Floats]]:
    """Who orders a group, by name."""
    found: dict[str, Callable[[Group], Floats]] = {
        FORMULAS: predicted,
        FIRST: ranker.staged("1").score_group,
        SECOND: ranker.staged("2").score_group,
    }
    for keep in KEPT:
        both = copy.copy(ranker.staged("both"))
        both.keep = keep
        found[f"both, K = {keep}"] = both.score_group
    return found


def cell(source: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One ranker, trained and asked in every way."""
    part = split(source, args.groups, args.tests, seed)
    first = {"epochs": args.epochs, "threads": 1, "device": "cpu"}
    ranker = BehaviourRanker(seed=seed, first_options=first)
    ranker.fit(part.train, part.validation)
    found: dict[str, Any] = {}
    for name, order in orders(ranker).items():
        rows, spent, programs = [], 0.0, 0
        for group in part.test:
            if len(group) < _LEAST:
                continue
            began = time.process_time()
            scores = order(group)
            spent += time.process_time() - began
            programs += len(group)
            rng = np.random.default_rng([seed, zlib.crc32(group.key.encode())])
            kept = recalls(scores, group.seconds, (*_PICKS, *KEPT), rng)
            rows.append(
                {
                    "group": group.key,
                    **{f"top{one.kept}": one.ratio for one in kept},
                    **{f"recall{one.kept}": one.near for one in kept},
                }
            )
        found[name] = {"groups": rows, "ms_per_program": 1e3 * spent / max(programs, 1)}
    return found


def means(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By who orders, the mean of each figure over groups and seeds."""
    found = {}
    for name in cells[0]:
        rows = [row for one in cells for row in one[name]["groups"]]
        figures = [key for key in rows[0] if key != "group"]
        found[name] = {key: float(np.mean([row[key] for row in rows])) for key in figures}
        found[name]["ms_per_program"] = float(np.mean([c[name]["ms_per_program"] for c in cells]))
    return found


def main(arguments: Sequence[str] = ()) -> None:
    """Runs what is missing and prints a table per source."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages")
    parser.add_argument("--source", action="append", choices=SOURCES, default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--tests", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/stages"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(list(arguments) or None)
    where = conditions("stages", range(args.seeds))
    sections, data = [], {}
    for source in args.source or SOURCES:
        cells = []
        for seed in range(args.seeds):
            sizes = f"{args.groups}-{args.tests}-{args.epochs}"
            name = f"{source}-{sizes}-{seed}.json".replace(", ", "_").replace(" ", "_")
            file = args.work_dir / name
            if not file.exists():
                args.work_dir.mkdir(parents=True, exist_ok=True)
                write_json(file, cell(source, seed, args))
                say(f"{source}, seed {seed}")
            cells.append(dict(read_json(file)))
        data[source] = means(cells)
        tested = len({row["group"] for one in cells for row in one[FIRST]["groups"]})
        rows = [
            (name, *(f"{row[f'top{k}']:.3f}" for k in (1, 5, 10)),
             *(f"{row[f'recall{k}']:.2f}" for k in KEPT), f"{row['ms_per_program']:.2f}")
            for name, row in data[source].items()
        ]  # fmt: skip
        header = ("ordered by", "top-1", "top-5", "top-10", *(f"recall@{k}" for k in KEPT), "ms")
        sections += [f"## {source}", "", f"{tested} groups.", "", table(header, rows), ""]
    best = {
        source: max(each, key=lambda name, e=each: e[name]["top1"]) for source, each in data.items()
    }
    told = "; ".join(f"{s}: {n} ({data[s][n]['top1']:.3f})" for s, n in best.items())
    intro = f"Whose first choice is best: {told}.\n\n" + (
        "Recall: the share of groups in which a program within 2 % of the fastest is among the "
        "first K. Milliseconds of processor time a program, in the group's batch."
    )
    body = "\n".join([intro, "", *sections])
    publish("stages", _TITLE, body, {"schema": _SCHEMA, "sources": data}, where.end(), args.write)


if __name__ == "__main__":
    main()
