"""Packed weights: what is packed computes what it did, what cannot be is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.graph.passes.layouts import assign_layouts
from foretune.graph.passes.packed_weights import pack_weights, panels
from foretune.graph.passes.reshapes import sink_reshapes
from foretune.graph.passes.rewrites import drop_masks, rewrite_operators
from foretune.hardware import probe
from tests.graph.programs import constant, module_of, relax, run

op = relax.op
LANES = 8


@pytest.fixture
def hardware():
    from dataclasses import replace

    return replace(probe(), simd_bits=32 * LANES)


def packed(module, hardware):
    return rewrite_operators(pack_weights(module, hardware))


def kernels(module):
    return [str(v.name_hint) for v in module.get_global_vars() if v.name_hint != "main"]


def same(one, other, *arrays):
    for expected, actual in zip(run(one, *arrays), run(other, *arrays), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(2, 16))
def test_a_panel_holds_neighbouring_columns_of_all_rows(height, rows, count, lanes):
    weight = np.random.default_rng(rows).normal(size=(height, rows, count * lanes))
    found = panels(weight, lanes)
    assert found.shape == (count, height, rows, lanes)
    assert found.flags.c_contiguous
    for at in range(count):
        np.testing.assert_array_equal(found[at], weight[..., at * lanes : (at + 1) * lanes])


@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (2, 5, 6), (2, 1, 3, 6)])
def test_products_of_every_rank(rng, hardware, shape):
    x, weight = rng.normal(size=shape).astype("float32"), rng.normal(size=(6, 24))
    module = module_of(lambda t: op.matmul(t, constant(weight.astype("float32"))), x)
    changed = packed(module, hardware)
    assert len(kernels(changed)) == 1
    same(module, changed, x)


@st.composite
def convolutions(draw):
    axes = draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides, dilation = draw(each), draw(each), draw(each)
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * axes, max_size=2 * axes))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    extents = [n + draw(st.integers(0, 3)) for n in least]
    return kernel, strides, dilation, pads, extents, draw(st.integers(1, 3))


@settings(max_examples=20, deadline=None)
@given(convolutions())
def test_convolutions_of_every_kernel_stride_padding_and_dilation(case):
    from dataclasses import replace

    kernel, strides, dilation, pads, extents, channels = case
    hardware = replace(probe(), simd_bits=32 * LANES)
    rng, axes = np.random.default_rng(sum(extents)), len(kernel)
    x = rng.normal(size=(2, *extents, channels)).astype("float32")
    weight = rng.normal(size=(*kernel, channels, 2 * LANES)).astype("float32")
    letters = "DHW"[3 - axes :]
    make = getattr(op.nn, f"conv{axes}d")
    module = module_of(
        lambda t: make(
            t,
            constant(weight),
            strides=strides,
            padding=pads,
            dilation=dilation,
            data_layout=f"N{letters}C",
            kernel_layout=f"{letters}IO",
        ),
        x,
    )
    changed = packed(module, hardware)
    assert len(kernels(changed)) == 1
    same(module, changed, x)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_what_follows_a_product_stays_in_its_kernel(rng, hardware, bias):
    x, weight = rng.normal(size=(4, 16)).astype("float32"), rng.normal(size=(16, 16))
    given_bias = np.full(16, bias, "float32")

    def make(t):
        emit = relax.BlockBuilder.current().emit
        y = emit(op.matmul(t, constant(weight.astype("float32"))))
        z = emit(op.reshape(emit(op.add(y, constant(given_bias))), (1, 4, 16)))
        return op.add(emit(op.nn.gelu(z)), emit(op.reshape(t, (1, 4, 16))))

    module = module_of(make, x)
    changed = packed(drop_masks(rewrite_operators(module)), hardware)
    changed = rewrite_operators(sink_reshapes(changed))
    text = changed["main"].script(show_meta=False)
    # A bias stays a bias, of zeros or not, and all of it happens in panels: one view at the end.
    assert text.count("R.add(") == 2
    for line in text.splitlines():
        assert "R.gelu" not in line or "(4, 2, 8)" in line
    assert text.index("R.nn.gelu(") < text.rindex("R.reshape(")
    same(module, changed, x)


def test_a_mask_of_zeros_goes_and_a_bias_of_zeros_stays():
    x = np.ones((3, 4), "float32")
    for shape, left in (((3, 4), 0), ((4,), 1), ((3, 1), 1)):
        zeros = constant(np.zeros(shape, "float32"))
        module = drop_masks(module_of(lambda t, z=zeros: op.add(t, z), x))
        assert module["main"].script(show_meta=False).count("R.add(") == left


def test_weights_that_two_products_share_are_packed_once(rng, hardware):
    x, weight = rng.normal(size=(4, 8)).astype("float32"), rng.normal(size=(8, 8))
    shared = constant(weight.astype("float32"))

    def make(t):
        return op.matmul(relax.BlockBuilder.current().emit(op.matmul(t, shared)), shared)

    module = module_of(make, x)
    changed = packed(module, hardware)
    found = []

    def visit(node):
        for argument in getattr(node, "args", ()) if isinstance(node, relax.Call) else ():
            fields = argument.fields if isinstance(argument, relax.Tuple) else ()
            found.extend(f for f in fields if tuple(map(int, f.ty.shape)) == (1, 8, 8))

    relax.analysis.post_order_visit(changed["main"], visit)
    assert len(found) == 2
    assert found[0].same_as(found[1])
    same(module, changed, x)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((8, 12), "float32"), ((8, 8), "float16"), ((2, 8, 8), "float32")]
)
def test_what_does_not_fit_is_left_as_it_is(rng, hardware, shape, dtype):
    x = rng.normal(size=(2, 4, 8)).astype(dtype)
    weight = constant(rng.normal(size=shape).astype(dtype))
    assert kernels(pack_weights(module_of(lambda t: op.matmul(t, weight), x), hardware)) == []


def test_weights_that_are_computed_are_left_as_they_are(rng, hardware):
    x = rng.normal(size=(8, 8)).astype("float32")
    assert kernels(pack_weights(module_of(lambda t: op.matmul(t, t), x), hardware)) == []


@pytest.mark.parametrize("groups", [1, 8])
def test_a_network_in_channels_first(rng, hardware, groups):
    x = rng.normal(size=(1, 8, 5, 5)).astype("float32")
    weight = rng.normal(size=(8, 8 // groups, 3, 3)).astype("float32")
    module = module_of(lambda t: op.nn.conv2d(t, constant(weight), groups=groups), x)
    changed = packed(rewrite_operators(assign_layouts(module)), hardware)
    assert len(kernels(changed)) == (groups == 1)
    same(module, changed, x)
