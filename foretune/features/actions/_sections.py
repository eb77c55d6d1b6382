"""Sections of the workload and of decisions, for which the hardware does not matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions._columns import (
    CHOICES,
    LOCATIONS,
    REDUCTION_AXES,
    REDUCTION_PARTS,
    SPATIAL_AXES,
    SPATIAL_PARTS,
    SPLITS,
    TABLE,
)
from foretune.features.actions._decided import Nest, jobs_of, vector_of
from foretune.features.actions._shared import Shared
from foretune.features.tokens import KINDS, kind_index
from foretune.space import INLINE, ROOT, Choice
from foretune.space.actions import skeleton_of


def kinds(shared: Shared) -> FloatArray:
    """How many actions there are of each kind."""
    counts = np.zeros((shared.n, len(KINDS) + 1))
    for step in skeleton_of(shared.decided.sketch):
        there = np.ones(shared.n)
        if step.switch >= 0:
            variable = shared.decided.sketch.variables[step.switch]
            assert isinstance(variable, Choice)
            there = (np.array(variable.values) != 0)[shared.decided.index(step.switch)] * 1.0
        counts[:, kind_index(step.kind)] += there
        counts[:, -1] += there
    return counts


def workload(shared: Shared) -> FloatArray:
    """What is the same for all candidates of a workload."""
    sketch, block = shared.decided.sketch, shared.block
    written = {a.buffer: a.bytes for b in shared.blocks for a in b.writes}
    read = {a.buffer: a.bytes for b in shared.blocks for a in b.reads}
    inputs = sum(size for name, size in read.items() if name not in written)
    outputs = sum(size for name, size in written.items() if name not in read)
    between = sum(size for name, size in written.items() if name in read)
    flops = sketch.workload.flops
    if block is not None:
        sizes = list(zip(block.extents, block.reduction, strict=True))
        spatial = [extent for extent, reduction in sizes if not reduction]
        reductions = [extent for extent, reduction in sizes if reduction]
    else:
        spatial, reductions = _tiled_extents(shared)
    return shared.same(
        [
            math.log2(1 + flops),
            len(shared.blocks),
            math.log2(1 + inputs),
            math.log2(1 + outputs),
            math.log2(1 + between),
            math.log2((1 + flops) / (1 + inputs + outputs)),
            math.log2(math.prod(spatial)),
            math.log2(math.prod(reductions)),
            *_innermost_first(spatial, SPATIAL_AXES),
            *_innermost_first(reductions, REDUCTION_AXES),
        ]
    )


def _tiled_extents(shared: Shared) -> tuple[list[int], list[int]]:
    if shared.nest is None:
        return [], []
    variables: Any = shared.decided.sketch.variables
    spatial = [variables[i].extent for i in shared.nest.spatial]
    return spatial, [variables[i].extent for i in shared.nest.reduction]


def _innermost_first(extents: Sequence[int], count: int) -> list[float]:
    # Axes of one iteration are there or not by the taste of whoever wrote the program.
    sizes = [math.log2(extent) for extent in reversed(extents) if extent > 1][:count]
    return sizes + [0.0] * (count - len(sizes))


def tiles(shared: Shared) -> FloatArray:
    """The factors of the heaviest tiled block."""
    if shared.nest is None:
        return np.zeros((shared.n, TABLE.width("tile")))
    spatial = _factors(shared, shared.nest.spatial, SPATIAL_AXES, SPATIAL_PARTS)
    reduction = _factors(shared, shared.nest.reduction, REDUCTION_AXES, REDUCTION_PARTS)
    return np.concatenate([spatial, reduction], axis=1)


def _factors(shared: Shared, variables: Sequence[int], axes: int, parts: int) -> FloatArray:
    """log2 of factors, axes and parts from the innermost, shape (n, axes * parts)."""
    table = np.zeros((shared.n, axes, parts))
    for axis, variable in enumerate(list(reversed(variables))[:axes]):
        tile = np.log2(shared.decided.tile(variable)[:, ::-1][:, :parts])
        table[:, axis, : tile.shape[1]] = tile
    return table.reshape(shared.n, axes * parts)


def levels(shared: Shared) -> FloatArray:
    """Products over axes of the two heaviest tiled blocks."""
    nests = shared.decided.layout.nests
    if not nests:
        return np.zeros((shared.n, TABLE.width("level")))
    first = nests[0]
    second = np.zeros((shared.n, 1 + SPATIAL_PARTS + REDUCTION_PARTS))
    if len(nests) > 1:
        second[:, 0] = math.log2(nests[1].iterations / first.iterations)
        second[:, 1:] = _level_products(shared, nests[1])
    merged = np.log2([jobs_of(shared.decided, first), vector_of(shared.decided, first)]).T
    return np.concatenate(
        [_level_products(shared, first), merged, shared.same([len(nests)]), second], axis=1
    )


def _level_products(shared: Shared, nest: Nest) -> FloatArray:
    """log2 of the product of each part, from the innermost, shape (n, 5 + 3)."""
    spatial = _factors(shared, nest.spatial, len(nest.spatial), SPATIAL_PARTS)
    reduction = _factors(shared, nest.reduction, len(nest.reduction), REDUCTION_PARTS)
    return np.concatenate(
        [
            spatial.reshape(shared.n, -1, SPATIAL_PARTS).sum(axis=1),
            reduction.reshape(shared.n, len(nest.reduction), REDUCTION_PARTS).sum(axis=1),
        ],
        axis=1,
    )


def choices(shared: Shared) -> FloatArray:
    """What was chosen."""
    known = [np.log2(1.0 + shared.decided.choice(name, 0)) for name in CHOICES]
    others = np.zeros(shared.n)
    for name in shared.decided.layout.choices:
        if name not in CHOICES:
            others += np.log2(1.0 + np.abs(shared.decided.choice(name, 0)))
    return np.column_stack([*known, others])


def locations(shared: Shared) -> FloatArray:
    """Where blocks are computed."""
    variables = shared.decided.layout.locations
    table = np.zeros((shared.n, LOCATIONS, 4))
    counts = np.zeros((shared.n, 4))
    for at, variable in enumerate(variables):
        location = shared.decided.index(variable)
        inline, root = location == INLINE, location == ROOT
        depth = np.maximum(location + 1, 0)
        counts += np.column_stack([inline, root, depth > 0, np.ones(shared.n)])
        if at < LOCATIONS:
            relative = depth / _deepest(shared.decided.sketch, variable)
            table[:, at] = np.column_stack([inline, root, depth, relative])
    return np.concatenate([table.reshape(shared.n, -1), counts], axis=1)


def _deepest(sketch: Any, variable: int) -> int:
    nests = sketch.locations.nests.get(variable, {})
    return max((len(nest.loops) for nest in nests.values()), default=0) or 1


def splits(shared: Shared) -> FloatArray:
    """How loops of blocks that are not tiled are split."""
    table = np.zeros((shared.n, SPLITS, 2))
    for at, variable in enumerate(shared.decided.layout.splits[:SPLITS]):
        tile = shared.decided.tile(variable)
        table[:, at, 0] = np.log2(tile[:, :-1].prod(axis=1))
        table[:, at, 1] = np.log2(tile[:, -1])
    return table.reshape(shared.n, -1)
