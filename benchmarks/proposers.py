"""How often is an edit that a proposer suggests an improvement, on workloads that it has not seen?

Two questions, for ``random``, ``heuristic`` and ``learned``:

- *Known.* For a measured program, the measured programs that differ from it in one decision are
  edits whose outcome is known. The proposer picks the one it thinks most of. These are edits that
  random draws and an evolutionary search happened to make, so the figures compare proposers and
  say little about a search.
- *Predicted.* The proposer edits measured programs freely, and a judge says whether that is an
  improvement: the default cost model, which has learned from all workloads, the tested one
  included, and from all measurements of that workload in a run. The proposers see neither.

The policy is trained anew for every fold of workloads (5 folds, split by family), and tested on the
fold that it did not see. ``--train`` trains it on everything and writes the weights that ship.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT, conditions, publish, say, table, versions
from foretune import cost
from foretune._files import write_json
from foretune.dataset import Group
from foretune.evaluate import read_data, refuse_excluded
from foretune.evaluate.splits import cross_validation
from foretune.evaluate.summary import Bootstrap
from foretune.measure import Measurement, Status
from foretune.records import Record
from foretune.search.proposers import Proposer, Situation, Variant
from foretune.search.proposers._policy import Policy, pairs_of, weights
from foretune.search.proposers._ranked import features_of
from foretune.search.proposers.heuristic import HeuristicProposer
from foretune.search.proposers.learned import LearnedProposer
from foretune.search.proposers.random import RandomProposer
from foretune.space import Space

DATA = ROOT / "data" / "cpu"
BETTER = 0.03
"""log2 of a speed-up above which an edit counts as an improvement: 2 %, twice the noise."""
_CLIP = 2.0
_TITLE = "Proposers on workloads they have not learned from"
_KNOWN = ("improved", "gain", "chance", "possible")
_PREDICTED = ("improved", "gain")

Worth = Callable[[Any, Any], Any]


def space_of(group: Group) -> Space:
    """The sketches that occur in a group, as a space."""
    candidates = [p.candidate for p in group.programs if p.candidate is not None]
    sketches = {c.sketch.key: c.sketch for c in candidates}
    return Space(candidates[0].workload, candidates[0].hardware, tuple(sketches.values()))


def known(group: Group, proposer: Any) -> list[float] | None:
    """Means over programs with two measured neighbours at least; None if there is no such program.

    Returns:
        Share of the picks that improve, their mean gain, the share among all neighbours, and the
        share of programs that have an improving neighbour.
    """
    pairs = pairs_of(group, 1)
    if not len(pairs.gain):
        return None
    used, where = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    programs: list[Any] = [group.programs[i].candidate for i in used.tolist()]
    first, second = where.reshape(2, -1)
    if isinstance(proposer, RandomProposer) and not hasattr(proposer, "worth"):
        worth = np.random.default_rng(0).random(len(first))
    else:
        features = features_of(programs)
        worth = proposer.worth(features[first], features[second], group.machine)
    gain, rows = np.clip(pairs.gain, -_CLIP, _CLIP), []
    for program in np.unique(first):
        edits = np.flatnonzero(first == program)
        if len(edits) > 1:
            pick = gain[edits[np.argmax(worth[edits])]]
            better = gain[edits] > BETTER
            rows.append([pick > BETTER, pick, better.mean(), better.any()])
    return np.mean(rows, axis=0).tolist() if rows else None


def predicted(
    group: Group, proposer: Proposer, judge: Any, programs: int, edits: int
) -> list[float]:
    """Share of proposed edits of fast programs that the judge prefers, and their mean gain."""
    order = np.argsort(np.nan_to_num(group.seconds, nan=np.inf), kind="stable")
    quarter = order[: max(1, int(group.valid.sum()) // 4)]
    chosen = np.random.default_rng(0).permutation(quarter)[:programs]
    parents: list[Any] = [group.programs[i].candidate for i in chosen.tolist()]
    proposed = proposer.propose([Situation(Variant(parent), edits) for parent in parents])
    flat = [edit for found in proposed for edit in found]
    scores = judge.predict([*parents, *flat]).score
    before = np.repeat(scores[: len(parents)], [len(found) for found in proposed])
    gain = scores[len(parents) :] - before
    return [float((gain > BETTER).mean()), float(np.clip(gain, -_CLIP, _CLIP).mean())]


def judge_of(group: Group) -> Any:
    """The default cost model with all measurements of a group."""
    model = cost.create("gbdt", rng=0, hardware=group.machine)
    records = []
    for program, seconds in zip(group.programs, group.seconds.tolist(), strict=True):
        ran = seconds == seconds
        measurement = (
            Measurement(Status.OK, (seconds,), (True,))
            if ran
            else Measurement(Status.RUN_ERROR, message="failed")
        )
        candidate: Any = program.candidate
        records.append(
            Record(
                workload=candidate.workload.key,
                hardware=candidate.hardware.key,
                candidate_key=candidate.key,
                decisions={},
                measurement=measurement,
                origin="judge",
                candidate=candidate,
            )
        )
    model.update(records)
    return model


def evaluate(groups: Sequence[Group], folds: int, per_workload: int) -> dict[str, Any]:
    """Both questions, with intervals from a bootstrap over workloads."""
    found: dict[str, dict[str, list[tuple[str, list[float]]]]] = {}
    for number, split in enumerate(cross_validation(groups, "workload", folds=folds)):
        policy, pairs = Policy.train([*split.train, *split.validation])
        say(f"fold {number}: {pairs} pairs to learn from, {len(split.test)} groups to test on")
        judged: dict[str, int] = {}
        for group in split.test:
            space = space_of(group)
            makers: dict[str, Callable[[], Any]] = {
                "random": lambda s=space: RandomProposer(s, np.random.default_rng(0)),
                "heuristic": lambda s=space: HeuristicProposer(s, np.random.default_rng(0)),
                "learned": lambda s=space, p=policy: LearnedProposer(
                    s, np.random.default_rng(0), policy=p
                ),
            }
            judged[group.workload] = judged.get(group.workload, 0) + 1
            judge = judge_of(group) if judged[group.workload] <= per_workload else None
            for name, make in makers.items():
                rows = found.setdefault(name, {"known": [], "predicted": []})
                row = known(group, make())
                if row is not None:
                    rows["known"].append((group.workload, row))
                if judge is not None:
                    row = predicted(group, make(), judge, 4, 8)
                    rows["predicted"].append((group.workload, row))
        for name, questions in found.items():
            means = {q: np.mean([r[:2] for _, r in rows], axis=0) for q, rows in questions.items()}
            say(f"so far {name}: " + ", ".join(f"{q} {m.round(3)}" for q, m in means.items()))
    return {
        name: {
            question: _summary(rows, _KNOWN if question == "known" else _PREDICTED)
            for question, rows in questions.items()
        }
        for name, questions in found.items()
    }


def _summary(rows: Sequence[tuple[str, list[float]]], names: Sequence[str]) -> dict[str, Any]:
    bootstrap = Bootstrap([workload for workload, _ in rows])
    columns = np.array([values for _, values in rows]).T
    return {"groups": len(rows)} | {
        name: bootstrap.mean(column) for name, column in zip(names, columns, strict=True)
    }


def train(groups: Sequence[Group], paths: Sequence[str], command: str) -> Path:
    """Trains on everything, writes the weights that ship and what they were made of."""
    refuse_excluded(groups)
    began = time.process_time()
    policy, pairs = Policy.train(groups)
    path = Path(str(weights("llvm")))
    path.parent.mkdir(exist_ok=True)
    policy.save(path)
    provenance = {
        "command": command,
        "data": list(paths),
        "groups": len(groups),
        "workloads": sorted({group.workload for group in groups}),
        "hardware": sorted({group.hardware for group in groups}),
        "pairs": pairs,
        "train_cpu_s": time.process_time() - began,
        "versions": versions(),
    }
    write_json(path.with_suffix(".json"), provenance)
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=str(DATA))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--per-workload", type=int, default=1, help="groups a judge is made for")
    parser.add_argument("--train", action="store_true", help="write the weights that ship, no more")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    groups = read_data([options.data]).groups
    if options.train:
        # Relative to the repository: the weights are the same wherever it lies.
        shown = str(Path(options.data).resolve()).removeprefix(f"{ROOT.resolve()}/")
        print(train(groups, [shown], "python -m benchmarks.proposers --train"))
        return
    where = conditions("proposers", [0])
    result = evaluate(groups, options.folds, options.per_workload)
    publish("proposers", _TITLE, _body(result), {"proposers": result}, where.end(), options.write)


def _body(result: dict[str, Any]) -> str:
    def cell(row: dict[str, float]) -> str:
        return f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f})"

    known_rows = [
        [name, cell(r["known"]["improved"]), cell(r["known"]["gain"])] for name, r in result.items()
    ]
    predicted_rows = [
        [name, cell(r["predicted"]["improved"]), cell(r["predicted"]["gain"])]
        for name, r in result.items()
    ]
    some = next(iter(result.values()))["known"]
    header = ["proposer", f"edits that improve by {2**BETTER - 1:.0%} or more", "mean gain, log2"]
    return "\n\n".join(
        [
            "Known edits of measured programs: the one that the proposer thinks most of. "
            f"{some['groups']} groups; a neighbour drawn at random improves in "
            f"{some['chance']['mean']:.3f} of the cases, and {some['possible']['mean']:.3f} of the "
            "programs have a neighbour that does. Gains are clipped to +-2; intervals: bootstrap "
            "over workloads, 95 %.",
            table(header, known_rows),
            "Edits proposed for programs of the fastest quarter, as the default cost model sees "
            "them, which knows all measurements of the workload:",
            table(header, predicted_rows),
        ]
    )


if __name__ == "__main__":
    main()
