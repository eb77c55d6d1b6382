"""Bytes that the tiles of a nest touch, level by level, from how its block indexes its buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions._blocks import Access, Block
from foretune.features.actions._columns import LEVELS, READS, TABLE
from foretune.features.actions._decided import Nest
from foretune.features.actions._shared import Shared


def footprints(shared: Shared) -> FloatArray:
    """The values of the section ``footprint``, shape (n, width); 0 where unknown."""
    nest, block = shared.nest, shared.block
    axes = None if nest is None or block is None else _positions(shared, nest, block)
    if nest is None or block is None or axes is None:
        return np.zeros((shared.n, TABLE.width("footprint")))
    vector = axes[nest.spatial[-1]]
    reads = sorted(block.reads, key=lambda a: (not a.uses(vector), -a.bytes))[:READS]
    named: list[Access | None] = [*reads, *[None] * (READS - len(reads)), *block.writes[:1]]
    tiles = _tile_sizes(shared, nest, block, axes)
    touched = {id(a): a.footprint(tiles) for a in (*block.reads, *block.writes)}
    total = np.sum(list(touched.values()), axis=0)
    nothing = np.zeros(len(total))
    each = [*(nothing if a is None else touched[id(a)] for a in named), total]
    # Levels beside each other: (names, levels * n) -> (n, levels * names).
    sizes = np.log2(1 + np.array(each)).reshape(len(each), len(LEVELS), shared.n)
    columns = sizes.transpose(2, 1, 0).reshape(shared.n, -1)
    traffic = (np.log2(1 + total) - np.log2(np.prod(tiles, axis=0))).reshape(-1, shared.n).T
    flags = [
        float(flag)
        for a in named
        for flag in ((False, False) if a is None else (a.uses(vector), a.contiguous(vector)))
    ]
    return np.concatenate([columns, traffic, shared.same(flags)], axis=1)


def _positions(shared: Shared, nest: Nest, block: Block) -> dict[int, int] | None:
    """Variable -> position of its axis in the block; None where names do not fit."""
    names = shared.decided.sketch.axes.get(nest.block, ())
    if len(names) != len(block.extents) or not block.writes:
        return None
    positions = {}
    for variable in (*nest.spatial, *nest.reduction):
        axis = shared.decided.sketch.variables[variable].name.rpartition(".")[2]
        if axis not in names:
            return None
        positions[variable] = names.index(axis)
    return positions


def _tile_sizes(
    shared: Shared, nest: Nest, block: Block, axes: Mapping[int, int]
) -> list[FloatArray]:
    """Iterations of each axis of the block inside each of ``LEVELS``, (levels * n,) per axis."""
    # An axis that is not tiled runs through inside everything.
    sizes = [np.full(len(LEVELS) * shared.n, float(extent)) for extent in block.extents]
    for which, variables in enumerate((nest.spatial, nest.reduction)):
        for variable in variables:
            tile = shared.decided.tile(variable)
            # Row p: the product of the p innermost parts; a level may ask for more than there are.
            inner = np.cumprod(tile[:, ::-1], axis=1).T
            inner = np.concatenate([np.ones_like(inner[:1]), inner])
            parts = [min(level[which], len(inner) - 1) for level in LEVELS]
            sizes[axes[variable]] = inner[parts].reshape(-1).astype(np.float64)
    return sizes
