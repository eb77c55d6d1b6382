"""The schedule of kernels that were not tuned.

The default schedules of the space room: its own on a CPU, TVM's dlight rules on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.space import default_schedule as schedule_function
from foretune.space import device_schedule, is_scheduled

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware


def default_schedule(module: IRModule, hardware: Hardware) -> IRModule:
    """Schedules every PrimFunc of a module that is not marked as scheduled."""
    from foretune import _tvm

    if not hardware.has_cores:
        return device_schedule(module, hardware)
    result = _tvm.IRModule(dict(module.functions.items()))
    for variable, function in module.functions.items():
        if isinstance(function, _tvm.PrimFunc) and not is_scheduled(function):
            scheduled = _cpu(function, hardware)
            result.update_func(variable, scheduled.with_attr("tirx.is_scheduled", True))
    return result


def _cpu(function: Any, hardware: Hardware) -> Any:
    symbol = function.attrs.get("global_symbol", None) if function.attrs else None
    named = function.with_attr("global_symbol", "main")
    scheduled = schedule_function(named, hardware).mod["main"]
    # Fused functions are private until they are lowered: they have no symbol.
    return (
        scheduled.without_attr("global_symbol")
        if symbol is None
        else scheduled.with_attr("global_symbol", symbol)
    )
