"""Products and convolutions whose weights lie in panels, as tensor expressions.

A panel holds the columns of ``lanes`` neighbouring outputs. The results have the panel and the lane
as their last two axes; in memory that is the plain order of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm


def product(data: Any, weight: Any) -> Any:
    """``[M, K]`` times panels ``[N / lanes, K, lanes]``: ``[M, N / lanes, lanes]``."""
    te = _tvm.tvm.te
    k = te.reduce_axis((0, data.shape[1]), name="k")
    return te.compute(
        (data.shape[0], weight.shape[0], weight.shape[2]),
        lambda m, o, lane: te.sum(data[m, k] * weight[o, k, lane], axis=k),
        name="matmul",
    )


def convolution(
    data: Any,
    weight: Any,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """A convolution of any number of spatial axes, channels last.

    Args:
        data: ``[batch, *places, inputs]``.
        weight: ``[outputs / lanes, *kernel, inputs, lanes]``.
        strides: One per spatial axis.
        padding: The front of each axis, then the end of each.
        dilation: One per spatial axis.

    Returns:
        ``[batch, *places, outputs / lanes, lanes]``.
    """
    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    rank = len(strides)
    front, end = list(padding[:rank]), list(padding[rank:])
    if any([*front, *end]):
        data = topi.nn.pad(data, [0, *front, 0], [0, *end, 0], name="pad_temp")
    kernel = [int(extent) for extent in weight.shape[1 : rank + 1]]
    places = [
        (int(extent) - d * (k - 1) - 1) // s + 1
        for extent, k, s, d in zip(data.shape[1:-1], kernel, strides, dilation, strict=True)
    ]
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

    shape = [data.shape[0], *places, weight.shape[0], weight.shape[-1]]
    return te.compute(shape, element, name=f"conv{rank}d")
