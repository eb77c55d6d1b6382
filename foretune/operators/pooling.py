"""Pooling over any number of axes, with dilations and with padding that only one side has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretune import _tvm


@dataclass(frozen=True)
class Window:
    """How windows lie over the spatial axes (the third and following).

    Attributes:
        kernel: Extents of a window.
        strides: Distances of windows.
        dilations: Distances of elements within one.
        before: Padding before the first element; what is behind the last follows from ``result``.
        after: Padding behind the last element that counts as such.
        result: Number of windows along each axis.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    result: Sequence[int]


def max_pool(builder: Any, data: Any, window: Window) -> Any:
    """Largest element of each window of ``[N, C, ...]``; padding is never it."""
    tvm = _tvm.tvm
    te = tvm.te

    def compute(source: Any) -> Any:
        axes, lowest = _axes(window), te.min_value(str(source.dtype))

        def element(*index: Any) -> Any:
            place, inside = _place(source, window, index, axes)
            return te.max(te.if_then_else(inside, source(*place), lowest), axis=axes)

        return te.compute(_shape(source, window), element, name="max_pool")

    return builder.emit_te(compute, data, primfunc_name_hint="max_pool")


def max_pool_indices(builder: Any, data: Any, window: Window, column_major: bool) -> Any:
    """Place of the largest element of each window within the whole tensor, the first of equals.

    Places count through ``[N, C, ...]`` in row-major order, or with the spatial axes reversed.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any) -> Any:
        axes, lowest = _axes(window), te.min_value(str(source.dtype))
        extents = [int(extent) for extent in source.shape]
        taken = [0] * len(extents)
        order = list(range(len(extents) - 1, 1, -1))
        for axis in (order[::-1] if column_major else order) + [1, 0]:
            taken[axis] = math.prod(extents[a] for a in range(len(extents)) if taken[a])
        first = tirx.const(-1, "int64")

        def joined(one: Any, other: Any) -> Any:
            wins = tirx.any(
                one[1] > other[1],
                tirx.all(one[1] == other[1], one[0] >= 0, one[0] < other[0]),
                other[0] < 0,
            )
            return (
                tirx.Select(wins, one[0], other[0]),
                tirx.Select(wins, one[1], other[1]),
            )

        reducer = te.comm_reducer(joined, lambda a, b: (first, lowest), name="argmax")

        def element(*index: Any) -> Any:
            place, inside = _place(source, window, index, axes)
            flat = sum(at.astype("int64") * step for at, step in zip(place, taken, strict=True))
            value = te.if_then_else(inside, source(*place), lowest)
            return reducer((te.if_then_else(inside, flat, first), value), axis=axes)

        found = te.compute(_shape(source, window), element, name="argmax")
        return te.compute(_shape(source, window), found[0], name="indices")

    return builder.emit_te(compute, data, primfunc_name_hint="max_pool_indices")


def average_pool(builder: Any, data: Any, window: Window, count_padding: bool) -> Any:
    """Mean of each window of ``[N, C, ...]``; padding counts as zeros or not at all.

    What lies behind the declared padding, where the size was rounded up, never counts.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any) -> Any:
        dtype, axes = str(source.dtype), _axes(window)
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        zero = tirx.const(0, dtype)

        def total(*index: Any) -> Any:
            place, inside = _place(source, window, index, axes)
            value = te.if_then_else(inside, source(*place), zero)
            return te.sum(value.astype(wide), axis=axes)

        sums = te.compute(_shape(source, window), total, name="window_sum")

        def mean(*index: Any) -> Any:
            counts = [
                _count(window, int(source.shape[at + 2]), at, index[at + 2], count_padding)
                for at in range(len(window.kernel))
            ]
            count = math.prod(counts[1:], start=counts[0])
            return (sums(*index) / tirx.Max(count, 1).astype(wide)).astype(dtype)

        return te.compute(_shape(source, window), mean, name="average_pool")

    return builder.emit_te(compute, data, primfunc_name_hint="avg_pool")


def lp_pool(builder: Any, data: Any, window: Window, p: int) -> Any:
    """``p``-norm of each window of ``[N, C, ...]``."""
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any) -> Any:
        dtype, axes = str(source.dtype), _axes(window)

        def total(*index: Any) -> Any:
            place, inside = _place(source, window, index, axes)
            value = te.if_then_else(inside, source(*place), tirx.const(0, dtype))
            return te.sum(tirx.power(tirx.abs(value), tirx.const(float(p), dtype)), axis=axes)

        sums = te.compute(_shape(source, window), total, name="power_sum")
        root = tirx.const(1.0 / p, dtype)
        return te.compute(
            _shape(source, window), lambda *i: tirx.power(sums(*i), root), name="lp_pool"
        )

    return builder.emit_te(compute, data, primfunc_name_hint="lp_pool")


def _axes(window: Window) -> list[Any]:
    te = _tvm.tvm.te
    return [te.reduce_axis((0, extent), f"k{at}") for at, extent in enumerate(window.kernel)]


def _shape(source: Any, window: Window) -> tuple[int, ...]:
    return (int(source.shape[0]), int(source.shape[1]), *window.result)


def _place(
    source: Any, window: Window, index: Sequence[Any], axes: Sequence[Any]
) -> tuple[list[Any], Any]:
    """Indices into the source, and whether they lie in it."""
    place, conditions = list(index[:2]), []
    for at, axis in enumerate(axes):
        where = index[at + 2] * window.strides[at] + axis * window.dilations[at] - window.before[at]
        place.append(where)
        conditions += [where >= 0, where < source.shape[at + 2]]
    return place, _tvm.tvm.tirx.all(*conditions)


def _count(window: Window, extent: int, at: int, index: Any, padding: bool) -> Any:
    """Elements of one window along one axis that count."""
    tirx = _tvm.tvm.tirx
    low = 0 if not padding else -window.before[at]
    high = extent if not padding else extent + window.after[at]
    start = index * window.strides[at] - window.before[at]
    dilation, kernel = window.dilations[at], window.kernel[at]
    # Elements stand at start + j * dilation for 0 <= j < kernel.
    first = tirx.Max(0, tirx.floordiv(low - start + dilation - 1, dilation))
    last = tirx.Min(kernel, tirx.floordiv(high - start + dilation - 1, dilation))
    return last - first
