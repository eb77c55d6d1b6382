"""Does a model order programs for a device that it never saw, better than the other devices do?

Each device of a family is left out in turn. Rivals learn from the others, and all are judged on the
programs that every device of the family ran: the best time there is over that of the first choice
(or of the best of five, or ten), mean over workloads, then over devices. The floor costs nothing:
the geometric mean of a program's seconds on the other devices. Where there is one device only,
workloads are left out, a fourth at a time.

What was judged is kept in the work directory, a file per family, rival, device and seed; so the
benchmark goes on where it was interrupted. Code that changed does not empty it: that is for whoever
changed it.
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._devices.families import FAMILIES, Family, common
from benchmarks._devices.momentum import adapted_picks
from benchmarks._devices.rivals import (
    PROGRAMS,
    Case,
    Rival,
    best_elsewhere,
    formulas,
    nearest_device,
    operator_unseen,
    parameter_trees,
    ranked,
    trained,
)
from benchmarks.results import conditions, publish, read_json, say, table
from foretune._files import write_json
from foretune.cost.tlp import TlpRanker
from foretune.dataset import Group
from foretune.evaluate import cross_validation

Floats = npt.NDArray[np.float64]

FLOOR = "best elsewhere"
OURS = "behaviour"
_MOMENTUM = "tlp, 16 measured"
_LUCK = "17 at random"
_FORMULAS = "formulas alone"
_OPERATOR = "no memory, operator unseen"
_BOTH = "behaviour, both stages"
_ROUNDS, _EACH = 4, 4
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
    _BOTH: ranked("behaviour", whole=True, memory=True, first_options={"epochs": 6}),
    "factors swapped": ranked("behaviour", whole=True, view="swapped", stage=2, memory=True),
    "no memory, swapped": ranked("behaviour", whole=True, view="swapped", stage=2),
    "no memory, shuffled": ranked("behaviour:variants", whole=True, stage=2, factors="shuffled"),
    "no memory, removed": ranked("behaviour:variants", whole=True, stage=2, factors=False),
    _OPERATOR: operator_unseen(ranked("behaviour", whole=True, stage=2)),
}
"""By name; those that are not applicable to a family are left out of its table."""
_NO_SEED = (FLOOR, "nearest device", _FORMULAS)
_OF_DECISIONS = ("trees on decisions", "tlp", "tlp, a head per device", _MOMENTUM)
_ONE_DEVICE = ("trees on decisions", "tlp", _FORMULAS, "behaviour, no memory", _MOMENTUM, _LUCK)
_ALL = (*RIVALS, _MOMENTUM, _LUCK)
_SCHEMA = "foretune.unseen_devices/1"
_TITLE = "Devices that nobody learned from"


def rivals_of(family: Family, groups: Sequence[Group]) -> list[str]:
    """Names of the rivals that can be asked about the programs of a family."""
    configured = groups[0].programs[0].configuration is not None
    names = []
    for name in _ALL:
        if configured and name in _OF_DECISIONS:
            continue
        if name == "trees on parameters" and not configured:
            continue
        if family.by_workload and name not in _ONE_DEVICE:
            continue
        if name in (_MOMENTUM, _LUCK) and family.least <= _ROUNDS * _EACH:
            continue
        if name == _OPERATOR and len({group.kind for group in groups}) == 1:
            continue
        names.append(name)
    # A solver's name tells nothing of what it does: no behaviour is claimed.
    solvers = any("miopen" in file for file in family.files)
    return [
        n
        for n in names
        if not (solvers and n.startswith(("behaviour", "factors", "no memory", _FORMULAS)))
    ]


def cases(groups: list[Group], family: Family, seed: int) -> Iterator[Case]:
    """Each device left out in turn, or each fourth of the workloads of one device."""
    if family.by_workload:
        for part in cross_validation(groups, "workload", folds=4, seed=0):
            train = (*part.train, *part.validation)
            test = tuple(g.subset(np.flatnonzero(g.valid)) for g in part.test)
            yield Case(part.name, train, train, test, {}, seed)
        return
    rows = common(groups, family)
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


def judged(scores: Mapping[str, Floats], case: Case, picks: int) -> list[dict[str, Any]]:
    """Of each tested group, the best over the best of the first picks."""
    found = []
    for group in case.test:
        rng = np.random.default_rng([case.seed, zlib.crc32(group.key.encode())])
        shuffled = rng.permutation(len(group))
        keys = np.nan_to_num(scores[group.key], nan=-np.inf)[shuffled]
        order = shuffled[np.argsort(-keys, kind="stable")]
        found.append(_entry(group, order.tolist(), picks))
    return found


def _entry(group: Group, order: Sequence[int], picks: int) -> dict[str, Any]:
    best = float(group.seconds.min())
    return {
        "workload": group.workload,
        "kind": group.kind,
        **{
            f"top{k}": best / float(group.seconds[list(order[:k])].min())
            for k in sorted({1, 5, picks})
        },
    }


def few_measured(case: Case, picks: int, rival: str) -> list[dict[str, Any]]:
    """After 16 measurements of each workload on the new device, the best of them and one more."""
    count = _ROUNDS * _EACH
    if rival == _LUCK:
        rng = np.random.default_rng(case.seed)
        orders = {g.key: rng.permutation(len(g)).tolist() for g in case.test}
    else:
        ranker = trained("tlp", False, case, (("epochs", 15),))
        assert isinstance(ranker, TlpRanker)
        orders = adapted_picks(ranker, case.test, _ROUNDS, _EACH, case.seed)
    found = []
    for group in case.test:
        measured = orders[group.key][: count + 1]
        first = min(measured, key=lambda i: group.seconds[i])
        rest = [i for i in orders[group.key][count + 1 :]]
        found.append(_entry(group, [first, *rest], picks))
    return found


def compute(
    family: Family, names: Sequence[str], seeds: int, work: Path, finished: bool = False
) -> dict[str, Any]:
    """All cells of a family: rival -> device -> seed -> groups; those that are there are read.

    Args:
        family: Whose devices are left out in turn.
        names: Of rivals.
        seeds: 0, 1... so many.
        work: Where cells are.
        finished: Whether seeds of which a device is missing are left out instead of computed.
    """
    groups = family.groups()
    wanted = [n for n in rivals_of(family, groups) if n in names]
    found: dict[str, Any] = {name: {} for name in wanted}
    for seed in range(seeds):
        for case in cases(groups, family, seed):
            for name in wanted:
                if seed and name in _NO_SEED:
                    continue
                if finished and not _file(family, name, case, work).exists():
                    continue
                cell = _cell(family, name, case, work)
                found[name].setdefault(case.device, {})[str(seed)] = cell
    return _whole(found, sum(1 for _ in cases(groups, family, 0)))


def _whole(found: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """Cells of the seeds of which every device is there."""
    kept = {}
    for name, by_device in found.items():
        seeds = set.intersection(*(set(cells) for cells in by_device.values())) if by_device else ()
        if seeds and len(by_device) == devices:
            kept[name] = {
                device: {seed: cells[seed] for seed in sorted(seeds)}
                for device, cells in by_device.items()
            }
    return kept


def _file(family: Family, name: str, case: Case, work: Path) -> Path:
    words = "-".join((family.name, name, case.device, str(case.seed)))
    return work / (words.replace(", ", "_").replace(" ", "_").replace("/", "_") + ".json")


def _cell(family: Family, name: str, case: Case, work: Path) -> list[dict[str, Any]]:
    file = _file(family, name, case, work)
    if not file.exists():
        if name in (_MOMENTUM, _LUCK):
            result = few_measured(case, family.picks, name)
        else:
            result = judged(RIVALS[name](case), case, family.picks)
        work.mkdir(parents=True, exist_ok=True)
        write_json(file, result)
        say(f"{family.name}: {name}, {case.device}, seed {case.seed}: {_mean(result, 'top1'):.3f}")
    return list(read_json(file))


def _mean(entries: Sequence[Mapping[str, Any]], metric: str) -> float:
    return float(np.mean([entry[metric] for entry in entries]))


def figures(cells: Mapping[str, Any], metric: str) -> dict[str, dict[str, float]]:
    """Rival -> device -> mean over seeds and workloads; ``"mean"`` of devices, and its spread."""
    found: dict[str, dict[str, float]] = {}
    for name, by_device in cells.items():
        rows = {
            device: [_mean(entries, metric) for entries in seeds.values()]
            for device, seeds in by_device.items()
        }
        whole = np.mean(list(rows.values()), axis=0)
        found[name] = {
            **{device: float(np.mean(values)) for device, values in rows.items()},
            "mean": float(np.mean(whole)),
            "spread": float(np.ptp(whole)),
        }
    return found


def by_operator(cells: Mapping[str, Any], metric: str) -> dict[str, dict[str, float]]:
    """Rival -> operator kind -> mean over workloads, seeds and devices."""
    found: dict[str, dict[str, float]] = {}
    for name, by_device in cells.items():
        each: dict[str, list[float]] = {}
        for seeds in by_device.values():
            for entry in (entry for entries in seeds.values() for entry in entries):
                each.setdefault(entry["kind"], []).append(entry[metric])
        found[name] = {kind: float(np.mean(values)) for kind, values in sorted(each.items())}
    return found


def goal(floor: float) -> float:
    """What is asked of the mean of a family: a third of what the floor leaves, if that is much."""
    return floor + (1.0 - floor) / 3.0 if 1.0 - floor > 0.1 else floor - 0.02


def body_of(family: Family, cells: Mapping[str, Any]) -> str:
    """A section of the page."""
    metric = f"top{family.picks}"
    lines = [f"## {family.name}", ""]
    shown = figures(cells, metric)
    devices = [d for d in next(iter(shown.values())) if d not in ("mean", "spread")]
    header = ("rival", *devices, "mean", "seeds", "differ by", "top-5")
    fives = figures(cells, "top5")
    seeds = {name: len(next(iter(by_device.values()))) for name, by_device in cells.items()}
    rows = [
        (name, *(f"{row[d]:.3f}" for d in devices), f"{row['mean']:.3f}", str(seeds[name]),
         f"{row['spread']:.3f}", f"{fives[name]['mean']:.3f}")
        for name, row in shown.items()
    ]  # fmt: skip
    first = next(iter(cells.values()))
    each = [len(next(iter(seeds.values()))) for seeds in first.values()]
    workloads = sum(each) if family.by_workload else each[0]
    count = f"{workloads} workload" + ("s" if workloads != 1 else "")
    judge = f"the best of {family.picks}" if family.picks > 1 else "the first choice"
    asked = f" Asked: {goal(shown[FLOOR]['mean']):.3f}." if FLOOR in shown else ""
    lines.append(f"{count}, judged by {judge}.{asked}")
    lines += ["", table(header, rows), ""]
    split = by_operator(cells, metric)
    kinds = list(next(iter(split.values())))
    if len(kinds) > 1:
        every = [next(iter(seeds.values())) for seeds in first.values()]
        counted = every if family.by_workload else every[:1]
        counts = Counter(entry["kind"] for entries in counted for entry in entries)
        shares = [(name, *(f"{row[kind]:.3f}" for kind in kinds)) for name, row in split.items()]
        lines += [
            "By operator:",
            "",
            table(("rival", *(f"{kind} ({counts[kind]})" for kind in kinds)), shares),
            "",
        ]
    return "\n".join(lines)


def introduction(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The answer in one sentence, and how the tables are read."""
    reached: list[str] = []
    missed: list[str] = []
    for name, cells in found.items():
        shown = figures(cells, f"top{FAMILIES[name].picks}")
        if OURS in shown and FLOOR in shown:
            ours, floor = shown[OURS]["mean"], shown[FLOOR]["mean"]
            told = f"{name} ({ours:.3f}, floor {floor:.3f})"
            (reached if ours >= goal(floor) else missed).append(told)
    answer = f"`behaviour` reaches what was asked on {'; '.join(reached) or 'nothing'}"
    answer += f". It misses it on {'; '.join(missed)}." if missed else "."
    return f"{answer}\n\n{_READING}"


