"""Pooling that TVM lacks: with positions, dilations, uneven padding, sizes rounded up, norms.

All is TE over the last dimensions of a tensor, as many as a window has; the others are a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foretune import _tvm
from foretune.operators._read import value_at
from foretune.operators.extremes import extreme_reducer, lowest

Sizes = Sequence[int]


@dataclass(frozen=True)
class Window:
    """How windows lie over the pooled dimensions.

    Attributes:
        kernel: Extents of a window.
        strides: Distances of windows.
        dilations: Distances of elements within one.
        before: Padding before the first element; what is behind the last follows from ``result``.
        after: Padding behind the last element that counts as such in an average.
        result: Number of windows along each dimension.
    """

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    result: Sizes

    @property
    def rank(self) -> int:
        """How many dimensions are pooled."""
        return len(self.kernel)

    @property
    def is_single(self) -> bool:
        """Whether there is one window, without padding and dilation."""
        plain = not any([*self.before, *self.after]) and all(n == 1 for n in self.dilations)
        return plain and all(n == 1 for n in self.result)

    def shape(self, x: Any) -> list[int]:
        """Shape of the result."""
        return [*(int(n) for n in x.shape[: -self.rank]), *self.result]


def max_pool(x: Any, window: Window) -> Any:
    """Largest element of each window; padding is never it."""
    te, axes = _tvm.tvm.te, _axes(window.kernel)

    def element(*at: Any) -> Any:
        value = _read(x, window, at, axes, lowest(str(x.dtype)))[1]
        return te.max(value, axis=axes)

    return te.compute(window.shape(x), element, name="max_pool")


def max_with_positions(x: Any, window: Window, steps: Sizes) -> tuple[Any, Any]:
    """Largest element of each window, and its position.

    It is the first of equal ones, and the last NaN, as PyTorch has it.

    Args:
        x: What is pooled.
        window: Where.
        steps: How far a position moves with each dimension of ``x``: ``[0, 0, width, 1]`` counts
            through each image, row by row.
    """
    axes = _axes(window.kernel)

    def pair(*at: Any) -> tuple[Any, Any, Any]:
        inside, value = _read(x, window, at, axes, lowest(str(x.dtype)))
        return inside, _place(window, at, axes), value

    return _largest(x, window.shape(x), axes, pair, steps)


def average(x: Any, window: Window, count_padding: bool, divisor: int | None = None) -> Any:
    """Mean of each window; padding counts as zeros or not at all.

    What lies behind the declared padding, where the size was rounded up, never counts. Half
    precision is summed in float32.

    Args:
        x: What is pooled.
        window: Where.
        count_padding: Whether padding counts.
        divisor: Divides the sums in place of the count.
    """
    te, tirx, dtype, rank = _tvm.tvm.te, _tvm.tvm.tirx, str(x.dtype), window.rank
    sums = _sums(x, window, lambda value: value.astype(_wide(dtype)))

    def mean(*at: Any) -> Any:
        if divisor is not None:
            return (sums(*at) / tirx.const(divisor, _wide(dtype))).astype(dtype)
        extents = [int(n) for n in x.shape[-rank:]]
        counts = [_count(window, extents[n], n, at[n - rank], count_padding) for n in range(rank)]
        count = math.prod(counts[1:], start=counts[0])
        return (sums(*at) / tirx.Max(count, 1).astype(_wide(dtype))).astype(dtype)

    return te.compute(window.shape(x), mean, name="average_pool")


def lp_pool(x: Any, window: Window, p: int) -> Any:
    """``p``-norm of each window."""
    te, tirx, dtype = _tvm.tvm.te, _tvm.tvm.tirx, str(x.dtype)
    exponent, root = tirx.const(float(p), dtype), tirx.const(1.0 / p, dtype)
    sums = _sums(x, window, lambda value: tirx.power(tirx.abs(value), exponent))
    return te.compute(window.shape(x), lambda *at: tirx.power(sums(*at), root), name="lp_pool")


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
        value = tirx.Select(tirx.all(*inside), value_at(x, *at[:-rank], *read), zero)
        return te.sum(value, axis=axes)

    summed = te.compute(shape, total)

    def element(*at: Any) -> Any:
        elements = tirx.const(1, "int64")
        for n in range(rank):
            elements = elements * (end(n, at[-rank + n]) - begin(n, at[-rank + n]))
        return summed[at] / tirx.Cast(dtype, elements)

    return te.compute(shape, element)


def adaptive_max(x: Any, shape: Sizes, rank: int) -> tuple[Any, Any]:
    """The largest elements of such windows and their flat positions in the pooled dimensions."""
    tirx = _tvm.tvm.tirx
    extents = [int(extent) for extent in x.shape[-rank:]]
    axes, begin, end = _uneven(extents, shape[-rank:])

    def pair(*at: Any) -> tuple[Any, Any, Any]:
        places = [begin(n, at[-rank + n]) + axes[n].var for n in range(rank)]
        inside = tirx.all(*(p < end(n, at[-rank + n]) for n, p in enumerate(places)))
        read = [tirx.min(p, n - 1) for p, n in zip(places, extents, strict=True)]
        place = [*at[:-rank], *read]
        return inside, place, tirx.Select(inside, value_at(x, *place), lowest(str(x.dtype)))

    return _largest(x, shape, axes, pair, steps_through(x.shape, rank))


def steps_through(shape: Sizes, rank: int) -> list[int]:
    """Steps that count through the last ``rank`` dimensions in order, anew in each batch."""
    extents = [int(extent) for extent in shape]
    first = len(extents) - rank
    inner = [math.prod(extents[axis + 1 :]) for axis in range(first, len(extents))]
    return [0] * first + inner


def _largest(
    x: Any, shape: Sizes, axes: Sequence[Any], pair: Callable[..., Any], steps: Sizes
) -> tuple[Any, Any]:
    """Values and positions (int64); ``pair`` gives whether it is inside, its place, its value."""
    te, tirx = _tvm.tvm.te, _tvm.tvm.tirx
    reducer = extreme_reducer(str(x.dtype), largest=True, last_nan=True)
    nowhere = tirx.max_value("int64")

    def element(*at: Any) -> Any:
        inside, place, value = pair(*at)
        flat = sum(tirx.Cast("int64", p) * step for p, step in zip(place, steps, strict=True))
        return reducer((tirx.Select(inside, flat, nowhere), value), axis=axes)

    index, value = te.compute(shape, element, name="largest")
    return value, index


def _sums(x: Any, window: Window, of: Callable[[Any], Any]) -> Any:
    te, axes = _tvm.tvm.te, _axes(window.kernel)
    zero = _tvm.tvm.tirx.const(0, str(x.dtype))

    def total(*at: Any) -> Any:
        return te.sum(of(_read(x, window, at, axes, zero)[1]), axis=axes)

    return te.compute(window.shape(x), total, name="window_sum")


def _axes(kernel: Sizes) -> list[Any]:
    te = _tvm.tvm.te
    return [te.reduce_axis((0, extent), f"k{at}") for at, extent in enumerate(kernel)]


def _place(window: Window, at: Sequence[Any], axes: Sequence[Any]) -> list[Any]:
    """Where an element of a window stands; in the padding that is outside of the tensor."""
    place = list(at)
    for n, axis in enumerate(axes):
        own = n - window.rank
        start = at[own] * window.strides[n] - window.before[n]
        place[own] = start + axis.var * window.dilations[n]
    return place


def _read(
    x: Any, window: Window, at: Sequence[Any], axes: Sequence[Any], outside: Any
) -> tuple[Any, Any]:
    """Whether an element of a window lies in the tensor, and its value."""
    tirx = _tvm.tvm.tirx
    place = _place(window, at, axes)
    pooled = list(zip(place, x.shape, strict=True))[-window.rank :]
    inside = tirx.all(*(tirx.all(p >= 0, p < extent) for p, extent in pooled))
    return inside, tirx.if_then_else(inside, value_at(x, *place), outside)


def _count(window: Window, extent: int, n: int, at: Any, padding: bool) -> Any:
    """Elements of one window along one dimension that count."""
    tirx = _tvm.tvm.tirx
    low = 0 if not padding else -window.before[n]
    high = extent if not padding else extent + window.after[n]
    start = at * window.strides[n] - window.before[n]
    dilation, kernel = window.dilations[n], window.kernel[n]
    # Elements stand at start + j * dilation for 0 <= j < kernel.
    first = tirx.Max(0, tirx.floordiv(low - start + dilation - 1, dilation))
    last = tirx.Min(kernel, tirx.floordiv(high - start + dilation - 1, dilation))
    return last - first


def _uneven(extents: Sizes, wanted: Sizes) -> tuple[list[Any], Any, Any]:
    """Reduction axes as long as the longest window, and where each window begins and ends."""
    tirx = _tvm.tvm.tirx
    longest = [
        max(-(-(i + 1) * n // out) - i * n // out for i in range(out))
        for n, out in zip(extents, wanted, strict=True)
    ]

    def begin(n: int, at: Any) -> Any:
        return tirx.floordiv(at * extents[n], int(wanted[n]))

    def end(n: int, at: Any) -> Any:
        return tirx.floordiv((at + 1) * extents[n] + int(wanted[n]) - 1, int(wanted[n]))

    return _axes(longest), begin, end


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype
