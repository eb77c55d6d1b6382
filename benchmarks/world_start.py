"""Does what the world model predicts depend on where a program starts, and is that worth anything.

Two tables on workloads held out: how much of the terminal states transitions explain, beside
controls (begun at another workload's state, without the initial state, untrained), and how trees
rank with their states. What transitions differ in is ``TRANSITIONS`` in ``benchmarks._world``.

Finished cells are kept in the work directory, so that the benchmark goes on where it was
interrupted. ``--hardware`` takes a part of a large data set; the page says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._rankers import ROOMS, metrics_from_json
from benchmarks._world import DECISIONS, PLAIN, STATES_ALONE, TRANSITIONS, TRUE, Fold
from benchmarks.cells import Cells, told
from benchmarks.models import FEATURES
from benchmarks.pages import Section, publish
from benchmarks.results import ROOT, conditions, figure, say, table
from benchmarks.sources import code_of
from benchmarks.world import compared, with_difference
from foretune.dataset import Group
from foretune.evaluate import (
    Bootstrap,
    GroupMetrics,
    cross_validation,
    keep_judgeable,
    read_data,
    thinned,
)
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.metrics import average
from foretune_research.world.config import WorldStudyConfig

Floats = npt.NDArray[np.float64]
Interval = dict[str, float]

PREDICTED, JUDGED = "predicted", "ranked"
METRICS = ("top1", "kendall_tau")
RANKED = (
    DECISIONS,
    TRUE,
    *TRANSITIONS,
    *(f"{name}; {STATES_ALONE}" for name in (PLAIN, "end", "end, actions only")),
)
"""Rows of the ranking: what trees read beside decisions, or alone."""
_FOLDS, _BATCH = 2, 512
_SPLIT_SEED = 0
"""Of the split, whatever seed learns: the same workloads are held out together."""
_NOTHING = 1e-12
_PARTS = ("all", "between", "within")


def chosen(groups: Sequence[Group], hardware: Sequence[str], programs: int) -> list[Group]:
    """A part of the data.

    Args:
        groups: Judgeable ones.
        hardware: Keys of machines; none: all.
        programs: Of a group at most.
    """
    kept = [group for group in groups if not hardware or group.hardware in hardware]
    return thinned(kept, programs, _SPLIT_SEED)


def fill(
    groups: Sequence[Group], config: WorldStudyConfig, options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """All cells, made where they are not there.

    Args:
        groups: Judgeable ones, thinned.
        config: Of the world.
        options: Of the command line.

    Returns:
        By the name of a table, a cell per seed, part of the split and row.
    """
    found: dict[str, list[dict[str, Any]]] = {PREDICTED: [], JUDGED: []}
    parts = cross_validation(groups, "workload", _FOLDS, seed=_SPLIT_SEED)
    for seed in options.seeds:
        settings = {
            "config": vars(config),
            "folds": _FOLDS,
            "programs": options.programs,
            "data": fingerprint(groups),
            "seed": seed,
            "code": code_of(
                "foretune.cost.world",
                "benchmarks._world",
                "foretune.evaluate.metrics",
                "foretune.evaluate.splits",
                # Found by name.
                "foretune_research.world.reader",
                within=ROOMS,
            ),
        }
        kept = Cells(options.work_dir, settings)
        for number, part in enumerate(parts):
            fold = Fold(
                part, config, seed=seed, threads=1, programs=options.programs,
                draw=number, cache=options.cache,
            )  # fmt: skip
            for kind, row, make in _wanted(fold, options.transitions):
                words = f"{part.name}, seed {seed}: {kind}, {row}"
                result = kept.get(f"{kind} {number} {row}", make, words)
                found[kind].append({"row": row, "seed": seed, "result": result})
    return found


def _wanted(fold: Fold, transitions: Sequence[str]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Kind, row and maker of every cell of a fold, in the order in which worlds are learned."""
    for row in transitions:
        yield PREDICTED, row, partial(fold.predicted, row)
        # Those at hand are ranked with before the next are learned.
        for ranked in RANKED:
            if ranked.partition("; ")[0] == row:
                yield JUDGED, ranked, partial(fold.ranked, ranked)
    for row in (DECISIONS, TRUE):
        yield JUDGED, row, partial(fold.ranked, row)


def sums_of(cells: Sequence[Mapping[str, Any]], start: str | None = None) -> dict[str, Floats]:
    """Key of a workload -> its sums, over seeds.

    Args:
        cells: Of one row.
        start: ``"own"`` or ``"swapped"``, for transitions.
    """
    found: dict[str, Floats] = {}
    for cell in cells:
        result = cell["result"] if start is None else cell["result"][start]
        for key, sums in result.items():
            found[key] = found.get(key, 0.0) + np.array(sums, dtype=np.float64)
    return found


