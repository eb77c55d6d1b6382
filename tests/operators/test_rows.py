"""Kernels of rows: layer norm, RMS norm and softmax of every length against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.operators.rows import LAYER_NORM, RMS_NORM, SOFTMAX, Rows, rows_kernel

tvm = _tvm.tvm


def computed(rows, lanes, *operands):
    program = rows_kernel(rows, lanes).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": program}), tvm.target.Target("llvm"))
    y = tvm.runtime.tensor(np.full(rows.rows * rows.columns, np.nan, "float32"))
    library["main"](*[tvm.runtime.tensor(o.reshape(-1)) for o in operands], y)
    return y.numpy().reshape(rows.rows, rows.columns)


def expected(rows, x, g=None, b=None):
    x = x.astype("float64")
    if rows.kind == SOFTMAX:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    centred = x - x.mean(1, keepdims=True) if rows.kind == LAYER_NORM else x
    found = centred / np.sqrt((centred**2).mean(1, keepdims=True) + rows.epsilon)
    return found * (1 if g is None else g) + (0 if b is None else b)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([LAYER_NORM, RMS_NORM, SOFTMAX]),
    st.integers(1, 5),
    st.integers(1, 140),
    st.sampled_from([4, 8, 16]),
    st.integers(0, 3),
)
def test_every_length(kind, count, columns, lanes, flags):
    scale, center = kind != SOFTMAX and flags > 0, kind == LAYER_NORM and flags > 1
    rows = Rows(kind, count, columns, 0.0 if kind == SOFTMAX else 1e-3, scale, center)
    rng = np.random.default_rng(columns)
    x = rng.normal(3.0, 2.0, (count, columns)).astype("float32")
    weights = [rng.normal(size=columns).astype("float32") for _ in range(scale + center)]
    found = computed(rows, lanes, x, *weights)
    np.testing.assert_allclose(found, expected(rows, x, *weights), rtol=3e-5, atol=3e-5)


def test_a_variance_far_below_the_mean_keeps_its_places(rng):
    x = (1000.0 + rng.normal(size=(3, 768))).astype("float32")
    rows = Rows(LAYER_NORM, 3, 768, 1e-6)
    np.testing.assert_allclose(computed(rows, 8, x), expected(rows, x), rtol=0, atol=3e-4)


@pytest.mark.parametrize("columns", [5, 64, 100])
def test_softmax_of_what_is_not_finite_is_pytorchs(columns):
    import torch

    x = np.zeros((4, columns), "float32")
    x[0, 1], x[1, 2], x[2], x[3, 3] = -np.inf, np.nan, -np.inf, 1e38
    wanted = torch.softmax(torch.from_numpy(x), 1).numpy()
    np.testing.assert_allclose(computed(Rows(SOFTMAX, 4, columns), 8, x), wanted, rtol=1e-6)
