"""AutoTVM's templates of matrix products for CPUs.

What the schedules of TVM 0.10 and 0.13 do (``topi/x86/dense``, ``batch_matmul``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.describe._nests import PARALLEL, UNROLLED, VECTORIZED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._building import Building, Index, Loop, Of, Place
from foretune_research.logs._shapes import MatMul, batch_matmul_of, dense_of

_UNROLL = 16.0
"""Steps of the automatic unrolling of ``batch_matmul.x86``."""


def _nopack_splits(args: Sequence[Any]) -> Splits:
    product = dense_of(args)
    return {"tile_y": (product.m, 2), "tile_x": (product.n, 2), "tile_k": (product.k, 2)}


def _pack_splits(args: Sequence[Any]) -> Splits:
    product = dense_of(args)
    return {
        "tile_y": (product.m, 3), "tile_x": (product.n, 3), "tile_k": (product.k, 2),
        "tile_inner": (product.m, 2),
    }  # fmt: skip


def _dense_pack(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Weights come packed by the innermost tile; a tile is accumulated in a buffer."""
    product = dense_of(args)
    b = Building(tiles.n)
    (_, *ys), (_, *xs) = tiles.sizes["tile_y"], tiles.sizes["tile_x"]
    yi, xi, size = ys[-1], xs[-1], product.bytes
    data = b.buffer("data", [product.m, product.k], bytes=size)
    weights = b.buffer("weights", [product.n / xi, product.k, xi], bytes=size)
    total = b.buffer("total", [yi, xi], parameter=False, bytes=size)
    out = b.buffer("out", [product.m, product.n], bytes=size)
    yt, yo, y = b.split(b.loop("y", product.m), *ys)
    xt, xo, x = b.split(b.loop("x", product.n), *xs)
    b.mark(xt, PARALLEL)
    b.mark(yt, PARALLEL)
    outer = [xt, yt, yo, xo]

    def tile() -> tuple[list[Loop], list[Loop]]:
        rows = b.split(b.again(y), np.minimum(tiles.sizes["tile_inner"][-1], yi))
        for row in rows:
            b.mark(row, UNROLLED)
        column = b.again(x)
        b.mark(column, VECTORIZED)
        return rows, [column]

    rows, column = tile()
    within: Index = [Of("y", loops=tuple(rows)), column[0]]
    ko, ki = b.split(b.loop("k", product.k, reduction=True), tiles.sizes["tile_k"][-1])
    b.mark(ki, UNROLLED)
    loads: list[Place] = [
        (data, ["y", "k"]),
        (weights, [Of("x", every=xi), "k", Of("x", modulo=xi)]),
    ]
    b.statement(
        [*outer, ko, rows[0], ki, rows[1], *column], loads, (total, within),
        operations=2, reduces=True,
    )  # fmt: skip
    row, column = b.again(y), [b.again(x)]
    b.mark(row, UNROLLED)
    b.mark(column[0], VECTORIZED)
    b.statement([*outer, row, *column], [(total, [row, column[0]])], (out, ["y", "x"]))
    return b.nests()