def shares(
    sums: Mapping[str, Floats], other: Mapping[str, Floats] | None = None
) -> dict[str, Interval]:
    """Explained shares of the variance of terminal states, and how near predictions come.

    Args:
        sums: Of ``Ends.sums``, by workload.
        other: Of the same workloads and programs: differences to it are told, too.
    """
    keys = sorted(sums)
    rows = np.stack([sums[key] for key in keys])
    bootstrap = Bootstrap(keys)

    def ratio(above: Floats, below: Floats) -> Interval:
        return bootstrap.interval(lambda draws: (draws @ above) / (draws @ below + _NOTHING))

    found: dict[str, Interval] = {}
    for at, name in enumerate(_PARTS):
        off, there = rows[:, 1 + at], rows[:, 4 + at]
        found[name] = ratio(there - off, there)
        if other is not None:
            found[f"{name} - other"] = ratio(
                np.array([other[key][1 + at] for key in keys]) - off, there
            )
    found["distance"] = ratio(rows[:, 7], rows[:, 0])
    found["moved"] = ratio(rows[:, 8], rows[:, 9])
    return found


def judged_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, GroupMetrics]]:
    """Name of a row -> key of a group -> its metrics, means over seeds."""
    every: dict[str, dict[str, list[GroupMetrics]]] = {}
    for cell in cells:
        for name, results in cell["result"].items():
            for key, one in results.items():
                every.setdefault(name, {}).setdefault(key, []).append(metrics_from_json(one))
    found = {name: {k: average(own) for k, own in each.items()} for name, each in every.items()}
    order = [name for row in RANKED for name in (row, f"{row}, swapped")]
    return {name: found[name] for name in order if name in found}


def run(
    groups: Sequence[Group], config: WorldStudyConfig, options: argparse.Namespace
) -> dict[str, Any]:
    """Everything, as a JSON object; arguments as for ``fill``."""
    cells = fill(groups, config, options)

    def of(kind: str, row: str) -> list[dict[str, Any]]:
        return [cell for cell in cells[kind] if cell["row"] == row]

    plain = sums_of(of(PREDICTED, PLAIN), "own")
    predicted = []
    for row in options.transitions:
        own, swapped = (sums_of(of(PREDICTED, row), start) for start in ("own", "swapped"))
        found: dict[str, Any] = {"row": row, **shares(own, None if row == PLAIN else plain)}
        if swapped:
            same = {key: own[key] for key in swapped}
            found["partners"] = shares(same)
            found["swapped"] = shares(swapped, same)
        predicted.append(found)
    there = np.sum([plain[key][4:7] for key in plain], axis=0)
    paths = sum(float(sums[0]) for sums in plain.values()) / len(options.seeds)
    return {
        "schema": "foretune.world_start/2",
        "data": options.data.name,
        "config": vars(config),
        "folds": _FOLDS,
        "programs_per_group": options.programs,
        "machines": sorted({group.hardware for group in groups}),
        "groups": len(groups),
        "workloads": len({group.workload for group in groups}),
        "programs": sum(map(len, groups)),
        "paths": round(paths),
        "partners": len(sums_of(of(PREDICTED, PLAIN), "swapped")),
        "between": float(there[1] / there[0]),
        "predicted": predicted,
        "ranked": compared(groups, judged_of(cells[JUDGED]), DECISIONS, METRICS),
        "readings": {
            row: {
                key: " ".join(f"{each:.4g}" for each in sums)
                for key, sums in sums_of(of(PREDICTED, row), "own").items()
            }
            for row in options.transitions
        },
    }


# The page


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    rows = {row["row"]: row for row in data["predicted"]}
    best = max(rows.values(), key=lambda row: row["all"]["mean"])
    answer = (
        f"Transitions `{best['row']}` explain {figure(best['all'])} of the variance of terminal "
        "states"
    )
    if "swapped" in best:
        answer += (
            "; where paths begin at another workload's state, that changes by "
            f"{figure(best['swapped']['all - other'], '+')}"
        )
    by_row = {row["variant"]: row for row in data["ranked"]}
    ranked = by_row.get(best["row"])
    if ranked:
        answer += (
            f". Trees that read its states beside decisions have a tau of "
            f"{with_difference(ranked, 'kendall_tau')} beside decisions alone"
        )
    lines = [
        [
            name,
            figure(row["all"]),
            *(
                (figure(row["partners"]["all"]), figure(row["swapped"]["all"]),
                 figure(row["partners"]["moved"]))
                if "swapped" in row
                else ("", "", "")
            ),
            figure(row["distance"]),
        ]
        for name, row in rows.items()
    ]  # fmt: skip
    header = [
        "transitions",
        "explained",
        "from the own start",
        "from another's",
        "moved",
        "distance",
    ]
    return Section(
        "Does a prediction depend on where a program starts, and is that worth anything?",
        f"{answer}.",
        table(header, lines),
        "\n\n".join(
            [_reading(data), _parted(data["predicted"])]
            + [_trees(data["ranked"])] * bool(data["ranked"])
        ),
    )


