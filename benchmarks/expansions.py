"""Processor time of tree search per expansion, against a goal of 5 ms, without running programs.

For the kernels of the Reasoning Compiler paper and each proposer that needs no language model,
early and late in a run of batches of 16: what ``benchmarks.mcts`` shows beside its tables from one
reading, here in several rounds, each of which has all kernels and proposers. A cost model of
another seed stands in for measurements. Each reading is of a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._mcts.figures import name_of
from benchmarks._mcts.overhead import BATCH, overhead_alone
from benchmarks._mcts.page import GOAL_MS
from benchmarks.mcts import KERNELS
from benchmarks.results import conditions, publish, say, table
from foretune.bench import asks_llm
from foretune.bench import sides as sides_of

SIDES = ("mcts:random", "mcts:heuristic", "mcts:learned")
_TITLE = "Time of tree search per expansion"


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each kernel, side and count of measured programs, median, least and most of the rounds.

    Args:
        rows: Of ``overhead``, with ``workload`` and ``side``.

    Returns:
        ``workload, side, measured, rounds``, and ``search_ms`` and ``all_ms`` as
        ``{"median", "low", "high"}``.
    """
    cells: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["workload"], row["side"], row["measured"]), []).append(row)
    return [
        {"workload": workload, "side": side, "measured": measured, "rounds": len(found),
         **{name: _spread([row[name] for row in found]) for name in ("search_ms", "all_ms")}}
        for (workload, side, measured), found in cells.items()
    ]  # fmt: skip


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "low": min(values), "high": max(values)}


def body(summary: Sequence[Mapping[str, Any]]) -> str:
    """The page between its title and its conditions."""
    most = max(row["search_ms"]["median"] for row in summary)
    met = "met" if most < GOAL_MS else "not met"
    readings = [row["search_ms"]["high"] for row in summary]
    return "\n\n".join(
        [
            f"- Goal: less than {GOAL_MS:g} ms of search per expansion: {most:.2f} in the cell "
            f"with the highest median, {met}; {max(readings):.2f} in the highest reading.",
            "Milliseconds of processor time per expansion of the tree: selecting a node, proposing "
            "edits of it, scoring them, and the share in scoring all nodes again before a batch. "
            "The last column has what making the chosen programs takes in it, too, as with any "
            f"strategy. Batches of {BATCH}, or of what a name has behind `@`, the eight before so "
            "many measured programs. Median of the rounds, with the lowest and highest reading.",
            table(
                ["kernel", "side", "measured", "rounds", "search", "with making the programs"],
                [
                    [row["workload"], row["side"], str(row["measured"]), str(row["rounds"]),
                     _cell(row["search_ms"]), _cell(row["all_ms"])]
                    for row in summary
                ],
            ),
        ]
    )  # fmt: skip


def _cell(value: Mapping[str, float]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f}–{value['high']:.2f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(KERNELS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    sides = sides_of(options.sides.split(","), ["default"])
    for side in sides:
        if not side.strategy.startswith("mcts") or asks_llm(side.strategy):
            parser.error(f"only a tree has expansions to time, without a model, not {side.name}")
    if options.rounds < 1:
        parser.error(f"rounds >= 1 must hold, but got {options.rounds}")
    (default,) = sides_of(["mcts"], ["default"])
    where = conditions("expansions", [0])
    rows = []
    for turn in range(options.rounds):
        for kernel in options.workloads.split(","):
            for side in sides:
                name = name_of(side, default.cost_model, BATCH)
                found = overhead_alone(kernel, where.hardware, side)
                rows += [{"workload": kernel, "side": name, "round": turn, **row} for row in found]
                told = ", ".join(f"{row['search_ms']:.2f} ms" for row in found)
                say(f"round {turn} {kernel} {name}: {told}")
    data = {"rows": rows, "summary": summarise(rows)}
    publish("expansions", _TITLE, body(data["summary"]), data, where.end(), options.write)


if __name__ == "__main__":
    main()
