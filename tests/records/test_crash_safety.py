"""What must not lose records: kills, concurrent writers, full disks, damaged lines."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretune.errors import RecordError
from foretune.records import Journal
from tests import ROOT
from tests.records.support import record

KILLS = 50


class Writers:
    """A process that starts writers, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.records.writer_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def start(self, path: Path, name: str, count: int = 0) -> None:
        """Starts a writer of ``count`` records, or one that writes until it is killed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path} {name} {count}\n")
        self._process.stdin.flush()

    def acknowledged(self, kill_after_s: float | None = None) -> int:
        """How many records the writer said were on disk before it ended or was killed."""
        count = 0
        while (line := self._line()) != "end":
            if not line.startswith("start"):
                count += 1
            elif kill_after_s is not None:
                time.sleep(kill_after_s)
                os.kill(int(line.split()[1]), signal.SIGKILL)
        return count

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_killed_writers_lose_nothing_they_acknowledged(path: Path) -> None:
    moments = random.Random(0)
    acknowledged: dict[str, int] = {}
    writers = Writers()
    for kill in range(KILLS):
        name = f"w{kill}"
        writers.start(path, name)
        acknowledged[name] = writers.acknowledged(kill_after_s=moments.uniform(0.0, 0.05))
        with Journal(path) as journal:
            written = journal.records(workload=name)
            assert len(written) >= acknowledged[name]
            assert written == [record(i, workload=name) for i in range(len(written))]
            # At most the last line of each killed writer is torn.
            assert len(journal.skipped) <= kill + 1
    writers.close()
    assert sum(acknowledged.values()) > KILLS
    with Journal(path) as journal:
        for name, count in acknowledged.items():
            assert len(journal.records(workload=name)) >= count
        journal.append(record(0, workload="after"))
    assert Journal(path).records(workload="after") == [record(0, workload="after")]


def test_two_processes_writing_at_once_lose_nothing(path: Path) -> None:
    count = 500
    both = {"a": Writers(), "b": Writers()}
    for name, writers in both.items():
        writers.start(path, name, count)
    for writers in both.values():
        assert writers.acknowledged() == count
        writers.close()
    with Journal(path) as journal:
        assert not journal.skipped
        assert len(journal) == 2 * count
        for name in both:
            expected = [record(i, workload=name) for i in range(count)]
            assert journal.records(workload=name) == expected


@pytest.mark.parametrize("cut", [1, 2, 10, 150])
def test_a_torn_tail_is_skipped_and_appending_goes_on(path: Path, cut: int) -> None:
    with Journal(path) as journal:
        journal.extend([record(0), record(1)])
    os.truncate(path, path.stat().st_size - cut)
    # Without its line feed alone, a line is whole.
    whole = cut == 1
    kept = [record(0), record(1)] if whole else [record(0)]
    with Journal(path) as journal, Journal(path) as other:
        assert journal.records() == kept
        assert [s.line for s in journal.skipped] == ([] if whole else [2])
        journal.append(record(2))
        other.append(record(3))
        assert other.records() == [*kept, record(2), record(3)]
        assert len(other.skipped) == (0 if whole else 1)
    again = Journal(path)
    assert again.records() == [*kept, record(2), record(3)]
    assert [s.line for s in again.skipped] == ([] if whole else [2])


def test_a_journal_torn_in_its_first_line_can_be_used(path: Path) -> None:
    path.write_bytes(b'{"fore')
    with Journal(path) as journal:
        journal.append(record(0))
    assert Journal(path).records() == [record(0)]


def test_bad_lines_are_skipped_counted_and_warned_of_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(path) as journal:
        journal.append(record(0))
        good = path.read_bytes()
        journal.append(record(1))
    bad = [
        b"\x00" * 40 + b"\n",
        b"\xff\xfe garbage\n",
        b'{"some": "other program"}\n',
        good.replace(b"random", b"rando_"),
        b"[" * 5000 + b"\n",
    ]
    path.write_bytes(good + b"".join(bad) + b"\n" + good)
    with caplog.at_level(logging.WARNING):
        journal = Journal(path)
        journal.refresh()
    assert journal.records() == [record(0), record(0)]
    assert [s.line for s in journal.skipped] == [2, 3, 4, 5, 6]
    assert "checksum" in journal.skipped[3].reason
    warnings = [r.getMessage() for r in caplog.records if "unreadable" in r.getMessage()]
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert "5 unreadable lines" in warnings[0]


def test_intact_lines_with_unfit_fields_are_skipped(path: Path) -> None:
    from foretune.records._framing import encode

    data = record(0).to_json()
    del data["measurement"]
    path.write_bytes(encode("record", data) + encode("dream", {}) + encode("workload", {"x": 1}))
    journal = Journal(path)
    assert [s.line for s in journal.skipped] == [1, 2, 3]
    assert "measurement" in journal.skipped[0].reason
    assert "dream" in journal.skipped[1].reason


def test_a_write_that_fails_half_way_leaves_no_trace(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    calls = []

    def full_after_ten_bytes(fd: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(fd, bytes(data)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path) as journal, Journal(path) as other:
        journal.append(record(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full_after_ten_bytes)
            with pytest.raises(RecordError, match=r"No space left.*free some space"):
                journal.append(record(1))
        assert journal.records() == [record(0)]
        journal.append(record(2))
        other.append(record(3))
        assert other.records() == [record(0), record(2), record(3)]
        assert not other.skipped


def test_even_where_the_rollback_fails_later_appends_are_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def tears(fd: int, data: bytes) -> int:
        write(fd, bytes(data)[:10])
        raise OSError(errno.EIO, "Input/output error")

    def fails(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Journal(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", tears)
            patch.setattr(os, "ftruncate", fails)
            with pytest.raises(RecordError, match="Input/output error"):
                journal.append(record(0))
        journal.append(record(1))
        assert journal.records() == [record(1)]
    again = Journal(path)
    assert again.records() == [record(1)]
    assert len(again.skipped) == 1


def test_a_file_size_limit_is_an_error_and_can_be_overcome(path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Journal(path) as journal:
        journal.append(record(0))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limit[1]))
            with pytest.raises(RecordError, match=r"journal\.jsonl.*file size limit"):
                journal.append(record(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, ignored)
        journal.append(record(2))
    assert Journal(path).records() == [record(0), record(2)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow to mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)


def test_a_full_disk_is_an_error_and_can_be_overcome(small_disk: Path) -> None:
    path = small_disk / "journal.jsonl"
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 16384)
    written = []
    with Journal(path) as journal:
        with pytest.raises(RecordError, match="free some space"):
            for index in range(1000):
                journal.append(record(index))
                written.append(record(index))
        assert written
        filler.unlink()
        journal.append(record(5000))
    again = Journal(path)
    assert again.records() == [*written, record(5000)]
    assert not again.skipped


def test_a_read_only_disk_is_an_error(small_disk: Path) -> None:
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    if subprocess.run(remount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow to mount a disk read-only")
    with pytest.raises(RecordError, match=r"work directory that can be written"):
        Journal(small_disk / "run" / "journal.jsonl")


def test_a_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="a part of the path is a file"):
        Journal(tmp_path / "file" / "journal.jsonl")
    with pytest.raises(RecordError, match="the path is a directory"):
        Journal(tmp_path)


def test_a_writer_that_holds_the_lock_for_ever_is_an_error(path: Path) -> None:
    with Journal(path, lock_timeout_s=0.05) as journal, path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match="locked by another process"):
            journal.append(record(0))
        fcntl.flock(other, fcntl.LOCK_UN)
        journal.append(record(0))
        assert journal.records() == [record(0)]
