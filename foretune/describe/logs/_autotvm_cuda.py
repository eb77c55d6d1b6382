"""AutoTVM's templates for CUDA: direct convolutions, products of matrices.

What the schedules of TVM 0.10 and 0.13 do (``topi/cuda/conv2d_direct``, ``depthwise_conv2d``,
``batch_matmul``, ``topi/gpu/dense``). A block copies what it reads to shared memory by all of its
threads; padding is part of these copies. A template's pragma of unrolling reaches the whole kernel.

Virtual threads become copies of the innermost statement, and local arrays have one part for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.describe._nests import BLOCK, THREAD, UNROLLED, VTHREAD, FloatArray, Nests
from foretune.describe.logs._autotvm import Template, Tiles
from foretune.describe.logs._building import Building, Index, Loop, Number, Of, Place
from foretune.describe.logs._shapes import batch_matmul_of, conv_of, dense_of


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


def _conv_splits(args: Sequence[Any]) -> dict[str, int]:
    conv = conv_of(args, depthwise=False)
    return {
        "tile_f": conv.co, "tile_y": conv.oh, "tile_x": conv.ow,
        "tile_rc": conv.ci, "tile_ry": conv.kh, "tile_rx": conv.kw,
    }  # fmt: skip


def _conv(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=False)
    b = Building(tiles.n, gpu=True)
    size, unroll = conv.bytes, tiles.number("auto_unroll_max_step")
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


def _depthwise_splits(args: Sequence[Any]) -> dict[str, int]:
    conv = conv_of(args, depthwise=True)
    return {"tile_f": conv.co, "tile_y": conv.oh, "tile_x": conv.ow}


def _depthwise(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Copies once per block to shared memory, once per thread on to its own."""
    conv = conv_of(args, depthwise=True)
    b = Building(tiles.n, gpu=True)
    size, unroll = conv.bytes, tiles.number("auto_unroll_max_step")
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


def _batch_splits(args: Sequence[Any]) -> dict[str, int]:
    product = batch_matmul_of(args)
    return {"tile_y": product.m, "tile_x": product.n, "tile_k": product.k}


