"""Reshape sinking: move ``reshape`` below element-wise operators so that those fuse with a kernel.

PyTorch wraps each matrix product of a transformer in reshapes from and to two dimensions. A
reshape between a product and the operators behind it (bias, GELU, residual) keeps TVM from fusing
them, and each becomes a kernel that reads and writes the whole activation. ``R`` is a
reshape, ``R'`` another one.

=====================  ======================
before                 after
=====================  ======================
``f(R(x))``            ``R(f(x))`` for an element-wise ``f``
``R(x) + y``           ``R(x + R'(y))``, likewise every broadcasting binary operator, where
                       ``y`` is as broadcast over ``x`` as over ``R(x)``
=====================  ======================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.graph.passes._sinking import BINARY, UNARY
from foretune.graph.passes.rewrites import (
    RESHAPE,
    call_of,
    cleaned,
    constant,
    extents,
    is_constant,
    scalar,
)

if TYPE_CHECKING:
    from foretune._tvm import IRModule


def sink_reshapes(module: IRModule) -> IRModule:
    """Moves reshapes of ``main`` below element-wise operators."""
    return cleaned(module, _mutator().visit_expr(module["main"]))


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Sinker(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = getattr(call.op, "name", "")
            if name in UNARY:
                return self._unary(call)
            return self._binary(call) if name in BINARY else call

        def _sources(self, expression: Any) -> list[Any]:
            """What was reshaped, once or several times, into a variable; the first one first."""
            found: list[Any] = []
            while isinstance(expression, relax.Var):
                value = self.lookup_binding(expression)
                if not call_of(value, RESHAPE):
                    break
                expression = value.args[0]
                found.insert(0, expression)
            return found

        def _unary(self, call: Any) -> Any:
            sources = self._sources(call.args[0])
            if not sources:
                return call
            operands = [sources[0], *call.args[1:]]
            inner = self.builder_.emit(relax.Call(call.op, operands, call.attrs))
            return relax.op.reshape(inner, call.ty.shape)

        def _binary(self, call: Any) -> Any:
            result = extents(call)
            for place, operand in enumerate(call.args):
                if extents(operand) != result:
                    continue
                for source in self._sources(operand):
                    other = self._beside(call.args[1 - place], result, source)
                    if other is None:
                        continue
                    operands = [source, other] if place == 0 else [other, source]
                    inner = self.builder_.emit(relax.Call(call.op, operands, call.attrs))
                    return relax.op.reshape(inner, call.ty.shape)
            return call

        def _beside(self, other: Any, result: list[int], source: Any) -> Any | None:
            """The other operand as it stands beside ``source``; None where it cannot."""
            below = _align(extents(other), result, extents(source))
            if scalar(other) is None:
                return None if below is None else self._reshaped(other, below)
            if is_constant(other) and len(extents(other)) > len(extents(source)):
                return constant(other.value.numpy().reshape(1))
            return other

        def _reshaped(self, operand: Any, shape: Sequence[int]) -> Any:
            if extents(operand) == list(shape):
                return operand
            if is_constant(operand):
                return constant(operand.value.numpy().reshape(shape))
            for source in self._sources(operand):
                if extents(source) == list(shape):
                    return source
            return self.builder_.emit(relax.op.reshape(operand, shape))

    return Sinker()


def _align(other: list[int], result: list[int], source: list[int]) -> list[int] | None:
    """The shape ``other`` takes so that it broadcasts to ``source`` as it does to ``result``.

    None where there is none: an axis of ``other`` has the extent of one of several axes of
    ``result`` that are one axis of ``source``. For example ``other = [768]``, ``result = [1, 128,
    768]`` and ``source = [128, 768]`` give ``[1, 768]``.
    """
    padded = [1] * (len(result) - len(other)) + other
    pairs = [(extent, p) for extent, p in zip(result, padded, strict=True) if extent != 1]
    aligned = [1] * len(source)
    places = [at for at, extent in enumerate(source) if extent != 1]
    while pairs and places:
        # The fewest axes of each that hold the same elements.
        above, below = [pairs.pop(0)], [places.pop(0)]
        while (held := math.prod(e for e, _ in above)) != (
            wanted := math.prod(source[at] for at in below)
        ):
            left: list[Any] = pairs if held < wanted else places
            if not left:
                return None
            (above if held < wanted else below).append(left.pop(0))
        kept = [p for _, p in above]
        if kept == [extent for extent, _ in above]:
            for at in below:
                aligned[at] = source[at]
        elif any(p != 1 for p in kept):
            return None
    return None if pairs or places else aligned
