"""The bench's result for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from foretune.bench._summary import side_name


def print_bench(data: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints the best of every run, and how the strategies compare.

    Args:
        data: A ``foretune.bench/1`` object.
        console: Where to print; standard output if None.
    """
    console = console or Console(highlight=False)
    console.print(_runs(data))
    summary = data["summary"]
    if summary["speedup"]:
        columns = ("strategy", "over", "trials")
        console.print(_ratios("faster programs", summary["speedup"], columns))
        console.print(_ratios("trials per second", summary["trials_per_s"], columns[:2]))
    console.print(_ratios("faster than the untuned programs", summary["over_untuned"],
                          ("strategy", "trials")))  # fmt: skip
    for name, note in data["notes"].items():
        console.print(f"{name}: {note}", style="dim", soft_wrap=True)
    for run in data["runs"]:
        if (run.get("llm") or {}).get("left_out"):
            console.print(
                f"{run['workload']} {side_name(run)} seed {run['seed']}: the language model was "
                f"left out: {run['llm']['left_out']}",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )
    for failure in data["failures"]:
        console.print(
            f"failed: {failure['workload']} {side_name(failure)} seed {failure['seed']}: "
            f"{failure['error']}",
            style="red",
            markup=False,
            soft_wrap=True,
        )


def _runs(data: Mapping[str, Any]) -> Table:
    models = {(run["strategy"], run["cost_model"]) for run in data["runs"]}
    crossed = len(models) > len({strategy for strategy, _ in models})
    table = _table("workload", "strategy", "seed", "untuned ms", "best ms", "trials/s", right=3)
    for run in data["runs"]:
        best = run["curve"][-1][2] if run["curve"] else None
        table.add_row(
            run["workload"],
            side_name(run, crossed),
            str(run["seed"]),
            _ms(run["untuned_s"]),
            _ms(best),
            f"{run['trials_per_s']:.2f}",
        )
    return table


def _ratios(title: str, rows: Any, columns: tuple[str, ...]) -> Table:
    table = _table(*columns, "ratio", "95 % interval", "pairs", right=len(columns))
    table.title, table.title_justify = f"{title} (geometric mean)", "left"
    for row in rows:
        table.add_row(
            *(str(row[column]) for column in columns),
            f"{row['ratio']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            str(row["pairs"]),
        )
    return table


def _table(*headings: str, right: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index >= right else "left")
    return table


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.4f}"
