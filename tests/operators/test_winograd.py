"""Winograd's transformations: they are exact but for rounding, and so are their constants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.operators.winograd import tiles, transformed, transforms


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_transformations_compute_a_filter(rng, outputs):
    found = transforms(outputs)
    data, taps = rng.normal(size=outputs + 2), rng.normal(size=3)
    actual = found.outputs @ ((found.taps @ taps) * (found.inputs @ data))
    np.testing.assert_allclose(actual, np.correlate(data, taps), rtol=0, atol=1e-13)


@pytest.mark.parametrize("outputs", [2, 4])
def test_what_is_multiplied_while_it_runs_is_exact_in_float32(outputs):
    for matrix in (transforms(outputs).inputs, transforms(outputs).outputs):
        np.testing.assert_array_equal(matrix.astype("float32"), matrix)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 8]))
def test_weights_are_transformed_in_both_directions_and_lie_in_panels(depth, rows, count, lanes):
    rng = np.random.default_rng(depth)
    weight = rng.normal(size=(depth, 3, 3, rows, count * lanes))
    g = transforms(4).taps
    found = transformed(weight, 4, lanes)
    assert found.shape == (36, depth, count, rows, lanes)
    assert found.flags.c_contiguous
    at, d, i, o = 6 * 2 + 5, depth - 1, rows - 1, count * lanes - 1
    expected = g[2] @ weight[d, :, :, i, o] @ g[5]
    np.testing.assert_allclose(found[at, d, o // lanes, i, o % lanes], expected, rtol=1e-12)


@given(st.integers(1, 20), st.integers(0, 2), st.integers(0, 2), st.sampled_from([2, 4]))
def test_tiles_are_as_many_as_hold_all_outputs(extent, front, end, outputs):
    if extent + front + end < 3:
        return
    (found,) = tiles([extent], [front, end], outputs)
    results = extent + front + end - 2
    assert (found - 1) * outputs < results <= found * outputs
