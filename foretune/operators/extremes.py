"""Largest and smallest elements, where they stand, and distances, in TE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from foretune import _tvm
from foretune.operators._read import value_at


def lowest(dtype: str, largest: bool = True) -> Any:
    """What every element is larger than, or as large as (or smaller, unless ``largest``)."""
    tirx = _tvm.tvm.tirx
    if dtype.startswith(("float", "bfloat")):
        return tirx.const(float("-inf") if largest else float("inf"), dtype)
    return tirx.min_value(dtype) if largest else tirx.max_value(dtype)


def extreme(x: Any, axes: Sequence[int], keepdims: bool, largest: bool) -> Any:
    """Maximum or minimum over axes; of no element, or of infinities alone, it is infinite.

    TVM's begins at the largest finite number, so that the maximum of ``-inf`` comes out finite.

    Args:
        x: The data.
        axes: Axes to reduce, not negative, in ascending order.
        keepdims: Whether they stay with extent 1.
        largest: Maximum, else minimum.
    """
    te, tirx = _tvm.tvm.te, _tvm.tvm.tirx

    def pick(one: Any, other: Any) -> Any:
        return tirx.Max(one, other) if largest else tirx.Min(one, other)

    reducer = te.comm_reducer(pick, lambda dtype: lowest(str(dtype), largest), name="extreme")
    shape = [int(extent) for extent in x.shape]
    reduced = [te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes]
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    result = [1 if a in axes else e for a, e in enumerate(shape) if keepdims or a not in axes]

    def element(*at: Any) -> Any:
        place = dict(zip(axes, reduced, strict=True))
        own = at if not keepdims else tuple(at[axis] for axis in kept)
        place |= dict(zip(kept, own, strict=True))
        return reducer(value_at(x, *(place[axis] for axis in range(len(shape)))), axis=reduced)

    return te.compute(tuple(result), element, name="extreme")


def extreme_reducer(dtype: str, largest: bool, last_nan: bool = False) -> Any:
    """A reduction of pairs of position and value to the most extreme, the first of equal ones.

    NaN counts as more extreme than every number, as in PyTorch and NumPy.

    Args:
        dtype: Element type; not bfloat16, which TVM compares by its bits.
        largest: Else the smallest.
        last_nan: Of several NaN the last one counts, as in PyTorch's pooling.
    """
    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    is_float = dtype.startswith(("float", "bfloat"))

    def wins(a: Any, b: Any) -> Any:
        beats = a > b if largest else a < b
        if not is_float:
            return beats
        return tirx.all(tirx.Not(tirx.isnan(b)), tirx.any(tirx.isnan(a), beats))

    def combine(left: Any, right: Any) -> Any:
        (i, a), (j, b) = left, right
        keep = tirx.any(wins(a, b), tirx.all(a == b, i < j))
        if is_float:
            earlier = i > j if last_nan else i < j
            keep = tirx.any(keep, tirx.all(tirx.isnan(a), tirx.isnan(b), earlier))
        return tirx.Select(keep, i, j), tirx.Select(keep, a, b)

    def identity(index: Any, value: Any) -> Any:
        return tirx.max_value(index), lowest(dtype, largest)

    return te.comm_reducer(combine, identity)


def arg_extreme(x: Any, axis: int, largest: bool) -> Any:
    """The largest (or smallest) elements along an axis and where they stand first.

    Args:
        x: Of rank 1 or more; the axis is not empty.
        axis: From 0.
        largest: Else the smallest.

    Returns:
        Values and positions (int64), without the axis.
    """
    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    reducer = extreme_reducer(str(x.dtype), largest)
    along = te.reduce_axis((0, int(x.shape[axis])), "along")
    shape = [extent for at, extent in enumerate(x.shape) if at != axis]

    def element(*at: Any) -> Any:
        position = (*at[:axis], along, *at[axis:])
        return reducer((tirx.Cast("int64", along.var), value_at(x, *position)), axis=along)

    index, value = te.compute(shape, element)
    return value, index


def running_extreme(x: Any, axis: int, largest: bool) -> Any:
    """The extreme of all elements up to each, and where it stood last, as ``torch.cummax``.

    Returns:
        Values and positions (int64), in the shape of ``x``.
    """
    te, tirx = _tvm.tvm.te, _tvm.tvm.tirx
    is_float = str(x.dtype).startswith(("float", "bfloat"))
    extent = int(x.shape[axis])

    def wins(a: Any, b: Any) -> Any:
        """Whether a newer ``b`` replaces ``a``."""
        beats = b >= a if largest else b <= a
        return tirx.any(tirx.isnan(b), beats) if is_float else beats

    def combine(left: Any, right: Any) -> Any:
        (i, a), (j, b) = left, right
        newer = j > i
        first, second = tirx.Select(newer, i, j), tirx.Select(newer, j, i)
        old, new = tirx.Select(newer, a, b), tirx.Select(newer, b, a)
        take = tirx.any(first < tirx.const(0, "int64"), wins(old, new))
        return tirx.Select(take, second, first), tirx.Select(take, new, old)

    def identity(index: Any, value: Any) -> Any:
        return tirx.const(-1, "int64"), tirx.const(0, str(value))

    reducer = te.comm_reducer(combine, identity)
    along = te.reduce_axis((0, extent), "along")

    def element(*at: Any) -> Any:
        here, own = tirx.Cast("int64", along.var), tirx.Cast("int64", at[axis])
        place = tirx.Select(here <= own, here, own)
        return reducer((place, value_at(x, *at[:axis], place, *at[axis + 1 :])), axis=along)

    index, value = te.compute(x.shape, element)
    return value, index


def distances(a: Any, b: Any, p: float, shape: Sequence[int]) -> Any:
    """The p-norm of the difference of each row of ``a`` from each row of ``b``.

    Args:
        a: ``(..., rows, width)``; leading dimensions are broadcast with those of ``b``.
        b: ``(..., columns, width)``.
        p: 0 counts differences, infinity takes the largest.
        shape: ``(..., rows, columns)``.
    """
    te, tirx, dtype = _tvm.tvm.te, _tvm.tvm.tirx, str(a.dtype)
    along = te.reduce_axis((0, int(a.shape[-1])), "along")

    def read(tensor: Any, leading: Sequence[Any], row: Any) -> Any:
        own = list(leading)[len(leading) - (len(tensor.shape) - 2) :]
        sizes = zip(own, tensor.shape[:-2], strict=True)
        return value_at(tensor, *(0 if int(n) == 1 else i for i, n in sizes), row, along.var)

    def element(*at: Any) -> Any:
        difference = tirx.abs(read(a, at[:-2], at[-2]) - read(b, at[:-2], at[-1]))
        if math.isinf(p):
            return te.max(difference, axis=along)
        if p == 0:
            one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
            return te.sum(tirx.Select(difference == zero, zero, one), axis=along)
        power = difference if p == 1 else difference * difference
        power = power if p in (1, 2) else tirx.power(difference, tirx.const(p, dtype))
        return te.sum(power, axis=along)

    total = te.compute(shape, element)
    if math.isinf(p) or p in (0, 1):
        return total
    if p == 2:
        return te.compute(shape, lambda *at: tirx.sqrt(total[at]))
    return te.compute(shape, lambda *at: tirx.power(total[at], tirx.const(1 / p, dtype)))