def _batch_matmul(args: Sequence[Any], tiles: Tiles) -> Nests:
    product = batch_matmul_of(args)
    b = Building(tiles.n, gpu=True)
    size, unroll = product.bytes, tiles.number("auto_unroll_max_step")
    batch = b.loop("b", product.batch, BLOCK, letter="z")
    by, ty, yi = b.split(b.loop("y", product.m), *tiles.sizes["tile_y"][1:])
    bx, tx, xi = b.split(b.loop("x", product.n), *tiles.sizes["tile_x"][1:])
    for block, thread, letter in ((by, ty, "y"), (bx, tx, "x")):
        b.mark(block, BLOCK, letter=letter)
        b.mark(thread, THREAD, letter=letter)
    ko, ki = b.split(b.loop("k", product.k, reduction=True), tiles.sizes["tile_k"][-1])
    outer = [batch, by, bx, ty, tx]
    rows, columns, depth = yi.extent * ty.extent, xi.extent * tx.extent, ki.extent
    swapped = product.transposed
    first = b.buffer("first", [product.batch, product.m, product.k], bytes=size)
    sides = [product.n, product.k] if swapped else [product.k, product.n]
    second = b.buffer("second", [product.batch, *sides], bytes=size)
    second_tile = {"s.x": columns, "s.k": depth} if swapped else {"s.k": depth, "s.x": columns}

    def local(name: str, *shape: Number, scope: str = "local") -> int:
        return b.buffer(name, shape, scope, parameter=False, bytes=size)

    one = local("first.shared", rows, depth, scope="shared")
    two = local("second.shared", *second_tile.values(), scope="shared")
    my_one, my_two = local("first.local", yi.extent), local("second.local", xi.extent)
    total = local("total", yi.extent, xi.extent)
    out = b.buffer("out", [product.batch, product.m, product.n], bytes=size)

    def fetch(axes: Mapping[str, Number]) -> tuple[list[Loop], Number]:
        """Rows of the tile in chunks by y, columns in chunks by x."""
        serial: list[Loop] = []
        share: Number = 1.0
        for (name, extent), thread in zip(axes.items(), (ty, tx), strict=True):
            part, rest = b.split(b.loop(name, extent), np.ceil(np.asarray(extent) / thread.extent))
            share = share * b.bind(part, thread)
            serial.append(rest)
        return serial, share

    serial, share = fetch({"f.y": rows, "f.k": depth})
    b.statement(
        [*outer, ko, *serial], [(first, ["b", (Of("y", loops=(by,)), "f.y"), ("k", "f.k")])],
        (one, ["f.y", "f.k"]), unroll=unroll, executed=share,
    )  # fmt: skip
    serial, share = fetch(second_tile)
    x_and_k: dict[str, tuple[Any, ...]] = {
        "s.x": (Of("x", loops=(bx,)), "s.x"), "s.k": ("k", "s.k")
    }  # fmt: skip
    b.statement(
        [*outer, ko, *serial], [(second, ["b", *(x_and_k[name] for name in second_tile)])],
        (two, [*second_tile]), unroll=unroll, executed=share,
    )  # fmt: skip
    row = b.again(yi)
    b.statement(
        [*outer, ko, ki, row], [(one, [Of("y", loops=(ty, row)), ki])], (my_one, [row]),
        unroll=unroll,
    )  # fmt: skip
    column = b.again(xi)
    within: dict[str, Any] = {"s.x": Of("x", loops=(tx, column)), "s.k": ki}
    b.statement(
        [*outer, ko, ki, column], [(two, [within[name] for name in second_tile])],
        (my_two, [column]), unroll=unroll,
    )  # fmt: skip
    mine = [b.again(yi), b.again(xi)]
    b.statement(
        [*outer, ko, ki, *mine], [(my_one, mine[:1]), (my_two, mine[1:])], (total, mine),
        operations=2, reduces=True, unroll=unroll,
    )  # fmt: skip
    mine = [b.again(yi), b.again(xi)]
    b.statement([*outer, *mine], [(total, mine)], (out, ["b", "y", "x"]), unroll=unroll)
    return b.nests()


def _dense_small(args: Sequence[Any], tiles: Tiles) -> Nests:
    """A block per element of the output, whose threads share its sum; what they add up together is
    a tree in shared memory, here one addition each."""
    product = dense_of(args)
    b = Building(tiles.n, gpu=True)
    b.approximate = np.ones(tiles.n, bool)
    size, lanes = product.bytes, tiles.sizes["tile_k"][-1]
    data = b.buffer("data", [product.m, product.k], bytes=size)
    weights = b.buffer("weights", [product.n, product.k], bytes=size)
    partial = b.buffer("partial", [1], "local", parameter=False, bytes=size)
    out = b.buffer("out", [product.m, product.n], bytes=size)
    y = b.loop("y", product.m, BLOCK, letter="y")
    x = b.loop("x", product.n, BLOCK, letter="x")
    ko, thread = b.split(b.loop("k", product.k, reduction=True), lanes)
    b.mark(thread, THREAD, letter="x")
    b.statement(
        [y, x, thread, ko], [(data, ["y", "k"]), (weights, ["x", "k"])], (partial, [()]),
        operations=2, reduces=True,
    )  # fmt: skip
    b.statement([y, x, thread], [(partial, [()])], (out, ["y", "x"]), operations=1, reduces=True)
    return b.nests()


def _dense_large_splits(args: Sequence[Any]) -> dict[str, int]:
    product = dense_of(args)
    return {"tile_x": product.m, "tile_y": product.n, "tile_k": product.k}


