"""Sums in registers: the tile of results that a sum is computed for at once.

The last axis of the results is vectorised. A vector that was loaded is used for several rows, those
along an axis that its operand does not depend on; a number of another operand for several vectors.
The default schedule has the best such tile, and a search starts from the best ones.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.workload.element_types import element_type

if TYPE_CHECKING:
    from foretune._tvm import Schedule

_SPATIAL, _REDUCTION = 0, 2
_VECTOR_BITS = 256
"""Of a processor of which it is not known."""
_WIDE_BITS = 512
"""Processors with vectors of that width have 32 registers for them, others 16 at least."""
_SUMS, _WIDE_SUMS = 12, 24
"""Vectors of sums in registers, at most: room is left for the operands."""
_MOST_COLUMNS = 4
_VECTOR_COST, _COLLISION_COST = 4.0, 2.5
"""Of loading a vector, that may be of weights in the second cache, and a number of rows that share
a set of the first one, in that of loading a number. Fitted to products of 50 to 1,600 rows."""
_WAYS, _PAGE = 8, 4096
"""Places of the first cache for addresses that differ by multiples of so many bytes."""
MOST_UNROLLED = 512
"""Steps of a whole sum, for a whole tile, that are unrolled."""


@dataclass(frozen=True)
class Tile:
    """Which results of a block are computed together; axes are positions among those of results.

    Attributes:
        lanes: Results in a vector, along the last axis; 1 where there are no vectors.
        factors: Axes with how many rows, or vectors, of them are in the tile.
        once: Axes that the largest operand depends on. Their loops are the outer ones, so that it
            is read once.
        again: The other axes.
    """

    lanes: int
    factors: tuple[tuple[int, int], ...]
    once: tuple[int, ...]
    again: tuple[int, ...]

    @property
    def vectors(self) -> int:
        """Vectors of sums."""
        return math.prod(factor for _, factor in self.factors)


@dataclass(frozen=True)
class _Operand:
    """What a block reads or writes.

    Attributes:
        elements: Of the whole buffer.
        axes: Positions of the axes of the results that decide where.
        contiguous: Those of them that decide about nothing but the place along its last axis. It
            need not be the next place: TVM loads every second number of a row as a vector, too.
        steps: Bytes from one place to the next along each of those axes, where that is the same
            everywhere.
    """

    elements: int
    axes: frozenset[int]
    contiguous: frozenset[int]
    steps: Mapping[int, int]

    def collides(self, at: int, rows: int) -> bool:
        """Whether so many rows along an axis have places in one set of the first cache only."""
        return rows > _WAYS and at in self.steps and self.steps[at] % _PAGE == 0


def can_be_tiled(content: Any) -> bool:
    """Whether a block sums, into more than one result, and all its extents are known."""
    kinds = {int(axis.iter_type) for axis in content.iter_vars}
    shapes = [region.source.shape for region in (*content.reads, *content.writes)]
    extents = [axis.dom.extent for axis in content.iter_vars]
    extents += [extent for shape in shapes for extent in shape]
    known = all(int(getattr(e, "value", e if isinstance(e, int) else 0)) > 0 for e in extents)
    return kinds == {_SPATIAL, _REDUCTION} and known


def lanes_of(dtype: str, simd_bits: int) -> tuple[int, ...]:
    """Widths of a vector of results, the best one first."""
    most = max(1, (simd_bits or _VECTOR_BITS) // (8 * np.dtype(dtype).itemsize))
    return most, most // 2, most // 4


def tiles_of(content: Any, simd_bits: int) -> list[Tile]:
    """The tiles that divide the results of a block of sums, the best one first; at least one.

    Args:
        content: The block, which ``can_be_tiled``. Each of its axes is a loop.
        simd_bits: Width of the processor's vectors.
    """
    results = [axis for axis in content.iter_vars if int(axis.iter_type) == _SPATIAL]
    axes = [axis.var for axis in results]
    extents = [int(axis.dom.extent) for axis in results]
    reads = [_operand(region, axes) for region in content.reads]
    written = [_operand(region, axes) for region in content.writes]
    largest = max(reads, key=lambda each: each.elements, default=None)
    around = frozenset[int]() if largest is None else largest.axes
    once = tuple(at for at in range(len(axes)) if at in around)
    again = tuple(at for at in range(len(axes)) if at not in around)
    last = len(axes) - 1
    widths = lanes_of(str(content.writes[0].source.dtype), simd_bits)
    lanes = next((n for n in widths if n > 1 and extents[last] % n == 0), 1)
    if lanes == 1 or not _is_vectorised(content, [*reads, *written], last):
        return [Tile(1, (), once, again)]
    extents[last] //= lanes
    vectors = [each for each in reads if last in each.axes]
    free = [at for at in range(last) if extents[at] > 1]
    rows_at = _last(
        [at for at in free if not any(at in each.axes for each in vectors)]
        or [at for at in free if not all(at in each.axes for each in vectors)]
    )
    columns_at = last if extents[last] > 1 else _last([at for at in free if at != rows_at])
    most = _WIDE_SUMS if simd_bits >= _WIDE_BITS else _SUMS
    rows_of = [1] if rows_at is None else _divisors(extents[rows_at], most)
    columns_of = [1] if columns_at is None else _divisors(extents[columns_at], _MOST_COLUMNS)
    pairs = [(r, c) for r in rows_of for c in columns_of if r * c <= most]
    numbers = [each for each in reads if last not in each.axes]

    def gain(pair: tuple[int, int]) -> float:
        collide = rows_at is not None and any(e.collides(rows_at, pair[0]) for e in numbers)
        cost = pair[0] * (_COLLISION_COST if collide else 1) + pair[1] * _VECTOR_COST
        return math.prod(pair) / cost

    # Many multiplications for what is loaded; of equals the one with fewer rows.
    pairs.sort(key=lambda pair: (-gain(pair), pair))
    return [
        Tile(
            lanes,
            tuple((at, n) for at, n in ((rows_at, r), (columns_at, c)) if at is not None and n > 1),
            once,
            again,
        )
        for r, c in pairs
    ]


def tile_sums(schedule: Schedule, block: Any, simd_bits: int) -> None:
    """Parallel outer loops, and inside the sums a tile of rows by a few vectors.

    Before → after, for a matmul in which ``B`` is larger than ``A``, and what follows it::

        for i, j, k: C[i, j] += A[i, k] * B[k, j]
        for i, j:    D[i, j] = f(C[i, j])

        for j_outer, i_outer parallel:
            for i_inner, j_inner unrolled, lane vectorised: C[i, j] = 0
            for k:
                for i_inner, j_inner unrolled, lane vectorised: C[i, j] += A[i, k] * B[k, j]
            for i_inner, j_inner, lane vectorised: D[i, j] = f(C[i, j])

    Args:
        schedule: Is changed.
        block: Sums, in loops that are those of its axes, results and sums.
        simd_bits: Width of the processor's vectors.
    """
    content = schedule.get(block)
    loops = schedule.get_loops(block)
    results = [int(axis.iter_type) == _SPATIAL for axis in content.iter_vars]
    outer = [loop for loop, is_result in zip(loops, results, strict=True) if is_result]
    sums = [loop for loop, is_result in zip(loops, results, strict=True) if not is_result]
    tile = tiles_of(content, simd_bits)[0]
    vector = split_off(schedule, outer, len(outer) - 1, (tile.lanes,))
    inner = [split_off(schedule, outer, at, (factor,)) for at, factor in tile.factors]
    inside = [loop for loop in (*inner, vector) if loop is not None]
    outer = [outer[at] for at in (*tile.once, *tile.again)]
    schedule.reorder(*outer, *sums, *inside)
    _follow(schedule, block, outer[-1], tile.lanes)
    schedule.parallel(schedule.fuse(*outer))
    # Before the sums are begun apart: TVM vectorises no block that only goes on with them.
    for loop in inner:
        schedule.unroll(loop)
    if vector is not None:
        schedule.vectorize(vector)
    schedule.decompose_reduction(block, sums[0])
    extents = [int(schedule.get(loop).extent) for loop in sums]
    if tile.lanes > 1 and tile.vectors * math.prod(extents) <= MOST_UNROLLED:
        for loop in sums:
            schedule.unroll(loop)


def split_off(schedule: Schedule, loops: list[Any], at: int, factors: Sequence[int]) -> Any | None:
    """Splits a loop of a list by the first factor that divides it; returns the inner loop."""
    extent = int(schedule.get(loops[at]).extent)
    factor = next((n for n in factors if n > 1 and extent % n == 0), None)
    if factor is None:
        return None
    loops[at], inner = schedule.split(loops[at], [None, factor])
    return inner


def _is_vectorised(content: Any, operands: Sequence[_Operand], last: int) -> bool:
    """Whether each operand is a vector along the last axis, or a number, and TVM gets that right.

    It gives wrong results for sums with a place as a second result, and does not compile those of
    bfloat16.
    """
    first, *others = content.writes
    if others or str(first.source.dtype) == "bfloat16":
        return False
    return all(last not in each.axes or last in each.contiguous for each in operands)


def _operand(region: Any, axes: Sequence[Any]) -> _Operand:
    shape = [int(getattr(extent, "value", extent)) for extent in region.source.shape]
    indices = [each.min for each in region.region]
    used = [_positions(index, axes) for index in indices]
    everywhere = frozenset(itertools.chain.from_iterable(used))
    elsewhere = frozenset(itertools.chain.from_iterable(used[:-1]))
    width = element_type(str(region.source.dtype)).itemsize
    steps = {at: _step(indices, shape, axes[at]) for at in everywhere}
    known = {at: step * width for at, step in steps.items() if step is not None}
    return _Operand(math.prod(shape), everywhere, everywhere - elsewhere, known)


def _step(indices: Sequence[Any], shape: Sequence[int], axis: Any) -> int | None:
    """Elements from one place to the next along an axis; None where they differ."""
    from foretune import _tvm

    total, row = 0, 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        factors = _tvm.tvm.sym.detect_linear_equation(index, [axis])
        factor = getattr(factors[0], "value", None) if factors else None
        if factor is None:
            return None
        total, row = total + int(factor) * row, row * extent
    return total


def _positions(index: Any, axes: Sequence[Any]) -> list[int]:
    from foretune import _tvm

    variables = list(_tvm.tvm.tirx.analysis.undefined_vars(index))
    return [at for at, axis in enumerate(axes) if axis in variables]


def _last(positions: Sequence[int]) -> int | None:
    return positions[-1] if positions else None


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, most + 1) if number % n == 0]


def _reads_its_own_place(content: Any, sums: Any) -> bool:
    """Whether each result of a block needs one sum, another one each.

    Axes may be in another order, one axis may be two of the sums (``n // 16, n % 16``), and there
    may be more sums than are read.
    """
    regions = [region for region in content.reads if region.source.same_as(sums)]
    if len(regions) != 1 or any(int(axis.iter_type) != _SPATIAL for axis in content.iter_vars):
        return False
    (region,) = regions
    if any(int(getattr(each.extent, "value", 0)) != 1 for each in region.region):
        return False
    axes = {axis.var: int(getattr(axis.dom.extent, "value", 0)) for axis in content.iter_vars}
    used = _axes_of([each.min for each in region.region], sums.shape)
    if used is None or len(set(used)) < len(used):
        return False
    return set(axes) >= set(used) and all(axes[axis] == 1 for axis in set(axes) - set(used))


def _axes_of(indices: Sequence[Any], shape: Sequence[Any]) -> list[Any] | None:
    """The variables that are places along one axis, or two; None if there is anything else."""
    from foretune import _tvm

    tirx = _tvm.tvm.tirx
    axes: list[Any] = []
    rest = list(zip(indices, shape, strict=True))
    while rest:
        (index, extent), *rest = rest
        if isinstance(index, _tvm.tvm.ir.Var):
            axes.append(index)
        elif isinstance(index, tirx.FloorDiv) and rest and isinstance(rest[0][0], tirx.FloorMod):
            (within, lanes), *rest = rest
            parts = [getattr(each, "value", None) for each in (index.b, within.b, lanes)]
            if not index.a.same_as(within.a) or len(set(parts)) > 1 or parts[0] is None:
                return None
            axes.append(index.a)
        elif getattr(index, "value", None) != 0 or int(extent) != 1:
            return None
    return axes


def _follow(schedule: Schedule, block: Any, loop: Any, lanes: int) -> None:
    """Has what follows a tile of sums computed right behind it, if nothing else reads them.

    TVM does not check that all results of a block that is moved are still computed, nor that what
    it reads is: so it must read its own place of the sums and nothing else.
    """
    from foretune import _tvm

    consumers = schedule.get_consumers(block)
    if len(consumers) != 1:
        return
    (consumer,) = consumers
    if not _reads_its_own_place(schedule.get(consumer), schedule.get(block).writes[0].source):
        return
    with contextlib.suppress(_tvm.tvm.s_tir.schedule.ScheduleError):
        schedule.reverse_compute_at(consumer, loop)
        inner = schedule.get_loops(consumer)
        vector = split_off(schedule, inner, len(inner) - 1, (lanes,))
        if vector is not None:
            schedule.vectorize(vector)
