"""The result of ``benchmarks.world`` in tables, and in words.

A path is a row of ``Fold.terminals``: a test program, its true terminal state, and how near
predictions of it come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._world.cells import FULL, INITIAL, NONE, PREDICTIONS
from benchmarks.results import figure, table
from foretune.dataset import Group
from foretune.evaluate import PICKS, Bootstrap, GroupMetrics

Floats = npt.NDArray[np.float64]
Judged = Mapping[str, Mapping[str, GroupMetrics]]
"""Name of a row -> key of a group -> its metrics; not every row has all groups."""

METRICS = ("top1", "top5", "kendall_tau", "ndcg16")
_BINS = 5
"""Rows of the tables by the length of the path, with about as many paths each."""
_FLOORS = ("initial", "mean")
_PARTNERS = "partners"
"""What the model does on the paths that can be swapped."""
_LABELS = {
    "actions_only": "actions only",
    "direct": "in one step",
    "direct_actions": "in one step, actions only",
    "trained": "predicted",
    _PARTNERS: "predicted, of those that can be swapped",
}
_NOTHING = 1e-12
_EQUAL = 1e-6
"""Published cells are rounded to seven digits."""
_PATH_COLUMNS = (
    "steps", "distinct", "initial", "mean", "spread", "apart",
    *PREDICTIONS, *(f"{name} missed" for name in PREDICTIONS),
    *(f"{name} found" for name in PREDICTIONS),
)  # fmt: skip


def value(metrics: GroupMetrics, name: str) -> float:
    """One of ``METRICS``."""
    if name.startswith("top"):
        return float(metrics.ratio[PICKS.index(int(name[3:]))])
    return float(getattr(metrics, name))


def lengths(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of lengths of paths: a few with about as many paths each, and at last all.

    Args:
        steps: Of each path, at least one.
    """
    ordered = sorted(steps)
    ends = sorted({ordered[-(-len(ordered) * part // _BINS) - 1] for part in range(1, _BINS + 1)})
    starts = [ordered[0], *(end + 1 for end in ends[:-1])]
    found = list(zip(starts, ends, strict=True))
    return found if len(found) == 1 else [*found, (ordered[0], ordered[-1])]


def terminal_table(paths: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Means over the paths of a length, and over all, with intervals over workloads."""
    found = []
    for low, high in lengths([path["steps"] for path in paths]):
        own = [path for path in paths if low <= path["steps"] <= high]
        row: dict[str, Any] = {"steps": [low, high], "paths": len(own)}
        for name in (*_FLOORS, *PREDICTIONS):
            there = [path for path in own if name in path]
            if there:
                row |= _errors(there, name)
        partners = [path for path in own if "swapped" in path]
        if partners:
            row[f"{_PARTNERS} explained"] = _errors(partners, "trained")["trained explained"]
            row[f"{_PARTNERS} found"] = _found(partners).get("trained found")
        found.append({**row, **_found(own)})
    return found


def _errors(paths: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """1 - cosine, how much more that is than the model's, and what is explained."""
    bootstrap = Bootstrap([path["workload"] for path in paths])
    errors = _column(paths, name)
    found = {name: bootstrap.mean(errors)}
    if name != "trained":
        found[f"{name} - trained"] = bootstrap.mean(errors - _column(paths, "trained"))
    if name in PREDICTIONS:
        missed, apart = _column(paths, f"{name} missed"), _column(paths, "apart")
        found[f"{name} explained"] = bootstrap.interval(
            # Of programs that do not differ, nothing is explained.
            lambda draws: 1.0 - (draws @ missed + _NOTHING) / (draws @ apart + _NOTHING)
        )
    return found


def _found(paths: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often a prediction is nearest to its own program, where there is another, and chance."""
    others = [path for path in paths if path["distinct"] > 1]
    found = {}
    for name in PREDICTIONS:
        there = [path for path in others if name in path]
        if there:
            bootstrap = Bootstrap([path["workload"] for path in there])
            found[f"{name} found"] = bootstrap.mean(_column(there, f"{name} found"))
    if others:
        bootstrap = Bootstrap([path["workload"] for path in others])
        found["chance found"] = bootstrap.mean(1.0 / _column(others, "distinct"))
    return found


def _column(paths: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([path[name] for path in paths], dtype=np.float64)


def compare(groups: Sequence[Group], judged: Judged) -> list[dict[str, Any]]:
    """Figures of every row, and differences to the full model on the same groups.

    Args:
        groups: All that were tested.
        judged: The rows.
    """
    rows = []
    for name, own in judged.items():
        tested = [group for group in groups if group.key in own]
        if not tested:
            continue
        bootstrap = Bootstrap([group.workload for group in tested])
        row: dict[str, Any] = {"variant": name, "groups": len(tested)}
        for metric in METRICS:
            values = np.array([value(own[group.key], metric) for group in tested])
            row[metric] = bootstrap.mean(values)
            full = judged.get(FULL, {})
            if name != FULL and all(group.key in full for group in tested):
                theirs = np.array([value(full[group.key], metric) for group in tested])
                row[f"{metric} - full"] = bootstrap.mean(values - theirs)
        rows.append(row)
    return rows


def agreement(
    one: Mapping[str, GroupMetrics], other: Mapping[str, GroupMetrics]
) -> dict[str, float]:
    """Of how many groups both have, in how many all metrics are equal, and the largest difference.

    Args:
        one, other: Key of a group -> its metrics.
    """
    both = sorted(set(one) & set(other))
    apart = [
        max(abs(value(one[key], name) - value(other[key], name)) for name in METRICS)
        for key in both
    ]
    equal = sum(difference <= _EQUAL for difference in apart)
    return {"groups": len(both), "equal": equal, "furthest": max(apart, default=0.0)}


def readings(
    groups: Sequence[Group], judged: Judged, paths: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """All figures that means were taken of, one line of text per group or path.

    Args:
        groups: All that were tested.
        judged: The rows; ``INITIAL`` is left out, which is ``NONE``.
        paths: As for ``terminal_table``.
    """
    workloads = sorted({path["workload"] for path in paths})
    number = {workload: at for at, workload in enumerate(workloads)}
    return {
        "metrics": " ".join(METRICS),
        "groups": [group.key for group in groups],
        "variants": {
            name: [
                " ".join(f"{value(own[group.key], metric):.4f}" for metric in METRICS)
                if group.key in own
                else ""
                for group in groups
            ]
            for name, own in judged.items()
            if name != INITIAL
        },
        "workloads": workloads,
        "path": "workload, " + ", ".join(_PATH_COLUMNS),
        "paths": [
            " ".join(
                [str(number[path["workload"]]), *(_text(path.get(name)) for name in _PATH_COLUMNS)]
            )
            for path in paths
        ],
    }


def _text(reading: Any) -> str:
    if reading is None:
        return "-"
    return f"{reading:.3f}" if isinstance(reading, float) else str(int(reading))


def body_of(result: Mapping[str, Any]) -> str:
    """Markdown of a ``foretune.world/2`` object."""
    speed = "What scoring a candidate costs: [world_speed](world_speed.md)."
    parts = [_what_ran(result), *_terminals(result["terminals"]), *_ranking(result), speed]
    return "\n\n".join(parts)


def _what_ran(result: Mapping[str, Any]) -> str:
    config = result["config"]
    size = f", at most {config['dimension']} numbers" if config["target"] == "features" else ""
    return (
        f"Cross-validation by workload in {result['folds']} folds: {result['groups']} groups of "
        f"{result['workloads']} workloads, {result['programs']:,} programs. States are made of "
        f"{config['target']}{size}; transitions learn from about {config['trajectories']:,} "
        f"programs in each fold, trees from at most {result['programs_per_group']} of a group; "
        f"seed {result['seed']}. Intervals: bootstrap over workloads, 95 %."
    )


def _terminals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    def shown(columns: Mapping[str, str]) -> str:
        """A table of these: key in a row -> heading."""
        return table(
            ["steps", "paths", *columns.values()],
            [
                ["{} to {}".format(*row["steps"]), str(row["paths"]),
                 *(_cell(row, key, "+" if " - " in key else "") for key in columns)]
                for row in rows
            ],
        )  # fmt: skip

    named = {name: _LABELS.get(name, name) for name in (*_FLOORS, *PREDICTIONS)}
    told = (*PREDICTIONS, _PARTNERS)
    return [
        "## Predicted terminal states",
        "1 - cosine to the program's own state, mean over paths of workloads held out: of who says "
        "that actions change nothing (initial), of the mean terminal state of training, of "
        "untrained transitions, of transitions without the initial state (actions only), of the "
        "model where paths begin at the state of another workload with the same steps (swapped; "
        "for workloads that have such another), of a network that reads all action features at "
        "once, with and without the initial state (in one step), and of the model (predicted). "
        "That network's loss asks for the differences within workloads besides. By the length of "
        "paths, in rows of about as many; the last row has all.",
        shown(named),
        "The same as paired differences: by how much predicted is nearer. Positive: the model is "
        "better.",
        shown({f"{name} - trained": label for name, label in named.items() if name != "trained"}),
        "What ranking needs are the differences between the programs of a workload. Explained: "
        "share of the squared distances between the terminal states of a workload and their mean "
        "that predictions tell, with what they lack of all programs of a workload alike left out.",
        shown({f"{name} explained": _LABELS.get(name, name) for name in told}),
        "Found: share of predictions nearer to their own program than to that of any other path "
        "of the workload that has another state; chance: 1 / the number of different states.",
        shown(
            {
                "chance found": "chance",
                **{f"{name} found": _LABELS.get(name, name) for name in told},
            }
        ),
    ]


def _ranking(result: Mapping[str, Any]) -> list[str]:
    notes = [
        "Behind each figure's mean stands the paired difference to the full model. Swapped: paths "
        "begin at the state of another workload with the same steps, for workloads that have such "
        f"another; trees as in the full model. {INITIAL} is {NONE} by construction: z0 is the same "
        "for all programs of a workload, and trees read only what differs within workloads. "
        "transition=direct: states predicted in one step."
    ]
    if result["peers"]:
        seeds = ", ".join(f"{name} {count}" for name, count in result["peers"].items())
        notes.append(
            "Rows of `benchmarks.models` are its published cells of the same split, from as many "
            f"programs of a group; seeds they are means of: {seeds}."
        )
    check = result["check"]
    if check is not None:
        notes.append(
            f"A check of both benchmarks: {NONE} and their gbdt_actions have equal figures in "
            f"{check['equal']} of {check['groups']} groups; the largest difference is "
            f"{check['furthest']:.4f}."
        )
    notes += [f"Missing: {text}." for text in result["missing"]]
    return [
        "## Ranking",
        *notes,
        table(
            ["variant", "groups", "top-1", "top-5", "tau", "NDCG@16"],
            [
                ["random order", str(result["groups"]),
                 *(figure(result["random"][name]) for name in METRICS)],
                *(_variant_row(row) for row in result["variants"]),
            ],
        ),
    ]  # fmt: skip


def _cell(row: Mapping[str, Any], key: str, sign: str) -> str:
    return figure(row[key], sign) if row.get(key) else "-"


def _variant_row(row: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in METRICS:
        difference = row.get(f"{name} - full")
        text = figure(row[name])
        cells.append(text if difference is None else f"{text}; {figure(difference, '+')}")
    return [row["variant"], str(row["groups"]), *cells]
