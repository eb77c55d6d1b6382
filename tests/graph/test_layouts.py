"""Layouts: convolutions of every rank go channels last, and transposes between them cancel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from foretune.graph.passes import Decisions
from foretune.graph.passes.layouts import CHANNELS_LAST, assign_layouts, order
from foretune.graph.passes.rewrites import rewrite_operators
from foretune.graph.passes.transposes import sink_transposes
from tests.graph.programs import constant, module_of, relax, run

op = relax.op


def convolution(axes):
    return getattr(op.nn, f"conv{axes}d"), getattr(functional, f"conv{axes}d")


def moved(module):
    return rewrite_operators(
        sink_transposes(rewrite_operators(assign_layouts(module, Decisions())))
    )


def text_of(module):
    return module["main"].script(show_meta=False)


@st.composite
def convolutions(draw):
    axes, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 4]))
    each = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides, dilation = draw(each), draw(each), draw(each)
    pads = draw(st.lists(st.integers(0, 2), min_size=axes, max_size=axes))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    extents = [n + draw(st.integers(0, 3)) for n in least]
    channels = [groups * draw(st.integers(1, 3)) for _ in range(2)]
    return groups, kernel, strides, dilation, pads, extents, channels


@settings(max_examples=12, deadline=None)
@given(convolutions())
def test_convolutions_channels_last_compute_what_pytorch_does(case):
    groups, kernel, strides, dilation, pads, extents, (into, out) = case
    rng, (ours, theirs) = np.random.default_rng(sum(extents)), convolution(len(kernel))
    x = rng.normal(size=(2, into, *extents)).astype("float32")
    weight = rng.normal(size=(out, into // groups, *kernel)).astype("float32")
    options = {"dilation": dilation, "groups": groups}
    changed = assign_layouts(
        module_of(
            lambda t: ours(t, constant(weight), strides=strides, padding=[*pads, *pads], **options),
            x,
        ),
        Decisions(),
    )
    assert CHANNELS_LAST[f"relax.nn.conv{len(kernel)}d"][0] in text_of(changed)
    expected = theirs(
        torch.from_numpy(x), torch.from_numpy(weight), stride=strides, padding=pads, **options
    ).numpy()
    np.testing.assert_allclose(run(changed, x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max_pool", "avg_pool", "adaptive_avg_pool"])
def test_pooling_and_activations_between_convolutions_keep_no_transpose(rng, axes, kind):
    x = rng.normal(size=(1, 3, *(8, 7, 9)[:axes])).astype("float32")
    first = rng.normal(size=(4, 3, *(3,) * axes)).astype("float32")
    second = rng.normal(size=(5, 4, *(1,) * axes)).astype("float32")
    (ours, theirs), size = convolution(axes), (2,) * axes
    pool, reference = getattr(op.nn, f"{kind}{axes}d"), getattr(functional, f"{kind}{axes}d")

    def make(t):
        emit = relax.BlockBuilder.current().emit
        y = emit(op.nn.relu(emit(ours(t, constant(first)))))
        strides = {} if kind.startswith("adaptive") else {"strides": size}
        return ours(emit(pool(y, size, **strides)), constant(second))

    changed = moved(module_of(make, x))
    # One in front, one behind.
    assert text_of(changed).count("R.permute_dims(") == 2
    image, *weights = (torch.from_numpy(part) for part in (x, first, second))
    expected = theirs(reference(theirs(image, weights[0]).relu(), size), weights[1]).numpy()
    np.testing.assert_allclose(run(changed, x)[0], expected, rtol=1e-4, atol=1e-4)


def test_a_convolution_that_is_channels_last_stays(rng):
    x = rng.normal(size=(1, 6, 3)).astype("float32")
    weight = constant(rng.normal(size=(2, 3, 4)).astype("float32"))
    layouts = {"data_layout": "NWC", "kernel_layout": "WIO"}
    module = module_of(lambda t: op.nn.conv1d(t, weight, **layouts), x)
    assert "permute_dims" not in text_of(assign_layouts(module, Decisions()))


def test_the_order_of_axes_is_none_where_they_have_other_names():
    assert order("NCDHW", "NDHWC") == [0, 2, 3, 4, 1]
    assert order("NCHW4c", "NHWC") is None
