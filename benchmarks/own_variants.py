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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._devices.rivals import Case, Rival, formulas, ranked
from benchmarks.cells import Cells
from benchmarks.results import conditions, publish, say, table
from benchmarks.sources import code_of
from benchmarks.unseen_devices import judged
from foretune.dataset import Group
from foretune.evaluate import cross_validation, keep_judgeable, read_data
from foretune.evaluate.fingerprints import fingerprint

PAGE = "own_variants"
_TITLE = "Variants of our own processor that nobody learned from"
_TREES, _BLIND = "trees", "trees without hardware factors"
_OURS, _FORMULAS = "behaviour", "formulas alone"
_MARGIN = 0.03
"""By how much behaviour is to be better than trees that are told nothing of the hardware."""


def told_nothing(rival: Rival) -> Rival:
    """The rival, to which all variants are the same machine."""

    def score(case: Case) -> dict[str, Any]:
        one = case.train[0]

        def alike(groups: Sequence[Group]) -> tuple[Group, ...]:
            return tuple(replace(g, machine=one.machine, device=one.device) for g in groups)

        blind = replace(case, train=alike(case.train), common=(), test=alike(case.test))
        return rival(blind)

    return score


RIVALS: Mapping[str, Rival] = {
    _BLIND: told_nothing(ranked("gbdt_actions")),
    _TREES: ranked("gbdt_actions"),
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


def compute(options: argparse.Namespace) -> dict[str, Any]:
    """Rival -> variant -> seed -> part -> entries of groups; what is there is read."""
    groups = keep_judgeable(read_data([options.data]).groups)[0]
    names = {g.hardware: _called(g) for g in groups}
    settings = {
        "groups": fingerprint(groups),
        "folds": options.folds,
        "code": code_of(
            "benchmarks._devices.rivals",
            "benchmarks.own_variants",
            "foretune.cost.gbdt_ranker",
            "foretune.cost.behaviour.ranker",
            # Found by name.
            "foretune_research.logs",
            within=("cost", "features", "dataset", "describe", "evaluate", "space", "hardware"),
        ),
    }
    kept = Cells(options.work_dir, settings)
    found: dict[str, Any] = {name: {} for name in RIVALS}
    for seed in range(options.seeds):
        for part, case in cases(groups, options.folds, options.parts, seed):
            for name, rival in RIVALS.items():
                if name == _FORMULAS and seed:
                    continue  # nothing is random
                words = f"{name}, {part}, seed {seed}"
                make = functools.partial(_judged, rival, case)
                entries = kept.get(words, make, words)
                say(f"{name}, {part}, seed {seed}: {_mean(entries):.3f}")
                by_seed = found[name].setdefault(names[case.device], {}).setdefault(str(seed), {})
                by_seed[part] = entries
    return found


def _judged(rival: Rival, case: Case) -> list[dict[str, Any]]:
    return judged(rival(case), case, 1)


def _called(group: Group) -> str:
    machine = group.machine
    assert machine is not None
    count = f"{machine.threads} thread" + ("s" if machine.threads > 1 else "")
    return f"{machine.simd_bits} bits, {count}"


def _mean(entries: Sequence[Mapping[str, Any]], metric: str = "top1") -> float:
    return float(np.mean([entry[metric] for entry in entries]))


def body_of(found: Mapping[str, Any]) -> str:
    """The answer and the table."""
    rows: dict[str, dict[str, float]] = {}
    spreads: dict[str, float] = {}
    fives: dict[str, float] = {}
    for name, variants in found.items():
        each = {
            variant: [_of_parts(parts, "top1") for parts in seeds.values()]
            for variant, seeds in variants.items()
        }
        rows[name] = {variant: float(np.mean(values)) for variant, values in each.items()}
        whole = np.mean(list(each.values()), axis=0)
        rows[name]["mean"], spreads[name] = float(np.mean(whole)), float(np.ptp(whole))
        fives[name] = float(
            np.mean([_of_parts(p, "top5") for seeds in variants.values() for p in seeds.values()])
        )
    gain = rows[_OURS]["mean"] - rows[_BLIND]["mean"]
    answer = (
        f"On a variant and workloads that it did not learn from, behaviour's first choice reaches "
        f"{rows[_OURS]['mean']:.3f} of the best, {gain:+.3f} against trees that are told nothing "
        f"of the hardware (asked: {_MARGIN:+.2f}, {'met' if gain >= _MARGIN else 'not met'})."
    )
    columns = list(rows[_OURS])
    cells = [
        (name, *(f"{row[c]:.3f}" for c in columns), f"{spreads[name]:.3f}", f"{fives[name]:.3f}")
        for name, row in rows.items()
    ]
    variants = table(["rival", *columns, "seeds differ by", "top-5"], cells)
    return f"{answer}\n\n{variants}\n\n{_READING}"


def _of_parts(parts: Mapping[str, Sequence[Mapping[str, Any]]], metric: str) -> float:
    return _mean([entry for entries in parts.values() for entry in entries], metric)


_READING = """\
A score is the best time over that of the first choice, mean over groups of one workload on the
left-out variant, then over variants; top-5: of the best of five. Trees read decisions of schedules.
To those without hardware factors all variants are one machine, in training and when they are
asked. Behaviour has no memory here: what the other variants took for the same program is not known
for a workload that nobody learned from."""


def main(arguments: Sequence[str] = ()) -> None:
    """Computes what is missing and prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_variants")
    parser.add_argument("--data", type=Path, default=Path("data/cpu"))
    parser.add_argument("--folds", type=int, default=5, help="parts of the workloads")
    parser.add_argument("--parts", type=int, default=1, help="so many of them are left out in turn")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work") / PAGE)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(list(arguments) or None)
    where = conditions(PAGE, range(options.seeds))
    found = compute(options)
    publish(PAGE, _TITLE, body_of(found), {"rivals": found}, where.end(), options.write)


if __name__ == "__main__":
    main()
