"""Search strategies on tables in which every candidate is known, against exact random search.

The tables are brute-forced configuration spaces that others published. Nothing is timed, so that
it gives the same on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import ROOT, conditions, publish, say, table
from foretune.evaluate import read_data
from foretune_research.replay import BUDGETS, WITHIN, run_replay
from foretune_research.tables import TableSpace, table_space

TUNED_BY_OTHERS = ROOT.parent / "shared" / "data" / "kernel-tuner"
STRATEGIES: tuple[tuple[str, str], ...] = (
    ("random", "random"),
    ("evolutionary", "random"),
    ("evolutionary", "gbdt:scratch"),
)
_TITLE = "Search on tables: no noise, known optimum"
_CACHES = "*.json.gz"


def tables_of_others(path: Path) -> list[TableSpace]:
    """The caches of Kernel Tuner in a folder; none where it is absent."""
    files = sorted(path.glob(_CACHES)) if path.is_dir() else []
    return [table_space(group) for group in read_data(files).groups] if files else []


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--others", type=Path, default=TUNED_BY_OTHERS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("replay", list(range(options.seeds)))
    benchmarks = {"Kernel Tuner's caches": (STRATEGIES, tables_of_others(options.others))}
    results = {
        name: run_replay(
            strategies,
            spaces,
            options.trials,
            options.seeds,
            batch=options.batch,
            progress=say,
        )
        for name, (strategies, spaces) in benchmarks.items()
        if spaces
    }
    absent = [name for name, (_, spaces) in benchmarks.items() if not spaces]
    data = {"benchmarks": results, "absent": absent}
    publish("replay", _TITLE, _body(data), data, where.end(), options.write)


def _body(data: Mapping[str, Any]) -> str:
    parts = [
        "Share: seconds of the optimum / best so far, mean over seeds, 0 while nothing ran. Random "
        "search is not run for the comparison: what it finds is computed exactly from the table. "
        "Intervals: bootstrap over seeds, 95 %; the tables are taken as given."
    ]
    for name, result in data["benchmarks"].items():
        parts += [f"## {name}", _spaces(result), _shares(result), _trials(result), _each(result)]
    parts += [f"- missing: the data of {name} is not on this machine" for name in data["absent"]]
    return "\n\n".join(parts)


def _spaces(result: Mapping[str, Any]) -> str:
    return table(
        ["table", "hardware", "candidates", "valid", "optimum, ms",
         *(f"within {within - 1:.0%}" for within in WITHIN)],
        [
            [
                space["name"],
                space["hardware"],
                str(space["size"]),
                str(space["valid"]),
                f"{space['optimum_s'] * 1e3:.4f}",
                *(str(space["good"][str(within)]) for within in WITHIN),
            ]
            for space in result["spaces"]
        ],
    )  # fmt: skip


def _shares(result: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{row['strategy']} + {row['cost_model']}",
            str(row["trials"]),
            f"{row['share']:.3f}",
            f"{row['random']:.3f}",
            f"{row['ratio']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
        ]
        for row in result["summary"]["share"]
    ]
    header = ["strategy + cost model", "trials", "share", "random, exact", "ratio", "95 % interval"]
    return f"Geometric mean over the tables, {result['seeds']} seeds:\n\n{table(header, rows)}"


def _trials(result: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{row['strategy']} + {row['cost_model']}",
            f"{row['within'] - 1:.0%}",
            f"{row['ratio']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
        ]
        for row in result["summary"]["trials_to"]
    ]
    header = ["strategy + cost model", "within", "random's trials / these", "95 % interval"]
    return (
        f"{table(header, rows)}\n\nTrials until the best is within 5 % (1 %) of the optimum. A run "
        f"that never is counts as {result['trials']} trials, random search likewise."
    )


def _each(result: Mapping[str, Any]) -> str:
    """Every table by itself: share at the budgets, and trials to within 5 % and 1 %."""
    budgets = [b for b in BUDGETS if 1 < b <= result["trials"]]
    rows = []
    for space in result["spaces"]:
        random = space["random"]
        rows.append(_row(space, "random search, exact", random, budgets))
        rows += [
            _row(space, f"{run['strategy']} + {run['cost_model']}", run, budgets)
            for run in result["runs"]
            if run["space"] == space["key"]
        ]
    header = ["table", "strategy + cost model", *(f"after {budget}" for budget in budgets),
              *(f"trials to {within - 1:.0%}" for within in WITHIN)]  # fmt: skip
    return table(header, rows)


def _row(
    space: Mapping[str, Any], name: str, found: Mapping[str, Any], budgets: Sequence[int]
) -> list[str]:
    trials = [found["trials_to"][str(within)] for within in WITHIN]
    return [
        f"{space['name']} ({space['hardware'][:16]})",
        name,
        *(f"{found['share'][budget - 1]:.3f}" for budget in budgets),
        *(
            f"{figure['mean']:.1f}"
            + (f" ({figure['reached']:.0%} got there)" if "reached" in figure else "")
            for figure in trials
        ),
    ]


if __name__ == "__main__":
    main()
