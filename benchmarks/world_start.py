"""Does what the world model predicts depend on where a program starts, and is that worth anything.

Three tables on workloads held out: how much of the terminal states networks explain that read the
start, the actions, or both at once; the same of transitions, beside controls (begun at another
workload's state, without the initial state, untrained); and how trees rank with their states. What
transitions differ in is ``TRANSITIONS`` in ``benchmarks._world.start``.

Finished cells are kept in the work directory, so that the benchmark goes on where it was
interrupted. ``--hardware`` and ``--workloads`` take a part of a large data set; the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._model.cells import metrics_from_json
from benchmarks._world.folds import Cells, Learning, learning_of, learning_options, told
from benchmarks._world.page import value
from benchmarks._world.start import (
    DECISIONS,
    INPUTS,
    PLAIN,
    STATES_ALONE,
    TRANSITIONS,
    TRUE,
    StartFold,
)
from benchmarks.results import ROOT, conditions, figure, publish, say, table
from benchmarks.sources import code_of
from foretune.cost.world.readers import FeatureReader
from foretune.dataset import Group
from foretune.evaluate import (
    Bootstrap,
    GroupMetrics,
    Split,
    cross_validation,
    keep_judgeable,
    read_data,
    thinned,
)
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.metrics import average

Floats = npt.NDArray[np.float64]
Interval = dict[str, float]

EXPLAINED, PREDICTED, JUDGED = TABLES = ("explained", "predicted", "ranked")
METRICS = ("top1", "kendall_tau")
RANKED = (
    DECISIONS,
    TRUE,
    *TRANSITIONS,
    *(f"{name}; {STATES_ALONE}" for name in (PLAIN, "end", "end, actions only")),
)
"""Rows of the ranking: what trees read beside decisions, or alone."""
_TITLE = "A world model that begins somewhere"
_SCHEMA = "foretune.world_start/1"
_SPLIT_SEED = 0
"""Of the split, whatever seed learns: the same workloads are held out together."""
_NOTHING = 1e-12
_PARTS = ("all", "between", "within")


def chosen(
    groups: Sequence[Group], hardware: Sequence[str], workloads: int, programs: int
) -> list[Group]:
    """A part of the data.

    Args:
        groups: Judgeable ones.
        hardware: Keys of machines; none: all.
        workloads: That are drawn; 0: all.
        programs: Of a group at most.
    """
    kept = [group for group in groups if not hardware or group.hardware in hardware]
    keys = sorted({group.workload for group in kept})
    if workloads and workloads < len(keys):
        drawn = np.random.default_rng(_SPLIT_SEED).permutation(len(keys))[:workloads]
        wanted = {keys[at] for at in drawn.tolist()}
        kept = [group for group in kept if group.workload in wanted]
    return thinned(kept, programs, _SPLIT_SEED)


def fill(
    groups: Sequence[Group],
    learning: Learning,
    seeds: Sequence[int],
    tables: Sequence[str] = TABLES,
    transitions: Sequence[str] = tuple(TRANSITIONS),
) -> dict[str, list[dict[str, Any]]]:
    """All cells, made where they are not there.

    Args:
        groups: Judgeable ones, thinned.
        learning: What folds learn.
        seeds: Of what is learned.
        tables: Names in ``TABLES``.
        transitions: Names in ``TRANSITIONS``, ``PLAIN`` among them.

    Returns:
        By the name of a table, a cell per seed, part of the split and row.
    """
    found: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    settings = {
        "config": asdict(learning.config),
        "folds": learning.folds,
        "programs": learning.programs,
        "data": fingerprint(groups),
        "code": start_code(),
    }
    parts = cross_validation(groups, "workload", learning.folds, seed=_SPLIT_SEED)
    for seed in seeds:
        cells = Cells(learning.folder, {**settings, "seed": seed})
        for number, part in enumerate(parts):
            say_why = f"{part.name}, seed {seed}"
            fold = _fold(learning, part, number, seed)
            for kind, row, make in _wanted(fold, transitions):
                if kind not in tables or (kind == EXPLAINED and seed != seeds[0]):
                    continue
                result = cells.get(f"{kind} {number} {row}", make, f"{say_why}: {kind}, {row}")
                found[kind].append({"row": row, "seed": seed, "result": result})
    return found


def _wanted(
    fold: StartFold, transitions: Sequence[str]
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Kind, row and maker of every cell of a fold, in the order in which worlds are learned."""
    for row in INPUTS:
        yield EXPLAINED, row, partial(fold.explained, row)
    for row in transitions:
        yield PREDICTED, row, partial(fold.predicted, row)
        # Those at hand are ranked with before the next are learned.
        for ranked in RANKED:
            if ranked.partition("; ")[0] == row:
                yield JUDGED, ranked, partial(fold.ranked, ranked)
    for row in (DECISIONS, TRUE):
        yield JUDGED, row, partial(fold.ranked, row)


