"""Bytes between the levels of a GPU's memory: first cache, second cache, memory.

The threads of a block run through its loops together. Of a block's loads the first cache serves
what is loaded again while the footprint of the loops between fits into it; blocks that run at the
same time (a *wave*) share what they load in the second cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray
from foretune.describe._gpu_footprint import Footprint
from foretune.describe._gpu_launch import AXES, Launch
from foretune.describe._gpu_work import path_of, sequential
from foretune.describe._nests import BLOCK, VTHREAD, Nests, Statement


@dataclass(frozen=True)
class Traffic:
    """Bytes of one access over the whole kernel, float64 of shape (n,).

    Attributes:
        from_l2: Between the first and the second cache.
        wave: Distinct bytes of a wave of blocks.
        distinct: Distinct bytes of the kernel.
    """

    from_l2: FloatArray
    wave: FloatArray
    distinct: FloatArray


def captured(
    nests: Nests,
    statement: Statement,
    footprints: tuple[Footprint, ...],
    free: FloatArray,
    sector: float,
) -> FloatArray:
    """Iterations of each loop over which a block's loads stay in the first cache, (n, P).

    Args:
        nests: The programs.
        statement: The statement.
        footprints: Of its loads from global memory.
        free: Bytes of the first cache that a block has, of shape (n,).
        sector: Bytes that memory is read in.
    """
    kinds, extents = path_of(nests, statement)
    own = sequential(kinds)
    counts = np.where(own & (kinds != VTHREAD) | (kinds == BLOCK), 1.0, extents)
    open_ = np.ones(len(nests), bool)
    for place in reversed(range(extents.shape[1])):
        runs = own[:, place] & (counts[:, place] < extents[:, place])
        if not (runs & open_).any():
            continue
        trial = counts.copy()
        trial[:, place] = extents[:, place]
        size = sum((f.bytes_moved(trial, sector) for f in footprints), np.zeros(len(nests)))
        joins = open_ & runs & (size <= free)
        counts = np.where(joins[:, None], trial, counts)
        open_ &= joins | ~runs
    return counts


def traffic(
    nests: Nests,
    statement: Statement,
    footprint: Footprint,
    requested: FloatArray,
    counts: FloatArray,
    shape: Launch,
    wave: FloatArray,
    sector: float,
) -> Traffic:
    """Traffic of one access to global memory.

    Args:
        nests: The programs.
        statement: The statement.
        footprint: Of the access.
        requested: Bytes that a block's warps ask for, in sectors, of shape (n,).
        counts: Iterations over which the first cache keeps its elements (``captured``).
        shape: Blocks and threads.
        wave: Blocks that run at once, of shape (n,).
        sector: Bytes that memory is read in.
    """
    kinds, extents = path_of(nests, statement)
    own = np.where(sequential(kinds), extents, 1.0)
    again = (own / np.where(sequential(kinds), counts, 1.0)).prod(axis=1)
    block = np.minimum(requested, footprint.bytes_moved(counts, sector) * again)
    inside = np.where(kinds == BLOCK, 1.0, extents)
    together = inside.copy()
    left = wave
    for axis, size in zip(AXES, shape.grid.T, strict=True):
        along = np.minimum(size, np.ceil(left))
        for place, loop in enumerate(statement.path):
            if nests.axes[loop] == axis:
                bound = kinds[:, place] == BLOCK
                together[:, place] = np.where(
                    bound, np.minimum(along, extents[:, place]), together[:, place]
                )
        left = np.maximum(left / size, 1.0)
    from_l2 = block * shape.blocks
    distinct = np.minimum(footprint.bytes_moved(extents, sector), from_l2)
    return Traffic(from_l2, footprint.bytes_moved(together, sector), distinct)
