"""Reading and moving elements by position, in TE.

Positions that are computed while the network runs are counted from the end where they are
negative, and are kept inside their dimension: nothing here reads outside a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm
from foretune.operators._read import value_at


def inside(position: Any, extent: int) -> Any:
    """A position that may be negative, from the front and within 0 .. extent - 1."""
    tirx = _tvm.tvm.tirx
    dtype = str(position.ty.dtype)
    size, zero = tirx.const(extent, dtype), tirx.const(0, dtype)
    if not dtype.startswith("uint"):
        position = tirx.Select(position < zero, position + size, position)
    return tirx.max(tirx.min(position, tirx.const(extent - 1, dtype)), zero)


def index(x: Any, positions: Sequence[Any], axes: Sequence[int], shape: Sequence[int]) -> Any:
    """``x[..., positions, ...]`` as NumPy and PyTorch have it.

    Args:
        x: What is read.
        positions: One integer tensor per axis of ``axes``; they are broadcast.
        axes: Ascending. Where they are neighbours the new dimensions stand in their place, else
            in front.
        shape: Of the result.
    """
    te = _tvm.tvm.te
    rank = max(len(position.shape) for position in positions)
    together = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if together else 0

    def element(*at: Any) -> Any:
        picked, rest = at[first : first + rank], iter((*at[:first], *at[first + rank :]))
        read = {
            axis: inside(_at(position, picked), int(x.shape[axis]))
            for axis, position in zip(axes, positions, strict=True)
        }
        return value_at(
            x, *(read[axis] if axis in read else next(rest) for axis in range(len(x.shape)))
        )

    return te.compute(shape, element)


def _at(tensor: Any, at: Sequence[Any]) -> Any:
    own = list(at)[len(at) - len(tensor.shape) :]
    sizes = zip(own, tensor.shape, strict=True)
    return value_at(tensor, *(0 if int(n) == 1 else i for i, n in sizes))


def gather(x: Any, position: Any, axis: int) -> Any:
    """``out[i, j, k] = x[i, position[i, j, k], k]`` for axis 1, and likewise."""

    def element(*at: Any) -> Any:
        chosen = inside(value_at(position, *at), int(x.shape[axis]))
        return value_at(x, *at[:axis], chosen, *at[axis + 1 :])

    return _tvm.tvm.te.compute(position.shape, element)


def diagonal(x: Any, offset: int, first: int, second: int) -> Any:
    """The diagonal of two axes, as the last axis."""
    down, right = max(-offset, 0), max(offset, 0)
    length = min(int(x.shape[first]) - down, int(x.shape[second]) - right)
    kept = [axis for axis in range(len(x.shape)) if axis not in (first, second)]
    shape = [*(x.shape[axis] for axis in kept), length]

    def element(*at: Any) -> Any:
        read = dict(zip(kept, at[:-1], strict=True))
        read |= {first: at[-1] + down, second: at[-1] + right}
        return value_at(x, *(read[axis] for axis in range(len(x.shape))))

    return _tvm.tvm.te.compute(shape, element)


def strided(flat: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """A view of flat memory by its strides."""

    def element(*at: Any) -> Any:
        place: Any = offset
        for position, stride in zip(at, strides, strict=True):
            place = place + position * stride
        return flat[place]

    return _tvm.tvm.te.compute(shape, element)


def windows(x: Any, axis: int, shape: Sequence[int], step: int) -> Any:
    """Windows of an axis, ``step`` apart: their elements become the last axis."""

    def element(*at: Any) -> Any:
        return value_at(x, *at[:axis], at[axis] * step + at[-1], *at[axis + 1 : -1])

    return _tvm.tvm.te.compute(shape, element)


def padded_by_itself(x: Any, shape: Sequence[int], before: Sequence[int], replicate: bool) -> Any:
    """Borders filled with the edge (``replicate``), or with what lies inside of it, mirrored."""
    tirx = _tvm.tvm.tirx

    def place(at: Any, pad: int, extent: int, wanted: int) -> Any:
        if not pad and extent == wanted:
            return at
        position = at - pad
        if replicate:
            return tirx.max(tirx.min(position, extent - 1), 0)
        mirrored = tirx.Select(position < 0, 0 - position, position)
        return tirx.Select(mirrored > extent - 1, 2 * (extent - 1) - mirrored, mirrored)

    def element(*at: Any) -> Any:
        sizes = zip(at, before, x.shape, shape, strict=True)
        return value_at(x, *(place(i, pad, int(n), int(wanted)) for i, pad, n, wanted in sizes))

    return _tvm.tvm.te.compute(shape, element)


def triangle(x: Any, diagonal: int, lower: bool) -> Any:
    """The elements on and below (or above) a diagonal; zeros elsewhere."""
    tirx = _tvm.tvm.tirx

    def element(*at: Any) -> Any:
        kept = at[-1] <= at[-2] + diagonal if lower else at[-1] >= at[-2] + diagonal
        return tirx.Select(kept, value_at(x, *at), tirx.const(0, str(x.dtype)))

    return _tvm.tvm.te.compute(x.shape, element)


def overwrite(x: Any, part: Any, axis: int, start: int, step: int) -> Any:
    """``x`` with every ``step``-th element of an axis from ``start`` taken from ``part``."""
    tirx, count = _tvm.tvm.tirx, int(part.shape[axis])

    def element(*at: Any) -> Any:
        away = at[axis] - start
        taken = tirx.all(away >= 0, away < count * step, tirx.floormod(away, step) == 0)
        place = tirx.max(tirx.min(tirx.floordiv(away, step), count - 1), 0)
        return tirx.if_then_else(
            taken, value_at(part, *at[:axis], place, *at[axis + 1 :]), value_at(x, *at)
        )

    return _tvm.tvm.te.compute(x.shape, element)
