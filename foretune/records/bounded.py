"""A store of bounded size in two files: what is not used any more is forgotten.

New entries go to the younger file. Where that is larger than ``limit_bytes`` when the store is
opened, it takes the place of the older one, which is gone, and a new one begins. So the files hold
between one and two times the limit, and what running processes added. Nothing that is in use is
lost for good: who reuses a schedule times it again and writes that down, into the younger file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from foretune.errors import RecordError
from foretune.hardware import Hardware
from foretune.records._record import Record
from foretune.records.journal import Journal
from foretune.records.store import Entry, SkippedLine, Store
from foretune.workload import Workload

LIMIT_BYTES = 16 << 20
"""Some ten thousand records, which take a second to read."""
_LOCK_TIMEOUT_S = 60.0


class BoundedStore(Store):
    """A journal with an older one beside it: see the module.

    Before → after, where ``store.jsonl`` has reached its limit: ``store.jsonl`` →
    ``store.1.jsonl``, and a new ``store.jsonl``.

    Args:
        path: The younger file; made, with its directories, where it is not there.
        limit_bytes: Of each of the two files, about.

    Raises:
        RecordError: A file cannot be opened or moved, or is no journal.
        VersionMismatchError: A line was written by a newer version.
    """

    def __init__(self, path: str | os.PathLike[str], limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self._older: Journal | None = None
        with _turning(self.path):
            aside = self.path.with_name(f"{self.path.stem}.1{self.path.suffix}")
            if self.path.is_file() and self.path.stat().st_size > limit_bytes:
                os.replace(self.path, aside)
            self._younger = Journal(self.path)
            try:
                if aside.is_file():
                    self._older = Journal(aside, read_only=True)
            except BaseException:
                self._younger.close()
                raise

    @property
    def skipped(self) -> list[SkippedLine]:  # type: ignore[override]
        """Lines of both files that cannot be read, those of the older one first."""
        return [line for journal in self._journals() for line in journal.skipped]

    def write(self, entries: Iterable[Entry]) -> None:
        """See ``Store.write``; where another process began a new file, into that."""
        if not self._younger.in_place:
            self._younger.close()
            self._younger = Journal(self.path)
        self._younger.write(entries)

    def records(
        self, workload: str | None = None, hardware: str | None = None, ok_only: bool = False
    ) -> list[Record]:
        """See ``Store.records``."""
        return [
            record
            for journal in self._journals()
            for record in journal.records(workload, hardware, ok_only)
        ]

    def workloads(self, keys: Sequence[str] | None = None) -> dict[str, Workload]:
        """See ``Store.workloads``."""
        younger = self._younger.workloads(keys)
        return younger if self._older is None else {**younger, **self._older.workloads(keys)}

    def hardware(self) -> dict[str, Hardware]:
        """See ``Store.hardware``."""
        younger = self._younger.hardware()
        return younger if self._older is None else {**self._older.hardware(), **younger}

    def refresh(self) -> int:
        """See ``Store.refresh``."""
        return self._younger.refresh()

    def close(self) -> None:
        """Closes both files."""
        for journal in self._journals():
            journal.close()

    def _journals(self) -> list[Journal]:
        return [self._younger] if self._older is None else [self._older, self._younger]


@contextlib.contextmanager
def _turning(path: Path) -> Iterator[None]:
    """One process at a time puts a new file in the place of a full one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=_LOCK_TIMEOUT_S):
            yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RecordError(
            f"the store {str(path)!r} cannot be opened ({reason}): choose another place with "
            "--store, or none"
        ) from error
