"""Transpose sinking: move ``permute_dims`` towards the outputs until pairs of them cancel.

Symbols: ``P(x)`` is ``permute_dims(x, axes)`` and ``Q`` its inverse. Every rule keeps the value of
each variable; the transposes that lose their last use are dead code afterwards.

====================  ==================
before                after
====================  ==================
``Q(P(x))``           ``x``
``f(P(x))``           ``P(f(x))`` for an element-wise ``f``, ``clip`` and ``pad``
``P(x) + P(y)``       ``P(x + y)``, likewise every broadcasting binary operator
``P(x) + constant``   ``P(x + Q(constant))``, ``Q`` computed here
``mean(P(x), axes)``  ``P(mean(x, axes of x))``, likewise sum, max and min
====================  ==================

Afterwards a transpose that moves only axes of extent 1 becomes a reshape, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph._rewrite import call_of, is_constant, scalar

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_PERMUTE = frozenset({"relax.permute_dims"})
UNARY = frozenset(
    {
        *("relax.abs", "relax.ceil", "relax.cos", "relax.erf", "relax.exp", "relax.floor"),
        *("relax.log", "relax.negative", "relax.round", "relax.rsqrt", "relax.sigmoid"),
        *("relax.sign", "relax.sin", "relax.sqrt", "relax.square", "relax.tanh"),
        *("relax.astype", "relax.clip", "relax.nn.relu", "relax.nn.relu6", "relax.nn.gelu"),
        *("relax.nn.gelu_tanh", "relax.nn.silu", "relax.nn.leakyrelu", "relax.nn.softplus"),
        "relax.nn.selu",
    }
)
BINARY = frozenset(
    {
        *("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.power"),
        *("relax.maximum", "relax.minimum", "relax.floor_divide"),
    }
)
_REDUCE = frozenset({"relax.mean", "relax.sum", "relax.max", "relax.min"})


def sink_transposes(module: IRModule) -> IRModule:
    """Moves transposes of ``main`` down and removes those that cancel."""
    return cleaned(module, _view_mutator().visit_expr(_mutator().visit_expr(module["main"])))


def cleaned(module: IRModule, main: Any) -> IRModule:
    """``module`` with another ``main``, without the bindings that nothing uses any more."""
    from foretune import _tvm

    result = _tvm.IRModule(dict(module.functions.items()))
    result.update_func(module.get_global_var("main"), main)
    transform = _tvm.tvm.relax.transform
    return _tvm.tvm.transform.Sequential(
        [
            transform.Normalize(),
            transform.CanonicalizeBindings(),
            transform.DeadCodeElimination(["main"]),
        ]
    )(result)


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Sinker(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = getattr(call.op, "name", "")
            if name == "relax.permute_dims":
                return self._cancel(call)
            if name in UNARY:
                return self._sink(
                    call,
                    call.args[:1],
                    lambda axes: relax.Call(
                        call.op, [self._below(call.args[0]), *call.args[1:]], call.attrs
                    ),
                )
            if name in _REDUCE:
                return self._reduce(call)
            if name == "relax.nn.pad":
                return self._sink(call, call.args[:1], lambda axes: self._pad(call, axes))
            if name in BINARY:
                return self._sink(
                    call,
                    call.args,
                    lambda axes: relax.Call(
                        call.op, [self._operand(a, axes) for a in call.args], call.attrs
                    ),
                )
            return call

        def _axes(self, expression: Any) -> tuple[int, ...] | None:
            """The axes of the transpose that made a variable, None if something else did."""
            if not isinstance(expression, relax.Var):
                return None
            value = self.lookup_binding(expression)
            if not call_of(value, _PERMUTE):
                return None
            rank = len(value.ty.shape)
            given = value.attrs.axes
            return (
                tuple(int(a) % rank for a in given)
                if given is not None
                else tuple(reversed(range(rank)))
            )

        def _below(self, variable: Any) -> Any:
            return self.lookup_binding(variable).args[0]

        def _cancel(self, call: Any) -> Any:
            if is_constant(call.args[0]):
                axes = None if call.attrs.axes is None else [int(a) for a in call.attrs.axes]
                values = np.ascontiguousarray(np.transpose(call.args[0].value.numpy(), axes))
                return relax.const(values, call.args[0].ty.dtype)
            inner = self._axes(call.args[0])
            if inner is None:
                return call
            outer = call.attrs.axes
            rank = len(inner)
            order = list(range(rank))[::-1] if outer is None else [int(a) % rank for a in outer]
            both = [inner[axis] for axis in order]
            source = self._below(call.args[0])
            return source if both == list(range(rank)) else relax.op.permute_dims(source, both)

        def _sink(
            self, call: Any, operands: Sequence[Any], make: Callable[[tuple[int, ...]], Any]
        ) -> Any:
            permuted = {axes for axes in map(self._axes, operands) if axes is not None}
            if len(permuted) != 1:
                return call
            (axes,) = permuted
            if not all(self._movable(operand, axes) for operand in operands):
                return call
            return relax.op.permute_dims(self.builder_.emit(make(axes)), list(axes))

        def _reduce(self, call: Any) -> Any:
            axes, reduced = self._axes(call.args[0]), call.attrs.axis
            if axes is None or reduced is None:
                return call
            moved = [axes[int(axis) % len(axes)] for axis in reduced]
            make = getattr(relax.op, call.op.name.removeprefix("relax."))
            inner = self.builder_.emit(make(self._below(call.args[0]), moved, keepdims=True))
            kept = relax.op.permute_dims(inner, list(axes))
            if call.attrs.keepdims:
                return kept
            return relax.op.reshape(self.builder_.emit(kept), call.ty.shape)

        def _movable(self, operand: Any, axes: tuple[int, ...]) -> bool:
            if self._axes(operand) == axes or scalar(operand) is not None:
                return True
            return is_constant(operand) and operand.value.numpy().ndim <= len(axes)

        def _operand(self, operand: Any, axes: tuple[int, ...]) -> Any:
            if self._axes(operand) is not None:
                return self._below(operand)
            if scalar(operand) is not None:
                return operand
            values = operand.value.numpy()
            values = values.reshape((1,) * (len(axes) - values.ndim) + values.shape)
            values = np.ascontiguousarray(np.transpose(values, np.argsort(axes)))
            return relax.const(values, operand.ty.dtype)

        def _pad(self, call: Any, axes: tuple[int, ...]) -> Any:
            widths = [int(w) for w in call.attrs.pad_width]
            moved = [widths[2 * int(a) + side] for a in np.argsort(axes) for side in (0, 1)]
            return relax.op.nn.pad(
                self._below(call.args[0]), moved, call.attrs.pad_mode, call.attrs.pad_value
            )

    return Sinker()


def _view_mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Viewer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Turns transposes that move no data into reshapes."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not call_of(call, _PERMUTE):
                return call
            shape = [int(extent) for extent in call.args[0].ty.shape]
            axes = call.attrs.axes
            order = [int(a) for a in axes] if axes is not None else list(range(len(shape)))[::-1]
            kept = [axis for axis in order if shape[axis] != 1]
            if kept != sorted(kept):
                return call
            return relax.op.reshape(call.args[0], [shape[axis] for axis in order])

    return Viewer()
