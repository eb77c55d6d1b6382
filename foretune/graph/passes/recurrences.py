"""Recurrent layers: the steps of each direction as one kernel, or one after the other.

Before → after, for float32 with constant weights on a CPU::

    y, h, c = recurrence(gates, R, h0, c0)   →  y, h, c = kernel(gates, panels of R, h0, c0)

All others are unrolled: a product and a few element-wise operators for each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import UnsupportedModelError
from foretune.graph.passes._kernels import MOST_ELEMENTS
from foretune.graph.passes.attention import machine_of
from foretune.graph.passes.rewrites import cleaned, constant, extents, is_constant
from foretune.operators.recurrent import (
    LONGEST,
    Recurrence,
    recurrence_of,
    result_shapes,
    unroll,
)
from foretune.operators.recurrent_kernel import columns_of, panels, recurrence_kernel

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_Operands = dict[str, Any]
_Visit = Callable[[Any], Any]
_Replace = Callable[[Any, Recurrence, _Operands, _Visit], Any]


def recurrence_kernels(module: IRModule, hardware: Hardware) -> IRModule:
    """``main`` with a kernel in place of each recurrence that fits."""
    machine = machine_of(hardware)
    known: dict[Recurrence, Any] = {}
    constants = _constant_weights(module)

    def kernel(builder: Any, what: Recurrence, operands: _Operands, visit: _Visit) -> Any:
        operands = {name: constants.get(value, value) for name, value in operands.items()}
        if not _fits(what, operands):
            return None
        if what not in known:
            program = recurrence_kernel(what, machine.lanes, machine.sums)
            known[what] = builder.add_func(program, what.kind)
        lanes = machine.lanes
        packed = {name: visit(value) for name, value in operands.items()}
        packed["weight"] = _packed(operands["weight"], what.places, what.batch, lanes)
        if what.projected:
            packed["projection"] = _packed(operands["projection"], (0,), what.batch, lanes)
        return _called(builder, known[what], list(packed.values()), result_shapes(what))

    return _replaced(module, kernel)


def unrolled_recurrences(module: IRModule) -> IRModule:
    """``main`` with the steps of each recurrence that is left one after the other.

    Raises:
        UnsupportedModelError: One has too many steps.
    """

    longest = max((what.steps for what, _ in _found(module)), default=0)
    if longest > LONGEST:
        raise UnsupportedModelError(
            f"a recurrent layer has {longest} steps, and no more than {LONGEST} are unrolled; on a "
            "CPU, in float32, with constant weights and with --pass recurrences on, a layer of any "
            "length is one kernel"
        )

    def steps(builder: Any, what: Recurrence, operands: _Operands, visit: _Visit) -> Any:
        visited = {name: visit(value) for name, value in operands.items()}
        return unroll(lambda e: builder.emit(builder.normalize(e)), what, visited)

    return _replaced(module, steps)


def _replaced(module: IRModule, replace: _Replace) -> IRModule:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    if not _found(module):
        return module

    @relax.expr_functor.mutator
    class Replacer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            marked = recurrence_of(call)
            if marked is None:
                return self.visit_expr_post_order(call)
            what, operands = marked
            made = replace(self.builder_, what, operands, self.visit_expr)
            return self.visit_expr_post_order(call) if made is None else made

    mutator = Replacer()
    return cleaned(module, mutator.visit_expr(module["main"]), mutator)


def _constant_weights(module: IRModule) -> dict[Any, Any]:
    """Variables of weights that can be computed now -> constants.

    Only what they are made of is computed: TVM's pass over all of ``main`` has its turn later, when
    operators that it fails on are gone.
    """
    from foretune import _tvm

    tvm, relax = _tvm.tvm, _tvm.tvm.relax
    names = ("weight", "projection")
    weights = [operands[n] for _, operands in _found(module) for n in names if n in operands]
    weights = [weight for weight in weights if not is_constant(weight)]
    if not weights:
        return {}
    main = module["main"]
    every = relax.Tuple(weights)
    type_ = relax.TupleType([weight.ty for weight in weights])
    result = relax.Var("weights", type_)
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, every)])
    function = relax.Function(main.params, relax.SeqExpr([block], result), type_)
    function = relax.utils.copy_with_new_vars(function.with_attr("global_symbol", "main"))
    alone = _tvm.IRModule({"main": function})
    transform = relax.transform
    alone = tvm.transform.Sequential(
        [
            transform.Normalize(),
            transform.DeadCodeElimination(["main"]),
            transform.FoldConstant(),
            transform.CanonicalizeBindings(),
        ]
    )(alone)
    bound = {b.var: b.value for part in alone["main"].body.blocks for b in part.bindings}
    fields = bound[alone["main"].body.body].fields
    found = [bound.get(field, field) for field in fields]
    return {
        weight: value for weight, value in zip(weights, found, strict=True) if is_constant(value)
    }


def _found(module: IRModule) -> list[tuple[Recurrence, _Operands]]:
    from foretune import _tvm

    layers: list[tuple[Recurrence, _Operands]] = []

    def visit(node: Any) -> None:
        marked = recurrence_of(node)
        if marked is not None:
            layers.append(marked)

    _tvm.tvm.relax.analysis.post_order_visit(module["main"], visit)
    return layers


def _fits(what: Recurrence, operands: dict[str, Any]) -> bool:
    weights = [operands[name] for name in ("weight", "projection") if name in operands]
    shapes = [*result_shapes(what), *(extents(operand) for operand in operands.values())]
    return (
        all(str(operand.ty.dtype) == "float32" for operand in operands.values())
        and all(is_constant(weight) for weight in weights)
        and all(0 < math.prod(shape) < MOST_ELEMENTS for shape in shapes)
    )


def _packed(weight: Any, places: tuple[int, ...], batch: int, lanes: int) -> Any:
    units = extents(weight)[0] // len(places)
    columns = columns_of(units, len(places), batch, lanes)
    return constant(panels(weight.value.numpy(), places, columns))


def _called(
    builder: Any, kernel: Any, operands: Sequence[Any], shapes: Sequence[Sequence[int]]
) -> Any:
    """A tuple of the results of a kernel on flat buffers, in their shapes."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    flat = [builder.emit(relax.op.reshape(o, [math.prod(extents(o))])) for o in operands]
    types = [relax.TensorType([math.prod(shape)], "float32") for shape in shapes]
    results = builder.emit(relax.call_tir(kernel, flat, types))
    return relax.Tuple(
        [
            builder.emit(relax.op.reshape(builder.emit(relax.TupleGetItem(results, at)), shape))
            for at, shape in enumerate(shapes)
        ]
    )
