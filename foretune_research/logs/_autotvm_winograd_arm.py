"""AutoTVM's template of Winograd's convolution for Arm's CPUs.

What the schedule of TVM 0.10 does (``topi/arm_cpu/conv2d``): tiles of the input are transformed in
a pass of their own; then each block of output channels is one parallel iteration that multiplies
matrices for every place of the transform and transforms its outputs back. Tiles are of 4 outputs.
See ``_autotvm_winograd`` for what is close and not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.describe._nests import PARALLEL, UNROLLED, VECTORIZED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._autotvm_arm import annotated
from foretune_research.logs._autotvm_winograd import Winograd, nonzero_shares, winograd_of
from foretune_research.logs._building import Building, Index, Number, Of, Place
from foretune_research.logs._shapes import NoShapeError

_TILE = 4


def _winograd(args: Sequence[Any]) -> Winograd:
    w = winograd_of(args, _TILE)
    if w.conv.kh != 3:
        raise NoShapeError
    return w


def _splits(args: Sequence[Any]) -> Splits:
    w = _winograd(args)
    return {"tile_p": (w.tiles, 2), "tile_k": (w.conv.co, 2), "tile_c": (w.conv.ci, 2)}


def _build(args: Sequence[Any], tiles: Tiles) -> Nests:
    w = _winograd(args)
    b = Building(tiles.n)
    conv, alpha, size = w.conv, w.alpha, w.conv.bytes
    image = w.down * w.across
    vp, vk, vc = (tiles.sizes[name][-1] for name in ("tile_p", "tile_k", "tile_c"))
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=size)
    weights = b.buffer("weights", [alpha, alpha, conv.co / vk, conv.ci, vk], bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)
    shape: list[Number] = [alpha, alpha, w.tiles / vp, conv.ci, vp]
    there = b.buffer("data.transformed", shape, parameter=False, bytes=size)
    tile = b.buffer("tile", [alpha, alpha, vp], parameter=False, bytes=size)
    product = b.buffer("product", [alpha, alpha, vk, image], parameter=False, bytes=size)
    near = b.buffer("product.near", [alpha, alpha], parameter=False, bytes=size)
    square = b.buffer("square", [_TILE, _TILE], parameter=False, bytes=size)
    of_data, of_output = nonzero_shares(alpha, _TILE)

    block, lane = b.split(b.loop("p", w.tiles), vp)
    b.mark(block, PARALLEL)
    c = b.loop("c", conv.ci)
    eps, nu, here = b.loop("eps", alpha), b.loop("nu", alpha), b.again(lane)
    read: Index = [
        Of("p", every=image), "c",
        (Of("p", _TILE, every=w.across, modulo=w.down), "eps"),
        (Of("p", _TILE, modulo=w.across), "nu"),
    ]  # fmt: skip
    b.statement(
        [block, c, eps, nu, here], [(data, read)], (tile, [eps, nu, here]),
        selects=conv.pad_selects,
    )  # fmt: skip
    eps, nu = b.loop("eps", alpha, UNROLLED), b.loop("nu", alpha, UNROLLED)
    terms = [b.loop(name, alpha, UNROLLED, reduction=True) for name in ("r.eps", "r.nu")]
    b.mark(lane, VECTORIZED)
    b.statement(
        [block, c, eps, nu, *terms, lane], [(tile, [*terms, lane])],
        (there, [eps, nu, block, c, lane]), operations=2, reduces=True, executed=of_data**2,
    )  # fmt: skip

    # Tiles of all images are counted in one; an iteration needs those of its image.
    n, tile_of_image = b.split(b.loop("p", w.tiles), image)
    b.bind(b.loop("n", conv.n), n)
    k = b.loop("k", conv.co / vk, PARALLEL)
    b.mark(n, PARALLEL)
    eps, nu, k_in = b.loop("eps", alpha), b.loop("nu", alpha), b.loop("k.in", vk)
    block, lane = b.split(tile_of_image, np.minimum(vp, image))
    outer, inner = b.split(b.loop("c", conv.ci, reduction=True), vc)
    annotated(b, [inner], tiles.words["ann_reduce"])
    annotated(b, [k_in, lane], tiles.words["ann_spatial"])
    loads: list[Place] = [
        (weights, [eps, nu, k, "c", k_in]),
        (there, [eps, nu, Of("p", every=vp), "c", Of("p", modulo=vp)]),
    ]
    b.statement(
        [n, k, eps, nu, block, outer, k_in, inner, lane], loads,
        (product, [eps, nu, k_in, Of("p", loops=(block, lane))]), operations=2, reduces=True,
    )  # fmt: skip

    k_in = b.loop("k.in", vk)
    ho, rows = b.split(b.loop("h", conv.oh), _TILE)
    wo, columns = b.split(b.loop("w", conv.ow), _TILE)
    outer_loops = [n, k, k_in, ho, wo]
    places = [b.loop("eps", alpha), b.loop("nu", alpha)]
    at = (Of(ho, w.across), wo)
    b.statement([*outer_loops, *places], [(product, [*places, k_in, at])], (near, places))
    outputs = [b.loop("vh", _TILE, UNROLLED), b.loop("vw", _TILE, UNROLLED)]
    terms = [b.loop(name, alpha, UNROLLED, reduction=True) for name in ("r.eps", "r.nu")]
    b.statement(
        [*outer_loops, *outputs, *terms], [(near, terms)], (square, outputs),
        operations=2, reduces=True, executed=of_output**2,
    )  # fmt: skip
    b.statement(
        [*outer_loops, rows, columns], [(square, [rows, columns])],
        (out, ["n", (Of("k", vk), "k.in"), "h", "w"]),
    )  # fmt: skip
    b.approximate = np.ones(tiles.n, bool)
    return b.nests()


TEMPLATES = {
    "conv2d_nchw_winograd.arm_cpu": (
        Template(_splits, _build, annotations={"ann_reduce": 1, "ann_spatial": 2}),
    ),
}
"""By the name of the task."""
