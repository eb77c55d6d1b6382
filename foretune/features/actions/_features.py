"""Features of schedules from their decisions alone: no program is made, tens of microseconds each.

Idea: the multi-level tiled block with the most iterations tells most of what a schedule costs. Its
tile sizes, together with how the block indexes its buffers, give the bytes that each level of tiles
touches and how often it is visited; the hardware's factors turn these into "fits the first cache"
or "work for every thread". What is the same for all candidates of a sketch is read once; candidates
of one sketch are filled in as columns.

Symbols: a nest has spatial parts ``s`` and reduction parts ``r``, counted from the innermost: on a
CPU (S S R S R S) the register tile is ``s0``, its last axis the vector; ``s3`` and ``s2`` make up
the parallel loop. Axes are counted from the innermost, too. Sizes are log2.

Programs that others measured have actions but no sketch: they get the counts of kinds and the
``foreign`` columns, which align the numbers of split steps and flatten the first steps; the others
are 0. The column ``own`` tells which. Where nothing is known of the machine, its columns are 0.

Sources: the columns follow what TenSet's and MetaSchedule's per-store features hold (bytes touched
and reuse per level, Ansor, OSDI 2020, appendix B), computed from the tiles instead of the program.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.features.actions._blocks import blocks_of
from foretune.features.actions._footprints import (
    FOOTPRINT_COLUMNS,
    FOOTPRINT_NAMES,
    LEVELS,
    footprints,
)
from foretune.features.actions._foreign import FOREIGN_COLUMNS, foreign_features
from foretune.features.actions._generated import GENERATED_COLUMNS, generated
from foretune.features.actions._schedule import (
    SUMMARY_COLUMNS,
    SUMMARY_VERSION,
    Decided,
    Nest,
    by_sketch,
    chunks_of,
    jobs_of,
    summary_of,
    vector_of,
    vector_unit,
)
from foretune.features.actions._shared import Shared
from foretune.features.actions._tables import (
    CHOICES,
    LEVEL_NAMES,
    MOST_REDUCTION_PARTS,
    MOST_SPATIAL_PARTS,
    columns_of,
)
from foretune.features.memory import Memory, Rows
from foretune.features.table import Column
from foretune.features.tokens import KINDS, actions_of, kind_index
from foretune.hardware import FEATURE_COLUMNS
from foretune.space import INLINE, ROOT, Choice
from foretune.space.actions import skeleton_of

if TYPE_CHECKING:
    from foretune.hardware import Hardware

FloatArray = npt.NDArray[np.float64]

MACHINE_FEATURE_VERSION = 2
"""Number of what ``machine_features`` makes of known factors: how they are scaled and rounded.

