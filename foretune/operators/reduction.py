"""Reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm


def extreme(builder: Any, data: Any, axes: Sequence[int], keepdims: bool, largest: bool) -> Any:
    """Maximum or minimum over axes; of no element, or of infinities alone, it is infinite.

    TVM's begins at the largest finite number, so that the maximum of ``-inf`` comes out finite.

    Args:
        builder: Relax block builder.
        data: Tensor of floats.
        axes: Axes to reduce, not negative, in ascending order.
        keepdims: Whether they stay with extent 1.
        largest: Maximum, else minimum.
    """
    tvm = _tvm.tvm
    te, tirx = tvm.te, tvm.tirx

    def compute(source: Any) -> Any:
        dtype = str(source.dtype)
        edge = tirx.const(float("-inf") if largest else float("inf"), dtype)

        def pick(one: Any, other: Any) -> Any:
            return tirx.Max(one, other) if largest else tirx.Min(one, other)

        reducer = te.comm_reducer(pick, lambda _dtype: edge, name="extreme")
        shape = [int(extent) for extent in source.shape]
        reduced = [te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in axes]
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        result = [1 if a in axes else e for a, e in enumerate(shape) if keepdims or a not in axes]

        def element(*index: Any) -> Any:
            place = dict(zip(axes, reduced, strict=True))
            own = index if not keepdims else tuple(index[axis] for axis in kept)
            place |= dict(zip(kept, own, strict=True))
            return reducer(source(*[place[axis] for axis in range(len(shape))]), axis=reduced)

        return te.compute(tuple(result), element, name="extreme")

    return builder.emit_te(compute, data, primfunc_name_hint="max" if largest else "min")
