"""Normalisations from means and products, for element types that TVM's own do not take.

TVM lowers layer, group and instance norm of float32 and float16 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm


def standardized(data: Any, axes: Sequence[int], epsilon: float) -> Any:
    """``(data - mean) / sqrt(variance + epsilon)`` over ``axes``, in the type of ``data``."""
    op, dtype = _tvm.tvm.relax.op, str(data.ty.dtype)
    centred = op.subtract(data, op.mean(data, list(axes), keepdims=True))
    variance = op.mean(op.multiply(centred, centred), list(axes), keepdims=True)
    return op.multiply(centred, op.rsqrt(op.add(variance, _tvm.tvm.relax.const(epsilon, dtype))))


def layer_norm(call: Any) -> Any:
    """What a call of ``relax.nn.layer_norm`` computes."""
    rank = len(call.args[0].ty.shape)
    axes = sorted(int(axis) % rank for axis in call.attrs.axes)
    return _affine(call, standardized(call.args[0], axes, float(call.attrs.epsilon)), axes)


def instance_norm(call: Any) -> Any:
    """What a call of ``relax.nn.instance_norm`` computes."""
    axes = [int(axis) for axis in call.attrs.axes]
    channel = [int(call.attrs.channel_axis)]
    return _affine(call, standardized(call.args[0], axes, float(call.attrs.epsilon)), channel)


def group_norm(call: Any) -> Any:
    """What a call of ``relax.nn.group_norm`` computes."""
    op, data, attrs = _tvm.tvm.relax.op, call.args[0], call.attrs
    shape = [int(extent) for extent in data.ty.shape]
    channel = int(attrs.channel_axis) % len(shape)
    groups = int(attrs.num_groups)
    split = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
    others = [int(axis) % len(shape) for axis in attrs.axes]
    # The members of a group are one more axis, behind that of the groups.
    axes = [channel + 1, *(axis + (axis > channel) for axis in others)]
    builder = _tvm.tvm.relax.BlockBuilder()
    grouped = builder.normalize(op.reshape(data, split))
    return _affine(
        call, op.reshape(standardized(grouped, axes, float(attrs.epsilon)), shape), [channel]
    )


def _affine(call: Any, normal: Any, axes: Sequence[int]) -> Any:
    """``normal * gamma + beta``, the weights lying along ``axes`` of the data."""
    op, shape = _tvm.tvm.relax.op, [int(extent) for extent in call.args[0].ty.shape]
    rank = len(shape)
    along = [shape[axis] if axis in {a % rank for a in axes} else 1 for axis in range(rank)]
    if call.attrs.scale:
        normal = op.multiply(normal, op.reshape(call.args[1], along))
    if call.attrs.center:
        normal = op.add(normal, op.reshape(call.args[2], along))
    return normal


NORMALIZATIONS = {
    "relax.nn.layer_norm": layer_norm,
    "relax.nn.instance_norm": instance_norm,
    "relax.nn.group_norm": group_norm,
}
"""Relax operator to what it computes, in other operators."""
