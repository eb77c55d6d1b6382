"""What ``foretune collect`` does with its arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from foretune.collect.audit import audit, summarise_audit
from foretune.collect.collector import Collector, Store
from foretune.collect.pack import pack
from foretune.collect.plan import Plan, plan
from foretune.dataset import AUDIT, Dataset, StoredWorkload, read_dataset
from foretune.errors import BadInputError

_UNIFORM_SHARE = 0.52
TRAINING = "training"
"""The name of the whole list of training workloads."""


def collect_command(args: Any) -> int:
    """Collects, audits or packs; returns an exit code.

    Args:
        args: ``workloads`` (names, comma-separated, or ``training``), ``targets`` (separated by
            semicolons, or None), ``threads`` (comma-separated, or None), ``programs``, ``time``
            (seconds or None), ``seed``, ``work_dir``, ``known`` (a data set or None), ``pack``,
            ``audit`` (flags), ``share``, ``min_age`` (seconds), ``output`` (a directory or None).
    """
    if args.pack and args.output is None:
        raise BadInputError("`--pack` writes a data set and needs its directory: add -o DIR")
    known = None if args.known is None else read_dataset(args.known)
    with Store(args.work_dir) as store:
        if args.pack:
            print(f"{args.output}: {pack(store, args.output, known)}")
            return 0
        wanted = _plan(args)
        if args.audit:
            audit(store, wanted.hardware, args.share, args.min_age, args.seed, say=_say)
            _print_audit(store)
            return 0
        return _collect(wanted, store, known, args.time)


def _collect(wanted: Plan, store: Store, known: Dataset | None, seconds: float | None) -> int:
    done = _complete(known, wanted.programs)
    _say(
        f"{wanted.groups} groups: {len(wanted.workloads)} workloads on "
        f"{len(wanted.hardware)} hardware variants, {wanted.programs} programs each"
    )
    with Collector(wanted, store, done, say=_say) as collector:
        complete = collector.run(seconds)
    _say(f"{len(store.journal):,} records in {store.path}; " + _next(complete))
    return 0


def _next(complete: bool) -> str:
    return "complete" if complete else "run the same command again to go on"


def _complete(known: Dataset | None, programs: int) -> list[tuple[str, str]]:
    """Groups that a data set has already, audits not counted."""
    counts: dict[tuple[str, str], int] = {}
    for record in () if known is None else known.records:
        if record.origin != AUDIT:
            pair = (record.workload, record.hardware)
            counts[pair] = counts.get(pair, 0) + 1
    return [pair for pair, count in counts.items() if count >= programs]


def _plan(args: Any) -> Plan:
    targets = [t.strip() for t in (args.targets or "").split(";") if t.strip()]
    return plan(
        _workloads(args.workloads),
        targets,
        _threads(args.threads),
        programs=args.programs,
        uniform=max(2, round(args.programs * _UNIFORM_SHARE)),
        seed=args.seed,
    )


def _threads(text: str | None) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise BadInputError(f"threads are numbers, but got --threads {text}: try 1,2") from None
    if any(count < 1 for count in counts):
        raise BadInputError(f"`threads >= 1` must hold, but got --threads {text}")
    return counts


def _workloads(text: str) -> list[StoredWorkload]:
    from foretune.workload import training

    if text == TRAINING:
        return [StoredWorkload(t.workload, t.kind) for t in training.training_workloads()]
    found = _load([name.strip() for name in text.split(",") if name.strip()])
    return [StoredWorkload(workload, training.operator_kind(workload)) for workload in found]


def _load(names: Sequence[str]) -> list[Any]:
    from foretune.workload import Workload, load_input

    loaded = []
    for name in names:
        source = load_input(name)
        if not isinstance(source, Workload):
            raise BadInputError(
                f"{name} is a whole model, and data is collected for single workloads: name those"
            )
        loaded.append(source)
    return loaded


def _print_audit(store: Store) -> None:
    result = summarise_audit(store.journal.records())
    print(
        f"{result.pairs} programs measured twice, {result.hours:.1f} h apart (median): absolute "
        f"log ratio median {result.median:.4f}, 95 % {result.p95:.4f}, worst {result.worst:.2f}; "
        f"quiet both times: median {result.median_quiet:.4f}, 95 % {result.p95_quiet:.4f}; "
        f"{result.quiet:.0%} of the valid records had a quiet reading"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