_READING = """\
A score is the best time over that of what was chosen: mean over workloads, then over devices.
*Best elsewhere* is the floor: each program's mean over the other devices. *Differ by*: between the
best and the worst seed. `behaviour` looks at what other devices took for a program, too; *no
memory* does not. Controls are told another device's data sheet when they are asked (*swapped*), a
shuffled one in training, too (*shuffled*), or none (*removed*). No formula and no column reads the
name of a device, so there is no control that hides it. *Operator unseen*: what is asked about was
not learned from on any device. K80 and MI50 ran other programs of their products and convolutions,
so that only small operators are compared there."""


def main(arguments: Sequence[str] = ()) -> None:
    """Computes what is missing and prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen_devices")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), default=[])
    parser.add_argument("--rival", action="append", choices=list(_ALL), default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/unseen_devices"))
    parser.add_argument(
        "--finished", action="store_true", help="shows what is there, computes nothing"
    )
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(list(arguments) or None)
    where = conditions("unseen_devices", range(args.seeds))
    found = {
        name: compute(FAMILIES[name], args.rival or _ALL, args.seeds, args.work_dir, args.finished)
        for name in args.family or FAMILIES
    }
    sections = [body_of(FAMILIES[name], cells) for name, cells in found.items() if cells]
    sections.insert(0, introduction(found) + "\n")
    data = {
        "schema": _SCHEMA,
        "programs": PROGRAMS,
        "families": {
            name: {
                **{f"top{k}": figures(cells, f"top{k}") for k in {1, 5, FAMILIES[name].picks}},
                "by operator": by_operator(cells, f"top{FAMILIES[name].picks}"),
            }
            for name, cells in found.items()
        },
    }
    publish("unseen_devices", _TITLE, "\n".join(sections), data, where.end(), args.write)


if __name__ == "__main__":
    main()
