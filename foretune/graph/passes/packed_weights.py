"""Constant weights in the order in which a kernel reads them, written so at compile time.

A matrix ``W[K, N]`` is read in tiles: a few columns of every row. Each row of a tile lies elsewhere
in memory, in a page of its own where rows are long. Before → after, with panels of ``L`` columns,
the lanes of a vector::

    matmul(x, W)                   →  y[m, o, l] = sum over k of x[m, k] * P[o, k, l]
                                      with P[o, k, l] = W[k, o * L + l]; y is viewed as [M, N]
    conv(x, W), channels last      →  the same with P[o, h, w, i, l] = W[h, w, i, o * L + l]

A panel is read from its begin to its end. A convolution with a kernel of one element that visits
every place is a product of matrices, and becomes one. What follows (bias, activation, residual)
sinks above the view (``reshapes``) and fuses with the kernel as before.

Columns that do not fill panels are filled up with zeros, and a last stage of the kernel leaves out
what those gave: then ``y`` is ``[M, N]``, and what follows joins that stage. Weights that are
computed stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune.graph.passes.layouts import CHANNELS_LAST
from foretune.graph.passes.rewrites import call_of, cleaned, constant, extents, is_constant
from foretune.operators.panels import convolution, panels, product

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.passes._decisions import Decisions
    from foretune.hardware import Hardware

_PRODUCT = frozenset({"relax.matmul"})
_BITS = {"float32": 32, "float64": 64}
_NARROW_BITS = 128
"""Width of the narrowest vectors."""


PANELS, PLAIN = "panels", "plain"


def pack_weights(module: IRModule, hardware: Hardware, decisions: Decisions) -> IRModule:
    """Packs the constant weights of the products and convolutions of ``main`` that fit.

    All of them, where a plan does not say ``"plain"``.
    """
    mutator = _mutator(hardware, decisions)
    main = mutator.visit_expr(module["main"])
    return cleaned(module, main, mutator)


def lanes_of(tensor: Any, hardware: Hardware, columns: int) -> int:
    """Columns of a panel of such numbers; 0 where they stay as they are.

    The lanes of a vector, or of half or a quarter of one where that holds all columns.
    """
    bits = _BITS.get(str(tensor.ty.dtype))
    if bits is None or hardware.simd_bits < 2 * bits:
        return 0
    lanes = hardware.simd_bits // bits
    while columns <= lanes // 2 and lanes * bits > _NARROW_BITS:
        lanes //= 2
    return lanes


def _mutator(hardware: Hardware, decisions: Decisions) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    packed: dict[Any, Any] = {}

    @relax.expr_functor.mutator
    class Packer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            lanes = lanes_of(call, hardware, extents(call.args[1])[-1]) if _fits(call) else 0
            if not lanes or not self._wanted(call):
                return call
            if call_of(call, _PRODUCT) or _is_product(call):
                return self._product(call, call.args[1], lanes)
            return self._convolution(call, lanes)

        def _wanted(self, call: Any) -> bool:
            return decisions.take(call, [PANELS, PLAIN], PANELS) == PANELS

        def _product(self, call: Any, weight: Any, lanes: int) -> Any:
            data = self._viewed(call.args[0], [-1, extents(weight)[-2]])
            packed = self._panels(weight, lanes, 2)
            columns = extents(weight)[-1]
            result = self.builder_.emit_te(
                product, data, packed, columns, primfunc_name_hint="matmul"
            )
            return relax.op.reshape(result, call.ty.shape)

        def _convolution(self, call: Any, lanes: int) -> Any:
            attrs, rank = call.attrs, len(extents(call)) - 2
            result = self.builder_.emit_te(
                convolution,
                call.args[0],
                self._panels(call.args[1], lanes, rank + 2),
                extents(call)[-1],
                [int(s) for s in attrs.strides],
                [int(p) for p in attrs.padding],
                [int(d) for d in attrs.dilation],
                primfunc_name_hint=f"conv{rank}d",
            )
            return relax.op.reshape(result, call.ty.shape)

        def _viewed(self, data: Any, shape: Sequence[int]) -> Any:
            rows = math.prod(extents(data)) // shape[1]
            if extents(data) == [rows, shape[1]]:
                return data
            return self.builder_.emit(relax.op.reshape(data, [rows, shape[1]]))

        def _panels(self, weight: Any, lanes: int, rank: int) -> Any:
            # One that several calls share stays one.
            key = weight, lanes, rank
            if key not in packed:
                packed[key] = decisions.made(
                    weight, ("panels", lanes, rank), lambda: _packed(weight, lanes, rank)
                )
            return packed[key]

    return Packer()


def _packed(weight: Any, lanes: int, rank: int) -> Any:
    values = weight.value.numpy()
    return constant(panels(values.reshape(values.shape[-rank:]), lanes))


def _fits(call: Any) -> bool:
    """Whether a call is a product or a convolution with constant weights that can be packed."""
    name = str(getattr(call.op, "name", ""))
    if name not in CHANNELS_LAST and not call_of(call, _PRODUCT):
        return False
    data, weight = call.args
    same = {str(part.ty.dtype) for part in call.args} == {str(call.ty.dtype)}
    if not is_constant(weight) or not same or 0 in [*extents(call), *extents(weight)]:
        return False
    if call_of(call, _PRODUCT):
        return len(extents(weight)) == 2 and len(extents(data)) > 1
    return _is_plain(call, CHANNELS_LAST[name])


def _is_plain(call: Any, layouts: tuple[str, str]) -> bool:
    attrs = call.attrs
    return (
        (str(attrs.data_layout), str(attrs.kernel_layout)) == layouts
        and str(attrs.out_layout or layouts[0]) == layouts[0]
        and int(attrs.groups) == 1
    )


def _is_product(call: Any) -> bool:
    """Whether a convolution reads one place for each that it writes, in order."""
    attrs = call.attrs
    return (
        all(extent == 1 for extent in extents(call.args[1])[:-2])
        and all(int(s) == 1 for s in attrs.strides)
        and not any(int(p) for p in attrs.padding)
    )
