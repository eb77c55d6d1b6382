"""Every rewrite, on random programs: what it makes computes what was there before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.graph.passes import Decisions, Passes
from foretune.graph.passes.batch_norms import fold_batch_norms
from foretune.graph.passes.layouts import assign_layouts
from foretune.graph.passes.reshapes import sink_reshapes
from foretune.graph.passes.rewrites import rewrite_operators
from foretune.graph.passes.transposes import sink_transposes
from tests.graph.programs import constant, module_of, relax, run
from tests.graph.random_programs import program

op = relax.op


def check(seed):
    module, x = program(seed)
    passes = Passes(f"program {seed}")
    changed = passes.run("rewrites", module, rewrite_operators)
    changed = passes.run("batch-norms", changed, fold_batch_norms)
    changed = passes.run("layouts", changed, lambda m: assign_layouts(m, Decisions()))
    changed = passes.run("transposes", changed, sink_transposes)
    changed = passes.run("rewrites", changed, rewrite_operators)
    changed = passes.run("reshapes", changed, sink_reshapes)
    changed = passes.run("rewrites", changed, rewrite_operators)
    assert not any(report.failed for report in passes.reports)
    for expected, actual in zip(run(module, x), run(changed, x), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * scale)


@settings(max_examples=10, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_random_programs_compute_the_same_after_all_rewrites(seed):
    check(seed)


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_many_random_programs_compute_the_same_after_all_rewrites(seed):
    check(seed)


def calls(module, name):
    return module["main"].script(show_meta=False).count(f"R.{name}(")


@pytest.mark.parametrize(
    ("dtype", "low", "high", "clipped"),
    [
        ("float32", 0.0, 6.0, True),
        ("float32", 6.0, 0.0, False),
        ("float32", np.nan, 6.0, False),
        ("int32", -2, 3, True),
        ("int64", -(2**53) - 1, 2**53 + 1, True),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_minimum_of_maximum_is_clip_where_it_is_the_same(dtype, low, high, clipped, swapped):
    bounds = [constant(np.array(bound, dtype)) for bound in (low, high)]
    x = np.array([-(2**53) - 3, -5, 0, 1, 7, 2**53 + 3]).astype(dtype)

    def make(t):
        pair = (bounds[0], t) if swapped else (t, bounds[0])
        inner = relax.BlockBuilder.current().emit(op.maximum(*pair))
        return op.minimum(*((bounds[1], inner) if swapped else (inner, bounds[1])))

    module = module_of(make, x)
    changed = rewrite_operators(module)
    assert calls(changed, "clip") == clipped
    expected = np.minimum(np.maximum(x, np.array(low, dtype)), np.array(high, dtype))
    if not np.isnan(low):
        np.testing.assert_array_equal(run(changed, x)[0], expected)


def test_a_bound_of_a_higher_rank_is_no_clip():
    x = np.linspace(-1, 9, 5, dtype="float32")
    low, high = constant(np.zeros((1, 1), "float32")), constant(np.float32(6))
    module = module_of(
        lambda t: op.minimum(relax.BlockBuilder.current().emit(op.maximum(t, low)), high), x
    )
    assert calls(rewrite_operators(module), "clip") == 0
    assert run(rewrite_operators(module), x)[0].shape == (1, 5)


@pytest.mark.parametrize("values", [np.float32(3), np.ones((1, 3), "float16"), np.array([True])])
def test_constants_keep_rank_and_type_when_they_are_moved(values):
    values = np.asarray(values)
    axes = list(range(values.ndim))[::-1]
    module = module_of(lambda x: (x, op.permute_dims(constant(values), axes)), np.float32(1))
    changed = rewrite_operators(module)
    assert calls(changed, "permute_dims") == 0
    actual = run(changed, np.float32(1))[1]
    assert (actual.shape, actual.dtype) == (values.T.shape, values.dtype)
    np.testing.assert_array_equal(actual, values.T)