def start_code() -> str:
    """A hash of the code that cells depend on."""
    return code_of(
        "foretune.cost.world",
        "benchmarks._world.start",
        "benchmarks._world.cells",
        "benchmarks._world.direct",
        "benchmarks._world.learned",
        "foretune.evaluate.metrics",
        "foretune.evaluate.splits",
        # Found by name.
        "foretune_research.world.reader",
        within=("cost", "features", "dataset", "evaluate", "space", "hardware", "world"),
    )


def _fold(learning: Learning, part: Split, number: int, seed: int) -> StartFold:
    return StartFold(
        part,
        learning.folder / "learned",
        learning.config,
        seed=seed,
        threads=learning.threads,
        programs=learning.programs,
        draw=number,
        cache=learning.cache,
    )


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
    found: dict[str, Interval] = {}
    for at, name in enumerate(_PARTS):
        off, there = rows[:, 1 + at], rows[:, 4 + at]
        found[name] = bootstrap.interval(
            lambda draws, off=off, there=there: 1.0 - (draws @ off) / (draws @ there + _NOTHING)
        )
        if other is not None:
            gained = np.array([other[key][1 + at] for key in keys]) - off
            found[f"{name} - other"] = bootstrap.interval(
                lambda draws, gained=gained, there=there: (
                    (draws @ gained) / (draws @ there + _NOTHING)
                )
            )
    for name, above, below in (("distance", 7, 0), ("moved", 8, 9)):
        found[name] = bootstrap.interval(
            lambda draws, above=above, below=below: (
                (draws @ rows[:, above]) / (draws @ rows[:, below] + _NOTHING)
            )
        )
    return found


def judged_of(
    cells: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, GroupMetrics]]:
    """Name of a row -> key of a group -> its metrics, means over seeds."""
    every: dict[str, dict[str, list[GroupMetrics]]] = {}
    for cell in cells:
        for name, results in cell["result"].items():
            for key, one in results.items():
                every.setdefault(name, {}).setdefault(key, []).append(metrics_from_json(one))
    return {
        name: {key: average(own) for key, own in groups.items()} for name, groups in every.items()
    }