def _dense_large(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Tiles of both inputs in shared memory, twice: one is filled while the other is read."""
    product = dense_of(args)
    b = Building(tiles.n, gpu=True)
    size = product.bytes
    x = tile_of(b, "x", product.m, tiles.sizes["tile_x"], "x")
    y = tile_of(b, "y", product.n, tiles.sizes["tile_y"], "y")
    ko, kt, ki = b.split(b.loop("k", product.k, reduction=True), *tiles.sizes["tile_k"][1:])
    b.mark(kt, UNROLLED)
    outer = [y.block, x.block, y.thread, x.thread]
    own: list[Place] = []
    copying: list[tuple[list[Loop], Place, Place]] = []
    depth = kt.extent * ki.extent
    data = b.buffer("data", [product.m, product.k], bytes=size)
    weights = b.buffer("weights", [product.n, product.k], bytes=size)
    sources = (("data", data, "x", x), ("weights", weights, "y", y))
    for name, source, axis, tile in sources:
        shared = b.buffer(
            f"{name}.shared", [2, tile.of_block, depth], "shared", parameter=False, bytes=size
        )
        count = tile.thread.extent
        part, rest = b.split(b.loop(f"{axis}.o", tile.of_block), np.ceil(tile.of_block / count))
        wide, along = b.split(b.loop(f"{axis}.k", depth), np.minimum(4 * count, depth))
        column, few = b.split(along, np.ceil(along.extent / count))
        share = b.bind(part, y.thread) * b.bind(column, x.thread)
        b.statement(
            [*outer, ko, rest, wide, few],
            [(source, [(Of(axis, loops=(tile.block,)), f"{axis}.o"), ("k", f"{axis}.k")])],
            (shared, [(), f"{axis}.o", f"{axis}.k"]), executed=share,
        )  # fmt: skip
        mine = b.buffer(
            f"{name}.local", [tile.virtual.extent, tile.inner.extent, ki.extent], "local",
            parameter=False, bytes=size,
        )  # fmt: skip
        inner, k = b.again(tile.inner), b.again(ki)
        read: Index = [
            (), Of(axis, loops=(tile.virtual, tile.thread, inner)), Of("k", loops=(kt, k))
        ]  # fmt: skip
        own.append((mine, [tile.virtual, inner, k]))
        copying.append(([*outer, ko, kt, inner, k, tile.virtual], (shared, read), own[-1]))
    for path, load, store in copying:
        b.statement(path, [load], store)
    total = b.buffer(
        "total", [y.virtual.extent, x.virtual.extent, x.inner.extent, y.inner.extent], "local",
        parameter=False, bytes=size,
    )  # fmt: skip
    xi, yi = b.again(x.inner), b.again(y.inner)
    (my_data, _), (my_weights, _) = own
    b.statement(
        [*outer, ko, kt, ki, xi, yi, y.virtual, x.virtual],
        [(my_data, [x.virtual, xi, ki]), (my_weights, [y.virtual, yi, ki])],
        (total, [y.virtual, x.virtual, xi, yi]), operations=2, reduces=True,
    )  # fmt: skip
    out = b.buffer("out", [product.m, product.n], bytes=size)
    xi, yi = b.again(x.inner), b.again(y.inner)
    b.statement(
        [*outer, yi, xi, y.virtual, x.virtual], [(total, [y.virtual, x.virtual, xi, yi])],
        (out, ["x", "y"]),
    )  # fmt: skip
    return b.nests()


_UNROLL = ("auto_unroll_max_step",)
TEMPLATES = {
    "conv2d_nchw.cuda": (Template(_conv_splits, _conv, options=_UNROLL),),
    "depthwise_conv2d_nchw.cuda": (Template(_depthwise_splits, _depthwise, options=_UNROLL),),
    "batch_matmul.cuda": (Template(_batch_splits, _batch_matmul, options=_UNROLL),),
    "dense_large_batch.gpu": (Template(_dense_large_splits, _dense_large),),
    "dense_small_batch.gpu": (Template(lambda args: {"tile_k": dense_of(args).k}, _dense_small),),
}
"""By the name of the task."""
