"""Pooling that TVM lacks: with positions, with PyTorch's rounding up, with uneven windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm
from foretune.operators._read import value_at
from foretune.operators.extremes import extreme_reducer

Sizes = Sequence[int]


def max_with_positions(
    x: Any, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Any:
    """The largest element of each window and its flat position in the pooled dimensions.

    Args:
        x: The last dimensions, as many as ``kernel`` has, are pooled.
        shape: Of the result.
        kernel, stride, padding, dilation: Per pooled dimension; the padding is on both sides.
    """
    te, tirx, rank = _tvm.tvm.te, _tvm.tvm.tirx, len(kernel)
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(kernel)]
    extents = [int(extent) for extent in x.shape[-rank:]]
    lowest = _lowest(str(x.dtype))
    reducer = extreme_reducer(str(x.dtype), largest=True)

    def element(*at: Any) -> Any:
        places = [
            at[-rank + n] * stride[n] - padding[n] + axes[n].var * dilation[n] for n in range(rank)
        ]
        inside = [tirx.all(p >= 0, p < n) for p, n in zip(places, extents, strict=True)]
        read = [tirx.max(tirx.min(p, n - 1), 0) for p, n in zip(places, extents, strict=True)]
        value = tirx.Select(tirx.all(*inside), value_at(x, *at[:-rank], *read), lowest)
        return reducer((tirx.Cast("int64", _flat(read, extents)), value), axis=axes)

    index, value = te.compute(shape, element)
    return value, index


def average(
    x: Any,
    shape: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    include_padding: bool,
    divisor: int | None,
) -> Any:
    """Averages of windows that may reach over the end, divided as PyTorch does."""
    te, tirx, rank = _tvm.tvm.te, _tvm.tvm.tirx, len(kernel)
    dtype, extents = str(x.dtype), [int(extent) for extent in x.shape[-rank:]]
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(kernel)]
    starts = [lambda i, n=n: i * stride[n] - padding[n] for n in range(rank)]

    def total(*at: Any) -> Any:
        places = [starts[n](at[-rank + n]) + axes[n].var for n in range(rank)]
        inside = [tirx.all(p >= 0, p < n) for p, n in zip(places, extents, strict=True)]
        read = [tirx.max(tirx.min(p, n - 1), 0) for p, n in zip(places, extents, strict=True)]
        value = tirx.Select(
            tirx.all(*inside), value_at(x, *at[:-rank], *read), tirx.const(0, dtype)
        )
        return te.sum(value, axis=axes)

    summed = te.compute(shape, total)

    def count(at: Any, n: int) -> Any:
        begin = starts[n](at)
        end = tirx.min(begin + kernel[n], extents[n] + padding[n])
        if not include_padding:
            begin, end = tirx.max(begin, 0), tirx.min(end, extents[n])
        return end - begin

    def element(*at: Any) -> Any:
        if divisor is not None:
            return summed[at] / tirx.const(divisor, dtype)
        elements = count(at[-rank], 0)
        for n in range(1, rank):
            elements = elements * count(at[-rank + n], n)
        return summed[at] / tirx.Cast(dtype, elements)

    return te.compute(shape, element)


def adaptive_average(x: Any, shape: Sizes, rank: int) -> Any:
    """Averages of windows that share the last ``rank`` dimensions out as evenly as they can."""
    te, tirx, dtype = _tvm.tvm.te, _tvm.tvm.tirx, str(x.dtype)
    extents = [int(extent) for extent in x.shape[-rank:]]
    axes, begin, end = _uneven(extents, shape[-rank:])

    def total(*at: Any) -> Any:
        places = [begin(n, at[-rank + n]) + axes[n].var for n in range(rank)]
        inside = [p < end(n, at[-rank + n]) for n, p in enumerate(places)]
        read = [tirx.min(p, n - 1) for p, n in zip(places, extents, strict=True)]
        zero = tirx.const(0, dtype)
        return te.sum(
            tirx.Select(tirx.all(*inside), value_at(x, *at[:-rank], *read), zero), axis=axes
        )

    summed = te.compute(shape, total)

    def element(*at: Any) -> Any:
        elements = tirx.const(1, "int64")
        for n in range(rank):
            elements = elements * (end(n, at[-rank + n]) - begin(n, at[-rank + n]))
        return summed[at] / tirx.Cast(dtype, elements)

    return te.compute(shape, element)


def adaptive_max(x: Any, shape: Sizes, rank: int) -> Any:
    """The largest elements of such windows and their flat positions."""
    te, tirx = _tvm.tvm.te, _tvm.tvm.tirx
    extents = [int(extent) for extent in x.shape[-rank:]]
    axes, begin, end = _uneven(extents, shape[-rank:])
    lowest, reducer = _lowest(str(x.dtype)), extreme_reducer(str(x.dtype), largest=True)

    def element(*at: Any) -> Any:
        places = [begin(n, at[-rank + n]) + axes[n].var for n in range(rank)]
        inside = [p < end(n, at[-rank + n]) for n, p in enumerate(places)]
        read = [tirx.min(p, n - 1) for p, n in zip(places, extents, strict=True)]
        value = tirx.Select(tirx.all(*inside), value_at(x, *at[:-rank], *read), lowest)
        return reducer((tirx.Cast("int64", _flat(read, extents)), value), axis=axes)

    index, value = te.compute(shape, element)
    return value, index


def _uneven(extents: Sizes, wanted: Sizes) -> tuple[list[Any], Any, Any]:
    """Reduction axes as long as the longest window, and where each window begins and ends."""
    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    longest = [
        max(-(-(i + 1) * n // out) - i * n // out for i in range(out))
        for n, out in zip(extents, wanted, strict=True)
    ]
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(longest)]

    def begin(n: int, at: Any) -> Any:
        return tirx.floordiv(at * extents[n], int(wanted[n]))

    def end(n: int, at: Any) -> Any:
        return tirx.floordiv((at + 1) * extents[n] + int(wanted[n]) - 1, int(wanted[n]))

    return axes, begin, end


def _flat(places: Sequence[Any], extents: Sizes) -> Any:
    flat = places[0]
    for place, extent in zip(places[1:], extents[1:], strict=True):
        flat = flat * extent + place
    return flat


def _lowest(dtype: str) -> Any:
    tirx = _tvm.tvm.tirx
    if dtype.startswith(("float", "bfloat")):
        return tirx.const(float("-inf"), dtype)
    return tirx.min_value(dtype)
