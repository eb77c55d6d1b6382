"""The result of ``benchmarks.models`` in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results import table

GOAL = {"top1": 0.90, "top5": 0.97}
"""What the best model is to reach on held-out workloads of our own data."""
_GOAL_TABLE = "cpu/workload"
_MAIN = ("top1", "top5", "pair_accuracy", "kendall_tau", "ndcg16")
_OTHERS = ("pooled", "per_network", "running")
_SHOWN_PICKS = 16
_BELOW = " ▼"
"""Marks a figure that random order surpasses."""
_PUBLISHED = (
    "For orientation, what the LLMTuner paper reports on TenSet, where the workloads of five "
    "networks are held out (top-1 / top-5, pooled): TenSet's MLP 0.875 / 0.953 on a Platinum 8272 "
    "and 0.908 / 0.963 on a K80, TLP 0.919 / 0.971 and 0.906 / 0.974. Figures of different data do "
    "not compare."
)


def body_of(result: Mapping[str, Any]) -> str:
    """Markdown of a ``foretune.models/1`` object."""
    parts = [
        "Every group of programs (one workload on one hardware) is tested once, by models that "
        "have not learned from its workload (in `hardware_seen`: not from its hardware). top-k: "
        "seconds of the fastest program / fastest of the first k picks, mean over groups; picks: "
        f"the same after {_SHOWN_PICKS}; regret: seconds of the fastest of these over the fastest "
        "program, less one. Behind the best: top-1 of the best row less that of this one, group by "
        "group; that the best was chosen by the same groups, and what another seed would change, "
        "is not in its interval. A figure with"
        f"{_BELOW} is worse than random order. Intervals: bootstrap over workloads, 95 %; "
        "networks are means over seeds. Random order is computed exactly; its top-5 is the best of "
        "five random draws. Times are with the features of programs kept in files beforehand; what "
        "a program costs that nothing has looked at yet is in the results of "
        "`benchmarks.model_speed`.",
        _PUBLISHED,
    ]
    parts += [_table_text(found) for found in result["tables"]]
    parts.append(_goal_text(result["tables"]))
    parts += [f"- missing: {text}" for text in (*result["absent"], *_missing(result["tables"]))]
    return "\n\n".join(parts)


def _parts(parts: Sequence[Mapping[str, Any]]) -> str:
    """How many parts were tested, and what each has learned from."""
    learned = [part["train"] + part["validation"] for part in parts]
    size = f"{min(learned)}" if len(set(learned)) == 1 else f"{min(learned)} to {max(learned)}"
    count = "one part" if len(parts) == 1 else f"{len(parts)} parts"
    return f"{count}, by models that learned from {size} other groups"


def _table_text(found: Mapping[str, Any]) -> str:
    main_rows, other_rows, notes = [], [], []
    random = {"model": "random order", **found["random"]}
    others = [name for name in _OTHERS if name != "per_network" or found["networks"]]
    for row in (random, *found["rows"]):
        if "left_out" in row:
            notes.append(f"- {row['model']} is left out: {row['left_out']}.")
        elif "metrics" in row:
            main_rows.append(_main_row(row, random))
            other_rows.append(_other_row(row, random, others))
    sizes = ", ".join(f"{n} {reason}" for reason, n in found["skipped"].items())
    return "\n\n".join(
        text
        for text in (
            f"## {found['data']}, split by {found['split']}",
            f"{found['groups']} groups of {found['workloads']} workloads, {found['programs']:,} "
            f"programs, tested in {_parts(found['parts'])}. Left out when reading: "
            f"{sizes or 'nothing'}.",
            table(
                ["model", "top-1", "behind the best", "top-5", f"{_SHOWN_PICKS} picks", "regret",
                 "pairs", "tau", "NDCG@16", "trained in s", "ms/program, features kept", "seeds",
                 "cells"],
                main_rows,
            ),
            _learned_from(found),
            "The other definitions of top-k (`foretune.evaluate.metrics`):",
            table(["model", *(f"top-{k} {d}" for d in others for k in (1, 5))], other_rows),
            "\n".join(notes),
        )
        if text
    )  # fmt: skip


def _learned_from(found: Mapping[str, Any]) -> str:
    """What the figures of a table are of, and how to get one of its rows alone."""
    return (
        f"Of each group to learn from at most {found['programs_per_group']} programs are taken; "
        f"groups to be tested are whole. `{found['command']}` gives the row of a MODEL alone"
        + f" (a network's with `--seeds` as many as its row has and `--option "
        f"precision={found['precision']}`)."
    )


def _main_row(row: Mapping[str, Any], random: Mapping[str, Any]) -> list[str]:
    metrics, floor = row["metrics"], random["metrics"]
    top1, top5, pairs, tau, ndcg = (_interval(metrics[name], floor[name]) for name in _MAIN)
    picks, floor_picks = (_after_picks(each, "share_of_best") for each in (row, random))
    measured = "train_s" in row
    return [
        row["model"],
        top1,
        _behind(row.get("behind")),
        top5,
        _interval(picks, floor_picks),
        _marked(_after_picks(row, "regret"), _after_picks(random, "regret"), 3, lower=True),
        pairs,
        tau,
        ndcg,
        f"{row['train_s']:.0f}" if measured else "",
        f"{row['score_s_per_program'] * 1e3:.2f}" if measured else "",
        str(row["seeds"]) if measured else "",
        f"{row['cells']}/{row['of']}" if measured else "",
    ]


def _behind(figure: Mapping[str, float] | None) -> str:
    if figure is None or figure["low"] == figure["high"]:
        return ""
    return f"{figure['mean']:.3f} ({figure['low']:.3f}–{figure['high']:.3f})"


def _after_picks(row: Mapping[str, Any], name: str) -> Mapping[str, float]:
    return next(p[name] for p in row["curve"] if p["picks"] == _SHOWN_PICKS)


def _other_row(
    row: Mapping[str, Any], random: Mapping[str, Any], others: Sequence[str]
) -> list[str]:
    names = [f"top{k}_{name}" for name in others for k in (1, 5)]
    return [
        row["model"],
        *(_marked(row["metrics"][name], random["metrics"][name], 3) for name in names),
    ]


def _interval(figure: Mapping[str, float], floor: Mapping[str, float]) -> str:
    return f"{_marked(figure, floor, 3)} ({figure['low']:.3f}–{figure['high']:.3f})"


def _marked(
    figure: Mapping[str, float], floor: Mapping[str, float], digits: int, lower: bool = False
) -> str:
    """The figure, marked where it is worse than the floor by as much as is printed.

    Args:
        figure, floor: With a ``mean``.
        digits: Printed behind the point.
        lower: Whether lower is better.
    """
    text = f"{figure['mean']:.{digits}f}"
    above = float(text) - round(floor["mean"], digits)
    return text + (_BELOW if (above > 0 if lower else above < 0) else "")


def _goal_text(tables: Sequence[Mapping[str, Any]]) -> str:
    for found in tables:
        if f"{found['data']}/{found['split']}" == _GOAL_TABLE:
            rows = [row for row in found["rows"] if "metrics" in row]
            if not rows:
                break
            best = max(rows, key=lambda row: row["metrics"]["top1"]["mean"])
            return "\n".join(
                f"- Goal: {name} at least {goal:.2f} on held-out workloads for the best model: "
                f"{best['model']} has {best['metrics'][name]['mean']:.3f}, "
                f"{'met' if best['metrics'][name]['mean'] >= goal else 'not met'}."
                for name, goal in GOAL.items()
            )
    return f"- Goal: not judged, the table {_GOAL_TABLE} has no complete row."


def _missing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for every row that lacks cells."""
    lines = [
        f"{found['data']}/{found['split']} {row['model']}: {row['of'] - row['cells']} of "
        f"{row['of']} cells are not computed"
        for found in tables
        for row in found["rows"]
        if "left_out" not in row and row["cells"] < row["of"]
    ]
    return lines + [text for found in tables for text in found["failed"]]
