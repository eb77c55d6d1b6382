"""The correctness gate: what it lets pass, what it catches, and the inputs it uses."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure._buffers import Buffers, compute_reference
from foretune.measure.gate import (
    Parameter,
    Signature,
    judge,
    make_inputs,
    poison,
    tolerance,
)
from foretune.space import Space
from foretune.workload import Workload, catalog
from tests.measure import programs

_KEY = "00000000000000ab"


def _output(*shape: int, dtype: str = "float32") -> Parameter:
    return Parameter("y", shape, dtype, "output")


def _signature(parameter: Parameter, reduction: int = 1) -> Signature:
    return Signature((parameter,), reduction)


@pytest.fixture
def reference_path(tmp_path: Path) -> str:
    path = tmp_path / "reference"
    path.touch()
    return str(path)


def _buffers(workload: Workload, hardware: Hardware, path: str) -> Buffers:
    found = compute_reference(workload, hardware.tvm_target(), path)
    assert found["seconds"] > 0
    signature = Signature.from_json(found["signature"])
    return Buffers(signature, path, workload.key, _tvm.tvm.cpu(0))


def test_what_was_timed_last_is_what_is_checked_then(
    hardware: Hardware, reference_path: str
) -> None:
    workload = programs.matmul(32)
    signature = Signature.from_json(
        compute_reference(workload, hardware.tvm_target(), reference_path)["signature"]
    )
    buffers = Buffers(signature, reference_path, workload.key, _tvm.tvm.cpu(0), workspace=100 << 10)
    program = _compile(workload.module, hardware)
    calls = buffers.turns.take(3)
    for tensors in calls:
        program(*tensors)
    assert buffers.judge(timed=True).right
    # The last call's result is broken, and that of the first copy is not.
    calls[-1][-1].copyfrom(np.zeros((32, 32), "float32"))
    assert buffers.judge().right
    assert not buffers.judge(timed=True).right
    # Nor does a result that no timed call has written count.
    calls[0][-1].copyfrom(np.zeros((32, 32), "float32"))
    for tensors in buffers.turns.take(2):
        program(*tensors)
    assert buffers.judge(timed=True).right


def _compile(module: Any, hardware: Hardware) -> Any:
    return _tvm.tvm.compile(module, hardware.tvm_target()).jit()["main"]


def test_roles_come_from_the_order_of_reads_and_writes() -> None:
    def roles(name: str) -> list[str]:
        return [p.role for p in Signature.of(programs.ALL[name]).parameters]

    assert roles("matmul48_float32") == ["input", "input", "output"]
    assert roles("increment") == ["inout"]
    assert roles("two_outputs") == ["input", "output", "output"]


def test_reduction_size_is_summed_over_the_chain() -> None:
    assert Signature.of(programs.ALL["matmul48_float32"]).reduction == 49
    assert Signature.of(programs.ALL["gelu"]).reduction == 1
    assert Signature.of(programs.ALL["softmax"]).reduction == 2 * 64 + 1


def test_signature_survives_json() -> None:
    signature = Signature.of(programs.ALL["take"])
    assert Signature.from_json(signature.to_json()) == signature


def test_unknown_element_types_are_named() -> None:
    workload = programs.negate("bfloat16")
    with pytest.raises(BadInputError, match=r"'x'.*bfloat16"):
        Signature.of(workload)


def test_inputs_are_the_same_for_the_same_workload() -> None:
    signature = Signature.of(programs.ALL["matmul48_float32"])
    first, second = make_inputs(signature, _KEY), make_inputs(signature, _KEY)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second, strict=True))
    other = make_inputs(signature, "00000000000000ac")
    assert not np.array_equal(first[0], other[0])


def test_float_inputs_are_sparse_small_integers() -> None:
    values = make_inputs(Signature.of(programs.ALL["matmul48_float32"]), _KEY)[0]
    assert set(np.unique(values)) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert 0.6 < np.mean(values == 0) < 0.9


@pytest.mark.parametrize(
    ("make", "at", "below"),
    [
        (programs.take, 1, 10),
        (programs.embedding, 0, 10),
        (programs.wrapped, 0, 10),
        (programs.scatter, 0, 10),
        (programs.in_order, 0, 40),
    ],
)
def test_indices_stay_inside_what_they_index_and_reach_all_of_it(
    make: Callable[[], Workload], at: int, below: int
) -> None:
    indices = make_inputs(Signature.of(make()), _KEY)[at]
    assert indices.min() >= 0
    assert indices.max() < below
    assert len(np.unique(indices)) > 5


def test_integers_that_index_nothing_may_be_negative() -> None:
    assert make_inputs(Signature.of(programs.ALL["negate_int8"]), _KEY)[0].min() < 0
    assert Signature.of(programs.take()).parameters[0].index_below is None


def _quotient(divide: Callable[..., Any], a: Any, b: Any, i: Any) -> Any:
    return divide(a[i], b[i])


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_nothing_is_divided_by_zero(dtype: str) -> None:
    te, tirx = _tvm.tvm.te, _tvm.tvm.tirx
    a, b = (te.placeholder((64,), dtype, name=name) for name in "ab")
    for divide in (tirx.truncdiv, tirx.floormod):
        c = te.compute((64,), partial(_quotient, divide, a, b), name="c")
        module = _tvm.IRModule({"main": te.create_prim_func([a, b, c])})
        signature = Signature.of(Workload.from_module(module, "quotient", 1))
        assert signature.divides and Signature.from_json(signature.to_json()) == signature
        assert all((array != 0).all() for array in make_inputs(signature, "12")[:2])
    assert not Signature.of(catalog.get("matmul:16x16x16")).divides


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "bool"])
def test_poison_is_never_right(dtype: str) -> None:
    reference = np.array([0, 1, 1, 0]).astype(dtype)
    poisoned = poison(reference.copy(), reference)
    assert not np.any(poisoned == reference)


@pytest.mark.parametrize("name", programs.ALL)
def test_the_untuned_program_passes(name: str, hardware: Hardware, reference_path: str) -> None:
    workload = programs.ALL[name]
    buffers = _buffers(workload, hardware, reference_path)
    program = _compile(workload.module, hardware)
    for _ in range(2):
        buffers.poison()
        program(*buffers.tensors)
        verdict = buffers.judge()
        assert verdict.right, verdict.message


@pytest.mark.parametrize("name", programs.ALL)
def test_a_program_that_writes_nothing_fails(
    name: str, hardware: Hardware, reference_path: str
) -> None:
    buffers = _buffers(programs.ALL[name], hardware, reference_path)
    buffers.poison()
    assert not buffers.judge().right


def test_where_integers_make_no_sense_inputs_are_positive(
    hardware: Hardware, reference_path: str
) -> None:
    buffers = _buffers(programs.ALL["logarithm"], hardware, reference_path)
    values = buffers.tensors[0].numpy()
    assert values.min() >= 0.5
    assert len(np.unique(values)) > 32


@pytest.mark.parametrize(
    "name",
    [
        "matmul48_float32",
        "matmul48_float16",
        "conv2d",
        "softmax",
        "layer_norm",
        "gelu",
        "take",
        "embedding",
    ],
)
@pytest.mark.slow
def test_every_schedule_of_the_space_passes(
    name: str, hardware: Hardware, reference_path: str, rng: np.random.Generator
) -> None:
    workload = programs.ALL[name]
    buffers = _buffers(workload, hardware, reference_path)
    for candidate in Space.generate(workload, hardware).sample(rng, 3):
        buffers.poison()
        _compile(candidate.schedule().mod, hardware)(*buffers.tensors)
        verdict = buffers.judge()
        assert verdict.right, (candidate, verdict.message)


def test_an_overwritten_input_is_found_and_restored(
    hardware: Hardware, reference_path: str
) -> None:
    workload = programs.ALL["matmul48_float32"]
    buffers = _buffers(workload, hardware, reference_path)
    program = _compile(workload.module, hardware)
    program(*buffers.tensors)
    np.from_dlpack(buffers.tensors[1])[3, 4] += 1
    assert "was overwritten" in buffers.judge().message
    buffers.poison()
    program(*buffers.tensors)
    assert buffers.judge().right


@pytest.mark.parametrize("name", ["matmul48_float32", "matmul48_float16", "conv2d", "softmax"])
def test_one_element_that_is_off_is_found(
    name: str, hardware: Hardware, reference_path: str
) -> None:
    workload = programs.ALL[name]
    buffers = _buffers(workload, hardware, reference_path)
    _compile(workload.module, hardware)(*buffers.tensors)
    output = np.from_dlpack(buffers.tensors[-1])
    at = np.unravel_index(int(np.argmax(output)), output.shape)
    output[at] -= 0.05 if name == "softmax" else 1
    verdict = buffers.judge()
    assert verdict.message.startswith("1 of ")
    assert verdict.max_error > 0.04


def test_integral_results_leave_next_to_no_room() -> None:
    relative, absolute = tolerance(np.array([-300.0, 7.0], np.float32), reduction=4608)
    assert relative == 0
    assert absolute <= 0.01


def test_other_results_leave_room_for_rounding_only() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 4096)).astype(np.float32)
    exact = a.astype(np.float64).sum(axis=1)
    naive = np.add.accumulate(a, axis=1)[:, -1]
    signature = _signature(_output(64), 4096)
    assert judge(signature, [naive], [exact.astype(np.float32)]).right
    relative, _ = tolerance(naive, 4096)
    assert relative < 1e-4


@given(
    want=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6),
    share=st.floats(-3, 3),
    reduction=st.integers(1, 5000),
)
def test_right_is_what_is_within_both_tolerances(
    want: list[float], share: float, reduction: int
) -> None:
    # The difference of two numbers is rounded.
    assume(abs(abs(share) - 1) > 1e-3)
    reference = np.array(want, np.float32)
    relative, absolute = tolerance(reference, reduction)
    got = reference + np.float32(share * absolute)
    error = np.abs(got.astype(np.float64) - reference)
    verdict = judge(_signature(_output(len(want)), reduction), [got], [reference])
    assert verdict.right == bool((error <= absolute + relative * np.abs(reference)).all())
    assert verdict.max_error == pytest.approx(float(error.max()), rel=1e-5)


def test_half_precision_accumulation_in_another_order_passes() -> None:
    rng = np.random.default_rng(0)
    a = rng.random((256, 768)).astype(np.float16) - np.float16(0.5)
    forward = np.add.accumulate(a, axis=1)[:, -1]
    backward = np.add.accumulate(a[:, ::-1], axis=1)[:, -1]
    assert not np.array_equal(forward, backward)
    assert judge(_signature(_output(256, dtype="float16"), 768), [forward], [backward]).right


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_must_be_so_in_the_reference(value: float) -> None:
    want = np.array([1.5, 2.25], np.float32)
    got = np.array([1.5, value], np.float32)
    signature = _signature(_output(2))
    assert not judge(signature, [got], [want]).right
    assert not judge(signature, [want], [got]).right
    assert judge(signature, [got.copy()], [got]).right


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool"])
def test_integers_must_be_equal(dtype: str) -> None:
    want = np.array([0, 1, 1]).astype(dtype)
    got = want.copy()
    got[1] = 0
    verdict = judge(_signature(_output(3, dtype=dtype)), [got], [want])
    assert "[1] is" in verdict.message
    assert verdict.max_error == 1.0


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint8"])
def test_integers_that_floats_cannot_tell_apart_are_different(dtype: str) -> None:
    top = np.iinfo(dtype).max
    want = np.array([0, top], dtype)
    got = np.array([0, top - 1], dtype)
    verdict = judge(_signature(_output(2, dtype=dtype)), [got], [want])
    assert verdict.message.startswith("1 of 2 elements of y are wrong: [1] is")
    assert verdict.max_error == 1.0
    assert judge(_signature(_output(2, dtype=dtype)), [want.copy()], [want]).right
    far = judge(_signature(_output(2, dtype=dtype)), [want[::-1].copy()], [want])
    assert far.max_error == float(top)


def test_the_reference_file_needs_no_name(hardware: Hardware) -> None:
    with tempfile.TemporaryFile() as file:
        path = f"/proc/self/fd/{file.fileno()}"
        _buffers(programs.ALL["two_outputs"], hardware, path)
