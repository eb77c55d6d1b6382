"""Products and convolutions whose weights lie in panels, as tensor expressions.

Symbols: a panel holds the weights of ``L`` neighbouring columns (outputs), row by row; ``K`` are
the rows (inputs), ``N`` the columns. The results have the panel and the lane as their last two
axes; in memory that is the plain order of columns. Where columns do not fill the last panel, zeros
do, and so they do where rows fill no tile of registers, as primes do not. A last stage leaves out
what they gave: what follows a kernel joins that stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune import _tvm
from foretune._arrays import Array

_MANY, _DIVISOR = 128, 4
"""Many panels that columns do not fill are a multiple of so many."""
_FEW_ROWS, _FEW_WIDE_ROWS = 12, 24
"""So many are one tile in registers, on most processors and on those with 32 of them."""
_WIDE = 16
"""Lanes of the latter."""
_LEAST, _BETTER, _MOST = 4, 6, 12
"""Rows of a tile: enough to use each weight often, and no more than the first cache has room for
where they lie a power of two apart."""


def panels(weight: Array, lanes: int) -> Array:
    """``[..., K, N]`` as ``[N / lanes, ..., K, lanes]``, filled up with zeros.

    A kernel computes a few panels at once, a number that divides all of them: GPT-2's 6,283 have
    no small divisor, and with one more a product of 128 rows takes 0.77 times as long.
    """
    columns = weight.shape[-1]
    count = -(-columns // lanes)
    if columns % lanes and count >= _MANY:
        count += -count % _DIVISOR
    more = [(0, 0)] * (weight.ndim - 1) + [(0, count * lanes - columns)]
    return grouped_panels(np.pad(weight, more), lanes, 1)[..., 0]


def grouped_panels(weight: Array, lanes: int, group: int) -> Array:
    """``[..., K, N]`` as ``[N / lanes, ..., K / group, lanes, group]``, filled up with zeros."""
    *outer, rows, columns = weight.shape
    groups, count = -(-rows // group), -(-columns // lanes)
    full = np.zeros((*outer, groups * group, count * lanes), weight.dtype)
    full[..., :rows, :columns] = weight
    split = full.reshape(*outer, groups, group, count, lanes)
    return np.ascontiguousarray(np.moveaxis(split, (-2, -3), (0, -1)))


def places(extent: int, kernel: int, stride: int, dilation: int) -> int:
    """How many places a kernel has along an axis, its padding included."""
    return (extent - dilation * (kernel - 1) - 1) // stride + 1


def product(data: Any, weight: Any, columns: int) -> Any:
    """``[M, K]`` times panels ``[N / L, K, L]``: ``[M, N / L, L]``; see ``cut``."""
    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    rows = int(data.shape[0])
    more = filled_rows(rows, int(weight.shape[2])) - rows
    if more:
        data = topi.nn.pad(data, [0, 0], [more, 0], name="more_rows")
    k = te.reduce_axis((0, data.shape[1]), name="k")
    sums = te.compute(
        (rows + more, weight.shape[0], weight.shape[2]),
        lambda m, o, lane: te.sum(data[m, k] * weight[o, k, lane], axis=k),
        name="matmul",
    )
    return cut(sums, columns, rows)


def filled_rows(rows: int, lanes: int) -> int:
    """So many rows, or a few more where no tile divides them. Before → after: 197 → 198."""
    few = _FEW_WIDE_ROWS if lanes >= _WIDE else _FEW_ROWS

    def divided(count: int, least: int) -> bool:
        return any(count % tile == 0 for tile in range(least, _MOST + 1))

    if rows <= few or divided(rows, _LEAST):
        return rows
    return next(count for count in itertools.count(rows) if divided(count, _BETTER))


def convolution(
    data: Any,
    weight: Any,
    columns: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """A convolution of any number of spatial axes, channels last.

    Args:
        data: ``[batch, *places, K]``.
        weight: ``[N / L, *kernel, K, L]``.
        columns: ``N``.
        strides: One per spatial axis.
        padding: The front of each axis, then the end of each.
        dilation: One per spatial axis.

    Returns:
        ``[batch, *places, N / L, L]``; see ``cut``.
    """
    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    rank = len(strides)
    front, end = list(padding[:rank]), list(padding[rank:])
    kernel = [int(extent) for extent in weight.shape[1 : rank + 1]]
    widths = [int(e) + f + b for e, f, b in zip(data.shape[1:-1], front, end, strict=True)]
    wanted = list(map(places, widths, kernel, strides, dilation))
    rows = filled_rows(wanted[-1], int(weight.shape[-1]))
    if rows > wanted[-1]:
        needed = (rows - 1) * strides[-1] + dilation[-1] * (kernel[-1] - 1) + 1
        end[-1] += max(0, needed - widths[-1])
    if any([*front, *end]):
        data = topi.nn.pad(data, [0, *front, 0], [0, *end, 0], name="pad_temp")
    taps = [te.reduce_axis((0, k), name=f"k{axis}") for axis, k in enumerate(kernel)]
    inputs = te.reduce_axis((0, data.shape[-1]), name="ic")

    def element(batch: Any, *at: Any) -> Any:
        panel, lane = at[rank:]
        sources = [
            place * s + tap * d
            for place, s, tap, d in zip(at[:rank], strides, taps, dilation, strict=True)
        ]
        value = data(batch, *sources, inputs)
        return te.sum(value * weight(panel, *taps, inputs, lane), axis=[*taps, inputs])

    shape = [data.shape[0], *wanted[:-1], rows, weight.shape[0], weight.shape[-1]]
    return cut(te.compute(shape, element, name=f"conv{rank}d"), columns, wanted[-1])


def cut(sums: Any, columns: int, rows: int | None = None) -> Any:
    """Sums ``[..., N / L, L]`` as ``[..., N]`` where columns do not fill panels.

    Where they do, what a view can do is left to one: the sums as they are.

    Args:
        sums: Rows are the last axis before panels and lanes.
        columns: ``N``.
        rows: Of the result, the first ones; all of them by default.
    """
    *outer, every, count, lanes = (int(extent) for extent in sums.shape)
    outer.append(every if rows is None else rows)
    if count * lanes == columns:
        if outer[-1] == every:
            return sums
        return _tvm.tvm.te.compute((*outer, count, lanes), sums, name="cut")
    return _tvm.tvm.te.compute(
        (*outer, columns),
        lambda *at: sums(*at[:-1], at[-1] // lanes, at[-1] % lanes),
        name="cut",
    )
