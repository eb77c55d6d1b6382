"""AutoTVM's templates of matrix products for CUDA.

What the schedules of TVM 0.10 and 0.13 do (``topi/cuda/batch_matmul``, ``topi/gpu/dense``): tiles
of both inputs go to shared memory, and on to the threads that multiply them; a dense layer of few
rows is a sum that threads share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune.describe._nests import BLOCK, THREAD, UNROLLED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._autotvm_cuda import tile_of
from foretune_research.logs._building import Building, Index, Loop, Number, Of, Place
from foretune_research.logs._shapes import batch_matmul_of, dense_of


def _batch_splits(args: Sequence[Any]) -> Splits:
    product = batch_matmul_of(args)
    return {"tile_y": (product.m, 3), "tile_x": (product.n, 3), "tile_k": (product.k, 2)}


def _batch_matmul(args: Sequence[Any], tiles: Tiles) -> Nests:
    product = batch_matmul_of(args)
    b = Building(tiles.n, gpu=True)
    size, unroll = product.bytes, tiles.numbers["auto_unroll_max_step"]
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


def _dense_large_splits(args: Sequence[Any]) -> Splits:
    product = dense_of(args)
    return {"tile_x": (product.m, 4), "tile_y": (product.n, 4), "tile_k": (product.k, 3)}


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


TEMPLATES = {
    "batch_matmul.cuda": (
        Template(_batch_splits, _batch_matmul, numbers=("auto_unroll_max_step",)),
    ),
    "dense_large_batch.gpu": (Template(_dense_large_splits, _dense_large),),
    "dense_small_batch.gpu": (
        Template(lambda args: {"tile_k": (dense_of(args).k, 2)}, _dense_small),
    ),
}
"""By the name of the task."""
