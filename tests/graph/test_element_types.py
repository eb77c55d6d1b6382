"""Sums of half-precision values in float32; norms of float64; order of bfloat16."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from foretune import _tvm
from foretune.graph.passes.element_types import legal_types
from tests.graph.programs import constant, module_of, run

relax = _tvm.tvm.relax
op = relax.op


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("make", "expected", "shape"),
    [
        (lambda x: op.sum(x, [1]), lambda x: x.sum(1), (2, 4096)),
        (lambda x: op.mean(x, [1]), lambda x: x.mean(1), (2, 4096)),
        (lambda x: op.matmul(x, op.permute_dims(x, [1, 0])), lambda x: x @ x.T, (2, 4096)),
        (
            lambda x: op.nn.conv1d(op.expand_dims(x, 1), op.expand_dims(x, 1)),
            lambda x: np.stack([[[r @ s] for s in x] for r in x]),
            (2, 4096),
        ),
    ],
    ids=["sum", "mean", "matmul", "conv1d"],
)
def test_long_half_precision_sums_are_rounded_once(dtype, make, expected, shape, rng):
    x = rng.uniform(0.01, 0.05, shape).astype(dtype)
    module = legal_types(module_of(make, x))
    (actual,) = run(module, x)
    exact = expected(x.astype("float64"))
    unit = float(ml_dtypes.finfo(dtype).eps)
    assert actual.dtype == x.dtype
    # One rounding of the result is half a unit; 4096 roundings on the way would be hundreds.
    np.testing.assert_allclose(actual.astype("float64"), exact, rtol=0.6 * unit)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_number_less_itself_is_zero(dtype):
    x = np.array([[1.5, -2.0, 0.0, 3.0] * 8], ml_dtypes.bfloat16 if dtype[0] == "b" else dtype)
    (actual,) = run(legal_types(module_of(lambda x: op.abs(op.subtract(x, x)), x)), x)
    np.testing.assert_array_equal(actual.astype("float32"), np.zeros(x.shape, "float32"))


def norm(x, axes, epsilon=1e-5):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


@pytest.mark.parametrize("kind", ["layer", "layer_middle", "instance", "group", "group_last"])
def test_norms_of_float64_compute_what_numpy_does(kind, rng):
    x = rng.normal(3, 2, (2, 4, 5, 6))
    four, gamma = rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 6))
    g, b = constant(four[0]), constant(four[1])
    across = (None, slice(None), None, None)
    if kind == "layer":
        module = module_of(
            lambda t: op.nn.layer_norm(t, constant(gamma[0]), constant(gamma[1]), [-2, -1]), x
        )
        expected = norm(x, (2, 3)) * gamma[0] + gamma[1]
    elif kind == "layer_middle":
        module = module_of(lambda t: op.nn.layer_norm(t, g, b, [1]), x)
        expected = norm(x, (1,)) * four[0][across] + four[1][across]
    elif kind == "instance":
        module = module_of(lambda t: op.nn.instance_norm(t, g, b, 1, [2, 3]), x)
        expected = norm(x, (2, 3)) * four[0][across] + four[1][across]
    elif kind == "group":
        module = module_of(lambda t: op.nn.group_norm(t, g, b, 2, 1, [2, 3]), x)
        normal = norm(x.reshape(2, 2, 2, 5, 6), (2, 3, 4)).reshape(x.shape)
        expected = normal * four[0][across] + four[1][across]
    else:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        module = module_of(lambda t: op.nn.group_norm(t, g, b, 2, -1, [1, 2]), x)
        normal = norm(x.reshape(2, 5, 6, 2, 2), (1, 2, 4)).reshape(x.shape)
        expected = normal * four[0] + four[1]
    (actual,) = run(legal_types(module), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: op.sort(x, axis=1), lambda x: np.sort(x, 1)),
        (lambda x: op.argsort(x, axis=1, dtype="int32"), lambda x: np.argsort(x, 1)),
        (lambda x: op.topk(x, 2, 1, "values"), lambda x: np.sort(x, 1)[:, ::-1][:, :2]),
        (lambda x: op.argmax(x, 1), lambda x: np.argmax(x, 1)),
        (lambda x: op.power(op.abs(x), x), lambda x: np.abs(x) ** x),
    ],
    ids=["sort", "argsort", "topk", "argmax", "power"],
)
def test_order_and_powers_of_bfloat16_are_those_of_its_numbers(make, expected, rng):
    x = rng.permutation(np.linspace(-2, 2, 24)).reshape(4, 6).astype(ml_dtypes.bfloat16)
    (actual,) = run(legal_types(module_of(make, x)), x)
    np.testing.assert_allclose(actual.astype("float64"), expected(x.astype("float64")), rtol=2**-7)


_KINDS = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "bool"]


@pytest.mark.parametrize("dtype", _KINDS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.slow
def test_integers_of_every_width_are_sorted(dtype, descending, rng):
    edges = [0, 1] if dtype == "bool" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    drawn = rng.permutation(100)[:10] if dtype != "bool" else rng.integers(0, 2, 10)
    x = np.concatenate([drawn.astype(dtype), np.array(edges, dtype)])
    x = rng.permutation(x).reshape(2, 6)
    expected = np.sort(x, 1)[:, ::-1] if descending else np.sort(x, 1)
    (ordered,) = run(legal_types(module_of(lambda t: op.sort(t, 1, descending), x)), x)
    (index,) = run(legal_types(module_of(lambda t: op.argsort(t, 1, descending, "int64"), x)), x)
    (top,) = run(legal_types(module_of(lambda t: op.topk(t, 4, 1, "values", descending), x)), x)
    assert ordered.dtype == top.dtype == x.dtype and index.dtype == np.int64
    np.testing.assert_array_equal(ordered, expected)
    np.testing.assert_array_equal(np.take_along_axis(x, index, 1), expected)
    np.testing.assert_array_equal(top, expected[:, :4])


FUNCTIONS = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp")},
    **{"atan": np.arctan, "asinh": np.arcsinh, "rsqrt": lambda x: 1 / np.sqrt(x)},
    **{"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh, "log": np.log, "sqrt": np.sqrt},
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_functions_of_half_precision_are_rounded_once(dtype, rng):
    x = rng.uniform(0.1, 0.9, 16).astype(dtype)
    module = module_of(lambda t: tuple(getattr(op, name)(t) for name in FUNCTIONS), x)
    for name, actual in zip(FUNCTIONS, run(legal_types(module), x), strict=True):
        exact = FUNCTIONS[name](x.astype("float64"))
        unit = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(actual.astype("float64"), exact, rtol=unit, err_msg=name)
