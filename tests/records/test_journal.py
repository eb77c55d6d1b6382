"""The journal: what is written is read again, by this process and by others."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.errors import RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Journal, Record
from foretune.records._framing import BadLineError, decode, encode
from foretune.workload import Workload
from tests.records.support import record

HARDWARE = Hardware("cpu", '{"kind": "llvm"}', threads=2, peak_gflops=230.0)
WORKLOAD = Workload(name="mm", key="0" * 16, module_json="{}", flops=1e6, weight=3)

_numbers = st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_measurements = st.builds(
    Measurement,
    status=st.sampled_from(Status),
    seconds=st.lists(_numbers, max_size=4).map(tuple),
    quiet=st.lists(st.booleans(), max_size=4).map(tuple),
    build_s=_numbers,
    run_s=_numbers,
    message=st.text(st.characters()),
    max_error=st.none() | _numbers,
)
_records = st.builds(
    Record,
    workload=st.text(),
    hardware=st.text(),
    candidate_key=st.text(),
    decisions=st.dictionaries(st.text(), _json, max_size=3),
    measurement=_measurements,
    origin=st.text(),
    time=_numbers,
    environment=st.dictionaries(st.text(), _json, max_size=3),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "journal.jsonl"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(_records, max_size=4))
def test_records_of_any_content_come_back_equal(tmp_path: Path, records: list[Record]) -> None:
    path = tmp_path / "any.jsonl"
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        journal.extend(records)
    with Journal(path, read_only=True) as again:
        assert again.records() == records
        assert not again.skipped
    assert all(line.isascii() for line in path.read_bytes().splitlines())


@given(st.binary())
def test_any_bytes_are_a_bad_line_and_nothing_else(line: bytes) -> None:
    with pytest.raises(BadLineError):
        decode(line)


@given(record_=_records, data=st.data())
def test_a_changed_byte_is_noticed(record_: Record, data: st.DataObject) -> None:
    line = encode("record", record_.to_json())[:-1]
    at = data.draw(st.integers(0, len(line) - 1))
    changed = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[at]))
    with pytest.raises(BadLineError):
        decode(line[:at] + bytes([changed]) + line[at + 1 :])


def test_lines_are_json(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(record(7))
    entry = json.loads(path.read_text())
    assert entry["foretune"] == 1
    assert Record.from_json(entry["data"]) == record(7)


def test_numbers_that_json_lacks_survive(path: Path) -> None:
    wrong = record(best_s=None, status=Status.WRONG_OUTPUT)
    wrong = replace(wrong, measurement=replace(wrong.measurement, max_error=math.inf))
    with Journal(path) as journal:
        journal.append(wrong)
    assert Journal(path).records() == [wrong]


def test_records_are_found_by_workload_hardware_and_status(path: Path) -> None:
    records = [
        record(0, workload="a"),
        record(1, workload="b"),
        record(2, workload="a", hardware="g"),
        record(3, workload="a", status=Status.CRASH, best_s=None),
    ]
    with Journal(path) as journal:
        journal.extend(records)
        assert journal.records() == records
        assert journal.records(workload="a") == [records[0], records[2], records[3]]
        assert journal.records(hardware="g") == [records[2]]
        assert journal.records("a", "h") == [records[0], records[3]]
        assert journal.records("a", "h", ok_only=True) == [records[0]]
        assert journal.records("nobody", "h") == []
        assert len(journal) == 4


def test_best_follows_what_is_appended(path: Path) -> None:
    with Journal(path) as journal:
        assert journal.best("w", "h") is None
        journal.append(record(0, best_s=2e-3))
        assert journal.best("w", "h") == record(0, best_s=2e-3)
        journal.append(record(1, best_s=1e-3))
        journal.append(record(2, best_s=5e-4, status=Status.CUT_SHORT))
        assert journal.best("w", "h") == record(1, best_s=1e-3)
        journal.append(record(3, candidate="c1", status=Status.WRONG_OUTPUT, best_s=None))
        assert journal.best("w", "h") == record(0, best_s=2e-3)


def test_a_journal_alone_holds_programs_and_hardware(path: Path) -> None:
    with Journal(path) as journal:
        for _ in range(2):
            journal.add_workload(WORKLOAD)
            journal.add_hardware(HARDWARE)
        measured_again = replace(HARDWARE, peak_gflops=231.0)
        journal.add_hardware(measured_again)
    with Journal(path) as again:
        again.add_workload(WORKLOAD)
        known = again.workloads()[WORKLOAD.key]
        assert (known.name, known.module_json, known.flops, known.weight) == ("mm", "{}", 1e6, 3)
        assert again.hardware() == {HARDWARE.key: measured_again}
    assert len(path.read_text().splitlines()) == 3


def test_two_journals_on_one_file_see_each_other(path: Path) -> None:
    with Journal(path) as one, Journal(path) as two:
        one.append(record(0))
        assert two.refresh() == 1
        assert two.refresh() == 0
        two.append(record(1))
        one.append(record(2))
        two.refresh()
        assert one.records() == two.records() == [record(0), record(1), record(2)]


def _append_newer_line(path: Path) -> None:
    body = b'{"foretune":2,"kind":"record","data":{}'
    with path.open("ab") as file:
        file.write(body + b',"crc":"%08x"}\n' % zlib.crc32(body))


def test_a_newer_version_is_refused(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(record(0))
    _append_newer_line(path)
    with pytest.raises(VersionMismatchError, match=r"line 2.*at most 1, but got 2"):
        Journal(path)


def test_a_newer_line_written_meanwhile_stops_a_writer(path: Path) -> None:
    with Journal(path) as journal:
        _append_newer_line(path)
        for _ in range(2):
            with pytest.raises(VersionMismatchError):
                journal.append(record(0))
    assert path.read_bytes().count(b"\n") == 1


def test_a_file_that_is_no_journal_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"schema": "foretune.tune/1"}\n')
    with pytest.raises(RecordError, match="not a foretune journal"):
        Journal(path)
    assert path.read_text() == '{"schema": "foretune.tune/1"}\n'


def test_reading_only_needs_a_file_and_never_writes(path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read journal"):
        Journal(path, read_only=True)
    assert not path.parent.exists()
    Journal(path).close()
    with Journal(path, read_only=True) as journal, pytest.raises(RecordError, match="read-only"):
        journal.append(record(0))


def test_a_closed_journal_still_answers(path: Path) -> None:
    journal = Journal(path)
    journal.append(record(0))
    journal.close()
    journal.close()
    assert journal.best("w", "h") == record(0)
    with pytest.raises(RecordError, match="closed"):
        journal.refresh()


def test_a_replaced_or_shortened_file_is_noticed(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(record(0))
        path.rename(path.with_name("aside.jsonl"))
        with pytest.raises(RecordError, match="check the path"):
            journal.append(record(1))
        Journal(path).close()
        with pytest.raises(RecordError, match="replaced by another file"):
            journal.append(record(1))
    with Journal(path) as journal:
        journal.append(record(0))
        path.write_bytes(b"")
        with pytest.raises(RecordError, match="shrank"):
            journal.append(record(1))


def test_records_share_what_they_have_in_common(path: Path) -> None:
    policy = {"repeats": 5}
    with Journal(path) as journal:
        for index in range(3):
            environment = {"policy": dict(policy), "elapsed_s": float(index)}
            journal.append(replace(record(index), environment=environment))
    one, two, three = Journal(path).records()
    assert one.environment["policy"] is two.environment["policy"] is three.environment["policy"]
    assert [r.environment["elapsed_s"] for r in (one, two, three)] == [0.0, 1.0, 2.0]


def test_what_cannot_be_written_as_json_changes_nothing(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(TypeError):
            journal.extend([record(0), replace(record(1), environment={"x": object()})])
        journal.append(record(2))
    assert Journal(path).records() == [record(2)]


def test_how_a_network_was_taken_apart_is_kept_and_written_again_when_it_changes(
    path: Path,
) -> None:
    passes = [{"name": "layouts", "on": True, "reason": "", "changed": True}]
    with Journal(path) as journal:
        journal.add_network("net", passes, {"layouts": {"conv2d 1": "as written"}})
        journal.add_network("net", passes, {"layouts": {"conv2d 1": "as written"}})
        journal.add_network("net", passes, {})
    assert len(path.read_text().splitlines()) == 2
    with Journal(path) as journal:
        assert journal.networks() == {"net": {"name": "net", "passes": passes, "plan": {}}}
        journal.add_network("net", passes, {}, {"chosen": False})
    with Journal(path) as journal:
        assert journal.networks()["net"]["plans"] == {"chosen": False}
