"""Do schedules of other programs help? ``python -m benchmarks.portfolio``.

Searches of a few trials on training workloads of one hardware variant, which must be this machine:
with nothing suggested, and with the portfolio of all other workloads of the data (none that
computes the same). How near is the fastest program to the best that anybody has measured?

``--train`` fills the portfolio from all of the data and writes the file that ships.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.proposers import DATA, space_of
from benchmarks.results import ROOT, conditions, figure, publish, say, table, versions
from benchmarks.sources import state_of_ours
from foretune._files import write_json
from foretune.dataset import Group
from foretune.evaluate import read_data, refuse_excluded
from foretune.evaluate.families import families
from foretune.evaluate.fingerprints import fingerprint
from foretune.evaluate.summary import Bootstrap
from foretune.hardware import why_not_here
from foretune.measure import LocalMeasurer, Measurer
from foretune.search import portfolio as portfolios
from foretune.search.portfolio import Portfolio
from foretune.tuning import Task

_TITLE = "Schedules of other programs in the first batches"
_TRIALS, _BATCH = 16, 8
_SIDES: Mapping[str, Mapping[str, Any]] = {
    "nothing suggested": {"suggested": 0.0},
    "suggested": {},
}


def filled(groups: Sequence[Group]) -> Portfolio:
    """The portfolio of all programs of groups that ran."""
    found = Portfolio()
    for group in groups:
        for program, seconds in zip(group.programs, group.seconds.tolist(), strict=True):
            if program.candidate is not None and not np.isnan(seconds):
                found.add(program.candidate, seconds)
    return found


def train(groups: Sequence[Group], paths: Sequence[str], command: str) -> Path:
    """Writes the portfolio that ships, and what it was made of."""
    refuse_excluded(groups)
    kinds = {group.machine.kind for group in groups if group.machine is not None}
    if len(kinds) != 1:
        raise SystemExit(f"a portfolio is for one kind of target, but the data has {sorted(kinds)}")
    path = Path(str(portfolios.file_of(*kinds)))
    path.parent.mkdir(exist_ok=True)
    made = filled(groups)
    made.save(path)
    provenance = {
        "command": command,
        "data": list(paths),
        "groups": len(groups),
        "programs": len(made),
        "workloads": sorted({group.workload for group in groups}),
        "hardware": sorted({group.hardware for group in groups}),
        "versions": versions(),
    }
    write_json(path.with_name(path.name.replace(".json.gz", ".json")), provenance)
    return path


def chosen(groups: Sequence[Group], hardware: str, count: int) -> list[Group]:
    """``count`` workloads of a hardware, the kinds in turn, those with most programs first."""
    mine = [group for group in groups if group.hardware == hardware]
    rng = np.random.default_rng(0)
    by_kind: dict[str, list[Group]] = {}
    for at in rng.permutation(len(mine)).tolist():
        by_kind.setdefault(mine[at].kind, []).append(mine[at])
    found: list[Group] = []
    while len(found) < count and any(by_kind.values()):
        found += [queue.pop() for queue in by_kind.values() if queue]
    return found[:count]


def search(
    group: Group, portfolio: Portfolio, measurer: Measurer, seed: int, **options: Any
) -> list[float]:
    """The fastest seconds after each trial of a short search."""
    space = space_of(group)
    task = Task(
        space.workload, space.hardware, space=space, seed=seed, options=options,
        portfolio=Portfolio(portfolio),
    )  # fmt: skip
    while task.spent < _TRIALS:
        asked = task.ask(min(_BATCH, _TRIALS - task.spent))
        if not asked:
            break
        best = {} if task.best_s is None else {space.workload.key: task.best_s}
        task.tell(list(measurer.measure(asked, best)))
    return [float("inf") if trial.best_s is None else trial.best_s for trial in task.trials]


def study(
    groups: Sequence[Group], tested: Sequence[Group], seeds: Sequence[int], folder: Path
) -> list[dict[str, Any]]:
    """One row per workload, seed and side; kept in a file, so that it goes on where it was.

    Another file holds the rows of other data, hardware, code or weights.
    """
    settings = {
        "groups": fingerprint(groups),
        "hardware": tested[0].hardware,
        "state": state_of_ours(),
    }
    digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=6).hexdigest()
    cells = folder / f"{digest}.jsonl"
    rows = [json.loads(line) for line in cells.read_text().splitlines()] if cells.is_file() else []
    wanted = {(group.workload, s, side) for group in tested for s in seeds for side in _SIDES}
    known = [row for row in rows if (row["workload"], row["seed"], row["side"]) in wanted]
    done = {(row["workload"], row["seed"], row["side"]) for row in known}
    family = families(groups)
    machine = tested[0].programs[0].candidate.hardware  # type: ignore[union-attr]
    reason = why_not_here(machine)
    if reason is not None:
        raise SystemExit(f"these programs cannot be measured here: {reason}")
    cells.parent.mkdir(parents=True, exist_ok=True)
    with LocalMeasurer(machine) as measurer, cells.open("a") as file:
        for group in tested:
            sides = [(s, side) for s in seeds for side in _SIDES]
            due = [(s, side) for s, side in sides if (group.workload, s, side) not in done]
            if not due:
                continue
            mine = family[group.workload]
            others = filled([g for g in groups if family[g.workload] != mine])
            for seed, side in due:
                began = time.perf_counter()
                curve = search(group, others, measurer, seed, **_SIDES[side])
                row = {
                    "workload": group.workload, "name": group.name, "kind": group.kind,
                    "seed": seed, "side": side, "best_s": curve,
                    "collected_s": float(np.nanmin(group.seconds)),
                    "seconds": time.perf_counter() - began,
                }  # fmt: skip
                known.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                say(f"{group.name} seed {seed} {side}: {row['collected_s'] / curve[-1]:.3f}")
    return known


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By side: the best known over the fastest after 8 and 16 trials, mean over workloads."""
    best: dict[str, float] = {}
    for row in rows:
        best[row["workload"]] = min(
            best.get(row["workload"], np.inf), row["collected_s"], *row["best_s"]
        )
    found = {}
    for side in _SIDES:
        mine = [row for row in rows if row["side"] == side]
        bootstrap = Bootstrap([row["workload"] for row in mine])
        found[side] = {
            f"{trials} trials": bootstrap.mean(
                [best[row["workload"]] / row["best_s"][:trials][-1] for row in mine]
            )
            for trials in (_BATCH, _TRIALS)
        }
    return found


