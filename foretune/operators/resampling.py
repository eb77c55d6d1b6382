"""Reading tensors between their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune import _tvm
from foretune._arrays import Array


def resample_axis(builder: Any, data: Any, axis: int, places: Array, weights: Array) -> Any:
    """Weighted sums along one axis: ``out[o] = sum_k data[places[o, k]] * weights[o, k]``.

    Args:
        builder: Relax block builder.
        data: Tensor of floats.
        axis: Not negative.
        places: Indices ``[new extent, taps]``.
        weights: ``[new extent, taps]``; a tap that does not count has weight 0 and a legal place.
    """
    tvm = _tvm.tvm
    te, relax = tvm.te, tvm.relax
    dtype = str(data.ty.dtype)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype

    def compute(source: Any, where: Any, factor: Any) -> Any:
        shape = [int(extent) for extent in source.shape]
        shape[axis] = int(where.shape[0])
        tap = te.reduce_axis((0, int(where.shape[1])), "tap")

        def element(*index: Any) -> Any:
            place = list(index)
            place[axis] = where(index[axis], tap)
            return te.sum(source(*place).astype(wide) * factor(index[axis], tap), axis=tap)

        total = te.compute(tuple(shape), element, name="resample")
        if wide == dtype:
            return total
        return te.compute(tuple(shape), lambda *i: total(*i).astype(dtype), name="narrowed")

    taps = relax.const(places.astype("int32"), "int32")
    factors = relax.const(weights.astype(wide), wide)
    return builder.emit_te(compute, data, taps, factors, primfunc_name_hint="resample")


def grid_sample(
    builder: Any, data: Any, grid: Any, method: str, padding: str, align_corners: bool
) -> Any:
    """Reads ``[N, C, ...]`` at normalised places ``[N, ..., rank]``, the last axis first.

    Args:
        builder: Relax block builder.
        data: ``[N, C, D1, ..., Dr]``.
        grid: ``[N, O1, ..., Or, r]`` with -1 and 1 at the borders.
        method: ``nearest``, ``linear``, or ``cubic`` (with the coefficient -0.75).
        padding: ``zeros``, ``border`` or ``reflection``.
        align_corners: -1 and 1 are the middles of the outermost elements, not their outer edges.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any, points: Any) -> Any:
        dtype = str(source.dtype)
        extents = [int(extent) for extent in source.shape[2:]]
        rank = len(extents)

        def real(value: float) -> Any:
            return tirx.const(value, dtype)

        def whole(place: Any, extent: int) -> tuple[Any, Any]:
            """A legal index for a place, and whether it lies inside."""
            at = place.astype("int32")
            legal = tirx.Max(tirx.Min(at, extent - 1), 0)
            return legal, tirx.all(at >= 0, at < extent)

        def bounded(place: Any, extent: int) -> Any:
            low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
            if padding == "border":
                return tirx.Max(tirx.Min(place, real(extent - 1.0)), real(0.0))
            if padding == "reflection":
                span = high - low
                if span <= 0:
                    return real(0.0)
                off = tirx.abs(place - real(low))
                turns = tirx.floor(off / real(span))
                rest = off - turns * real(span)
                half = turns / real(2.0)
                even = half == tirx.floor(half)
                back = tirx.Select(even, rest + real(low), real(high) - rest)
                return (
                    tirx.Max(tirx.Min(back, real(extent - 1.0)), real(0.0))
                    if (method != "cubic")
                    else back
                )
            return place

        def taps(place: Any, extent: int) -> list[tuple[Any, Any]]:
            """Places along one axis with their weights."""
            if method == "nearest":
                return [(bounded(tirx.nearbyint(bounded(place, extent)), extent), real(1.0))]
            if method == "linear":
                inner = bounded(place, extent)
                first = tirx.floor(inner)
                part = inner - first
                return [(first, real(1.0) - part), (first + real(1.0), part)]
            first = tirx.floor(place)
            part = place - first
            weighted = []
            for step, weight in zip((-1.0, 0.0, 1.0, 2.0), _cubic(part, real), strict=True):
                weighted.append((bounded(first + real(step), extent), weight))
            return weighted

        def element(batch: Any, channel: Any, *index: Any) -> Any:
            chosen: list[tuple[list[Any], Any, list[Any]]] = [([], real(1.0), [])]
            for axis, extent in enumerate(extents):
                point = points(batch, *index, rank - 1 - axis).astype(dtype)
                if align_corners:
                    place = (point + real(1.0)) / real(2.0) * real(extent - 1.0)
                else:
                    place = ((point + real(1.0)) * real(float(extent)) - real(1.0)) / real(2.0)
                added = []
                for at, weight in taps(place, extent):
                    legal, inside = whole(at, extent)
                    added += [
                        ([*where, legal], factor * weight, [*conditions, inside])
                        for where, factor, conditions in chosen
                    ]
                chosen = added
            total = real(0.0)
            for where, factor, conditions in chosen:
                value = source(batch, channel, *where)
                seen = tirx.Select(tirx.all(*conditions), value, real(0.0))
                total = total + seen * factor
            return total

        shape = (*source.shape[:2], *points.shape[1:-1])
        return te.compute(tuple(int(e) for e in shape), element, name="grid_sample")

    return builder.emit_te(compute, data, grid, primfunc_name_hint="grid_sample")


