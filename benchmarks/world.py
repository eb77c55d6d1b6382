"""How well the world model orders programs, and what each of its parts brings.

The ranker ``world`` and its ablations (figure 9 of the paper, offline) on the split
``cpu/workload`` of ``benchmarks.models``, beside decisions alone; differences are paired, group by
group. Each variant learns its own world, and is kept like a cell of ``benchmarks.models``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.models import JOBS, groups_of, model_options, row_of
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, figure, table
from foretune.dataset import Group
from foretune.errors import unknown_name
from foretune.evaluate import PICKS, Bootstrap, GroupMetrics, cross_validation, random_order
from foretune.evaluate.fingerprints import fingerprint

FULL, NONE = "world", "gbdt_actions (state=none)"
VARIANTS: Mapping[str, str] = {
    FULL: "world:variants",
    NONE: "world:variants:state=none",
    **{
        words: f"world:variants:{words}"
        for words in (
            "state=final", "actions=false", "hardware=false", "objective=ndcg",
            "objective=regression", "transition=untrained", "transition=actions_only",
            "crossfit=false",
        )
    },
}  # fmt: skip
"""Row -> ranker. ``state=initial`` is ``NONE``, tree by tree: z0 is the same for all programs of a
workload, and trees read only what differs within workloads."""
METRICS = ("top1", "top5", "kendall_tau", "ndcg16")
_JOB = next(job for job in JOBS if job.name == "cpu/workload")


def value(metrics: GroupMetrics, name: str) -> float:
    """One of ``METRICS``."""
    if name.startswith("top"):
        return float(metrics.ratio[PICKS.index(int(name[3:]))])
    return float(getattr(metrics, name))


def compared(
    groups: Sequence[Group],
    judged: Mapping[str, Mapping[str, GroupMetrics]],
    base: str,
    metrics: Sequence[str],
) -> list[dict[str, Any]]:
    """Figures of every row, and differences to ``base`` on the same groups.

    Args:
        groups: All that were tested.
        judged: Row -> key of a group -> its metrics; not every row has all groups.
        base: A row.
        metrics: Names of ``METRICS``.
    """
    rows = []
    for name, own in judged.items():
        tested = [group for group in groups if group.key in own]
        if not tested:
            continue
        bootstrap = Bootstrap([group.workload for group in tested])
        row: dict[str, Any] = {"variant": name, "groups": len(tested)}
        for metric in metrics:
            values = np.array([value(own[group.key], metric) for group in tested])
            row[metric] = bootstrap.mean(values)
            theirs = judged.get(base, {})
            if name != base and all(group.key in theirs for group in tested):
                other = np.array([value(theirs[group.key], metric) for group in tested])
                row[f"{metric} - full"] = bootstrap.mean(values - other)
        rows.append(row)
    return rows


def with_difference(row: Mapping[str, Any], metric: str) -> str:
    """A figure of ``compared``, and behind it the difference to the base."""
    other = row.get(f"{metric} - full")
    return figure(row[metric]) + ("" if other is None else f"; {figure(other, '+')}")


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    rows = {row["variant"]: row for row in data["variants"]}
    full, none = rows[FULL], rows[NONE]
    names = {"top-1": "top1", "tau": "kendall_tau"}
    header = ["ranked by", *(f"{name}; beside `world`" for name in names)]
    random = [figure(data["random"][metric]) for metric in names.values()]
    lines = [["random order", *random]]
    lines += [
        [name, *(with_difference(row, metric) for metric in names.values())]
        for name, row in rows.items()
    ]
    gained = none["top1 - full"]
    return Section(
        "Does a predicted state of a program help to rank it?",
        f"{'No' if gained['high'] > 0 else 'Yes'}: trees on decisions alone reach a top-1 of "
        f"{figure(none['top1'])}, with predicted terminal states beside them "
        f"{full['top1']['mean']:.3f}; {figure(gained, '+')} for decisions alone.",
        table(header, lines),
        _READING.format(**data),
        lambda axes: _draw(axes, rows),
        "tau beside that of the world model, with 95 % intervals",
    )


def _draw(axes: Any, rows: Mapping[str, Mapping[str, Any]]) -> None:
    shown = [(name, row["kendall_tau - full"]) for name, row in rows.items() if name != FULL]
    for at, (_, found) in enumerate(shown[::-1]):
        axes.plot([found["low"], found["high"]], [at, at], color="C0")
        axes.plot(found["mean"], at, "o", color="C0")
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_yticks(range(len(shown)), [name for name, _ in shown[::-1]], fontsize=8)
    axes.set_xlabel("tau less that of the world model")


_READING = """\
{groups} groups of {workloads} workloads, {programs:,} programs, cross-validation by workload.
Behind each figure stands the paired difference to `world`; intervals: bootstrap over workloads,
95 %. `state=none` are trees on decisions alone, and so is `state=initial` by construction: the
initial state is the same for all programs of a workload. `state=final` has the program's own
terminal state, which costs the program; `actions=false` has predicted states alone;
`transition=actions_only` does not look at the initial state. Rows of `benchmarks.models` are its
cells of the same split."""


def main(arguments: list[str] | None = None) -> None:
    parser = model_options(__doc__)
    parser.add_argument("--variants", default=",".join(VARIANTS), help=f"{FULL} and {NONE} always")
    options = parser.parse_args(arguments)
    names = [name for name in options.variants.split(",") if name]
    for name in names:
        if name not in VARIANTS:
            raise unknown_name("variant of the world", name, VARIANTS)
    job = _JOB if options.programs is None else replace(_JOB, programs=options.programs)
    where = conditions("world", [0])
    groups = groups_of(job)
    parts = cross_validation(groups, job.by, job.folds)[: options.parts]
    tested = [group for part in parts for group in part.test]
    data = fingerprint(groups)
    judged = {
        name: row_of(job, parts, VARIANTS[name], options, data)[1]
        for name in dict.fromkeys((FULL, NONE, *names))
    }
    floors = [random_order(group.seconds) for group in tested]
    bootstrap = Bootstrap([group.workload for group in tested])
    result = {
        "schema": "foretune.world/3",
        "groups": len(tested),
        "workloads": len({group.workload for group in tested}),
        "programs": sum(map(len, tested)),
        "programs_per_group": job.programs,
        "random": {name: bootstrap.mean([value(one, name) for one in floors]) for name in METRICS},
        "variants": compared(tested, judged, FULL, METRICS),
    }
    publish("world", section, result, where.end(), options.write)


if __name__ == "__main__":
    main()
