"""The untuned program in another order of loops computes the same, and caches better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T

from foretune import _tvm
from foretune.hardware import Hardware
from foretune.measure._buffers import compute_reference
from foretune.measure._locality import in_cache_order
from foretune.workload import Workload, load_input, walk
from tests.measure import programs


def product(m: int, n: int, k: int, layout: str, dtype: str = "float32") -> Workload:
    """C[m, n] of A and B, which lie as ``layout`` says: "nn", "nt", "tn" or "tt"."""
    te = _tvm.tvm.te
    a = te.placeholder((m, k) if layout[0] == "n" else (k, m), dtype, name="A")
    b = te.placeholder((k, n) if layout[1] == "n" else (n, k), dtype, name="B")
    axis = te.reduce_axis((0, k), name="r")

    def element(i: Any, j: Any) -> Any:
        left = a[i, axis] if layout[0] == "n" else a[axis, i]
        right = b[axis, j] if layout[1] == "n" else b[j, axis]
        return te.sum(left * right, axis=axis)

    c = te.compute((m, n), element, name="C")
    return Workload.from_module(te.create_prim_func([a, b, c]), name="product")


def inner_extents(module: Any) -> list[int]:
    """Extents of the loops around the last block, from the outermost on."""
    return [int(node.extent) for node in walk(module["main"].body) if type(node).__name__ == "For"]


def outputs(workload: Workload, hardware: Hardware, path: Path, as_written: bool) -> bytes:
    path.touch()
    found = compute_reference(workload, hardware.tvm_target(), str(path), as_written)
    assert found["as_written"] or not as_written
    return path.read_bytes()


@settings(max_examples=20, deadline=None)
@given(
    st.tuples(*[st.integers(2, 33)] * 3),
    st.sampled_from(["nn", "nt", "tn", "tt"]),
    st.sampled_from(["float32", "int32"]),
)
def test_products_are_the_same_to_the_bit(
    hardware: Hardware,
    tmp_path_factory: pytest.TempPathFactory,
    sizes: Any,
    layout: str,
    dtype: str,
) -> None:
    workload = product(*sizes, layout, dtype)
    place = tmp_path_factory.mktemp("reference")
    first = outputs(workload, hardware, place / "a", as_written=False)
    assert first == outputs(workload, hardware, place / "b", as_written=True)
    assert np.frombuffer(first, np.uint8).any()


def test_terms_are_added_in_the_order_of_the_program(hardware: Hardware) -> None:
    # Products are exact, and sums of values of such different sizes are not.
    rng = np.random.default_rng(0)
    a = (rng.choice([1e8, -1e8, 3.0, 0.1], (16, 40))).astype("float32")
    b = np.ones((40, 24), "float32")
    moved = in_cache_order(product(16, 24, 40, "nn").module)
    c = _tvm.tvm.runtime.tensor(np.zeros((16, 24), "float32"))
    program = _tvm.tvm.compile(moved, hardware.tvm_target()).jit()["main"]
    program(_tvm.tvm.runtime.tensor(a), _tvm.tvm.runtime.tensor(b), c)
    forwards, backwards = np.zeros((2, 16), "float32")
    for place in range(40):
        forwards += a[:, place]
        backwards += a[:, 39 - place]
    assert not np.array_equal(forwards, backwards)
    np.testing.assert_array_equal(c.numpy(), np.repeat(forwards[:, None], 24, axis=1))


@pytest.mark.parametrize(
    ("name", "moved"),
    [("conv2d", True), ("depthwise", True), ("conv3d", True), ("conv2d_pad_relu", True),
     ("avgpool2d", True)],
)  # fmt: skip
def test_operators_are_the_same_to_the_bit(
    hardware: Hardware, tmp_path: Path, name: str, moved: bool
) -> None:
    workload = load_input(name)
    assert (in_cache_order(workload.module) is not None) == moved
    first = outputs(workload, hardware, tmp_path / "a", as_written=False)
    assert first == outputs(workload, hardware, tmp_path / "b", as_written=True)


@T.prim_func(s_tir=True)
def _last_column_counts(
    x: T.Buffer((32, 64), "float32"),
    w: T.Buffer((64, 32), "float32"),
    y: T.Buffer((32,), "float32"),
) -> None:
    for i, j, k in T.grid(32, 32, 64):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk] * w[vk, vj]


@T.prim_func(s_tir=True)
def _reads_another_element(
    x: T.Buffer((32, 64), "float32"), w: T.Buffer((64, 32), "float32"),
    y: T.Buffer((32, 32), "float32"),
) -> None:  # fmt: skip
    for i, j, k in T.grid(32, 32, 64):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj] + y[vj, vi]


@T.prim_func(s_tir=True)
def _rows_and_columns(
    x: T.Buffer((8, 32), "float32"), w: T.Buffer((32, 16), "float32"),
    y: T.Buffer((8, 16), "float32"),
) -> None:  # fmt: skip
    for i, j in T.grid(8, 16):
        for k in T.serial(32):
            with T.sblock("y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]


def test_what_is_no_sum_of_its_own_terms_stays_as_it_is() -> None:
    module = _tvm.tvm.IRModule
    assert in_cache_order(module({"main": _last_column_counts})) is None
    assert in_cache_order(module({"main": _reads_another_element})) is None


def test_loops_of_several_threads_stay_as_they_are() -> None:
    serial = _tvm.tvm.IRModule({"main": _rows_and_columns})
    assert in_cache_order(serial) is not None
    schedule = _tvm.Schedule(serial)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("y"))[1])
    assert in_cache_order(schedule.mod) is None


@pytest.mark.parametrize("name", sorted(programs.ALL))
def test_other_programs_are_the_same_to_the_bit(
    hardware: Hardware, tmp_path: Path, name: str
) -> None:
    workload = programs.ALL[name]
    first = outputs(workload, hardware, tmp_path / "a", as_written=False)
    assert first == outputs(workload, hardware, tmp_path / "b", as_written=True)


def test_the_columns_of_a_row_become_the_innermost_loop() -> None:
    found = in_cache_order(product(8, 16, 32, "nn").module)
    assert found is not None
    # The beginning of the sums, and then the sums.
    assert inner_extents(found) == [8, 16, 8, 32, 16]


def test_a_product_that_reads_along_rows_stays_as_it_is() -> None:
    assert in_cache_order(product(8, 16, 32, "nt").module) is None


@pytest.mark.parametrize("name", ["gelu", "increment"])
def test_what_has_no_reduction_stays_as_it_is(name: str) -> None:
    assert in_cache_order(programs.ALL[name].module) is None
