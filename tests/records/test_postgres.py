"""A store in PostgreSQL, on a real server: the contract, and what must not lose records."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from foretune import cli, tuning
from foretune.errors import RecordError, VersionMismatchError
from foretune.measure import Measurement
from foretune.records import Journal, Store, merge, open_store
from foretune.space import Candidate
from foretune.testing import stores
from tests import ROOT
from tests.records import postgres_server
from tests.records.postgres_server import PASSWORD, Server, served
from tests.records.support import record
from tests.test_cli_stores import folder, tune
from tests.tuning.support import HARDWARE, ok
from tests.tuning.test_reuse import HERE, InEnvironment

__all__ = ["folder"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return server.new_database()


@pytest.mark.parametrize("check", stores.CHECKS)
def test_it_is_a_store(check: Callable[[stores.StoreFactory], None], url: str) -> None:
    check(lambda: open_store(url))


def test_without_the_package_tests_are_skipped_by_its_name_or_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_server, "programs", lambda: None)
    monkeypatch.delenv("FORETUNE_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Debian's package postgresql"):
        postgres_server.require_server()
    monkeypatch.setenv("FORETUNE_REQUIRE", "postgresql")
    with pytest.raises(pytest.fail.Exception, match="FORETUNE_REQUIRE asks for it"):
        postgres_server.require_server()


def test_copies_count_once(url: str) -> None:
    with open_store(url) as store:
        store.extend([record(0), record(0), record(1)])
        store.extend([record(1), record(2)])
        assert store.records() == [record(0), record(1), record(2)]


def test_cut_connections_and_restarts_lose_nothing_and_write_nothing_twice(
    server: Server, url: str
) -> None:
    count, written = 60, []

    def write() -> None:
        with open_store(url) as store:
            for index in range(count):
                store.append(record(index))
                written.append(index)
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    cut = 0
    for mode in ("cut", "fast", "cut", "immediate"):
        seen = len(written)
        while len(written) < seen + 8 and writer.is_alive():
            time.sleep(0.005)
        if mode == "cut":
            cut += server.cut()
        else:
            server.stop(mode)
            server.start()
    writer.join(timeout=120)
    assert cut, "no connection was there to be cut"
    assert written == list(range(count)), "every record was acknowledged"
    with open_store(url, read_only=True) as store:
        assert store.records() == [record(index) for index in range(count)]


def test_a_server_that_stays_away_is_one_error_and_what_was_acknowledged_is_there(
    server: Server, url: str
) -> None:
    from foretune.records.postgres import PostgresStore

    with PostgresStore(url, patience_s=0.3) as store:
        store.append(record(0))
        server.stop()
        try:
            with pytest.raises(RecordError, match=r"cannot write store.*that the server runs"):
                store.append(record(1))
        finally:
            server.start()
        store.append(record(2))
        assert store.records() == [record(0), record(2)]


def test_many_that_open_an_empty_database_at_once_make_its_tables_once(url: str) -> None:
    errors: list[BaseException] = []

    def write(name: str) -> None:
        try:
            with open_store(url) as store:
                store.append(record(0, workload=name))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with open_store(url, read_only=True) as store:
        assert len(store.records()) == 8


def test_a_newer_schema_is_refused_and_left_alone(server: Server, url: str) -> None:
    import psycopg

    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE foretune_version SET version_num = '99'")
    for read_only in (False, True):
        with pytest.raises(VersionMismatchError, match="at most 1, but has 99"):
            open_store(url, read_only=read_only)


def test_reading_only_makes_no_tables(url: str) -> None:
    with pytest.raises(RecordError, match="holds no store"):
        open_store(url, read_only=True)
    open_store(url).close()
    with open_store(url, read_only=True) as store, pytest.raises(RecordError, match="read-only"):
        store.append(record(0))


@pytest.fixture
def small_disk(server: Server, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A database on a file system with little room, and that; needs the right to mount one."""
    disk = Path(tempfile.mkdtemp(prefix="foretune-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(disk)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow to mount a small disk")
    try:
        room = disk / "room"
        room.mkdir()
        shutil.chown(room, "postgres")
        disk.chmod(0o755)
        server.execute(f"CREATE TABLESPACE small LOCATION '{room}'")
        server.execute("CREATE DATABASE small TABLESPACE small")
        yield server.url("small"), disk
        server.execute("DROP DATABASE small WITH (FORCE)")
        server.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)
        disk.rmdir()


