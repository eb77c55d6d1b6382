"""Interchange with MetaSchedule's databases, checked against TVM's own reader."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import BadInputError, RecordError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Journal, Record, Trial, export_metaschedule, import_metaschedule
from foretune.records.metaschedule_import import RECORDS, WORKLOADS
from foretune.space import Candidate, Space
from foretune.workload import Workload

# Eight trials of a 64 x 64 x 64 matrix product, written by TVM 0.27's tune_tir.
GOLDEN = Path(__file__).parent / "data"
HARDWARE = Hardware("test", '{"kind":"llvm","mcpu":"znver4","num-cores":2}', threads=2)


def _matmul(n: int) -> Workload:
    from foretune._tvm import tvm

    a = tvm.te.placeholder((n, n), name="A")
    b = tvm.te.placeholder((n, n), name="B")
    k = tvm.te.reduce_axis((0, n), name="k")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Workload.from_module(tvm.te.create_prim_func([a, b, c]), name=f"matmul {n}")


@pytest.fixture(scope="module")
def space() -> Space:
    return Space.generate(_matmul(64), HARDWARE)


def _record(candidate: Candidate, best_s: float, status: Status = Status.OK) -> Trial[Candidate]:
    measurement = Measurement(status, (best_s * 3, best_s), (True, True))
    return Trial.of(candidate, measurement, "", {}, ended=0.0)


@pytest.fixture
def records(space: Space, rng: np.random.Generator) -> list[Trial[Candidate]]:
    """Thirty candidates of all sketches, the fastest the fifth."""
    drawn = space.sample(rng, 30)
    return [_record(c, 1e-3 + 1e-5 * abs(i - 4)) for i, c in enumerate(drawn)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A copy of the database that TVM wrote."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "database"))


def _query(directory: Path, module: Any) -> Any:
    from foretune._tvm import meta_schedule as ms

    database = ms.database.JSONDatabase(work_dir=str(directory))
    return database.query_tuning_record(module, HARDWARE.tvm_target(), "main")


def test_tvm_finds_the_best_exported_record_and_can_apply_it(
    tmp_path: Path, space: Space, records: list[Trial[Candidate]]
) -> None:
    from foretune._tvm import Schedule, structural_hash

    outcome = export_metaschedule(records, tmp_path / "db")
    assert (outcome.workloads, outcome.records, outcome.left_out) == (1, 30, {})
    found = _query(tmp_path / "db", space.workload.module)
    assert [float(s) for s in found.run_secs] == [1e-3]
    schedule = Schedule(space.workload.module)
    found.trace.apply_to_schedule(schedule, remove_postproc=False)
    best = records[4].candidate
    assert structural_hash(schedule.mod) == structural_hash(best.apply())


def test_tvm_compiles_a_model_with_an_exported_database(
    tmp_path: Path, space: Space, records: list[Trial[Candidate]]
) -> None:
    from foretune._tvm import meta_schedule as ms
    from foretune._tvm import tvm

    export_metaschedule(records, tmp_path / "db", top=1)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"))
    with HARDWARE.tvm_target(), database, tvm.transform.PassContext(opt_level=3):
        applied = tvm.relax.transform.MetaScheduleApplyDatabase()(space.workload.module)
    assert bool(applied["main"].attrs["tirx.is_scheduled"])


def test_export_and_import_give_the_same_candidates_and_values(
    tmp_path: Path, space: Space, records: list[Trial[Candidate]]
) -> None:
    untuned = _record(space.untuned, 5e-3)
    failed = _record(records[0].candidate, 1e-9, Status.TIMEOUT)
    export_metaschedule([*records, untuned, failed], tmp_path / "db")
    outcome = import_metaschedule(tmp_path / "db", HARDWARE)
    assert not outcome.skipped
    assert outcome.workloads == (space.workload,)
    values = {r.candidate_key: r.measurement.best_s for r in outcome.records}
    assert values == {r.candidate_key: r.measurement.best_s for r in [*records, untuned]}
    assert all(r.measurement.ok for r in outcome.records)


def test_a_journal_alone_can_be_exported(
    tmp_path: Path, space: Space, records: list[Trial[Candidate]]
) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.extend([Record.from_json(r.to_json()) for r in records])
        first = export_metaschedule(journal, tmp_path / "lacking")
        assert first.records == 0
        assert list(first.left_out) == ["the store lacks the program or the hardware"]
        journal.add_workload(space.workload)
        journal.add_hardware(HARDWARE)
        journal.append(replace(records[0], candidate_key="x", decisions={"sketch": "gone"}))
    with Journal(tmp_path / "j", read_only=True) as journal:
        outcome = export_metaschedule(journal, tmp_path / "db", top=3)
        assert outcome.records == 3
        everything = export_metaschedule(journal, tmp_path / "all")
    assert everything.records == 30
    assert sum(everything.left_out.values()) == 1
    assert "30 records of 1 workloads written" in str(everything)
    kept = import_metaschedule(tmp_path / "db", HARDWARE).records
    assert [r.measurement.best_s for r in kept] == pytest.approx([1e-3, 1.01e-3, 1.01e-3])


def test_export_refuses_to_mix_hardware_or_to_overwrite(
    tmp_path: Path, records: list[Trial[Candidate]]
) -> None:
    other = [replace(records[0], hardware="other"), *records[1:3]]
    with pytest.raises(BadInputError, match="one hardware"):
        export_metaschedule(other, tmp_path / "db")
    assert export_metaschedule(other, tmp_path / "db", hardware=HARDWARE.key).records == 2
    with pytest.raises(RecordError, match="holds a database already"):
        export_metaschedule(records[:1], tmp_path / "db")
    assert export_metaschedule(records[:1], tmp_path / "db", overwrite=True).records == 1
    assert len((tmp_path / "db" / RECORDS).read_text().splitlines()) == 1
    with pytest.raises(BadInputError, match="no records of hardware 'nobody'"):
        export_metaschedule(records, tmp_path / "new", hardware="nobody")


def test_a_database_that_tvm_wrote_is_read(space: Space) -> None:
    outcome = import_metaschedule(GOLDEN, HARDWARE)
    assert len(outcome.records) == 8
    assert not outcome.skipped
    assert outcome.workloads == (space.workload,)
    best = min(outcome.records, key=lambda r: r.measurement.best_s or 1.0)
    assert best.measurement.best_s == pytest.approx(2.7566e-05, rel=1e-4)
    assert best.decisions == space.candidate(best.decisions).to_json()
    assert {r.origin for r in outcome.records} == {"metaschedule"}
    assert "8 records of 1 workloads read" in str(outcome)


def test_a_compressed_database_is_read(database: Path) -> None:
    for name in (WORKLOADS, RECORDS):
        path = database / name
        (database / (name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(import_metaschedule(database, HARDWARE).records) == 8
    (database / (RECORDS + ".gz")).write_bytes(b"\x1f\x8b\x08 not whole")
    with pytest.raises(BadInputError, match="is the file whole"):
        import_metaschedule(database, HARDWARE)


def _with_trace(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda entry: change(entry[1][0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda e: e.__setitem__(0, 7), "a workload that the database lacks"),
        (lambda e: e.__setitem__(1, [1]), "not a tuning record"),
        (lambda e: e[1].__setitem__(0, [[1]]), "not a tuning record"),
        (lambda e: e[1].__setitem__(1, None), "never measured"),
        (lambda e: e[1].__setitem__(1, [-1.0]), "not positive numbers"),
        (lambda e: e[1][2].__setitem__("mcpu", "skylake"), "another target"),
        (lambda e: e[1].__setitem__(2, "llvm"), "not a tuning record"),
        (_with_trace(lambda t: t[0].pop(2)), "not one of a sketch"),
        (_with_trace(lambda t: t[1].pop(0)), "outside its domain"),
        (_with_trace(lambda t: t[1][0].__setitem__(1, [0, 4, 4, 4])), "outside its domain"),
        (_with_trace(lambda t: t[1][0].__setitem__(1, "x")), "outside its domain"),
        (_with_trace(lambda t: t[1][-1].__setitem__(1, 9)), "outside its domain"),
    ],
)
def test_a_bad_record_is_skipped_with_its_reason(
    database: Path, change: Callable[[Any], None], reason: str
) -> None:
    path = database / RECORDS
    lines = path.read_text().splitlines()
    entry = json.loads(lines[1])
    change(entry)
    lines[1] = json.dumps(entry, separators=(",", ":"))
    path.write_text("\n".join(lines))
    outcome = import_metaschedule(database, HARDWARE)
    assert len(outcome.records) == 7
    assert [s.line for s in outcome.skipped] == [2]
    assert reason in outcome.skipped[0].reason
    assert outcome.unmatched == (reason in ("not one of a sketch", "outside its domain"))
    assert "skipped 1 records, the first in line 2" in str(outcome)


def test_garbage_lines_are_skipped(database: Path) -> None:
    for name in (WORKLOADS, RECORDS):
        path = database / name
        path.write_bytes(path.read_bytes() + b"\n\x00\xff\n[[[\n{}\n[0,[" + b"[" * 3000 + b"\n")
    outcome = import_metaschedule(database, HARDWARE)
    assert len(outcome.records) == 8
    assert len(outcome.skipped) == 4
    assert len(outcome.skipped_workloads) == 4


def test_failures_are_imported_as_failures(database: Path) -> None:
    path = database / RECORDS
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    entries[0][1][1] = [1e10]
    path.write_text("\n".join(map(json.dumps, entries)))
    first, *others = import_metaschedule(database, HARDWARE).records
    assert first.measurement.status is Status.RUN_ERROR
    assert first.measurement.best_s is None
    assert all(r.measurement.ok for r in others)


def test_a_missing_database_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no database_workload\.json"):
        import_metaschedule(tmp_path, HARDWARE)


def test_a_database_of_an_older_tvm_is_skipped_whole(shared_data: Path) -> None:
    directory = shared_data / "metaschedule-a100-resnet34"
    if not directory.is_dir():
        pytest.skip(f"recorded data is not on this machine: {directory}")
    outcome = import_metaschedule(directory, HARDWARE)
    assert outcome.records == ()
    assert len(outcome.skipped_workloads) == 20
    assert len(outcome.skipped) == 20_089
    assert "another TVM version" in str(outcome)
