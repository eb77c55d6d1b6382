"""Normalisations: found however exporters wrote them, left alone where they are something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune.graph.passes.normalizations import find_normalizations, lower_normalizations
from foretune.hardware import probe
from tests.graph.programs import constant, module_of, relax, run

op = relax.op
HARDWARE = replace(probe(), simd_bits=256)
EPSILON = 1e-5


def emitted(value):
    return relax.BlockBuilder.current().emit(value)


def mean(x, axes=(-1,), keepdims=True):
    return emitted(op.mean(x, list(axes), keepdims))


def number(value):
    return constant(np.float32(value))


def root_below(total, form):
    """What a difference is multiplied by, or divided by, in each exporter's way."""
    if form == "rsqrt":
        return op.multiply, emitted(op.rsqrt(total))
    if form == "power":
        return op.multiply, emitted(op.power(total, number(-0.5)))
    root = emitted(op.sqrt(total))
    if form == "one over sqrt":
        return op.multiply, emitted(op.divide(number(1), root))
    return op.divide, root


def square(z, form):
    return emitted(op.power(z, number(2)) if form == "power" else op.multiply(z, z))


def layer_norm(x, form="rsqrt", axes=(-1,), weight=None, bias=None):
    middle = mean(x, axes)
    z = emitted(op.subtract(x, middle))
    moment = (
        emitted(op.variance(x, list(axes), True))
        if form == "variance"
        else mean(square(z, form), axes)
    )
    combine, root = root_below(emitted(op.add(moment, number(EPSILON))), form)
    y = combine(z, root)
    if weight is not None:
        y = op.multiply(emitted(y), constant(weight))
    return y if bias is None else op.add(constant(bias), emitted(y))


def rms_norm(x, form="rsqrt", weight=None):
    total = emitted(op.add(mean(square(x, form)), number(EPSILON)))
    combine, root = root_below(total, form)
    y = combine(x, root)
    return y if weight is None else op.multiply(constant(weight), emitted(y))


def softmax(x):
    e = emitted(op.exp(emitted(op.subtract(x, emitted(op.max(x, [-1], True))))))
    return op.divide(e, emitted(op.sum(e, [-1], True)))


def found(module):
    script = find_normalizations(module)["main"].script(show_meta=False)
    names = ("nn.layer_norm", "nn.rms_norm", "nn.softmax")
    return [name for name in names for _ in range(script.count(f"R.{name}("))]


def kernels(module):
    return [
        v.name_hint
        for v in module.get_global_vars()
        if v.name_hint.startswith(("layer_norm", "rms_norm", "softmax"))
    ]


def check(make, *arrays, count=1):
    """What is found and lowered computes what elementary operators do."""
    module = module_of(make, *arrays)
    changed = lower_normalizations(find_normalizations(module), HARDWARE)
    assert len(kernels(changed)) == count
    for expected, actual in zip(run(module, *arrays), run(changed, *arrays), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("form", ["rsqrt", "sqrt", "one over sqrt", "power", "variance"])
@pytest.mark.parametrize("affine", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_layer_norm_that_was_taken_apart(rng, form, affine):
    x = rng.normal(2.0, 3.0, (2, 5, 24)).astype("float32")
    weight, bias = (rng.normal(size=24).astype("float32") if affine else None for _ in range(2))
    module = module_of(lambda x: layer_norm(x, form, weight=weight, bias=bias), x)
    assert found(module) == ["nn.layer_norm"]
    check(lambda x: layer_norm(x, form, weight=weight, bias=bias), x)


@pytest.mark.parametrize("form", ["rsqrt", "sqrt", "one over sqrt", "power"])
@pytest.mark.parametrize("affine", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_rms_norm_that_was_taken_apart(rng, form, affine):
    x = rng.normal(size=(2, 5, 24)).astype("float32")
    weight = rng.normal(size=24).astype("float32") if affine else None
    assert found(module_of(lambda x: rms_norm(x, form, weight), x)) == ["nn.rms_norm"]
    check(lambda x: rms_norm(x, form, weight), x)


def test_a_softmax_that_was_taken_apart(rng):
    x = rng.normal(size=(3, 4, 19)).astype("float32")
    assert found(module_of(softmax, x)) == ["nn.softmax"]
    check(softmax, x)


def test_several_axes_at_once(rng):
    x = rng.normal(size=(2, 3, 5, 7)).astype("float32")
    weight, bias = (rng.normal(size=(3, 5, 7)).astype("float32") for _ in range(2))
    axes = (1, 2, 3)
    check(lambda x: layer_norm(x, axes=axes, weight=weight, bias=bias), x)


@pytest.mark.parametrize("size", [3, 40])
def test_an_rms_norm_of_a_single_row_without_another_axis_stays(rng, size):
    x = rng.normal(size=size).astype("float32")
    assert found(module_of(rms_norm, x)) == []
    check(rms_norm, x, count=0)


def used_twice(x):
    y = emitted(layer_norm(x))
    return y, op.multiply(y, y)


@pytest.mark.parametrize("size", [24, 3])
def test_short_rows_stay_operators(rng, size):
    x = rng.normal(size=(6, size)).astype("float32")
    check(lambda x: op.nn.softmax(x, -1), x, count=size > 16)


def test_a_result_with_two_users_is_computed_once(rng):
    check(used_twice, rng.normal(size=(4, 32)).astype("float32"))


def another_mean(x):
    z = emitted(op.subtract(x, mean(x, (0,))))
    total = emitted(op.add(mean(square(z, "rsqrt")), number(EPSILON)))
    return op.multiply(z, emitted(op.rsqrt(total)))


def a_root_that_is_returned(x):
    z = emitted(op.subtract(x, mean(x)))
    root = emitted(op.rsqrt(emitted(op.add(mean(square(z, "rsqrt")), number(EPSILON)))))
    return op.multiply(z, root), root


def of_something_else(x):
    z = emitted(op.subtract(x, mean(x)))
    total = emitted(op.add(mean(square(x, "rsqrt")), number(EPSILON)))
    return op.multiply(z, emitted(op.rsqrt(total)))


def columns_first(x):
    return layer_norm(x, axes=(0,))


@pytest.mark.parametrize("make", [a_root_that_is_returned, columns_first, of_something_else])
def test_what_is_something_else_stays(rng, make):
    x = rng.normal(size=(24, 24)).astype("float32")
    names = found(module_of(make, x))
    assert "nn.layer_norm" not in names
    check(make, x, count=len(names))


def test_a_difference_to_another_mean_is_normalised_by_its_own_square(rng):
    x = rng.normal(size=(24, 24)).astype("float32")
    assert found(module_of(another_mean, x)) == ["nn.rms_norm"]
    check(another_mean, x)


def test_other_types_stay(rng):
    x = rng.normal(size=(4, 24))
    module = module_of(lambda x: op.nn.softmax(x, -1), x)
    assert not kernels(lower_normalizations(module, HARDWARE))
