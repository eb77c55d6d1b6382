"""AutoTVM's templates for CPUs with packed channels: convolutions NCHW[x]c.

What the schedules of TVM 0.10 do (``topi/x86/conv2d_avx_common``, ``conv2d_avx_1x1`` and
``depthwise_conv2d``): data and weights come packed, padding is a pass of its own, and a tile of the
output is accumulated in a buffer that is kept in registers where the tile is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.describe._nests import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._building import Building, Index, Loop, Number, Of, Place
from foretune_research.logs._shapes import Conv, conv_of

_PACKED = ("tile_ic", "tile_oc", "tile_ow")


def _packed_data(b: Building, conv: Conv, block: Number) -> int:
    """The input NCHW[x]c, padded by a parallel pass where it has to be; what is read afterwards."""
    shape: list[Number] = [conv.n, conv.ci / np.asarray(block), conv.h, conv.w, block]
    data = b.buffer("data", shape, bytes=conv.bytes)
    if not any(conv.pad):
        return data
    height, width = conv.padded
    padded = b.buffer(
        "padded", [*shape[:2], height, width, block], parameter=False, bytes=conv.bytes
    )
    n = b.loop("n", conv.n, PARALLEL)
    chunk = b.loop("chunk", shape[1], PARALLEL)
    h = b.loop("h", height, PARALLEL)
    w = b.loop("w", width)
    c = b.loop("c", block, VECTORIZED)
    # The border reads nothing: what is within wraps at its extent.
    inside: Index = [n, chunk, Of("h", modulo=conv.h), Of("w", modulo=conv.w), c]
    b.statement(
        [n, chunk, h, w, c], [(data, inside)], (padded, [n, chunk, h, w, c]),
        selects=conv.pad_selects,
    )  # fmt: skip
    return padded


def _conv_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=False)
    return {"tile_ic": (conv.ci, 2), "tile_oc": (conv.co, 2), "tile_ow": (conv.ow, 2)}


def _packed_weights(b: Building, conv: Conv, ci: int, ic: Number, oc: Number) -> int:
    shape: list[Number] = [conv.co / np.asarray(oc), ci / np.asarray(ic), conv.kh, conv.kw, ic, oc]
    return b.buffer("weights", shape, bytes=conv.bytes)


def _input(conv: Conv, chunk: Loop, block: Loop) -> Index:
    """Where in the packed input: by output and window."""
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    return ["n", chunk, (Of("oh", sh), Of("kh", dh)), (Of("ow", sw), Of("kw", dw)), block]


def _conv_common(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=False)
    b = Building(tiles.n)
    ic, oc, ow = (tiles.sizes[name][-1] for name in _PACKED)
    data = _packed_data(b, conv, ic)
    weights = _packed_weights(b, conv, conv.ci, ic, oc)
    total = b.buffer("total", [ow, oc], parameter=False, bytes=conv.bytes)
    out = b.buffer("out", [conv.n, conv.co / oc, conv.oh, conv.ow, oc], bytes=conv.bytes)
    n, chunk = b.loop("n", conv.n, PARALLEL), b.loop("oc", conv.co / oc, PARALLEL)
    oh = b.loop("oh", conv.oh, PARALLEL)
    ow_chunk, ow_block = b.split(b.loop("ow", conv.ow), ow)
    outer = [n, chunk, oh, ow_chunk]

    def tile(kind: int) -> tuple[Loop, Loop]:
        inner = b.again(ow_block)
        b.mark(inner, kind)
        return inner, b.loop("oc.block", oc, VECTORIZED)

    w, c = tile(UNROLLED)
    ic_chunk = b.loop("ic", conv.ci / ic, reduction=True)
    ic_block = b.loop("ic.block", ic, reduction=True)
    kh = b.loop("kh", conv.kh, reduction=True)
    unrolled = bool(tiles.numbers["unroll_kw"][0])
    kw = b.loop("kw", conv.kw, UNROLLED if unrolled else SERIAL, reduction=True)
    window = [kh, ic_block, kw] if unrolled else [kh, kw, ic_block]
    loads: list[Place] = [
        (data, _input(conv, ic_chunk, ic_block)),
        (weights, [chunk, ic_chunk, kh, kw, ic_block, c]),
    ]
    b.statement(
        [*outer, ic_chunk, *window, w, c], loads, (total, [w, c]), operations=2, reduces=True
    )
    w, c = tile(SERIAL)
    b.statement([*outer, w, c], [(total, [w, c])], (out, [n, chunk, oh, "ow", c]))
    return b.nests()


def _conv_1x1(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=False)
    b = Building(tiles.n)
    ic, oc, ow = (tiles.sizes[name][-1] for name in _PACKED)
    rows = tiles.numbers["tile_oh"]
    data = _packed_data(b, conv, ic)
    weights = _packed_weights(b, conv, conv.ci, ic, oc)
    total = b.buffer("total", [rows, conv.ow, oc], parameter=False, bytes=conv.bytes)
    out = b.buffer("out", [conv.n, conv.co / oc, conv.oh, conv.ow, oc], bytes=conv.bytes)
    n, chunk = b.loop("n", conv.n, PARALLEL), b.loop("oc", conv.co / oc, PARALLEL)
    oh_outer, oh_inner = b.split(b.loop("oh", conv.oh), rows)
    b.mark(oh_outer, PARALLEL)
    outer = [n, chunk, oh_outer]

    def tile(kind: int) -> tuple[Loop, list[Loop]]:
        h, (ow_outer, w) = b.again(oh_inner), b.split(b.loop("ow", conv.ow), ow)
        b.mark(h, kind)
        b.mark(w, kind)
        return ow_outer, [h, w, b.loop("oc.block", oc, VECTORIZED)]

    ow_outer, inner = tile(UNROLLED)
    ic_chunk = b.loop("ic", conv.ci / ic, reduction=True)
    ic_block = b.loop("ic.block", ic, reduction=True)
    loads: list[Place] = [
        (data, _input(conv, ic_chunk, ic_block)),
        (weights, [chunk, ic_chunk, (), (), ic_block, inner[-1]]),
    ]
    b.statement(
        [*outer, ow_outer, ic_chunk, ic_block, *inner], loads, (total, [inner[0], "ow", inner[-1]]),
        operations=2, reduces=True,
    )  # fmt: skip
    ow_outer, inner = tile(SERIAL)
    b.statement(
        [*outer, ow_outer, *inner], [(total, [inner[0], "ow", inner[-1]])],
        (out, [n, chunk, "oh", "ow", inner[-1]]),
    )  # fmt: skip
    return b.nests()


def _depthwise_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=True)
    return {"tile_ic": (conv.ci, 2), "tile_oc": (conv.co, 2), "tile_ow": (conv.ow, 2)}


def _depthwise(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=True)
    b = Building(tiles.n)
    ic, oc, ow = (tiles.sizes[name][-1] for name in _PACKED)
    data = _packed_data(b, conv, ic)
    weights = b.buffer("weights", [conv.co / oc, conv.kh, conv.kw, oc], bytes=conv.bytes)
    total = b.buffer("total", [ow, oc], parameter=False, bytes=conv.bytes)
    out = b.buffer("out", [conv.n, conv.co / oc, conv.oh, conv.ow, oc], bytes=conv.bytes)
    # Each image is a parallel loop of its own.
    n, oh = b.loop("n", conv.n), b.loop("oh", conv.oh, PARALLEL)
    chunk, block = b.split(b.loop("c", conv.co), oc)
    b.mark(chunk, PARALLEL)
    ow_chunk, ow_block = b.split(b.loop("ow", conv.ow), ow)
    outer = [n, chunk, oh, ow_chunk]

    def tile(kind: int) -> tuple[Loop, Loop]:
        w, c = b.again(ow_block), b.again(block)
        b.mark(w, kind)
        b.mark(c, VECTORIZED)
        return w, c

    w, c = tile(UNROLLED)
    kh, kw = b.loop("kh", conv.kh, reduction=True), b.loop("kw", conv.kw, reduction=True)
    b.mark(kw, UNROLLED, tiles.numbers["unroll_kw"] > 0)
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    # The input is packed by another factor than the output.
    read: Index = [
        "n", Of("c", every=ic), (Of("oh", sh), Of("kh", dh)), (Of("ow", sw), Of("kw", dw)),
        Of("c", modulo=ic),
    ]  # fmt: skip
    loads: list[Place] = [(data, read), (weights, [chunk, kh, kw, c])]
    b.statement([*outer, kh, kw, w, c], loads, (total, [w, c]), operations=2, reduces=True)
    w, c = tile(SERIAL)
    b.statement([*outer, w, c], [(total, [w, c])], (out, [n, chunk, oh, "ow", c]))
    return b.nests()


TEMPLATES = {
    "conv2d_NCHWc.x86": (
        Template(_conv_splits, _conv_1x1, numbers=("tile_oh",), uneven=("tile_ow",)),
        Template(
            _conv_splits,
            _conv_common,
            numbers=("unroll_kw",),
            orders={"unroll_kw": 0},
            uneven=("tile_ow",),
        ),
    ),
    "depthwise_conv2d_NCHWc.x86": (
        Template(_depthwise_splits, _depthwise, numbers=("unroll_kw",)),
    ),
}
"""By the name of the task."""
