"""The noise audit: a part of the records measured again, hours later.

A label that depends on when it was read misleads every model, and readings agree with each other
within one visit whether they are right or not. The audit takes a share of the candidates at random,
measures them with the same policy, and reports how far the two values lie apart.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.collect.collector import COLLECT_POLICY, MeasurerFactory, Store, describe
from foretune.dataset import AUDIT, is_valid
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, MeasurePolicy
from foretune.records import Record, Trial


@dataclass(frozen=True)
class Audit:
    """How far two measurements of the same program lie apart.

    Ratios are absolute natural logarithms of second / first seconds.

    Attributes:
        pairs: Programs measured twice.
        valid: Share of all records that give a label.
        quiet: Share of the valid records with an undisturbed reading.
        hours: Median of the hours between the two.
        median, p90, p95, worst: Quantiles of the ratios.
        median_quiet, p95_quiet: The same where both had an undisturbed reading.
        bias: Median of the signed logarithm: above 0 where the second was slower.
        changed: Programs that ran in one of the two only.
    """

    pairs: int
    valid: float
    quiet: float
    hours: float
    median: float
    p90: float
    p95: float
    worst: float
    median_quiet: float
    p95_quiet: float
    bias: float
    changed: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return asdict(self)


def audit(
    store: Store,
    hardware: Sequence[Hardware],
    share: float = 0.02,
    min_age_s: float = 3600.0,
    seed: int = 0,
    measurer: MeasurerFactory = LocalMeasurer,
    policy: MeasurePolicy = COLLECT_POLICY,
    say: Callable[[str], None] = print,
) -> list[Record]:
    """Measures a share of the collected records again and adds the new ones to the journal.

    Args:
        store: The collection.
        hardware: The variants that can be measured here; records of others are left.
        share: Of the valid records that are old enough.
        min_age_s: Records younger than this, in seconds, are left for later.
        seed: Chooses; the same seed goes on with the same sample.
        measurer: Makes the measurer of a hardware.
        policy: How to measure; the one of the collection, with its best seconds by workload, on
            which readings of slow programs depend.
        say: Takes lines of progress.

    Raises:
        BadInputError: ``share`` is not in (0, 1], or no record is old enough.

    Returns:
        The records made; none where the sample is complete.
    """
    if not 0 < share <= 1:
        raise BadInputError(f"`0 < share <= 1` must hold, but got share={share}")
    chosen = _choose(store, {h.key for h in hardware}, share, min_age_s, seed)
    made: list[Record] = []
    for machine in hardware:
        mine = [record for record in chosen if record.hardware == machine.key]
        if not mine:
            continue
        say(f"auditing {len(mine)} programs on {describe(machine)}")
        candidates = store.candidates(machine, mine)
        best = store.best(machine)
        with measurer(machine, policy) as device:
            environment = device.environment()
            for candidate, measurement in device.measure(candidates, best):
                record = Trial.of(candidate, measurement, AUDIT, environment)
                store.journal.append(record)
                made.append(record)
    return made


def _choose(
    store: Store, hardware: set[str], share: float, min_age_s: float, seed: int
) -> list[Record]:
    """The records that the seed draws, old enough and not audited yet.

    Each is drawn or not by a hash of its own, so that an audit that is stopped and called again
    goes on with the same sample.
    """
    records = store.records()
    done = {(r.hardware, r.candidate_key) for r in records if r.origin == AUDIT}
    old = [
        r
        for r in records
        if r.origin != AUDIT
        and r.hardware in hardware
        and time.time() - r.time >= min_age_s
        and is_valid(r.measurement)
    ]
    if not old:
        raise BadInputError(
            f"no valid record of this machine in {store.path} is older than {min_age_s / 60:g} "
            "minutes: audit later"
        )
    drawn = [r for r in old if _is_drawn(r, share, seed)] or old[:1]
    return [r for r in drawn if (r.hardware, r.candidate_key) not in done]


def _is_drawn(record: Record, share: float, seed: int) -> bool:
    text = f"{seed}/{record.hardware}/{record.candidate_key}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def measured_twice(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Each audit behind the record it repeats, whether they are valid or not.

    What was read again after its audit is not repeated by it, and left out.
    """
    first: dict[tuple[str, str], Record] = {}
    pairs = []
    for record in sorted(records, key=lambda record: record.time):
        key = (record.hardware, record.candidate_key)
        if record.origin != AUDIT:
            first[key] = record
        elif key in first:
            pairs.append((first[key], record))
    return pairs


def log_ratios(pairs: Iterable[tuple[Record, Record]]) -> FloatArray:
    """log(second seconds / first seconds) of the pairs that are valid both times, shape (n,)."""
    return np.array([np.log(_seconds(b) / _seconds(a)) for a, b in pairs if _valid(a, b)])


def _valid(first: Record, second: Record) -> bool:
    return is_valid(first.measurement) and is_valid(second.measurement)


def summarise_audit(records: Iterable[Record]) -> Audit:
    """How far second measurements are from the first.

    Raises:
        BadInputError: No program was measured twice.
    """
    records = list(records)
    pairs = measured_twice(records)
    both = [(a, b) for a, b in pairs if _valid(a, b)]
    if not both:
        raise BadInputError("no record was measured twice: run `foretune collect --audit`")
    logs = log_ratios(both)
    calm = np.array([any(a.measurement.quiet) and any(b.measurement.quiet) for a, b in both])
    ratios = np.abs(logs)
    first = {(r.hardware, r.candidate_key): r for r in records if r.origin != AUDIT}
    valid = [r for r in first.values() if is_valid(r.measurement)]
    return Audit(
        pairs=len(both),
        valid=len(valid) / len(first),
        quiet=sum(any(r.measurement.quiet) for r in valid) / len(valid),
        hours=float(np.median([b.time - a.time for a, b in both]) / 3600),
        median=float(np.median(ratios)),
        p90=float(np.quantile(ratios, 0.9)),
        p95=float(np.quantile(ratios, 0.95)),
        worst=float(ratios.max()),
        median_quiet=float(np.median(ratios[calm])) if calm.any() else float("nan"),
        p95_quiet=float(np.quantile(ratios[calm], 0.95)) if calm.any() else float("nan"),
        bias=float(np.median(logs)),
        changed=len(pairs) - len(both),
    )


def _seconds(record: Record) -> float:
    best = record.measurement.best_s
    assert best is not None
    return best
