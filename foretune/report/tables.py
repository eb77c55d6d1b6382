"""Tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretune.describe.words import NOT_KNOWN, machine_facts
from foretune.errors import listed
from foretune.hardware import FACTORS
from foretune.report import _units as units
from foretune.report._failures import failures
from foretune.report._language_model import language_model
from foretune.report._network import told_network
from foretune.report._reused import told_reused

if TYPE_CHECKING:
    from foretune.describe.data_sheet import Figure, Proposal
    from foretune.hardware import Device, Hardware

_NARROWEST_NAME = 12
_FILE_WIDTH = 120
_NUMBERS_WIDTH = 65
"""Characters that the columns beside a task's name take."""


def summary_table(data: Mapping[str, Any], width: int = 80) -> Table:
    """The tasks of a run, the heaviest (weight times best seconds) first.

    Args:
        data: A ``foretune.tune/1`` object.
        width: Characters there is room for; where it is narrow, names are shortened, not numbers.
    """
    tasks = sorted(data["tasks"], key=_weighted_seconds, reverse=True)
    failed = [failures(task["trials"]).total() for task in tasks]
    headings = ["weight", "default", "best", "GFLOP/s", "of peak", "trials"]
    table = _table("task", *headings, *(["failed"] if any(failed) else []))
    room = max(_NARROWEST_NAME, width - _NUMBERS_WIDTH)
    for task, count in zip(tasks, failed, strict=True):
        table.add_row(
            Text(_shortened(str(task["name"]), room)),
            str(task["weight"]),
            units.seconds(units.before(task)),
            Text(units.seconds(task["best_s"]), style="bold"),
            units.rate(task.get("best_gflops")),
            units.share(task.get("peak_share")),
            str(len(task["trials"])),
            *([Text(str(count or ""), style="yellow")] if any(failed) else []),
        )
    return table


