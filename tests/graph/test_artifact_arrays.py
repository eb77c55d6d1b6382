"""What goes into an artifact and comes out: every element type, rank and layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from foretune import _tvm
from foretune.graph import compile_model
from foretune.workload import from_object

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
]
SHAPES = [(), (1,), (5,), (2, 3, 4), (0,), (2, 0, 3)]


def _program(build, *specs):
    """A Relax module whose ``main`` takes tensors of these (name, shape, dtype)."""
    relax = _tvm.tvm.relax
    variables = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape, dtype in specs]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(build(relax, builder, *variables))
        builder.emit_func_output(result)
    return builder.get()


def _compiled(hardware, build, *specs):
    return compile_model(from_object(_program(build, *specs), "net"), hardware, {})


def _values(shape, dtype):
    """Small numbers that every type holds, and whose sums it holds, too."""
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return (np.arange(np.prod(shape, dtype=int)) % 11).reshape(shape).astype(wanted)


@pytest.fixture(scope="module")
def typed(hardware):
    """Artifacts of two inputs, one of them unused, by element type and shape."""
    made = {}

    def get(dtype, shape):
        def build(relax, builder, x, _unused):
            double = relax.op.logical_not(x) if dtype == "bool" else relax.op.add(x, x)
            return relax.Tuple([builder.emit(double), x, x])

        if (dtype, shape) not in made:
            made[dtype, shape] = _compiled(
                hardware, build, ("x", shape, dtype), ("unused", (2,), "float32")
            )
        return made[dtype, shape]

    return get


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (2, 3, 4), (2, 0, 3)])
def test_every_element_type_and_rank_goes_in_and_out(typed, dtype, shape):
    x = _values(shape, dtype)
    outputs = typed(dtype, shape).run([x, np.zeros(2, "float32")])
    expected = [~x if dtype == "bool" else x + x, x, x]
    for actual, wanted in zip(outputs, expected, strict=True):
        assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_belong_to_the_caller(typed, shape):
    artifact = typed("float32", shape)
    x, unused = _values(shape, "float32"), np.zeros(2, "float32")
    first = artifact.run([x, unused])
    before = [array.copy() for array in first]
    for array in first:
        array[...] = -1
    assert not any(np.shares_memory(a, b) for a in (x, *first[:1]) for b in first[1:])
    assert not np.shares_memory(first[1], first[2])
    again = artifact.run([x, unused])
    artifact.run([x + 7, unused])
    for actual, wanted in zip(again, before, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def _read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[..., ::-1].copy()[..., ::-1],
        lambda a: a.astype(a.dtype.newbyteorder()),
        lambda a: _read_only(a.copy()),
        memoryview,
    ],
    ids=["columns first", "strided", "reversed", "other byte order", "read-only", "memoryview"],
)
def test_arrays_of_any_layout_are_taken(typed, form):
    x = _values((2, 3, 4), "float32")
    double = typed("float32", (2, 3, 4)).run([form(x), np.zeros(2, "float32")])[0]
    np.testing.assert_array_equal(double, x + x)


def test_a_constant_output_is_the_same_in_every_run(hardware):
    value = np.arange(40, dtype="float32")

    def build(relax, builder, x):
        return relax.Tuple([relax.const(value), builder.emit(relax.op.negative(x))])

    artifact = _compiled(hardware, build, ("x", (3,), "float32"))
    for _ in range(2):
        constant, negative = artifact.run([np.ones(3, "float32")])
        np.testing.assert_array_equal(constant, value)
        np.testing.assert_array_equal(negative, -np.ones(3))
        constant[...] = 0
