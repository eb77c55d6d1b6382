"""The default schedule of a program on a CPU: decent, never searched.

Element-wise stages are inlined, the outer loops run in parallel, the innermost output axis is
vectorised around a register tile. Every step is optional: a primitive that TVM refuses for a block
leaves that block as it was. It is what an operator without a better candidate is compiled with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.space._products import default_tiles, product_block

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule
    from foretune.hardware import Hardware

_SPATIAL, _REDUCTION = 0, 2
_VECTOR_BITS = 256
# Output rows per register tile: 8 rows of one vector fit into 16 registers with room to spare.
_ROWS = (8, 7, 6, 5, 4, 3, 2)


def default_schedule(function: Any, hardware: Hardware) -> Schedule:
    """Schedules one PrimFunc, called ``main`` in the schedule's module.

    Before (a matmul)::

        for i, j, k: C[i, j] += A[i, k] * B[k, j]

    After, with 8 floats per vector::

        for i, j_outer parallel:
            for j_inner vectorised: C[i, j] = 0
            for k, j_inner vectorised: C[i, j] += A[i, k] * B[k, j]

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
        if _is_spatial(schedule, block) and str(schedule.get(block).name_hint) not in kept:
            _attempt(error, schedule.compute_inline, block)
    if product is not None:
        default_tiles(schedule, *product)
    for block in schedule.get_child_blocks(root):
        if len(schedule.get_loops(block)) == len(schedule.get(block).iter_vars):
            _attempt(error, _parallel_and_vector, schedule, block, max(hardware.simd_bits, 0))
    return schedule


def _attempt(error: type[Exception], primitive: Any, *args: Any) -> None:
    with contextlib.suppress(error):
        primitive(*args)


def _is_spatial(schedule: Any, block: Any) -> bool:
    return all(int(i.iter_type) == _SPATIAL for i in schedule.get(block).iter_vars)


def _parallel_and_vector(schedule: Any, block: Any, simd_bits: int) -> None:
    """Parallel outer loops; a register tile of output elements inside the reduction, if any."""
    kinds = [int(i.iter_type) for i in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    if len(loops) != len(kinds) or not loops:
        return
    if any(getattr(schedule.get(loop).extent, "value", 1) == 0 for loop in loops):
        return  # nothing is computed, and the arithmetic of a fused loop would divide by its extent
    outer = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _SPATIAL]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _REDUCTION]
    if not outer:
        return
    element_bits = 8 * np.dtype(str(schedule.get(block).writes[0].source.dtype)).itemsize
    lanes = max(1, (simd_bits or _VECTOR_BITS) // element_bits)
    vector = _split_off(schedule, outer, (lanes, lanes // 2, lanes // 4))
    rows = None
    if vector is not None and reduction and len(outer) > 1:
        last = outer.pop()
        rows = _split_off(schedule, outer, _ROWS)
        outer.append(last)
    tile = [loop for loop in (rows, vector) if loop is not None]
    schedule.reorder(*outer, *reduction, *tile)
    if outer:
        schedule.parallel(schedule.fuse(*outer))
    if reduction:
        schedule.decompose_reduction(block, reduction[0])
    if vector is not None:
        schedule.vectorize(vector)
    if rows is not None:
        schedule.unroll(rows)


def _split_off(schedule: Any, loops: list[Any], factors: Sequence[int]) -> Any | None:
    """Splits the last of ``loops`` by the first factor that divides it; returns the inner loop."""
    extent = int(schedule.get(loops[-1]).extent)
    factor = next((n for n in factors if n > 1 and extent % n == 0), None)
    if factor is None:
        return None
    loops[-1], inner = schedule.split(loops[-1], [None, factor])
    return inner
