"""Convolutions with a kernel of 3 x 3 by Winograd's minimal filtering, as tensor expressions.

The idea: ``m`` neighbouring outputs of a filter of three taps need ``m + 2`` products, not ``3 m``,
once inputs, taps and outputs are in the coordinates of polynomials at ``m + 2`` points (Lavin and
Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). Of a plane, in both directions::

    V[a] = B' d B      for each tile d of (m + 2) x (m + 2) inputs, a tile for m x m outputs
    U[a] = G g G'      for each kernel g, at compile time
    M[a] = sum over the channels (and the depth of the kernel) of V[a] * U[a]
    y    = A' M A

``a`` counts the (m + 2) x (m + 2) places. The sums are one product of matrices per place, with 4
(m = 4) or 2.25 (m = 2) times fewer multiplications than the convolution. The three steps are three
programs: the first and the last are bound by memory, the product by arithmetic.

For m = 4 the points are 0, ±3/4, ±3/2 and infinity where Lavin takes 0, ±1, ±2 and infinity: the
rounding error is a quarter, and all coefficients of ``B`` are still exact in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune import _tvm
from foretune._arrays import Array, FloatArray

TAPS = 3
"""Taps of a filter in each direction of the plane."""

POINTS: dict[int, tuple[float, ...]] = {2: (0, 1, -1), 4: (0, 0.75, -0.75, 1.5, -1.5)}
"""Finite points by the outputs of a tile in one direction, zero first, then pairs."""

PAD, INPUT_ROWS, INPUT = "pad_temp", "winograd_input_rows", "winograd_input"
"""Blocks of the first step, in order; without padding the first one is not there."""

OUTPUT_ROWS, OUTPUT = "winograd_output_rows", "winograd_output"
"""Blocks of the third step, in order."""


@dataclass(frozen=True)
class Transforms:
    """The matrices for tiles of ``m`` outputs in one direction, ``n = m + 2``.

    Attributes:
        inputs: ``B'``, [n, n].
        taps: ``G``, [n, 3].
        outputs: ``A'``, [m, n].
    """

    inputs: FloatArray
    taps: FloatArray
    outputs: FloatArray


def transforms(outputs: int) -> Transforms:
    """The matrices for tiles of this many outputs, by Toom and Cook at ``POINTS``."""
    points = POINTS[outputs]
    size = len(points) + 1
    taps, result = np.zeros((size, TAPS)), np.zeros((outputs, size))
    inputs = np.zeros((size, size))
    for at, point in enumerate(points):
        others = [other for other in points if other != point]
        inputs[at, :-1] = _polynomial(others)
        taps[at] = point ** np.arange(TAPS) / np.prod([point - other for other in others])
        result[:, at] = point ** np.arange(outputs)
    inputs[-1] = _polynomial(points)
    taps[-1, -1] = result[-1, -1] = 1
    return Transforms(inputs, taps, result)


def _polynomial(roots: Sequence[float]) -> FloatArray:
    """Coefficients of the product of ``x - root``, the constant one first."""
    coefficients = np.ones(1)
    for root in roots:
        coefficients = np.convolve(coefficients, [-root, 1.0])
    return coefficients


def transformed(weight: Array, outputs: int, lanes: int) -> Array:
    """Weights in the coordinates of the product, in panels.

    Args:
        weight: ``[3, 3, inputs, channels]``, or with the depth of the kernel in front.
        outputs: Of a tile in one direction.
        lanes: Columns of a panel; divides the channels.

    Returns:
        ``[places, depth, channels / lanes, inputs, lanes]``, computed in float64, rounded once.
    """
    deep = weight.reshape(-1, *weight.shape[-4:]).astype(np.float64)
    g = transforms(outputs).taps
    tiles = np.einsum("ai,bj,dijco->abdco", g, g, deep, optimize=True)
    depth, inputs, channels = tiles.shape[2:]
    split = tiles.reshape(len(g) ** 2, depth, inputs, channels // lanes, lanes)
    return np.ascontiguousarray(np.moveaxis(split, -2, -3).astype(weight.dtype))


def tiles(extents: Sequence[int], padding: Sequence[int], outputs: int) -> tuple[int, ...]:
    """Tiles in each direction of a plane of these extents, padded at front and end."""
    rank = len(extents)
    return tuple(
        -(-(extent + front + end - TAPS + 1) // outputs)
        for extent, front, end in zip(extents, padding[:rank], padding[rank:], strict=True)
    )


def input_tiles(data: Any, padding: Sequence[int], outputs: int) -> Any:
    """The first step.

    Args:
        data: ``[batch, (depth,) height, width, inputs]``.
        padding: Front of each axis, then end of each.
        outputs: Of a tile in one direction.

    Returns:
        ``[places, batch, (padded depth,) tiles, inputs]``.
    """
    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    rank = len(data.shape) - 2
    extents = [int(extent) for extent in data.shape[1:-1]]
    front, end = list(padding[:rank]), list(padding[rank:])
    high, wide = tiles(extents[-2:], [*front[-2:], *end[-2:]], outputs)
    for axis, count in ((-2, high), (-1, wide)):
        end[axis] = count * outputs + TAPS - 1 - extents[axis] - front[axis]
    if any([*front, *end]):
        data = topi.nn.pad(data, [0, *front, 0], [0, *end, 0], name=PAD)
    depth = list(data.shape[1 : rank - 1])
    matrix = transforms(outputs).inputs
    size = len(matrix)

    def rows(place: Any, column: Any, *at: Any) -> Any:
        *outer, tile, channel = at
        h, w = tile // wide * outputs, tile % wide * outputs
        return _selected(
            matrix, place, lambda row: data(*outer, h + row, w + column, channel), _by_parity
        )

    outer = [data.shape[0], *depth, high * wide, data.shape[-1]]
    partial = te.compute((size, size, *outer), rows, name=INPUT_ROWS)

    def columns(place: Any, *at: Any) -> Any:
        return _selected(
            matrix, place % size, lambda column: partial(place // size, column, *at), _by_parity
        )

    return te.compute((size * size, *outer), columns, name=INPUT)


def products(tiled: Any, weight: Any) -> Any:
    """The second step: a product of matrices per place.

    Args:
        tiled: ``[places, batch, (padded depth,) tiles, inputs]``.
        weight: ``[places, kernel depth, channels / lanes, inputs, lanes]``.

    Returns:
        ``[places, batch, (depth,) tiles, channels / lanes, lanes]``.
    """
    te = _tvm.tvm.te
    taps = int(weight.shape[1])
    channel = te.reduce_axis((0, tiled.shape[-1]), name="ic")
    shape = [*tiled.shape[:-1], weight.shape[2], weight.shape[4]]
    if len(tiled.shape) == 4:
        return te.compute(
            shape,
            lambda a, n, t, o, lane: te.sum(
                tiled[a, n, t, channel] * weight[a, 0, o, channel, lane], axis=channel
            ),
            name="winograd_products",
        )
    shape[2] = tiled.shape[2] - taps + 1
    tap = te.reduce_axis((0, taps), name="kd")
    return te.compute(
        shape,
        lambda a, n, d, t, o, lane: te.sum(
            tiled[a, n, d + tap, t, channel] * weight[a, tap, o, channel, lane],
            axis=[tap, channel],
        ),
        name="winograd_products",
    )


def output_tiles(multiplied: Any, plane: Sequence[int]) -> Any:
    """The third step.

    Args:
        multiplied: ``[places, batch, (depth,) tiles, channels / lanes, lanes]``.
        plane: Height and width of the result.

    Returns:
        ``[batch, (depth,) height, width, channels / lanes, lanes]``.
    """
    te = _tvm.tvm.te
    size = math.isqrt(int(multiplied.shape[0]))
    outputs = size - TAPS + 1
    high, wide = plane
    across = -(-wide // outputs)
    matrix = transforms(outputs).outputs
    outer, panels = list(multiplied.shape[1:-3]), list(multiplied.shape[-2:])

    def rows(row: Any, column: Any, *at: Any) -> Any:
        return _selected(
            matrix, row, lambda place: multiplied(place * size + column, *at), _by_pairs
        )

    shape = [outputs, size, *multiplied.shape[1:]]
    partial = te.compute(shape, rows, name=OUTPUT_ROWS)

    def elements(*at: Any) -> Any:
        *front, h, w, panel, lane = at
        tile = h // outputs * across + w // outputs
        return _selected(
            matrix,
            w % outputs,
            lambda place: partial(h % outputs, place, *front, tile, panel, lane),
            _by_pairs,
        )

    return te.compute([*outer, high, wide, *panels], elements, name=OUTPUT)


def _selected(
    matrix: FloatArray, row: Any, read: Callable[[int], Any], terms: Callable[..., list[_Term]]
) -> Any:
    """A row of ``matrix`` times what is read: a constant row once loops are unrolled."""
    tirx = _tvm.tvm.tirx
    selected = None
    for at in reversed(range(len(matrix))):
        value = _sum(terms(matrix[at], read))
        selected = value if selected is None else tirx.Select(row == at, value, selected)
    return selected


_Term = tuple[float, Any]


def _by_parity(row: FloatArray, read: Callable[[int], Any]) -> list[_Term]:
    """Even places and odd ones: the rows of opposite points share both sums."""
    terms = []
    for first in (0, 1):
        places = [at for at in range(first, len(row), 2) if row[at]]
        if places:
            sign = float(np.sign(row[places[-1]]))
            terms.append((sign, _sum([(sign * row[at], read(at)) for at in places])))
    return terms


def _by_pairs(row: FloatArray, read: Callable[[int], Any]) -> list[_Term]:
    """The places of opposite points: all rows share their sum and their difference."""
    terms = [(row[0], read(0))]
    for at in range(1, len(row) - 1, 2):
        sign = float(np.sign(row[at] * row[at + 1]))
        if sign:
            terms.append((row[at], _sum([(1.0, read(at)), (sign, read(at + 1))])))
    return [term for term in [*terms, (row[-1], read(len(row) - 1))] if term[0]]


def _sum(terms: Sequence[_Term]) -> Any:
    """The sum of numbers times factors: positive ones first, and no product by one."""
    total = None
    for factor, value in sorted(terms, key=lambda term: term[0] < 0):
        size = abs(factor)
        scaled = value if size == 1 else value * _tvm.tvm.tirx.const(size, value.ty.dtype)
        if total is None:
            total = scaled if factor > 0 else -scaled
        else:
            total = total + scaled if factor > 0 else total - scaled
    return total
