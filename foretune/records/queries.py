"""Questions about records: which is best, what was spent, what failed.

All functions but ``print_info`` are pure; those that take records work on any iterable of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.measure import Status
from foretune.records._record import Record, Trial
from foretune.records.standings import R, Standings
from foretune.space.protocol import C

if TYPE_CHECKING:
    from rich.console import Console

    from foretune.records.store import Store
    from foretune.space import SearchSpace


@dataclass(frozen=True)
class TimeSplit:
    """Where the wall seconds of measurements went.

    Attributes:
        build_s: Applying and compiling.
        run_s: Checking and timing.
        failed_s: The part of both that went into candidates that failed.
    """

    build_s: float
    run_s: float
    failed_s: float


def spent_trials(records: Iterable[Record]) -> int:
    """How many trials the records stand for, failures included.

    A candidate is one trial on each hardware, however many records say what became of it.
    """
    return len({(r.workload, r.hardware, r.candidate_key) for r in records if r.is_counted})


def top(records: Iterable[R], k: int | None = None) -> list[R]:
    """The ``k`` best candidates of one workload on one hardware, best first; all if None.

    One ``ok`` record per candidate, by the rules of ``foretune.records.standings``. The order of
    the records does not matter.
    """
    return Standings(records).ranked()[:k]


def fastest(records: Iterable[R]) -> R | None:
    """The first of ``top``, or None where nothing is ``ok``."""
    return Standings(records).best


def best_of_each(store: Store) -> list[Record]:
    """The best record of each workload on each hardware, in the order they first appear."""
    pairs = dict.fromkeys((r.workload, r.hardware) for r in store.records())
    bests = (store.best(*pair) for pair in pairs)
    return [best for best in bests if best is not None]


def with_candidates(records: Iterable[Record], space: SearchSpace[C]) -> list[Trial[C]]:
    """Those whose decisions this TVM still generates, each with its candidate.

    The others were made for another program, target or version: an invalid entry is a miss.
    """
    trials = []
    for record in records:
        try:
            candidate = space.candidate(record.decisions)
        except (BadInputError, IllegalCandidateError):
            continue
        trials.append(Trial.again(record, candidate))
    return trials


def counts_by_status(records: Iterable[Record]) -> dict[Status, int]:
    """How many records ended how, in the order of ``Status``; those that did not occur left out."""
    counts = Counter(record.measurement.status for record in records)
    return {status: counts[status] for status in Status if counts[status]}


def failure_messages(records: Iterable[Record], limit: int = 5) -> list[tuple[Status, str, int]]:
    """The commonest first lines of failure messages, with status and count, commonest first."""
    counts: Counter[tuple[Status, str]] = Counter()
    for record in records:
        message = record.measurement.message.strip()
        if message and not record.measurement.ok:
            counts[record.measurement.status, message.splitlines()[0]] += 1
    return [(status, text, n) for (status, text), n in counts.most_common(limit)]


def time_split(records: Iterable[Record]) -> TimeSplit:
    """Sums the seconds that building and running took."""
    build = run = failed = 0.0
    for record in records:
        measurement = record.measurement
        build += measurement.build_s
        run += measurement.run_s
        if not measurement.seconds:
            failed += measurement.build_s + measurement.run_s
    return TimeSplit(build, run, failed)


def merge(store: Store, source: Store) -> int:
    """Appends what ``source`` holds and ``store`` lacks: workloads, hardware and records.

    Returns:
        How many records were appended. Merging twice appends nothing the second time.
    """
    known = store.hardware()
    missing = _missing(store, source.records())
    machines = [hardware for key, hardware in source.hardware().items() if key not in known]
    store.write([*source.workloads().values(), *machines, *missing])
    return len(missing)


def add_missing(store: Store, records: Iterable[Record]) -> int:
    """Appends the records that the store does not hold yet; returns how many those were."""
    missing = _missing(store, records)
    store.write(missing)
    return len(missing)


def _missing(store: Store, records: Iterable[Record]) -> list[Record]:
    """Those that the store lacks, in the order given; of copies of one line one."""
    wanted = {record.identity: record for record in records}
    pairs = dict.fromkeys((record.workload, record.hardware) for record in wanted.values())
    have = {record.identity for pair in pairs for record in store.records(*pair)}
    return [record for identity, record in wanted.items() if identity not in have]


def print_info(store: Store, console: Console | None = None) -> None:
    """Prints what a store holds: per workload its best, trials and failures, then what failed.

    Args:
        store: Any store.
        console: Where to print; standard output if None.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console(highlight=False)
    records = store.records()
    workloads, hardware = store.workloads(), store.hardware()
    table = Table("workload", "hardware", title=None)
    for heading in ("best ms", "GFLOP/s", "trials", "failed"):
        table.add_column(heading, justify="right")
    for pair in dict.fromkeys((r.workload, r.hardware) for r in records):
        own = store.records(*pair)
        best = store.best(*pair)
        seconds = None if best is None else best.measurement.best_s
        known, machine = workloads.get(pair[0]), hardware.get(pair[1])
        table.add_row(
            Text(known.name if known else pair[0]),
            Text(machine.name if machine else pair[1]),
            f"{seconds * 1e3:.4g}" if seconds else "-",
            f"{known.flops / seconds / 1e9:.1f}" if seconds and known else "-",
            str(spent_trials(own)),
            str(sum(1 for r in own if not r.measurement.seconds)),
        )
    console.print(Text(store.name))
    split = time_split(records)
    console.print(
        f"{len(records)} records, {spent_trials(records)} trials, {len(workloads)} workloads, "
        f"{len(hardware)} hardware; {split.build_s:.1f} s building, {split.run_s:.1f} s running"
    )
    if table.rows:
        console.print(table)
    statuses = ", ".join(f"{n} {s.value}" for s, n in counts_by_status(records).items())
    console.print(f"statuses: {statuses or 'none'}")
    for status, text, count in failure_messages(records):
        console.print(Text(f"  {count} x {status.value}: {text}"))
    if store.skipped:
        console.print(f"{len(store.skipped)} unreadable lines were skipped:")
        for skipped in store.skipped[:5]:
            console.print(Text(f"  line {skipped.line}: {skipped.reason}"))
