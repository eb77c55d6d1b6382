"""What each stage of the ranker ``behaviour`` brings: LLMTuner's tables 4 to 6 on real data.

Of each source of data the ranker learns from some workloads (of Kernel Tuner's from three cards)
and orders the programs of others with at least 256: by the first stage alone, by the second alone,
by both with K survivors of the first, and by formulas that learned nothing. What the first stage
discards counts as never chosen. No memory of other devices, and no measurement of the tested group.
"""

from __future__ import annotations

import argparse
import copy
import functools
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._devices import FAMILIES, Floats, predicted
from benchmarks.cells import Cells
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, table
from benchmarks.unseen_devices import device_code
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.dataset import Group
from foretune.evaluate import Split, cross_validation
from foretune_research.recall import recalls

KEPT = (10, 16, 32, 64)
_PICKS = (1, 5)
_LEAST = 256
_TUNER = "Kernel Tuner, convolution"
SOURCES = {
    "autotvm, CPUs": "cpus",
    "autotvm, GTX 1650": "gtx1650, by workload",
    "ansor, K80": "k80, mi50",
    _TUNER: "convolution",
}
"""Source -> the family whose data it is; of K80 and MI50, the K80."""


def split_of(source: str, options: argparse.Namespace, seed: int) -> Split:
    """Workloads to learn from and others to be asked about; of Kernel Tuner's, cards."""
    groups = FAMILIES[SOURCES[source]].groups()
    if source == _TUNER:
        parts = cross_validation(groups, "hardware_seen")
        return parts[seed % len(parts)]
    if source == "ansor, K80":
        groups = [group for group in groups if group.hardware == "k80"]
    part = cross_validation(groups, "workload", folds=4, seed=0)[0]
    rng = np.random.default_rng(0)

    def some(found: Sequence[Group], most: int) -> tuple[Group, ...]:
        return tuple(found[at] for at in np.sort(rng.permutation(len(found))[:most]).tolist())

    large = [group for group in part.test if group.valid.sum() >= _LEAST]
    return Split(
        part.name,
        some(part.train, options.groups),
        some(part.validation, max(4, options.groups // 8)),
        some(large, options.tests),
    )


def orders(ranker: BehaviourRanker) -> dict[str, Callable[[Group], Floats]]:
    """Who orders a group, by name."""
    found: dict[str, Callable[[Group], Floats]] = {
        "formulas alone": predicted,
        "stage 1": ranker.staged("1").score_group,
        "stage 2": ranker.staged("2").score_group,
    }
    for keep in KEPT:
        both = copy.copy(ranker.staged("both"))
        both.keep = keep
        found[f"both, K = {keep}"] = both.score_group
    return found


def cell(source: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One ranker, trained and asked in every way."""
    part = split_of(source, options, seed)
    first = {"epochs": options.epochs, "threads": 1, "device": "cpu"}
    ranker = BehaviourRanker(seed=seed, first_options=first)
    ranker.fit(part.train, part.validation)
    found: dict[str, Any] = {}
    tested = [group for group in part.test if len(group) >= _LEAST]
    for name, order in orders(ranker).items():
        rows, began = [], time.process_time()
        for group in tested:
            rng = np.random.default_rng([seed, zlib.crc32(group.key.encode())])
            kept = recalls(order(group), group.seconds, (*_PICKS, *KEPT), rng)
            rows.append(
                {
                    "group": group.key,
                    **{f"top{one.kept}": one.ratio for one in kept},
                    **{f"recall{one.kept}": one.near for one in kept},
                }
            )
        spent = 1e3 * (time.process_time() - began) / max(sum(map(len, tested)), 1)
        found[name] = {"groups": rows, "ms_per_program": spent}
    return found


def means(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By who orders, the mean of each figure over groups and seeds."""
    found = {}
    for name in cells[0]:
        rows = [row for one in cells for row in one[name]["groups"]]
        columns = [key for key in rows[0] if key != "group"]
        found[name] = {key: float(np.mean([row[key] for row in rows])) for key in columns}
        found[name]["ms_per_program"] = float(np.mean([c[name]["ms_per_program"] for c in cells]))
    return found


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    sources = data["sources"]
    names = list(next(iter(sources.values())))
    best = "; ".join(
        f"{source}: {name} ({each[name]['top1']:.3f})"
        for source, each in sources.items()
        for name in [max(each, key=lambda name, each=each: each[name]["top1"])]
    )
    lines = [
        [source, *(f"{each[name]['top1']:.3f}" for name in names)]
        for source, each in sources.items()
    ]
    details = []
    for source, each in sources.items():
        rows = [
            (name, *(f"{row[f'top{k}']:.3f}" for k in (1, 5, 10)),
             *(f"{row[f'recall{k}']:.2f}" for k in KEPT), f"{row['ms_per_program']:.2f}")
            for name, row in each.items()
        ]  # fmt: skip
        header = (source, "top-1", "top-5", "top-10", *(f"recall@{k}" for k in KEPT), "ms")
        details.append(table(header, rows))
    return Section(
        "Does it take two stages to order programs by behaviour?",
        f"It depends on the data. Whose first choice is best, and what it reaches: {best}.",
        table(["first choice", *names], lines),
        "Recall: the share of groups in which a program within 2 % of the fastest is among the "
        "first K. Milliseconds of processor time a program, in the group's batch.\n\n"
        + "\n\n".join(details),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", action="append", choices=list(SOURCES), default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=40, help="learned from, at most")
    parser.add_argument("--tests", type=int, default=25, help="asked about, at most")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/stages"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("stages", range(options.seeds))
    sizes = [options.groups, options.tests, options.epochs]
    kept = Cells(options.work_dir, {"sizes": sizes, "code": device_code()})
    sources = {}
    for source in options.source or SOURCES:
        words = [f"{source}, seed {seed}" for seed in range(options.seeds)]
        sources[source] = means(
            [
                kept.get(each, functools.partial(cell, source, seed, options), each)
                for seed, each in enumerate(words)
            ]
        )
    data = {"schema": "foretune.stages/2", "sources": sources}
    publish("stages", section, data, where.end(), options.write)


if __name__ == "__main__":
    main()
