"""Batch norm in the layer before it: every kind of layer, against PyTorch and against itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from foretune.graph.passes.batch_norms import fold_batch_norms
from foretune.graph.passes.rewrites import rewrite_operators
from foretune.workload import from_object
from tests.graph.networks import seeded
from tests.graph.programs import constant, module_of, relax, run

op = relax.op


def calls(module, name):
    return module["main"].script(show_meta=False).count(f"R.{name}(")


def normalised(rng, layout="NCHW", kernel_layout="OIHW", axis=None, groups=1, users=1, bias=None):
    """A convolution with a batch norm behind it, all spatial extents and channels being 4."""
    extents = {"O": 4, "I": 4 // groups, "H": 1, "W": 1}
    weight = rng.normal(size=[extents[letter] for letter in kernel_layout]).astype("float32")
    four = [constant(rng.random(4).astype("float32") + 0.5) for _ in range(4)]

    def make(x):
        emit = relax.BlockBuilder.current().emit
        y = emit(
            op.nn.conv2d(
                x,
                constant(weight),
                groups=groups,
                data_layout=layout,
                kernel_layout=kernel_layout,
            )
        )
        z = y if bias is None else emit(op.add(constant(bias), y))
        at = layout.index("C") if axis is None else axis
        norm = emit(op.nn.batch_norm(z, *four, at, training=False))
        return (relax.TupleGetItem(norm, 0), *[op.tanh(y)] * (users - 1))

    x = rng.normal(size=(4, 4, 4, 4)).astype("float32")
    return module_of(make, x), x


def same(module, x):
    changed = fold_batch_norms(module)
    np.testing.assert_allclose(run(changed, x)[0], run(module, x)[0], rtol=1e-4, atol=1e-4)
    return calls(changed, "nn.batch_norm")


@pytest.mark.parametrize(
    ("layout", "kernel_layout"), [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI")]
)
@pytest.mark.parametrize("groups", [1, 4])
def test_it_goes_into_the_convolution_before_it(rng, layout, kernel_layout, groups):
    module, x = normalised(rng, layout, kernel_layout, groups=groups)
    assert calls(module, "nn.batch_norm") == 1
    assert same(module, x) == 0


@pytest.mark.parametrize("how", [{"axis": 2}, {"axis": 0}, {"layout": "NHWC", "axis": 1}])
def test_along_another_axis_it_stays(rng, how):
    assert same(*normalised(rng, **how)) == 1


@pytest.mark.parametrize("users", [2, 3])
def test_a_layer_that_somebody_else_uses_is_not_copied(rng, users):
    module, x = normalised(rng, users=users)
    assert same(module, x) == 1
    assert calls(fold_batch_norms(module), "nn.conv2d") == 1


@pytest.mark.parametrize(
    ("shape", "left"),
    [((1, 4, 1, 1), 0), ((4, 1, 1), 0), ((1,), 0), ((), 0), ((4,), 1), ((1, 4, 4, 1), 1)],
)
def test_a_bias_per_channel_goes_with_it_and_any_other_keeps_it(rng, shape, left):
    bias = rng.normal(size=shape).astype("float32")
    assert same(*normalised(rng, bias=bias)) == left


KINDS = [
    (nn.Conv1d, nn.BatchNorm1d, (12,), {}),
    (nn.Conv2d, nn.BatchNorm2d, (9, 7), {"stride": 2, "padding": 1}),
    (nn.Conv3d, nn.BatchNorm3d, (5, 6, 4), {"dilation": 2}),
    (nn.ConvTranspose1d, nn.BatchNorm1d, (8,), {"stride": 2}),
    (nn.ConvTranspose2d, nn.BatchNorm2d, (5, 4), {"stride": 2, "padding": 1, "output_padding": 1}),
    (nn.ConvTranspose3d, nn.BatchNorm3d, (3, 4, 2), {}),
]


@pytest.mark.parametrize(("layer", "norm", "size", "given"), KINDS)
@pytest.mark.parametrize(
    ("groups", "bias"),
    [
        pytest.param(1, False, marks=pytest.mark.slow),
        (2, True),
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(2, False, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_convolution(layer, norm, size, given, groups, bias):
    net = seeded(nn.Sequential(layer(4, 6, 3, groups=groups, bias=bias, **given), norm(6)))
    check(net, torch.randn(2, 4, *size) if "dilation" not in given else torch.randn(2, 4, 9, 8, 7))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_a_product_with_a_matrix(bias, affine):
    net = nn.Sequential(nn.Linear(5, 7, bias=bias), nn.BatchNorm1d(7, affine=affine), nn.ReLU())
    check(seeded(net), torch.randn(3, 5))


def check(net, x):
    """What is folded computes what PyTorch does."""
    model = from_object((net, (x,)), "a network", "a test")
    module = fold_batch_norms(rewrite_operators(model.module))
    assert calls(model.module, "nn.batch_norm") == 1
    assert calls(module, "nn.batch_norm") == 0
    np.testing.assert_allclose(
        run(module, x.numpy())[0], net(x).detach().numpy(), rtol=1e-4, atol=1e-4
    )


def test_a_product_of_a_batch_of_matrices_keeps_it():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(5, 7), nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.linear(x))

    x = torch.randn(2, 3, 5)
    net = seeded(Net())
    model = from_object((net, (x,)), "a network", "a test")
    module = fold_batch_norms(rewrite_operators(model.module))
    assert calls(module, "nn.batch_norm") == 1
    np.testing.assert_allclose(
        run(module, x.numpy())[0], net(x).detach().numpy(), rtol=1e-4, atol=1e-4
    )
