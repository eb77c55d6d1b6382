"""Bytes that the tiles of a nest touch, level by level, from how its block indexes its buffers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from foretune.features._blocks import Access, Block
from foretune.features._shared import Shared
from foretune.features._tables import columns_of
from foretune.features.per_store import Column
from foretune.features.schedule import Nest

FloatArray = npt.NDArray[np.float64]

_READS = 3

LEVELS = ((3, 2), (2, 2), (2, 1), (1, 1), (1, 0))
"""Tiles inside one another, as (spatial parts, reduction parts) from the innermost: the work of an
outermost tile, the tile inside it, ... down to the register tile."""

FOOTPRINT_NAMES = [*(f"read{b}" for b in range(_READS)), "write", "all"]
"""What is counted at each level; a level's columns stand beside each other, in this order."""

FOOTPRINT_COLUMNS = [
    *(
        Column(f"footprint{level}.{name}", "log2(1 + bytes)")
        for level in range(len(LEVELS))
        for name in FOOTPRINT_NAMES
    ),
    *columns_of("traffic", [str(i) for i in range(len(LEVELS))], "log2(bytes/operation)"),
    *(
        Column(f"{name}.{what}_along_vector", "flag")
        for name in FOOTPRINT_NAMES[:-1]
        for what in ("varies", "contiguous")
    ),
]


def footprints(shared: Shared) -> FloatArray:
    """The values of ``FOOTPRINT_COLUMNS``, shape (n, len(FOOTPRINT_COLUMNS)); 0 where unknown."""
    nest, block = shared.nest, shared.block
    axes = None if nest is None or block is None else _positions(shared, nest, block)
    if nest is None or block is None or axes is None:
        return np.zeros((shared.n, len(FOOTPRINT_COLUMNS)))
    vector = axes[nest.spatial[-1]]
    reads = sorted(block.reads, key=lambda a: (not a.uses(vector), -a.bytes))[:_READS]
    named: list[Access | None] = [*reads, *[None] * (_READS - len(reads)), *block.writes[:1]]
    columns, traffic = [], []
    for spatial, reduction in LEVELS:
        tiles = _tile_sizes(shared, nest, block, axes, spatial, reduction)
        touched = [np.zeros(shared.n) if a is None else a.footprint(tiles) for a in named]
        total = np.sum([a.footprint(tiles) for a in (*block.reads, *block.writes)], axis=0)
        columns += [np.log2(1 + each) for each in (*touched, total)]
        work = np.prod(tiles, axis=0)
        traffic.append(np.log2(1 + total) - np.log2(work))
    flags = [
        float(flag)
        for a in named
        for flag in ((False, False) if a is None else (a.uses(vector), a.contiguous(vector)))
    ]
    return np.concatenate([np.column_stack([*columns, *traffic]), shared.same(flags)], axis=1)


def _positions(shared: Shared, nest: Nest, block: Block) -> dict[int, int] | None:
    """Variable -> position of its axis in the block; None where names do not fit."""
    names = shared.decided.sketch.axes.get(nest.block, ())
    if len(names) != len(block.extents) or not block.writes:
        return None
    found = {}
    for variable in (*nest.spatial, *nest.reduction):
        axis = shared.decided.sketch.variables[variable].name.rpartition(".")[2]
        if axis not in names:
            return None
        found[variable] = names.index(axis)
    return found


def _tile_sizes(
    shared: Shared,
    nest: Nest,
    block: Block,
    axes: Mapping[int, int],
    spatial: int,
    reduction: int,
) -> list[FloatArray]:
    """Iterations of each axis of the block inside the innermost parts, (n,) per axis."""
    # An axis that is not tiled runs through inside everything.
    sizes = [np.full(shared.n, float(extent)) for extent in block.extents]
    for variables, parts in ((nest.spatial, spatial), (nest.reduction, reduction)):
        for variable in variables:
            tile = shared.decided.tile(variable)
            inner = tile[:, max(0, tile.shape[1] - parts) :]
            sizes[axes[variable]] = inner.prod(axis=1).astype(np.float64)
    return sizes
