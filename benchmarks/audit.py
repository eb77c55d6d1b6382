"""Does a label repeat? How far second measurements of a data set's programs are from the first.

Reads the data set only: the second measurements are made by ``foretune collect --audit``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pages import Section, publish
from benchmarks.results import ROOT, conditions, table
from foretune.collect import log_ratios, measured_twice, summarise_audit
from foretune.collect.collector import describe
from foretune.dataset import AUDIT, Dataset, Group, is_valid, read_dataset
from foretune.engines import bootstrap_median
from foretune.errors import BadInputError
from foretune.evaluate import Bootstrap, judge, keep_judgeable, summarise
from foretune.hardware import probe

PAGE = "labels"
GOAL = 0.02
DATA = (ROOT / "data" / "cpu",)
"""What everything is trained on."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks audit", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=DATA)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("audit", [], probe())
    found = {path.name: summary(read_dataset(path)) for path in options.data}
    publish(PAGE, section, {"data": found}, where.end(), options.write)


def summary(data: Dataset) -> dict[str, Any]:
    """How many records of a data set are quiet, and how second measurements differ from the first.

    Returns:
        ``audit`` has the distribution of log(second / first seconds), ``log_ratios`` themselves and
        the metrics of who ranks by a second measurement; None where nothing was measured twice.
    """
    try:
        audit = summarise_audit(data.records).to_json()
        logs = log_ratios(measured_twice(data.records))
        audit["log_ratios"] = logs.round(5).tolist()
        audit["second_measurement"] = ranked_with_noise(data.groups(), logs)
    except BadInputError:
        audit = None
    return {"hardware": _by_hardware(data), "audit": audit}


def ranked_with_noise(
    groups: Sequence[Group], logs: npt.NDArray[np.float64], seed: int = 0
) -> dict[str, Any]:
    """The metrics of who ranks by seconds that differ from the labels by chance alone.

    Args:
        groups: Whose labels are judged.
        logs: Log ratios that differences are drawn from.
        seed: Of what is drawn.
    """
    rng = np.random.default_rng(seed)
    kept, _few = keep_judgeable(groups)
    judged = [judge(-np.log(g.seconds) - rng.choice(logs, len(g)), g.seconds, rng) for g in kept]
    return summarise(kept, judged, Bootstrap([g.workload for g in kept]))


def _by_hardware(data: Dataset) -> list[dict[str, Any]]:
    rows = []
    for key, hardware in sorted(data.hardware.items(), key=lambda item: describe(item[1])):
        mine = [r for r in data.records if r.hardware == key and r.origin != AUDIT]
        valid = [r for r in mine if is_valid(r.measurement)]
        rows.append(
            {
                "name": hardware.name,
                "variant": describe(hardware),
                "records": len(mine),
                "valid": len(valid),
                "quiet": sum(any(r.measurement.quiet) for r in valid),
                "workloads": len({r.workload for r in mine}),
            }
        )
    return rows


def section(data: Mapping[str, Any]) -> Section:
    """How labels repeat, and how many were quiet."""
    found: Mapping[str, Mapping[str, Any]] = data["data"]
    audited = {name: one["audit"] for name, one in found.items() if one["audit"]}
    header = ["data", "pairs", "hours between", "median", "95 of 100 within",
              "quiet both times: median", "95 of 100 within", "top-1", "tau"]  # fmt: skip
    return Section(
        "Does a label repeat?",
        _answer(*next(iter(audited.items())))
        if audited
        else "Not known yet: no program was measured twice (`foretune collect --audit`).",
        table(header, [_audit_row(name, audit) for name, audit in audited.items()]),
        _details(found),
        (lambda axes: _draw(axes, audited)) if audited else None,
        "Share of programs whose second measurement is within a difference of the first",
    )


def _details(found: Mapping[str, Mapping[str, Any]]) -> str:
    held = [
        [
            name,
            row["name"],
            row["variant"],
            *(f"{row[what]:,}" for what in ("workloads", "records", "valid")),
            f"{row['quiet'] / max(row['valid'], 1):.0%}",
        ]
        for name, one in found.items()
        for row in one["hardware"]
    ]
    header = ["data", "processor", "variant", "workloads", "records", "valid", "quiet"]
    return "\n\n".join(
        [
            "Differences are absolute log ratios of the seconds, in per cent. Top-1 and tau: what "
            "who ranks all groups by a second measurement reaches. Who knew what programs really "
            "take would differ from the labels by the noise of one measurement, not of two, and do "
            "better.",
            "#### Records",
            table(header, held),
            "Quiet: at least one reading had the canary at its floor before and after it, and "
            "nobody took the cores meanwhile. The other records are marked.",
        ]
    )


def _answer(name: str, audit: Mapping[str, Any]) -> str:
    low, high = bootstrap_median(np.abs(audit["log_ratios"]), 0)
    met = "met" if audit["median"] < GOAL else "missed"
    return (
        f"**Measured again {audit['hours']:.1f} hours later, a program of `{name}` differs by "
        f"{_percent(audit['median'])} [{_percent(low)}, {_percent(high)}] in the median** (goal "
        f"{_percent(GOAL)}: {met}), and one in twenty by more than {_percent(audit['p95'])}."
    )


def _audit_row(name: str, audit: Mapping[str, Any]) -> list[str]:
    quantiles = (audit[key] for key in ("median", "p95", "median_quiet", "p95_quiet"))
    metrics = audit["second_measurement"]
    return [
        name, str(audit["pairs"]), f"{audit['hours']:.1f}", *map(_percent, quantiles),
        *(f"{metrics[key]['mean']:.3f}" for key in ("top1", "kendall_tau")),
    ]  # fmt: skip


def _percent(log: float) -> str:
    return f"{log:.1%}".replace("%", " %")


def _draw(axes: Any, audited: Mapping[str, Mapping[str, Any]]) -> None:
    for name, audit in audited.items():
        shares = np.linspace(0.0, 1.0, 101)
        axes.plot(np.quantile(100 * np.abs(audit["log_ratios"]), shares), shares, label=name)
    axes.axvline(100 * GOAL, color="grey", linestyle=":", label="goal of the median")
    axes.set(xscale="log", xlim=(0.1, 300), xlabel="difference, %", ylabel="share of programs")
    axes.legend(frameon=False)


if __name__ == "__main__":
    main()
