"""What limits the best ranker: workloads to learn from, programs of each, or what features tell.

The same programs are ordered by rankers that differ in nothing but what they have learned from. A
control has seen other programs of the very workloads that it is judged on, which no model of
``benchmarks.models`` may; what it does not reach is out of reach of more workloads, too. What is
written replaces the run of the same model with as many programs, and leaves the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._rankers import is_network
from benchmarks.models import FEATURES
from benchmarks.pages import Section, curves, publish
from benchmarks.results import ROOT, conditions, figure, quoted, readings_of, say, table
from foretune.cost import rankers, score_group
from foretune.dataset import Group, judgeable
from foretune.evaluate import (
    Bootstrap,
    cross_validation,
    judge,
    keep_judgeable,
    read_data,
    summarise,
    thinned,
)

_SHARES = {0.25: "25% of the other workloads", 0.5: "50% of the other workloads"}
_HALF, _ALL = "half of the programs of all other workloads", "all programs of all other workloads"
_CONTROL = "control: the other half of its own programs, too"
_BY_HEART = "the same control with deep trees"
_DEEP = {"depth": 9, "min_child_weight": 3.0}
"""Trees that may learn workloads by heart."""
_METRICS = {"top-1": "top1", "top-5": "top5", "tau": "kendall_tau", "NDCG@16": "ndcg16"}


def halves(group: Group, rng: np.random.Generator) -> tuple[Group, Group] | None:
    """Two random halves of the programs of a group; None if one of them cannot be judged."""
    order = rng.permutation(len(group))
    sides = [np.sort(part) for part in np.array_split(order, 2)]
    if not all(judgeable(group.seconds[side]) for side in sides):
        return None
    first, second = map(group.subset, sides)
    return first, second


def some_workloads(groups: Sequence[Group], share: float, seed: int) -> list[Group]:
    """The groups of a random share of the workloads."""
    keys = sorted({group.workload for group in groups})
    rng = np.random.default_rng(seed)
    kept = set(rng.choice(keys, max(1, round(share * len(keys))), replace=False).tolist())
    return [group for group in groups if group.workload in kept]


class Study:
    """Every way to learn, judged on the second halves of all groups.

    Args:
        groups: Judgeable groups.
        model: Name of a ranker.
        folds: Folds of workloads.
        seed: Of the halves, of what is drawn, and of the ranker.
        options: Of the ranker.
    """

    def __init__(
        self, groups: Sequence[Group], model: str, folds: int, seed: int, **options: Any
    ) -> None:
        rng = np.random.default_rng(seed)
        cut = {group.key: halves(group, rng) for group in groups}
        self._known = {key: pair[0] for key, pair in cut.items() if pair is not None}
        self.judged = {key: pair[1] for key, pair in cut.items() if pair is not None}
        whole = [group for group in groups if group.key in self.judged]
        self._parts = cross_validation(whole, "workload", folds, seed=seed)
        self._model, self._seed, self._options = model, seed, options
        self._bootstrap = Bootstrap([group.workload for group in self.judged.values()])

    def left_out(self, what: str, learned: Callable[[Group], Group | None]) -> dict[str, Any]:
        """Learns from other workloads: of every group what ``learned`` leaves of it."""
        judged: dict[str, Any] = {}
        for part in self._parts:
            groups = [learned(group) for group in (*part.train, *part.validation)]
            tested = [self.judged[group.key] for group in part.test]
            judged |= self._judge([g for g in groups if g is not None], tested)
        return self._row(what, judged)

    def seen(self, what: str, **options: Any) -> dict[str, Any]:
        """The control: learns from the first halves of all groups."""
        judged = self._judge(list(self._known.values()), list(self.judged.values()), **options)
        return self._row(what, judged)

    def rows(self) -> list[dict[str, Any]]:
        """Every way to learn."""
        rows = []
        for share, words in _SHARES.items():
            drawn = some_workloads(list(self.judged.values()), share, self._seed)
            kept = {group.workload for group in drawn}
            rows.append(
                self.left_out(words, lambda g, kept=kept: g if g.workload in kept else None)
            )
        rows.append(self.left_out(_HALF, lambda group: self._known[group.key]))
        rows.append(self.left_out(_ALL, lambda group: group))
        rows.append(self.seen(_CONTROL))
        if self._model.startswith("gbdt"):
            rows.append(self.seen(_BY_HEART, **_DEEP))
        return rows

    def _judge(
        self, learned: Sequence[Group], tested: Sequence[Group], **options: Any
    ) -> dict[str, Any]:
        ranker = rankers.create(self._model, seed=self._seed, **self._options, **options)
        ranker.fit(learned)
        rng = np.random.default_rng(self._seed)
        return {
            group.key: judge(score_group(ranker, group), group.seconds, rng) for group in tested
        }

    def _row(self, what: str, judged: Mapping[str, Any]) -> dict[str, Any]:
        tested = list(self.judged.values())
        metrics = summarise(tested, [judged[group.key] for group in tested], self._bootstrap)
        say(f"{what}: top-1 {metrics['top1']['mean']:.3f}")
        return {"learned_from": what, "metrics": metrics}


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    runs = data["runs"]
    words = (*_SHARES.values(), _HALF, _ALL, _CONTROL)
    found = {
        _called(run): {row["learned_from"]: row["metrics"] for row in run["rows"]} for run in runs
    }
    name, first = next(iter(found.items()))
    quarter, half, every, all_, control = (first[each]["top1"] for each in words)
    lines = [
        [each, *(figure(rows[what]["top1"]) for what in words)] for each, rows in found.items()
    ]
    points = {
        each: [
            (100 * share, *(rows[what]["top1"][end] for end in ("mean", "low", "high")))
            for share, what in {**_SHARES, 1.0: _ALL}.items()
        ]
        for each, rows in found.items()
    }
    details = []
    for run in runs:
        rows = [
            [row["learned_from"], *(figure(row["metrics"][m]) for m in _METRICS.values())]
            for row in run["rows"]
        ]
        ran = run["conditions"]
        details += [
            f"#### {_called(run)}",
            f"Second halves of {run['groups']} groups ({run['programs']:,} programs) of "
            f"{run['data']}; {quoted(ran['command'])} on {ran['hardware']['name']}, "
            f"{ran['began']}.",
            table(["learned from", *_METRICS], rows),
        ]
    return Section(
        "What would make rankers better?",
        f"Other workloads, a little: `{name}` has a top-1 of {quarter['mean']:.3f}, "
        f"{half['mean']:.3f} and {figure(all_)} with a quarter, half and all of them; twice the "
        f"programs of each bring {every['mean']:.3f} to {all_['mean']:.3f}, and who has seen half "
        f"of the programs of the very workload reaches {figure(control)}.",
        table(["top-1 of", "a quarter of the workloads", "half", "half of the programs of all",
               "all", "control: its own other half, too"], lines),
        "Halves of groups are judged, which are easier than whole ones: figures compare within a "
        "run. "
        "Intervals: bootstrap over workloads, 95 %.\n\n" + "\n\n".join(details),
        lambda axes: curves(axes, points, "% of the other workloads learned from", "top-1"),
        "top-1 by share of the workloads learned from",
    )  # fmt: skip


def _called(run: Mapping[str, Any]) -> str:
    return f"{run['model']}, {run['per_group'] or 'all'} programs of a group"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--programs", type=int, help="of each group, at most")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of networks"
    )
    parser.add_argument("--model", default="gbdt_actions")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--features",
        type=Path,
        default=FEATURES,
        help="folder in which features of programs are kept; benchmarks.models fills the default",
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("limits", [options.seed])
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    if options.programs is not None:
        groups, _few = keep_judgeable(thinned(groups, options.programs, options.seed))
    chosen: dict[str, Any] = {}
    if is_network(options.model):
        chosen["precision"] = options.precision
    if rankers.needs(options.model).programs:
        chosen["cache"] = options.features
    study = Study(groups, options.model, options.folds, options.seed, **chosen)
    run = {
        "model": options.model,
        "per_group": options.programs,
        "data": options.data.name,
        "groups": len(study.judged),
        "programs": sum(map(len, study.judged.values())),
        "rows": study.rows(),
        "conditions": where.end(),
    }
    known = (readings_of("limits") or {"runs": []})["runs"] if options.write else []
    kept = [one for one in known if _called(one) != _called(run)]
    data = {"schema": "foretune.limits/2", "runs": [run, *kept]}
    publish("limits", section, data, run["conditions"], options.write)


if __name__ == "__main__":
    main()
