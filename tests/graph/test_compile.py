"""What a compiled network may return and take, and programs that no schedule fits."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T

from foretune.graph import compile_model, compile_workload, extract
from foretune.space import Space, default_schedule
from foretune.workload import Model, Workload
from tests.graph.programs import constant, module_of, relax

op = relax.op
WEIGHTS = np.arange(40, dtype="float32")
NOTHING = np.zeros((0, 3), "float32")


def artifact_of(make, arrays, hardware):
    model = Model.from_relax(module_of(make, *arrays), "a model", examples=arrays)
    extraction = extract(model, hardware)
    return compile_model(model, hardware, {}, extraction)


def test_outputs_may_be_inputs_constants_views_and_the_same_tensor_twice(hardware, rng):
    x, unused = rng.normal(size=(3, 5)).astype("float32"), np.zeros(4, "int8")

    def make(t, _unused):
        made = relax.BlockBuilder.current().emit(op.exp(t))
        flat = op.reshape(made, (15,))
        return t, made, made, flat, constant(WEIGHTS), constant(NOTHING), op.multiply(t, t)

    artifact = artifact_of(make, (x, unused), hardware)
    expected = [x, np.exp(x), np.exp(x), np.exp(x).ravel(), WEIGHTS, NOTHING, x * x]
    first = artifact.run([x, unused])
    # What a call returned is the caller's: another call must not write into it.
    artifact.run([-x, unused])
    for one, other in zip(first, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_tensors_of_every_rank_size_and_type(hardware, rng):
    scalar, flags = np.float32(2), np.array([True, False, True])
    small, wide = np.arange(250, 256, dtype="uint8"), np.array([[2**53 + 1, -5]])
    empty, double = np.zeros((8, 0), "float32"), rng.normal(size=(2, 3))

    def make(s, f, n, w, e, d):
        return (
            *(op.exp(s), op.logical_not(f), op.add(n, n), op.add(w, w), op.add(e, e)),
            *(op.exp(d), op.sum(e, [1]), op.sum(d), op.sum(e, [0]), op.cumsum(d, 0)),
            *(op.sort(d, 1), op.argsort(d, 1, dtype="int64"), op.argmax(d, -1)),
            op.matmul(e, constant(NOTHING)),
        )

    arrays = (scalar, flags, small, wide, empty, double)
    expected = [
        *(np.exp(scalar), ~flags, small + small, wide * 2, empty, np.exp(double)),
        *(np.zeros(8, "float32"), double.sum(), np.zeros(0, "float32"), double.cumsum(0)),
        *(np.sort(double, 1), np.argsort(double, 1), double.argmax(-1)),
        np.zeros((8, 3), "float32"),
    ]
    actual = artifact_of(make, arrays, hardware).run(arrays)
    for one, other in zip(actual, expected, strict=True):
        assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one, other, rtol=1e-6)


@T.prim_func(s_tir=True)
def loops_alone(b: T.Buffer((64,), "float32"), packed: T.Buffer((8, 8), "float32")):
    for jo in range(8):
        for ji in range(8):
            packed[jo, ji] = b[jo * 8 + ji] * T.float32(2)


@T.prim_func(s_tir=True)
def one_block_around_all(b: T.Buffer((64,), "float32"), packed: T.Buffer((8, 8), "float32")):
    with T.sblock("all"):
        T.reads(b[0:64])
        T.writes(packed[0:8, 0:8])
        for jo in range(8):
            for ji in range(8):
                packed[jo, ji] = b[jo * 8 + ji] * T.float32(2)


@pytest.mark.parametrize("function", [loops_alone, one_block_around_all])
def test_programs_without_blocks_compile_and_have_a_space(function, hardware):
    workload = Workload.from_module(function, "packing")
    b = np.arange(64, dtype="float32")
    (packed,) = compile_workload(workload, hardware).run([b])
    np.testing.assert_array_equal(packed, 2 * b.reshape(8, 8))
    assert Space.generate(workload, hardware).size >= 1


def test_what_no_schedule_fits_stays_as_it_is(hardware, monkeypatch):
    def fails(*_args):
        raise RuntimeError("an internal error of TVM")

    monkeypatch.setattr("foretune.space._default._parallel_and_vector", fails)
    scheduled = default_schedule(one_block_around_all.with_attr("global_symbol", "main"), hardware)
    assert "T.parallel" not in scheduled.mod.script()
