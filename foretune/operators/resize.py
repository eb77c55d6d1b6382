"""Resampling of one axis: nearest, linear and cubic interpolation, each a few weighted reads.

Positions and weights are constants, computed in float32 as PyTorch computes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretune import _tvm
from foretune._arrays import Array
from foretune.operators._read import value_at

_CUBIC = -0.75


def resample(x: Any, positions: Any, weights: Any, axis: int, shape: list[int]) -> Any:
    """``out[.., o, ..] = sum over t of weights[o, t] * x[.., positions[o, t], ..]``."""
    taps = int(positions.shape[1])

    def element(*at: Any) -> Any:
        total: Any = None
        for tap in range(taps):
            read = value_at(x, *at[:axis], positions[at[axis], tap], *at[axis + 1 :])
            part = read * weights[at[axis], tap]
            total = part if total is None else total + part
        return total

    return _tvm.tvm.te.compute(shape, element)


def pick(x: Any, positions: Any, axis: int, shape: list[int]) -> Any:
    """``out[.., o, ..] = x[.., positions[o], ..]``."""

    def element(*at: Any) -> Any:
        return value_at(x, *at[:axis], positions[at[axis]], *at[axis + 1 :])

    return _tvm.tvm.te.compute(shape, element)


def repeat(x: Any, times: int, axis: int, shape: list[int]) -> Any:
    """Each element of an axis ``times`` times."""
    floordiv = _tvm.tvm.tirx.floordiv

    def element(*at: Any) -> Any:
        return value_at(x, *at[:axis], floordiv(at[axis], times), *at[axis + 1 :])

    return _tvm.tvm.te.compute(shape, element)


def nearest(size: int, wanted: int, scale: float | None, exact: bool) -> Array:
    """Where each element of the result is read."""
    step = np.float32(1.0 / scale) if scale else np.float32(size) / np.float32(wanted)
    at = np.arange(wanted, dtype=np.float32) + np.float32(0.5 if exact else 0.0)
    positions: Array = np.minimum(np.floor(at * step), size - 1).astype(np.int32)
    return positions


def source(size: int, wanted: int, scale: float | None, align: bool) -> Array:
    """The real-valued position that each element of the result is read at."""
    at = np.arange(wanted, dtype=np.float32)
    if align:
        step = np.float32((size - 1) / (wanted - 1)) if wanted > 1 else np.float32(0)
        aligned: Array = at * step
        return aligned
    step = np.float32(1.0 / scale) if scale else np.float32(size / wanted)
    half = np.float32(0.5)
    result: Array = (at + half) * step - half
    return result


def linear(size: int, wanted: int, scale: float | None, align: bool) -> tuple[Array, Array]:
    """Positions and weights of the two neighbours."""
    at = np.maximum(source(size, wanted, scale, align), 0)
    left = np.minimum(np.floor(at).astype(np.int32), size - 1)
    share = np.clip(at - left, 0, 1).astype(np.float32)
    positions = np.stack([left, np.minimum(left + 1, size - 1)], axis=1)
    return positions, np.stack([1 - share, share], axis=1)


def cubic(size: int, wanted: int, scale: float | None, align: bool) -> tuple[Array, Array]:
    """Positions and weights of four neighbours (Keys' kernel, a = -0.75)."""
    at = source(size, wanted, scale, align)
    left = np.floor(at).astype(np.int32)
    share = (at - left).astype(np.float32)
    weights = np.stack([_far(share + 1), _near(share), _near(1 - share), _far(2 - share)], axis=1)
    positions = np.clip(left[:, None] + np.arange(-1, 3, dtype=np.int32), 0, size - 1)
    return positions, weights.astype(np.float32)


def _near(distance: Array) -> Array:
    """Keys' kernel within 1 of its centre."""
    weight: Array = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    return weight


def _far(distance: Array) -> Array:
    """Keys' kernel from 1 to 2 of its centre."""
    cubes = (_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC
    weight: Array = cubes * distance - 4 * _CUBIC
    return weight
