"""Convolutions, pooling and resampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.operators import pooling
from foretune.operators.resampling import grid_sample, resample_axis, resize_taps
from foretune.workload.importers.onnx._node import (
    Lowering,
    Node,
    NotLoweredError,
    UseConverterError,
)


def window_of(node: Node) -> pooling.Window:
    """How the windows of a pooling operator lie, with implicit padding made explicit."""
    spatial = node.value(0).shape[2:]
    rank = len(spatial)
    kernel = node.integers("kernel_shape") or []
    strides = node.integers("strides") or [1] * rank
    dilations = node.integers("dilations") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    way = str(node.attribute("auto_pad", "NOTSET"))
    result = list(node.output_shape()[2:])
    if way.startswith("SAME"):
        for at, extent in enumerate(spatial):
            # Of the kernel without its dilations, as ONNX Runtime has it.
            count = -(-extent // strides[at])
            missing = max(0, (count - 1) * strides[at] + kernel[at] - extent)
            small, large = missing // 2, missing - missing // 2
            pads[at], pads[at + rank] = (small, large) if way == "SAME_UPPER" else (large, small)
    elif way == "VALID":
        pads = [0] * (2 * rank)
    return pooling.Window(kernel, strides, dilations, pads[:rank], pads[rank:], result)


def _is_plain(node: Node) -> bool:
    """Whether TVM's own pooling means the same: explicit padding, sizes rounded down."""
    rank = len(node.value(0).shape) - 2
    plain = str(node.attribute("auto_pad", "NOTSET")) in ("NOTSET", "VALID")
    return (
        plain
        and rank == 2
        and node.value(0).dtype == "float32"
        and not node.attribute("ceil_mode", 0)
        and set(node.integers("dilations") or [1]) == {1}
    )


def _max_pool(node: Node) -> Any:
    if _is_plain(node) and not node.wants(1):
        raise UseConverterError
    window = window_of(node)
    if not node.wants(1):
        return [node.te(lambda x: pooling.max_pool(x, window), node[0])]
    # Places count through the whole tensor, with the spatial axes reversed if it says so.
    extents = list(node.value(0).shape)
    order = list(range(len(extents)))
    if node.attribute("storage_order", 0):
        order[2:] = order[:1:-1]
    steps = [0] * len(extents)
    for at, axis in enumerate(order):
        steps[axis] = math.prod(extents[a] for a in order[at + 1 :])
    both = node.te(lambda x: pooling.max_with_positions(x, window, steps), node[0])
    return [node.emit(_tvm.tvm.relax.TupleGetItem(both, at)) for at in range(2)]


def _average_pool(node: Node) -> Any:
    if _is_plain(node):
        raise UseConverterError
    padding = bool(node.attribute("count_include_pad", 0))
    window = window_of(node)
    return node.te(lambda x: pooling.average(x, window, padding), node[0])


def _lp_pool(node: Node) -> Any:
    window, p = window_of(node), int(node.attribute("p", 2))
    return node.te(lambda x: pooling.lp_pool(x, window, p), node[0])


def convolution(node: Node, data: Any, weight: Any) -> Any:
    """A convolution of the node's attributes over given tensors, in their element type."""
    op = _tvm.tvm.relax.op
    spatial = [int(extent) for extent in data.ty.shape][2:]
    rank = len(spatial)
    kernel = [int(extent) for extent in weight.ty.shape][2:]
    strides = node.integers("strides") or [1] * rank
    dilations = node.integers("dilations") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    way = str(node.attribute("auto_pad", "NOTSET"))
    if way.startswith("SAME"):
        for at, extent in enumerate(spatial):
            reach = (kernel[at] - 1) * dilations[at] + 1
            count = -(-extent // strides[at])
            missing = max(0, (count - 1) * strides[at] + reach - extent)
            small, large = missing // 2, missing - missing // 2
            pads[at], pads[at + rank] = (small, large) if way == "SAME_UPPER" else (large, small)
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}.get(rank)
    if function is None:
        raise NotLoweredError("more than three spatial axes")
    groups = int(node.attribute("group", 1))
    return function(
        data, weight, strides=strides, padding=pads, dilation=dilations, groups=groups,
        out_dtype=str(data.ty.dtype),
    )  # fmt: skip