def print_summary(data: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints what a run achieved and where the time went.

    Args:
        data: A ``foretune.tune/1`` object.
        console: Where to print; standard output if None.
    """
    console = console or _console()
    network = data.get("network")
    if network is not None:
        _print_network(network, console)
    if data["tasks"]:
        console.print(summary_table(data, console.width))
    trials = [trial for task in data["tasks"] for trial in task["trials"]]
    before_s = units.sum_before(data["tasks"])
    sums = [f"sum of kernels: {units.seconds(before_s)} → "]
    if (gain := units.ratio(before_s, data["tuned_s"])) is None:
        sums = ["sum of kernels: "]
    console.print(
        Text.assemble(
            *sums,
            (units.seconds(data["tuned_s"]), "bold"),
            # A multiple of what nobody would deploy says nothing beside a network's latency.
            "" if gain is None or network is not None else f", {units.factor(gain)} faster",
        )
    )
    console.print(
        f"{len(trials)} trials in {units.duration(data['elapsed_s'])}: building "
        f"{units.duration(data['build_s'])}, measuring {units.duration(data['measure_s'])}, "
        f"searching {units.duration(data['search_s'])}",
        soft_wrap=True,
    )
    if told := told_reused(data):
        console.print(Text(told), soft_wrap=True)
    _print_language_model(data, console)
    failed = failures(trials)
    if failed:
        told = ", ".join(f"{n} {status}" for status, n in sorted(failed.items()))
        console.print(Text(f"failed candidates: {told}", style="yellow"))
    defaults, untuned = _not_tuned(data)
    if defaults:
        told = f"no candidate beat the default schedule: {listed(defaults)}"
        console.print(Text(told, style="yellow"))
    if untuned:
        console.print(Text(f"left untuned: {listed(untuned)}", style="yellow"))
    if data.get("interrupted"):
        console.print(Text("interrupted: this is the best so far", style="yellow"))


def _print_network(network: Mapping[str, Any], console: Console) -> None:
    told = told_network(network)
    console.print(Text(told.headline, style="yellow" if told.slower else "bold"), soft_wrap=True)
    if told.fault:
        console.print(Text(told.fault, style="yellow"), soft_wrap=True)
    console.print(told.verified, soft_wrap=True)


def _not_tuned(data: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Operators without a tuned program: those that have the default schedule, and the others."""
    scheduled = {task["name"] for task in data["tasks"] if task["best_s"] and _is_scheduled(task)}
    names = [str(name) for name in data.get("untuned_operators", ())]
    return [n for n in names if n in scheduled], [n for n in names if n not in scheduled]


def _is_scheduled(task: Mapping[str, Any]) -> bool:
    """Whether the best is no naive program: in a network the default is what runs untuned."""
    untuned_s = task["untuned_s"]
    return untuned_s in (None, task.get("default_s")) or untuned_s > task["best_s"]


def _print_language_model(data: Mapping[str, Any], console: Console) -> None:
    told = dict(language_model(data))
    if not told:
        return
    spent = "; ".join(f"{name} {told[name]}" for name in ("calls", "tokens", "seconds", "cost"))
    console.print(Text(f"language model {told['model']}: {spent}"), soft_wrap=True)
    for name in ("scores", "proposals"):
        if name in told:
            console.print(Text(f"its {name}: {told[name]}"), soft_wrap=True)
    if "left out" in told:
        reason = f"the language model was left out: {told['left out']}"
        console.print(Text(reason, style="yellow"), soft_wrap=True)


def print_comparison(data: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints latencies of several engines, the fastest first, and which of them failed.

    An engine that has no latency is named with the reason, one that computes something else, too.

    Args:
        data: A ``foretune.compare/1`` object; ``latency_s`` maps an engine to an object with
            ``median``, ``low`` and ``high`` seconds (None where it failed, with an ``error``) and
            perhaps ``max_abs_error`` and ``within_tolerance``; ``max_abs_error`` may stand at the
            top level, too, by engine.
        console: Where to print; standard output if None.
    """
    console = console or _console()
    engines: dict[str, Mapping[str, Any]] = dict(data["latency_s"])
    differences = data.get("max_abs_error") or {}
    own = engines.get("foretune", {}).get("median")
    table = _table("engine", "median", "95 % interval", "foretune's gain", "difference")
    timed = {name: value for name, value in engines.items() if value.get("median") is not None}
    for name, value in sorted(timed.items(), key=lambda item: float(item[1]["median"])):
        error = value.get("max_abs_error")
        if error is None and isinstance(differences, Mapping):
            error = differences.get(name)
        gain = units.ratio(value["median"], own) if name != "foretune" else None
        table.add_row(
            Text(name, style="bold" if name == "foretune" else ""),
            units.seconds(value["median"]),
            f"{units.seconds(value.get('low'))} to {units.seconds(value.get('high'))}",
            units.factor(gain),
            units.UNKNOWN if error is None else f"{error:.2g}",
        )
    console.print(table)
    if not isinstance(differences, Mapping):
        console.print(f"largest difference of the outputs: {differences:.2g}")
    for name, value in timed.items():
        if value.get("within_tolerance") is False:
            told = "computes something else than the original: more than rounding explains"
            console.print(Text(f"{name} {told}", style="yellow"), soft_wrap=True)
        elif value.get("within_tolerance") is None and value.get("difference"):
            told = f"cannot be compared with the original: {value['difference']}"
            console.print(Text(f"{name} {told}", style="yellow"), soft_wrap=True)
    for name in [name for name in engines if name not in timed]:
        reason = engines[name].get("error") or "no reason given"
        console.print(Text(f"{name} could not be timed: {reason}", style="yellow"))


def print_hardware(hardware: Hardware, console: Console | None = None) -> None:
    """Prints what is known about a machine and the TVM target that was chosen."""
    console = console or _console()
    table = Table.grid(padding=(0, 2))
    for name, value in machine_facts(hardware).items():
        table.add_row(Text(name, style="bold"), Text(value or NOT_KNOWN, overflow="fold"))
    console.print(table)


def print_devices(devices: Mapping[str, Device], console: Console | None = None) -> None:
    """Prints data sheets in short, one line each; what is not known is ``?``."""
    console = console or _console()
    for kind, title in (("cpu", "CPU"), ("gpu", "GPU")):
        listed = [each for _, each in sorted(devices.items()) if each.kind == kind]
        if not listed:
            continue
        units = "cores" if kind == "cpu" else "units"
        lanes = "simd_fp32_lanes" if kind == "cpu" else "fp32_lanes"
        table = _table(title, units, "fp32 lanes", "MHz", "GFLOP/s", "GB/s")
        table.add_column("name", overflow="fold")
        names = (units, lanes, "boost_mhz", "peak_fp32_gflops", "memory_gb_per_s")
        for each in listed:
            figures = (each.factors.get(name) for name in names)
            told = ["?" if figure is None else f"{figure:,.10g}" for figure in figures]
            table.add_row(Text(each.key), *told, Text(each.name))
        console.print(table)


def print_proposal(proposal: Proposal, console: Console | None = None) -> None:
    """Prints what a language model made of a data sheet, with where each figure stands in it."""
    console = console or _console()
    units = {factor.name: factor.unit for factor in FACTORS}
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for heading in ("factor", "value", "unit", "in the text", "where"):
        table.add_column(heading, overflow="fold")
    for figure in proposal.figures:
        value = f"{figure.value:,.10g}"
        where = _quoted(proposal, figure)
        table.add_row(figure.name, value, units[figure.name], figure.found, Text(where))
    console.print(Text(f"{proposal.key}: {proposal.name} ({proposal.kind})", style="bold"))
    console.print(table)
    for name, reason in proposal.rejected:
        console.print(Text(f"rejected: {name!r}: {reason}"))
    if proposal.cut:
        console.print("the text is long: only its beginning was read")
    if proposal.missing:
        needed = ", ".join(proposal.missing)
        console.print(f"incomplete: {needed} must be filled in before --devices takes it")


def _quoted(proposal: Proposal, figure: Figure) -> str:
    """Where a figure stands, and what the table has in its place."""
    known = proposal.known
    ours = None if known is None else known.factors.get(figure.name)
    if known is None or ours is None or ours == figure.value:
        return figure.quote
    return f"{figure.quote} [{known.key} of the table: {ours:,.10g}]".lstrip()


def _console() -> Console:
    """Standard output; wide where it is a file or a pipe, whose width nobody can know."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)


def _shortened(name: str, room: int) -> str:
    """The end of a name tells operators of one network apart, so the beginning gives way."""
    return name if len(name) <= room else "…" + name[1 - room :]


def _table(first: str, *others: str) -> Table:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _weighted_seconds(task: Mapping[str, Any]) -> float:
    return float((task["best_s"] or units.before(task) or 0.0) * task["weight"])