def _cubic(part: Any, real: Any) -> list[Any]:
    """Weights of four neighbours by Keys' kernel with the coefficient -0.75."""
    a = -0.75

    def outer(x: Any) -> Any:
        return ((real(a) * x - real(5 * a)) * x + real(8 * a)) * x - real(4 * a)

    def inner(x: Any) -> Any:
        return ((real(a + 2) * x - real(a + 3)) * x) * x + real(1.0)

    one = real(1.0)
    return [outer(part + one), inner(part), inner(one - part), outer(real(2.0) - part)]


def resize_taps(
    extent: int,
    result: int,
    scale: float,
    method: str,
    coordinates: str,
    *,
    nearest: str = "round_prefer_floor",
    cubic: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    region: Sequence[float] = (0.0, 1.0),
) -> tuple[Array, Array, Array]:
    """Where a resized axis reads from, by ONNX's definition of Resize.

    Args:
        extent: Of the axis.
        result: Of the resized axis.
        scale: ``result / extent`` before rounding.
        method: ``nearest``, ``linear`` or ``cubic``.
        coordinates: How places are mapped, ONNX's ``coordinate_transformation_mode``.
        nearest: How places are rounded.
        cubic: Coefficient of the kernel.
        exclude_outside: Weights outside are 0 and the others are scaled to sum to 1.
        antialias: Kernels are as wide as the step when sizes shrink.
        region: Part of the axis, for ``tf_crop_and_resize``.

    Returns:
        Places and weights ``[result, taps]``, and whether each result lies outside the region.
    """
    at = np.arange(result, dtype="float64")
    place = _coordinates(at, extent, result, scale, coordinates, region)
    outside = np.zeros(result, dtype=bool)
    if coordinates == "tf_crop_and_resize":
        outside = (place < 0) | (place > extent - 1)
    if method == "nearest":
        places = np.clip(_rounded(place, nearest), 0, extent - 1)[:, None]
        return places.astype("int64"), np.ones((result, 1)), outside
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1.0 if method == "linear" else 2.0) / stretch
    first = np.floor(place - reach).astype("int64")
    places = first[:, None] + np.arange(int(np.ceil(2 * reach)) + 2)[None, :]
    distance = np.abs(places - place[:, None]) * stretch
    weights = np.maximum(0, 1 - distance) if method == "linear" else _keys(distance, cubic)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= extent), 0, weights)
    if exclude_outside or antialias:
        weights = weights / weights.sum(1, keepdims=True)
    used = np.abs(weights).max(0) > 0
    return np.clip(places[:, used], 0, extent - 1), weights[:, used], outside


def _coordinates(
    at: Array, extent: int, result: int, scale: float, kind: str, region: Sequence[float]
) -> Array:
    width = scale * extent  # not rounded, as the definition has it
    if kind == "align_corners":
        place = at * (extent - 1) / (width - 1) if width != 1 else at * 0
    elif kind == "asymmetric":
        place = at / scale
    elif kind == "tf_crop_and_resize":
        begin, end = region
        if width != 1:
            place = begin * (extent - 1) + at * (end - begin) * (extent - 1) / (width - 1)
        else:
            place = at * 0 + 0.5 * (begin + end) * (extent - 1)
    elif kind == "pytorch_half_pixel" and width == 1:
        place = at * 0 - 0.5
    elif kind == "half_pixel_symmetric":
        adjustment = result / width
        place = extent / 2 * (1 - adjustment) + (at + 0.5) / scale - 0.5
    elif kind == "tf_half_pixel_for_nn":
        place = (at + 0.5) / scale
    else:
        place = (at + 0.5) / scale - 0.5
    places: Array = place
    return places


def _rounded(place: Array, mode: str) -> Array:
    ways = {
        "round_prefer_floor": np.ceil(place - 0.5),
        "round_prefer_ceil": np.floor(place + 0.5),
        "floor": np.floor(place),
        "ceil": np.ceil(place),
    }
    rounded: Array = ways[mode]
    return rounded


def _keys(distance: Array, a: float) -> Array:
    inner = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    weights: Array = np.where(distance <= 1, inner, np.where(distance < 2, outer, 0))
    return weights