def _batch_normalisation(node: Node) -> Any:
    """In training mode the batch's own statistics count, and the running ones move."""
    if not node.attribute("training_mode", 0):
        raise UseConverterError
    op, relax = _tvm.tvm.relax.op, _tvm.tvm.relax
    dtype, shape = node.value(0).dtype, node.value(0).shape
    axes = [axis for axis in range(len(shape)) if axis != 1]
    channel = [1, shape[1], *[1] * (len(shape) - 2)]
    momentum = float(node.attribute("momentum", 0.9))

    def moved(at: int, new: Any) -> Any:
        kind = node.value(at).dtype
        kept = op.multiply(node[at], relax.const(momentum, kind))
        added = op.multiply(op.astype(new, kind), relax.const(1 - momentum, kind))
        return op.add(kept, added)

    mean = node.emit(op.mean(node[0], axes, keepdims=True))
    centred = node.emit(op.subtract(node[0], mean))
    variance = node.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    epsilon = relax.const(float(node.attribute("epsilon", 1e-5)), dtype)
    normal = node.emit(op.divide(centred, op.sqrt(op.add(variance, epsilon))))
    scale, bias = (op.reshape(op.astype(node[at], dtype), channel) for at in (1, 2))
    flat = [node.emit(op.reshape(statistic, [shape[1]])) for statistic in (mean, variance)]
    running = [moved(3, flat[0]), moved(4, flat[1])]
    return [op.add(op.multiply(normal, scale), bias), *running]


def _grid_sample(node: Node) -> Any:
    mode = str(node.attribute("mode", "linear"))
    method = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if method == "cubic" and len(node.value(0).shape) > 4:
        raise NotLoweredError("cubic in more than two axes")
    padding = str(node.attribute("padding_mode", "zeros"))
    aligned = bool(node.attribute("align_corners", 0))
    return grid_sample(node.builder, node[0], node[1], method, padding, aligned)


def _resize(node: Node) -> Any:
    """Each axis by itself, at places and with weights that are known."""
    value, version = node.value(0), node.version
    if version < 11:
        raise UseConverterError
    mode = str(node.attribute("mode", "nearest"))
    rank = len(value.shape)
    axes = [a % rank for a in node.integers("axes") or range(rank)]
    scales = node.constant(2)
    sizes = node.constant(3)
    shape = node.output_shape()
    factors = _factors(node, axes, scales, sizes)
    region = node.constant(1)
    data = value.expression
    coordinates = str(node.attribute("coordinate_transformation_mode", "half_pixel"))
    beyond: list[tuple[int, Any]] = []
    for at, axis in enumerate(axes):
        whole = coordinates != "tf_crop_and_resize"
        if shape[axis] == value.shape[axis] and factors[at] == 1.0 and whole:
            continue
        part = (0.0, 1.0) if whole else (float(region[at]), float(region[at + len(axes)]))
        places, weights, outside = resize_taps(
            value.shape[axis],
            shape[axis],
            factors[at],
            mode if mode == "nearest" else mode.removeprefix("bi"),
            coordinates,
            nearest=str(node.attribute("nearest_mode", "round_prefer_floor")),
            cubic=float(node.attribute("cubic_coeff_a", -0.75)),
            exclude_outside=bool(node.attribute("exclude_outside", 0)),
            antialias=bool(node.attribute("antialias", 0)),
            region=part,
        )
        if mode == "nearest":
            relax = _tvm.tvm.relax
            index = relax.const(places[:, 0].astype("int64"), "int64")
            data = relax.op.take(data, index, axis)
        else:
            data = resample_axis(node.builder, data, axis, places, weights)
        if outside.any():
            beyond.append((axis, outside))
    return _extrapolated(node, data, beyond)


def _factors(node: Node, axes: list[int], scales: Any, sizes: Any) -> list[float]:
    """Scale of each axis."""
    shape = node.value(0).shape
    if scales is not None and scales.size:
        return [float(s) for s in scales.reshape(-1)]
    if sizes is None:
        raise NotLoweredError("neither scales nor sizes")
    ratios = [int(size) / shape[axis] for size, axis in zip(sizes.reshape(-1), axes, strict=True)]
    policy = str(node.attribute("keep_aspect_ratio_policy", "stretch"))
    if policy == "not_larger":
        ratios = [min(ratios)] * len(ratios)
    elif policy == "not_smaller":
        ratios = [max(ratios)] * len(ratios)
    return ratios


def _extrapolated(node: Node, data: Any, beyond: list[tuple[int, Any]]) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    rank, dtype = len(node.value(0).shape), node.value(0).dtype
    number = relax.const(float(node.attribute("extrapolation_value", 0.0)), dtype)
    for axis, outside in beyond:
        shape = [1] * rank
        shape[axis] = len(outside)
        data = op.where(relax.const(outside.reshape(shape), "bool"), number, data)
    return data


