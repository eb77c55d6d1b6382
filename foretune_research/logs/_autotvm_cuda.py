"""AutoTVM's templates for CUDA: direct convolutions.

What the schedules of TVM 0.10 do (``topi/cuda/conv2d_direct``, ``depthwise_conv2d``). A block
copies what it reads to shared memory by all of its threads; padding is part of these copies. A
template's pragma of unrolling reaches the whole kernel.

Virtual threads become copies of the innermost statement, and local arrays have one part for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._nests import BLOCK, THREAD, VTHREAD, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._building import Building, Index, Loop, Number, Of, Place
from foretune_research.logs._shapes import conv_of


@dataclass(frozen=True)
class Tile:
    """An axis of the output by blocks, virtual threads, threads, and what one thread does."""

    block: Loop
    virtual: Loop
    thread: Loop
    inner: Loop

    @property
    def of_block(self) -> FloatArray:
        """What a block computes of the axis, float64 of shape (n,)."""
        return self.virtual.extent * self.thread.extent * self.inner.extent


def tile_of(b: Building, axis: str, extent: int, sizes: Sequence[FloatArray], letter: str) -> Tile:
    """Splits an axis in four and binds it."""
    tile = Tile(*b.split(b.loop(axis, extent), *sizes[1:]))
    b.mark(tile.block, BLOCK, letter=letter)
    b.mark(tile.virtual, VTHREAD)
    b.mark(tile.thread, THREAD, letter=letter)
    return tile


def fetched(
    b: Building, axes: Mapping[str, Number], threads: Sequence[Loop], chunks: bool
) -> tuple[list[Loop], Number]:
    """Loops by which all threads of a block copy a tile to shared memory.

    Args:
        b: Where they are made.
        axes: Extents of the tile by the names of its axes, which are theirs alone.
        threads: Loops over z, y, x.
        chunks: Whether each thread copies neighbours (a split in parts), else neighbours are
            copied by neighbours.

    Returns:
        The loop that is not bound, and the share of iterations that have something to copy.
    """
    rest = b.fuse(*(b.loop(name, extent) for name, extent in axes.items()))
    share: Number = 1.0
    if chunks:
        for thread in threads:
            part, rest = b.split(rest, np.ceil(rest.extent / thread.extent))
            share = share * b.bind(part, thread)
        return [rest], share
    rest, *parts = b.split(rest, *(thread.extent for thread in threads))
    for part, thread in zip(parts, threads, strict=True):
        share = share * b.bind(part, thread)
    return [rest], share


def _conv_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=False)
    return {
        "tile_f": (conv.co, 4), "tile_y": (conv.oh, 4), "tile_x": (conv.ow, 4),
        "tile_rc": (conv.ci, 2), "tile_ry": (conv.kh, 2), "tile_rx": (conv.kw, 2),
    }  # fmt: skip


def _conv(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=False)
    b = Building(tiles.n, gpu=True)
    size, unroll = conv.bytes, tiles.numbers["auto_unroll_max_step"]
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    f = tile_of(b, "f", conv.co, tiles.sizes["tile_f"], "z")
    y = tile_of(b, "y", conv.oh, tiles.sizes["tile_y"], "y")
    x = tile_of(b, "x", conv.ow, tiles.sizes["tile_x"], "x")
    bf = b.fuse(b.loop("n", conv.n), f.block)
    b.mark(bf, BLOCK, letter="z")
    threads = [f.thread, y.thread, x.thread]
    outer = [bf, y.block, x.block, *threads]
    rc, rci = b.split(b.loop("rc", conv.ci, reduction=True), tiles.sizes["tile_rc"][-1])
    ry, ryi = b.split(b.loop("ry", conv.kh, reduction=True), tiles.sizes["tile_ry"][-1])
    rx, rxi = b.split(b.loop("rx", conv.kw, reduction=True), tiles.sizes["tile_rx"][-1])

    rows = (y.of_block - 1) * sh + (ryi.extent - 1) * dh + 1
    columns = (x.of_block - 1) * sw + (rxi.extent - 1) * dw + 1
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=size)
    weights = b.buffer("weights", [conv.co, conv.ci, conv.kh, conv.kw], bytes=size)
    here: dict[str, Number] = {"a.c": rci.extent, "a.y": rows, "a.x": columns}
    kernel: dict[str, Number] = {
        "w.f": f.of_block, "w.c": rci.extent, "w.y": ryi.extent, "w.x": rxi.extent
    }  # fmt: skip
    a = b.buffer("data.shared", [*here.values()], "shared", parameter=False, bytes=size)
    w = b.buffer("weights.shared", [*kernel.values()], "shared", parameter=False, bytes=size)
    each = (f, y, x)
    own = [*(t.virtual.extent for t in each), *(t.inner.extent for t in each)]
    total = b.buffer("total", own, "local", parameter=False, bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)

    serial, share = fetched(b, here, threads, chunks=True)
    read: Index = [
        "n", ("rc", "a.c"), (Of("y", sh, loops=(y.block,)), Of("ry", dh), "a.y"),
        (Of("x", sw, loops=(x.block,)), Of("rx", dw), "a.x"),
    ]  # fmt: skip
    b.statement(
        [*outer, rc, ry, rx, *serial], [(data, read)], (a, [*here]),
        selects=conv.pad_selects, unroll=unroll, executed=share,
    )  # fmt: skip
    serial, share = fetched(b, kernel, threads, chunks=True)
    read = [(Of("f", loops=(bf,)), "w.f"), ("rc", "w.c"), ("ry", "w.y"), ("rx", "w.x")]
    b.statement(
        [*outer, rc, ry, rx, *serial], [(weights, read)], (w, [*kernel]),
        unroll=unroll, executed=share,
    )  # fmt: skip

    inner, virtual = [b.again(t.inner) for t in each], [t.virtual for t in each]
    mine = [(v, t.thread, i) for v, t, i in zip(virtual, each, inner, strict=True)]
    loads: list[Place] = [
        (a, [rci, (Of("y", sh, loops=mine[1]), Of("ry", dh, loops=(ryi,))),
             (Of("x", sw, loops=mine[2]), Of("rx", dw, loops=(rxi,)))]),
        (w, [Of("f", loops=mine[0]), rci, ryi, rxi]),
    ]  # fmt: skip
    b.statement(
        [*outer, rc, ry, rx, rci, ryi, rxi, *inner, *virtual], loads,
        (total, [*virtual, *inner]), operations=2, reduces=True, unroll=unroll,
    )  # fmt: skip

    inner = [b.again(t.inner) for t in each]
    b.statement(
        [*outer, *inner, *virtual], [(total, [*virtual, *inner])], (out, ["n", "f", "y", "x"]),
        unroll=unroll,
    )  # fmt: skip
    return b.nests()


def _depthwise_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=True)
    return {"tile_f": (conv.co, 4), "tile_y": (conv.oh, 4), "tile_x": (conv.ow, 4)}


def _depthwise(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Copies once per block to shared memory, once per thread on to its own."""
    conv = conv_of(args, depthwise=True)
    b = Building(tiles.n, gpu=True)
    size, unroll = conv.bytes, tiles.numbers["auto_unroll_max_step"]
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    f = tile_of(b, "f", conv.co, tiles.sizes["tile_f"], "z")
    y = tile_of(b, "y", conv.oh, tiles.sizes["tile_y"], "y")
    x = tile_of(b, "x", conv.ow, tiles.sizes["tile_x"], "x")
    bf = b.fuse(b.loop("n", conv.n), f.block)
    b.mark(bf, BLOCK, letter="z")
    threads, each = [f.thread, y.thread, x.thread], (f, y, x)
    outer = [bf, y.block, x.block, *threads]

    def window(y_outputs: FloatArray, x_outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows and columns of the input that some of the output read."""
        rows = (y_outputs - 1) * sh + (conv.kh - 1) * dh + 1
        return rows, (x_outputs - 1) * sw + (conv.kw - 1) * dw + 1

    rows, columns = window(y.of_block, x.of_block)
    my_rows, my_columns = window(y.inner.extent, x.inner.extent)
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=size)
    weights = b.buffer("weights", [conv.co, 1, conv.kh, conv.kw], bytes=size)
    here: dict[str, Number] = {"a.c": f.of_block, "a.y": rows, "a.x": columns}
    kernel: dict[str, Number] = {"w.f": f.of_block, "w.y": conv.kh, "w.x": conv.kw}
    a = b.buffer("data.shared", [*here.values()], "shared", parameter=False, bytes=size)
    w = b.buffer("weights.shared", [*kernel.values()], "shared", parameter=False, bytes=size)
    virtuals = [t.virtual.extent for t in each]
    fi = f.inner.extent
    my_data = b.buffer(
        "data.local", [*virtuals, fi, my_rows, my_columns], "local", parameter=False, bytes=size
    )
    my_weights = b.buffer(
        "weights.local", [virtuals[0], fi, conv.kh, conv.kw], "local", parameter=False, bytes=size
    )
    own = [*virtuals, *(t.inner.extent for t in each)]
    total = b.buffer("total", own, "local", parameter=False, bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)

    serial, share = fetched(b, here, threads, chunks=False)
    read: Index = [
        "n", (Of("f", loops=(bf,)), "a.c"), (Of("y", sh, loops=(y.block,)), "a.y"),
        (Of("x", sw, loops=(x.block,)), "a.x"),
    ]  # fmt: skip
    b.statement(
        [*outer, *serial], [(data, read)], (a, [*here]),
        selects=conv.pad_selects, unroll=unroll, executed=share,
    )  # fmt: skip
    serial, share = fetched(b, kernel, threads, chunks=False)
    b.statement(
        [*outer, *serial], [(weights, [(Of("f", loops=(bf,)), "w.f"), (), "w.y", "w.x"])],
        (w, [*kernel]), unroll=unroll, executed=share,
    )  # fmt: skip

    virtual, c = [t.virtual for t in each], b.again(f.inner)
    my = [b.loop("my.y", my_rows), b.loop("my.x", my_columns)]
    channels = Of("f", loops=(virtual[0], f.thread, c))
    read = [
        channels, (Of("y", sh, loops=(virtual[1], y.thread)), "my.y"),
        (Of("x", sw, loops=(virtual[2], x.thread)), "my.x"),
    ]  # fmt: skip
    b.statement(
        [*outer, c, *my, *virtual], [(a, read)], (my_data, [*virtual, c, *my]), unroll=unroll
    )
    # The weights do not depend on the place, so that virtual threads along it share them.
    v, c = f.virtual, b.again(f.inner)
    my = [b.loop("kh", conv.kh), b.loop("kw", conv.kw)]
    read = [Of("f", loops=(v, f.thread, c)), *my]
    b.statement([*outer, c, *my, v], [(w, read)], (my_weights, [v, c, *my]), unroll=unroll)

    inner = [b.again(t.inner) for t in each]
    kh, kw = b.loop("kh", conv.kh, reduction=True), b.loop("kw", conv.kw, reduction=True)
    loads: list[Place] = [
        (my_data, [*virtual, inner[0], (Of(inner[1], sh), Of("kh", dh)),
                   (Of(inner[2], sw), Of("kw", dw))]),
        (my_weights, [virtual[0], inner[0], kh, kw]),
    ]  # fmt: skip
    b.statement(
        [*outer, *inner, kh, kw, *virtual], loads, (total, [*virtual, *inner]),
        operations=2, reduces=True, unroll=unroll,
    )  # fmt: skip
    inner = [b.again(t.inner) for t in each]
    b.statement(
        [*outer, *inner, *virtual], [(total, [*virtual, *inner])], (out, ["n", "f", "y", "x"]),
        unroll=unroll,
    )  # fmt: skip
    return b.nests()


_UNROLL = ("auto_unroll_max_step",)
TEMPLATES = {
    "conv2d_nchw.cuda": (Template(_conv_splits, _conv, numbers=_UNROLL),),
    "depthwise_conv2d_nchw.cuda": (Template(_depthwise_splits, _depthwise, numbers=_UNROLL),),
}
"""By the name of the task."""
