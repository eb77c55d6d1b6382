"""Which inputs of a network end up as indices, and how far they may reach.

The calls that integers flow through are lowered to tensor programs, and those say what they index:
so that no operator has to be known by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.workload._indices import index_limits, value_sources

if TYPE_CHECKING:
    from foretune._tvm import IRModule


def input_index_limits(module: IRModule) -> dict[int, int]:
    """Position of each integer input that ends up as an index: what it must stay below.

    Args:
        module: Relax, with a ``main``.

    Returns:
        The length of the shortest dimension that the input's values index. What is calculated with
        them on the way is not looked at: whether the original takes a value, only it can say.
    """
    main = module["main"]
    inputs = [parameter for parameter in main.params if _is_integer(parameter.ty)]
    bindings = _reached(main, inputs) if inputs else []
    if not bindings:
        return {}
    lowered = _lowered(module, inputs[0], bindings)
    limits = _limits(lowered)
    return {at: limits[p] for at, p in enumerate(main.params) if p in limits}


def _is_integer(ty: Any) -> bool:
    from foretune import _tvm

    if isinstance(ty, _tvm.tvm.relax.TupleType):
        return any(_is_integer(part) for part in ty.fields)
    return str(getattr(ty, "dtype", "")).startswith(("int", "uint"))


def _reached(main: Any, inputs: list[Any]) -> list[Any]:
    """Bindings that the integers of these inputs reach, in order."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    integers = set(inputs)
    reached = []
    for block in main.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
                continue
            if integers.isdisjoint(relax.analysis.free_vars(binding.value)):
                continue
            reached.append(binding)
            if _is_integer(binding.var.ty):
                integers.add(binding.var)
    return reached


def _lowered(module: IRModule, result: Any, bindings: list[Any]) -> IRModule:
    """A module whose ``main`` has these bindings alone, each operator as a call of its program."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    parameters = list(relax.analysis.free_vars(body))
    part = dict(module.functions.items())
    part[module.get_global_var("main")] = relax.Function(parameters, body, result.ty)
    lowered: IRModule = relax.transform.LegalizeOps()(_tvm.IRModule(part))
    return lowered


def _limits(module: IRModule) -> dict[Any, int]:
    """What each variable of ``main`` must stay below, from its uses back to the inputs."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    limits: dict[Any, int] = {}

    def note(target: Any, limit: int | None) -> None:
        if limit is None:
            return
        if isinstance(target, relax.Tuple):
            for part in target.fields:
                note(part, limit)
        elif isinstance(target, relax.Var) and _is_integer(target.ty):
            limits[target] = min(limit, limits.get(target, limit))

    for binding in reversed([b for block in module["main"].body.blocks for b in block.bindings]):
        value, limit = binding.value, limits.get(binding.var)
        if isinstance(value, relax.TupleGetItem):
            note(value.tuple_value, limit)
        elif not isinstance(value, relax.Call):
            note(value, limit)
        elif str(getattr(value.op, "name", "")) == "relax.call_tir":
            program, arguments = module[value.args[0]], list(value.args[1].fields)
            for at, below in index_limits(program).items():
                if at < len(arguments):
                    note(arguments[at], below)
            if limit is not None:
                for at in value_sources(program, len(arguments)):
                    if at < len(arguments):
                        note(arguments[at], limit)
        else:
            for argument in value.args:
                note(argument, limit)
    return limits
