"""Products, convolutions, normalisation, pooling and resampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.operators import convolution, extremes, pooling, resize
from foretune.workload.importers.torch._node import Lowering, Node, NotLoweredError, wide


def _product(node: Node, left: Any, right: Any) -> Any:
    product = node.emit(_tvm.tvm.relax.op.matmul(left, right, out_dtype=wide(node.dtype)))
    return node.cast(product, node.dtype)


def _matmul(first: str, second: str) -> Lowering:
    def lower(node: Node) -> Any:
        if 0 in node.shape_of(first):
            return node.full(node.shape, 0, node.dtype)
        return _product(node, node[first], node[second])

    return lower


def _addmm(first: str, second: str) -> Lowering:
    def lower(node: Node) -> Any:
        relax, dtype = _tvm.tvm.relax, wide(node.dtype)
        alpha, beta = node["alpha"], node["beta"]
        result = None
        if alpha != 0 and 0 not in node.shape_of(first):
            result = node.emit(relax.op.matmul(node[first], node[second], out_dtype=dtype))
            if alpha != 1:
                result = node.emit(relax.op.multiply(result, node.const(alpha, dtype)))
        if beta != 0:
            bias = node.cast(node["self"], dtype)
            if beta != 1:
                bias = node.emit(relax.op.multiply(bias, node.const(beta, dtype)))
            result = bias if result is None else node.emit(relax.op.add(bias, result))
        if result is None:
            return node.full(node.shape, 0, node.dtype)
        return node.broadcast(node.cast(result, node.dtype), node.shape)

    return lower


_LAYOUTS = {
    1: ("NCW", "OIW"),
    2: ("NCHW", "OIHW"),
    3: ("NCDHW", "OIDHW"),
}


def _convolution(node: Node) -> Any:
    nn, op = _tvm.tvm.relax.op.nn, _tvm.tvm.relax.op
    rank = len(node.shape_of("input")) - 2
    if rank not in _LAYOUTS or 0 in node.shape_of("input"):
        raise NotLoweredError(f"a convolution over {rank} dimensions")
    data, plain = _LAYOUTS[rank]
    dtype = wide(node.dtype)
    stride, padding, dilation = (
        _each(node[name], rank) for name in ("stride", "padding", "dilation")
    )
    if node["transposed"]:
        more = _each(node["output_padding"], rank)
        result = convolution.transposed_convolution(
            node.builder,
            node["input"],
            node["weight"],
            stride,
            padding,
            [cut - extra for cut, extra in zip(padding, more, strict=True)],
            dilation,
            int(node["groups"]),
            dtype,
        )
    else:
        function = getattr(nn, f"conv{rank}d")
        result = node.emit(
            function(
                node["input"],
                node["weight"],
                strides=stride,
                padding=padding,
                dilation=dilation,
                groups=int(node["groups"]),
                data_layout=data,
                kernel_layout=plain,
                out_dtype=dtype,
            )
        )
    if node["bias"] is not None:
        bias = op.reshape(node.cast(node["bias"], dtype), [1, -1, *[1] * rank])
        result = node.emit(op.add(result, bias))
    return node.cast(result, node.dtype)


def _each(given: Any, rank: int) -> list[int]:
    values = [int(value) for value in given]
    return values * rank if len(values) == 1 else values


def _norm_parameters(node: Node, shape: list[int], dtype: str) -> tuple[Any, Any]:
    relax = _tvm.tvm.relax

    def constant(value: float) -> Any:
        return relax.const(np.full(shape, value, dtype), dtype)

    weight, bias = node["weight"], node["bias"]
    return (
        constant(1.0) if weight is None else node.cast(weight, dtype),
        constant(0.0) if bias is None else node.cast(bias, dtype),
    )


def _batch_norm(node: Node) -> Any:
    relax, dtype = _tvm.tvm.relax, wide(node.dtype)
    channels = node.shape_of("input")[1]
    weight, bias = _norm_parameters(node, [channels], dtype)
    both = node.emit(
        relax.op.nn.batch_norm(
            node.cast(node["input"], dtype),
            weight,
            bias,
            node.cast(node["running_mean"], dtype),
            node.cast(node["running_var"], dtype),
            axis=1,
            epsilon=float(node["eps"]),
            scale=node["weight"] is not None,
            center=node["bias"] is not None,
            momentum=float(node["momentum"]),
            training=False,
        )
    )
    empty = [node.full([0], 0, dtype) if at in node.read else None for at in (1, 2)]
    return [node.cast(node.emit(both[0]), node.dtype), *empty]


def _moments(node: Node, value: Any, axes: list[int], eps: float) -> tuple[Any, Any, Any]:
    """Mean, reciprocal deviation and centred values."""
    relax, dtype = _tvm.tvm.relax, wide(node.dtype)
    mean = node.emit(relax.op.mean(value, axes, True))
    centred = node.emit(relax.op.subtract(value, mean))
    variance = node.emit(relax.op.mean(relax.op.multiply(centred, centred), axes, True))
    rstd = node.emit(relax.op.rsqrt(relax.op.add(variance, node.const(eps, dtype))))
    return mean, rstd, centred


def _layer_norm(node: Node) -> Any:
    """TVM's layer norm, and the statistics beside it where somebody reads them."""
    relax, dtype = _tvm.tvm.relax, wide(node.dtype)
    wanted = [int(extent) for extent in node["normalized_shape"]]
    axes = list(range(-len(wanted), 0))
    weight, bias = _norm_parameters(node, wanted, dtype)
    value = node.cast(node["input"], dtype)
    eps = float(node["eps"])
    result = node.emit(relax.op.nn.layer_norm(value, weight, bias, axes=axes, epsilon=eps))
    if not node.read & {1, 2}:
        return [node.cast(result, node.dtype)]
    mean, rstd, _ = _moments(node, value, axes, eps)
    statistics = [str(fake.dtype).removeprefix("torch.") for fake in node.fake[1:]]
    return [
        node.cast(result, node.dtype),
        node.cast(mean, statistics[0]),
        node.cast(rstd, statistics[1]),
    ]


