"""Our own data set on disk: nothing is lost on the way, and nothing bad is used silently."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.dataset import (
    AUDIT,
    StoredWorkload,
    is_dataset,
    load,
    read_dataset,
    write_dataset,
)
from foretune.dataset._schema import flatten, unflatten
from foretune.errors import BadInputError, IllegalCandidateError, RecordError, VersionMismatchError
from foretune.measure import Measurement, Status
from foretune.space import Space
from tests.dataset.measured import record, records, seconds_of, write
from tests.space.programs import space


@pytest.fixture(scope="module")
def matmul() -> Space:
    return space("matmul")


@pytest.fixture(scope="module")
def pooling() -> Space:
    return space("pooling")


@pytest.fixture
def written(tmp_path: Path, matmul: Space, pooling: Space) -> Path:
    path = tmp_path / "data"
    write(path, [matmul, pooling], records(matmul, 12) + records(pooling, 5))
    return path


def edit(path: Path, change: Any) -> None:
    """Rewrites the rows of the first records file."""
    file = path / "records-000.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)


def test_records_come_back_as_they_were(written: Path, matmul: Space, pooling: Space) -> None:
    assert is_dataset(written)
    data = read_dataset(written)
    expected = records(matmul, 12) + records(pooling, 5)
    assert not data.skipped
    for found, given_ in zip(data.records, expected, strict=True):
        assert found.candidate == given_.candidate
        assert found.decisions == given_.decisions
        assert found.measurement == given_.measurement
        assert (found.origin, found.time) == (given_.origin, given_.time)
        assert "elapsed_s" not in found.environment
        assert found.environment["tvm"] == "0.27"
    assert len(data.environments) == 1


def test_candidates_that_come_back_can_be_applied(written: Path) -> None:
    for made in load(written):
        candidate = made.programs[0].candidate
        assert candidate is not None
        assert candidate.apply() is not None
        assert made.programs[0].actions == tuple(candidate.actions())


def test_groups_are_one_workload_on_one_hardware(written: Path, matmul: Space) -> None:
    groups = {g.name: g for g in load(written)}
    assert {name: len(g) for name, g in groups.items()} == {"matmul": 12, "pooling": 5}
    made = groups["matmul"]
    assert made.workload == matmul.workload.key
    assert made.machine == matmul.hardware
    assert made.device is not None
    assert made.device.factors["cores"] == matmul.hardware.threads
    assert made.kind == "dense"
    assert made.quiet.all()
    expected = [seconds_of(p.candidate) for p in made.programs if p.candidate is not None]
    assert made.seconds.tolist() == expected


def test_failures_are_nan_and_cut_short_readings_count(tmp_path: Path, matmul: Space) -> None:
    first, second, third = matmul.sample(np.random.default_rng(1), 3)
    failed = Measurement(Status.WRONG_OUTPUT, (1e-3,), (True,), message="differs")
    cut = Measurement(Status.CUT_SHORT, (2e-3,), (False,))
    write(tmp_path / "d", [matmul], [record(first), record(second, failed), record(third, cut)])
    (made,) = load(tmp_path / "d")
    assert np.isnan(made.seconds).tolist() == [False, True, False]
    assert made.seconds[2] == 2e-3
    assert made.quiet.tolist() == [True, True, False]


def test_audits_are_kept_but_are_no_training_data(tmp_path: Path, matmul: Space) -> None:
    made = records(matmul, 4)
    again = replace(made[0], origin=AUDIT)
    write(tmp_path / "d", [matmul], [*made, again])
    data = read_dataset(tmp_path / "d")
    assert len(data.records) == 5
    assert [len(g) for g in data.groups()] == [4]


def test_a_candidate_measured_twice_counts_with_the_later_record(
    tmp_path: Path, matmul: Space
) -> None:
    one, two = records(matmul, 2)
    better = replace(one, measurement=Measurement(Status.OK, (1e-9, 1e-9), (True, True)))
    write(tmp_path / "d", [matmul], [one, two, better])
    (made,) = load(tmp_path / "d")
    assert len(made) == 2
    assert made.best_s == 1e-9


def test_groups_that_say_nothing_are_left_out_and_counted(
    tmp_path: Path, matmul: Space, pooling: Space
) -> None:
    failed = Measurement(Status.CRASH)
    bad = [record(c, failed) for c in pooling.sample(np.random.default_rng(0), 3)]
    write(tmp_path / "d", [matmul, pooling], [*records(matmul, 1), *bad])
    data = read_dataset(tmp_path / "d")
    assert data.groups() == []
    assert data.skipped == {"group with one record": 1, "group without a valid record": 1}


def test_rows_that_cannot_be_used_are_counted(written: Path) -> None:
    def spoil(rows: list[dict[str, Any]]) -> None:
        rows[0]["seconds"] = [1e-3, float("nan")]
        rows[1]["seconds"] = [0.0, 1e-3]
        rows[2]["decisions"] = [7, 7, 7]
        rows[3]["sketch"] = "no such sketch"
        rows[4]["status"] = "marvellous"
        rows[5]["quiet"] = [True]
        rows[6]["seconds"] = None
        rows[7]["decisions"] = [2 * d for d in rows[7]["decisions"]]
        rows[8]["seconds"] = [1e-3, float("inf")]
        rows[9] |= {"status": "cut_short", "seconds": [0.0], "quiet": [True]}
        rows[10]["seconds"] = [None, 1e-3]
        rows[11]["environment"] = -1

    edit(written, spoil)
    data = read_dataset(written)
    assert len(data.records) == 17 - 12
    assert data.skipped == {
        "seconds not positive": 4,
        "illegal decisions": 2,
        "unknown sketch": 1,
        "malformed row": 5,
    }


@pytest.mark.parametrize("name", ["records-000.parquet", "sketches.parquet", "workloads.parquet"])
def test_a_truncated_or_missing_file_is_refused(written: Path, name: str) -> None:
    file = written / name
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(RecordError, match="truncated"):
        load(written)
    file.unlink()
    with pytest.raises(RecordError, match="missing"):
        load(written)


@pytest.mark.parametrize("name", ["records-000.parquet", "sketches.parquet", "workloads.parquet"])
def test_a_flipped_bit_never_changes_what_is_read(written: Path, name: str) -> None:
    file = written / name
    whole, expected = file.read_bytes(), load(written)
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(0, len(whole), 40).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        try:
            found = load(written)
        except (RecordError, BadInputError):
            refused += 1
            continue
        for one, other in zip(found, expected, strict=True):
            assert (one.key, one.kind, one.origins) == (other.key, other.kind, other.origins)
            assert np.array_equal(one.seconds, other.seconds, equal_nan=True)
            assert [p.key for p in one.programs] == [p.key for p in other.programs]
    assert refused


def test_a_workload_without_its_program_is_refused(written: Path) -> None:
    file = written / "workloads.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[0]["module"] = None
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    with pytest.raises(RecordError, match="has no module"):
        load(written)


def test_grouping_twice_counts_once(written: Path) -> None:
    edit(written, lambda rows: rows[0].update(status="build_failed", seconds=[], quiet=[]))
    data = read_dataset(written)
    data.groups()
    once = dict(data.skipped)
    assert data.groups() and data.skipped == once


def test_a_file_of_other_columns_is_refused(written: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), written / "records-000.parquet")
    with pytest.raises(RecordError, match="lacks the columns"):
        load(written)


def retype(file: Path, column: str, kind: pa.DataType, value: Any) -> None:
    """Makes a file whose column holds a value of another type throughout."""
    table = pq.read_table(file)
    at = table.schema.get_field_index(column)
    other = pa.array([value] * len(table), kind)
    pq.write_table(table.set_column(at, pa.field(column, kind), other), file)


@pytest.mark.parametrize(
    ("file", "column", "kind", "value", "told"),
    [
        ("records-000", "time", pa.string(), "now", "numbers, but holds text"),
        ("records-000", "workload", pa.int64(), 7, "text, but holds integers"),
        ("records-000", "build_s", pa.bool_(), True, "numbers, but holds booleans"),
        ("records-000", "environment", pa.float64(), 0.0, "integers, but holds numbers"),
        ("records-000", "seconds", pa.float64(), 1e-3, "lists of numbers, but holds numbers"),
        ("records-000", "decisions", pa.list_(pa.float32()), [1.0], "integers, but holds lists of"),
        ("records-000", "message", pa.null(), None, "text, but holds null"),
        ("sketches", "sketch", pa.binary(), b"{}", "text, but holds binary"),
        ("workloads", "flops", pa.string(), "many", "numbers, but holds text"),
    ],
)
def test_a_column_of_another_type_is_refused(
    written: Path, file: str, column: str, kind: pa.DataType, value: Any, told: str
) -> None:
    retype(written / f"{file}.parquet", column, kind, value)
    with pytest.raises(
        RecordError, match=rf"{file}\.parquet: column '{column}' must .*{told}.*: c"
    ):
        load(written)


def test_width_and_encoding_of_a_column_do_not_matter(written: Path) -> None:
    expected = [group.seconds.tolist() for group in load(written)]
    retype(written / "workloads.parquet", "flops", pa.int64(), 10)
    retype(written / "records-000.parquet", "origin", pa.large_string(), "uniform")
    retype(written / "records-000.parquet", "environment", pa.int64(), 0)
    assert [group.seconds.tolist() for group in load(written)] == expected


def stamp(file: Path, metadata: dict[str, str] | None) -> None:
    """Gives a file other meta data."""
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata(metadata), file)


@pytest.mark.parametrize("name", ["records-000.parquet", "sketches.parquet", "workloads.parquet"])
def test_every_file_says_its_schema_version(written: Path, name: str) -> None:
    file = written / name
    assert pq.read_schema(file).metadata[b"foretune.schema"] == b"foretune.dataset/1"
    stamp(file, None)
    assert len(load(written)) == 2, "the first ones did not"
    stamp(file, {"foretune.schema": "foretune.dataset/99"})
    with pytest.raises(VersionMismatchError, match=rf"{name}.*foretune\.dataset/99"):
        load(written)


def test_workloads_that_nobody_measured_are_counted(
    tmp_path: Path, matmul: Space, pooling: Space
) -> None:
    audit = replace(records(pooling, 1)[0], origin=AUDIT)
    write(tmp_path / "d", [matmul, pooling], [*records(matmul, 3), audit])
    data = read_dataset(tmp_path / "d")
    assert [len(g) for g in data.groups()] == [3]
    assert len(data.groups()) == 1 and data.skipped == {"workload without a record": 1}
    write(tmp_path / "e", [matmul, pooling], [])
    nothing = read_dataset(tmp_path / "e")
    assert (nothing.records, nothing.groups()) == ([], [])
    assert nothing.skipped == {"workload without a record": 2}


def test_workloads_alone_are_a_data_set_and_keep_their_order(
    tmp_path: Path, matmul: Space, pooling: Space
) -> None:
    listed = [StoredWorkload(pooling.workload, "pool"), StoredWorkload(matmul.workload, "dense")]
    for order in (listed, listed[::-1]):
        write_dataset(tmp_path / "d", order, (), (), ())
        found = read_dataset(tmp_path / "d")
        assert list(found.workloads.values()) == order
        assert not found.records and not found.hardware and not found.sketches
        assert found.groups() == []


def test_fewer_records_than_promised_are_refused(written: Path) -> None:
    edit(written, lambda rows: rows.pop())
    with pytest.raises(RecordError, match="must hold 17 records"):
        load(written)


def test_another_schema_version_is_refused(written: Path) -> None:
    index = json.loads((written / "dataset.json").read_text())
    (written / "dataset.json").write_text(json.dumps(index | {"schema": "foretune.dataset/99"}))
    with pytest.raises(VersionMismatchError, match=r"foretune\.dataset/99"):
        load(written)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "foretune.dataset/1"}'])
def test_a_broken_index_is_refused(written: Path, text: str) -> None:
    (written / "dataset.json").write_text(text)
    with pytest.raises(RecordError):
        load(written)


@pytest.mark.parametrize(
    "change", [{"files": None}, {"hardware": [{"name": "x"}]}, {"environments": 3}, {"records": ""}]
)
def test_a_damaged_index_is_refused(written: Path, change: dict[str, Any]) -> None:
    index = json.loads((written / "dataset.json").read_text())
    (written / "dataset.json").write_text(json.dumps(index | change))
    with pytest.raises(RecordError, match="damaged"):
        load(written)


@pytest.mark.parametrize("text", ["[]", "{", "{}"])
def test_a_damaged_sketch_is_refused(written: Path, text: str) -> None:
    file = written / "sketches.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[0]["sketch"] = text
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    with pytest.raises(RecordError, match="damaged"):
        load(written)


def test_an_interrupted_rewrite_leaves_the_old_data_set(
    written: Path, matmul: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretune.dataset._write._record_table", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(written, [matmul], records(matmul, 3))
    assert sum(map(len, load(written))) == 17
    assert [f.name for f in written.parent.iterdir()] == [written.name]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_directory_without_an_index_is_no_data_set(tmp_path: Path) -> None:
    assert not is_dataset(tmp_path)
    with pytest.raises(BadInputError, match="no data set"):
        load(tmp_path)


def test_writing_again_leaves_no_old_records(written: Path, matmul: Space) -> None:
    write(written, [matmul], records(matmul, 3))
    assert [len(g) for g in load(written)] == [3]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_flattened_decisions_come_back(matmul: Space, seed: int) -> None:
    (candidate,) = matmul.sample(np.random.default_rng(seed), 1)
    flat = flatten(candidate.decisions)
    assert all(isinstance(number, int) for number in flat)
    assert unflatten(candidate.sketch, flat) == candidate.decisions
    with pytest.raises(IllegalCandidateError):
        unflatten(candidate.sketch, [*flat, 1])