def ranking(groups: Sequence[Group], cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Figures of every row, with differences to ``DECISIONS`` on the same groups."""
    judged = judged_of(cells)
    order = [name for row in RANKED for name in (row, f"{row}, swapped") if name in judged]
    rows = []
    for name in order:
        tested = [group for group in groups if group.key in judged[name]]
        if not tested:
            continue
        bootstrap = Bootstrap([group.workload for group in tested])
        row: dict[str, Any] = {"row": name, "groups": len(tested)}
        for metric in METRICS:
            own, theirs = (
                np.array([value(judged[which][group.key], metric) for group in tested])
                for which in (name, DECISIONS)
            )
            row[metric] = bootstrap.mean(own)
            row[f"{metric} - decisions"] = bootstrap.mean(own - theirs)
        rows.append(row)
    return rows


def run(
    groups: Sequence[Group],
    learning: Learning,
    seeds: Sequence[int],
    tables: Sequence[str] = TABLES,
    transitions: Sequence[str] = tuple(TRANSITIONS),
) -> dict[str, Any]:
    """Everything, as a JSON object; arguments as for ``fill``."""
    cells = fill(groups, learning, seeds, tables, transitions)

    def of(kind: str, row: str) -> list[dict[str, Any]]:
        return [cell for cell in cells[kind] if cell["row"] == row]

    plain = sums_of(of(PREDICTED, PLAIN), "own")
    predicted = []
    for row in transitions:
        own, swapped = (sums_of(of(PREDICTED, row), start) for start in ("own", "swapped"))
        found: dict[str, Any] = {"row": row, **shares(own, None if row == PLAIN else plain)}
        if swapped:
            same = {key: own[key] for key in swapped}
            found["partners"] = shares(same)
            found["swapped"] = shares(swapped, same)
        predicted.append(found)
    there = np.sum([plain[key][4:7] for key in plain], axis=0)
    return {
        "schema": _SCHEMA,
        "config": asdict(learning.config),
        "folds": learning.folds,
        "seeds": list(seeds),
        "programs_per_group": learning.programs,
        "machines": sorted({group.hardware for group in groups}),
        "groups": len(groups),
        "workloads": len({group.workload for group in groups}),
        "programs": sum(map(len, groups)),
        "paths": round(sum(float(sums[0]) for sums in plain.values()) / len(seeds)),
        "partners": len(sums_of(of(PREDICTED, PLAIN), "swapped")),
        "between": float(there[1] / there[0]),
        "explained": [
            {"row": row, **shares(sums_of(of(EXPLAINED, row)))}
            for row in INPUTS
            if EXPLAINED in tables
        ],
        "predicted": predicted,
        "ranked": ranking(groups, cells[JUDGED]),
        "readings": {
            row: {
                key: " ".join(f"{each:.4g}" for each in sums)
                for key, sums in sums_of(of(PREDICTED, row), "own").items()
            }
            for row in transitions
        },
    }


def body_of(result: Mapping[str, Any], data: str) -> str:
    """Markdown of a ``foretune.world_start/1`` object.

    Args:
        result: The object.
        data: What it stands on, in words.
    """
    config = result["config"]
    options = config["transition_options"] or {}
    return "\n\n".join(
        [
            f"Data: {data}, {result['groups']} groups of {result['workloads']} workloads on "
            f"{len(result['machines'])} machine(s), {result['programs']:,} programs, at most "
            f"{result['programs_per_group']} of a group. Cross-validation by workload in "
            f"{result['folds']} folds; transitions learn from about {config['trajectories']:,} "
            f"programs in each ({_told(options)}) and are asked about {result['paths']:,}; seeds "
            f"{', '.join(map(str, result['seeds']))}. Intervals: bootstrap over workloads, 95 %.",
            "Explained: 1 - squared distances of predictions to the programs' own terminal states "
            "/ those of the mean terminal state of training. Between: of the means of workloads, "
            f"which are {100 * result['between']:.0f} % of it; within: of the differences to them.",
            *_networks(result["explained"]),
            "## Transitions",
            f"{PLAIN}: as without options. change, end: `joins`. relative: factors of tiles as "
            "shares of the extents. actions only: a learned vector in place of the initial state. "
            "60 passes: trained that long. "
            "Behind what is explained stands the paired difference to "
            f"{PLAIN}. Distance: 1 - cosine.",
            _predicted(result["predicted"]),
            "The same where paths begin at the state of another workload with the same steps, for "
            f"the {result['partners']} workloads that have such another, with the difference that "
            "makes. Moved: squared distance between both predictions / that of predictions to "
            "their mean over all workloads.",
            _swapped(result["predicted"]),
            *_trees(result["ranked"]),
        ]
    )


def _told(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "default options"


def _networks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    return [
        "## What tells the terminal state",
        "A network reads this at once, with nothing else between: the initial state, actions "
        "(their words and numbers as transitions read them, without order), actions whose "
        "factors are shares of the extents, or the action features of trees, which look at the "
        "untransformed program, too (footprints, operations, extents), with and without those "
        "columns. First seed.",
        table(
            ["read", "explained", "between", "within"],
            [[row["row"], *(figure(row[name]) for name in _PARTS)] for row in rows],
        ),
    ]


def _predicted(rows: Sequence[Mapping[str, Any]]) -> str:
    def cell(row: Mapping[str, Any], name: str) -> str:
        other = row.get(f"{name} - other")
        return figure(row[name]) + ("" if other is None else f"; {figure(other, '+')}")

    return table(
        ["transitions", "explained", "between", "within", "distance"],
        [
            [row["row"], *(cell(row, name) for name in _PARTS), figure(row["distance"])]
            for row in rows
        ],
    )


def _swapped(rows: Sequence[Mapping[str, Any]]) -> str:
    there = [row for row in rows if "swapped" in row]
    return table(
        ["transitions", "own start", "swapped", "difference", "between, swapped", "moved"],
        [
            [
                row["row"],
                figure(row["partners"]["all"]),
                figure(row["swapped"]["all"]),
                figure(row["swapped"]["all - other"], "+"),
                figure(row["swapped"]["between"]),
                figure(row["partners"]["moved"]),
            ]
            for row in there
        ],
    )


def _trees(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    def cell(row: Mapping[str, Any], metric: str) -> str:
        if row["row"] == DECISIONS:
            return figure(row[metric])
        return f"{figure(row[metric])}; {figure(row[f'{metric} - decisions'], '+')}"

    if not rows:
        return []
    return [
        "## Ranking",
        f"Behind each figure stands the paired difference to {DECISIONS}. Swapped: as above, "
        f"trees as before. {STATES_ALONE}: trees see no actions.",
        table(
            ["states", "groups", "top-1", "tau"],
            [
                [row["row"], str(row["groups"]), *(cell(row, metric) for metric in METRICS)]
                for row in rows
            ],
        ),
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = learning_options(__doc__)
    parser.set_defaults(folds=2, trajectories=3000, work_dir=Path("foretune-work/world_start"))
    parser.add_argument("--seeds", default="0,1,2", help="of what is learned; --seed is not read")
    parser.add_argument("--hardware", default="", help="keys of machines; none: all")
    parser.add_argument("--workloads", type=int, default=0, help="that are drawn; 0: all")
    parser.add_argument("--members", type=int, default=2, help="networks of transitions")
    parser.add_argument("--epochs", type=int, default=30, help="of transitions")
    parser.add_argument("--batch", type=int, default=512, help="actions of a training step")
    parser.add_argument("--tables", default=",".join(TABLES), help="which to make")
    parser.add_argument("--transitions", default=";".join(TRANSITIONS), help="which to learn")
    parser.add_argument("--page", default="world_start", help="name of what --write writes")
    options = parser.parse_args(arguments)
    if options.target != FeatureReader.target:
        parser.error(f"--target must be {FeatureReader.target}: of texts there is no start to ask")
    tables = options.tables.split(",")
    if PREDICTED not in tables or not set(tables) <= set(TABLES):
        parser.error(f"tables are {', '.join(TABLES)}; {PREDICTED} has to be among them")
    rows = options.transitions.split(";")
    if PLAIN not in rows or not set(rows) <= set(TRANSITIONS):
        parser.error(f"transitions are {'; '.join(TRANSITIONS)}; {PLAIN} has to be among them")
    if options.members < 2 and JUDGED in tables:
        parser.error(
            f"--members must be at least 2 where --tables has {JUDGED}: trees learn from states "
            "that were predicted by one that has not seen the workload"
        )
    seeds = [int(seed) for seed in options.seeds.split(",")]
    where = conditions("world_start", seeds)
    say("reading the data")
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    hardware = [key for key in options.hardware.split(",") if key]
    groups = chosen(groups, hardware, options.workloads, options.programs)
    if not groups:
        parser.error(f"--hardware: no group of {options.data} is of {', '.join(hardware)}")
    learning = learning_of(options)
    given = {
        "members": options.members,
        "terminal_epochs": options.epochs,
        "batch": options.batch,
    }
    config = replace(learning.config, transition_options=given, crossfit=options.members > 1)
    learning = replace(learning, config=config)
    with told():
        result = run(groups, learning, seeds, tables, rows)
    inside = options.data.resolve().is_relative_to(ROOT)
    data = options.data.resolve().relative_to(ROOT) if inside else options.data
    publish(options.page, _TITLE, body_of(result, f"`{data}`"), result, where.end(), options.write)


if __name__ == "__main__":
    main()
