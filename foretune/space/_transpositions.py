"""Tiles of blocks that move elements to another order.

What lies next to each other where such a block reads does not where it writes. A loop along the one
leaves a line of the cache after each element of the other; some elements of both directions
together use what was fetched. Before → after, with 16 floats per vector::

    for i, j: C[i, j] = A[j, i]

    for i_outer parallel:
        for j:
            for i_inner vectorised: C[i, j] = A[j, i]

or the other way round, where lines of ``C`` would share sets of the cache.

Programs that were reshaped have one loop, and quotients and remainders of it in their indices. Such
a loop is split first, so that these are loops of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.space._tiles import split_off
from foretune.workload import walk
from foretune.workload.element_types import element_type

if TYPE_CHECKING:
    from foretune._tvm import Schedule

_MOST_SPLITS = 6
_FEWEST = 4
"""Elements along either direction, for which a tile pays."""
_WAY_BYTES, _WAYS = 4096, 8
"""Of the first cache."""
_OUTER, _COLUMN = 64, 64
"""Turns of the parallel loop that are wanted, and of the loop that is split to have them."""


@dataclass(frozen=True)
class _Part:
    """A loop that an axis of a block is, or one of those that it is split into.

    Attributes:
        variable: Stands for it.
        extent: Its turns.
    """

    variable: Any
    extent: int


@dataclass(frozen=True)
class _Tile:
    """Which parts the inner loops are.

    Attributes:
        vector: Position of the part that the innermost loop is taken from.
        column: Position of the part that the loop around it is.
        most: Turns that the innermost loop may have.
    """

    vector: int
    column: int
    most: int


def tile_transposition(schedule: Schedule, block: Any, lanes: Sequence[int]) -> bool:
    """Tiles a block without sums that reads along another loop than it writes.

    Args:
        schedule: In which no loop of the block was touched.
        block: With one loop for each of its axes.
        lanes: Widths of a vector, the best one first.

    Returns:
        False if it is none, and was left as it is.
    """
    content = schedule.get(block)
    axes = _unfolded(content)
    parts = list(itertools.chain(*axes.values()))
    tile = _tile(content, axes, parts)
    if tile is None:
        return False
    loops: list[Any] = []
    for loop, own in zip(schedule.get_loops(block), axes.values(), strict=True):
        loops += schedule.split(loop, [part.extent for part in own]) if len(own) > 1 else [loop]
    widths = [width for width in lanes if width <= tile.most] or [1]
    inner = vector = split_off(schedule, loops, tile.vector, widths)
    if inner is None:
        # The rest of a loop that no vector divides is left out in the last turn.
        loops[tile.vector], inner = schedule.split(loops[tile.vector], [None, widths[0]])
    outer = [loop for at, loop in enumerate(loops) if at != tile.column]
    column = loops[tile.column]
    turns = math.prod(part.extent for at, part in enumerate(parts) if at != tile.column)
    if turns < _OUTER * widths[0] and parts[tile.column].extent > _COLUMN:
        further, column = schedule.split(column, [None, _COLUMN])
        outer.append(further)
    schedule.reorder(*outer, column, inner)
    schedule.parallel(schedule.fuse(*outer))
    if vector is not None:
        schedule.vectorize(vector)
    return True


def _unfolded(content: Any) -> dict[Any, list[_Part]]:
    """For each axis of a block the loops that it has to be, so that no index divides."""
    from foretune import _tvm

    analyzer = _tvm.tvm.sym.Analyzer()
    axes = {axis.var: [_part(analyzer, axis.var, _extent(axis.dom))] for axis in content.iter_vars}
    for _ in range(_MOST_SPLITS):
        split = next(
            (
                division
                for load in _loads(content)
                for index in load.indices
                for division in _divisions(_in_parts(index, axes, analyzer), axes)
            ),
            None,
        )
        if split is None:
            break
        axis, at, divisor = split
        part = axes[axis][at]
        axes[axis][at : at + 1] = [
            _part(analyzer, axis, part.extent // divisor),
            _part(analyzer, axis, divisor),
        ]
    return axes


def _part(analyzer: Any, axis: Any, extent: int) -> _Part:
    from foretune import _tvm

    variable = _tvm.tvm.tirx.Var("part", axis.ty.dtype)
    analyzer.bind(variable, _tvm.tvm.ir.Range(0, extent))
    return _Part(variable, extent)


def _divisions(index: Any, axes: dict[Any, list[_Part]]) -> list[tuple[Any, int, int]]:
    """Axis, position of the part and divisor, where a part is divided without a rest."""
    from foretune import _tvm

    places = {
        part.variable: (axis, at, part.extent)
        for axis, parts in axes.items()
        for at, part in enumerate(parts)
    }
    divisions = []
    for node in walk(index):
        if type(node).__name__ not in ("FloorDiv", "FloorMod") or node.a not in places:
            continue
        axis, at, extent = places[node.a]
        divisor = int(node.b.value) if isinstance(node.b, _tvm.tvm.tirx.IntImm) else 0
        if 1 < divisor < extent and extent % divisor == 0:
            divisions.append((axis, at, divisor))
    return divisions


def _in_parts(expression: Any, axes: dict[Any, list[_Part]], analyzer: Any) -> Any:
    """An expression of a block's axes in terms of their parts, simplified."""
    from foretune import _tvm

    values = {}
    for axis, parts in axes.items():
        value: Any = parts[0].variable
        for part in parts[1:]:
            value = value * part.extent + part.variable
        values[axis] = value
    replaced = _tvm.structural_mutate(
        expression, [(_tvm.tvm.ir.Var, lambda variable, _mutator: values.get(variable, variable))]
    )
    # A second time: remainders of quotients take two.
    return analyzer.simplify(analyzer.simplify(replaced))


