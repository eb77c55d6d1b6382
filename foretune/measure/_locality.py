"""The untuned program with its reductions in an order of loops that caches like.

As written, a matrix product of 100 x 4096 x 4096 reads its second factor down the columns and takes
half a minute, where the same additions row by row take half a second. What every candidate's
output is compared with need not be computed in the slow order: for each element of the output the
terms are added in the order of the program either way. That is done where it can be seen: loops are
serial, all but those of the reduction are indices of what is written, and of the result nothing but
the same element is read. (A compiler may contract another product and sum into one rounding.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.workload import walk

if TYPE_CHECKING:
    from tvm import IRModule

_log = logging.getLogger(__name__)

_LINE_BYTES = 64
_CHAIN = 0.25
"""Cache lines that a sum in one register costs beside its loads: additions wait for one another."""


def in_cache_order(module: IRModule) -> IRModule | None:
    """The same program with better inner loops.

    Args:
        module: A program of one function, ``main``.

    Returns:
        The program; None where no reduction of it gains, or it cannot be scheduled.
    """
    from foretune import _tvm

    try:
        schedule = _tvm.Schedule(module, seed=1, debug_mask="none", error_render_level="none")
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        changed = [_reorder(schedule, block) for block in blocks]
    except Exception as error:  # foreign program: whatever a scheduler raises, it stays as it is
        _log.debug("the untuned program keeps its order of loops: %s", error)
        return None
    reordered: IRModule | None = schedule.mod if any(changed) else None
    return reordered


def _reorder(schedule: Any, block: Any) -> bool:
    """Moves the loop that passes the fewest cache lines inwards; whether anything moved."""
    from foretune._tvm import tvm

    body, loops = schedule.get(block), schedule.get_loops(block)
    if body.init is None or len(loops) < 2:
        return False
    realize = schedule.get(loops[-1]).body
    bound = {value: var for var, value in zip(body.iter_vars, realize.iter_values, strict=True)}
    names = [schedule.get(loop).loop_var for loop in loops]
    if any(name not in bound for name in names):
        return False
    variables = [bound[name] for name in names]
    if not _adds_alone(body) or any(
        schedule.get(loop).kind != tvm.tirx.ForKind.SERIAL for loop in loops
    ):
        return False
    accesses = _strides(body.body, [var.var for var in variables])
    if accesses is None:
        return False
    data_parallel = tvm.tirx.IterVar.DataPar
    costs = {}
    for place, var in enumerate(variables):
        lines = sum(min(1.0, abs(s[place]) * size / _LINE_BYTES) for s, size in accesses)
        chain = 0.0 if var.iter_type == data_parallel else _CHAIN
        # Short inner loops cost their beginnings; the inner one of the program wins a draw.
        costs[place] = lines + chain + 1.0 / int(var.dom.extent), -place
    best = min(costs, key=costs.__getitem__)
    if best == len(loops) - 1 or variables[best].iter_type != data_parallel:
        return False
    schedule.decompose_reduction(block, loops[0])
    loops = schedule.get_loops(block)
    schedule.reorder(*(loop for place, loop in enumerate(loops) if place != best), loops[best])
    return True


def _adds_alone(block: Any) -> bool:
    """Whether every element that a block writes comes of its own terms and of nothing else."""
    from foretune._tvm import tvm

    parallel = {v.var for v in block.iter_vars if v.iter_type == tvm.tirx.IterVar.DataPar}
    written: dict[Any, tuple[Any, ...]] = {}
    for node in walk(block.body):
        if type(node).__name__ == "BufferStore":
            indices = tuple(node.indices)
            if not parallel <= set(indices) or written.setdefault(node.buffer, indices) != indices:
                return False
    return all(
        tuple(node.indices) == written[node.source]
        for node in walk(block.body)
        if type(node).__name__ == "TensorLoad" and node.source in written
    )


def _strides(body: Any, variables: Sequence[Any]) -> list[tuple[list[int], int]] | None:
    """Per load and store of a block: elements passed per step of each variable, bytes of one.

    None where an index is not a linear function of the variables.
    """
    from foretune._tvm import detect_linear_equation, tvm

    strides = []
    for node in walk(body):
        kind = type(node).__name__
        if kind not in ("TensorLoad", "BufferStore"):
            continue
        buffer = node.source if kind == "TensorLoad" else node.buffer
        offset: Any = 0
        for index, size in zip(node.indices, buffer.shape, strict=True):
            offset = offset * size + index
        linear = detect_linear_equation(offset, variables)
        if not linear:
            return None
        strides.append(([int(c) for c in linear[:-1]], tvm.DataType(buffer.dtype).itemsize))
    return strides
