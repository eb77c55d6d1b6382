"""Does a model order programs for a device that it never saw, better than the other devices do?

Each device of a family is left out in turn. Rivals learn from the others, and all are judged on the
programs that every device of the family ran: the best time there is over that of the first choice
(or of the best of five, or ten), mean over workloads, then over devices. The floor costs nothing:
the geometric mean of a program's seconds on the other devices. Where there is one device only,
workloads are left out, a fourth at a time.

What was judged is kept in the work directory, so that the benchmark goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._devices import (
    FAMILIES,
    PROGRAMS,
    Case,
    Entries,
    Family,
    Rival,
    best_elsewhere,
    by_operator,
    figures,
    formulas,
    gain,
    judged,
    nearest_device,
    operator_unseen,
    parameter_trees,
    ranked,
)
from benchmarks._rankers import ROOMS
from benchmarks.cells import Cells
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, table
from benchmarks.sources import code_of
from foretune.dataset import Group
from foretune.evaluate import cross_validation
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.floors import common_programs

FLOOR, OURS, _FORMULAS = "best elsewhere", "behaviour", "formulas alone"
_OPERATOR = "no memory, operator unseen"
RIVALS: Mapping[str, Rival] = {
    FLOOR: best_elsewhere,
    "nearest device": nearest_device,
    _FORMULAS: formulas,
    "trees on parameters": parameter_trees,
    "trees on decisions": ranked("gbdt_actions"),
    "tlp": ranked("tlp", epochs=15),
    "tlp, a head per device": ranked("mtl_tlp", epochs=15),
    OURS: ranked("behaviour", whole=True, stage=2, memory=True),
    "behaviour, no memory": ranked("behaviour", whole=True, stage=2),
    "behaviour, both stages": ranked(
        "behaviour", whole=True, memory=True, first_options={"epochs": 6}
    ),
    "factors swapped": ranked("behaviour", whole=True, swapped=True, stage=2, memory=True),
    "no memory, swapped": ranked("behaviour", whole=True, swapped=True, stage=2),
    "no memory, shuffled": ranked("behaviour:variants", whole=True, stage=2, factors="shuffled"),
    "no memory, removed": ranked("behaviour:variants", whole=True, stage=2, factors=False),
    _OPERATOR: operator_unseen(ranked("behaviour", whole=True, stage=2)),
}
"""By name; those that are not applicable to a family are left out of its table."""
_NO_SEED = (FLOOR, "nearest device", _FORMULAS)
_OF_DECISIONS = ("trees on decisions", "tlp", "tlp, a head per device")
_ONE_DEVICE = ("trees on decisions", "tlp", _FORMULAS, "behaviour, no memory")
_OF_LOOPS = ("behaviour", "factors", "no memory", _FORMULAS)


def rivals_of(family: Family, groups: Sequence[Group]) -> list[str]:
    """Names of the rivals that can be asked about the programs of a family."""
    configured = groups[0].programs[0].configuration is not None
    # A solver's name tells nothing of what it does: no behaviour is claimed.
    solvers = any("miopen" in file for file in family.files)
    one_kind = len({group.kind for group in groups}) == 1
    return [
        name
        for name in RIVALS
        if not (configured and name in _OF_DECISIONS)
        and not (not configured and name == "trees on parameters")
        and not (family.by_workload and name not in _ONE_DEVICE)
        and not (one_kind and name == _OPERATOR)
        and not (solvers and name.startswith(_OF_LOOPS))
    ]


def cases(groups: list[Group], family: Family, seed: int) -> Iterator[Case]:
    """Each device left out in turn, or each fourth of the workloads of one device."""
    if family.by_workload:
        for part in cross_validation(groups, "workload", folds=4, seed=0):
            train = (*part.train, *part.validation)
            test = tuple(g.subset(np.flatnonzero(g.valid)) for g in part.test)
            yield Case(part.name, train, train, test, {}, seed)
        return
    rows = common_programs(groups, family.least)
    logs = {g.key: np.log(g.seconds[rows[g.key]]) for g in groups if g.key in rows}
    for device in sorted({g.hardware for g in groups}):
        test = tuple(
            g.subset(rows[g.key]) for g in groups if g.hardware == device and g.key in rows
        )
        elsewhere = {
            g.key: {
                other.hardware: logs[other.key]
                for other in groups
                if other.workload == g.workload and other.hardware != device
            }
            for g in test
        }
        train = tuple(g for g in groups if g.hardware != device)
        known = tuple(g.subset(rows[g.key]) for g in train if g.key in rows)
        yield Case(device, train, known, test, elsewhere, seed)


def compute(
    name: str, family: Family, rivals: Sequence[str], seeds: int, work: Path
) -> dict[str, dict[str, dict[str, Entries]]]:
    """All cells of a family: rival -> device -> seed -> groups; those that are there are read."""
    groups = family.groups()
    settings = {"groups": fingerprint(groups), "picks": family.picks, "code": device_code()}
    kept = Cells(work, settings)
    wanted = [rival for rival in rivals_of(family, groups) if rival in rivals]
    found: dict[str, dict[str, dict[str, Entries]]] = {rival: {} for rival in wanted}
    for seed in range(seeds):
        for case in cases(groups, family, seed):
            for rival in wanted:
                if seed and rival in _NO_SEED:
                    continue
                words = f"{name}: {rival}, {case.device}, seed {seed}"
                make = functools.partial(_judged, rival, case, family.picks)
                by_seed = found[rival].setdefault(case.device, {})
                by_seed[str(seed)] = kept.get(words, make, words)
    return found


def _judged(rival: str, case: Case, picks: int) -> Entries:
    return judged(RIVALS[rival](case), case, picks)


def device_code() -> str:
    """A hash of the code that cells depend on."""
    return code_of(
        "benchmarks._devices",
        "foretune.cost.gbdt_ranker",
        "foretune.cost.tlp",
        "foretune.cost.behaviour.ranker",
        # Found by name.
        "foretune_research.behaviour",
        "foretune_research.logs",
        within=ROOMS,
    )


def readings(cells: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """What the page says of a family."""
    metric = f"top{family.picks}"
    first = next(iter(cells.values()))
    of_devices = [next(iter(seeds.values())) for seeds in first.values()]
    tested = [one for own in of_devices for one in own] if family.by_workload else of_devices[0]
    found = {
        **{f"top{k}": figures(cells, f"top{k}") for k in {1, 5, family.picks}},
        "by operator": by_operator(cells, metric),
        "workloads": len(tested),
        "seeds": {name: len(next(iter(own.values()))) for name, own in cells.items()},
    }
    if OURS in cells and FLOOR in cells:
        found["gain"] = gain(cells, OURS, FLOOR, metric)
    return found


def goal(floor: float) -> float:
    """What is asked of the mean of a family: a third of what the floor leaves, if that is much."""
    return floor + (1.0 - floor) / 3.0 if 1.0 - floor > 0.1 else floor - 0.02


# The page


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    found = data["families"]
    reached: list[str] = []
    missed: list[str] = []
    for name, one in found.items():
        shown = one[f"top{FAMILIES[name].picks}"]
        if OURS in shown and FLOOR in shown:
            ours, floor = shown[OURS]["mean"], shown[FLOOR]["mean"]
            more = "; {mean:+.3f} ({low:+.3f} to {high:+.3f})".format(**one["gain"]) \
                if "gain" in one else ""  # fmt: skip
            told = f"{name} ({ours:.3f}, floor {floor:.3f}{more})"
            (reached if ours >= goal(floor) else missed).append(told)
    answer = f"`{OURS}` reaches what was asked on "
    answer += "; ".join(reached) or "nothing"
    answer += f". It misses it on {'; '.join(missed)}." if missed else "."
    main, *_ = found
    return Section(
        "Does a model order programs for a device that it never saw?",
        answer,
        _table(main, found[main]),
        "\n\n".join([_READING, *(_details(name, one) for name, one in found.items())]),
        lambda axes: _draw(axes, found[main][f"top{FAMILIES[main].picks}"]),
        f"the best over what was chosen, {main}: each device, and their mean",
    )


_READING = f"""\
A score is the best time over that of what was chosen: mean over workloads, then over devices.
*Best elsewhere* is the floor: each program's mean over the other devices. *Differ by*: between the
best and the worst seed. Rankers learn from {PROGRAMS} programs of a group. `behaviour` looks at
what other devices took for a program, too; *no memory* does not. Controls are told another device's
data sheet when they are asked (*swapped*), a shuffled one in training, too (*shuffled*), or none
(*removed*). No formula and no column reads the name of a device, so there is no control that hides
it. *Operator unseen*: what is asked about was not learned from on any device. K80 and MI50 ran
other programs of their products and convolutions, so that only small operators are compared."""


def _table(name: str, found: Mapping[str, Any]) -> str:
    shown, fives = found[f"top{FAMILIES[name].picks}"], found["top5"]
    devices = [d for d in next(iter(shown.values())) if d not in ("mean", "spread")]
    rows = [
        (rival, *(f"{row[d]:.3f}" for d in devices), f"{row['mean']:.3f}",
         str(found["seeds"][rival]), f"{row['spread']:.3f}", f"{fives[rival]['mean']:.3f}")
        for rival, row in shown.items()
    ]  # fmt: skip
    return table((name, *devices, "mean", "seeds", "differ by", "top-5"), rows)


def _details(name: str, found: Mapping[str, Any]) -> str:
    family = FAMILIES[name]
    judge = f"the best of {family.picks}" if family.picks > 1 else "the first choice"
    shown = found[f"top{family.picks}"]
    asked = f" Asked: {goal(shown[FLOOR]['mean']):.3f}." if FLOOR in shown else ""
    parts = [f"#### {name}", f"Workloads: {found['workloads']}, judged by {judge}.{asked}"]
    parts.append(_table(name, found))
    kinds = list(next(iter(found["by operator"].values())))
    if len(kinds) > 1:
        rows = [
            (rival, *(f"{row[kind]:.3f}" for kind in kinds))
            for rival, row in found["by operator"].items()
        ]
        parts.append(table(("by operator", *kinds), rows))
    return "\n\n".join(parts)


def _draw(axes: Any, shown: Mapping[str, Mapping[str, float]]) -> None:
    names = list(shown)[::-1]
    for at, name in enumerate(names):
        each = [v for k, v in shown[name].items() if k not in ("mean", "spread")]
        axes.plot(each, [at] * len(each), ".", color="0.6")
        axes.plot(shown[name]["mean"], at, "o", color="C0")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("best / chosen")
    axes.grid(axis="x", alpha=0.3)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), default=[])
    parser.add_argument("--rival", action="append", choices=list(RIVALS), default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/unseen_devices"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("unseen_devices", range(options.seeds))
    found = {}
    for name in options.family or FAMILIES:
        family = FAMILIES[name]
        cells = compute(
            name, family, options.rival or list(RIVALS), options.seeds, options.work_dir
        )
        if cells:
            found[name] = readings(cells, family)
    data = {"schema": "foretune.unseen_devices/2", "programs": PROGRAMS, "families": found}
    publish("unseen_devices", section, data, where.end(), options.write)


if __name__ == "__main__":
    main()