def _tile(content: Any, axes: dict[Any, list[_Part]], parts: Sequence[_Part]) -> _Tile | None:
    """The tile of a block that transposes; None for one that does not."""
    store = content.body
    if not hasattr(store, "buffer") or not hasattr(store, "indices"):
        return None
    writes = _steps(store.buffer, store.indices, axes, parts)
    written = _along(writes, parts)
    if writes is None or written is None:
        return None
    best = None
    for load in _loads(content):
        reads = _steps(load.source, load.indices, axes, parts)
        if reads is None:
            return None
        read = _along(reads, parts)
        if read == written and any(step for at, step in enumerate(reads) if at != written):
            return None  # What is read along it for each element of others would be slower.
        if read is None or read == written or not reads[written]:
            continue
        scattered = _Tile(read, written, _lines(writes[read], store.buffer))
        gathered = _Tile(written, read, _lines(reads[written], load.source))
        best = max(scattered, gathered, key=lambda tile: tile.most)
    return best


def _lines(step: int, buffer: Any) -> int:
    """Lines with such a step between them that half of the first cache holds, at least.

    Steps of large powers of two share few sets of it; that of x86 and Arm has 4 KiB in each way.
    """
    size = step * element_type(str(buffer.dtype)).itemsize
    return _WAY_BYTES // math.gcd(size, _WAY_BYTES) * (_WAYS // 2)


def _along(steps: Sequence[int] | None, parts: Sequence[_Part]) -> int | None:
    """The part whose next turn is the next element."""
    if steps is None:
        return None
    contiguous = (at for at, part in enumerate(parts) if steps[at] == 1 and part.extent >= _FEWEST)
    return next(contiguous, None)


def _steps(
    buffer: Any, indices: Sequence[Any], axes: dict[Any, list[_Part]], parts: Sequence[_Part]
) -> list[int] | None:
    """Elements between a turn of each part and the next; None where that is not constant."""
    from foretune import _tvm

    analyzer = _tvm.tvm.sym.Analyzer()
    for part in parts:
        analyzer.bind(part.variable, _tvm.tvm.ir.Range(0, part.extent))
    offset: Any = 0
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * size + _in_parts(index, axes, analyzer)
    steps = _tvm.detect_linear_equation(offset, [part.variable for part in parts])
    if not steps or any(not hasattr(step, "value") for step in steps[:-1]):
        return None
    return [int(step.value) for step in steps[:-1]]


def _loads(content: Any) -> list[Any]:
    return [node for node in walk(content.body) if type(node).__name__ == "TensorLoad"]


def _extent(domain: Any) -> int:
    return int(getattr(domain.extent, "value", 0))
