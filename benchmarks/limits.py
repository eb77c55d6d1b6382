"""What limits the best ranker: workloads to learn from, programs of each, or what features tell.

The same programs are ordered by rankers that differ in nothing but what they have learned from. A
control has seen other programs of the very workloads that it is judged on, which no model of
``benchmarks.models`` may; what it does not reach is out of reach of more workloads, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._model.cells import is_network
from benchmarks.results import ROOT, conditions, publish, say, table
from foretune.cost import rankers
from foretune.cost._ranker import score_group
from foretune.dataset import Group, judgeable
from foretune.evaluate import Bootstrap, cross_validation, keep_judgeable, read_data, summarise
from foretune.evaluate.data import thinned
from foretune.evaluate.metrics import judge

_TITLE = "What limits a ranker"
_SHARES = (0.25, 0.5)
_DEEP = {"depth": 9, "min_child_weight": 3.0}
"""Trees that may learn workloads by heart."""
_METRICS = ("top1", "top5", "kendall_tau", "ndcg16")

Judged = Mapping[str, Any]


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
        self._judged = {key: pair[1] for key, pair in cut.items() if pair is not None}
        whole = [group for group in groups if group.key in self._judged]
        self._parts = cross_validation(whole, "workload", folds, seed=seed)
        self._model, self._seed, self._options = model, seed, options
        self._bootstrap = Bootstrap([group.workload for group in self._judged.values()])

    @property
    def size(self) -> tuple[int, int]:
        """Groups that are judged, and their programs."""
        return len(self._judged), sum(map(len, self._judged.values()))

    def left_out(self, what: str, learned: Callable[[Group], Group | None]) -> dict[str, Any]:
        """Learns from other workloads: of every group what ``learned`` leaves of it."""
        started = time.perf_counter()
        judged: dict[str, Any] = {}
        for part in self._parts:
            groups = [learned(group) for group in (*part.train, *part.validation)]
            tested = [self._judged[group.key] for group in part.test]
            judged |= self._judge([g for g in groups if g is not None], tested)
        return self._row(what, judged, started)

    def seen(self, what: str, **options: Any) -> dict[str, Any]:
        """The control: learns from the first halves of all groups."""
        started = time.perf_counter()
        judged = self._judge(list(self._known.values()), list(self._judged.values()), **options)
        return self._row(what, judged, started)

    def rows(self) -> list[dict[str, Any]]:
        """Every way to learn."""
        rows = []
        for share in _SHARES:
            kept = {g.workload for g in some_workloads(self._all(), share, self._seed)}
            rows.append(
                self.left_out(
                    f"{share:.0%} of the other workloads",
                    lambda group, kept=kept: group if group.workload in kept else None,
                )
            )
        rows.append(
            self.left_out(
                "half of the programs of all other workloads", lambda g: self._known[g.key]
            )
        )
        rows.append(self.left_out("all programs of all other workloads", lambda group: group))
        rows.append(self.seen("control: the other half of its own programs, too"))
        if self._model.startswith("gbdt"):
            rows.append(self.seen("the same control with deep trees", **_DEEP))
        return rows

    def _all(self) -> list[Group]:
        return list(self._judged.values())

    def _judge(
        self, learned: Sequence[Group], tested: Sequence[Group], **options: Any
    ) -> dict[str, Any]:
        ranker = rankers.create(self._model, seed=self._seed, **self._options, **options)
        ranker.fit(learned)
        rng = np.random.default_rng(self._seed)
        return {
            group.key: judge(score_group(ranker, group), group.seconds, rng) for group in tested
        }

    def _row(self, what: str, judged: Judged, started: float) -> dict[str, Any]:
        tested = self._all()
        metrics = summarise(tested, [judged[group.key] for group in tested], self._bootstrap)
        top = metrics["top1"]["mean"]
        say(f"{what}: top-1 {top:.3f} ({time.perf_counter() - started:.0f} s)")
        return {"learned_from": what, "metrics": metrics}


def _body(result: Mapping[str, Any]) -> str:
    rows = [
        [
            row["learned_from"],
            *(
                f"{m['mean']:.3f} ({m['low']:.3f}–{m['high']:.3f})"
                for m in (row["metrics"][name] for name in _METRICS)
            ),
        ]
        for row in result["rows"]
    ]
    return "\n\n".join(
        [
            f"`{result['model']}` on the second halves of {result['groups']} groups "
            f"({result['programs']:,} programs) of {result['data']}. Halves make top-k easier "
            "than whole groups, so that figures compare within this table only. Intervals: "
            "bootstrap over workloads, "
            "95 %.",
            table(["learned from", "top-1", "top-5", "tau", "NDCG@16"], rows),
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--programs", type=int, help="of each group, at most")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of networks"
    )
    parser.add_argument("--name", default="limits", help="file name of the result")
    parser.add_argument("--model", default="gbdt_actions")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--features",
        type=Path,
        default=Path("foretune-work/models/features"),
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
    if rankers.reads_programs(options.model):
        chosen["cache"] = options.features
    study = Study(groups, options.model, options.folds, options.seed, **chosen)
    count, programs = study.size
    result = {
        "schema": "foretune.limits/1",
        "model": options.model,
        "data": options.data.name,
        "groups": count,
        "programs": programs,
        "rows": study.rows(),
    }
    publish(options.name, _TITLE, _body(result), result, where.end(), options.write)


if __name__ == "__main__":
    main()
