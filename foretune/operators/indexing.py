"""Reading and writing at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune import _tvm


def one_hot(builder: Any, indices: Any, values: Any, depth: int, axis: int) -> Any:
    """``values[1]`` where the new axis equals the index, ``values[0]`` elsewhere.

    A negative index counts from the end; one outside of ``-depth..depth - 1`` is nowhere.

    Args:
        builder: Relax block builder.
        indices: Any shape, any numbers.
        values: Shape ``[2]``: off and on.
        depth: Extent of the new axis.
        axis: Place of the new axis, not negative.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(places: Any, pair: Any) -> Any:
        shape = [int(extent) for extent in places.shape]
        shape.insert(axis, depth)

        def element(*index: Any) -> Any:
            own = index[:axis] + index[axis + 1 :]
            at = places(*own).astype("int64")
            at = tirx.Select(at < 0, at + depth, at)
            return tirx.if_then_else(at == index[axis].astype("int64"), pair(1), pair(0))

        return te.compute(tuple(shape), element, name="one_hot")

    return builder.emit_te(compute, indices, values, primfunc_name_hint="one_hot")


def pad_by_index(data: Any, before: Sequence[int], after: Sequence[int], mode: str) -> Any:
    """Pads with elements of the tensor itself: ``reflect``, ``edge`` or ``wrap``.

    Negative padding cuts off. Each axis is read at indices that NumPy's own padding of
    ``0, 1, ...`` gives.
    """
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    shape = [int(extent) for extent in data.ty.shape]
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if not first and not last:
            continue
        places = np.arange(shape[axis])
        places = places[max(0, -first) : shape[axis] - max(0, -last)]
        places = np.pad(places, (max(0, first), max(0, last)), mode=mode)  # type: ignore[call-overload]
        data = op.take(data, relax.const(places.astype("int64"), "int64"), axis)
    return data


def pad_with_value(
    builder: Any, data: Any, before: Sequence[int], after: Sequence[int], value: Any
) -> Any:
    """Pads with a value known at run time; negative padding cuts off.

    Args:
        builder: Relax block builder.
        data: The tensor.
        before: Elements ahead of each axis.
        after: Elements behind each axis.
        value: Tensor of one element.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any, filling: Any) -> Any:
        shape = [int(extent) for extent in source.shape]
        sizes = [e + b + a for e, b, a in zip(shape, before, after, strict=True)]

        def element(*index: Any) -> Any:
            place = [i - b for i, b in zip(index, before, strict=True)]
            inside = [tirx.all(p >= 0, p < e) for p, e in zip(place, shape, strict=True)]
            outer = filling(*[0] * len(filling.shape))
            return te.if_then_else(tirx.all(*inside), source(*place), outer)

        return te.compute(tuple(sizes), element, name="pad")

    return builder.emit_te(compute, data, value, primfunc_name_hint="pad")


def columns_to_image(
    builder: Any,
    data: Any,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Any:
    """Sums the columns ``[N, C * prod(block), L]`` that a sliding block read back into an image.

    Every pixel gathers from the blocks that cover it, so that nothing is written twice.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx
    rank = len(image)
    counts = [
        (image[a] + before[a] + after[a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]

    def compute(source: Any) -> Any:
        channels = int(source.shape[1]) // int(np.prod(block))
        axes = [te.reduce_axis((0, extent), f"k{a}") for a, extent in enumerate(block)]

        def element(batch: Any, channel: Any, *index: Any) -> Any:
            row, column, conditions = channel, tirx.const(0, "int32"), []
            for a in range(rank):
                offset = index[a] + before[a] - axes[a] * dilations[a]
                at = tirx.floordiv(offset, strides[a])
                conditions += [
                    tirx.floormod(offset, strides[a]) == 0, at >= 0, at < counts[a]
                ]  # fmt: skip
                row = row * block[a] + axes[a]
                column = column * counts[a] + at
            zero = tirx.const(0, str(source.dtype))
            value = te.if_then_else(tirx.all(*conditions), source(batch, row, column), zero)
            return te.sum(value, axis=axes)

        shape = (int(source.shape[0]), channels, *image)
        return te.compute(shape, element, name="col2im")

    return builder.emit_te(compute, data, primfunc_name_hint="col2im")
