"""Operators that TVM's importer lacks or computes otherwise, against eager PyTorch by family."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.graph import compile_model
from foretune.hardware import probe
from foretune.workload import from_object

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Calls(torch.nn.Module):
    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def forward(self, *given):
        return [function(*given) for function in self.functions]


def check(functions, *inputs, rtol=1e-5, atol=1e-5):
    model = from_object((Calls(*functions), inputs), "calls")
    outputs = compile_model(model, probe(), {}).run(list(model.examples))
    expected = model.reference(model.examples)
    assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected]
    for at, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        np.testing.assert_allclose(output, wanted, rtol=rtol, atol=atol, err_msg=f"output {at}")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_activations_and_special_functions():
    names = [
        "selu",
        "celu",
        "elu",
        "mish",
        "softplus",
        "hardswish",
        "logsigmoid",
        "tanhshrink",
        "softsign",
    ]
    special = [
        "erfc",
        "erfinv",
        "digamma",
        "expm1",
        "log1p",
        "exp2",
        "sinc",
        "logit",
    ]
    spread = torch.linspace(-0.95, 0.95, 30).reshape(5, 6)
    check([*(getattr(F, name) for name in names), torch.frac], draw(5, 6) * 3)
    check([*(getattr(torch.special, name) for name in special), torch.asinh, torch.atanh], spread)
    far = torch.tensor([-7.25, -0.5, 0.125, 3.0, 11.5, 40.0, 1e5])
    check([torch.lgamma, torch.digamma, torch.erfc], far, rtol=2e-5)


def test_divisions_remainders_and_powers():
    a, b = torch.tensor([7.0, -7.0, 7.5, -7.5, 0.3]), torch.tensor([2.0, 2.0, -2.0, -2.0, 0.1])
    modes = [lambda x, y, m=m: torch.div(x, y, rounding_mode=m) for m in (None, "trunc", "floor")]
    both = [*modes, torch.remainder, torch.fmod, torch.floor_divide]
    check([*both, torch.atan2, torch.hypot, torch.copysign], a, b)
    i, j = torch.tensor([7, -7, 7, -7, 0]), torch.tensor([2, 2, -2, -2, 3])
    check([*both, lambda x, y: x ** y.abs(), torch.bitwise_xor, lambda x, y: x << y.abs()], i, j)


def test_a_division_of_integers_by_zero_ends_no_process():
    model = from_object((Calls(torch.floor_divide), (torch.tensor([7]), torch.tensor([2]))), "zero")
    artifact = compile_model(model, probe(), {})
    smallest = np.array([-(2**63)])
    assert artifact.run([smallest, np.array([0])])[0].shape == (1,)
    assert artifact.run([smallest, np.array([-1])])[0].shape == (1,)


def test_reductions():
    functions = [
        lambda x: x.amax((0, 2)),
        lambda x: x.amin(),
        lambda x: x.logsumexp(1),
        lambda x: x.prod(2),
        lambda x: (x > 0).any(1),
        lambda x: (x > 0).all(),
        lambda x: torch.var_mean(x, 1),
        lambda x: torch.std_mean(x, (0, 2), correction=0),
        lambda x: x.var(correction=2),
        lambda x: x.median(1),
        lambda x: x.kthvalue(2, 1),
        lambda x: x.cummax(1),
        lambda x: x.cummin(2),
        lambda x: x.cumprod(1),
        lambda x: torch.logcumsumexp(x, 2),
        lambda x: x.max(1),
        lambda x: x.argmin(2, keepdim=True),
        lambda x: x.sort(1, descending=True),
        lambda x: x.topk(2, 2),
        lambda x: x.nansum(1),
        lambda x: torch.cdist(x, x.flip(0)),
        lambda x: torch.cdist(x, x, p=1.5),
    ]
    check(functions, draw(3, 4, 5))


def test_not_a_number_wins_a_comparison():
    x, y = draw(4, 5), draw(4, 5, seed=1)
    x[0, 3] = y[2, 2] = float("nan")
    functions = [torch.maximum, torch.minimum, torch.fmax, torch.fmin]
    rows = [lambda a, b: a.max(1), lambda a, b: b.cummax(1), lambda a, b: a.argmin(1)]
    check([*functions, *rows, lambda a, b: a.nan_to_num(2.0), lambda a, b: a.median(1)], x, y)


def test_normalisation_with_and_without_weights():
    functions = [
        lambda x: F.group_norm(x, 2),
        lambda x: F.group_norm(x, 2, torch.arange(4.0), torch.ones(4)),
        F.instance_norm,
        lambda x: torch.native_layer_norm(x, [5, 6], None, None, 1e-5),
        lambda x: F.rms_norm(x, [6]),
        lambda x: F.batch_norm(x, torch.arange(4.0), torch.arange(4.0) + 1, torch.arange(4.0)),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.local_response_norm(x, 3),
    ]
    check(functions, draw(2, 4, 5, 6))


def test_pooling():
    functions = [
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 2, 2, 0, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5),
        lambda x: F.avg_pool2d(x, 20, ceil_mode=True),
        lambda x: F.avg_pool2d(x, (20, 3), (20, 5), ceil_mode=True),
        lambda x: F.avg_pool2d(x, 20, ceil_mode=True, divisor_override=5),
        lambda x: F.max_pool2d(x, 20, ceil_mode=True),
        lambda x: F.max_pool2d(x, (5, 20), ceil_mode=True, return_indices=True),
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
        lambda x: F.adaptive_avg_pool2d(x, 1),
        lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
        lambda x: F.max_pool1d(x[0], 3, 2),
        lambda x: F.adaptive_avg_pool1d(x[0], 4),
        lambda x: F.unfold(x, (2, 3), stride=2, padding=1),
        lambda x: F.fold(F.unfold(x, 2, stride=2), (6, 8), 2, stride=2),
    ]
    check(functions, draw(2, 3, 7, 9))


def _grid():
    return F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 4, 3, 8], align_corners=False)


def test_resizing_and_sampling():
    functions = [
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, size=(7, 3)),
        lambda x: F.interpolate(x, size=(7, 3), mode="nearest-exact"),
        lambda x: F.interpolate(x, size=(7, 3), mode="bilinear"),
        lambda x: F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
        lambda x: F.interpolate(x, size=(3, 2), mode="area"),
        lambda x: F.interpolate(x[0], size=9, mode="linear"),
        lambda x: F.pixel_shuffle(x.expand(2, 4, 5, 6), 2),
        lambda x: F.grid_sample(
            x, F.affine_grid(torch.eye(2, 3)[None].expand(2, 2, 3), [2, 4, 3, 8])
        ),
        lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
        lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"),
        lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"),
        lambda x: F.pad(x, (-1, 2, 0, -1), value=3.0),
    ]
    check(functions, draw(2, 4, 5, 6))


def test_products_and_convolutions():
    weight, narrow = draw(6, 2, 3, 3, seed=1), draw(4, 3, 3, 3, seed=2)
    square, mixing = draw(4, 6, 6, seed=3), draw(2, 6, 6, seed=4)
    functions = [
        lambda x: F.conv2d(x, weight, groups=2, padding="same", dilation=2),
        lambda x: F.conv_transpose2d(x, narrow, stride=2, padding=1, output_padding=1),
        lambda x: F.conv_transpose2d(x, narrow, stride=3, dilation=2),
        lambda x: F.conv1d(x[:, :, 0], weight[:, :, 0], groups=2),
        lambda x: (
            torch.addbmm(x[0, 0], x[0], x[0].mT.expand(4, 6, 5)[:, :, :6] * 1, beta=0.5)
            if x.shape[-1] == x.shape[-2]
            else x.sum()
        ),
        lambda x: torch.baddbmm(x[0], x[0], square, alpha=0.3),
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        lambda x: F.bilinear(x, x, mixing),
        lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    ]
    check(functions, draw(2, 4, 5, 6), atol=1e-4)


def test_reading_and_writing_by_position():
    index, wide = torch.tensor([2, -1, 0]), torch.tensor([[0, 2, 1, 0], [1, 0, 0, 2]])
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    functions = [
        lambda x, y: x[index],
        lambda x, y: x[:, index],
        lambda x, y: x[index, index],
        lambda x, y: x[None, index, ..., None],
        lambda x, y: x.index_add(0, index % 3, y),
        lambda x, y: x.index_copy(0, index % 3, y),
        lambda x, y: x.index_fill(0, index % 3, 4.0),
        lambda x, y: x.index_put((index, index), y[:, 0], accumulate=True),
        lambda x, y: x.index_put((mask,), y.reshape(-1)[:6]),
        lambda x, y: x.index_reduce(0, index % 3, y, "amax"),
        lambda x, y: x.scatter(0, wide, y),
        lambda x, y: x.scatter_add(0, wide, y),
        lambda x, y: x.scatter_reduce(0, wide, y, "mean", include_self=False),
        lambda x, y: x.scatter_reduce(0, wide, y, "prod"),
        lambda x, y: x.masked_fill(mask, 2.0),
        lambda x, y: x.masked_scatter(mask, y),
        lambda x, y: x.gather(0, wide),
        lambda x, y: x.take(torch.tensor([0, 5, -1])),
        lambda x, y: x.roll(1, 1),
        lambda x, y: x.rot90(),
        lambda x, y: x.flip(0, 1),
        lambda x, y: x.tril(1) + x.triu(-1),
        lambda x, y: x.diagonal(1),
        lambda x, y: x.unfold(1, 2, 1),
        lambda x, y: x.select_scatter(y[0], 0, -1),
        lambda x, y: x.slice_scatter(y[:, :2], 1, 0, 4, 2),
        lambda x, y: torch.searchsorted(x.sort(1)[0], y),
        lambda x, y: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]), right=True),
        lambda x, y: F.embedding_bag(index % 3, x, torch.tensor([0, 2]), mode="mean"),
        lambda x, y: F.one_hot(index % 3, 3),
    ]
    check(functions, draw(3, 4), draw(3, 4, seed=1))


def test_sizes_of_zero_and_rank_0():
    functions = [
        lambda x, s: torch.cat([x, x[:0]]),
        lambda x, s: x[:0].sum(0),
        lambda x, s: x[:, :0] * s,
        lambda x, s: x[:0].prod() + s,
        lambda x, s: s.max(0).values + s.sum() + s.softmax(0),
        lambda x, s: s[None].expand(3),
        lambda x, s: x.new_zeros(0, 3),
        lambda x, s: x[:0].reshape(0, 2, 2),
    ]
    check(functions, draw(3, 4), torch.tensor(2.5))
