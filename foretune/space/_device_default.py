"""The default schedule of a program on a GPU: of TVM's dlight rules, the first that fits.

A GPU runs nothing without thread bindings, so that there is no naive program to start from: this
schedule is what counts as untuned, and what an operator without a better candidate is compiled
with. Both are the same, so that a candidate that becomes best beats what would have shipped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from foretune.workload import walk

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_REDUCTION = 2  # tvm.tirx.IterVar.CommReduce
_WARP = 32
"""Sums of fewer elements are one thread's work: two of dlight's rules give a block to each."""


def device_schedule(module: IRModule, hardware: Hardware) -> IRModule:
    """Schedules every PrimFunc of a module that is not marked as scheduled.

    A function on which a rule raises gets the last rule, which binds loops as they are.
    """
    from foretune import _tvm

    result = _tvm.IRModule(dict(module.functions.items()))
    for variable, function in module.functions.items():
        if isinstance(function, _tvm.PrimFunc) and not is_scheduled(function):
            result.update_func(variable, _scheduled(function, hardware))
    return result


def is_scheduled(function: Any) -> bool:
    """Whether a function is marked as one that needs no default schedule."""
    return function.attrs is not None and bool(function.attrs.get("tirx.is_scheduled", False))


def _scheduled(function: Any, hardware: Hardware) -> Any:
    from foretune import _tvm

    gpu = _tvm.tvm.s_tir.dlight.gpu
    rules = [gpu.Matmul(), gpu.GEMV()]
    if _longest_reduction(function) >= _WARP:
        rules += [gpu.Reduction(), gpu.GeneralReduction()]
    rules.append(gpu.Fallback())
    try:
        return _apply(function, hardware, rules)
    except Exception:  # the rules were written for what language models hold; others trip them
        return _apply(function, hardware, rules[-1:])


def _longest_reduction(function: Any) -> int:
    """Elements that a block sums into one; the most of all blocks, 1 where none sums."""
    longest = 1
    for node in walk(function.body):
        if type(node).__name__ == "SBlock":
            extents = [
                int(getattr(axis.dom.extent, "value", _WARP))
                for axis in node.iter_vars
                if axis.iter_type == _REDUCTION
            ]
            longest = max(longest, math.prod(extents))
    return longest


def _apply(function: Any, hardware: Hardware, rules: list[Any]) -> Any:
    from foretune import _tvm

    module = _tvm.IRModule({"main": function})
    with hardware.tvm_target():
        return _tvm.tvm.s_tir.dlight.ApplyDefaultSchedule(*rules)(module)["main"]
