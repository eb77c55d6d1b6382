"""What a cost model's favourites are worth among the programs that searches measured.

A search measures what its model thinks most of, so that all it measures are favourites, and what
counts is whether the model tells the fast ones among them from the others. Here it picks from
what several runs measured of a workload, and no search stands in between: what its picks lack, no
strategy could have got from it. Two controls show what is lacking: one was told of half of the
programs before (what it can see at all), and one has a ranker that learned from the searches of the
other workloads, and not from what the shipped one did: more programs of more workloads, drawn at
random and bred from these.

``--ranker`` names rankers, files of ``foretune train``: each is a further side, in the place of the
shipped one.

Runs are those of ``foretune tune WORKLOAD --strategy ... --work-dir RUNS/NAME``, of one workload
and one machine or of several::

    python -m benchmarks.favourites RUNS [--ranker NAME=FILE.npz ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.pools import FloatArray, by_chance, picks
from benchmarks.results import conditions, figure, publish, say, table
from foretune import cost
from foretune.cost import Ranker, rankers
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.evaluate import Bootstrap
from foretune.hardware import Hardware
from foretune.records import Journal, Record, is_trial, top
from foretune.space import Space
from foretune.tuning import resolve_names
from foretune.workload import Workload

_TITLE = "What a cost model's favourites are worth among what searches measured"
_SHOWN = (1, 16, 36, 144)
_BATCH = 16
"""The tuner's own in runs of some hundred trials."""
CHANCE = "random order, exact"
NOTHING = "told of nothing"
PICKED = f"told of its picks, every {_BATCH}"
HALF = "control: told of the other half before, and of its picks"
OTHERS = "control: ranker taught by the other workloads' searches, told of nothing"
_RANKER = "gbdt_actions"
"""What the shipped ranker of the default model is, too."""


@dataclass(frozen=True)
class Pool:
    """What runs measured of one workload on one machine.

    Attributes:
        workload, hardware: Which.
        records: A trial of each program, the fastest one, with its candidate; at least 2.
        runs: How many journals hold them.
        left_out: Programs that are not of the space that is generated today.
    """

    workload: Workload
    hardware: Hardware
    records: Sequence[Record]
    runs: int
    left_out: int

    @property
    def machine(self) -> str:
        """Where it was measured, in words."""
        return f"{self.hardware.name}, {self.hardware.threads} threads"

    def group(self, records: Sequence[Record]) -> tuple[Group, dict[str, Record]]:
        """Some of the records as what is picked from, and they by the keys of their candidates."""
        seconds = [record.measurement.best_s for record in records]
        group = Group(
            workload=self.workload.key,
            name=self.workload.name,
            kind=self.workload.name,
            hardware=self.hardware.key,
            programs=[Program(candidate=record.candidate) for record in records],
            seconds=np.array(seconds, dtype=np.float64),
            machine=self.hardware,
        )
        return group, {record.candidate_key: record for record in records}


def journals(paths: Iterable[Path]) -> list[Path]:
    """The files among paths, and the journals in the folders among them."""
    return [
        found
        for path in paths
        for found in (sorted(path.rglob("journal.jsonl")) if path.is_dir() else [path])
    ]


def read(paths: Iterable[Path]) -> list[Pool]:
    """The pools that journals hold, in the order they first appear.

    Raises:
        BadInputError: No journal holds two programs of one workload that ran.
        RecordError: A file cannot be read, or is no journal.
    """
    places: dict[tuple[str, str], tuple[Workload, Hardware]] = {}
    found: dict[tuple[str, str], list[list[Record]]] = {}
    for path in paths:
        with Journal(path, read_only=True) as journal:
            workloads, hardware = journal.workloads(), journal.hardware()
            runs: dict[tuple[str, str], list[Record]] = {}
            for record in filter(is_trial, journal.records()):
                runs.setdefault((record.workload, record.hardware), []).append(record)
        for pair, records in runs.items():
            # Factors that are measured differ a little between probes: the first ones count.
            places.setdefault(pair, (workloads[pair[0]], hardware[pair[1]]))
            found.setdefault(pair, []).append(records)
    pools = []
    for pair, runs_of_it in found.items():
        known = top(record for records in runs_of_it for record in records)
        rebuilt = _rebuilt(*places[pair], known)
        if len(rebuilt) > 1:
            left_out = len(known) - len(rebuilt)
            pools.append(Pool(*places[pair], rebuilt, len(runs_of_it), left_out))
    if not pools:
        raise BadInputError(
            "no journal holds two programs of a workload that ran: give those of finished runs"
        )
    return pools


