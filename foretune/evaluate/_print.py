"""The result of an evaluation for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretune.evaluate.offline import NONE

_DEFINITIONS = ("pooled", "per_network", "running")
_PLAIN = {"pair_accuracy": "pair accuracy", "kendall_tau": "Kendall tau", "ndcg16": "NDCG@16"}


def print_evaluation(data: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints metrics beside their floor, what is found after n picks, and where it is strong.

    Args:
        data: A ``foretune.eval/1`` object.
        console: Where to print; standard output if None.
    """
    console = console or Console(highlight=False)
    console.print(
        Text(
            f"{data['model']} on {', '.join(data['data'])}: split {data['split']}, "
            f"{data['groups']} groups, {data['workloads']} workloads, {data['programs']} programs"
        ),
        style="bold",
        soft_wrap=True,
    )
    console.print(_metrics(data))
    console.print(_curve(data))
    elsewhere = data["floors"].get("other_devices", {}).get("by_hardware", {})
    for field, heading, floor in (
        ("by_kind", "operator kind", {}),
        ("by_hardware", "hardware", elsewhere),
    ):
        if len(data[field]) > 1:
            console.print(_breakdown(data[field], heading, floor))
    console.print(_times(data), soft_wrap=True)
    if data.get("trained_on") is not None or data["split"] == NONE:
        console.print(Text(_trained_on(data)), soft_wrap=True)
    if data["skipped"]:
        told = ", ".join(f"{n} {reason}" for reason, n in sorted(data["skipped"].items()))
        console.print(Text(f"left out: {told}", style="yellow"), soft_wrap=True)


def _metrics(data: Mapping[str, Any]) -> Table:
    floors = {"random order": data["floors"]["random"]}
    if "other_devices" in data["floors"]:
        floors["best elsewhere"] = data["floors"]["other_devices"]
    table = _table("metric", "value", "95 % interval", *floors)
    for name, title in _titles().items():
        value = data["metrics"][name]
        table.add_row(
            title,
            f"{value['mean']:.3f}",
            f"{value['low']:.3f} to {value['high']:.3f}",
            *(f"{floor['metrics'][name]['mean']:.3f}" for floor in floors.values()),
        )
    return table


def _titles() -> dict[str, str]:
    titles = {"top1": "top-1", "top5": "top-5", **_PLAIN}
    for definition in _DEFINITIONS:
        for k in (1, 5):
            titles[f"top{k}_{definition}"] = f"top-{k}, {definition.replace('_', ' ')}"
    return titles


def _curve(data: Mapping[str, Any]) -> Table:
    """Rows of n picks: share of the best and regret, the model's and those of random draws."""
    table = _table("after", "of the best", "random", "regret", "random")
    for own, floor in zip(data["curve"], data["floors"]["random"]["curve"], strict=True):
        table.add_row(
            f"{own['picks']} pick{'s' if own['picks'] > 1 else ''}",
            f"{own['share_of_best']['mean']:.3f}",
            f"{floor['share_of_best']['mean']:.3f}",
            f"{own['regret']['mean']:.3f}",
            f"{floor['regret']['mean']:.3f}",
        )
    return table


def _breakdown(parts: Mapping[str, Any], heading: str, floor: Mapping[str, Any]) -> Table:
    """Rows of parts; with a floor, its top-1 beside the model's."""
    beside = ("best elsewhere",) if floor else ()
    table = _table(heading, "groups", "top-1", "top-5", "pairs", "tau", *beside)
    for name, part in parts.items():
        means = {metric: value["mean"] for metric, value in part["metrics"].items()}
        table.add_row(
            Text(name),
            str(part["groups"]),
            *(f"{means[m]:.3f}" for m in ("top1", "top5", "pair_accuracy", "kendall_tau")),
            *((f"{floor[name]['metrics']['top1']['mean']:.3f}",) if floor else ()),
        )
    return table


def _times(data: Mapping[str, Any]) -> str:
    scoring = f"scoring {1e6 * data['score_s_per_program']:.0f} µs per program"
    if data["train_s"] is None:
        return scoring
    count = len(data["splits"]) * len(data["seeds"])
    return f"trained {count} times, {data['train_s']:.1f} s each; {scoring}"


def _trained_on(data: Mapping[str, Any]) -> str:
    provenance = data.get("trained_on")
    if provenance is None:
        return "what the weights were trained on is not known: they may have seen all of this"
    seen = provenance["seen_groups"]
    return (
        f"weights: {provenance['ranker']}, trained on {provenance['groups']} groups of "
        f"{len(provenance['training_workloads'])} workloads ({', '.join(provenance['data'])}; "
        f"{provenance['date']}); {seen or 'none'} of the groups judged here are of workloads it "
        "has seen"
    )


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table
