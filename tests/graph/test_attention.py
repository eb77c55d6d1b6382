"""Attention in networks: found however it is written, left alone where it is something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from foretune.graph.passes import OPERATORS, Decisions
from foretune.hardware import probe
from foretune.workload import from_object
from tests.graph.programs import run

HARDWARE = replace(probe(), simd_bits=256, l2_bytes=512 * 1024)


def prepared(module, inputs):
    """A network after the passes up to attention, and how many attentions were found."""
    changed = from_object((module.eval(), tuple(inputs))).module
    with HARDWARE.tvm_target():
        for each in OPERATORS:
            for change in each.changes(HARDWARE, Decisions()):
                changed = change(changed)
            if each.name == "attention":
                break
    script = changed["main"].script(show_meta=False)
    return changed, script.count("R.call_tir(attention")


def check(module, *inputs, count=1):
    changed, found = prepared(module, inputs)
    assert found == count
    with torch.no_grad():
        exact = module.double()(*[x.double() if x.is_floating_point() else x for x in inputs])
    outputs = run(changed, *[x.numpy() for x in inputs])
    wanted = exact if isinstance(exact, tuple) else (exact,)
    for actual, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=2e-5, atol=2e-5)


class Call(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, *inputs):
        return self._function(*inputs)


def tensors(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


SDPA = functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        pytest.param([(2, 3, 17, 8)] * 3, {}, marks=pytest.mark.slow),
        ([(2, 3, 17, 8)] * 3, {"is_causal": True}),
        ([(1, 2, 9, 16), (1, 2, 21, 16), (1, 2, 21, 24)], {"scale": 0.2}),
        ([(1, 8, 1, 16), (1, 2, 33, 16), (1, 2, 33, 16)], {"enable_gqa": True}),
        pytest.param([(3, 11, 8)] * 3, {}, marks=pytest.mark.slow),
    ],
    ids=["plain", "causal", "of other lengths", "one token, shared keys", "three axes"],
)
def test_pytorchs_own_function(shapes, options):
    check(Call(lambda q, k, v: SDPA(q, k, v, **options)), *tensors(*shapes))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((2, 1, 1, 13), "flags"),
        ((13, 13), "numbers"),
        ((2, 3, 13, 13), "numbers"),
        pytest.param((2, 1, 1, 13), "numbers", marks=pytest.mark.slow),
        pytest.param((13, 13), "flags", marks=pytest.mark.slow),
        pytest.param((2, 3, 13, 13), "flags", marks=pytest.mark.slow),
    ],
)
def test_masks_of_any_rank(shape, kind):
    q, k, v, mask = tensors(*[(2, 3, 13, 8)] * 3, shape)
    if kind == "flags":
        mask = mask > -1
        mask[..., 0] = False
    check(Call(SDPA), q, k, v, mask)


def test_rows_without_a_column_give_zeros_as_in_pytorch():
    q, k, v = tensors(*[(1, 2, 6, 8)] * 3)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    check(Call(SDPA), q, k, v, mask)


def by_hand(q, k, v, mask):
    scores = torch.matmul(q / 2.0, k.transpose(-1, -2) * 0.5)
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v)


def test_one_that_is_written_out():
    q, k, v = tensors(*[(2, 3, 13, 8)] * 3)
    later = torch.triu(torch.ones(13, 13, dtype=torch.bool), 1)
    check(Call(lambda q, k, v: by_hand(q, k, v, later)), q, k, v)
    check(Call(by_hand), q, k, v, later)


CAUSAL_FIRST, CAUSAL_LAST = True, False


@pytest.mark.parametrize(
    ("padded", "hidden"),
    [
        (float("-inf"), float("-inf")),
        (-1e9, float("-inf")),
        (-1e30, float("-inf")),
        (-1e30, -1e30),
        pytest.param(float("-inf"), -1e30, marks=pytest.mark.slow),
        pytest.param(-1e9, -1e30, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("order", [CAUSAL_FIRST, pytest.param(CAUSAL_LAST, marks=pytest.mark.slow)])
def test_rows_that_are_hidden_whole_by_two_masks(hidden, padded, added, order):
    """Padding on the left leaves the first rows nothing that counts."""
    q, k, v = tensors(*[(2, 3, 13, 8)] * 3)
    later = torch.triu(torch.ones(13, 13, dtype=torch.bool), 1)
    pad = (torch.arange(13) < 3).expand(2, 1, 1, 13)

    if added and padded == -1e9:
        padded = -64.0  # beside a larger number, single precision forgets the score

    def masked(scores, which, number):
        if added:
            return scores + torch.where(which, number, 0.0)
        return scores.masked_fill(which, number)

    def attention(q, k, v, pad):
        scores = q @ k.transpose(-1, -2) * 0.25
        masks = [(later, hidden), (pad, padded)]
        for mask in masks if order == CAUSAL_FIRST else masks[::-1]:
            scores = masked(scores, *mask)
        return torch.softmax(scores, -1) @ v

    check(Call(attention), q, k, v, pad)


class Layer(nn.Module):
    """Self-attention as transformers have it, one projection for all three or three of them."""

    def __init__(self, joint, heads=4, width=32):
        super().__init__()
        torch.manual_seed(1)
        self.heads, self.joint = heads, joint
        self.project = nn.ModuleList(
            [nn.Linear(width, 3 * width)] if joint else [nn.Linear(width, width) for _ in range(3)]
        )
        self.output = nn.Linear(width, width)

    def forward(self, x):
        parts = self.project[0](x).chunk(3, -1) if self.joint else [p(x) for p in self.project]
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        y = SDPA(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("joint", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_operands_are_read_where_projections_leave_them(joint):
    (x,) = tensors((2, 19, 32))
    layer = Layer(joint)
    check(layer, x)
    script = prepared(Layer(joint), (x,))[0]["main"].script(show_meta=False)
    behind = script.split("R.call_tir(attention")[1]
    assert "R.permute_dims" not in behind.split("R.matmul")[0]


def test_two_layers_of_the_same_sizes_have_one_kernel():
    (x,) = tensors((1, 9, 32))
    changed, found = prepared(nn.Sequential(Layer(True), Layer(True)), (x,))
    assert found == 2
    names = [v.name_hint for v in changed.get_global_vars()]
    assert sum(name.startswith("attention") for name in names) == 1


def shared_scores(q, k, v):
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v, weights


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (shared_scores, [(2, 7, 8)] * 3),
        (lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), 1) @ v, [(2, 7, 8)] * 3),
        (lambda q, k, v: torch.softmax((q @ k.mT).tanh(), -1) @ v, [(2, 7, 8)] * 3),
        (lambda q, k, v: torch.softmax((q @ k.mT).reshape(2, 49), -1).reshape(2, 7, 7) @ v,
         [(2, 7, 8)] * 3),
        (lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, [(1, 1, 8), *[(1, 20000, 8)] * 2]),
    ],
    ids=["weights are returned", "another axis", "another function", "rows joined", "too long"],
)  # fmt: skip
def test_what_is_something_else_stays(function, shapes):
    inputs = tensors(*shapes)
    check(Call(function), *inputs, count=0)


def test_other_types_stay():
    inputs = [x.double() for x in tensors(*[(2, 7, 8)] * 3)]
    assert prepared(Call(SDPA), inputs)[1] == 0
