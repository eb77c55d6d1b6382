"""Transposed convolutions by phases: right for every stride, kernel and padding, and less work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.graph import compile_model, extract, verify
from foretune.graph.passes import transposed_convolutions
from foretune.graph.passes.transposed_convolutions import Phases, pack, split_phases
from foretune.hardware import probe
from foretune.workload import from_object
from tests.graph.programs import constant, module_of, run

op = _tvm.tvm.relax.op
KINDS = {1: torch.nn.functional.conv_transpose1d, 2: torch.nn.functional.conv_transpose2d}
HARDWARE = replace(probe(), simd_bits=256)
KINDS[3] = torch.nn.functional.conv_transpose3d


def names_of(module):
    return [str(variable.name_hint) for variable in module.get_global_vars()]


@st.composite
def axes(draw):
    """Stride, kernel, what is cut off either end, output padding and extent of each axis."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        stride, kernel = draw(st.integers(1, 4)), draw(st.integers(1, 6))
        padding, more = draw(st.integers(0, kernel - 1)), draw(st.integers(0, stride - 1))
        found.append((stride, kernel, padding, more, draw(st.integers(1, 5))))
    assume(all((e - 1) * s - 2 * p + k + o > 0 for s, k, p, o, e in found))
    assume(any(s > 1 for s, *_ in found))
    return found


@settings(max_examples=10, deadline=None)
@given(
    axes(), st.booleans(), st.sampled_from([1, 4, 8, 11]), st.sampled_from([1, 2, 3]), st.booleans()
)
def test_phases_compute_what_pytorch_does(axes, known, channels, groups, parted):
    strides, kernel, padding, more, extent = (list(part) for part in zip(*axes, strict=True))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, *extent)).astype("float32")
    w = rng.normal(size=(6, channels, *kernel)).astype("float32")
    options = {"padding": padding, "output_padding": more}
    tensors = torch.from_numpy(x), torch.from_numpy(w)
    expected = KINDS[len(axes)](*tensors, stride=strides, groups=groups, **options).numpy()
    layer = getattr(op.nn, f"conv{len(axes)}d_transpose")
    options["padding"] = [*padding, *padding]

    def make(x, w=None):
        return layer(
            x, constant(w_known) if w is None else w, strides=strides, groups=groups, **options
        )

    w_known, given = w, (x,) if known else (x, w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transposed_convolutions, "_MOVED", -1 if parted else 1e9)
        changed = split_phases(module_of(make, *given), HARDWARE)
    product = "R.matmul" in changed["main"].script()
    assert product or f"conv{len(axes)}d_transpose" in names_of(changed)
    (found,) = run(changed, *given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"dilation": [2, 2]}, {"strides": [1, 1]}, {"data_layout": "NHWC"}],
    ids=["dilation", "stride 1", "another layout"],
)
def test_what_has_no_phases_or_none_to_gain_from_stays(options):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 3, 3, 3)).astype("float32")
    weight = constant(rng.normal(size=(3, 1, 2, 2)).astype("f4"))
    given = {"strides": [2, 2], **options}
    module = module_of(lambda x: op.nn.conv2d_transpose(x, weight, **given), x)
    assert names_of(split_phases(module, HARDWARE)) == ["main"]


def test_a_phase_has_no_more_taps_than_it_needs():
    phases = [Phases(stride=2, kernel=4, front=1, inputs=8, outputs=16)]
    kernel = np.arange(4.0).reshape(1, 1, 4)
    # Even outputs: w[1], w[3]; odd ones: w[0], w[2], one input further on.
    np.testing.assert_array_equal(pack(kernel, phases)[:, :, 0, 0], [[1, 3], [0, 2]])
    assert (phases[0].before, phases[0].after) == (1, 1)


def test_a_kernel_that_strides_do_not_divide_has_no_products_with_zeros():
    module = torch.nn.ConvTranspose2d(64, 48, 3, 2, 1, output_padding=1).eval()
    model = from_object((module, (torch.randn(1, 64, 9, 7),)), "up", "a test")
    extraction = extract(model, HARDWARE)
    assert verify(compile_model(model, HARDWARE, {}, extraction), model).ok
    products = 2 * 9 * 64 * 48 * 9 * 7
    assert products <= sum(w.flops for w in extraction.workloads) < 1.1 * products


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("stride", "padding", "more"), [(1, 0, 0), (2, 1, 0), (3, 0, 2)])
def test_one_place_is_a_product(known, stride, padding, more):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 10, 1, 1)).astype("float32")
    w = rng.normal(size=(10, 6, 4, 3)).astype("float32")
    options = {"padding": padding, "output_padding": more}
    expected = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x), torch.from_numpy(w), stride=stride, **options
    ).numpy()

    def make(x, weight=None):
        return op.nn.conv2d_transpose(
            x, constant(w) if weight is None else weight, strides=[stride] * 2,
            padding=[padding] * 4, output_padding=[more] * 2,
        )  # fmt: skip

    given = (x,) if known else (x, w)
    changed = split_phases(module_of(make, *given), HARDWARE)
    assert ("R.matmul" in changed["main"].script()) == (more == 0)
    (found,) = run(changed, *given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_place_of_half_precision_has_the_type_that_is_asked_for():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 10, 1, 1)).astype("float16")
    w = rng.normal(size=(10, 6, 4, 4)).astype("float16")
    module = module_of(lambda x: op.nn.conv2d_transpose(x, constant(w), out_dtype="float32"), x)
    changed = split_phases(module, HARDWARE)
    (found,) = run(changed, x)
    expected = np.einsum("ni,iohw->nohw", x[:, :, 0, 0].astype("f8"), w.astype("f8"))
    assert "R.matmul" in changed["main"].script() and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_groups_are_upsampled_without_inserted_zeros():
    module = torch.nn.ConvTranspose2d(21, 21, 16, 8, 4, groups=21).eval()
    model = from_object((module, (torch.randn(1, 21, 9, 7),)), "up", "a test")
    extraction = extract(model, HARDWARE)
    assert verify(compile_model(model, HARDWARE, {}, extraction), model).ok
    products = 2 * 16 * 16 * 21 * 9 * 7
    assert sum(w.flops for w in extraction.workloads) < 1.5 * products


def test_a_generator_is_a_quarter_of_the_work_and_one_kernel_a_layer():
    torch.manual_seed(0)
    layers = []
    for channels in (32, 16, 8):
        layers += [torch.nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1, bias=False)]
        layers += [torch.nn.BatchNorm2d(channels), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers).eval()
    model = from_object((module, (torch.randn(1, 64, 4, 4),)), "generator", "a test")
    # Eight channels fill a vector of eight; wider ones are filled up.
    hardware = replace(probe(threads=1), simd_bits=256)
    extraction = extract(model, hardware)
    assert verify(compile_model(model, hardware, {}, extraction), model).ok
    plain = extract(model, hardware, without=["transposed-convolutions"])
    work, before = (sum(w.flops for w in e.workloads) for e in (extraction, plain))
    assert work < 0.3 * before
    heavy = [w for w in extraction.workloads if w.flops > 0.01 * work]
    assert len(heavy) == 3