def main(arguments: list[str] | None = None) -> None:
    """Trains, or searches and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=str(DATA))
    parser.add_argument("--train", action="store_true", help="write the file that ships, no more")
    parser.add_argument("--hardware", help="key of the variant to search on; default: the first")
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/portfolio"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    groups = read_data([options.data]).groups
    if options.train:
        shown = str(Path(options.data).resolve()).removeprefix(f"{ROOT.resolve()}/")
        print(train(groups, [shown], "python -m benchmarks.portfolio --train"))
        return
    seeds = list(range(options.seeds))
    where = conditions("portfolio", seeds)
    tested = chosen(groups, options.hardware or groups[0].hardware, options.workloads)
    rows = study(groups, tested, seeds, options.work_dir)
    found = summary(rows)
    columns = [f"{_BATCH} trials", f"{_TRIALS} trials"]
    body = (
        f"{len(tested)} training workloads, each searched with the default model, which has "
        "learned from it, and with the fastest schedules of all workloads that compute something "
        "else. Best known over fastest found; intervals over workloads.\n\n"
    ) + table(
        ["first batches", *columns],
        [[side, *(figure(values[c]) for c in columns)] for side, values in found.items()],
    )
    publish("portfolio", _TITLE, body, {"rows": rows, "summary": found}, where.end(), options.write)


if __name__ == "__main__":
    main()
