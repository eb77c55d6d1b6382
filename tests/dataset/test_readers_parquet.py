"""Logs in columns: AutoTVM's, MIOpen's, and what lies beside them in folders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.dataset.readers import Reading, read
from foretune.errors import BadInputError, RecordError

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

DATA = Path(__file__).parent / "data"
WORKLOAD = json.dumps(
    ["conv2d_NCHWc.x86", [["TENSOR", [1, 8, 4, 4], "float32"], ["TENSOR", [8, 8, 1, 1], "float32"]]]
)
PROBLEM = "64-28-14-3x1-128-28-14-16-1x0-2x2-1x1-0-NCHW-FP32-F"


def _config(tile: int) -> str:
    return json.dumps([["tile_ic", "sp", [-1, tile]], ["unroll_kw", "ot", True]])


def _autotvm(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    columns = dict(
        zip(("workload", "config", "seconds", "error"), zip(*rows, strict=True), strict=True)
    )
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), path)
    return path


def _miopen(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    columns = dict(zip(("problem", "solver", "ms"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), path)
    return path


def _balanced(reading: Reading) -> bool:
    return reading.lines == reading.records + sum(reading.skipped.values())


def test_rows_of_autotvm_become_groups_like_lines(tmp_path: Path) -> None:
    rows = [
        (WORKLOAD, _config(2), 2e-3, 0),
        (WORKLOAD, _config(4), None, 6),
        (WORKLOAD, _config(4), 3e-3, 0),
        (WORKLOAD, _config(8), None, 0),
        ("no JSON", _config(8), 1e-3, 0),
        (WORKLOAD, _config(8), -1.0, 0),
    ]
    reading = read(_autotvm(tmp_path / "i7-3770.parquet", rows))
    (group,) = reading.groups
    assert reading.format == "autotvm" and _balanced(reading)
    assert reading.skipped == {
        "duplicate": 1, "damaged record": 1, "not JSON": 1, "seconds not positive and finite": 1,
    }  # fmt: skip
    np.testing.assert_allclose(group.seconds, [2e-3, 3e-3])
    assert [str(a) for a in group.programs[0].actions] == ["sp(tile_ic, -1, 2)", "ot(unroll_kw, 1)"]
    assert (group.hardware, group.kind) == ("i7-3770", "conv2d")
    assert group.device is not None and group.device.key == "i7-3770"
    assert group.device.value("simd_fp32_lanes_of_the_compiled_code") == 4, "a bare llvm"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "groups"),
    [("cpu-i7-3770", 97), ("cpu-cortex-a7", 185), ("cpu-i5-1035g1", 97), ("cpu-ryzen-3700x", 104),
     ("gpu-gtx1650", 123)],
)  # fmt: skip
def test_a_real_log_is_the_same_in_lines_and_in_columns(
    name: str, groups: int, shared_data: Path
) -> None:
    folder = shared_data / "devices"
    columns = read(folder / "autotvm" / f"{name.partition('-')[2]}.parquet", limit_per_group=20)
    lines = read(folder / f"{name}.jsonl.gz", limit_per_group=20)
    assert columns.lines == lines.lines
    assert columns.skipped == lines.skipped
    # 19 workloads of the Cortex-A7 failed throughout, winograd's; all have 20 programs or more.
    assert len(columns.groups) + columns.skipped.get("empty group", 0) // 20 == groups
    for one, other in zip(columns.groups, lines.groups, strict=True):
        assert (one.workload, one.name, one.kind) == (other.workload, other.name, other.kind)
        assert [p.key for p in one.programs] == [p.key for p in other.programs]
        assert np.array_equal(one.seconds, other.seconds, equal_nan=True)
        assert one.device == other.device is not None and one.machine == other.machine


def test_lines_and_columns_of_one_device_in_one_folder_are_read_once(tmp_path: Path) -> None:
    row = [(WORKLOAD, _config(2), 2e-3, 0), (WORKLOAD, _config(4), 1e-3, 0)]
    _autotvm(tmp_path / "i7-3770.parquet", row)
    target = "llvm -keys=cpu -model=i7-3770"
    lines = [
        {
            "input": [target, *json.loads(w), {}],
            "config": {"entity": json.loads(c)},
            "result": [[s], e, 0.0, 0.0],
        }
        for w, c, s, e in row
    ]
    (tmp_path / "z.jsonl").write_text("\n".join(map(json.dumps, lines)))
    reading = read(tmp_path)
    assert [len(group) for group in reading.groups] == [2]
    assert reading.skipped == {"duplicate": 2} and _balanced(reading)


def test_solvers_of_miopen_are_configurations_of_a_problem(tmp_path: Path) -> None:
    rows = [
        (PROBLEM, "ConvA", 0.5),
        (PROBLEM, "ConvB<3-3>", 2.0),
        (PROBLEM, "ConvB<3-3>", 1.0),
        (f"{PROBLEM}_g64", "ConvA", 0.25),
        (f"{PROBLEM}_g64", "ConvC", 0.125),
        (PROBLEM, "ConvD", 0.0),
        (PROBLEM, "", 1.0),
        ("a problem", "ConvA", 1.0),
        (None, "ConvA", 1.0),
    ]
    reading = read(_miopen(tmp_path / "gfx906.parquet", rows))
    plain, deep = reading.groups
    assert reading.format == "miopen" and _balanced(reading)
    assert reading.skipped == {
        "damaged record": 3, "duplicate": 1, "seconds not positive and finite": 1,
    }  # fmt: skip
    assert plain.seconds.tolist() == [5e-4, 1e-3]
    assert [p.configuration for p in plain.programs] == [
        {"solver": "ConvA"}, {"solver": "ConvB<3-3>"},
    ]  # fmt: skip
    assert (plain.kind, deep.kind) == ("conv2d", "depthwise")
    assert plain.name == "conv2d forward(16x64x28x14, 128x64x3x1, stride 2x2, padding 1x0)"
    assert deep.name == "depthwise forward(16x64x28x14, 128x1x3x1, stride 2x2, padding 1x0)"
    assert plain.workload == f"miopen {PROBLEM}"
    assert plain.hardware == "gfx906"
    assert plain.device is not None and plain.device.key == "mi50"
    assert read(tmp_path / "gfx906.parquet", hardware="mine").groups[0].hardware == "mine"


@pytest.mark.slow
def test_real_solvers(shared_data: Path) -> None:
    reading = read(shared_data / "devices" / "miopen", limit_per_group=4)
    assert _balanced(reading)
    assert reading.skipped["file of another format"] == 1, "the licence"
    problems = {"gfx900": 3565, "gfx906": 4000, "gfx908": 4000, "gfx90a": 4000}
    assert sum(problems.values()) == len(reading.groups) + reading.skipped["group with one record"]
    devices = {g.hardware: g.device.key if g.device else "" for g in reading.groups}
    assert devices == {"gfx900": "vega56", "gfx906": "mi50", "gfx908": "mi100", "gfx90a": "mi210"}


def test_a_folder_of_caches_is_read_without_what_lies_beside_them(tmp_path: Path) -> None:
    cache = (DATA / "kernel_tuner.json").read_text()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.json").write_text(cache)
    other = cache.replace("Some GPU", "NVIDIA A100-PCIE-40GB")
    (tmp_path / "two.json.gz").write_bytes(gzip.compress(other.encode()))
    (tmp_path / "LICENCE").write_text("MIT\n\nDo what you like.\n")
    (tmp_path / "space_milo.json").write_text('{"parameters": {"block_size_x": [16, 32]}}')
    reading = read(tmp_path)
    assert reading.format == "kernel_tuner" and _balanced(reading)
    assert [group.hardware for group in reading.groups] == ["Some GPU", "NVIDIA A100-PCIE-40GB"]
    assert [g.device.key if g.device else None for g in reading.groups] == [None, "a100"]
    assert reading.skipped == {"file of another format": 2}
    (tmp_path / "two.json.gz").write_bytes(gzip.compress(other.encode())[:-20])
    with pytest.raises(RecordError, match=r"two\.json\.gz cannot be read"):
        read(tmp_path)


def test_text_beside_logs_in_columns_is_left_out_and_what_is_damaged_refused(
    tmp_path: Path,
) -> None:
    rows = [(WORKLOAD, _config(2), 2e-3, 0), (WORKLOAD, _config(4), 1e-3, 0)]
    _autotvm(tmp_path / "i7-3770.parquet", rows)
    _autotvm(tmp_path / "ryzen-3700x.parquet", rows)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "another.parquet")
    (tmp_path / "README.md").write_text("Logs of two processors.\n")
    (tmp_path / "devices.json").write_text('{"a": 1}\n')
    reading = read(tmp_path, name="logs")
    assert [g.hardware for g in reading.groups] == ["logs/llvm-i7-3770", "logs/llvm-ryzen-3700x"]
    assert [g.device.key if g.device else None for g in reading.groups] == [
        "i7-3770", "ryzen-3700x",
    ]  # fmt: skip
    assert reading.skipped == {
        "not a record of this format": 1, "not JSON": 1, "file of another format": 1,
    }  # fmt: skip
    assert _balanced(reading)
    whole = (tmp_path / "i7-3770.parquet").read_bytes()
    (tmp_path / "i7-3770.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError, match=r"i7-3770\.parquet cannot be read as Parquet"):
        read(tmp_path)


def test_a_table_of_something_else_is_no_measurement(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(BadInputError, match="can be recognised"):
        read(tmp_path / "a.parquet")