What stands in for unknown ones may change under it: nothing learns from them."""

ACTION_FEATURE_VERSION = f"3+{MACHINE_FEATURE_VERSION}+{SUMMARY_VERSION}"
"""Number of the layout. Raised whenever a column changes its place or meaning."""

_REMEMBERED_BYTES = 16 << 20
"""Rows kept in memory per process: a search asks several models about a program."""
_memory: Memory[Rows] = Memory(_REMEMBERED_BYTES)

_SPATIAL_AXES, _REDUCTION_AXES = 6, 4
_LOCATIONS = 6
_SPLITS = 2


def _grid(letter: str, axes: int, parts: int) -> list[str]:
    return [f"{letter}{a}.part{p}" for a in range(axes) for p in range(parts)]


def _kinds(shared: Shared) -> FloatArray:
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


_KIND_COLUMNS = [*columns_of("actions", KINDS, "actions"), Column("actions.all", "actions")]


_WORKLOAD_COLUMNS = [
    Column("workload.flops", "log2(1 + operations)"),
    Column("workload.blocks", "blocks"),
    Column("workload.input", "log2(1 + bytes)"),
    Column("workload.output", "log2(1 + bytes)"),
    Column("workload.between", "log2(1 + bytes)"),
    Column("workload.intensity", "log2(operations/byte)"),
    Column("workload.spatial", "log2(iterations)"),
    Column("workload.reduction", "log2(iterations)"),
    *columns_of("workload", [f"s{a}" for a in range(_SPATIAL_AXES)], "log2(iterations)"),
    *columns_of("workload", [f"r{a}" for a in range(_REDUCTION_AXES)], "log2(iterations)"),
]


def _workload(shared: Shared) -> FloatArray:
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
            *_innermost_first(spatial, _SPATIAL_AXES),
            *_innermost_first(reductions, _REDUCTION_AXES),
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


_TILE_COLUMNS = columns_of(
    "tile",
    [
        *_grid("s", _SPATIAL_AXES, MOST_SPATIAL_PARTS),
        *_grid("r", _REDUCTION_AXES, MOST_REDUCTION_PARTS),
    ],
    "log2(iterations)",
)


def _tiles(shared: Shared) -> FloatArray:
    if shared.nest is None:
        return np.zeros((shared.n, len(_TILE_COLUMNS)))
    spatial = _factors(shared, shared.nest.spatial, _SPATIAL_AXES, MOST_SPATIAL_PARTS)
    reduction = _factors(shared, shared.nest.reduction, _REDUCTION_AXES, MOST_REDUCTION_PARTS)
    return np.concatenate([spatial, reduction], axis=1)


def _factors(shared: Shared, variables: Sequence[int], axes: int, parts: int) -> FloatArray:
    """log2 of factors, axes and parts from the innermost, shape (n, axes * parts)."""
    table = np.zeros((shared.n, axes, parts))
    for axis, variable in enumerate(list(reversed(variables))[:axes]):
        tile = np.log2(shared.decided.tile(variable)[:, ::-1][:, :parts])
        table[:, axis, : tile.shape[1]] = tile
    return table.reshape(shared.n, axes * parts)


_LEVEL_COLUMNS = [
    *columns_of("level", LEVEL_NAMES, "log2(iterations)"),
    Column("level.parallel", "log2(jobs)"),
    Column("level.vector", "log2(iterations)"),
    Column("level.nests", "blocks"),
    Column("second.share", "log2(iterations/iterations)"),
    *columns_of("second", LEVEL_NAMES, "log2(iterations)"),
]


def _levels(shared: Shared) -> FloatArray:
    nests = shared.decided.layout.nests
    if not nests:
        return np.zeros((shared.n, len(_LEVEL_COLUMNS)))
    first = nests[0]
    second = np.zeros((shared.n, 1 + len(LEVEL_NAMES)))
    if len(nests) > 1:
        second[:, 0] = math.log2(nests[1].iterations / first.iterations)
        second[:, 1:] = _level_products(shared, nests[1])
    merged = np.log2([jobs_of(shared.decided, first), vector_of(shared.decided, first)]).T
    return np.concatenate(
        [_level_products(shared, first), merged, shared.same([len(nests)]), second], axis=1
    )


def _level_products(shared: Shared, nest: Nest) -> FloatArray:
    """log2 of the product of each part, from the innermost, shape (n, 5 + 3)."""
    spatial = _factors(shared, nest.spatial, len(nest.spatial), MOST_SPATIAL_PARTS)
    reduction = _factors(shared, nest.reduction, len(nest.reduction), MOST_REDUCTION_PARTS)
    return np.concatenate(
        [
            spatial.reshape(shared.n, -1, MOST_SPATIAL_PARTS).sum(axis=1),
            reduction.reshape(shared.n, len(nest.reduction), MOST_REDUCTION_PARTS).sum(axis=1),
        ],
        axis=1,
    )


_CHOICE_COLUMNS = columns_of("choice", [*CHOICES, "others"], "log2(1 + value)")


def _choices(shared: Shared) -> FloatArray:
    known = [np.log2(1.0 + shared.decided.choice(name, 0)) for name in CHOICES]
    others = np.zeros(shared.n)
    for name in shared.decided.layout.choices:
        if name not in CHOICES:
            others += np.log2(1.0 + np.abs(shared.decided.choice(name, 0)))
    return np.column_stack([*known, others])


_LOCATION_COLUMNS = [
    *(
        Column(f"location{v}.{name}", unit)
        for v in range(_LOCATIONS)
        for name, unit in (
            ("inline", "flag"),
            ("root", "flag"),
            ("depth", "loops"),
            ("relative", "loops/loops"),
        )
    ),
    *columns_of("locations", ["inline", "root", "attached", "all"], "blocks"),
]


def _locations(shared: Shared) -> FloatArray:
    variables = shared.decided.layout.locations
    table = np.zeros((shared.n, _LOCATIONS, 4))
    counts = np.zeros((shared.n, 4))
    for at, variable in enumerate(variables):
        location = shared.decided.index(variable)
        inline, root = location == INLINE, location == ROOT
        depth = np.maximum(location + 1, 0)
        counts += np.column_stack([inline, root, depth > 0, np.ones(shared.n)])
        if at < _LOCATIONS:
            relative = depth / _deepest(shared.decided.sketch, variable)
            table[:, at] = np.column_stack([inline, root, depth, relative])
    return np.concatenate([table.reshape(shared.n, -1), counts], axis=1)


def _deepest(sketch: Any, variable: int) -> int:
    nests = sketch.locations.nests.get(variable, {})
    return max((len(nest.loops) for nest in nests.values()), default=0) or 1


_SPLIT_COLUMNS = [
    Column(f"split{s}.{name}", "log2(iterations)")
    for s in range(_SPLITS)
    for name in ("outer", "inner")
]


def _splits(shared: Shared) -> FloatArray:
    table = np.zeros((shared.n, _SPLITS, 2))
    for at, variable in enumerate(shared.decided.layout.splits[:_SPLITS]):
        tile = shared.decided.tile(variable)
        table[:, at, 0] = np.log2(tile[:, :-1].prod(axis=1))
        table[:, at, 1] = np.log2(tile[:, -1])
    return table.reshape(shared.n, -1)


_SUMMARY = columns_of("summary", SUMMARY_COLUMNS[:-1], "log2(2 + value)")
_SUMMARY_COLUMNS = [*_SUMMARY, Column("summary.fit", "-log2(slow-down)")]


_MACHINE_COLUMNS = [Column(f"machine.{name}", f"log2(1 + {u})") for name, u in FEATURE_COLUMNS]


_STEPS_PER_OCTAVE = {"peak_gflops": 2, "bandwidth_gbs": 1}
"""Rounding of factors that are measured. What two probes of one machine differ by would otherwise
tell a tree which probe it was, and a tree would tell by noise how programs compare."""


_CLOCK_GHZ, _OPERATIONS = 4.0, 4.0
"""Of a core of today at work: clock, and operations per lane and cycle (two multiply-adds)."""
_MEMORY_GBS = 40.0
"""Bandwidth that one such core can draw, and of which two draw little more."""


def machine_features(machine: Hardware | None) -> FloatArray:
    """The factors of a machine, log2(1 + x), shape (len(FEATURE_COLUMNS),); 0 if unknown.

    Measured ones are rounded: the peak to half octaves, the bandwidth to octaves. Where nobody has
    measured them on a CPU, they are estimated from its lanes and threads: a network takes 0 for a
    machine unlike all that it knows.
    """
    if machine is None:
        return np.zeros(len(FEATURE_COLUMNS))
    factors = np.log2(1.0 + _completed(machine).features())
    for at, (name, _unit) in enumerate(FEATURE_COLUMNS):
        steps = _STEPS_PER_OCTAVE.get(name)
        if steps is not None:
            factors[at] = np.round(factors[at] * steps) / steps
    return factors


def _completed(machine: Hardware) -> Hardware:
    """A CPU whose peak and bandwidth are estimated where they are unknown."""
    if not machine.has_cores:
        return machine
    lanes = max(1, machine.simd_bits // 32)
    return replace(
        machine,
        peak_gflops=machine.peak_gflops or machine.threads * lanes * _OPERATIONS * _CLOCK_GHZ,
        bandwidth_gbs=machine.bandwidth_gbs or _MEMORY_GBS,
    )


_MATCH_COLUMNS = [
    Column("match.lanes_empty", "log2(lanes/lanes)"),
    Column("match.vector", "log2(iterations/lanes)"),
    Column("match.registers", "log2(elements/register elements)"),
    Column("match.chunks", "log2(iterations/threads)"),
    Column("match.parallel", "log2(jobs/threads)"),
    Column("match.uneven", "log2(time/ideal time)"),
    *(
        Column(f"match.footprint{level}_{cache}", "log2(bytes/cache bytes)")
        for level in range(len(LEVELS))
        for cache in ("l1", "l2", "l3")
    ),
]


def _match(shared: Shared, levels: FloatArray, touched: FloatArray) -> FloatArray:
    """How the sizes stand to those of the machine; 0 where nothing is tiled."""
    nest, hardware = shared.nest, shared.hardware
    if nest is None:
        return np.zeros((shared.n, len(_MATCH_COLUMNS)))
    lanes, registers = vector_unit(hardware)
    innermost = shared.decided.tile(nest.spatial[-1])[:, -1]
    threads = max(1, hardware.threads)
    jobs = jobs_of(shared.decided, nest)
    columns = [
        np.log2(lanes / np.gcd(innermost, lanes)),
        np.log2(innermost / lanes),
        levels[:, 0] - math.log2(registers * lanes),
        np.log2(chunks_of(shared.decided, nest) / threads),
        np.log2(jobs / threads),
        np.log2(-(-jobs // threads) * threads / jobs),
    ]
    caches = (hardware.l1_bytes, hardware.l2_bytes, hardware.l3_bytes)
    for level in range(len(LEVELS)):
        total = touched[:, (level + 1) * len(FOOTPRINT_NAMES) - 1]
        # Where a footprint or a cache is unknown its size is 0, and so is the column.
        columns += [
            np.where(total > 0, total - math.log2(size), 0.0) if size else np.zeros(shared.n)
            for size in caches
        ]
    return np.column_stack(columns)


@functools.lru_cache(maxsize=1)
def action_columns() -> tuple[Column, ...]:
    """The columns of ``action_features`` in order."""
    return (
        Column("own", "flag"),
        *_KIND_COLUMNS,
        *_MACHINE_COLUMNS,
        *_WORKLOAD_COLUMNS,
        *_TILE_COLUMNS,
        *_LEVEL_COLUMNS,
        *FOOTPRINT_COLUMNS,
        *_CHOICE_COLUMNS,
        *_LOCATION_COLUMNS,
        *_SPLIT_COLUMNS,
        *_SUMMARY_COLUMNS,
        *_MATCH_COLUMNS,
        *GENERATED_COLUMNS,
        *FOREIGN_COLUMNS,
    )


def action_features(programs: Sequence[Any], machine: Hardware | None = None) -> Rows:
    """Features of programs of one hardware from their decisions or actions.

    Args:
        programs: Each with its ``candidate``, or with ``actions`` or a ``configuration``
            (``foretune.dataset.Program``). Several workloads may be mixed.
        machine: What they run on; the hardware of each candidate if None.

    Returns:
        float32 of shape (n, len(action_columns())). Nothing is NaN.
    """
    features = np.zeros((len(programs), len(action_columns())), dtype=np.float32)
    marks: dict[int, str] = {}
    found: dict[str, Rows] = {}
    missing: dict[str, Any] = {}
    places: list[tuple[int, str]] = []
    factors = machine_features(machine)
    for row, program in enumerate(programs):
        candidate = program.candidate
        if candidate is None:
            _fill_foreign(features[row], program, factors)
            continue
        known = machine if machine is not None else candidate.hardware
        if id(known) not in marks:
            marks[id(known)] = _mark(known)
        key = candidate.key + marks[id(known)]
        places.append((row, key))
        if key in _memory:
            found[key] = _memory[key]
        else:
            missing[key] = candidate
    found |= _made(missing, machine)
    _memory.remember(found)
    for row, key in places:
        features[row, : len(found[key])] = found[key]
    return features


def _mark(hardware: Hardware) -> str:
    """16 hex digits that change with any figure of a machine, which ``Hardware.key`` does not."""
    return hashlib.blake2b(repr(hardware).encode(), digest_size=8).hexdigest()


def _made(candidates: Mapping[str, Any], machine: Hardware | None) -> dict[str, Rows]:
    """The own columns of candidates that may be of several sketches, by the keys given."""
    keys, values = list(candidates), list(candidates.values())
    made: dict[str, Rows] = {}
    for rows, own in by_sketch(values):
        filled = _own([values[row] for row in rows], own if machine is None else machine)
        for row, columns in zip(rows, filled.astype(np.float32), strict=True):
            # A row of its own each: one that is kept must not keep the whole table.
            made[keys[row]] = columns.copy()
    return made


def _own(candidates: Sequence[Any], hardware: Hardware) -> FloatArray:
    """The columns of candidates of one sketch, all but the foreign ones."""
    decided = Decided(candidates)
    shared = Shared(decided, hardware, blocks_of(decided.sketch.workload.module_json))
    levels, touched = _levels(shared), footprints(shared)
    sections = [
        np.ones((shared.n, 1)),
        _kinds(shared),
        shared.same(machine_features(hardware).tolist()),
        _workload(shared),
        _tiles(shared),
        levels,
        touched,
        _choices(shared),
        _locations(shared),
        _splits(shared),
        summary_of(decided, hardware),
        _match(shared, levels, touched),
        generated(shared),
    ]
    return np.concatenate(sections, axis=1)


def _fill_foreign(row: Rows, program: Any, machine: FloatArray) -> None:
    """Fills the columns of a program that others measured.

    Args:
        row: Of all columns, to be filled.
        program: Of actions or a configuration.
        machine: ``machine_features`` of what it ran on, which all programs share.
    """
    actions = actions_of(program)
    kinds = row[1 : 1 + len(_KIND_COLUMNS)]
    for action in actions:
        kinds[kind_index(action.kind)] += 1
    kinds[-1] = len(actions)
    start = 1 + len(_KIND_COLUMNS)
    row[start : start + len(_MACHINE_COLUMNS)] = machine
    row[-len(FOREIGN_COLUMNS) :] = foreign_features(actions)