def _group_norm(node: Node) -> Any:
    relax, dtype = _tvm.tvm.relax, wide(node.dtype)
    batch, channels, groups = int(node["N"]), int(node["C"]), int(node["group"])
    size, shape = int(node["HxW"]), node.shape
    value = node.cast(node["input"], dtype)
    value = node.reshape(value, [batch, groups, channels // groups * size])
    mean, rstd, centred = _moments(node, value, [2], float(node["eps"]))
    result = node.reshape(node.emit(relax.op.multiply(centred, rstd)), shape)
    across = [1, channels, *[1] * (len(shape) - 2)]
    if node["weight"] is not None:
        weight = node.reshape(node.cast(node["weight"], dtype), across)
        result = node.emit(relax.op.multiply(result, weight))
    if node["bias"] is not None:
        bias = node.reshape(node.cast(node["bias"], dtype), across)
        result = node.emit(relax.op.add(result, bias))
    statistics = [node.cast(node.reshape(v, [batch, groups]), node.dtype) for v in (mean, rstd)]
    return [node.cast(result, node.dtype), *statistics]


def _windows(node: Node, rank: int) -> pooling.Window:
    kernel = _each(node["kernel_size"], rank)
    stride = _each(node["stride"], rank) if node["stride"] else kernel
    dilation = _each(node["dilation"], rank) if "dilation" in node.raw else [1] * rank
    padding = _each(node["padding"], rank)
    window = pooling.Window(kernel, stride, dilation, padding, padding, node.shape[-rank:])
    if window.is_single:
        # It may be larger than what it lies over: global pooling is written like that, too.
        extents = node.shape_of("self")[-rank:]
        return replace(window, kernel=list(map(min, kernel, extents)))
    return window


def _is_rounded(node: Node, window: pooling.Window) -> bool:
    """Whether windows that are not whole count."""
    return bool(node["ceil_mode"]) and not window.is_single


_POOL_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pooled(node: Node, rank: int, function: Callable[[Any], Any]) -> Any:
    """Pools with a batch dimension in front where the model has none."""
    shape = node.shape_of("self")
    given = node["self"] if len(shape) == rank + 2 else node.reshape(node["self"], [1, *shape])
    return node.reshape(node.emit(function(given)), node.shape)


def _max_pool(rank: int) -> Lowering:
    def lower(node: Node) -> Any:
        relax = _tvm.tvm.relax
        window = _windows(node, rank)
        both: Any = None
        rounded = _is_rounded(node, window)
        if 1 in node.read or rounded:
            both = node.te(
                lambda x: pooling.max_with_positions(
                    x, window, pooling.steps_through(x.shape, rank)
                ),
                node.comparable("self"),
            )
        if rounded:
            value = node.cast(node.emit(relax.TupleGetItem(both, 0)), node.dtype)
        else:
            value = _pooled(
                node,
                rank,
                lambda x: getattr(relax.op.nn, f"max_pool{rank}d")(
                    x,
                    window.kernel,
                    window.strides,
                    window.before,
                    window.dilations,
                    layout=_POOL_LAYOUTS[rank],
                ),
            )
        return [value, node.emit(relax.TupleGetItem(both, 1))] if 1 in node.read else [value]

    return lower


def _average_pool(rank: int) -> Lowering:
    def lower(node: Node) -> Any:
        relax = _tvm.tvm.relax
        window = _windows(node, rank)
        include = bool(node["count_include_pad"])
        divisor = node.raw.get("divisor_override")
        rounded = _is_rounded(node, window)
        if divisor is None and not rounded and wide(node.dtype) == node.dtype:
            return _pooled(
                node,
                rank,
                lambda x: getattr(relax.op.nn, f"avg_pool{rank}d")(
                    x,
                    window.kernel,
                    window.strides,
                    window.before,
                    count_include_pad=include,
                    layout=_POOL_LAYOUTS[rank],
                ),
            )
        return node.te(lambda x: pooling.average(x, window, include, divisor), node["self"])

    return lower


def _adaptive_average(rank: int) -> Lowering:
    def lower(node: Node) -> Any:
        relax, dtype = _tvm.tvm.relax, wide(node.dtype)
        inner, outer = node.shape_of("self")[-rank:], node.shape[-rank:]
        if all(n % out == 0 for n, out in zip(inner, outer, strict=True)) and dtype == node.dtype:
            function = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")
            return _pooled(node, rank, lambda x: function(x, outer, layout=_POOL_LAYOUTS[rank]))
        value = node.te(
            lambda x: pooling.adaptive_average(x, node.shape, rank), node.cast(node["self"], dtype)
        )
        return node.cast(value, node.dtype)

    return lower


def _adaptive_max(rank: int) -> Lowering:
    def lower(node: Node) -> Any:
        relax = _tvm.tvm.relax
        both = node.te(lambda x: pooling.adaptive_max(x, node.shape, rank), node.comparable("self"))
        value, index = (node.emit(relax.TupleGetItem(both, at)) for at in range(2))
        return [node.cast(value, node.dtype), index]

    return lower


def _nearest(rank: int, exact: bool = False) -> Lowering:
    def lower(node: Node) -> Any:
        relax, value = _tvm.tvm.relax, node["input"]
        shape = node.shape_of("input")
        for axis, scale in _resized(node, rank):
            size, wanted = shape[axis], node.shape[axis]
            shape = [*shape[:axis], wanted, *shape[axis + 1 :]]
            positions = resize.nearest(size, wanted, scale, exact)
            times = wanted // size
            if wanted % size == 0 and (positions == np.arange(wanted) // times).all():
                value = node.te(
                    lambda x, axis=axis, times=times, shape=shape: resize.repeat(
                        x, times, axis, shape
                    ),
                    value,
                )
            else:
                value = node.te(
                    lambda x, p, axis=axis, shape=shape: resize.pick(x, p, axis, shape),
                    value,
                    relax.const(positions),
                )
        return value

    return lower


def _interpolated(rank: int, weights: Callable[..., Any]) -> Lowering:
    def lower(node: Node) -> Any:
        relax, dtype, shape = _tvm.tvm.relax, wide(node.dtype), node.shape_of("input")
        if not dtype.startswith("float"):
            raise NotLoweredError("interpolation of integers")
        value = node.cast(node["input"], dtype)
        for axis, scale in _resized(node, rank):
            size, wanted = shape[axis], node.shape[axis]
            shape = [*shape[:axis], wanted, *shape[axis + 1 :]]
            positions, shares = weights(size, wanted, scale, bool(node["align_corners"]))
            value = node.te(
                lambda x, p, w, axis=axis, shape=shape: resize.resample(x, p, w, axis, shape),
                value,
                relax.const(positions.astype("int32")),
                relax.const(shares.astype(dtype), dtype),
            )
        return node.cast(value, node.dtype)

    return lower


def _resized(node: Node, rank: int) -> list[tuple[int, float | None]]:
    """The axes that are resampled, each with the factor that the model gives."""
    factors = node.raw.get("scale_factors")
    if factors is None:
        factors = [node.raw.get(name) for name in ("scales_d", "scales_h", "scales_w", "scales")]
        factors = [factor for factor in factors if factor is not None]
        factors = factors if len(factors) == rank else [None] * rank
    first = len(node.shape) - rank
    return [(first + n, factor) for n, factor in enumerate(factors)]


def _distances(node: Node) -> Any:
    p = float(node["p"])
    return node.te(lambda a, b: extremes.distances(a, b, p, node.shape), node["x1"], node["x2"])


NETWORK: dict[str, Lowering] = {
    "mm.default": _matmul("self", "mat2"),
    "bmm.default": _matmul("self", "mat2"),
    "addmm.default": _addmm("mat1", "mat2"),
    "baddbmm.default": _addmm("batch1", "batch2"),
    "convolution.default": _convolution,
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "avg_pool1d.default": _average_pool(1),
    "avg_pool2d.default": _average_pool(2),
    "avg_pool3d.default": _average_pool(3),
    "_adaptive_avg_pool2d.default": _adaptive_average(2),
    "_adaptive_avg_pool3d.default": _adaptive_average(3),
    "adaptive_max_pool2d.default": _adaptive_max(2),
    "adaptive_max_pool3d.default": _adaptive_max(3),
    **{f"upsample_nearest{n}d.vec": _nearest(n) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d.vec": _nearest(n, True) for n in (1, 2, 3)},
    "upsample_linear1d.vec": _interpolated(1, resize.linear),
    "upsample_bilinear2d.vec": _interpolated(2, resize.linear),
    "upsample_trilinear3d.vec": _interpolated(3, resize.linear),
    "upsample_bicubic2d.vec": _interpolated(2, resize.cubic),
    "_cdist_forward.default": _distances,
}
