"""Spaces and default schedules of programs on the instructions for small integers.

A block that carries ``hardware.PRODUCT`` is computed by the instruction of that name. TVM
has a rule that tiles around one instruction, but it knows neither ours nor keeps it whole: its
post-processor would vectorise the loops around an instruction that has a vector already. Here the
loops of other blocks are vectorised afterwards, and a block that the instruction reads stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.hardware import FILLED, PRODUCT

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule, Target
    from foretune.hardware import IntegerProduct

_SPATIAL, _REDUCTION = 0, 2
_TENSORIZE = "meta_schedule.auto_tensorize"
"""TVM's annotation of a block that an instruction computes."""
_ROWS = (8, 7, 6, 5, 4, 3, 2)
"""Rows of a register tile, one vector of sums each."""
_VECTORS = (32, 16, 8)
_STEPS = (0, 16, 64, 512)
"""Loops that may be unrolled, as TVM's own rules have them."""
_JOBS_PER_CORE = 16


def product_of(module: IRModule, target: Target) -> IntegerProduct | None:
    """The instruction that a program is laid out for, its tensor intrinsic registered."""
    from foretune import _tvm

    product = product_block(_tvm.Schedule(module, debug_mask="none"), target)
    return None if product is None else product[1]


def product_block(schedule: Schedule, target: Target) -> tuple[Any, IntegerProduct] | None:
    """The block that an instruction computes, and which one; None without one."""
    from foretune import _tvm
    from foretune.hardware import product_named

    try:
        root = schedule.get_sblock("root", func_name="main")
    except _tvm.tvm.s_tir.schedule.ScheduleError:
        return None
    for block in schedule.get_child_blocks(root):
        name = schedule.get(block).annotations.get(PRODUCT)
        if name is not None:
            return block, product_named(str(name), target)
    return None


def read_by_instruction(schedule: Schedule, block: Any) -> bool:
    """Whether an instruction reads what a block computes, which then has to be in memory."""
    consumers = [schedule.get(consumer) for consumer in schedule.get_consumers(block)]
    return any(_TENSORIZE in consumer.annotations for consumer in consumers)


def rules(known: Sequence[Any], product: IntegerProduct) -> list[Any]:
    """TVM's schedule rules with those for one instruction in their place."""
    from foretune._tvm import meta_schedule

    rule = meta_schedule.schedule_rule
    tiling = rule.MultiLevelTilingWithIntrin(
        product.name,
        "SSRSRS",
        max_innermost_factor=64,
        reuse_write=rule.ReuseType(req="may", levels=[1, 2], scope="global"),
    )
    loops = rule.ParallelizeVectorizeUnroll(
        max_jobs_per_core=_JOBS_PER_CORE,
        max_vectorize_extent=-1,
        unroll_max_steps=list(_STEPS),
        unroll_explicit=True,
    )
    changed: list[Any] = []
    for known_rule in known:
        kind = type(known_rule).__name__
        if kind in ("MultiLevelTilingWithIntrin", "AddRFactor"):
            continue  # another instruction's, and partial sums that no instruction computes
        if kind == "MultiLevelTiling":
            changed.append(tiling)
        changed.append(loops if kind == "ParallelizeVectorizeUnroll" else known_rule)
    return changed


def postprocessors(module_json: str) -> tuple[Any, ...]:
    """What finishes a candidate of such a program, given its text."""
    from foretune._tvm import meta_schedule

    make = meta_schedule.postproc
    return (
        *([_DataInMemory()] if f'"{FILLED}"' in module_json else []),
        make.DisallowDynamicLoop(),
        make.RewriteParallelVectorizeUnroll(),
        make.RewriteReductionBlock(),
        make.RewriteTensorize(vectorize_init_loop=True),
        _Vectorised(),
    )


class _DataInMemory:
    """Rejects a program whose instruction would read an expression."""

    def __str__(self) -> str:
        return "DataInMemory"

    def apply(self, schedule: Schedule) -> bool:
        """Whether what fills up the data is still a block."""
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        return any(str(schedule.get(block).name_hint) == FILLED for block in blocks)


class _Vectorised:
    """Vectorises the innermost loop of each block that has no reduction and is no instruction."""

    def __str__(self) -> str:
        return "Vectorised"

    def apply(self, schedule: Schedule) -> bool:
        """Changes the schedule; what TVM refuses stays as it is."""
        from foretune import _tvm

        error = _tvm.tvm.s_tir.schedule.ScheduleError
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            content = schedule.get(block)
            if all(int(i.iter_type) == _SPATIAL for i in content.iter_vars) and not any(
                type(child).__name__ == "For" for child in _below(content)
            ):
                with contextlib.suppress(error):
                    _vectorise(schedule, schedule.get_loops(block))
        return True


def _below(content: Any) -> list[Any]:
    from foretune import _tvm

    return _tvm.children(content)


def _vectorise(schedule: Schedule, loops: Sequence[Any]) -> None:
    """The last loop, or a part of it that divides it."""
    serial = 0
    if not loops or int(schedule.get(loops[-1]).kind) != serial:
        return
    last, extent = loops[-1], int(schedule.get(loops[-1]).extent)
    factor = next((n for n in _VECTORS if extent % n == 0), None)
    if factor is None:
        return
    if extent > factor:
        last = schedule.split(last, [None, factor])[1]
    schedule.vectorize(last)


def default_tiles(schedule: Schedule, block: Any, product: IntegerProduct) -> None:
    """Parallel outer loops, and a tile of rows by one vector of sums inside the reduction.

    Before → after, for a product with eight lanes::

        for i, j, k, g: C[i, j] += A[i, k * G + g] * B[j // 8, k, j % 8, g]

        for i_outer, j_outer parallel:
            for i_inner: C[i, j_outer * 8 : + 8] = 0
            for k:
                for i_inner unrolled: instruction(C[i, j_outer * 8 : + 8], A[i, k], B[j_outer, k])
            what follows, of this tile
    """
    kinds = [int(i.iter_type) for i in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    outer = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _SPATIAL]
    *reduction, group = [
        loop for loop, kind in zip(loops, kinds, strict=True) if kind == _REDUCTION
    ]
    last, lanes = schedule.split(outer.pop(), [None, product.lanes])
    extent = int(schedule.get(outer[-1]).extent)
    rows = next((n for n in _ROWS if extent % n == 0), 1)
    outer[-1], inner = schedule.split(outer[-1], [None, rows])
    outer.append(last)
    schedule.reorder(*outer, *reduction, inner, lanes, group)
    tiles = schedule.fuse(*outer)
    schedule.parallel(tiles)
    consumers = schedule.get_consumers(block)
    if len(consumers) == 1:
        from foretune import _tvm

        with contextlib.suppress(_tvm.tvm.s_tir.schedule.ScheduleError):
            schedule.reverse_compute_at(consumers[0], tiles)
            _vectorise(schedule, schedule.get_loops(consumers[0]))
    start = schedule.decompose_reduction(block, reduction[0])
    _vectorise(schedule, schedule.get_loops(start))
    schedule.unroll(schedule.get_loops(block)[-3])
    schedule.tensorize(schedule.get_loops(block)[-2], product.name)
