"""A store of two files: what is old and not used goes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretune.errors import RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune.records import BoundedStore, Journal
from foretune.workload import Workload
from tests.records.support import record

WORKLOAD = Workload("mm", "0" * 16, "{}", 1e6)
HARDWARE = Hardware("cpu", '{"kind": "llvm"}', threads=2)
LIMIT = 3000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.jsonl"


def fill(path: Path, first: int) -> int:
    """Opens and writes until the younger file is above its limit; returns the next number."""
    with BoundedStore(path, LIMIT) as store:
        while path.stat().st_size <= LIMIT:
            store.write([WORKLOAD, HARDWARE, record(first)])
            first += 1
    return first


def test_a_full_file_is_put_aside_and_the_one_before_it_forgotten(path: Path) -> None:
    one = fill(path, 0)
    two = fill(path, one)
    with BoundedStore(path, LIMIT) as store:
        # Opening put the second file aside; the first is gone.
        assert store.records() == [record(i) for i in range(one, two)]
        store.append(record(two))
        assert store.records() == [record(i) for i in range(one, two + 1)]
        assert store.workloads() == {WORKLOAD.key: WORKLOAD}
        assert store.hardware() == {HARDWARE.key: HARDWARE}
    files = sorted(p.name for p in path.parent.iterdir() if p.suffix == ".jsonl")
    assert files == ["store.1.jsonl", "store.jsonl"]


def test_a_store_that_is_open_goes_on_in_the_new_file(path: Path) -> None:
    with BoundedStore(path, LIMIT) as running:
        last = fill(path, 0)
        BoundedStore(path, LIMIT).close()
        running.write([WORKLOAD, record(last)])
    with Journal(path, read_only=True) as younger:
        assert younger.records() == [record(last)]
        assert younger.workloads() == {WORKLOAD.key: WORKLOAD}, "a file can be used by itself"


def test_two_that_find_a_full_file_put_it_aside_once(path: Path) -> None:
    last = fill(path, 0)
    with BoundedStore(path, LIMIT) as one, BoundedStore(path, LIMIT) as two:
        assert one.records() == two.records() == [record(i) for i in range(last)]


def test_a_place_that_cannot_be_used_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"store\.jsonl.*cannot be opened"):
        BoundedStore(tmp_path / "file" / "store.jsonl")


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    import zlib

    BoundedStore(path).close()
    body = b'{"foretune":2,"kind":"record","data":{}'
    path.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    before = path.read_bytes()
    with pytest.raises(VersionMismatchError, match="at most 1, but got 2"):
        BoundedStore(path)
    assert path.read_bytes() == before
