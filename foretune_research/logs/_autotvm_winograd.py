"""AutoTVM's template of Winograd's convolution for CUDA: three kernels.

What the schedule of TVM 0.10 does (``topi/cuda/conv2d_winograd``): tiles of the input are
transformed, products of matrices are taken per place of the transform, and tiles of the output are
transformed back. The weights come transformed. Tiles are of 4 outputs where the height is a
multiple of 8, else of 2.

The transforms multiply by constants, unrolled, so that terms with a zero are not there: the share
of the others is taken of the matrices (Barabasz et al., arXiv:1803.10986, for the points). As some
of the rest are ones, programs are described closely, not exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.describe._nests import BLOCK, THREAD, UNROLLED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._autotvm_cuda import fetched, tile_of
from foretune_research.logs._building import Building, Index, Loop, Number, Of, Place
from foretune_research.logs._shapes import Conv, NoShapeError, conv_of

_THREADS = 128
_POINTS: dict[int, tuple[float, ...]] = {
    4: (0, -1, 1),
    6: (0, -1, 1, 0.5, -2),
    8: (0, -1, 1, 0.5, -0.5, 2, -2),
}
"""Finite points of the interpolation by the size of a transformed tile."""


@dataclass(frozen=True)
class Winograd:
    """Sizes of one operator.

    Attributes:
        conv: The operator.
        tile: Outputs of a tile along an axis.
        alpha: Inputs of it.
        down, across: Tiles along height and width.
    """

    conv: Conv
    tile: int
    alpha: int
    down: int
    across: int

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.conv.n * self.down * self.across


def winograd_of(args: Sequence[Any], tile: int | None = None) -> Winograd:
    """A convolution by Winograd's algorithm.

    Args:
        args: Of the workload.
        tile: Outputs of a tile; by CUDA's rule if not given.

    Raises:
        NoShapeError: It is another operator, or one without transforms.
    """
    conv = conv_of(args, depthwise=False)
    tile = tile or (4 if conv.h % 8 == 0 else 2)
    alpha = conv.kw + tile - 1
    plain = conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.kh == conv.kw
    if not plain or alpha not in _POINTS:
        raise NoShapeError
    return Winograd(conv, tile, alpha, -(-conv.oh // tile), -(-conv.ow // tile))


def nonzero_shares(alpha: int, tile: int) -> tuple[float, float]:
    """Shares of the entries that are not zero of the input's and the output's transform."""
    points = _POINTS[alpha]
    rows = [np.poly([p for p in points if p != point]) for point in points] + [np.poly(points)]
    entries = sum(int((np.abs(row) > 1e-9).sum()) for row in rows)
    powers = np.array([[float(point) ** j for j in range(tile)] for point in points])
    back = int((powers != 0).sum()) + 1
    return entries / alpha**2, back / (alpha * tile)


def _splits(args: Sequence[Any]) -> Splits:
    w = winograd_of(args)
    return {
        "tile_b": (w.alpha**2, 4), "tile_y": (w.conv.co, 4), "tile_x": (w.tiles, 4),
        "tile_rc": (w.conv.ci, 2),
    }  # fmt: skip


def _build(args: Sequence[Any], tiles: Tiles) -> Nests:
    w = winograd_of(args)
    b = Building(tiles.n, gpu=True)
    conv, size = w.conv, w.conv.bytes
    places = w.alpha**2
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=size)
    weights = b.buffer("weights", [places, conv.ci, conv.co], bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)
    there = b.buffer("data.transformed", [places, conv.ci, w.tiles], parameter=False, bytes=size)
    product = b.buffer("product", [places, conv.co, w.tiles], parameter=False, bytes=size)
    _transform(b, w, data, there)
    _products(b, w, tiles, (weights, there, product))
    _back(b, w, product, out)
    b.approximate = np.ones(tiles.n, bool)
    return b.nests()


def _grid(b: Building, loop: Loop) -> list[Loop]:
    """Blocks and threads over a loop that is as long as there is work."""
    block, thread = b.split(loop, _THREADS)
    b.mark(block, BLOCK, letter="x")
    b.mark(thread, THREAD, letter="x")
    return [block, thread]


def _unrolled(b: Building, extent: int, *names: str, reduction: bool = False) -> list[Loop]:
    return [b.loop(name, extent, UNROLLED, reduction) for name in names]


def _transform(b: Building, w: Winograd, data: int, there: int) -> None:
    """A tile of the input per thread, and its transform."""
    conv, alpha, size = w.conv, w.alpha, w.conv.bytes
    tile = b.buffer("tile", [alpha, alpha], "local", parameter=False, bytes=size)
    made = b.buffer("tile.transformed", [alpha, alpha], "local", parameter=False, bytes=size)
    grid = _grid(b, b.fuse(b.loop("c", conv.ci), b.loop("p", w.tiles)))
    place = [b.loop("eps", alpha), b.loop("nu", alpha)]
    read: Index = [
        Of("p", every=w.down * w.across), "c",
        (Of("p", w.tile, every=w.across, modulo=w.down), "eps"),
        (Of("p", w.tile, modulo=w.across), "nu"),
    ]  # fmt: skip
    b.statement([*grid, *place], [(data, read)], (tile, place), selects=conv.pad_selects)
    place = _unrolled(b, alpha, "eps", "nu")
    terms = _unrolled(b, alpha, "r.a", "r.b", reduction=True)
    share, _ = nonzero_shares(alpha, w.tile)
    b.statement(
        [*grid, *place, *terms], [(tile, terms)], (made, place),
        operations=2, reduces=True, executed=share**2,
    )  # fmt: skip
    place = [b.loop("eps", alpha), b.loop("nu", alpha)]
    b.statement([*grid, *place], [(made, place)], (there, [(Of("eps", alpha), "nu"), "c", "p"]))


def _products(b: Building, w: Winograd, tiles: Tiles, arrays: tuple[int, int, int]) -> None:
    """Products of matrices, channels by tiles, one for each place of the transform."""
    weights, there, product = arrays
    size, unroll = w.conv.bytes, tiles.numbers["auto_unroll_max_step"]
    each = z, y, x = (
        tile_of(b, "b", w.alpha**2, tiles.sizes["tile_b"], "z"),
        tile_of(b, "y", w.conv.co, tiles.sizes["tile_y"], "y"),
        tile_of(b, "x", w.tiles, tiles.sizes["tile_x"], "x"),
    )
    threads = [t.thread for t in each]
    outer = [*(t.block for t in each), *threads]
    rc, rci = b.split(b.loop("rc", w.conv.ci, reduction=True), tiles.sizes["tile_rc"][-1])
    own = [*(t.virtual.extent for t in each), *(t.inner.extent for t in each)]
    total = b.buffer("total", own, "local", parameter=False, bytes=size)
    shared: dict[str, int] = {}
    for source, name, side in ((weights, "y", y), (there, "x", x)):
        axes: dict[str, Number] = {
            f"{name}.b": z.of_block, f"{name}.c": rci.extent, f"{name}.o": side.of_block
        }  # fmt: skip
        shared[name] = b.buffer(name, [*axes.values()], "shared", parameter=False, bytes=size)
        serial, share = fetched(b, axes, threads, chunks=False)
        read: Index = [
            (Of("b", loops=(z.block,)), f"{name}.b"), ("rc", f"{name}.c"),
            (Of(name, loops=(side.block,)), f"{name}.o"),
        ]  # fmt: skip
        b.statement(
            [*outer, rc, *serial], [(source, read)], (shared[name], [*axes]),
            unroll=unroll, executed=share,
        )  # fmt: skip
    inner, virtual = [b.again(t.inner) for t in each], [t.virtual for t in each]
    mine = [(v, t.thread, i) for v, t, i in zip(virtual, each, inner, strict=True)]
    loads: list[Place] = [
        (shared[name], [Of("b", loops=mine[0]), rci, Of(name, loops=mine[at])])
        for at, name in ((1, "y"), (2, "x"))
    ]
    b.statement(
        [*outer, rc, rci, *inner, *virtual], loads, (total, [*virtual, *inner]),
        operations=2, reduces=True, unroll=unroll,
    )  # fmt: skip
    inner = [b.again(t.inner) for t in each]
    b.statement(
        [*outer, *inner, *virtual], [(total, [*virtual, *inner])], (product, ["b", "y", "x"]),
        unroll=unroll,
    )  # fmt: skip


def _back(b: Building, w: Winograd, product: int, out: int) -> None:
    """A square of outputs per thread, transformed back from the tiles that it touches."""
    conv, tile, size = w.conv, w.tile, w.conv.bytes
    # The schedule takes filters for 3 wide; of wider ones a square has several tiles, and between
    # its rows of tiles all others of the image are transformed along.
    square = w.alpha - 2
    several = square // tile
    span = (several - 1) * w.across + several
    made = b.buffer("square", [span, tile, tile], "local", parameter=False, bytes=size)
    h, rows = b.split(b.loop("h", conv.oh), square)
    v, columns = b.split(b.loop("w", conv.ow), square)
    ho, wo = b.loop("ho", h.extent), b.loop("wo", v.extent)
    grid = _grid(b, b.fuse(b.loop("n", conv.n), b.loop("co", conv.co), ho, wo))
    near = b.loop("near", span)
    place = _unrolled(b, tile, "vh", "vw")
    terms = _unrolled(b, w.alpha, "r.a", "r.b", reduction=True)
    p = (
        Of("n", w.down * w.across), Of("ho", w.across * several), Of("wo", several), near
    )  # fmt: skip
    _, share = nonzero_shares(w.alpha, tile)
    b.statement(
        [*grid, near, *place, *terms], [(product, [(Of("r.a", w.alpha), "r.b"), "co", p])],
        (made, [near, *place]), operations=2, reduces=True, executed=share**2,
    )  # fmt: skip
    hi, wi = b.loop("hi", square), b.loop("wi", square)
    read: Index = [
        (Of("hi", w.across, every=tile), Of("wi", every=tile)),
        Of("hi", modulo=tile), Of("wi", modulo=tile),
    ]  # fmt: skip
    b.statement(
        [*grid, hi, wi], [(made, read)],
        (out, ["n", "co", (Of("ho", square), "hi"), (Of("wo", square), "wi")]),
        executed=rows.share * columns.share,
    )  # fmt: skip


TEMPLATES = {
    "conv2d_nchw_winograd.cuda": (Template(_splits, _build, numbers=("auto_unroll_max_step",)),),
}
"""By the name of the task."""
