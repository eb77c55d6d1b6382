"""The history of one workload on one hardware: what was tried, what it took, what is best.

Like ``Standings``, on which it rests, it is a function of the set of records: whoever takes them in
one by one, all at once, or in another order, with copies of some, has the same history. A journal
that several tuners write brings records late; then what follows from their order is told anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from foretune.records._record import CONFIRM, DEFAULT, KNOWLEDGE, UNTUNED, Record
from foretune.records.standings import R, Standings, in_order, order_of

S = TypeVar("S", bound=Record)


@dataclass(frozen=True)
class CountedTrial:
    """One counted measurement, as the command line's JSON reports it.

    Attributes:
        index: 0 for the first trial of the task.
        elapsed_s: Seconds since the run began, time of resumed runs included.
        status: ``Status`` value.
        seconds: Readings in seconds per call, or None on failure.
        best_s: Lowest seconds per call of the task after this trial, or None.
        origin: The strategy that proposed it.
    """

    index: int
    elapsed_s: float
    status: str
    seconds: tuple[float, ...] | None
    best_s: float | None
    origin: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of the contract."""
        return {
            "index": self.index,
            "elapsed_s": self.elapsed_s,
            "status": self.status,
            "seconds": None if self.seconds is None else list(self.seconds),
            "best_s": self.best_s,
            "origin": self.origin,
        }


class History(Generic[R]):
    """Takes in records of one workload on one hardware, each once, in any order.

    Args:
        comparable: Whether a record was measured where its seconds compare; all are if None.

    Attributes:
        standings: Of the candidates measured by us: what others measured (``KNOWLEDGE``) is known,
            and counts for nothing.
        trials: What was counted, in the order of time: a candidate once, however many tuners that
            share a journal have tried it.
    """

    def __init__(self, comparable: Callable[[Record], bool] | None = None) -> None:
        self._comparable = comparable
        self._records: dict[tuple[str | float, ...], R] = {}
        self._begin()

    def _begin(self) -> None:
        self.standings: Standings[R] = Standings(comparable=self._comparable)
        self.trials: list[CountedTrial] = []
        self._tried: set[str] = set()
        self._tried_at = 0.0
        self._measured_here: set[str] = set()
        self._last: R | None = None

    def unknown(self, records: Iterable[S]) -> list[S]:
        """Those that were not taken in yet, each once, in the order of their time."""
        return in_order(record for record in records if record.identity not in self._records)

    def add(self, records: Iterable[R]) -> list[R]:
        """Takes in records; returns those that were not known, in the order of their time."""
        new = self.unknown(records)
        self._records.update((record.identity, record) for record in new)
        if new and self._last is not None and order_of(new[0]) < order_of(self._last):
            self.recount()
        else:
            self._take(new)
        return new

    def recount(self) -> None:
        """Tells the history anew: records came late, or it has changed what compares.

        Who is interrupted meanwhile, and who reads meanwhile, finds the one before, whole.
        """
        told: History[R] = History(self._comparable)
        told._take(in_order(self._records.values()))
        told._records = self._records
        vars(self).update(vars(told))

    def was_tried(self, key: str) -> bool:
        """Whether a candidate was one of the trials."""
        return key in self._tried

    @property
    def tried_since_comparison(self) -> bool:
        """Whether there are trials that are newer than the last comparison."""
        compared_at = self.standings.compared_at
        return bool(self.trials) and (compared_at is None or self._tried_at > compared_at)

    def was_measured_here(self, key: str) -> bool:
        """Whether a candidate was measured as a baseline, or compared, where seconds compare."""
        return key in self._measured_here

    def nearest(self, limit: int, within: float, without: str) -> list[R]:
        """The fastest candidates but one: the best of them and those within a factor of it.

        Readings that do not compare are ranked apart, and only until a first comparison.

        Args:
            limit: So many at most, of those that compare and of the others.
            within: How many times as long as the best they may take.
            without: Key of a candidate that is left out; empty for none.
        """
        ranked = sorted(
            (r for r in self.standings.ranked() if r.candidate_key != without), key=seconds_of
        )
        here = [r for r in ranked if self._compares(r)]
        elsewhere = [r for r in ranked if not self._compares(r)]
        if self.standings.last_comparison():
            elsewhere = []
        return [
            record
            for group in (here, elsewhere)
            for record in group[:limit]
            if seconds_of(record) <= within * seconds_of(group[0])
        ]

    def _compares(self, record: Record) -> bool:
        return self._comparable is None or self._comparable(record)

    def _take(self, records: Sequence[R]) -> None:
        for record in records:
            self._last = record
            if record.origin in KNOWLEDGE:
                continue
            self.standings.add(record)
            key = record.candidate_key
            if record.origin in (UNTUNED, DEFAULT, CONFIRM) and self._compares(record):
                self._measured_here.add(key)
            if record.is_counted and key not in self._tried:
                self._count(record)

    def _count(self, record: R) -> None:
        self._tried.add(record.candidate_key)
        self._tried_at = record.time
        best = self.standings.leader
        self.trials.append(
            CountedTrial(
                index=len(self.trials),
                elapsed_s=float(record.environment.get("elapsed_s", 0.0)),
                status=record.measurement.status.value,
                seconds=record.measurement.seconds or None,
                best_s=None if best is None else best.measurement.best_s,
                origin=record.origin,
            )
        )


def seconds_of(record: Record) -> float:
    """Seconds per call of an ``ok`` record."""
    best = record.measurement.best_s
    assert best is not None, "an ok measurement has at least one reading"
    return best
