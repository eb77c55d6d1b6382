"""Transpose sinking: move ``permute_dims`` towards the outputs until pairs of them cancel.

Symbols: ``P(x)`` is ``permute_dims(x, axes)`` and ``Q`` its inverse. Every rule keeps the value of
each variable; the transposes that lose their last use are dead code afterwards.

======================  ===========================
before                  after
======================  ===========================
``Q(P(x))``             ``x``
``f(P(x))``             ``P(f(x))`` for an element-wise ``f``, and for every operator whose axes or
                        layout can be renamed (``_sinking``): reductions, softmax, pooling, ...
``P(x) + P(y)``         ``P(x + y)``, likewise every broadcasting binary operator
``P(x) + constant``     ``P(x + Q(constant))``, ``Q`` computed here
``concat(P(x), P(y))``  ``P(concat(x, y))``
``split(P(x))[i]``      ``P(split(x)[i])``
======================  ===========================

Afterwards a transpose that moves only axes of extent 1 becomes a reshape, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph.passes._sinking import REDUCE, Axes, rule_of
from foretune.graph.passes.rewrites import (
    PERMUTE,
    axes_of,
    call_of,
    cleaned,
    constant,
    extents,
    is_constant,
    scalar,
)

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_SPLIT = frozenset({"relax.split"})


def sink_transposes(module: IRModule) -> IRModule:
    """Moves transposes of ``main`` down and removes those that cancel."""
    return cleaned(module, _view_mutator().visit_expr(_mutator().visit_expr(module["main"])))


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Sinker(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if call_of(call, PERMUTE):
                return self._cancel(call)
            rule = rule_of(str(getattr(call.op, "name", "")))
            operands = [] if rule is None else rule.operands(call)
            axes = self._shared(operands)
            if rule is None or axes is None:
                return call
            inner = rule.make(call, [self._above(o, axes) for o in operands], axes)
            if inner is None:
                return call
            below = relax.op.permute_dims(self.builder_.emit(inner), list(axes))
            if str(call.op.name) in REDUCE and not call.attrs.keepdims:
                return relax.op.reshape(self.builder_.emit(below), call.ty.shape)
            return below

        def visit_tuple_getitem_(self, item: Any) -> Any:
            item = self.visit_expr_post_order(item)
            split = self._value(item.tuple_value)
            axes = self._axes(split.args[0]) if call_of(split, _SPLIT) else None
            if axes is None:
                return item
            attrs = split.attrs
            parts = attrs.indices_or_sections
            moved = relax.op.split(
                self._above(split.args[0], axes),
                int(parts.value) if hasattr(parts, "value") else list(parts),
                axis=axes[int(attrs.axis)],
            )
            # One split per part: equal ones are merged afterwards.
            part = self.builder_.emit(relax.TupleGetItem(self.builder_.emit(moved), item.index))
            return relax.op.permute_dims(part, list(axes))

        def _value(self, expression: Any) -> Any:
            """What a variable is bound to; None for other expressions."""
            return self.lookup_binding(expression) if isinstance(expression, relax.Var) else None

        def _axes(self, expression: Any) -> Axes | None:
            """The axes of the transpose that made a variable, None if something else did."""
            value = self._value(expression)
            return tuple(axes_of(value)) if call_of(value, PERMUTE) else None

        def _cancel(self, call: Any) -> Any:
            if is_constant(call.args[0]):
                return constant(np.transpose(call.args[0].value.numpy(), axes_of(call)))
            inner = self._axes(call.args[0])
            if inner is None:
                return call
            both = [inner[axis] for axis in axes_of(call)]
            source = self._value(call.args[0]).args[0]
            return source if both == list(range(len(both))) else relax.op.permute_dims(source, both)

        def _shared(self, operands: Sequence[Any]) -> Axes | None:
            """The axes of the one transpose that all operands which are no constants have."""
            transposes = {axes for axes in map(self._axes, operands) if axes is not None}
            if len(transposes) != 1:
                return None
            (axes,) = transposes
            return axes if all(self._movable(operand, axes) for operand in operands) else None

        def _movable(self, operand: Any, axes: Axes) -> bool:
            if is_constant(operand):
                return len(extents(operand)) <= len(axes)
            return self._axes(operand) == axes or scalar(operand) is not None

        def _above(self, operand: Any, axes: Axes) -> Any:
            if self._axes(operand) is not None:
                return self._value(operand).args[0]
            if not is_constant(operand) or not extents(operand):
                return operand
            values = operand.value.numpy()
            values = values.reshape((1,) * (len(axes) - values.ndim) + values.shape)
            return constant(np.transpose(values, np.argsort(axes)))

    return Sinker()


def _view_mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Viewer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Turns transposes that move no data into reshapes."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not call_of(call, PERMUTE):
                return call
            shape, order = extents(call.args[0]), axes_of(call)
            kept = [axis for axis in order if shape[axis] != 1]
            if kept != sorted(kept):
                return call
            return relax.op.reshape(call.args[0], [shape[axis] for axis in order])

    return Viewer()
