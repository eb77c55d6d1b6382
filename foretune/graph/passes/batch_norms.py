"""Batch norm at inference is a product and a sum per channel: both go into the layer before it.

Before → after, for convolutions and transposed ones of one to three dimensions in any layout, and
for products with a constant matrix, with and without a bias::

    batch_norm(conv(x, W) + b)[0]  →  conv(x, W * scale) + (b * scale + shift)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph.passes.rewrites import call_of, cleaned, constant, extents, is_constant

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune._tvm import IRModule

_BATCH_NORM = frozenset({"relax.nn.batch_norm"})
_ADD = frozenset({"relax.add"})
_PRODUCT = frozenset({"relax.matmul"})
_CONVOLUTION = frozenset(f"relax.nn.conv{rank}d" for rank in (1, 2, 3))
_TRANSPOSED = frozenset(f"{name}_transpose" for name in _CONVOLUTION)
_LAYERS = _PRODUCT | _CONVOLUTION | _TRANSPOSED


def fold_batch_norms(module: IRModule) -> IRModule:
    """Folds every batch norm of ``main`` whose layer nobody else reads."""
    return cleaned(module, _mutator(module["main"]).visit_expr(module["main"]))


@dataclass(frozen=True)
class _Layer:
    """What stands before a batch norm.

    Attributes:
        call: A product or a convolution.
        bias: What is added to it, per channel; None for nothing.
    """

    call: Any
    bias: Array | None


def _mutator(function: Any) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    values, uses = relax.analysis.get_var2val(function), _uses(function)

    def alone(variable: Any) -> bool:
        # Weights scaled for a second use would be another layer to compute.
        return uses.get(variable) == 1

    @relax.expr_functor.mutator
    class Folder(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_tuple_getitem_(self, item: Any) -> Any:
            norm: Any = values.get(item.tuple_value)
            wanted = (
                item.index == 0
                and call_of(norm, _BATCH_NORM)
                and not norm.attrs.training
                and alone(item.tuple_value)
            )
            item = self.visit_expr_post_order(item)
            if not wanted:
                return item
            layer = _layer(norm, values, alone)
            norm = self.lookup_binding(item.tuple_value)
            if layer is None or not all(map(is_constant, norm.args[1:5])):
                return item
            folded = self._folded(norm, layer)
            return item if folded is None else folded

        def _folded(self, norm: Any, layer: _Layer) -> Any:
            call = self.visit_expr_post_order(layer.call)
            scale, shift = _scale_and_shift(norm)
            axis = int(norm.attrs.axis) % len(extents(norm.args[0]))
            weight = _scaled(call, scale, axis)
            if weight is None:
                return None
            if layer.bias is not None:
                shift = shift + layer.bias.astype("float64") * scale
            along = [-1 if place == axis else 1 for place in range(len(extents(call)))]
            shift = shift.reshape(along).astype(weight.dtype)
            scaled = relax.Call(call.op, [call.args[0], constant(weight)], call.attrs)
            return relax.op.add(self.builder_.emit(scaled), constant(shift))

    return Folder()


def _layer(norm: Any, values: Any, alone: Any) -> _Layer | None:
    """The layer of a batch norm, as it was written; None where there is none that can take it."""
    given = norm.args[0]
    call, bias = values.get(given), None
    if not alone(given):
        return None
    if call_of(call, _ADD):
        operands = [values.get(operand, operand) for operand in call.args]
        place = next((at for at, each in enumerate(operands) if is_constant(each)), None)
        if place is None or not alone(call.args[1 - place]):
            return None
        bias = _per_channel(operands[place].value.numpy(), norm)
        if bias is None or extents(call) != extents(call.args[1 - place]):
            return None
        call = operands[1 - place]
    if not call_of(call, _LAYERS):
        return None
    kinds = {str(part.ty.dtype) for part in (given, *call.args)}
    return _Layer(call, bias) if len(kinds) == 1 else None


def _per_channel(values: Array, norm: Any) -> Array | None:
    """What is added, one number per channel; None where it differs within one."""
    shape = extents(norm.args[0])
    axis = int(norm.attrs.axis) % len(shape)
    padded = (1,) * (len(shape) - values.ndim) + values.shape
    if any(extent != 1 for place, extent in enumerate(padded) if place != axis):
        return None
    return np.broadcast_to(values.reshape(-1), (shape[axis],))


def _scale_and_shift(norm: Any) -> tuple[Array, Array]:
    gamma, beta, mean, variance = (a.value.numpy().astype("float64") for a in norm.args[1:5])
    scale = 1.0 / np.sqrt(variance + float(norm.attrs.epsilon))
    if norm.attrs.scale:
        scale = scale * gamma
    shift = -mean * scale
    return scale, shift + beta if norm.attrs.center else shift


def _scaled(call: Any, scale: Array, axis: int) -> Array | None:
    """The weights of a layer, those of each output channel times its number of ``scale``.

    None where the weights are not constant, or ``axis`` of the result has no channels.
    """
    if not is_constant(call.args[1]):
        return None
    weight = call.args[1].value.numpy()
    wide = weight.astype("float64")
    if call_of(call, _PRODUCT):
        if weight.ndim != 2 or axis != len(extents(call)) - 1:
            return None
        scaled = wide * scale
    else:
        layout, kernel = str(call.attrs.out_layout), str(call.attrs.kernel_layout)
        layout = layout or str(call.attrs.data_layout)
        if layout[axis] != "C" or len(kernel) != weight.ndim or "O" not in kernel:
            return None
        along = [-1 if letter == "O" else 1 for letter in kernel]
        if call_of(call, _TRANSPOSED):
            # Its O counts the channels of one group, and its I those of all.
            groups = int(call.attrs.groups)
            inputs, outputs = kernel.index("I"), kernel.index("O")
            parts = np.split(wide, groups, axis=inputs)
            scales = scale.reshape(groups, weight.shape[outputs])
            pairs = zip(parts, scales, strict=True)
            scaled = np.concatenate([p * s.reshape(along) for p, s in pairs], axis=inputs)
        else:
            scaled = wide * scale.reshape(along)
    result: Array = scaled.astype(weight.dtype)
    return result


def _uses(function: Any) -> dict[Any, int]:
    """How many expressions of a function use each of its variables."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    uses: dict[Any, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relax.SeqExpr):
            used = [v for block in node.blocks for b in block.bindings for v in _reads(b)]
            for variable in [*used, *relax.analysis.free_vars(node.body)]:
                uses[variable] = uses.get(variable, 0) + 1

    relax.analysis.post_order_visit(function, visit)
    return uses


def _reads(binding: Any) -> list[Any]:
    from foretune import _tvm

    value = getattr(binding, "value", None)
    return [] if value is None else list(_tvm.tvm.relax.analysis.free_vars(value))
