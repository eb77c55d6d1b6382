"""What the compiler makes of a tiled nest: vectors, unrolled steps, registers, a local buffer.

Idea: LLVM keeps the accumulators of a register tile in registers only where the loops around its
vector are unrolled; otherwise every multiply-add loads and stores its accumulator. Whether they are
unrolled, and how many registers they then take, are products over axes and comparisons with limits,
which trees cannot form from single factors.

Symbols: a register tile is the innermost spatial part. Its innermost loop has a vector of ``v``
elements (1: scalar code) in ``ceil(v/lanes)`` registers; its other loops have ``tile`` iterations.
``tile * ceil(v/lanes)`` registers hold its accumulators, ``ceil(v/lanes)`` more a row of one
operand, and one the element of the other.
"""

from __future__ import annotations

import math

import numpy as np

from foretune._arrays import FloatArray, IntArray
from foretune.features.actions._columns import TABLE
from foretune.features.actions._decided import Nest, kept_from, vector_of
from foretune.features.actions._fit import vector_unit
from foretune.features.actions._shared import Shared

_IN_MEMORY = 6.0
"""Stands for the registers of accumulators that are in memory: as bad as 64 times too many."""
_KIB = 1024
_ELEMENT_BYTES = 4


def generated(shared: Shared) -> FloatArray:
    """The values of the section ``generated``, shape (n, 9).

    Where nothing is tiled all are 0; ``kept`` are 0 where results go straight to memory, too.
    """
    nest = shared.nest
    if nest is None:
        return np.zeros((shared.n, TABLE.width("generated")))
    lanes, registers = vector_unit(shared.hardware)
    vector = vector_of(shared.decided, nest)
    tile = shared.decided.products(nest.spatial, nest.spatial_parts)[:, -1] // vector
    per_row = -(-vector // lanes)
    held = tile * per_row
    limit = _unroll_limit(shared)
    # A tile of one step needs no unrolling.
    whole = tile <= np.maximum(limit, 1)
    taken = np.log2((held + per_row + 1) / registers)
    return np.column_stack(
        [
            np.log2(per_row * lanes / vector),
            np.log2(_unrolled_steps(shared, nest, vector, limit)),
            whole,
            taken,
            np.where(whole, taken, _IN_MEMORY),
            np.log2((tile + per_row) / held),
            np.log2(_pieces(shared, nest, vector)),
            _kept(shared, nest),
        ]
    )


def _unroll_limit(shared: Shared) -> IntArray:
    """Steps that may be unrolled, shape (n,); a sketch has one of the two choices, or none."""
    explicit = shared.decided.choice("unroll_explicit", 0)
    return np.maximum(explicit, shared.decided.choice("unroll_implicit", 0))


def _unrolled_steps(shared: Shared, nest: Nest, vector: IntArray, limit: IntArray) -> IntArray:
    """Iterations of the innermost loops, the vector's left out, that fit the limit, shape (n,)."""
    loops = []
    for part in (-1, -2):
        for variables in (nest.spatial, nest.reduction):
            tiles = [shared.decided.tile(variable) for variable in reversed(variables)]
            loops += [tile[:, part] for tile in tiles]
    loops[0] = loops[0] // vector
    products = np.cumprod(np.stack(loops, axis=1), axis=1)
    return np.asarray(np.where(products <= limit[:, None], products, 1).max(axis=1))


def _pieces(shared: Shared, nest: Nest, vector: IntArray) -> IntArray:
    """Pieces that a vector's elements are read in, shape (n,), the most of all operands.

    An index with groups (``channel // 12``) is linear along 12 channels. Only vectors that divide
    this are read at once; of others, every element is fetched on its own.
    """
    block, axis = shared.block, _vector_axis(shared, nest)
    if block is None or axis is None:
        return np.ones(shared.n, dtype=np.int64)
    runs = [run for run in (access.run(axis) for access in block.reads) if run > 0]
    pieces = [vector // np.gcd(vector, run) for run in runs]
    most: IntArray = np.max([np.ones_like(vector), *pieces], axis=0)
    return most


def _vector_axis(shared: Shared, nest: Nest) -> int | None:
    """Position in the block of the axis whose innermost factor is the vector."""
    names = shared.decided.sketch.axes.get(nest.block, ())
    axis = shared.decided.sketch.variables[nest.spatial[-1]].name.rpartition(".")[2]
    return names.index(axis) if axis in names else None


def _kept(shared: Shared, nest: Nest) -> FloatArray:
    """Size of what a tile writes before a copy or a consumer reads it, shape (n, 2)."""
    inside = kept_from(shared.decided.sketch, nest.block)
    if inside is None:
        return np.zeros((shared.n, 2))
    block = shared.block
    written = (
        block.writes[0].element_bytes if block is not None and block.writes else _ELEMENT_BYTES
    )
    parts = shared.decided.products(nest.spatial, nest.spatial_parts)[:, inside:]
    size = np.log2(parts.prod(axis=1) * float(written))
    l1 = shared.hardware.l1_bytes
    fills = size - math.log2(l1) if l1 else np.zeros(shared.n)
    return np.column_stack([size - math.log2(_KIB), fills])
