"""What the committed data set holds, and how well its labels repeat.

Reads the data set only: the second measurements are made by ``foretune collect --audit``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results import ROOT, conditions, publish, table
from foretune.collect import log_ratios, measured_twice, summarise_audit
from foretune.collect.collector import describe
from foretune.dataset import AUDIT, Dataset, Group, is_valid, read_dataset
from foretune.errors import BadInputError
from foretune.evaluate import Bootstrap, judge, keep_judgeable, summarise

_TITLE = "The data set, and its noise"
GOAL = 0.02
DATA = (ROOT / "data" / "cpu",)
"""What everything is trained on."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=DATA)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("audit", [])
    found = {path.name: _summary_of(path) for path in options.data}
    page = "\n\n".join(f"## `{name}`\n\n{body(result)}" for name, result in found.items())
    publish("audit", _TITLE, page, {"data": found}, where.end(), options.write)


def _summary_of(path: Path) -> dict[str, Any]:
    return summary(read_dataset(path), sum(file.stat().st_size for file in path.iterdir()))


def summary(data: Dataset, size: int) -> dict[str, Any]:
    """Counts, and the distribution of the ratio of second to first measurement."""
    records = [r for r in data.records if r.origin != AUDIT]
    valid = [r for r in records if is_valid(r.measurement)]
    quiet = [r for r in valid if any(r.measurement.quiet)]
    groups = data.groups()
    try:
        audit = summarise_audit(data.records).to_json()
        logs = log_ratios(measured_twice(data.records))
        audit["second_measurement"] = ranked_with_noise(groups, logs)
        audit["half_the_noise"] = ranked_with_noise(groups, logs / np.sqrt(2.0))
    except BadInputError:
        audit = None
    return {
        "bytes": size,
        "records": len(records),
        "valid": len(valid),
        "quiet": len(quiet),
        "groups": len(groups),
        "workloads": len({r.workload for r in records}),
        "kinds": _workloads_by_kind(data),
        "status": dict(Counter(r.measurement.status.value for r in records)),
        "origin": dict(Counter(r.origin for r in records)),
        "hardware": _by_hardware(data),
        "spread": _spread([g.seconds[g.valid].max() / g.seconds[g.valid].min() for g in groups]),
        "skipped": dict(data.skipped),
        "audit": audit,
    }


def ranked_with_noise(
    groups: Sequence[Group], logs: npt.NDArray[np.float64], seed: int = 0
) -> dict[str, Any]:
    """The metrics of who ranks by seconds that differ from the labels by chance alone.

    The ratio of two measurements has the noise of both, so that who knew what programs really take
    would do better than a second measurement.

    Args:
        groups: Whose labels are judged.
        logs: Log ratios that differences are drawn from.
        seed: Of what is drawn.
    """
    rng = np.random.default_rng(seed)
    kept, _few = keep_judgeable(groups)
    judged = [judge(-np.log(g.seconds) - rng.choice(logs, len(g)), g.seconds, rng) for g in kept]
    return summarise(kept, judged, Bootstrap([g.workload for g in kept]))


def _workloads_by_kind(data: Dataset) -> dict[str, int]:
    used = {r.workload for r in data.records}
    counts = Counter(data.workloads[key].kind for key in used)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _by_hardware(data: Dataset) -> list[dict[str, Any]]:
    rows = []
    for key, hardware in sorted(data.hardware.items(), key=lambda item: describe(item[1])):
        mine = [r for r in data.records if r.hardware == key and r.origin != AUDIT]
        valid = [r for r in mine if is_valid(r.measurement)]
        rows.append(
            {
                "name": hardware.name,
                "variant": describe(hardware),
                "peak_gflops": hardware.peak_gflops,
                "records": len(mine),
                "valid": len(valid),
                "quiet": sum(any(r.measurement.quiet) for r in valid),
                "workloads": len({r.workload for r in mine}),
            }
        )
    return rows


def _spread(ratios: list[float]) -> dict[str, float]:
    """Quantiles over groups of slowest / fastest program."""
    quantiles = np.quantile(ratios, (0.1, 0.5, 0.9)) if ratios else (float("nan"),) * 3
    return dict(zip(("p10", "median", "p90"), map(float, quantiles), strict=True))


def body(result: dict[str, Any]) -> str:
    """The page."""
    hardware = table(
        ["processor", "variant", "GFLOP/s", "workloads", "records", "valid", "quiet"],
        [
            [
                row["name"],
                row["variant"],
                f"{row['peak_gflops']:.0f}",
                str(row["workloads"]),
                f"{row['records']:,}",
                f"{row['valid']:,}",
                f"{row['quiet'] / max(row['valid'], 1):.0%}",
            ]
            for row in result["hardware"]
        ],
    )
    kinds = ", ".join(f"{kind} {count}" for kind, count in result["kinds"].items())
    status = ", ".join(f"{name} {count:,}" for name, count in result["status"].items())
    origin = ", ".join(f"{name} {count:,}" for name, count in result["origin"].items())
    spread = result["spread"]
    lines = [
        f"{result['records']:,} records, {result['valid']:,} of them valid, in "
        f"{result['groups']} groups of {result['workloads']} workloads, "
        f"{result['bytes'] / 1e6:.1f} MB.",
        hardware,
        f"- Workloads by operator kind: {kinds}.",
        f"- Status: {status}. Origin: {origin}.",
        f"- Slowest over fastest program of a group: median {spread['median']:.1f}, from "
        f"{spread['p10']:.1f} to {spread['p90']:.1f} in 80 % of the groups.",
        "- Quiet: at least one reading had the canary at its floor before and after it, and nobody "
        "took the cores meanwhile; the other records are marked.",
    ]
    return "\n\n".join([*lines[:2], "\n".join(lines[2:]), _audit(result["audit"])])


def _audit(audit: dict[str, Any] | None) -> str:
    if audit is None:
        return "Not audited yet."
    met = "met" if audit["median"] < GOAL else "missed"
    second, half = (_shares(audit[name]) for name in ("second_measurement", "half_the_noise"))
    rows = [
        ["all", *(f"{audit[name]:.4f}" for name in ("median", "p95"))],
        ["quiet both times", *(f"{audit[f'{name}_quiet']:.4f}" for name in ("median", "p95"))],
    ]
    return "\n\n".join(
        [
            f"### Measured twice\n\n{audit['pairs']} programs drawn at random, "
            f"{audit['hours']:.1f} h apart (median); absolute log ratio of the seconds. Goal: "
            f"median below {GOAL}: {met}.",
            table(["records", "median", "95th percentile"], rows),
            f"The worst ratio is {np.exp(audit['worst']):.2f}; the signed median is "
            f"{audit['bias']:+.4f}; {audit['changed']} programs ran in one of the two only.",
            "Whoever ranks all groups by a second measurement, its ratios to the first drawn from "
            f"these, reaches {second}; with half the variance {half}. Who knew what programs "
            "really take would differ from the labels by one measurement's noise, not by two, and "
            "do better than the first; by how much these pairs do not tell.",
        ]
    )


def _shares(metrics: dict[str, Any]) -> str:
    return ", ".join(
        f"{title} {metrics[name]['mean']:.3f}"
        for title, name in (("top-1", "top1"), ("top-5", "top5"), ("tau", "kendall_tau"))
    )


if __name__ == "__main__":
    main()
