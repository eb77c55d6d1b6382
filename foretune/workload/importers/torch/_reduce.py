"""Operators that reduce or scan dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from foretune import _tvm
from foretune.operators import extremes
from foretune.workload.importers.torch._node import HALF, Lowering, Node, wide


def _arguments(node: Node) -> tuple[list[int], bool]:
    dims = node.axes("dim") if "dim" in node.raw else list(range(len(node.raw["self"].shape)))
    return dims, bool(node["keepdim"]) if "keepdim" in node.raw else False


def _reduction(name: str) -> Lowering:
    def lower(node: Node) -> Any:
        axes, keep = _arguments(node)
        value = node.cast(node["self"], wide(node.dtype))
        if not node.shape_of("self"):
            return node.cast(value, node.dtype)
        if 0 in node.shape_of("self"):
            return node.full(node.shape, {"sum": 0, "prod": 1}.get(name, math.nan), node.dtype)
        function: Callable[..., Any] = getattr(_tvm.tvm.relax.op, name)
        return node.cast(node.emit(function(value, axes, keep)), node.dtype)

    return lower


def _extreme(name: str) -> Lowering:
    """Largest or smallest elements; NaN where one of them is."""

    def lower(node: Node) -> Any:
        axes, keep = _arguments(node)
        value = node["self"]
        if not node.shape_of("self"):
            return value
        if node.dtype == "bool":
            whole = node.cast(value, "int8")
            return node.cast(node.emit(getattr(_tvm.tvm.relax.op, name)(whole, axes, keep)), "bool")
        if node.dtype.startswith(("float", "bfloat")):
            return node.te(lambda x: extremes.extreme(x, axes, keep, name == "max"), value)
        return node.emit(getattr(_tvm.tvm.relax.op, name)(value, axes, keep))

    return lower


def _any(node: Node) -> Any:
    axes, keep = _arguments(node)
    value = node.cast(node.cast(node["self"], "bool"), "int8")
    if 0 in node.shape_of("self"):
        return node.full(node.shape, 0, node.dtype)
    if node.shape_of("self"):
        value = node.emit(_tvm.tvm.relax.op.max(value, axes, keep))
    return node.cast(value, node.dtype)


def _all(node: Node) -> Any:
    axes, keep = _arguments(node)
    value = node.cast(node.cast(node["self"], "bool"), "int8")
    if 0 in node.shape_of("self"):
        return node.full(node.shape, 1, node.dtype)
    if node.shape_of("self"):
        value = node.emit(_tvm.tvm.relax.op.min(value, axes, keep))
    return node.cast(value, node.dtype)


def _variance(node: Node) -> Any:
    relax = _tvm.tvm.relax
    axes, keep = _arguments(node)
    shape = node.shape_of("self")
    count = 1
    for axis in axes:
        count *= shape[axis]
    correction = node["correction"] if "correction" in node.raw else int(node["unbiased"])
    correction = 1 if correction is None else correction
    if 0 in shape:
        return node.full(node.shape, math.nan, node.dtype)
    value = node.cast(node["self"], wide(node.dtype))
    if not shape:
        value, axes, keep = node.reshape(value, [1]), [0], False
    dtype = wide(node.dtype)
    mean = node.emit(relax.op.mean(value, axes, True))
    centred = node.emit(relax.op.subtract(value, mean))
    total = node.emit(relax.op.sum(relax.op.multiply(centred, centred), axes, keep))
    degrees = max(float(count) - float(correction), 0.0)
    if degrees == 0:  # TVM folds a division by 0 into an error; this gives NaN and infinity too
        result = relax.op.multiply(total, node.const(float("inf"), dtype))
    else:
        result = relax.op.divide(total, node.const(degrees, dtype))
    return node.cast(node.emit(result), node.dtype)


def _arg(largest: bool) -> Lowering:
    def lower(node: Node) -> Any:
        shape, value = node.shape_of("self"), node.comparable("self")
        if not shape:
            return node.full([], 0, "int64")
        if node["dim"] is None:
            value, axis = node.reshape(value, [_count(shape)]), 0
        else:
            axis = node.axis("dim")
        index = node.te(lambda x: extremes.arg_extreme(x, axis, largest)[1], value)
        return node.reshape(index, node.shape)

    return lower


def _extreme_with_index(largest: bool) -> Lowering:
    def lower(node: Node) -> Any:
        if not node.shape_of("self"):
            return [node["self"], node.full([], 0, "int64")]
        axis = node.axis("dim")
        given = node.dtype_of("self")
        both = node.te(lambda x: extremes.arg_extreme(x, axis, largest), node.comparable("self"))
        relax = _tvm.tvm.relax
        value, index = (node.emit(relax.TupleGetItem(both, at)) for at in range(2))
        return [node.reshape(node.cast(value, given), node.shape), node.reshape(index, node.shape)]

    return lower


def _cumulative(name: str) -> Lowering:
    def lower(node: Node) -> Any:
        if not node.shape_of("self"):
            return node.cast(node["self"], node.dtype)
        axis, dtype = node.axis("dim"), wide(node.dtype)
        value = node.cast(node["self"], dtype)
        function = getattr(_tvm.tvm.relax.op, name)
        return node.cast(node.emit(function(value, axis, dtype)), node.dtype)

    return lower


def _cumulative_extreme(largest: bool) -> Lowering:
    def lower(node: Node) -> Any:
        if not node.shape_of("self"):
            return [node["self"], node.full([], 0, "int64")]
        relax, axis = _tvm.tvm.relax, node.axis("dim")
        given = node.dtype_of("self")
        both = node.te(
            lambda x: extremes.running_extreme(x, axis, largest), node.comparable("self")
        )
        return [
            node.cast(node.emit(relax.TupleGetItem(both, 0)), given),
            node.emit(relax.TupleGetItem(both, 1)),
        ]

    return lower


def _sortable(node: Node, value: Any) -> Any:
    """Numbers that compare: NaN is sorted as infinity, which PyTorch has just before it."""
    relax = _tvm.tvm.relax
    dtype = str(value.ty.dtype)
    if not dtype.startswith("float"):
        return value
    lost = node.emit(relax.op.isnan(value))
    return node.emit(relax.op.where(lost, node.const(math.inf, dtype), value))


def _sorted(node: Node) -> Any:
    relax = _tvm.tvm.relax
    if not node.shape_of("self"):
        return [node["self"], node.full([], 0, "int64")]
    axis, given = node.axis("dim"), node.dtype_of("self")
    value = node["self"]
    value = node.cast(value, wide(given)) if given in HALF else value
    key = _sortable(node, value)
    index = node.emit(relax.op.argsort(key, axis, bool(node["descending"]), "int64"))
    ordered = node.emit(relax.op.gather_elements(value, index, axis))
    return [node.cast(ordered, given), index]


def _top(node: Node) -> Any:
    relax = _tvm.tvm.relax
    if not node.shape_of("self"):
        return [node["self"], node.full([], 0, "int64")]
    axis, given, k = node.axis("dim"), node.dtype_of("self"), int(node["k"])
    if k == 0:
        return [node.full(node.shape, 0, given), node.full(node.shape, 0, "int64")]
    value = node.cast(node["self"], "float32") if given in HALF else node["self"]
    key = _sortable(node, value)
    index = node.emit(relax.op.argsort(key, axis, bool(node["largest"]), "int64"))
    index = node.emit(relax.op.strided_slice(index, [axis], [0], [k]))
    ordered = node.emit(relax.op.gather_elements(value, index, axis))
    return [node.cast(ordered, given), index]


def _softmax(name: str) -> Lowering:
    def lower(node: Node) -> Any:
        value = node.cast(node["self"], wide(node.dtype))
        if not node.shape_of("self"):
            return node.full([], 1 if name == "softmax" else 0, node.dtype)
        function = getattr(_tvm.tvm.relax.op.nn, name)
        return node.cast(node.emit(function(value, node.axis("dim"))), node.dtype)

    return lower


def _count(shape: list[int]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


REDUCTIONS: dict[str, Lowering] = {
    "sum.default": _reduction("sum"),
    "sum.dim_IntList": _reduction("sum"),
    "mean.default": _reduction("mean"),
    "mean.dim": _reduction("mean"),
    "prod.default": _reduction("prod"),
    "prod.dim_int": _reduction("prod"),
    "amax.default": _extreme("max"),
    "amin.default": _extreme("min"),
    "max.default": _extreme("max"),
    "min.default": _extreme("min"),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "all.default": _all,
    "all.dim": _all,
    "all.dims": _all,
    "var.correction": _variance,
    "var.dim": _variance,
    "argmax.default": _arg(True),
    "argmin.default": _arg(False),
    "max.dim": _extreme_with_index(True),
    "min.dim": _extreme_with_index(False),
    "cumsum.default": _cumulative("cumsum"),
    "cumprod.default": _cumulative("cumprod"),
    "cummax.default": _cumulative_extreme(True),
    "cummin.default": _cumulative_extreme(False),
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "topk.default": _top,
    "_softmax.default": _softmax("softmax"),
    "_log_softmax.default": _softmax("log_softmax"),
}
