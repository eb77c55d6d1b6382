"""From Relax operators to tensor programs; what cannot be lowered is named, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from foretune.errors import UnsupportedOperatorsError

if TYPE_CHECKING:
    from foretune._tvm import IRModule

# Calls that the lowering to TVM's virtual machine takes as they are.
_LOWERED = (
    *("relax.call_", "relax.memory.", "relax.builtin.", "relax.vm.", "relax.inspect."),
    *("relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape", "relax.null_value"),
    *("relax.print", "relax.assert_op", "relax.invoke_", "relax.to_vdevice"),
)


def lower(module: IRModule, network: str) -> IRModule:
    """Every operator of ``main`` as a call of a tensor program, save what ``dispatched`` takes.

    Raises:
        UnsupportedOperatorsError: TVM has no lowering for some, or it fails on them.
    """
    from foretune import _tvm

    legalize = _tvm.tvm.relax.transform.LegalizeOps()
    try:
        lowered: IRModule = legalize(module)
    # A rule of TVM for one operator raises what it likes: which one it was is found below.
    except Exception:
        failing = _grouped((name, call) for name, call in _calls(module) if not _lowers(call))
        if not failing:
            raise
        raise UnsupportedOperatorsError(network, failing) from None
    left = _grouped(_calls(legalize(dispatched(lowered))))
    if left:
        raise UnsupportedOperatorsError(network, left)
    return lowered


def dispatched(module: IRModule) -> IRModule:
    """Sorting, scans and sampling as calls of TVM's own programs, which nothing fuses with."""
    from foretune import _tvm

    backend = _tvm.tvm.relax.backend
    passes = [backend.DispatchSampling(), backend.DispatchSortScan()]
    done: IRModule = _tvm.tvm.transform.Sequential(passes)(module)
    return done


def _calls(module: IRModule) -> Iterator[tuple[str, Any]]:
    """The variables of ``main`` that are bound to an operator not lowered yet, with the call."""
    from foretune import _tvm

    tvm = _tvm.tvm
    calls: list[tuple[str, Any]] = []

    def visit(node: Any) -> None:
        for block in getattr(node, "blocks", ()) if isinstance(node, tvm.relax.SeqExpr) else ():
            for binding in block.bindings:
                call = getattr(binding, "value", None)
                if isinstance(call, tvm.relax.Call) and isinstance(call.op, tvm.ir.Op):
                    calls.append((str(binding.var.name), call))

    tvm.relax.analysis.post_order_visit(module["main"], visit)
    return iter([(n, call) for n, call in calls if not str(call.op.name).startswith(_LOWERED)])


def _grouped(calls: Iterator[tuple[str, Any]]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for variable, call in calls:
        named.setdefault(str(call.op.name).removeprefix("relax."), []).append(variable)
    return named


def _lowers(call: Any) -> bool:
    """Whether TVM lowers one call when it stands alone, its operands being inputs."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    builder = relax.BlockBuilder()
    inputs = relax.analysis.free_vars(call)
    with builder.function("main", list(inputs)):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    try:
        lowered = relax.transform.LegalizeOps()(builder.get())
    except Exception:
        return False
    return next(_calls(lowered), None) is None
