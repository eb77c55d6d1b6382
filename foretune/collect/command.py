"""What ``foretune collect`` does with its arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.cluster import open_cluster
from foretune.collect.audit import audit, summarise_audit
from foretune.collect.collector import JOURNAL, Collector, Store
from foretune.collect.pack import pack
from foretune.collect.plan import Plan, plan
from foretune.collect.reread import reread
from foretune.dataset import Dataset, StoredWorkload, is_dataset, is_valid, read_dataset
from foretune.errors import BadInputError, NothingMeasuredError

if TYPE_CHECKING:
    from foretune.workload import Workload

_UNIFORM_SHARE = 0.52
TRAINING = "training"
"""The name of the whole list of training workloads."""


def collect_command(args: Any) -> int:
    """Collects, audits, reads again or packs; returns an exit code.

    Args:
        args: ``workloads`` (names, comma-separated, ``training`` and ``training:KIND`` among them),
            ``targets`` (separated by semicolons, or None), ``threads`` (comma-separated, or None),
            ``programs``, ``uniform`` (programs, or None), ``predicted`` (programs), ``rounds``,
            ``cost_model``, ``time`` (seconds or None), ``seed``, ``work_dir``, ``known`` (a data
            set or None), ``pack``, ``audit``, ``reread`` (flags), ``share``, ``min_age`` (seconds),
            ``cluster`` (its address, or None),
            ``output`` (a directory or None).
    """
    if args.pack and args.output is None:
        raise BadInputError("`--pack` writes a data set and needs its directory: add -o DIR")
    if (args.pack or args.audit or args.reread) and not (Path(args.work_dir) / JOURNAL).is_file():
        raise BadInputError(
            f"{args.work_dir} holds no collection: give the --work-dir of a `foretune collect` run"
        )
    workloads = None if args.pack else _workloads(args.workloads)
    known = None if args.known is None else read_dataset(args.known)
    with Store(args.work_dir) as store:
        if workloads is None:
            print(f"{args.output}: {pack(store, args.output, known)}")
            return 0
        wanted = _plan(args, workloads)
        if args.audit:
            audit(store, wanted.hardware, args.share, args.min_age, args.seed, say=_say)
            _print_audit(store)
            return 0
        if args.reread:
            reread(store, wanted.hardware, args.time, say=_say)
            return 0
        return _collect(wanted, store, known, args.time, args.cluster)


def _collect(
    wanted: Plan, store: Store, known: Dataset | None, seconds: float | None, cluster: str | None
) -> int:
    _say(
        f"{wanted.groups} groups: {len(wanted.workloads)} workloads on "
        f"{len(wanted.hardware)} hardware variants, {wanted.programs} programs each"
    )
    with ExitStack() as stack:
        nodes = None if cluster is None else stack.enter_context(open_cluster(cluster))
        collector = stack.enter_context(Collector(wanted, store, known, say=_say))
        complete = collector.run(seconds, nodes)
    records = store.records()
    if records and not any(is_valid(record.measurement) for record in records):
        message = next(r.measurement.message for r in records)
        raise NothingMeasuredError(f"no program ran, the first one because of: {message}")
    _say(f"{len(records):,} records in {store.path}; " + _next(complete))
    return 0


def _next(complete: bool) -> str:
    return "complete" if complete else "run the same command again to go on"


def _plan(args: Any, workloads: Sequence[StoredWorkload]) -> Plan:
    targets = [t.strip() for t in (args.targets or "").split(";") if t.strip()]
    return plan(
        workloads,
        targets,
        _threads(args.threads),
        programs=args.programs,
        uniform=args.uniform or max(2, round((args.programs - args.predicted) * _UNIFORM_SHARE)),
        predicted=args.predicted,
        rounds=args.rounds,
        seed=args.seed,
        cost_model=args.cost_model,
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
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [stored for name in names for stored in _named(name)]


def _named(name: str) -> list[StoredWorkload]:
    """The training workloads, those of a kind, those of a data set, or one workload."""
    from foretune.workload import training

    if is_dataset(name):
        return list(read_dataset(name).workloads.values())
    base, _, kind = name.partition(":")
    if base != TRAINING:
        workload = _load(name)
        return [StoredWorkload(workload, training.operator_kind(workload))]
    listed = [StoredWorkload(t.workload, t.kind) for t in training.training_workloads()]
    kinds = sorted({stored.kind for stored in listed})
    if ":" in name and kind not in kinds:
        raise BadInputError(
            f"`{TRAINING}:KIND` takes the training workloads of an operator kind, but got {name}: "
            f"choose of {', '.join(kinds)}"
        )
    return [stored for stored in listed if kind in ("", stored.kind)]


def _load(name: str) -> Workload:
    from foretune.workload import Workload, load_input

    source = load_input(name)
    if not isinstance(source, Workload):
        raise BadInputError(
            f"{name} is a whole model, and data is collected for single workloads: name those"
        )
    return source


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