def _dense_nopack(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Partial sums by lanes of the reduction, then their sum."""
    product = dense_of(args)
    b = Building(tiles.n)
    lanes, size = tiles.sizes["tile_k"][-1], product.bytes
    yi, xi = tiles.sizes["tile_y"][-1], tiles.sizes["tile_x"][-1]
    data = b.buffer("data", [product.m, product.k], bytes=size)
    weights = b.buffer("weights", [product.n, product.k], bytes=size)
    partial = b.buffer("partial", [yi, xi, lanes], parameter=False, bytes=size)
    out = b.buffer("out", [product.m, product.n], bytes=size)
    yo, y = b.split(b.loop("y", product.m), yi)
    xo, x = b.split(b.loop("x", product.n), xi)
    b.mark(yo, PARALLEL)
    b.mark(xo, PARALLEL)

    def tile() -> tuple[Loop, Loop, Loop]:
        """Rows and columns are one loop, unrolled; lanes are a vector."""
        row, column, lane = b.again(y), b.again(x), b.loop("lane", lanes, VECTORIZED)
        b.mark(row, UNROLLED)
        b.mark(column, UNROLLED)
        return row, column, lane

    here = tile()
    k = b.loop("k", product.k / lanes, reduction=True)
    along = (Of("k", lanes), "lane")
    loads: list[Place] = [(data, ["y", along]), (weights, ["x", along])]
    b.statement([yo, xo, k, *here], loads, (partial, here), operations=2, reduces=True)
    lane = b.loop("lane", lanes, UNROLLED, reduction=True)
    b.statement(
        [yo, xo, y, x, lane], [(partial, [y, x, lane])], (out, ["y", "x"]),
        operations=1, reduces=True,
    )  # fmt: skip
    return b.nests()


def _batch_splits(args: Sequence[Any]) -> Splits:
    product = batch_matmul_of(args)
    return {"tile_y": (product.m, 2), "tile_x": (product.n, 2), "tile_k": (product.k, 2)}


def _operands(b: Building, product: MatMul) -> tuple[int, int, Index]:
    """Both inputs, and where the second is read."""
    first = b.buffer("first", [product.batch, product.m, product.k], bytes=product.bytes)
    sides = [product.n, product.k] if product.transposed else [product.k, product.n]
    second = b.buffer("second", [product.batch, *sides], bytes=product.bytes)
    return first, second, ["b", "x", "k"] if product.transposed else ["b", "k", "x"]


def _batch_matmul(args: Sequence[Any], tiles: Tiles) -> Nests:
    """Partial sums of the inner part of the reduction, a vector of them at once, then their sum."""
    product = batch_matmul_of(args)
    b = Building(tiles.n)
    yi, xi, lanes = (tiles.sizes[name][-1] for name in ("tile_y", "tile_x", "tile_k"))
    first, second, where = _operands(b, product)
    size = product.bytes
    partial = b.buffer("partial", [lanes, yi, xi], parameter=False, bytes=size)
    total = b.buffer("total", [yi, xi], parameter=False, bytes=size)
    out = b.buffer("out", [product.batch, product.m, product.n], bytes=size)
    batch = b.loop("b", product.batch, PARALLEL)
    yo, y = b.split(b.loop("y", product.m), yi)
    xo, x = b.split(b.loop("x", product.n), xi)
    b.mark(yo, PARALLEL)
    b.mark(xo, PARALLEL)
    outer = [batch, yo, xo]
    ko, lane = b.split(b.loop("k", product.k, reduction=True), lanes)
    b.mark(lane, VECTORIZED)
    row, column = b.again(y), b.again(x)
    # The vector is the outermost of its loops: the others are inside of it.
    parts = [lane, row, column]
    lane.reduction = False
    b.statement(
        [*outer, *parts, ko], [(first, ["b", "y", "k"]), (second, where)], (partial, parts),
        operations=2, reduces=True, unroll=_UNROLL,
    )  # fmt: skip
    row, column = b.again(y), b.again(x)
    last = b.loop("lane", lanes, reduction=True)
    b.statement(
        [*outer, row, column, last], [(partial, [last, row, column])], (total, [row, column]),
        operations=1, reduces=True, unroll=_UNROLL,
    )  # fmt: skip
    b.statement([*outer, y, x], [(total, [y, x])], (out, ["b", "y", "x"]), unroll=_UNROLL)
    return b.nests()


TEMPLATES = {
    "dense_pack.x86": (Template(_pack_splits, _dense_pack),),
    "dense_nopack.x86": (Template(_nopack_splits, _dense_nopack),),
    "batch_matmul.x86": (Template(_batch_splits, _batch_matmul),),
}
"""By the name of the task."""
