"""The loops of Winograd's first and third step, which have one good order.

Every tile of the plane is read into registers, transformed there with constants, and written:
before → after, with the lanes of a cache line or vector innermost::

    for a, tile, c: rows[..] = ...       for tile, c_outer, in parallel:
    for a, tile, c: V[a, tile, c] = ..       for all a, unrolled, c_inner in a vector: rows = ...
                                             for all a, unrolled, c_inner in a vector: V = ...

What was fused with the third step (bias, residual, activation) is computed before the tile is
written. Nothing is left to be searched: these programs are scheduled, and are no workloads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from foretune.operators.winograd import INPUT, INPUT_ROWS, OUTPUT, OUTPUT_ROWS, PAD

if TYPE_CHECKING:
    from foretune._tvm import IRModule, PrimFunc, Schedule

_LINE = 64
"""Bytes of a cache line: what is written of each place at once."""


def schedule_tiles(module: IRModule) -> IRModule:
    """Schedules the steps over tiles of every tensor program that has one."""
    from foretune import _tvm

    return _tvm.map_programs(module, _scheduled)


def _scheduled(function: PrimFunc) -> PrimFunc:
    from foretune import _tvm

    names = _blocks(function.body)
    steps = [step for name, step in ((INPUT, _input), (OUTPUT, _output)) if name in names]
    if len(steps) != 1:
        return function
    schedule = _tvm.Schedule(_tvm.IRModule({"main": function}), seed=1)
    try:
        steps[0](schedule, names)
    except _tvm.tvm.s_tir.schedule.ScheduleError:
        return function  # something that was fused does not go: it stays a program to be tuned
    return schedule.mod["main"].with_attr("tirx.is_scheduled", True)


def _blocks(node: Any) -> list[str]:
    """Names of the blocks below a node, in order."""
    from foretune import _tvm

    name = [str(node.name_hint)] if isinstance(node, _tvm.tvm.s_tir.SBlock) else []
    return name + [inner for child in _tvm.children(node) for inner in _blocks(child)]


def _input(schedule: Schedule, names: list[str]) -> None:
    block, rows = schedule.get_sblock(INPUT), schedule.get_sblock(INPUT_ROWS)
    place, *outer, channel = schedule.get_loops(block)
    size = math.isqrt(_extent(schedule, place))
    row, column = schedule.split(place, [size, size])
    line = _LINE // (_bits(schedule, block) // 8)
    channel, inner = schedule.split(channel, [None, math.gcd(_extent(schedule, channel), line)])
    schedule.reorder(*outer, channel, row, column, inner)
    _unrolled(schedule, row, column, inner)
    producers = [rows, *([schedule.get_sblock(PAD)] if PAD in names else [])]
    _inside(schedule, producers, channel)
    schedule.parallel(schedule.fuse(*outer, channel))


def _output(schedule: Schedule, names: list[str]) -> None:
    block, rows = schedule.get_sblock(OUTPUT), schedule.get_sblock(OUTPUT_ROWS)
    for name in names[names.index(OUTPUT) + 1 : -1]:
        schedule.compute_inline(schedule.get_sblock(name))
    for consumer in schedule.get_consumers(block):
        schedule.reverse_compute_inline(consumer)
    outputs = _extent(schedule, schedule.get_loops(rows)[0])
    *outer, high, wide, panel, lane = schedule.get_loops(block)
    line = _LINE // (_bits(schedule, block) // 8 * _extent(schedule, lane))
    panel, part = schedule.split(panel, [None, math.gcd(_extent(schedule, panel), max(line, 1))])
    high, row = schedule.split(high, [None, outputs])
    wide, column = schedule.split(wide, [None, outputs])
    outer += [high, wide, panel]
    schedule.reorder(*outer, row, column, part, lane)
    _unrolled(schedule, row, column, part, lane)
    _inside(schedule, [rows], panel, axes=4)
    schedule.parallel(schedule.fuse(*outer))


def _inside(schedule: Schedule, producers: list[Any], loop: Any, axes: int = 3) -> None:
    """Moves blocks, last one first, below ``loop``: there each fills a tile of so many axes."""
    for block in producers:
        schedule.compute_at(block, loop)
        schedule.set_scope(block, 0, "local")
        _unrolled(schedule, *schedule.get_loops(block)[-axes:])


def _unrolled(schedule: Schedule, *loops: Any) -> None:
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


def _extent(schedule: Schedule, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def _bits(schedule: Schedule, block: Any) -> int:
    import numpy as np

    return 8 * np.dtype(str(schedule.get(block).writes[0].source.dtype)).itemsize
