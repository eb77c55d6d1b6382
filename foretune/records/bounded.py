"""A store of bounded size: what was slow, and what nobody has used for long, is forgotten.

New entries go to the younger of two files. When that is found to have reached its limit, what is
worth keeping of both goes into the older one, and a new younger one begins:

1. of each program on each hardware in each environment the fastest ``_KEPT`` schedules, and the
   comparison, or the one record, that the most generous run ended with,
2. the programs that were measured last, as many as fit into ``_OLDER`` times the limit.

Who reuses a schedule times it again and writes that down, so that what is in use stays.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from foretune.errors import RecordError
from foretune.hardware import Hardware
from foretune.records._record import ALLOWED, Record, settings_of
from foretune.records.journal import Journal, line_of
from foretune.records.queries import top
from foretune.records.store import Entry, SkippedLine, Store
from foretune.workload import Workload

LIMIT_BYTES = 8 << 20
"""Of the younger file: some six thousand records."""
_OLDER = 2
_KEPT = 16
_LOCK_TIMEOUT_S = 60.0


class BoundedStore(Store):
    """A journal with an older one beside it: see the module.

    Before → after, where ``store.jsonl`` has reached its limit: ``store.jsonl`` →
    ``store.1.jsonl`` with the best of it, and a new ``store.jsonl``.

    Args:
        path: The younger file; made, with its directories, where it is not there.
        limit_bytes: Of the younger file, about: it is looked at when a store is opened.

    Raises:
        RecordError: A file cannot be opened or written, or is no journal.
        VersionMismatchError: A line was written by a newer version.
    """

    def __init__(self, path: str | os.PathLike[str], limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self._older: Journal | None = None
        with _one_at_a_time(self.path):
            _make_room(self.path, limit_bytes)
            self._younger = Journal(self.path)
            try:
                if _aside(self.path).is_file():
                    self._older = Journal(_aside(self.path), read_only=True)
            except BaseException:
                self._younger.close()
                raise

    @property
    def skipped(self) -> list[SkippedLine]:  # type: ignore[override]
        """Lines of both files that cannot be read, those of the older one first."""
        return [line for journal in self._journals() for line in journal.skipped]

    def write(self, entries: Iterable[Entry]) -> None:
        """See ``Store.write``; where another process began a new file, into that."""
        given = list(entries)
        try:
            self._younger.write(given)
        except RecordError:
            if self._younger.in_place:
                raise
            self._younger.close()
            self._younger = Journal(self.path)
            self._younger.write(given)

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


def worth_keeping(records: Iterable[Record], workloads: dict[str, Workload], most: int
                  ) -> list[Entry]:  # fmt: skip
    """What is kept of records and programs, see the module.

    Args:
        records: Of any programs.
        workloads: Their programs by key; others are left out.
        most: Bytes that the result may take in a journal.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        where = json.dumps(settings_of(record.environment), sort_keys=True)
        groups.setdefault((record.workload, record.hardware, where), []).append(record)
    kept: dict[tuple[str | float, ...], Record] = {}
    programs: dict[str, Workload] = {}
    for group in sorted(groups.values(), key=lambda group: -max(r.time for r in group)):
        chosen = {r.identity: r for r in [*top(group, _KEPT), *_most_generous(group)]}
        program = workloads.get(group[0].workload)
        described = [] if program is None or program.key in programs else [program]
        entries: list[Entry] = [*described, *chosen.values()]
        most -= sum(len(line_of(entry)) for entry in entries)
        if most < 0:
            break
        programs |= {each.key: each for each in described}
        kept |= chosen
    return [*programs.values(), *sorted(kept.values(), key=lambda record: record.time)]


def _most_generous(group: Iterable[Record]) -> list[Record]:
    """What stood at the end of the run that allowed the most trials."""
    ends = [record for record in group if ALLOWED in record.environment]
    best = max(ends, key=lambda r: (float(r.environment[ALLOWED]), r.time), default=None)
    return [] if best is None else [record for record in ends if record.time == best.time]


def _aside(path: Path, mark: str = "1") -> Path:
    """``store.jsonl`` → ``store.1.jsonl``."""
    return path.with_name(f"{path.stem}.{mark}{path.suffix}")


def _make_room(path: Path, limit_bytes: int) -> None:
    """Begins a new younger file where the present one is full, or where that was interrupted.

    The full one is renamed first: whoever has it open finds that out before the next line, so that
    none is written behind what is read here.
    """
    full, older, made = _aside(path, "full"), _aside(path), _aside(path, "new")
    if not full.is_file():
        if not path.is_file() or path.stat().st_size <= limit_bytes:
            return
        os.replace(path, full)
    made.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        journals = [
            stack.enter_context(Journal(file, read_only=True))
            for file in (older, full)
            if file.is_file()
        ]
        records = [record for journal in journals for record in journal.records()]
        workloads = {k: w for journal in journals for k, w in journal.workloads().items()}
        hardware = {k: h for journal in journals for k, h in journal.hardware().items()}
        kept = worth_keeping(records, workloads, _OLDER * limit_bytes)
    with Journal(made) as journal:
        journal.write([*hardware.values(), *kept])
    os.replace(made, older)
    full.unlink()


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """One process at a time looks whether a file is full."""
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
