"""The default schedule of a program on a CPU: decent, never searched.

Element-wise stages are inlined where no sum would compute them too often, the outer loops run in
parallel, sums are kept in a tile of registers, and what follows them is computed tile by tile. What
TVM refuses for a block leaves that block with the steps before. It is what an operator without a
better candidate is compiled with.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from foretune.space._products import default_tiles, product_block
from foretune.space._tiles import can_be_tiled, lanes_of, split_off, tile_sums
from foretune.space._transpositions import tile_transposition
from foretune.workload import walk

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule
    from foretune.hardware import Hardware

_SPATIAL, _REDUCTION = 0, 2
_SERIAL = 0
_FEW = 32
"""Times that cheap arithmetic may be repeated."""


def default_schedule(function: Any, hardware: Hardware) -> Schedule:
    """Schedules one PrimFunc, called ``main`` in the schedule's module.

    Before → after, with 8 floats per vector; for sums see ``tile_sums``::

        for i, j: C[i, j] = f(A[i, j])

        for i, j_outer parallel:
            for j_inner vectorised: C[i, j] = f(A[i, j])

    A program that TVM cannot schedule (calls of libraries, loops without blocks) stays as it is.
    """
    from foretune import _tvm

    module = _tvm.IRModule({"main": _tvm.rooted(function)})
    try:
        return _scheduled(module, hardware)
    # Beyond what primitives refuse, TVM fails on programs that nobody scheduled before: those run
    # as they are written.
    except Exception:
        return _tvm.Schedule(module, seed=1)


def _scheduled(module: IRModule, hardware: Hardware) -> Schedule:
    from foretune import _tvm

    schedule = _tvm.Schedule(module, seed=1)
    error = _tvm.tvm.s_tir.schedule.ScheduleError
    try:
        root = schedule.get_sblock("root")
    except error:
        # Other blocks have that name, too.
        return schedule
    product = product_block(schedule, hardware.tvm_target())
    read = () if product is None else tuple(schedule.get_producers(product[0]))
    kept = {str(schedule.get(block).name_hint) for block in read}
    for block in schedule.get_child_blocks(root):
        content = schedule.get(block)
        stays = str(content.name_hint) in kept or _is_computed_again(schedule, block)
        if _is_spatial(content) and not stays:
            _attempt(error, schedule.compute_inline, block)
    if product is not None:
        default_tiles(schedule, *product)
    for block in schedule.get_child_blocks(root):
        loops = schedule.get_loops(block)
        untouched = all(int(schedule.get(loop).kind) == _SERIAL for loop in loops)
        if untouched and len(loops) == len(schedule.get(block).iter_vars):
            _attempt(error, _parallel_and_vector, schedule, block, max(hardware.simd_bits, 0))
    return schedule


def _attempt(error: type[Exception], primitive: Any, *args: Any) -> None:
    with contextlib.suppress(error):
        primitive(*args)


def _is_spatial(content: Any) -> bool:
    return all(int(i.iter_type) == _SPATIAL for i in content.iter_vars)


def _is_computed_again(schedule: Schedule, block: Any) -> bool:
    """Whether a sum would compute each element of a stage too often, if it were inlined.

    What only moves elements costs nothing there. A function is computed once, arithmetic and what
    fills up borders a few times, as the taps of a depthwise convolution would.
    """
    from foretune import _tvm

    content = schedule.get(block)
    value = getattr(content.body, "value", None)
    if isinstance(value, _tvm.tvm.ir.TensorLoad):
        return False
    most = _iterations(content) * (1 if _has_functions(content) else _FEW)
    sums = (schedule.get(consumer) for consumer in schedule.get_consumers(block))
    return any(not _is_spatial(each) and _iterations(each) > most for each in sums)


def _has_functions(content: Any) -> bool:
    calls = [node for node in walk(content.body) if type(node).__name__ == "Call"]
    return any("if_then_else" not in str(call.op) for call in calls)


def _iterations(content: Any) -> int:
    return math.prod(int(getattr(i.dom.extent, "value", 1)) for i in content.iter_vars)


def _parallel_and_vector(schedule: Schedule, block: Any, simd_bits: int) -> None:
    """Parallel outer loops; a vector, or a tile of sums in registers, inside."""
    content = schedule.get(block)
    loops = schedule.get_loops(block)
    kinds = [int(i.iter_type) for i in content.iter_vars]
    if len(loops) != len(kinds) or _SPATIAL not in kinds:
        return
    if any(getattr(schedule.get(loop).extent, "value", 1) == 0 for loop in loops):
        return  # nothing is computed, and the arithmetic of a fused loop would divide by its extent
    if _REDUCTION in kinds:
        if can_be_tiled(content):
            tile_sums(schedule, block, simd_bits)
        return
    lanes = lanes_of(str(content.writes[0].source.dtype), simd_bits)
    if tile_transposition(schedule, block, lanes):
        return
    vector = split_off(schedule, loops, len(loops) - 1, lanes)
    schedule.parallel(schedule.fuse(*loops))
    if vector is not None:
        schedule.vectorize(vector)