def _seconds(record: Record) -> float:
    assert record.measurement.best_s is not None, "it ran"
    return record.measurement.best_s


def _rebuilt(workload: Workload, hardware: Hardware, records: Iterable[Record]) -> list[Record]:
    """Records with their candidates; those of another space are left out."""
    space = Space.generate(workload, hardware)
    rebuilt = []
    for record in records:
        try:
            candidate = space.candidate(record.decisions)
        except (BadInputError, IllegalCandidateError):
            continue
        rebuilt.append(replace(record, candidate=candidate))
    return rebuilt


def shares(
    pool: Pool,
    cost_model: str,
    seed: int,
    most: int = _SHOWN[-1],
    others: Mapping[str, Ranker] = MappingProxyType({}),
) -> dict[str, FloatArray]:
    """Fastest program / fastest picked so far, after 1, 2... picks from a random half of a pool.

    Args:
        pool: What is picked from.
        cost_model: Name of the model that picks.
        seed: Of the halves, and of the model.
        most: Picks.
        others: Rankers that pick in the place of the model's own, told of nothing, by who they are.

    Returns:
        Who picks -> float64 of shape (most,).
    """
    order = np.random.default_rng(seed).permutation(len(pool.records)).tolist()
    middle = (len(order) + 1) // 2
    offered, known = pool.group([pool.records[at] for at in order[:middle]])
    half = [pool.records[at] for at in order[middle:]]
    sides: dict[str, tuple[list[Record], int, dict[str, Any]]] = {
        NOTHING: ([], most, {}),
        PICKED: ([], _BATCH, {}),
        HALF: (half, _BATCH, {}),
    }
    for who, ranker in others.items():
        sides[who] = ([], most, {"ranker": ranker})
    found = {CHANCE: by_chance(offered.seconds, most)}
    for name, (before, batch, options) in sides.items():
        model = cost.create(cost_model, rng=seed, hardware=pool.hardware, **options)
        if before:
            model.update(before)
        found[name] = picks(model, offered, known, batch, most)
    return found


def agreement(pool: Pool, cost_model: str, **options: Any) -> float:
    """Kendall's tau-b of the whole pool's scores, by a model that was told of nothing."""
    model = cost.create(cost_model, rng=0, hardware=pool.hardware, **options)
    candidates = [r.candidate for r in pool.records if r.candidate is not None]
    scores = np.nan_to_num(model.predict(candidates).score, nan=-np.inf)
    levels = -np.log2([_seconds(record) for record in pool.records])
    return float(np.nan_to_num(stats.kendalltau(scores, levels).statistic))


def taught_by(pools: Sequence[Pool]) -> Ranker:
    """A ranker that learned from pools, and from nothing else."""
    ranker = rankers.create(_RANKER, seed=0)
    ranker.fit([pool.group(pool.records)[0] for pool in pools], [])
    return ranker