def test_a_full_disk_is_an_error_at_once_and_can_be_overcome(
    small_disk: tuple[str, Path],
) -> None:
    url, disk = small_disk
    large = replace(record(1), environment={"x": random.Random(0).randbytes(1 << 20).hex()})
    filler = disk / "filler"
    with open_store(url) as store:
        store.append(record(0))
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 65536) == 65536:
                pass
        with pytest.raises(RecordError, match=r"No space left.*free some space"):
            store.extend([record(2), large])
        filler.unlink()
        store.append(record(3))
        assert store.records() == [record(0), record(3)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("tuner@", "tuner:wr0ng@"), "set PGPASSWORD"),
        (("tuner@", "nobody:wr0ng@"), "set PGPASSWORD"),
        (("/store", "/nowhere"), "does not exist"),
        (("tuner@", "tuner:wr0ng%zz@"), "cannot be read"),
        (("tuner@", "tuner:wr@0ng@"), "one @ at most"),
        (("tuner@", "tuner:wr/0ng@"), "one @ at most"),
        (("127.0.0.1", "127.0.0.256"), "check the host"),
    ],
)
def test_what_is_wrong_with_a_url_is_told_in_one_line_without_passwords(
    url: str, change: tuple[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told) as caught:
        open_store(url.replace(*change))
    assert "\n" not in str(caught.value)
    assert "0ng" not in str(caught.value) and PASSWORD not in str(caught.value)


def test_a_password_may_come_from_the_url_or_a_file(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PGPASSWORD")
    with open_store(url.replace("tuner@", f"tuner:{quote(PASSWORD, safe='')}@")) as store:
        assert store.name == url
    escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    (tmp_path / "pgpass").write_text(f"127.0.0.1:*:*:tuner:{escaped}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    open_store(url).close()


def test_who_may_not_make_tables_can_use_those_that_are_there(server: Server, url: str) -> None:
    import psycopg

    server.execute(f"CREATE ROLE guest{server.port} LOGIN PASSWORD '{PASSWORD}'")
    guest = url.replace("tuner@", f"guest{server.port}@")
    with pytest.raises(RecordError, match="ask who runs the server for the right to"):
        open_store(guest)
    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO guest{server.port}")
        owner.execute(f"GRANT UPDATE ON foretune_hardware TO guest{server.port}")
    with open_store(guest) as store:
        store.write([HARDWARE, record(0)])
        assert store.records() == [record(0)]


def test_damaged_rows_are_skipped(url: str) -> None:
    import psycopg

    with open_store(url) as store:
        store.extend([record(0), record(1)])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE foretune_records SET data = '{' WHERE id = 1")
        assert store.records() == store.records() == [record(1)]
        assert [line.line for line in store.skipped] == [1]


def test_a_journal_goes_there_and_back(url: str, tmp_path: Path) -> None:
    with Journal(tmp_path / "a.jsonl") as one, open_store(url) as store:
        one.extend([record(index) for index in range(50)])
        assert merge(store, one) == 50
        with Journal(tmp_path / "b.jsonl") as two:
            assert merge(two, store) == 50
            assert two.records() == one.records()


@pytest.mark.slow
def test_killed_writers_lose_nothing_they_acknowledged(url: str) -> None:
    open_store(url).close()
    for number in range(5):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.records.store_writer", url, f"w{number}", "0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        acknowledged = 0
        for line in child.stdout:
            acknowledged = int(line) + 1
            if acknowledged == 40:
                child.kill()
        child.wait()
        with open_store(url, read_only=True) as store:
            written = store.records(workload=f"w{number}")
        assert len(written) >= acknowledged >= 40
        assert written == [record(i, workload=f"w{number}") for i in range(len(written))]


@pytest.mark.slow
def test_eight_processes_that_write_at_once_lose_nothing(url: str, tmp_path: Path) -> None:
    count = 250
    for place in (url, str(tmp_path / "journal.jsonl")):
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.records.store_writer", place, f"w{n}", str(count)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
            )
            for n in range(8)
        ]
        assert [child.wait(timeout=240) for child in children] == [0] * 8
        store: Store
        with open_store(place) as store:
            assert len(store.records()) == 8 * count
            for n in range(8):
                expected = [record(i, workload=f"w{n}") for i in range(count)]
                assert store.records(workload=f"w{n}") == expected


def test_what_a_colleague_tuned_costs_no_trial(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tune("--store", url)
    second = tune("--store", url.replace("tuner@", f"tuner:{quote(PASSWORD, safe='')}@"))
    assert len(first["tasks"][0]["trials"]) == 4
    assert second["tasks"][0]["trials"] == []
    assert second["reused"]["store"] == url
    told = capsys.readouterr()
    for text in (json.dumps(second), told.out, told.err, *_written(folder)):
        assert PASSWORD not in text and quote(PASSWORD, safe="") not in text


def _written(folder: Path) -> list[str]:
    """All that a run left in files."""
    return [p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file()]


def test_db_takes_urls_wherever_it_takes_paths(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tune("--work-dir", "run", "--store", "none")
    assert cli.main(["db", "merge", url, "run"]) == 0
    assert cli.main(["db", "merge", "all.jsonl", url, "run"]) == 0
    assert cli.main(["db", "info", url]) == 0
    assert cli.main(["db", "best", url, "--json", "best.json"]) == 0
    assert cli.main(["db", "export", url, "ms"]) == 0
    assert cli.main(["db", "import", "ms", url]) == 0
    out = capsys.readouterr().out
    assert "matmul" in out and url in out
    with Journal(folder / "all.jsonl", read_only=True) as merged, open_store(url) as store:
        journal = Journal(folder / "run" / "journal.jsonl", read_only=True)
        assert merged.records() == journal.records() == store.records()[: len(journal)]
        assert len(store.records()) > len(journal), "imported records are others"
    assert json.loads((folder / "best.json").read_text())


def test_a_store_that_goes_away_during_a_run_loses_nothing(
    server: Server, folder: Path, url: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from foretune.records.postgres import PostgresStore

    impatient = functools.partialmethod(PostgresStore.__init__, patience_s=0.2)
    monkeypatch.setattr(PostgresStore, "__init__", impatient)
    measurer = InEnvironment(HERE)

    def answer(candidate: Candidate) -> Measurement:
        if len(measurer.asked) == 3:
            server.stop()
        return ok(candidate)

    measurer.answer = answer
    monkeypatch.setattr(tuning, "tune", functools.partial(tuning.tune, measurer=measurer))
    try:
        result = tune("--store", url, "--work-dir", "run")
    finally:
        server.start()
    assert len(result["tasks"][0]["trials"]) == 4 and result["reused"]["unwritten"] > 4
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "foretune db merge STORE run" in warning
    assert cli.main(["db", "merge", url, "run"]) == 0
    with open_store(url) as store:
        assert len(store.records()) >= result["reused"]["unwritten"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("tuner@", "tuner:wr0ng@"), "PGPASSWORD"),
        (("/store", "/nowhere"), "does not exist"),
        (("postgresql:", "mysql:"), "begins otherwise"),
    ],
)
def test_a_server_that_refuses_is_one_line_before_the_first_trial(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str], change: tuple[str, str], told: str
) -> None:
    bad = url.replace(*change)
    assert cli.main(["tune", "mine.py:matmul", "--trials", "4", "--store", bad]) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1 and "wr0ng" not in err
    assert not (folder / "foretune-work").exists()