def _reading(data: Mapping[str, Any]) -> str:
    config, options = data["config"], data["config"]["transition_options"] or {}
    told_of = ", ".join(f"{name} {value}" for name, value in options.items())
    return (
        f"Data `{data.get('data', 'cpu')}`: {data['groups']} groups of {data['workloads']} "
        f"workloads on {len(data['machines'])} machine(s), {data['programs']:,} programs, at most "
        f"{data['programs_per_group']} of a group. Cross-validation by workload in "
        f"{data['folds']} folds; transitions learn from about {config['trajectories']:,} programs "
        f"in each ({told_of}) and are asked about {data['paths']:,}. Intervals: bootstrap over "
        "workloads, 95 %.\n\nExplained: 1 - squared distances of predictions to the programs' "
        "own terminal states / those of the mean terminal state of training. Between: of the "
        f"means of workloads, which are {100 * data['between']:.0f} % of it; within: of the "
        "differences to them. Distance: 1 - cosine. Another's start is that of a workload with "
        f"the same steps, which {data['partners']} workloads have; moved: squared distance "
        "between both predictions / that of predictions to their mean over all workloads. "
        "`plain`: as without options; `change`, `end`: `joins`; `relative`: factors of tiles as "
        "shares of the extents; `actions only`: a learned vector in place of the initial state; "
        "`60 passes`: trained that long."
    )


def _parted(rows: Sequence[Mapping[str, Any]]) -> str:
    def cell(row: Mapping[str, Any], name: str) -> str:
        other = row.get(f"{name} - other")
        return figure(row[name]) + ("" if other is None else f"; {figure(other, '+')}")

    lines = [[row["row"], *(cell(row, name) for name in _PARTS)] for row in rows]
    return table(["transitions", "explained; beside `plain`", *_PARTS[1:]], lines)


def _trees(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        [row["variant"], str(row["groups"]), *(with_difference(row, name) for name in METRICS)]
        for row in rows
    ]
    return (
        f"Behind each figure the paired difference to {DECISIONS}. Swapped: begun at another's "
        f"start, trees as before. {STATES_ALONE}: trees see no actions.\n\n"
        + table(["ranked by", "groups", "top-1", "tau"], lines)
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--hardware", default="", help="keys of machines; none: all")
    parser.add_argument("--seeds", default="0,1,2", help="of what is learned")
    parser.add_argument("--programs", type=int, default=32, help="of a group, at most")
    parser.add_argument("--trajectories", type=int, default=3000, help="programs learned from")
    parser.add_argument("--members", type=int, default=2, help="networks of transitions")
    parser.add_argument("--epochs", type=int, default=30, help="of transitions")
    parser.add_argument("--transitions", default=";".join(TRANSITIONS), help="which to learn")
    parser.add_argument("--cache", type=Path, default=FEATURES, help="folder of programs' features")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/world_start"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    options.transitions = options.transitions.split(";")
    if PLAIN not in options.transitions or not set(options.transitions) <= set(TRANSITIONS):
        parser.error(f"transitions are {'; '.join(TRANSITIONS)}; {PLAIN} has to be among them")
    if options.members < 2:
        parser.error(
            "--members must be at least 2: trees learn from states that were predicted by one that "
            "has not seen the workload"
        )
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    where = conditions("world_start", options.seeds)
    say("reading the data")
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    hardware = [key for key in options.hardware.split(",") if key]
    groups = chosen(groups, hardware, options.programs)
    if not groups:
        parser.error(f"--hardware: no group of {options.data} is of {', '.join(hardware)}")
    given = {
        "members": options.members,
        "terminal_epochs": options.epochs,
        "batch": _BATCH,
    }
    config = WorldStudyConfig(trajectories=options.trajectories, transition_options=given)
    with told():
        result = run(groups, config, options)
    publish("world_start", section, result, where.end(), options.write)


if __name__ == "__main__":
    main()
