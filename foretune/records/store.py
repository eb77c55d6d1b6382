"""What a store of records promises, whatever keeps them: a journal file, a database server.

Reading order: ``Store`` is the contract, ``journal.Journal`` the embedded default, and
``foretune.testing.stores`` the suite that every store passes.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from foretune.hardware import Hardware
from foretune.records._record import Record
from foretune.records.queries import fastest
from foretune.workload import Workload

if TYPE_CHECKING:
    from typing_extensions import Self

Entry: TypeAlias = Workload | Hardware | Record
"""What a store keeps."""


@dataclass(frozen=True)
class SkippedLine:
    """An entry of a store that was not read.

    Attributes:
        line: Number of the line of a file, from 1, or of the row of a table.
        reason: Why.
    """

    line: int
    reason: str


class Store(abc.ABC):
    """Keeps workloads, hardware and records; entries are only ever appended.

    Life cycle: construct, ``write`` and query as often as wanted, ``refresh`` to see what others
    wrote, ``close`` once (or use ``with``). Any number of processes may write at once, and the
    threads of one process may share a store; a child process opens its own.

    Attributes:
        name: Where it is, for messages and results: a path or a URL, without credentials.
        skipped: Entries found so far that cannot be read. They are no error.

    Raises:
        RecordError: From any method: the store cannot be reached, read or written; the message
            has ``name`` and the remedy, and what was acknowledged before is kept.
    """

    name: str
    skipped: list[SkippedLine]

    @abc.abstractmethod
    def write(self, entries: Iterable[Entry]) -> None:
        """Writes entries: all of them, or none. They are on disk when this returns.

        A workload that is there already is not written again, a hardware only where a figure of it
        changed. Of records of one ``identity`` a store keeps one or all.

        Raises:
            TypeError: An entry cannot be written as JSON; nothing was written.
        """

    @abc.abstractmethod
    def records(
        self, workload: str | None = None, hardware: str | None = None, ok_only: bool = False
    ) -> list[Record]:
        """Records in the order they were written.

        Args:
            workload: Only those of this workload key.
            hardware: Only those of this hardware key.
            ok_only: Only those whose measurement is ``ok``.
        """

    @abc.abstractmethod
    def workloads(self, keys: Sequence[str] | None = None) -> dict[str, Workload]:
        """The workloads whose programs are kept, by key; only those of ``keys`` if given."""

    @abc.abstractmethod
    def hardware(self) -> dict[str, Hardware]:
        """The hardware that is described, by key; the latest description of each."""

    def refresh(self) -> int:
        """Takes in what was written by others since; returns how many records are new.

        A store that asks its server with every query has nothing to take in.
        """
        return 0

    def close(self) -> None:  # noqa: B027  # not every store holds something
        """Frees what the store holds; nothing can be written from then on. May be called twice."""

    def append(self, record: Record) -> None:
        """Writes one record; it is on disk when this returns."""
        self.write([record])

    def extend(self, records: Iterable[Record]) -> None:
        """Writes several records: all of them, or none."""
        self.write(records)

    def add_workload(self, workload: Workload) -> None:
        """Keeps a workload's program, once, so that records can be used without the model."""
        self.write([workload])

    def add_hardware(self, hardware: Hardware) -> None:
        """Keeps a hardware's description; again only when a figure of it changed."""
        self.write([hardware])

    def best(self, workload: str, hardware: str) -> Record | None:
        """The fastest ``ok`` record of a workload on a hardware, or None.

        A candidate that was measured again in quiet counts with that value, and one that was once
        seen to compute a wrong output is never best: see ``foretune.records.top``.
        """
        return fastest(self.records(workload, hardware))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
