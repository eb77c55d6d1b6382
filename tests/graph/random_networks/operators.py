"""The operators that random networks are made of: each draws its own arguments.

A function takes what can be drawn from and returns a step, or None where no value suits it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.graph.random_networks.network import Draw, Step

Drawn = Callable[[Draw], Step | None]


def _function(name: str, call: Callable[..., Any], exact: bool = False, *ranks: int) -> Drawn:
    """An operator of one floating-point tensor without arguments."""

    def drawn(d: Draw) -> Step | None:
        at = d.floats(*ranks)
        return None if at is None else Step(name, call, (at,), exact)

    return drawn


def _convolution(d: Draw) -> Step | None:
    at = d.floats(3, 4, 5)
    if at is None:
        return None
    shape = d.values[at].tensor.shape
    rank, channels = len(shape) - 2, shape[1]
    transposed = d.rng.random() < 0.3
    groups = d.choice((1, 1, channels, 2 if channels % 2 == 0 else 1))
    out = groups * d.choice((1, 2, 3, 5)) if groups > 1 else d.choice((1, 4, 8, 13))
    kernel = [d.choice((1, 2, 3)) for _ in range(rank)]
    stride = [d.choice((1, 1, 2, 3)) for _ in range(rank)]
    dilation = [d.choice((1, 1, 2)) for _ in range(rank)]
    padding: Any = [d.choice((0, 1, 2)) for _ in range(rank)]
    common: dict[str, Any] = {"groups": groups, "bias": d.flip(), "dilation": dilation}
    if transposed:
        make = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
        more = [int(d.rng.integers(max(s, k))) for s, k in zip(stride, dilation, strict=True)]
        name, common = f"conv{rank}d_transpose", {**common, "output_padding": more}
    else:
        make = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        name = f"conv{rank}d"
        if d.rng.random() < 0.1:
            padding, stride = "same", [1] * rank
    try:
        module = make(channels, out, kernel, stride=stride, padding=padding, **common)
    except ValueError:
        return None
    return Step(name, module, (at,))


def _pool(d: Draw) -> Step | None:
    at = d.floats(3, 4, 5)
    if at is None:
        return None
    rank = d.values[at].tensor.ndim - 2
    size = [d.choice((1, 2, 3)) for _ in range(rank)]
    kind = d.choice(("max", "avg", "adaptive_avg", "adaptive_max"))
    if kind == "adaptive_avg":
        call = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[rank - 1]
        return Step(f"{kind}_pool{rank}d", call(size[0] if rank == 1 else size), (at,))
    if kind == "adaptive_max":
        call = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)[rank - 1]
        return Step(f"{kind}_pool{rank}d", call(size[0] if rank == 1 else size), (at,), True)
    common = {
        "stride": d.choice((1, 2)),
        "padding": [int(d.rng.integers(s // 2 + 1)) for s in size],
        "ceil_mode": d.rng.random() < 0.3,
    }
    make: Any
    if kind == "max":
        make = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[rank - 1]
        module = make(size if rank > 1 else size[0], **common, dilation=d.choice((1, 1, 2)))
        return Step(f"max_pool{rank}d", module, (at,), True)
    make = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[rank - 1]
    return Step(f"avg_pool{rank}d", make(size, **common, count_include_pad=d.flip()), (at,))


def _norm(d: Draw) -> Step | None:
    at = d.floats(2, 3, 4, 5)
    if at is None:
        return None
    shape = d.values[at].tensor.shape
    channels = shape[1]
    kind = d.choice(("batch", "group", "layer", "instance", "rms"))
    affine = d.flip()
    module: nn.Module
    if kind == "batch":
        norms = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        module = norms[len(shape) - 2](channels, affine=affine)
        module.running_mean = torch.randn(channels) * 0.2
        module.running_var = torch.rand(channels) + 0.5
    elif kind == "group":
        module = nn.GroupNorm(d.choice([g for g in (1, 2, 4) if channels % g == 0]), channels)
    elif kind == "layer":
        module = nn.LayerNorm(shape[-d.choice((1, min(2, len(shape) - 1))) :])
    elif kind == "instance" and len(shape) > 2:
        norms = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
        module = norms[len(shape) - 3](channels, affine=affine)
    else:
        module = nn.RMSNorm(shape[-1], eps=1e-3)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    return Step(f"{kind}_norm", module, (at,))


def _linear(d: Draw) -> Step | None:
    at = d.value(lambda v: v.tensor.dtype == d.dtype and v.tensor.ndim >= 1)
    if at is None:
        return None
    width = d.values[at].tensor.shape[-1]
    return Step("linear", nn.Linear(width, d.choice((1, 3, 8, 13)), bias=d.flip()), (at,))


def _matmul(d: Draw) -> Step | None:
    one = d.value(lambda v: v.tensor.dtype == d.dtype and v.tensor.ndim >= 1)
    if one is None:
        return None
    width = d.values[one].tensor.shape[-1]

    def fits(v: Any) -> bool:
        rows = v.tensor.shape[-2] if v.tensor.ndim > 1 else (v.tensor.numel() or -1)
        return v.tensor.dtype == d.dtype and v.tensor.ndim > 0 and rows == width

    other = d.value(fits)
    if other is None or d.flip():
        return Step("gram", lambda x: x @ x.transpose(-1, -2) / width, (one,))
    return Step("matmul", lambda x, y: x @ y / width, (one, other))


def _attention(d: Draw) -> Step | None:
    at = d.floats(3, 4)
    if at is None:
        return None
    causal, masked = d.flip(), d.flip()

    def call(x: torch.Tensor) -> torch.Tensor:
        if not masked:
            return F.scaled_dot_product_attention(x, x * 0.5, x, is_causal=causal)
        length = x.shape[-2]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    return Step("attention", call, (at,))


def _embedding(d: Draw) -> Step | None:
    at = d.value(lambda v: v.tensor.dtype in (torch.int64, torch.int32) and v.tensor.ndim < 4)
    if at is None or int(d.values[at].tensor.min()) < 0:
        return None
    rows = 8 if int(d.values[at].tensor.max()) < 8 else 64
    if int(d.values[at].tensor.max()) >= rows:
        return None
    return Step("embedding", nn.Embedding(rows, d.choice((4, 6, 7))), (at,), True)


def _binary(d: Draw) -> Step | None:
    one = d.floats()
    if one is None:
        return None
    shape = d.values[one].tensor.shape

    def broadcasts(v: Any) -> bool:
        try:
            return v.tensor.dtype == d.dtype and torch.broadcast_shapes(v.tensor.shape, shape)
        except RuntimeError:
            return False

    other = d.value(lambda v: bool(broadcasts(v)))
    name, call, exact = d.choice(
        (
            ("add", torch.add, False),
            ("subtract", torch.subtract, False),
            ("multiply", torch.multiply, False),
            ("maximum", torch.maximum, True),
            ("minimum", torch.minimum, True),
            ("divide", lambda x, y: x / (y.abs() + 1), False),
            ("power", lambda x, y: (x.abs() + 0.5) ** y.clamp(-2, 2), False),
            ("atan2", lambda x, y: torch.atan2(x, y.abs() + 1), False),
            ("lerp", lambda x, y: torch.lerp(x, y.expand_as(x), 0.25), False),
        )
    )
    return None if other is None else Step(name, call, (one, other), exact)


def _scalar(d: Draw) -> Step | None:
    at = d.floats()
    number = d.choice((0, 1, -1, 2, 0.5, 3.25))
    name, call, exact = d.choice(
        (
            ("add_scalar", lambda x: x + number, False),
            ("multiply_scalar", lambda x: x * number, False),
            ("clamp", lambda x: x.clamp(-1.5, number), True),
            ("clamp_below", lambda x: x.clamp(min=number), True),
            ("relu6_by_hand", lambda x: x.maximum(x * 0).minimum(x * 0 + 6), True),
            ("reciprocal", lambda x: number / (x.abs() + 1), False),
        )
    )
    return None if at is None else Step(name, call, (at,), exact)


def _reduction(d: Draw) -> Step | None:
    at = d.floats()
    if at is None:
        return None
    rank = d.values[at].tensor.ndim
    keep, many = d.flip(), d.flip()
    axis = d.axis(at)
    axes = [axis] if rank < 2 or not many else sorted(d.rng.permutation(rank)[:2].tolist())
    whole = d.rng.random() < 0.15
    name, call, exact = d.choice(
        (
            ("sum", lambda x: x.sum() if whole else x.sum(axes, keepdim=keep) / 4, False),
            ("mean", lambda x: x.mean() if whole else x.mean(axes, keepdim=keep), False),
            ("amax", lambda x: x.amax(axes, keepdim=keep), True),
            ("amin", lambda x: x.amin(axes, keepdim=keep), True),
            ("max", lambda x: x.max(axis, keepdim=keep).values, True),
            ("prod", lambda x: (x * 0.5 + 1).prod(axis, keepdim=keep), False),
            ("var", lambda x: x.var(axes, correction=0, keepdim=keep), False),
            ("std", lambda x: (x * 2).std(axes, keepdim=keep) + 1, False),
            ("logsumexp", lambda x: x.logsumexp(axes, keepdim=keep), False),
            ("norm", lambda x: torch.linalg.vector_norm(x, 2, axis, keepdim=keep), False),
            ("softmax", lambda x: x.softmax(axis), False),
            ("log_softmax", lambda x: x.log_softmax(axis), False),
            ("cumsum", lambda x: x.cumsum(axis) / 4, False),
        )
    )
    return Step(name, call, (at,), exact)


def _jump(d: Draw) -> Step | None:
    """Operators in which a last bit decides: on exact values only."""
    at = d.value(lambda v: v.exact and v.tensor.dtype == d.dtype)
    if at is None:
        return None
    axis, keep = d.axis(at), d.flip()
    if d.values[at].tensor.ndim:
        k = int(d.rng.integers(1, d.values[at].tensor.shape[axis] + 1))
    else:
        k = 1
    name, call = d.choice(
        (
            ("argmax", lambda x: x.argmax(axis, keepdim=keep)),
            ("argmin", lambda x: x.argmin(axis)),
            ("topk", lambda x: x.topk(k, axis).values),
            ("sort", lambda x: x.sort(axis).values),
            ("argsort", lambda x: x.argsort(axis, stable=True)),
            ("greater", lambda x: x > 0.25),
            ("less_equal", lambda x: x <= x.mean() * 0),
            ("floor", torch.floor),
            ("ceil", torch.ceil),
            ("round", torch.round),
            ("trunc", torch.trunc),
            ("sign", torch.sign),
            ("to_int", lambda x: x.to(torch.int32)),
            ("any", lambda x: (x > 1).any(axis, keepdim=keep)),
            ("all", lambda x: (x > -1).all(axis)),
            ("nonzero_count", lambda x: (x != 0).sum(axis)),
        )
    )
    return Step(name, call, (at,), True)


def _movement(d: Draw) -> Step | None:
    at = d.value(lambda v: v.tensor.ndim > 0)
    if at is None:
        return None
    shape = d.values[at].tensor.shape
    rank, axis = len(shape), d.axis(at)
    extent = shape[axis]
    order = d.rng.permutation(rank).tolist()
    start = int(d.rng.integers(extent))
    length = int(d.rng.integers(1, extent - start + 1))
    repeats = [d.choice((1, 1, 2)) for _ in range(rank)]
    divisors = [n for n in (2, 3, 4) if extent % n == 0]
    split = d.choice(divisors) if divisors else 1
    picks = d.rng.integers(0, extent, int(d.rng.integers(1, 5)))
    name, call = d.choice(
        (
            ("permute", lambda x: x.permute(order)),
            ("transpose", lambda x: x.transpose(axis, 0)),
            ("flatten", lambda x: x.flatten(min(1, rank - 1))),
            ("reshape", lambda x: x.reshape(-1, split) if x.numel() % split == 0 else x[None]),
            ("unflatten", lambda x: x.unflatten(axis, (split, -1))),
            ("permuted_reshape", lambda x: x.permute(order).reshape(x.shape)),
            ("squeeze", lambda x: x.squeeze()),
            ("squeeze_axis", lambda x: x.squeeze(axis)),
            ("unsqueeze", lambda x: x.unsqueeze(axis)),
            ("expand", lambda x: x.unsqueeze(0).expand(2, *x.shape)),
            ("repeat", lambda x: x.repeat(repeats)),
            ("repeat_interleave", lambda x: x.repeat_interleave(2, axis)),
            ("flip", lambda x: x.flip(axis)),
            ("roll", lambda x: x.roll(start, axis)),
            ("narrow", lambda x: x.narrow(axis, start, length)),
            ("step", lambda x: x[..., ::2]),
            ("last", lambda x: x[..., -1]),
            ("first", lambda x: x[0]),
            ("select", lambda x: x.select(axis, start - extent)),
            ("pick", lambda x: x.index_select(axis, torch.tensor(picks))),
            ("pick_negative", lambda x: x[torch.tensor(picks - shape[0])] if axis == 0 else x[:1]),
            ("chunk", lambda x: x.chunk(2, axis)[-1]),
            ("split", lambda x: torch.cat(x.split(max(1, extent // 2), axis)[::-1], axis)),
            ("unbind", lambda x: torch.stack(x.unbind(axis)[::-1], axis)),
            ("contiguous", lambda x: x.contiguous()),
            ("diagonal", lambda x: x.diagonal()),
            ("unfold", lambda x: x.unfold(axis, length, 1)),
        )
    )
    return Step(name, call, (at,), True)


def _shaped(d: Draw) -> Step | None:
    """Operators on images and matrices that move data or fill it up."""
    at = d.floats(2, 3, 4)
    if at is None:
        return None
    rank = d.values[at].tensor.ndim
    widths = [int(d.rng.integers(0, 3)) for _ in range(2 * min(rank, 2))]
    fill = d.choice((0.0, 0.0, 1.0, -2.5))
    mode = d.choice(("nearest", "bilinear"))
    corners = True if mode == "bilinear" and d.flip() else None
    name, call, exact = d.choice(
        (
            ("pad", lambda x: F.pad(x, widths, value=fill), True),
            ("crop", lambda x: F.pad(x, [-1, 0, *widths[2:]]), True),
            ("reflect", lambda x: F.pad(x, widths[:2], mode="reflect"), True),
            ("replicate", lambda x: F.pad(x, widths, mode="replicate"), True),
            ("tril", lambda x: x.tril(), True),
            ("triu", lambda x: x.triu(1), True),
            ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), True),
            (
                "interpolate",
                lambda x: F.interpolate(x, scale_factor=2.0, mode=mode, align_corners=corners),
                False,
            ),
            ("prelu", nn.PReLU(d.values[at].tensor.shape[1]), False),
            ("glu", lambda x: F.glu(x, -1), False),
            ("channel_shuffle", lambda x: F.channel_shuffle(x, 2), True),
            ("einsum", lambda x: torch.einsum("...ij,...kj->...ik", x, x) / x.shape[-1], False),
            ("local_norm", lambda x: F.normalize(x, dim=1, eps=0.1), False),
        )
    )
    return Step(name, call, (at,), exact)


def _join(d: Draw) -> Step | None:
    at = d.value(lambda v: v.tensor.ndim > 0)
    if at is None:
        return None
    shape, dtype, axis = d.values[at].tensor.shape, d.values[at].tensor.dtype, d.axis(at)

    def alike(v: Any) -> bool:
        return v.tensor.dtype == dtype and v.tensor.shape == shape

    other = d.value(alike)
    if other is None:
        return None
    if d.flip():
        return Step("concat", lambda x, y: torch.cat([x, y, x], axis), (at, other), True)
    return Step("stack", lambda x, y: torch.stack([x, y], axis), (at, other), True)


def _masked(d: Draw) -> Step | None:
    flags = d.value(lambda v: v.tensor.dtype == torch.bool)
    if flags is None:
        return None
    shape = d.values[flags].tensor.shape
    at = d.value(lambda v: v.tensor.dtype == d.dtype and v.tensor.shape == shape)
    name, call = d.choice(
        (("not", torch.logical_not), ("to_float", lambda m: m.to(d.dtype)), ("flags", lambda m: ~m))
    )
    if at is None or d.rng.random() < 0.3:
        return Step(name, call, (flags,), True)
    name, two = d.choice(
        (
            ("where", lambda m, x: torch.where(m, x, x * 0)),
            ("masked_fill", lambda m, x: x.masked_fill(m, -3.0)),
            ("multiply_mask", lambda m, x: x * m),
        )
    )
    return Step(name, two, (flags, at), True)


def _whole(d: Draw) -> Step | None:
    """Arithmetic of whole numbers."""
    at = d.value(lambda v: not v.tensor.is_floating_point() and v.tensor.dtype != torch.bool)
    if at is None:
        return None
    axis, floating = d.axis(at), d.dtype
    name, call = d.choice(
        (
            ("add_int", lambda x: x + 3),
            ("multiply_int", lambda x: x * 2),
            ("floor_divide", lambda x: x // 3),
            ("remainder", lambda x: x % 3),
            ("bit_and", lambda x: x & 5),
            ("shift", lambda x: x >> 1),
            ("clamp_int", lambda x: x.clamp(1, 4)),
            ("sum_int", lambda x: x.sum(axis)),
            ("amax_int", lambda x: x.amax(axis)),
            ("to_float", lambda x: x.to(floating) / 4),
            ("to_long", lambda x: x.clamp(0, 7).long()),
            ("equal", lambda x: x == 3),
            ("one_hot", lambda x: F.one_hot(x.clamp(0, 5).long(), 6)),
            ("cumsum_int", lambda x: x.cumsum(axis)),
        )
    )
    return Step(name, call, (at,), True)


def _gather(d: Draw) -> Step | None:
    at = d.floats(1, 2, 3, 4)
    if at is None:
        return None
    shape, axis = list(d.values[at].tensor.shape), d.axis(at)
    wanted = list(shape)
    wanted[axis] = int(d.rng.integers(1, 5))
    index = torch.from_numpy(np.asarray(d.rng.integers(0, shape[axis], wanted)))
    source = torch.from_numpy(np.asarray(d.rng.integers(0, 4, wanted))).to(d.dtype)
    if d.flip():
        return Step("gather", lambda x: x.gather(axis, index), (at,), True)
    # Each position is written once, because the order of several writes is nobody's promise.
    once = torch.arange(shape[axis]).reshape(
        [-1 if i == axis % len(shape) else 1 for i in range(len(shape))]
    )
    target = once.expand(shape)[tuple(slice(0, n) for n in wanted)]
    if any(w > s for w, s in zip(wanted, shape, strict=True)):
        return None
    return Step("scatter", lambda x: x.scatter(axis, target, source), (at,), True)


def _residual(d: Draw) -> Step | None:
    at = d.floats(4)
    if at is None:
        return None
    channels = d.values[at].tensor.shape[1]
    body = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=d.choice((1, channels)), bias=False),
        nn.BatchNorm2d(channels),
        d.choice((nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.GELU))(),
    )
    body[1].running_mean = torch.randn(channels) * 0.2
    body[1].running_var = torch.rand(channels) + 0.5

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x)

    return Step("residual", Residual(), (at,))


_SMOOTH: dict[str, Callable[..., Any]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": lambda x: x.clamp(max=3).exp(),
    "log": lambda x: (x.abs() + 0.5).log(),
    "log1p": lambda x: x.abs().log1p(),
    "sqrt": lambda x: (x.abs() + 0.1).sqrt(),
    "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "sinh": lambda x: x.clamp(-2, 2).sinh(),
    "square": torch.square,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
}
_SHARP: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "abs": torch.abs,
    "negative": torch.neg,
    "hardtanh": F.hardtanh,
}

OPERATORS: tuple[Drawn, ...] = (
    *(_convolution,) * 14,
    *(_pool,) * 6,
    *(_norm,) * 8,
    *(_linear,) * 4,
    *(_matmul,) * 4,
    *(_attention,) * 2,
    *(_embedding,) * 3,
    *(_binary,) * 12,
    *(_scalar,) * 4,
    *(_reduction,) * 10,
    *(_jump,) * 5,
    *(_movement,) * 24,
    *(_shaped,) * 8,
    *(_join,) * 5,
    *(_masked,) * 4,
    *(_whole,) * 6,
    *(_gather,) * 3,
    *(_residual,) * 4,
    *(_function(name, call) for name, call in _SMOOTH.items()),
    *(_function(name, call, True) for name, call in _SHARP.items()),
)
"""Drawn from uniformly: families that deserve it stand several times."""
