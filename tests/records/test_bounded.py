"""A store of bounded size: what is slow or not used goes, and nothing else."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from foretune.errors import RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune.records import ALLOWED, CONFIRM, BoundedStore, Entry, Journal, Record
from foretune.records.bounded import worth_keeping
from foretune.workload import Workload
from tests.records.support import record

WORKLOAD = Workload("mm", "w", "{}", 1e6)
HARDWARE = Hardware("cpu", '{"kind": "llvm"}', threads=2)
LIMIT = 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.jsonl"


def made(index: int, **changes: object) -> Record:
    """Record number ``index``: the higher, the slower."""
    fields = {"workload": "w", "best_s": 1e-3 * (index + 1), **changes}
    return record(index, **fields)  # type: ignore[arg-type]


def fill(path: Path, **changes: object) -> int:
    """Opens and writes until the younger file is above its limit; returns how many."""
    number = 0
    with BoundedStore(path, LIMIT) as store:
        while path.stat().st_size <= LIMIT:
            store.write([WORKLOAD, HARDWARE, made(number, **changes)])
            number += 1
    return number


def test_of_a_full_file_the_fastest_of_each_program_are_kept(path: Path) -> None:
    fill(path)
    fill(path, workload="v")
    with BoundedStore(path, LIMIT) as store:
        assert store.records("w") == [made(index) for index in range(16)]
        assert store.records("v") == [made(index, workload="v") for index in range(16)]
        assert store.workloads() == {WORKLOAD.key: WORKLOAD}
        assert store.hardware() == {HARDWARE.key: HARDWARE}
        store.append(made(99))
        assert store.records("w")[-1] == made(99)
    names = sorted(p.name for p in path.parent.iterdir() if p.suffix == ".jsonl")
    assert names == ["store.1.jsonl", "store.jsonl"]


def test_a_store_that_is_open_goes_on_in_the_new_file(path: Path) -> None:
    with BoundedStore(path, LIMIT) as running:
        fill(path)
        BoundedStore(path, LIMIT).close()
        running.write([WORKLOAD, made(99)])
    with Journal(path, read_only=True) as younger:
        assert younger.records() == [made(99)]
        assert younger.workloads() == {WORKLOAD.key: WORKLOAD}, "a file can be used by itself"


def test_what_was_interrupted_is_done_at_the_next_opening(path: Path) -> None:
    fill(path)
    expected = [made(index) for index in range(16)]
    os.replace(path, path.with_name("store.full.jsonl"))
    path.with_name("store.new.jsonl").write_bytes(b'{"fore')
    with BoundedStore(path, LIMIT) as store:
        assert store.records() == expected
    # Interrupted after the older file was written: nothing counts twice.
    path.with_name("store.full.jsonl").write_bytes(path.with_name("store.1.jsonl").read_bytes())
    with BoundedStore(path, LIMIT) as store:
        assert store.records() == expected
    assert not path.with_name("store.full.jsonl").exists()


def test_runs_that_open_write_and_make_room_at_once_lose_no_schedule(path: Path) -> None:
    sizes: list[int] = []

    def tune(name: str) -> None:
        for turn in range(12):
            with BoundedStore(path, 9000) as store:
                sizes.append(path.stat().st_size)
                again = [replace(made(n, workload=name), time=1e9 + turn) for n in range(4)]
                store.write(again)

    threads = [threading.Thread(target=tune, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes.count(0) > 2, "room was made more than once"
    with BoundedStore(path, 9000) as store:
        for name in ("w0", "w1", "w2", "w3"):
            there = {r.candidate_key for r in store.records(name)}
            assert there == {f"c{n}" for n in range(4)}


def test_programs_that_nobody_used_for_long_are_forgotten_first() -> None:
    records = [made(index, workload=f"w{index // 4}") for index in range(40)]
    workloads = {f"w{n}": Workload("mm", f"w{n}", "{}", 1e6) for n in range(10)}
    kept = worth_keeping(records, workloads, most=5000)
    programs = [entry.key for entry in kept if isinstance(entry, Workload)]
    assert 1 < len(programs) < 10 and programs == [f"w{9 - n}" for n in range(len(programs))]
    assert {r.workload for r in kept if isinstance(r, Record)} == set(programs)


def test_environments_are_ranked_apart() -> None:
    here = [made(index) for index in range(20)]
    there = [replace(r, environment={"tvm": "0.26"}, time=r.time + 50) for r in here]
    kept = worth_keeping([*here, *there], {}, most=1 << 20)
    assert kept == [*here[:16], *there[:16]]


def test_the_end_of_the_most_generous_run_is_kept() -> None:
    def end(allowed: float, time: float) -> list[Record]:
        environment = {"tvm": "0.27", ALLOWED: allowed}
        return [
            replace(made(n, origin=CONFIRM), time=time, environment=environment) for n in range(2)
        ]

    small, large, last = end(5.0, 1.0), end(50.0, 2.0), end(5.0, 3.0)
    kept: list[Entry] = worth_keeping([*small, *large, *last], {}, most=1 << 20)
    assert kept == [*large, *last], "and what stands for the candidates now"


def test_a_place_that_cannot_be_used_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"store\.jsonl.*cannot be opened"):
        BoundedStore(tmp_path / "file" / "store.jsonl")


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    BoundedStore(path).close()
    body = b'{"foretune":2,"kind":"record","data":{}'
    path.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    before = path.read_bytes()
    with pytest.raises(VersionMismatchError, match="at most 1, but got 2"):
        BoundedStore(path)
    assert path.read_bytes() == before
