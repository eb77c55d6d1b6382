"""Fusion: one kernel for an operator and what follows it, where a plan does not keep them apart.

Which operators go into one kernel is TVM's business (``FuseOps``): a convolution or a product is
extended by the element-wise operators behind it. Whether one is extended is a decision per
operator. Before → after, for the choices::

    y = conv(x, W); z = relu(y + b)  →  z = fused_conv_add_relu(x, W, b)                "fused"
                                     →  y = conv(x, W); z = fused_add_relu(y, b)        "alone"

Alone, the result is written and read once more, and the kernel needs no room for what follows.
TVM is asked which operators it would extend: they are marked, fused, and looked for again. Those
that it leaves alone anyway, or extends by a view of the same memory, have no choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from foretune.graph.passes._decisions import kind_of, operands_of
from foretune.graph.passes.algorithms import LAST_STEP

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.passes._decisions import Decisions

FUSED, ALONE = "fused", "alone"

_PATTERN = "op_pattern"
_EXTENDED, _OPAQUE = 4, 8  # TVM's OpPatternKind: what follows joins; nothing does
_PLACE = "foretune.place"
"""Attribute of a program that says which operator it is, while TVM is asked."""


def choose_fusion(module: IRModule, decisions: Decisions) -> IRModule:
    """Keeps operators of ``main`` alone where that is decided.

    Args:
        module: With the patterns that ``AnnotateTIROpPattern`` finds.
        decisions: What is chosen.
    """
    calls = [call for call in _programs_called(module["main"]) if _is_extended(module, call)]
    extended = _extended(module, calls)
    readers = _readers(module["main"])
    alone = set()
    for place, call in enumerate(calls):
        reader = readers.get(call)
        if place not in extended and call not in readers.values():
            decisions.skip(call if reader is None else reader)
        elif place in extended and decisions.take(call, [FUSED, ALONE], FUSED, reader) == ALONE:
            alone.add(call)
    if not alone:
        return module
    return _redirected(module, {call: (_PATTERN, _OPAQUE) for call in alone}, "alone")


def _is_extended(module: IRModule, call: Any) -> bool:
    attrs = module[call.args[0]].attrs
    return attrs is not None and int(attrs.get(_PATTERN, _OPAQUE)) == _EXTENDED


def _readers(main: Any) -> dict[Any, Any]:
    """Winograd's last steps, each with the product that reads the weights."""
    bound: dict[Any, Any] = {}
    readers: dict[Any, Any] = {}
    for variable, call in _bound_programs(main):
        bound[variable] = call
        if kind_of(call) == LAST_STEP:
            readers[call] = bound.get(operands_of(call)[0])
    return readers


def _extended(module: IRModule, calls: list[Any]) -> set[int]:
    """Places of the calls that TVM would extend by something that is no view."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    marks = {call: (_PLACE, place) for place, call in enumerate(calls)}
    fused = relax.transform.FuseOps()(_redirected(module, marks, "placed"))
    joined: set[int] = set()
    for function in fused.functions.values():
        if not isinstance(function, relax.Function):
            continue
        if function.attrs is None or not function.attrs.get("Primitive", 0):
            continue
        programs = [fused[call.args[0]] for call in _programs_called(function)]
        places = [int(p.attrs[_PLACE]) for p in programs if _PLACE in p.attrs]
        views = sum(bool(relax.analysis.has_reshape_pattern(p)) for p in programs)
        if len(programs) - views > len(places):
            joined.update(places)
    return joined


def _programs_called(function: Any) -> Iterator[Any]:
    """The calls of tensor programs, in order."""
    return (call for _, call in _bound_programs(function))


def _bound_programs(function: Any) -> Iterator[tuple[Any, Any]]:
    """The same, each behind the variable that it is bound to."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    for block in function.body.blocks if isinstance(function.body, relax.SeqExpr) else ():
        for binding in block.bindings:
            call = getattr(binding, "value", None)
            if isinstance(call, relax.Call) and str(getattr(call.op, "name", "")) == (
                "relax.call_tir"
            ):
                yield binding.var, call


def _redirected(
    module: IRModule, attributes: Mapping[Any, tuple[str, int]], suffix: str
) -> IRModule:
    """The module in which some calls have a program of their own.

    Args:
        module: Is left as it is.
        attributes: Call to an attribute of its program, with its value.
        suffix: Of the names of new programs.
    """
    from foretune import _tvm

    relax = _tvm.tvm.relax
    builder = relax.BlockBuilder(module)
    made: dict[tuple[Any, tuple[str, int]], Any] = {}
    for call, attribute in attributes.items():
        if (call.args[0], attribute) not in made:
            function = module[call.args[0]].with_attr(*attribute)
            name = f"{call.args[0].name_hint}_{suffix}"
            made[call.args[0], attribute] = builder.add_func(function, name)

    @relax.expr_functor.mutator
    class Redirector(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            attribute = attributes.get(call)
            call = self.visit_expr_post_order(call)
            if attribute is None:
                return call
            arguments = [made[call.args[0], attribute], *call.args[1:]]
            return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    main = Redirector().visit_expr(module["main"])
    result = _tvm.IRModule(dict(builder.get().functions.items()), attrs=module.attrs)
    result.update_func(module.get_global_var("main"), main)
    normalized: IRModule = relax.transform.Normalize()(result)
    return normalized
