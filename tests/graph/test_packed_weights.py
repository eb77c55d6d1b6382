"""Packed weights: what is packed computes what it did, what cannot be is left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.graph.extract import as_workload
from foretune.graph.passes import Decisions
from foretune.graph.passes.layouts import assign_layouts
from foretune.graph.passes.packed_weights import pack_weights
from foretune.graph.passes.reshapes import sink_reshapes
from foretune.graph.passes.rewrites import drop_masks, rewrite_operators
from foretune.hardware import probe
from foretune.operators.panels import filled_rows, grouped_panels, panels
from foretune.space import PerfectTile, Space
from tests.graph.programs import constant, module_of, relax, run

op = relax.op
LANES = 8


HARDWARE = replace(probe(), simd_bits=32 * LANES)


@pytest.fixture
def hardware():
    return HARDWARE


def packed(module, hardware):
    return rewrite_operators(pack_weights(module, hardware, Decisions()))


def kernels(module):
    return [str(v.name_hint) for v in module.get_global_vars() if v.name_hint != "main"]


def one_kernel(module):
    """The module fused, which leaves one kernel beside views."""
    transform = relax.transform
    for change in (
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
    ):
        module = change(module)
    calls = [v for v in module.get_global_vars() if v.name_hint != "main"]
    views = [v for v in calls if relax.analysis.has_reshape_pattern(module[v])]
    assert len(calls) - len(views) == 1
    return module


def same(one, other, *arrays):
    for expected, actual in zip(run(one, *arrays), run(other, *arrays), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 40), st.integers(2, 16))
def test_a_panel_holds_neighbouring_columns_of_all_rows(height, rows, columns, lanes):
    weight = np.random.default_rng(rows).normal(size=(height, rows, columns))
    found = panels(weight, lanes)
    assert found.shape == (-(-columns // lanes), height, rows, lanes)
    assert found.flags.c_contiguous
    for at in range(len(found) * lanes):
        expected = weight[..., at] if at < columns else 0
        np.testing.assert_array_equal(found[at // lanes, ..., at % lanes], expected)


@pytest.mark.parametrize(
    ("columns", "count"), [(50257, 6284), (1000, 125), (1016, 127), (1017, 128)]
)
def test_many_panels_that_are_filled_up_have_small_divisors(columns, count):
    weight = np.ones((2, columns), "float32")
    found = panels(weight, LANES)
    assert found.shape == (count, 2, LANES)
    assert found.sum() == weight.sum()


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 8), st.sampled_from([2, 4]))
def test_a_group_holds_neighbouring_rows_of_a_column(rows, columns, lanes, group):
    weight = np.random.default_rng(rows).integers(1, 100, (rows, columns))
    found = grouped_panels(weight, lanes, group)
    assert found.shape == (-(-columns // lanes), -(-rows // group), lanes, group)
    assert found.sum() == weight.sum()
    for row in range(rows):
        line = found[:, row // group, :, row % group].reshape(-1)
        np.testing.assert_array_equal(line[:columns], weight[row])


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(1, 5) | st.sampled_from([17, 29, 34, 38]),
    st.integers(1, 9),
    st.integers(1, 3 * LANES),
    st.sampled_from(["float32", "float64"]),
)
def test_products_with_any_number_of_columns_and_what_follows_them(batch, m, k, n, dtype):
    rng = np.random.default_rng(n)
    x, weight = rng.normal(size=(*batch, m, k)), rng.normal(size=(k, n))
    bias, other = rng.normal(size=n), rng.normal(size=(*batch, m, n))

    def make(t):
        emit = relax.BlockBuilder.current().emit
        y = emit(
            op.add(emit(op.matmul(t, constant(weight.astype(dtype)))), constant(bias.astype(dtype)))
        )
        return op.add(emit(op.nn.relu(y)), constant(other.astype(dtype)))

    module = module_of(make, x.astype(dtype))
    changed = rewrite_operators(sink_reshapes(packed(module, HARDWARE)))
    fused = one_kernel(changed)
    expected = np.maximum(x @ weight + bias, 0) + other
    for each in (changed, fused):
        (found,) = run(each, x.astype(dtype))
        assert (found.shape, found.dtype) == (expected.shape, dtype)
        precision = 1e-4 if dtype == "float32" else 1e-11
        np.testing.assert_allclose(found, expected, rtol=precision, atol=precision)


@given(st.integers(1, 2000), st.sampled_from([4, 8, 16]))
def test_rows_that_no_tile_divides_are_a_few_more(rows, lanes):
    filled = filled_rows(rows, lanes)
    assert rows <= filled <= rows + 5
    few = 24 if lanes == 16 else 12
    assert rows <= few or any(filled % tile == 0 for tile in range(4, 13))


@pytest.mark.parametrize("rows", [29, 34])
def test_rows_that_are_filled_up_are_left_out_again(rng, hardware, rows):
    x, weight = rng.normal(size=(rows, 6)), rng.normal(size=(6, 16))
    module = module_of(
        lambda t: op.matmul(t, constant(weight.astype("float32"))), x.astype("float32")
    )
    changed = packed(module, hardware)
    (name,) = kernels(changed)
    assert f"T.int64({filled_rows(rows, LANES)})" in changed[name].script()
    (found,) = run(changed, x.astype("float32"))
    np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (2, 5, 6), (2, 1, 3, 6)])
def test_products_of_every_rank(rng, hardware, shape):
    x, weight = rng.normal(size=shape).astype("float32"), rng.normal(size=(6, 24))
    module = module_of(lambda t: op.matmul(t, constant(weight.astype("float32"))), x)
    changed = packed(module, hardware)
    assert len(kernels(changed)) == 1
    same(module, changed, x)


@pytest.mark.parametrize(
    ("bits", "columns", "lanes"),
    [(512, 3, 4), (512, 5, 8), (512, 8, 8), (512, 9, 16), (512, 40, 16), (256, 1, 4), (128, 1, 4)],
)
def test_few_columns_have_narrow_panels(rng, hardware, bits, columns, lanes):
    x = rng.normal(size=(5, 6)).astype("float32")
    weight = rng.normal(size=(6, columns)).astype("float32")
    module = module_of(lambda t: op.matmul(t, constant(weight)), x)
    changed = packed(module, replace(hardware, simd_bits=bits))
    (name,) = kernels(changed)
    shape = f"({-(-columns // lanes)}), T.int64(6), T.int64({lanes})"
    assert shape in changed[name].script()
    (found,) = run(changed, x)
    np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-4)


@st.composite
def convolutions(draw):
    axes = draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides, dilation = draw(each), draw(each), draw(each)
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * axes, max_size=2 * axes))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    extents = [n + draw(st.integers(0, 3)) for n in least]
    extents[-1] += draw(st.sampled_from([0, 0, 16, 29, 34]))
    columns = draw(st.sampled_from([1, 3, LANES - 1, LANES, LANES + 1, 2 * LANES]))
    return kernel, strides, dilation, pads, extents, draw(st.integers(1, 3)), columns


@settings(max_examples=12, deadline=None)
@given(convolutions())
def test_convolutions_of_every_kernel_stride_padding_and_dilation(case):
    kernel, strides, dilation, pads, extents, channels, columns = case
    rng, axes = np.random.default_rng(sum(extents)), len(kernel)
    x = rng.normal(size=(2, *extents, channels)).astype("float32")
    weight = rng.normal(size=(*kernel, channels, columns)).astype("float32")
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
    changed = packed(module, HARDWARE)
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


@pytest.mark.parametrize("columns", [LANES, LANES + 2])
def test_weights_that_two_products_share_are_packed_once(rng, hardware, columns):
    x = rng.normal(size=(4, columns)).astype("float32")
    weight = rng.normal(size=(columns, columns))
    shared = constant(weight.astype("float32"))

    def make(t):
        return op.matmul(relax.BlockBuilder.current().emit(op.matmul(t, shared)), shared)

    module = module_of(make, x)
    changed = packed(module, hardware)
    found = []

    def visit(node):
        for argument in getattr(node, "args", ()) if isinstance(node, relax.Call) else ():
            fields = argument.fields if isinstance(argument, relax.Tuple) else ()
            found.extend(f for f in fields if len(f.ty.shape) == 3)

    relax.analysis.post_order_visit(changed["main"], visit)
    assert len(found) == 2
    assert found[0].same_as(found[1])
    same(module, changed, x)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((8, 8), "int32"), ((8, 8), "float16"), ((2, 8, 8), "float32")]
)
def test_what_does_not_fit_is_left_as_it_is(rng, hardware, shape, dtype):
    x = rng.normal(size=(2, 4, 8)).astype(dtype)
    weight = constant(rng.normal(size=shape).astype(dtype))
    module = module_of(lambda t: op.matmul(t, weight), x)
    assert kernels(pack_weights(module, hardware, Decisions())) == []


def test_weights_that_are_computed_are_left_as_they_are(rng, hardware):
    x = rng.normal(size=(8, 8)).astype("float32")
    module = module_of(lambda t: op.matmul(t, t), x)
    assert kernels(pack_weights(module, hardware, Decisions())) == []


@pytest.mark.parametrize(("columns", "width"), [(3, LANES // 2), (LANES + 5, LANES)])
def test_tuning_finds_tiles_and_vectors_of_a_product_whose_columns_do_not_fill_panels(
    rng, hardware, columns, width
):
    x, weight = rng.normal(size=(16, 32)).astype("float32"), rng.normal(size=(32, columns))
    module = module_of(lambda t: op.matmul(t, constant(weight.astype("float32"))), x)
    fused = one_kernel(packed(module, hardware))
    (name,) = kernels(fused)
    workload = as_workload(fused[name], name)
    sketches = Space.generate(workload, hardware).sketches
    tiles = {v.name: v for v in sketches[0].variables if isinstance(v, PerfectTile)}
    lanes = [v for v in tiles.values() if v.extent == width and v.parts == 4]
    assert lanes, f"no tile of the lanes in {sorted(tiles)}"


@pytest.mark.parametrize("groups", [1, 8])
def test_a_network_in_channels_first(rng, hardware, groups):
    x = rng.normal(size=(1, 8, 5, 5)).astype("float32")
    weight = rng.normal(size=(8, 8 // groups, 3, 3)).astype("float32")
    module = module_of(lambda t: op.nn.conv2d(t, constant(weight), groups=groups), x)
    changed = packed(rewrite_operators(assign_layouts(module, Decisions())), hardware)
    assert len(kernels(changed)) == (groups == 1)
    same(module, changed, x)
