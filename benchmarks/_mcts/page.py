"""The page of the benchmark of tree search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._mcts.figures import ABLATED, EARLY, MODEL, SIZE, TREE, left_out
from benchmarks._mcts.parts import said
from benchmarks._search.figures import made, remarks
from benchmarks.results import table
from foretune.bench import side_name

_OPTIONS: Mapping[str, str] = {
    "history": "History depth, in ancestors that a prompt shows (table 3; without the option 2)",
    "branching": "Branching (table 4; without the option 2, and 0 is progressive widening)",
    "rollout": "Rollouts, in random edits after which a new node's end is scored beside the node "
    "(without the option 0; with the world model no program is made for it)",
    "temperature": "Temperature of the softmax of scores from which a batch is drawn (without the "
    "option 0, the highest scores)",
    MODEL: "Cost models",
    SIZE: "Batches, in programs measured between two looks at what was learned (where `@` names "
    "none, those of the other tables)",
}
"""``ABLATED`` -> what their tables say."""
_VALUES = (
    "Speed-up over the untuned program after so many measured programs: geometric mean over seeds "
    "with its 95 % interval (Student's t of logarithms); a cell that rests on fewer seeds than "
    "there are says so, and one seed has no interval. What a run had read as its best by then was "
    "measured again, that of all sides of one kernel and seed interleaved with the untuned "
    "program. The choice among the last contenders that a tuner makes at its end is left out in "
    "the last column, too."
)
GOAL_MS = 5.0
"""Processor milliseconds of search per expansion, at most."""
_MODEL_LEFT = "\\* Some of these runs went on without their language model; below is why."
_EFFORT = (
    "What is equal is the number of measured programs, not what is looked at in between: below are "
    "the candidates whose score or draft a side asks for, for each one that is measured. Of a tree "
    "these are the edits of each expansion, random roots, and all of its nodes again before each "
    "batch; of evolution random candidates, children, and what is bred of them. Processor time is "
    "beside it, early and late in a run of batches of {batch}, or of what a name has behind `@`. "
    "Programs were not run for this table."
)


def body(
    result: Mapping[str, Any], sides: Sequence[str], ablations: Sequence[str], most: int
) -> str:
    """The page between its title and its conditions.

    Args:
        result: What ``run_bench`` gave, with the figures under ``mcts``.
        sides: Names of sides that ran all trials.
        ablations: Of those that ran ``most``.
        most: Trials.
    """
    found = result["mcts"]
    llm = [run for run in result["runs"] if run.get("llm")]
    parts = [
        "\n".join(goals(found, sides, result["trials"])),
        _VALUES,
        speedup_table(found, sides),
        *(part for each in found["references"] for part in _over_reference(each, sides)),
        *_ablations(found, ablations, most),
        ""
        if llm
        else "History depth (table 3), and a language model's rows in the other tables, "
        "need one: give it with `--llm`.",
        _MODEL_LEFT if any(left_out(run) for run in llm) else "",
        *(part for each in found["references"] for part in _beside(each, result["trials"])),
        _effort(found),
        "\n".join(map(_asked, llm)),
        made(result["runs"]),
        said(result.get("parts", [])),
        *remarks(result),
    ]
    return "\n\n".join(part for part in parts if part)


def goals(found: Mapping[str, Any], sides: Sequence[str], trials: int) -> list[str]:
    """What is to be reached, and whether it is.

    Args:
        found: The figures.
        sides: Those that ran all trials: ablations are not judged.
        trials: How many.
    """
    lines = []
    for reference in found["references"]:
        early = {row["side"]: row for row in reference["early"] if row["side"] in sides}
        trees = [row for side, row in early.items() if side.startswith("mcts")]
        own = early.get(reference["side"])
        if not trees or own is None:
            continue
        best = max(trees, key=lambda row: float(row["ratio"]))
        judged = {f"the best of {len(trees)} tree searches, chosen by these very runs,": best}
        if TREE in early:
            judged["tree search as it comes"] = early[TREE]
        for words, row in judged.items():
            met = _verdict(row)
            lines.append(
                f"- Goal: {words} has after {EARLY} samples what {reference['side']} has after "
                f"{trials}: {row['side']}, {row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f}) "
                f"times as fast, {met}; {reference['side']} itself after {EARLY}: "
                f"{own['ratio']:.3f}."
            )
    took = [row["search_ms"] for row in found["overhead"] if row["search_ms"] is not None]
    if took:
        met = "met" if max(took) < GOAL_MS else "not met"
        lines.append(
            f"- Goal: less than {GOAL_MS:g} ms of search per expansion: {max(took):.2f} at most, "
            f"{met}."
        )
    return lines


def _verdict(row: Mapping[str, Any]) -> str:
    """Whether a goal is met, and whether the interval leaves a doubt."""
    met = "met" if row["ratio"] >= 1 else "not met"
    sure = row["low"] >= 1 if row["ratio"] >= 1 else row["high"] < 1
    return met if sure else f"{met}, within the interval"


def speedup_table(found: Mapping[str, Any], sides: Sequence[str], most: int | None = None) -> str:
    """Kernels and sides down, samples across.

    Args:
        found: The figures.
        sides: Their names.
        most: Samples of the last column; all if None.
    """
    samples = [count for count in found["samples"] if most is None or count <= most]
    machines = dict.fromkeys(row["machine"] for row in found["speedups"])
    tables = []
    for machine in machines:
        rows = [r for r in found["speedups"] if r["machine"] == machine and r["side"] in sides]
        cells = {(r["workload"], r["side"], r["samples"]): _cell(r) for r in rows}
        # A machine may have runs of some of the sides only.
        shown = [side for side in sides if any(row["side"] == side for row in rows)]
        kernels = list(dict.fromkeys(row["workload"] for row in rows))
        drawn = table(
            ["kernel", "side", *map(str, samples)],
            [
                [kernel, side, *(cells.get((kernel, side, count), "–") for count in samples)]
                for kernel in kernels
                for side in shown
            ],
        )
        if rows:
            tables.append(f"On {machine}:\n\n{drawn}" if len(machines) > 1 else drawn)
    return "\n\n".join(tables)


def _cell(row: Mapping[str, Any]) -> str:
    text = f"{row['mean']:.2f}"
    if row["low"] is not None:
        text += f" ({row['low']:.2f}–{row['high']:.2f})"
    if row["seeds"] < row["of"]:
        text += f", {row['seeds']} of {row['of']} seeds"
    return text + (" \\*" if row["left_out"] else "")


def _ablations(found: Mapping[str, Any], names: Sequence[str], most: int) -> list[str]:
    """A heading and tables for each option, and one for what is left."""
    parts: list[str] = []
    families = found["families"]
    for option in ABLATED:
        own = [family for family in families if family["option"] == option]
        rows = list(dict.fromkeys(side for family in own for side in family["sides"]))
        drawn = speedup_table(found, rows, most)
        if drawn:
            parts += [f"{_OPTIONS[option]}, after up to {most} samples:", drawn]
            for family in own:
                first, *others = family["sides"]
                parts += _over_reference({"side": first, "over": family["over"]}, others)
    shown = {side for family in families for side in family["sides"]}
    drawn = speedup_table(found, [name for name in names if name not in shown], most)
    if drawn:
        parts += [f"After up to {most} samples:", drawn]
    return parts


def _over_reference(reference: Mapping[str, Any], sides: Sequence[str]) -> list[str]:
    """How much faster sides are than a reference after as many samples, by kernel and over all."""
    rows = [row for row in reference["over"] if row["side"] in sides]
    if not rows:
        return []
    kernels = sorted({name for row in rows for name in row["kernels"]})
    return [
        f"How much faster than {reference['side']}'s, after as many samples, as times; measured "
        "side by side, so that machines may differ. By kernel geometric means over seeds; over "
        "all, with the 95 % interval of a bootstrap over kernels and seeds:",
        table(
            ["side", "samples", *kernels, "all", "pairs"],
            [
                [
                    row["side"],
                    str(row["samples"]),
                    *(_number(row["kernels"].get(name)) for name in kernels),
                    f"{row['ratio']:.3f} ({row['low']:.3f}–{row['high']:.3f})",
                    str(row["pairs"]),
                ]
                for row in sorted(rows, key=lambda r: (sides.index(r["side"]), r["samples"]))
            ],
        ),
    ]


def _beside(reference: Mapping[str, Any], trials: int) -> list[str]:
    """How soon sides have what a reference has at the end."""
    side = reference["side"]
    if not reference["early"]:
        return [f"Nothing is known of what {side} has after {trials} samples."]
    return [
        f"What {side} has after {trials} samples, over what each side has after {EARLY}, as times: "
        "1 or more reaches it. Intervals are from a bootstrap over kernels and seeds.",
        _early(reference["early"]),
        f"Samples after which each side has for the first time what {side} has after {trials}, or "
        "what takes at most 2 % longer. "
        f"What a run reads as faster may be slower when it is measured again, so that {side} "
        "itself may have it before:",
        _reaching(reference["reaching"]),
    ]


def _early(rows: Sequence[Mapping[str, Any]]) -> str:
    return table(
        ["side", "ratio", "95 % interval", "pairs"],
        [
            [
                row["side"],
                f"{row['ratio']:.3f}",
                f"{row['low']:.3f} to {row['high']:.3f}",
                str(row["pairs"]),
            ]
            for row in rows
        ],
    )


def _reaching(rows: Sequence[Mapping[str, Any]]) -> str:
    return table(
        ["side", "median", "share of the pairs that get there"],
        [
            [
                row["side"],
                "never" if row["samples"] is None else f"{row['samples']:g}",
                f"{row['reached']:.0%} of {row['pairs']}",
            ]
            for row in rows
        ],
    )


def _effort(found: Mapping[str, Any]) -> str:
    if not found["overhead"]:
        return ""
    rows = [
        [
            row["workload"],
            row["side"],
            str(row["measured"]),
            f"{row['scored']:.0f}",
            f"{row['drafted']:.0f}",
            f"{row['ask_ms']:.0f}",
            f"{row['expansions']:.0f}" if row["expansions"] else "–",
            _number(row["search_ms"]),
            _number(row["all_ms"]),
        ]
        for row in found["overhead"]
    ]
    header = ["kernel", "side", "measured", "scored", "drafted", "ms per batch",
              "expansions per batch", "ms per expansion", "with making the programs"]  # fmt: skip
    return f"{_EFFORT.format(**found['effort'])}\n\n{table(header, rows)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _asked(run: Mapping[str, Any]) -> str:
    """What a run asked its language model, and how that fared."""
    llm, why = run["llm"], left_out(run)
    return (
        f"- {run['workload']} {side_name(run)} seed {run['seed']}: {llm['model']}, {llm['calls']} "
        f"calls, {llm['prompt_tokens']} + {llm['completion_tokens']} tokens, {llm['invalid']} "
        f"invalid answers, {llm['hits']} of {llm['judged']} judged proposals are hits"
        + (f"; **left out** before the end: {why}" if why else "")
    )
