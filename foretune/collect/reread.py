"""Programs that were never read in quiet, read again.

A label that something disturbed is too slow by up to a factor, and stays so: in a machine that is
shared one program in five has no other. They are measured once more, and a record takes the place
of the first that has the readings of both times. What is hopelessly slow is left: its label need
not be right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretune.collect.collector import COLLECT_POLICY, MeasurerFactory, Store, describe
from foretune.dataset import AUDIT, is_valid
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import LocalMeasurer, Measurement, MeasurePolicy, Status
from foretune.records import Record, Trial

_BATCH = 64
"""Programs between two looks at the clock."""


def reread(
    store: Store,
    hardware: Sequence[Hardware],
    seconds: float | None = None,
    measurer: MeasurerFactory = LocalMeasurer,
    policy: MeasurePolicy = COLLECT_POLICY,
    say: Callable[[str], None] = print,
) -> int:
    """Measures again what has no quiet reading, and adds records with all readings.

    Args:
        store: The collection.
        hardware: The variants that can be measured here; records of others are left.
        seconds: Stop after the batch in which so much time has passed.
        measurer: Makes the measurer of a hardware.
        policy: How to measure; programs slower than its ``cut_factor`` times the best of their
            workload are left.
        say: Takes lines of progress.

    Raises:
        BadInputError: ``seconds`` is not positive.

    Returns:
        How many have a quiet reading now that had none.
    """
    if seconds is not None and seconds <= 0:
        raise BadInputError(f"`seconds > 0` must hold, but got seconds={seconds}")
    began = time.monotonic()
    mended = 0
    for machine in hardware:
        best = store.best(machine)
        due = [r for r in store.records(hardware=machine.key) if _is_due(r, best, policy)]
        if not due:
            continue
        # What was disturbed the last time, too, comes after what was not tried since.
        due.sort(key=lambda record: record.time)
        say(f"{len(due):,} programs without a quiet reading on {describe(machine)}")
        with measurer(machine, policy) as device:
            done = quiet = 0
            for start in range(0, len(due), _BATCH):
                if seconds is not None and time.monotonic() - began >= seconds:
                    return mended + quiet
                batch = due[start : start + _BATCH]
                first = {record.candidate_key: record for record in batch}
                environment = device.environment()
                candidates = store.candidates(machine, batch)
                for candidate, again in device.measure(candidates, best):
                    record = first[candidate.key]
                    alike = _alike(record.environment, environment)
                    whole = joined(record.measurement, again, alike)
                    kept = whole is record.measurement
                    where = record.environment if kept else environment
                    store.journal.append(Trial.of(candidate, whole, record.origin, where))
                    quiet += any(whole.quiet)
                done += len(batch)
                say(f"{done:,} read again, {quiet:,} of them in quiet")
            mended += quiet
    return mended


def joined(first: Measurement, second: Measurement, alike: bool = True) -> Measurement:
    """What is known after two measurements of a program: all readings.

    A program found wrong is wrong. Where the second time failed otherwise, the first one counts.

    Args:
        first, second: The measurements.
        alike: Whether their readings compare; if not, the second one stands alone.
    """
    if not is_valid(second):
        return second if second.status is Status.WRONG_OUTPUT else first
    if not alike:
        return second
    errors = [each.max_error for each in (first, second) if each.max_error is not None]
    return replace(
        second,
        status=Status.OK if first.ok else second.status,
        seconds=(*first.seconds, *second.seconds),
        quiet=(*first.quiet, *second.quiet),
        build_s=first.build_s + second.build_s,
        run_s=first.run_s + second.run_s,
        max_error=max(errors, default=None),
    )


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether readings compare: the policy may differ, but not what compiles and measures."""
    ours, theirs = ({**each, "policy": None} for each in (first, second))
    return ours == theirs


def _is_due(record: Record, best: Mapping[str, float], policy: MeasurePolicy) -> bool:
    measured = record.measurement
    if record.origin == AUDIT or not is_valid(measured) or any(measured.quiet):
        return False
    assert measured.best_s is not None
    return measured.best_s <= policy.cut_factor * best[record.workload]
