"""Standings: which candidate of one workload on one hardware is best, as its records say.

The one place that decides which record counts, for the tuner, for queries, exports and replays.
What it says is a function of the set of records: journals are merged, copied and written by several
tuners at once, so that the order of their lines means nothing, and a line that stands twice counts
once (``Record.identity``). What came later is told by ``Record.time``.

The rules:

1. A candidate that was ever seen to compute a wrong output, or failed when it was measured again
   side by side with others (``CONFIRM``), is out.
2. What a candidate takes is what its latest comparison says; without one, its fastest reading.
3. Records of one comparison share their time. Those of the last one come before all others: the
   lowest of many single readings flatters itself, and so may a comparison of another day.
4. While a run goes on, readings newer than the last comparison are its champion's rivals.
5. What others measured (``KNOWLEDGE``) stands for a candidate, and ranks, behind all else: nobody
   checked what it computes.

Where an environment is given, readings and comparisons of another one do not compare: such
comparisons do not count, and such readings only for candidates without one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from foretune.measure import Status
from foretune.records._record import CONFIRM, KNOWLEDGE, Record

R = TypeVar("R", bound=Record)


def in_order(records: Iterable[R]) -> list[R]:
    """Records in the order of their time, of copies of one line the first."""
    distinct: dict[tuple[str | float, ...], R] = {}
    for record in records:
        distinct.setdefault(record.identity, record)
    return sorted(distinct.values(), key=order_of)


def order_of(record: Record) -> tuple[Any, ...]:
    """By time; records of one moment by what tells them apart, so that any order of lines agrees.

    The lowest of two readings of one moment is the later one.
    """
    seconds = tuple(-s for s in record.measurement.seconds)
    measured = (seconds, record.measurement.status.value)
    return (record.time, *measured, record.candidate_key, record.origin)


def earliest(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """What to hand out where measurements are replayed, by keys of workload and candidate.

    Of a candidate that is out the first record that says so; else the first that worked, so that
    more measurements of the same candidate change nothing.
    """
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.workload, record.candidate_key)
        known = first.get(key)
        if known is None or _precedence(record) < _precedence(known):
            first[key] = record
    return first


def _precedence(record: Record) -> tuple[Any, ...]:
    """Of two records of a candidate the lower one is handed out."""
    measurement = record.measurement
    return (
        not _puts_out(record),
        not measurement.ok,
        record.time,
        measurement.seconds,
        measurement.status.value,
        record.hardware,
    )


def _puts_out(record: Record) -> bool:
    """Whether a record says that its candidate must not be best. See rule 1."""
    measurement = record.measurement
    failed_again = record.origin == CONFIRM and not measurement.ok
    return failed_again or measurement.status is Status.WRONG_OUTPUT


class Standings(Generic[R]):
    """Takes in records of one workload on one hardware, in any order, and ranks their candidates.

    Args:
        records: The first ones.
        comparable: Whether a record was measured where its seconds compare; all are if None.

    Attributes:
        compared_at: When the last comparison that counts ended, in seconds since the epoch; None
            where there was none.
    """

    def __init__(
        self,
        records: Iterable[R] = (),
        comparable: Callable[[Record], bool] | None = None,
    ) -> None:
        self.compared_at: float | None = None
        self._comparable = comparable or _always
        self._alone: dict[str, R] = {}
        self._compared: dict[str, R] = {}
        self._wrong: set[str] = set()
        self._leader: R | None = None
        self._stale = False
        for record in records:
            self.add(record)

    def add(self, record: R) -> None:
        """Takes in one record; one that is taken in twice counts once."""
        measurement = record.measurement
        confirms = record.origin == CONFIRM
        counts = self._comparable(record)
        wrong = measurement.status is Status.WRONG_OUTPUT
        if _puts_out(record) and (counts or wrong):
            self._wrong.add(record.candidate_key)
            self._stale = True
        if confirms and counts:
            self._take_comparison(record)
        elif not confirms and measurement.best_s is not None:
            self._take_reading(record)

    def _take_comparison(self, record: R) -> None:
        self._stale = True
        if self.compared_at is None or record.time > self.compared_at:
            self.compared_at = record.time
        known = self._compared.get(record.candidate_key)
        if record.measurement.ok and (known is None or order_of(record) > order_of(known)):
            self._compared[record.candidate_key] = record

    def _take_reading(self, record: R) -> None:
        key = record.candidate_key
        known = self._alone.get(key)
        if known is not None and self._preference(known) <= self._preference(record):
            return
        self._alone[key] = record
        if known is not None or self._stale or not self._is_rival(record):
            self._stale = True
        elif self._leader is None or self._rank(key) < self._rank(self._leader.candidate_key):
            self._leader = record

    def record(self, key: str) -> R | None:
        """The ``ok`` record that stands for a candidate; None if it has none, or is out."""
        if key in self._wrong:
            return None
        known = self._compared.get(key) or self._alone.get(key)
        return known if known is not None and known.measurement.ok else None

    def seconds(self, key: str) -> float | None:
        """What a candidate takes, per call; also of one that was cut short, or is out by now."""
        known = self._compared.get(key) or self._alone.get(key)
        return None if known is None else known.measurement.best_s

    def is_wrong(self, key: str) -> bool:
        """Whether a candidate is out."""
        return key in self._wrong

    def last_comparison(self) -> list[R]:
        """The records of the last comparison whose candidates are not out, best first."""
        last = [
            record
            for key, record in self._compared.items()
            if record.time == self.compared_at and key not in self._wrong
        ]
        return sorted(last, key=lambda record: self._rank(record.candidate_key))

    def was_compared(self, key: str) -> bool:
        """Whether a candidate was in the last comparison and is not out."""
        known = self._compared.get(key)
        return known is not None and known.time == self.compared_at and key not in self._wrong

    def ranked(self) -> list[R]:
        """One record per candidate, best first, those of the last comparison before all others."""
        records = filter(None, map(self.record, {**self._compared, **self._alone}))
        return sorted(
            records,
            key=lambda r: (
                not self.was_compared(r.candidate_key),
                r.origin in KNOWLEDGE,
                self._rank(r.candidate_key),
            ),
        )

    @property
    def best(self) -> R | None:
        """The first of ``ranked``, or None."""
        return next(iter(self.last_comparison() or self.ranked()), None)

    @property
    def leader(self) -> R | None:
        """The best while a run goes on: newer readings count as well. See rule 4.

        None where nothing was measured but by others.
        """
        if self._stale:
            last = self.last_comparison()
            rivals = [r for r in map(self.record, self._alone) if r is not None]
            if last:
                rivals = [*last, *filter(self._is_rival, rivals)]
            else:
                rivals += [r for r in map(self.record, self._compared) if r is not None]
            rivals = [r for r in rivals if r.origin not in KNOWLEDGE]
            self._leader = min(rivals, key=lambda r: self._rank(r.candidate_key), default=None)
            self._stale = False
        return self._leader

    def _is_rival(self, record: R) -> bool:
        """Whether a reading competes with the champion of the last comparison."""
        key = record.candidate_key
        if not record.measurement.ok or record.origin in KNOWLEDGE:
            return False
        if key in self._wrong or key in self._compared:
            return False
        return self.compared_at is None or record.time > self.compared_at

    def _preference(self, record: R) -> tuple[Any, ...]:
        """The lowest of a candidate's readings stands for it, of those that worked and are ours."""
        measurement = record.measurement
        return (
            not self._comparable(record),
            not measurement.ok,
            record.origin in KNOWLEDGE,
            measurement.best_s,
            order_of(record),
        )

    def _rank(self, key: str) -> tuple[Any, ...]:
        record = self._compared.get(key) or self._alone[key]
        return (record.measurement.best_s, order_of(record))


def _always(_: Record) -> bool:
    return True