def figures(
    pools: Sequence[Pool],
    cost_model: str,
    seeds: Sequence[int],
    named: Mapping[str, Ranker] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """A row for each pool: its size, ``taus`` and ``shares``.

    ``taus`` has who orders -> Kendall's tau, ``shares`` who picks -> picks -> mean share. The model
    told of nothing is in both, and so are the rankers that stand in for its own, by what ``named``
    calls them; with other workloads and the default model, which takes a ranker, one of them is
    ``OTHERS``.
    """
    _, default = resolve_names("default", "default")
    rows = []
    for pool in pools:
        elsewhere = [other for other in pools if other.workload.key != pool.workload.key]
        others = {OTHERS: taught_by(elsewhere)} if elsewhere and cost_model == default else {}
        others |= named
        each = [shares(pool, cost_model, seed, others=others) for seed in seeds]
        rows.append(
            {
                "workload": pool.workload.name,
                "machine": pool.machine,
                "runs": pool.runs,
                "programs": len(pool.records),
                "left_out": pool.left_out,
                "best_ms": 1e3 * min(map(_seconds, pool.records)),
                "median_ms": 1e3 * float(np.median([_seconds(r) for r in pool.records])),
                "taus": {
                    NOTHING: agreement(pool, cost_model),
                    **{w: agreement(pool, cost_model, ranker=r) for w, r in others.items()},
                },
                "shares": {who: _after([one[who] for one in each]) for who in each[0]},
            }
        )
        say(f"{pool.workload.name}: {len(pool.records)} programs of {pool.runs} runs")
    return rows


def _after(curves: Sequence[FloatArray]) -> dict[int, dict[str, float]]:
    """Picks -> mean over halves, with a bootstrap's interval."""
    bootstrap = Bootstrap([str(at) for at in range(len(curves))])
    return {n: bootstrap.mean([curve[n - 1] for curve in curves]) for n in _SHOWN}


def body(rows: Sequence[Mapping[str, Any]], cost_model: str) -> str:
    """The page between its title and its conditions."""
    return "\n\n".join(
        [
            f"Cost model `{cost_model}`.",
            table(
                ["workload", "measured on", "runs", "programs", "left out", "best, ms",
                 "median, ms"],
                [
                    [
                        row["workload"],
                        row["machine"],
                        str(row["runs"]),
                        str(row["programs"]),
                        str(row["left_out"]),
                        f"{row['best_ms']:.3f}",
                        f"{row['median_ms']:.3f}",
                    ]
                    for row in rows
                ],
            ),
            "Kendall's tau of the scores of all programs, before any was measured:",
            table(
                ["who orders", *(row["workload"] for row in rows)],
                [
                    [who, *(f"{row['taus'][who]:.2f}" for row in rows)]
                    for who in rows[0]["taus"]
                ],
            ),
            "Fastest program / fastest picked so far, after so many picks from a random half of "
            "the programs: mean over halves, with the 95 % interval of a bootstrap over these:",
            table(
                ["workload", "who picks", *(f"{n} picks" for n in _SHOWN)],
                [
                    [row["workload"], who, *(figure(shares[n]) for n in _SHOWN)]
                    for row in rows
                    for who, shares in row["shares"].items()
                ],
            ),
        ]
    )  # fmt: skip


def _ranker(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    return (name, file) if equals and not Path(text).is_file() else (Path(text).stem, text)


def _distinct(given: Sequence[tuple[str, str]], cost_model: str) -> dict[str, str]:
    """Files of rankers by name.

    Raises:
        BadInputError: Two have one name, one has no name or file, or the cost model has no ranker
            whose place they could take.
    """
    _, default = resolve_names("default", "default")
    if given and cost_model != default:
        raise BadInputError(
            f"--ranker takes the place of the ranker of {default}, but got --cost-model "
            f"{cost_model}: leave one of them out"
        )
    files = dict(given)
    if len(files) < len(given) or not all(map(all, given)):
        raise BadInputError(
            "rankers must have a name each, all different, and a file, but got "
            f"{', '.join(f'{name}={file}' for name, file in given)}: say --ranker NAME=FILE.npz"
        )
    return files


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="journals, or folders that hold them")
    parser.add_argument("--cost-model", default="default")
    parser.add_argument(
        "--ranker", type=_ranker, action="append", default=[], metavar="NAME=FILE.npz"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", default="favourites", help="name of what --write writes")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    _, model = resolve_names("default", options.cost_model)
    seeds = list(range(options.seeds))
    where = conditions("favourites", seeds)
    files = _distinct(options.ranker, model)
    named = {f"ranker {name}, {NOTHING}": rankers.load_for_run(f) for name, f in files.items()}
    rows = figures(read(journals(options.runs)), model, seeds, named)
    data = {"schema": "foretune.favourites/2", "cost_model": model, "rows": rows}
    publish(options.page, _TITLE, body(rows, model), data, where.end(), options.write)


if __name__ == "__main__":
    main()
