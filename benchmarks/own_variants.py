"""Does a model of behaviour know a variant of our own processor that it never saw?

One processor makes several devices: with fewer vector registers, with shorter vectors, with more
threads. Each variant of a data set is left out in turn, and a part of the workloads everywhere, so
that neither device nor programs were learned from. Rivals order the left-out programs; the score is
the best time over that of the first choice, mean over groups.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._devices import (
    Case,
    Entries,
    Rival,
    figures,
    formulas,
    gain,
    judged,
    ranked,
    told_nothing,
)
from benchmarks.cells import Cells
from benchmarks.pages import Section, publish
from benchmarks.results import ROOT, conditions, table
from benchmarks.unseen_devices import device_code
from foretune.dataset import Group
from foretune.evaluate import cross_validation, keep_judgeable, read_data
from foretune.evaluate.fingerprints import fingerprint

_BLIND, _OURS, _FORMULAS = "trees without hardware factors", "behaviour", "formulas alone"
_MARGIN = 0.03
"""By how much behaviour is to be better than trees that are told nothing of the hardware."""
RIVALS: Mapping[str, Rival] = {
    _BLIND: told_nothing(ranked("gbdt_actions")),
    "trees": ranked("gbdt_actions"),
    _FORMULAS: formulas,
    _OURS: ranked("behaviour", stage=2),
}


def cases(groups: Sequence[Group], folds: int, parts: int, seed: int) -> Iterator[tuple[str, Case]]:
    """What is left out: a variant, and a part of the workloads.

    Args:
        groups: Of all variants.
        folds: Parts of the workloads.
        parts: How many of them are left out in turn.
        seed: Of what is random in training.
    """
    seen: dict[str, int] = {}
    for part in cross_validation(groups, "hardware", folds=folds, seed=0):
        device = part.test[0].hardware
        seen[device] = seen.get(device, 0) + 1
        if seen[device] <= parts:
            train = (*part.train, *part.validation)
            test = tuple(g.subset(np.flatnonzero(g.valid)) for g in part.test)
            yield part.name, Case(device, train, (), test, {}, seed)


def compute(options: argparse.Namespace) -> dict[str, dict[str, dict[str, Entries]]]:
    """Rival -> variant -> seed -> entries of groups; what is there is read."""
    groups = keep_judgeable(read_data([options.data]).groups)[0]
    names = {g.hardware: _called(g) for g in groups}
    settings = {"groups": fingerprint(groups), "folds": options.folds, "code": device_code()}
    kept = Cells(options.work_dir, settings)
    found: dict[str, dict[str, dict[str, Entries]]] = {name: {} for name in RIVALS}
    for seed in range(options.seeds):
        for part, case in cases(groups, options.folds, options.parts, seed):
            for name, rival in RIVALS.items():
                if name == _FORMULAS and seed:
                    continue  # nothing is random
                words = f"{name}, {part}, seed {seed}"
                entries = kept.get(words, functools.partial(_judged, rival, case), words)
                by_seed = found[name].setdefault(names[case.device], {})
                by_seed.setdefault(str(seed), []).extend(entries)
    return found


def _judged(rival: Rival, case: Case) -> Entries:
    return judged(rival(case), case, 1)


def _called(group: Group) -> str:
    machine = group.machine
    assert machine is not None
    count = f"{machine.threads} thread" + ("s" if machine.threads > 1 else "")
    return f"{machine.simd_bits} bits, {count}"


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    cells = data["rivals"]
    rows, fives = figures(cells, "top1"), figures(cells, "top5")
    better = gain(cells, _OURS, _BLIND, "top1")
    columns = list(next(iter(cells.values())))
    lines = [
        (
            name,
            *(f"{row[c]:.3f}" for c in (*columns, "mean", "spread")),
            f"{fives[name]['mean']:.3f}",
        )
        for name, row in rows.items()
    ]
    return Section(
        "Does a model know a variant of our own processor that it never saw?",
        "On a variant and workloads that it did not learn from, the first choice of `behaviour` "
        f"reaches {rows[_OURS]['mean']:.3f} of the best, {better['mean']:+.3f} "
        f"({better['low']:+.3f} to {better['high']:+.3f}) beside trees that are told nothing of "
        f"the hardware (asked: {_MARGIN:+.2f}, "
        f"{'met' if better['mean'] >= _MARGIN else 'not met'}).",
        table(["rival", *columns, "mean", "seeds differ by", "top-5"], lines),
        _READING,
    )


_READING = """\
A score is the best time over that of the first choice, mean over groups of one workload on the
left-out variant, then over variants; top-5: of the best of five. Trees read decisions of schedules.
To those without hardware factors all variants are one machine, in training and when they are
asked. Behaviour has no memory here: what the other variants took for the same program is not known
for a workload that nobody learned from. Interval: bootstrap over workloads, 95 %."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--folds", type=int, default=5, help="parts of the workloads")
    parser.add_argument("--parts", type=int, default=1, help="so many of them are left out in turn")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/own_variants"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("own_variants", range(options.seeds))
    data = {"schema": "foretune.own_variants/1", "rivals": compute(options)}
    publish("own_variants", section, data, where.end(), options.write)


if __name__ == "__main__":
    main()
