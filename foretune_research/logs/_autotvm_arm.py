"""AutoTVM's templates for Arm's CPUs: convolutions NCHW in spatial tiles.

What the schedules of TVM 0.10 do (``topi/arm_cpu/conv2d_spatial_pack``, ``depthwise_conv2d``): the
input is packed so that a tile of the output reads it contiguously, each convolution in a pass
before, the depthwise one row of tiles at a time. Padding is part of packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune.describe._nests import PARALLEL, UNROLLED, VECTORIZED, Nests
from foretune_research.logs._autotvm import Splits, Template, Tiles
from foretune_research.logs._building import Building, Index, Loop, Number, Of, Place
from foretune_research.logs._shapes import Conv, conv_of


def annotated(b: Building, loops: Sequence[Loop], words: Sequence[Sequence[str]]) -> None:
    """Marks loops by an annotation knob: of each program one word per loop."""
    for at, loop in enumerate(loops):
        said = np.array([each[at] for each in words])
        b.mark(loop, UNROLLED, said == "unroll")
        b.mark(loop, VECTORIZED, said == "vec")


def _spatial_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=False)
    return {"tile_co": (conv.co, 2), "tile_oh": (conv.oh, 2), "tile_ow": (conv.ow, 2)}


def _tile_input(b: Building, conv: Conv, vh: Number, vw: Number) -> tuple[int, list[Any]]:
    """Packs what each tile of the output reads; the array, and what moves within a tile of it."""
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=conv.bytes)
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    counts: list[Number] = [conv.n, conv.oh / np.asarray(vh), conv.ow / np.asarray(vw), conv.ci]
    names = ["n", "oh.tile", "ow.tile", "ci"]
    if (dh, dw) == (1, 1):
        within: list[Number] = [vh * sh + conv.kh - 1, vw * sw + conv.kw - 1]
        inner = ["row", "column"]
        rows: tuple[Of, ...] = (Of("oh.tile", vh * sh), Of("row"))
        columns: tuple[Of, ...] = (Of("ow.tile", vw * sw), Of("column"))
        read: list[Any] = [(Of("oh.in", sh), Of("kh")), (Of("ow.in", sw), Of("kw"))]
    else:
        within = [conv.kh, conv.kw, vh, vw]
        inner = ["kh", "kw", "oh.in", "ow.in"]
        rows = (Of("oh.tile", vh * sh), Of("oh.in", sh), Of("kh", dh))
        columns = (Of("ow.tile", vw * sw), Of("ow.in", sw), Of("kw", dw))
        read = list(inner)
    packed = b.buffer("packed", [*counts, *within], parameter=False, bytes=conv.bytes)
    loops = [
        b.loop(name, count, PARALLEL if name == "oh.tile" else 0)
        for name, count in zip([*names, *inner], [*counts, *within], strict=True)
    ]
    index: Index = ["n", "ci", rows, columns]
    b.statement(loops, [(data, index)], (packed, loops), selects=conv.pad_selects)
    return packed, read


def _spatial_pack(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=False)
    b = Building(tiles.n)
    vc, vh, vw = (tiles.sizes[name][-1] for name in ("tile_co", "tile_oh", "tile_ow"))
    packed, read = _tile_input(b, conv, vh, vw)
    size = conv.bytes
    weights = b.buffer("weights", [conv.co / vc, conv.ci, conv.kh, conv.kw, vc], bytes=size)
    total = b.buffer("total", [vh, vw, vc], parameter=False, bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)
    outer = [
        b.loop("n", conv.n), b.loop("co.tile", conv.co / vc, PARALLEL),
        b.loop("oh.tile", conv.oh / vh), b.loop("ow.tile", conv.ow / vw),
    ]  # fmt: skip
    # Of the template's ten loops the last three are those of a tile.
    order = [at - 7 for at in tiles.words["reorder_0"][0] if at >= 7]

    def tile() -> list[Loop]:
        loops = [b.loop("oh.in", vh), b.loop("ow.in", vw), b.loop("co.in", vc)]
        annotated(b, loops, tiles.words["ann_spatial"])
        return loops

    inner = tile()
    window = [b.loop("kh", conv.kh, reduction=True), b.loop("kw", conv.kw, reduction=True)]
    annotated(b, window, tiles.words["ann_reduce"])
    path = [*outer, b.loop("ci", conv.ci, reduction=True), *window, *(inner[at] for at in order)]
    loads: list[Place] = [
        (packed, ["n", "oh.tile", "ow.tile", "ci", *read]),
        (weights, ["co.tile", "ci", "kh", "kw", "co.in"]),
    ]
    b.statement(path, loads, (total, inner), operations=2, reduces=True)
    inner = [b.loop("oh.in", vh), b.loop("ow.in", vw), b.loop("co.in", vc)]
    index: Index = [
        "n", (Of("co.tile", vc), "co.in"), (Of("oh.tile", vh), "oh.in"),
        (Of("ow.tile", vw), "ow.in"),
    ]  # fmt: skip
    b.statement([*outer, *inner], [(total, inner)], (out, index))
    return b.nests()


def _depthwise_splits(args: Sequence[Any]) -> Splits:
    conv = conv_of(args, depthwise=True)
    return {"tile_c": (conv.co, 2), "tile_h": (conv.oh, 2), "tile_w": (conv.ow, 2)}


def _depthwise(args: Sequence[Any], tiles: Tiles) -> Nests:
    conv = conv_of(args, depthwise=True)
    b = Building(tiles.n)
    vc, vh, vw = (tiles.sizes[name][-1] for name in ("tile_c", "tile_h", "tile_w"))
    (sh, sw), (dh, dw), size = conv.stride, conv.dilation, conv.bytes
    rows = (vh - 1) * sh + (conv.kh - 1) * dh + 1
    columns = (conv.ow - 1) * sw + (conv.kw - 1) * dw + 1
    data = b.buffer("data", [conv.n, conv.ci, conv.h, conv.w], bytes=size)
    weights = b.buffer("weights", [conv.co, 1, conv.kh, conv.kw], bytes=size)
    shape: list[Number] = [conv.co / vc, conv.kh, conv.kw, vc]
    kernel = b.buffer("kernel", shape, parameter=False, bytes=size)
    packed = b.buffer("packed", [rows, columns, vc], parameter=False, bytes=size)
    shape = [conv.n, conv.co / vc, conv.oh, conv.ow, vc]
    total = b.buffer("total", shape, parameter=False, bytes=size)
    out = b.buffer("out", [conv.n, conv.co, conv.oh, conv.ow], bytes=size)

    c, c_in = b.split(b.loop("c", conv.co), vc)
    b.mark(c, PARALLEL)
    loops = [c, b.loop("kh", conv.kh), b.loop("kw", conv.kw), c_in]
    b.statement(loops, [(weights, ["c", (), "kh", "kw"])], (kernel, loops))

    c, c_in = b.split(b.loop("c", conv.co), vc)
    b.mark(c, PARALLEL)
    n, (oh, oh_in) = b.loop("n", conv.n), b.split(b.loop("oh", conv.oh), vh)
    inner = [b.loop("row", rows), b.loop("column", columns), b.again(c_in)]
    b.statement(
        [n, c, oh, *inner], [(data, ["n", "c", (Of("oh", sh), "row"), "column"])],
        (packed, inner), selects=conv.pad_selects,
    )  # fmt: skip
    ow, ow_in = b.split(b.loop("ow", conv.ow), vw)

    def tile() -> list[Loop]:
        loops = [b.again(oh_in), b.again(ow_in), b.again(c_in)]
        annotated(b, loops, tiles.words["ann"])
        return loops

    inner = tile()
    window = [b.loop("kh", conv.kh, reduction=True), b.loop("kw", conv.kw, reduction=True)]
    within = Of("oh", sh, loops=(inner[0],))
    loads: list[Place] = [
        (packed, [(within, Of("kh", dh)), (Of("ow", sw), Of("kw", dw)), inner[-1]]),
        (kernel, [c, "kh", "kw", inner[-1]]),
    ]
    b.statement(
        [n, c, oh, ow, *window, *inner], loads, (total, ["n", c, "oh", "ow", inner[-1]]),
        operations=2, reduces=True,
    )  # fmt: skip

    loops = [b.loop("n", conv.n), b.loop("c", conv.co, PARALLEL), b.loop("oh", conv.oh),
             b.loop("ow", conv.ow)]  # fmt: skip
    index: Index = ["n", Of("c", every=vc), "oh", "ow", Of("c", modulo=vc)]
    b.statement(loops, [(total, index)], (out, loops))
    return b.nests()


TEMPLATES = {
    "conv2d_nchw_spatial_pack.arm_cpu": (
        Template(
            _spatial_splits,
            _spatial_pack,
            orders={"reorder_0": 10},
            annotations={"ann_reduce": 2, "ann_spatial": 3},
        ),
    ),
    "depthwise_conv2d_nchw.arm_cpu": (
        Template(_depthwise_splits, _depthwise, annotations={"ann": 3}),
    ),
}
"""By the name of the task."""
