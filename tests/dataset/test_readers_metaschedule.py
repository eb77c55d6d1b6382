"""MetaSchedule's JSON databases: of older TVMs, whose programs cannot be rebuilt, and of ours."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.dataset.readers import read
from foretune.errors import BadInputError, RecordError
from foretune.evaluate import family
from foretune.hardware import Hardware
from foretune.records import import_metaschedule
from foretune.records.metaschedule_import import RECORDS, WORKLOADS
from tests import ROOT

# Eight trials of a 64 x 64 x 64 matrix product, written by TVM 0.27's tune_tir.
GOLDEN = ROOT / "tests" / "records" / "data"
TARGET = {"kind": "cuda", "arch": "sm_80", "keys": ["cuda", "gpu"]}
SHAPES = [["TENSOR", "float32", [64, 32]], ["TENSOR", "float32", [64]]]
LOOPS = {"dense": ("i", "j", "k"), "T_relu": ("ax0", "ax1")}


class _Module:
    """The JSON of a module as TVM 0.16 wrote it: fields are indices of nodes, as text."""

    def __init__(self, blocks: Mapping[str, Sequence[str]]) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        parts = [self._nest(name, loops) for name, loops in blocks.items()]
        body = self._add("tir.SeqStmt", seq=self._put({"type_key": "Array", "data": parts}))
        root = self._add("tir.Block", name_hint=self._text("root"), body=body)
        self._add("tir.PrimFunc", body=self._add("tir.BlockRealize", block=root))

    def _nest(self, name: str, loops: Sequence[str]) -> int:
        inner = self._add("tir.Block", name_hint=self._text(name), body=self._add("tir.Evaluate"))
        at = self._add("tir.BlockRealize", block=inner)
        for loop in reversed(loops):
            at = self._add("tir.For", loop_var=self._add("tir.Var", name=self._text(loop)), body=at)
        return at

    def _add(self, kind: str, **fields: int) -> int:
        attrs = {name: str(at) for name, at in fields.items()}
        return self._put({"type_key": kind, "attrs": {"span": "0", **attrs}})

    def _text(self, text: str) -> int:
        return self._put({"type_key": "runtime.String", "repr_str": text})

    def _put(self, node: dict[str, Any]) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def line(self, key: str = "123") -> str:
        """A line of the file of workloads."""
        text = json.dumps({"root": 1, "nodes": self.nodes}).encode()
        return json.dumps([key, base64.b64encode(len(text).to_bytes(8, "little") + text).decode()])


def _trace(tile: Sequence[int], unroll: int = 1, location: int = -1) -> list[Any]:
    instructions = [
        ["GetBlock", [], ["dense", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
        ["Split", ["l1", "v4", "v5"], [1], ["l6", "l7"]],
        ["Split", ["l2", "None", 8], [1], ["l8", "l9"]],
        ["SampleCategorical", [], [[0, 16, 64], [0.25, 0.25, 0.5]], ["v10"]],
        ["Annotate", ["b0", "v10"], ["meta_schedule.unroll_explicit"], []],
        ["GetBlock", [], ["T_relu", "main"], ["b11"]],
        ["SampleComputeLocation", ["b11"], [], ["l12"]],
        ["ReverseComputeAt", ["b11", "l12"], [1, -1], []],
        ["EnterPostproc", [], [], []],
        ["Unannotate", ["b0"], ["meta_schedule.unroll_explicit"], []],
        ["Vectorize", ["l7"], [], []],
    ]
    return [instructions, [[2, list(tile)], [5, unroll], [8, location]]]


def _record(
    trace: Any,
    seconds: Any = (1e-3,),
    workload: Any = 0,
    target: Any = TARGET,
    shapes: Any = SHAPES,
) -> str:
    given = list(seconds) if isinstance(seconds, tuple) else seconds
    return json.dumps([workload, [trace, given, target, shapes]])


def _database(tmp_path: Path, workloads: Sequence[str], records: Sequence[str]) -> Path:
    folder = tmp_path / "a100"
    folder.mkdir(exist_ok=True)
    (folder / WORKLOADS).write_text("\n".join(workloads) + "\n")
    (folder / RECORDS).write_text("\n".join(records) + "\n")
    return folder


GOOD = [
    _record(_trace([16, 4]), (1e-3, 3e-3)),
    _record(_trace([8, 8], unroll=2), (1e-3,)),
    _record(_trace([4, 16], location=2), (1e10,)),
]


def test_traces_become_actions_that_read_like_ours(tmp_path: Path) -> None:
    reading = read(_database(tmp_path, [_Module(LOOPS).line()], GOOD))
    (group,) = reading.groups
    assert (reading.format, reading.lines, reading.skipped) == ("metaschedule", 3, {})
    assert group.workload == '["dense+T_relu","float32[64,32]","float32[64]"]'
    assert group.name == "dense+T_relu(float32[64,32], float32[64])"
    assert (group.kind, group.hardware) == ("dense", "a100")
    np.testing.assert_allclose(group.seconds, [2e-3, 1e-3, math.nan])
    assert [str(action) for action in group.programs[0].actions] == [
        "split(dense.i, 16, 4)",
        "split(dense.j, auto, 8)",
        "annotate(dense, meta_schedule.unroll_explicit, 16)",
        "reverse_compute_at(T_relu, root)",
    ]
    assert "reverse_compute_at(T_relu, loop2)" in group.programs[2].key


def test_a_database_of_this_tvm_reads_as_its_imported_candidates() -> None:
    hardware = Hardware("test", '{"kind":"llvm","mcpu":"znver4","num-cores":2}', threads=2)
    imported = import_metaschedule(GOLDEN, hardware).records
    (group,) = read(GOLDEN).groups
    ours = {";".join(map(str, trial.candidate.actions())) for trial in imported}
    assert ours
    assert {program.key for program in group.programs} == ours
    assert group.kind == "unknown", "its block is called C"


def test_a_program_that_cannot_be_read_has_numbered_loops(tmp_path: Path) -> None:
    unreadable = json.dumps(["77", base64.b64encode(b"\0" * 8 + b"not JSON").decode()])
    reading = read(_database(tmp_path, [unreadable], GOOD))
    (group,) = reading.groups
    assert group.workload == '["program 77","float32[64,32]","float32[64]"]'
    assert group.kind == "dense", "blocks of the trace are known"
    assert str(group.programs[0].actions[0]) == "split(dense.loop0, 16, 4)"


@pytest.mark.parametrize("nodes", [[], [3], [{"type_key": "tir.PrimFunc"}], None])
def test_a_damaged_module_costs_names_only(nodes: Any, tmp_path: Path) -> None:
    text = json.dumps({"nodes": nodes}).encode()
    line = json.dumps(["77", base64.b64encode(b"\0" * 8 + text).decode()])
    (group,) = read(_database(tmp_path, [line], GOOD)).groups
    assert len(group) == 3


def test_a_module_that_runs_in_circles_is_left(tmp_path: Path) -> None:
    module = _Module(LOOPS)
    loop = next(node for node in module.nodes if node["type_key"] == "tir.For")
    loop["attrs"]["body"] = str(module.nodes.index(loop))
    assert len(read(_database(tmp_path, [module.line()], GOOD)).groups) == 1


def test_the_two_files_may_be_compressed_and_named_alone(tmp_path: Path) -> None:
    folder = _database(tmp_path, [_Module(LOOPS).line()], GOOD)
    for name in (WORKLOADS, RECORDS):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    for path in (folder, folder / f"{WORKLOADS}.gz", folder / f"{RECORDS}.gz"):
        reading = read(path)
        assert (reading.format, reading.groups[0].hardware) == ("metaschedule", "a100")
    packed = folder / f"{RECORDS}.gz"
    packed.write_bytes(packed.read_bytes()[:-10])
    with pytest.raises(RecordError, match="cannot be read"):
        read(folder)


def test_a_database_of_one_file_is_refused(tmp_path: Path) -> None:
    folder = _database(tmp_path, [_Module(LOOPS).line()], GOOD)
    (folder / WORKLOADS).unlink()
    with pytest.raises(BadInputError, match="at least one is missing"):
        read(folder, format="metaschedule")
    with pytest.raises(BadInputError, match="can be recognised"):
        read(folder)


def _without(trace: list[Any], decision: int) -> list[Any]:
    return [trace[0], [pair for pair in trace[1] if pair[0] != decision]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (GOOD[0][:200], "not JSON"),
        ("[]", "not a record of this format"),
        ('{"i": [[]], "r": []}', "not a record of this format"),
        (_record(3), "not a record of this format"),
        (_record(_trace([2, 32]), workload=7), "workload cannot be read"),
        (_record(_trace([2, 32]), workload=-1), "workload cannot be read"),
        (_record(_trace([2, 32]), workload=1), "workload cannot be read"),
        (_record(_trace([2, 32]), seconds=None), "never measured"),
        (_record(_trace([2, 32]), (0.0,)), "seconds not positive and finite"),
        (_record(_trace([2, 32]), (math.nan,)), "seconds not positive and finite"),
        (_record(_trace([2, 32]), "fast"), "damaged record"),
        (_record(_trace([2, 32]), target={}), "damaged record"),
        (_record(_trace([2, 32, 1])), "damaged record"),
        (_record(_trace([2, 32], unroll=9)), "damaged record"),
        (_record(_without(_trace([2, 32]), 2)), "damaged record"),
        (_record(_without(_trace([2, 32]), 5)), "damaged record"),
        (_record([[[3, [], [], []]], []]), "damaged record"),
        (_record([[["Split", [{"a": 1}], [], []]], []]), "damaged record"),
        (GOOD[1], "duplicate"),
        # Differs in what follows from the rest.
        (GOOD[1].replace('"Vectorize"', '"Unroll"'), "duplicate"),
    ],
)
def test_a_line_that_cannot_be_used_is_counted(line: str, reason: str, tmp_path: Path) -> None:
    workloads = [_Module(LOOPS).line(), "torn ["]
    reading = read(_database(tmp_path, workloads, [*GOOD, line]))
    assert reading.skipped == {reason: 1}
    assert reading.lines == 4
    assert len(reading.groups[0]) == 3


def test_workloads_that_differ_in_their_hash_alone_are_told_apart(tmp_path: Path) -> None:
    """The same operators on the same shapes, but for example with another padding."""
    again = [line.replace("[0, [", "[1, [", 1) for line in GOOD]
    same = [line.replace("[0, [", "[2, [", 1) for line in GOOD]
    workloads = [_Module(LOOPS).line(key) for key in ("1", "2", "1")]
    reading = read(_database(tmp_path, workloads, [*GOOD, *again, *same]))
    first, second = reading.groups
    assert second.workload == first.workload + "#2"
    assert reading.skipped == {"duplicate": 3}


def test_programs_that_differ_in_what_is_fused_behind_are_a_family(tmp_path: Path) -> None:
    def shapes(*sizes: tuple[int, ...]) -> list[Any]:
        return [["TENSOR", "float32", list(size)] for size in sizes]

    x, w, bias, out = (8, 32), (64, 32), (1, 64), (8, 64)
    added = {"dense": ("i", "j", "k"), "T_add": ("ax0", "ax1"), "T_relu": ("ax0", "ax1")}
    given = (shapes(x, w, out), shapes(x, w, bias, out), shapes((9, 32), w, (9, 64)))
    records = [
        _record(_trace(tile), workload=at, shapes=each)
        for at, each in enumerate(given)
        for tile in ([16, 4], [8, 8])
    ]
    workloads = [_Module(LOOPS).line("1"), _Module(added).line("2"), _Module(LOOPS).line("3")]
    plain, fused, larger = read(_database(tmp_path, workloads, records)).groups
    assert len({group.workload for group in (plain, fused, larger)}) == 3
    assert family(plain) == family(fused) != family(larger)


def test_records_of_two_targets_never_mix(tmp_path: Path) -> None:
    other = [line.replace("sm_80", "sm_90") for line in GOOD]
    reading = read(_database(tmp_path, [_Module(LOOPS).line()], [*GOOD, *other]))
    assert {g.hardware for g in reading.groups} == {"a100/cuda-sm_80", "a100/cuda-sm_90"}
