"""The journal: an append-only, crash-safe file of workloads, hardware and records.

How nothing gets lost (each step under an exclusive advisory lock, ``flock``):

1. read what other processes appended meanwhile,
2. if the last byte is not a line feed, a writer was killed inside its line: start a new line,
3. write the new lines with one ``O_APPEND`` write,
4. ``fsync``, and only then return: a record that ``append`` returned for is on disk.

A write that fails half-way (full disk) is cut off again, still under the lock. Readers take the
lock only to learn the file's length: bytes below it never change. A line that is torn, damaged or
foreign is skipped, counted and reported, and never makes the file unreadable.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretune._files import write_all
from foretune.errors import RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune.records._framing import BadLineError, decode, encode, may_be_journal
from foretune.records._record import Record
from foretune.records.queries import fastest
from foretune.records.store import Entry, SkippedLine, Store
from foretune.workload import Workload

_log = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 22


class Journal(Store):
    """An append-only file of records that several processes may write at once.

    Life cycle: construct (reads the whole file), ``append`` and query as often as wanted,
    ``refresh`` to see what other processes wrote, ``close`` once (or use ``with``). Records are
    held in memory in the order of the file. Safe to use from several threads; a child process
    opens its own ``Journal``.

    Args:
        path: The file. Made, with its directories, when it does not exist.
        read_only: Never write; the file must exist.
        lock_timeout_s: Longest wait for another writer before an error.

    Raises:
        RecordError: The file cannot be opened, or it is not a journal.
        VersionMismatchError: A line was written by a newer version.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, lock_timeout_s: float = 60.0
    ) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self.read_only = read_only
        self.skipped: list[SkippedLine] = []
        self._lock_timeout_s = lock_timeout_s
        self._mutex = threading.RLock()
        self._records: list[Record] = []
        self._pairs: dict[tuple[str, str], list[Record]] = {}
        self._best: dict[tuple[str, str], Record | None] = {}
        self._workloads: dict[str, Workload] = {}
        self._hardware: dict[str, Hardware] = {}
        self._networks: dict[str, Mapping[str, Any]] = {}
        self._last: dict[str, Any] = {}
        self._offset = 0
        self._line = 0
        self._tail_open = False
        self._warned = False
        self._refusal = ""
        self._fd: int | None = self._open()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def write(self, entries: Iterable[Entry]) -> None:
        """Writes entries with one write and one ``fsync``: all of them, or none.

        Every record becomes a line, also one that is there already.

        Raises:
            RecordError: They could not be written (full disk, read-only directory...). The journal
                is as it was before, and later writes work once the cause is gone.
            TypeError: An entry cannot be written as JSON.
        """
        with self._mutex:
            new = [entry for entry in entries if not self._holds(entry)]
            self._write([line_of(entry) for entry in new])
            for entry in new:
                self._hold(entry)

    @property
    def in_place(self) -> bool:
        """Whether the file is still the one that its path leads to."""
        with self._mutex:
            try:
                mine, there = os.fstat(self._descriptor()), os.stat(self.path)
            except FileNotFoundError:
                return False
            return os.path.samestat(mine, there)

    def add_network(
        self,
        name: str,
        passes: Sequence[Mapping[str, Any]],
        plan: Mapping[str, Any],
        plans: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps how a network was taken apart; again only when that changed.

        Args:
            name: Of the network.
            passes: What became of each pass over its graph.
            plan: What passes with a choice chose, operator by operator.
            plans: What became of the search for the plan, where there was one.
        """
        data = {"name": name, "passes": [dict(each) for each in passes], "plan": plan}
        data |= {} if plans is None else {"plans": dict(plans)}
        with self._mutex:
            if self._networks.get(name) != data:
                self._write([encode("network", data)])
                self._networks[name] = data

    def networks(self) -> dict[str, Mapping[str, Any]]:
        """How networks were taken apart, by name: ``name, passes, plan``; the latest of each.

        ``plans`` where their plan was searched.
        """
        with self._mutex:
            return dict(self._networks)

    def records(
        self, workload: str | None = None, hardware: str | None = None, ok_only: bool = False
    ) -> list[Record]:
        """Records in the order of the file.

        Args:
            workload: Only those of this workload key.
            hardware: Only those of this hardware key.
            ok_only: Only those whose measurement is ``ok``.
        """
        with self._mutex:
            if workload is not None and hardware is not None:
                chosen = list(self._pairs.get((workload, hardware), ()))
            else:
                chosen = [
                    r
                    for r in self._records
                    if workload in (None, r.workload) and hardware in (None, r.hardware)
                ]
        return [r for r in chosen if r.measurement.ok] if ok_only else chosen

    def best(self, workload: str, hardware: str) -> Record | None:
        """See ``Store.best``; what was found is kept until a record comes."""
        with self._mutex:
            pair = (workload, hardware)
            if pair not in self._best:
                self._best[pair] = fastest(self._pairs.get(pair, ()))
            return self._best[pair]

    def workloads(self, keys: Sequence[str] | None = None) -> dict[str, Workload]:
        """The workloads whose programs are kept, by key; only those of ``keys`` if given."""
        with self._mutex:
            chosen = self._workloads if keys is None else keys
            return {key: self._workloads[key] for key in chosen if key in self._workloads}

    def hardware(self) -> dict[str, Hardware]:
        """The hardware that is described, by key; the latest description of each."""
        with self._mutex:
            return dict(self._hardware)

    def __len__(self) -> int:
        return len(self._records)

    def refresh(self) -> int:
        """Reads what was appended by others since; returns how many records are new."""
        with self._mutex:
            known = len(self._records)
            fd = self._descriptor()
            with self._locked(fcntl.LOCK_SH):
                size = os.fstat(fd).st_size
            self._read(fd, size)
            return len(self._records) - known

    def close(self) -> None:
        """Closes the file; what was read can still be queried. May be called twice."""
        with self._mutex:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    # Writing

    def _open(self) -> int:
        try:
            if self.read_only:
                return os.open(self.path, os.O_RDONLY)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            verb = "read" if self.read_only else "open for writing"
            raise _failure(verb, self.path, error) from error
        with contextlib.suppress(OSError):  # Some file systems cannot sync a directory.
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return fd

    def _descriptor(self) -> int:
        if self._refusal:
            raise VersionMismatchError(self._refusal)
        if self._fd is None:
            raise RecordError(f"journal {str(self.path)!r} is closed: open a new Journal")
        return self._fd

    @contextlib.contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        fd = self._descriptor()
        deadline = time.monotonic() + self._lock_timeout_s
        pause = 0.0005
        while True:
            try:
                fcntl.flock(fd, mode | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise RecordError(
                        f"journal {str(self.path)!r} has been locked by another process for "
                        f"{self._lock_timeout_s:g} s: end that process, or choose another "
                        "work directory"
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, 0.005)
            except OSError as error:
                raise _failure("lock", self.path, error) from error
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self.read_only:
            raise RecordError(
                f"journal {str(self.path)!r} was opened read-only: open it with read_only=False"
            )
        fd = self._descriptor()
        with self._locked(fcntl.LOCK_EX):
            self._refuse_replaced_file(fd)
            size = os.fstat(fd).st_size
            self._read(fd, size)
            data = b"".join([b"\n", *lines] if self._tail_open else lines)
            try:
                write_all(fd, data)
                os.fsync(fd)
            except OSError as error:
                # What was not acknowledged must not be seen. Where even this fails, the torn
                # line is closed by the next append and skipped by every reader.
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)
                raise _failure("write", self.path, error) from error
            self._offset = size + len(data)
            self._line += len(lines)
            self._tail_open = False

    def _refuse_replaced_file(self, fd: int) -> None:
        mine = os.fstat(fd)
        try:
            there = os.stat(self.path)
        except OSError as error:
            raise _failure("write", self.path, error) from error
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            raise RecordError(
                f"journal {str(self.path)!r} was replaced by another file while it was open: "
                "open it again"
            )

    # Reading

    def _read(self, fd: int, size: int) -> None:
        """Takes in every byte from where reading stopped up to ``size``."""
        if size < self._offset:
            raise RecordError(
                f"journal {str(self.path)!r} must only grow, but it shrank from {self._offset} to "
                f"{size} bytes while it was open: open it again"
            )
        rest = b""
        while self._offset < size:
            try:
                block = os.pread(fd, min(_BLOCK_BYTES, size - self._offset), self._offset)
            except OSError as error:
                raise _failure("read", self.path, error) from error
            if not block:
                break
            if self._tail_open and block[:1] == b"\n":
                self._offset, block = self._offset + 1, block[1:]
            self._tail_open = False
            self._offset += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._take(line)
        if rest:
            # No writer holds the lock, so this line will not get longer.
            self._take(rest)
            self._tail_open = True
        self._refuse_foreign_file()
        self._warn_of_skipped()

    def _take(self, line: bytes) -> None:
        self._line += 1
        if not line.strip():
            return
        try:
            kind, data = decode(line)
            if kind == "record":
                self._hold(self._shared(Record.from_json(data)))
            elif kind == "workload":
                self._hold(Workload(**data))
            elif kind == "hardware":
                self._hold(Hardware.from_json(data))
            elif kind == "network":
                self._networks[str(data["name"])] = data
            else:
                raise BadLineError(f"unknown kind of line {kind!r}")
        except VersionMismatchError as error:
            # What follows was not read, so this journal must not be used any further.
            self._refusal = f"{self.path}, line {self._line}: {error}"
            raise VersionMismatchError(self._refusal) from None
        except BadLineError as error:
            self.skipped.append(SkippedLine(self._line, str(error)))
        except (KeyError, TypeError, ValueError) as error:
            self.skipped.append(SkippedLine(self._line, f"fields do not fit: {error!r}"))

    def _holds(self, entry: Entry) -> bool:
        """Whether a description is there as it is; records are written whether they are or not."""
        if isinstance(entry, Workload):
            return entry.key in self._workloads
        return isinstance(entry, Hardware) and self._hardware.get(entry.key) == entry

    def _hold(self, entry: Entry) -> None:
        if isinstance(entry, Workload):
            self._workloads.setdefault(entry.key, entry)
        elif isinstance(entry, Hardware):
            self._hardware[entry.key] = entry
        else:
            pair = (entry.workload, entry.hardware)
            self._records.append(entry)
            self._pairs.setdefault(pair, []).append(entry)
            self._best.pop(pair, None)

    def _shared(self, record: Record) -> Record:
        """The same record, with what most records have in common held in memory once."""
        environment = {}
        for name, value in record.environment.items():
            if name not in self._last or self._last[name] != value:
                self._last[name] = value
            environment[sys.intern(name)] = self._last[name]
        return Record(
            workload=sys.intern(record.workload),
            hardware=sys.intern(record.hardware),
            candidate_key=record.candidate_key,
            decisions=record.decisions,
            measurement=record.measurement,
            origin=sys.intern(record.origin),
            time=record.time,
            environment=environment,
        )

    def _warn_of_skipped(self) -> None:
        if self.skipped and not self._warned:
            self._warned = True
            first = self.skipped[0]
            _log.warning(
                "%s: %d unreadable lines skipped, the first is line %d (%s)",
                self.path,
                len(self.skipped),
                first.line,
                first.reason,
            )

    def _refuse_foreign_file(self) -> None:
        if self._records or self._workloads or self._hardware or self._offset == 0:
            return
        if not may_be_journal(os.pread(self._descriptor(), 64, 0)):
            raise RecordError(
                f"{str(self.path)!r} is not a foretune journal: name a journal, or a file that "
                "does not exist yet"
            )


def line_of(entry: Entry) -> bytes:
    """The line of an entry, with its line feed."""
    if isinstance(entry, Workload):
        return encode("workload", asdict(entry))
    kind = "hardware" if isinstance(entry, Hardware) else "record"
    return encode(kind, entry.to_json())


def _failure(verb: str, path: Path, error: OSError) -> RecordError:
    remedies = {
        errno.ENOSPC: "free some space on that disk, then run the same command again",
        errno.EDQUOT: "free some of your disk quota, then run the same command again",
        errno.EFBIG: "raise the file size limit (ulimit -f), then run the same command again",
        errno.EROFS: "choose a work directory that can be written",
        errno.EACCES: "choose a work directory that can be written, or change its permissions",
        errno.EPERM: "choose a work directory that can be written, or change its permissions",
        errno.ENOTDIR: "a part of the path is a file: choose another work directory",
        errno.EISDIR: "the path is a directory: name a file",
        errno.ENOENT: "check the path",
        errno.EEXIST: "a part of the path is a file: choose another work directory",
    }
    reason = error.strerror or type(error).__name__
    remedy = remedies.get(error.errno or 0, "check the disk, or choose another work directory")
    return RecordError(f"cannot {verb} journal {str(path)!r}: {reason}: {remedy}")
