"""Every rewrite, on random programs: what it makes computes what was there before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.graph._layout import assign_layouts
from foretune.graph._passes import Passes
from foretune.graph._reshape import sink_reshapes
from foretune.graph._rewrite import rewrite_operators
from foretune.graph._transpose import sink_transposes
from tests.graph.programs import run
from tests.graph.random_programs import program


def check(seed):
    module, x = program(seed)
    passes = Passes(f"program {seed}")
    changed = passes.run("rewrites", module, rewrite_operators)
    changed = passes.run("layouts", changed, assign_layouts, sink_transposes)
    changed = passes.run("rewrites", changed, rewrite_operators)
    changed = passes.run("reshapes", changed, sink_reshapes)
    changed = passes.run("rewrites", changed, rewrite_operators)
    assert not passes.left_out
    for expected, actual in zip(run(module, x), run(changed, x), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * scale)


@settings(max_examples=20, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_random_programs_compute_the_same_after_all_rewrites(seed):
    check(seed)


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 30))
def test_many_random_programs_compute_the_same_after_all_rewrites(seed):
    check(seed)