def _conv_transpose(node: Node) -> Any:
    """Forms whose padding follows from the size that is wanted; others are TVM's."""
    wanted = node.integers("output_shape")
    way = str(node.attribute("auto_pad", "NOTSET"))
    if wanted is None and not way.startswith("SAME"):
        raise UseConverterError
    value, weight = node.value(0), node.value(1)
    rank = len(value.shape) - 2
    if rank not in (1, 2):
        raise NotLoweredError("three spatial axes")
    kernel = list(weight.shape[2:])
    strides = node.integers("strides") or [1] * rank
    dilations = node.integers("dilations") or [1] * rank
    extra = node.integers("output_padding") or [0] * rank
    result = node.output_shape()[2:]
    before, after, added = [], [], []
    for at in range(rank):
        full = strides[at] * (value.shape[at + 2] - 1) + (kernel[at] - 1) * dilations[at] + 1
        total = full + extra[at] - result[at]
        more, cut = max(0, -total), max(0, total)
        first = cut - cut // 2 if way == "SAME_LOWER" else cut // 2
        before.append(first)
        after.append(cut - first)
        added.append(extra[at] + more)
    op = _tvm.tvm.relax.op
    function = op.nn.conv1d_transpose if rank == 1 else op.nn.conv2d_transpose
    # Padding behind is applied by cutting, which takes any size.
    whole = function(
        value.expression, weight.expression, strides=strides, padding=[0] * (2 * rank),
        output_padding=[0] * rank, dilation=dilations, groups=int(node.attribute("group", 1)),
    )  # fmt: skip
    whole = node.emit(whole)
    extents = [int(extent) for extent in whole.ty.shape][2:]
    widths = [0, 0, 0, 0]
    for at in range(rank):
        widths += [0, max(0, before[at] + result[at] - extents[at])]
    if any(widths):
        whole = op.nn.pad(whole, widths, "constant", 0.0)
    axes = list(range(2, rank + 2))
    ends = [b + r for b, r in zip(before, result, strict=True)]
    cut_out = op.strided_slice(whole, axes, before, ends)
    bias = node.get(2)
    if bias is None:
        return cut_out
    return op.add(cut_out, op.reshape(bias, [1, -1] + [1] * rank))


def _lrn(node: Node) -> Any:
    """Local response normalisation across channels, as ONNX centres it."""
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, size = node.value(0), int(node.attribute("size"))
    rank, dtype = len(value.shape), value.dtype
    before, after = (size - 1) // 2, math.ceil((size - 1) / 2)
    square = op.multiply(value.expression, value.expression)
    widths = [0] * (2 * rank)
    widths[2:4] = [before, after]
    padded = node.emit(op.nn.pad(square, widths, "constant", 0.0))
    total: Any = None
    for at in range(size):
        part = op.strided_slice(padded, [1], [at], [at + value.shape[1]])
        total = part if total is None else op.add(total, part)
    alpha = float(node.attribute("alpha", 0.0001)) / size
    scaled = op.add(
        relax.const(float(node.attribute("bias", 1.0)), dtype),
        op.multiply(relax.const(alpha, dtype), total),
    )
    power = op.power(scaled, relax.const(float(node.attribute("beta", 0.75)), dtype))
    return op.divide(value.expression, power)


def _global_lp_pool(node: Node) -> Any:
    relax, op = _tvm.tvm.relax, _tvm.tvm.relax.op
    value, p = node.value(0), float(node.attribute("p", 2))
    axes = list(range(2, len(value.shape)))
    exponent = relax.const(np.array(p, dtype=value.dtype), value.dtype)
    root = relax.const(np.array(1 / p, dtype=value.dtype), value.dtype)
    total = op.sum(op.power(op.abs(value.expression), exponent), axes, keepdims=True)
    return op.power(total, root)


def _roi_align(node: Node) -> Any:
    """TVM takes the largest of other samples than ONNX does; its mean is right."""
    if str(node.attribute("mode", "avg")) != "avg":
        raise NotLoweredError("the largest sample")
    raise UseConverterError


TABLE: dict[str, Lowering] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalisation,
    "ConvTranspose": _conv_transpose,
    "GlobalLpPool": _global_lp_pool,
    "GridSample": _grid_sample,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "Resize": _resize,
    "RoiAlign": _roi_align,
}
"""Operator to lowering."""
