"""Rewrites of single operators that make a network cheaper at inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from foretune._tvm import IRModule


def rewrite_operators(module: IRModule) -> IRModule:
    """Applies every rewrite to ``main``, in one walk from inputs to outputs.

    ====================================  =========================================
    before                                after
    ====================================  =========================================
    ``batch_norm(conv2d(x, W), ...)[0]``  ``conv2d(x, W * scale) + shift``
    ``conv2d(pad(x, p, 0), W)``           ``conv2d(x, W, padding=p)``
    ``pad(x, 0)``                         ``x``, likewise adding a tensor of zeros (an
                                          attention mask of ones becomes one) and broadcasts
                                          and reshapes to the shape there is
    ``minimum(maximum(x, a), b)``         ``clip(x, a, b)``
    ``permute_dims(constant)``            constant, likewise ``reshape``
    ``reshape(reshape(x))``               ``reshape(x)``
    ====================================  =========================================
    """
    from foretune import _tvm

    function = module["main"]
    rewritten = _mutator().visit_expr(function)
    result = _tvm.IRModule(dict(module.functions.items()))
    result.update_func(module.get_global_var("main"), rewritten)
    transform = _tvm.tvm.relax.transform
    return _tvm.tvm.transform.Sequential(
        [
            transform.Normalize(),
            transform.CanonicalizeBindings(),
            transform.DeadCodeElimination(["main"]),
        ]
    )(result)


def is_constant(expression: Any) -> bool:
    """Whether an expression is a constant tensor."""
    from foretune import _tvm

    data = getattr(expression, "value", None)
    return isinstance(data, _tvm.tvm.runtime.Tensor)


def call_of(expression: Any, names: frozenset[str]) -> bool:
    """Whether an expression calls one of the named Relax operators."""
    from foretune import _tvm

    return (
        isinstance(expression, _tvm.tvm.relax.Call)
        and getattr(expression.op, "name", None) in names
    )


def scalar(expression: Any) -> float | None:
    """The value of a constant with one element, else None."""
    if is_constant(expression):
        values = expression.value.numpy()
        return float(values.reshape(())) if values.size == 1 else None
    value = getattr(expression, "value", None)
    inner = getattr(value, "value", value)
    return float(inner) if isinstance(inner, (int, float)) else None


_BATCH_NORM = frozenset({"relax.nn.batch_norm"})
_CONV2D = frozenset({"relax.nn.conv2d"})
_PAD = frozenset({"relax.nn.pad"})
_RESHAPE = frozenset({"relax.reshape"})
_MAXIMUM = frozenset({"relax.maximum"})


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Rewriter(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            rule = _RULES.get(getattr(call.op, "name", ""))
            return call if rule is None else rule(call, self._bound)

        def visit_tuple_getitem_(self, item: Any) -> Any:
            item = self.visit_expr_post_order(item)
            folded = _fold_batch_norm(item, self._bound) if item.index == 0 else None
            return item if folded is None else self._emit_add(*folded)

        def _emit_add(self, convolution: Any, shift: Any) -> Any:
            return relax.op.add(self.builder_.emit(convolution), shift)

        def _bound(self, expression: Any) -> Any:
            if isinstance(expression, relax.Var):
                return self.lookup_binding(expression)
            return expression

    return Rewriter()


Lookup = Callable[[Any], Any]


def _fold_batch_norm(item: Any, bound: Lookup) -> tuple[Any, Any] | None:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    norm = bound(item.tuple_value)
    if not call_of(norm, _BATCH_NORM) or norm.attrs.training:
        return None
    convolution = bound(norm.args[0])
    if not call_of(convolution, _CONV2D) or not all(map(is_constant, norm.args[1:5])):
        return None
    weight = convolution.args[1]
    if not is_constant(weight) or convolution.attrs.kernel_layout != "OIHW":
        return None
    gamma, beta, mean, variance = (a.value.numpy().astype("float64") for a in norm.args[1:5])
    scale = 1.0 / np.sqrt(variance + float(norm.attrs.epsilon))
    if norm.attrs.scale:
        scale = scale * gamma
    shift = -mean * scale
    if norm.attrs.center:
        shift = shift + beta
    kernel = weight.value.numpy()
    scaled = (kernel * scale.reshape(-1, 1, 1, 1)).astype(kernel.dtype)
    return (
        relax.Call(convolution.op, [convolution.args[0], relax.const(scaled)], convolution.attrs),
        relax.const(shift.reshape(1, -1, 1, 1).astype(kernel.dtype)),
    )


def _fold_pad(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    pad = bound(call.args[0])
    if (
        not call_of(pad, _PAD)
        or call.attrs.data_layout != "NCHW"
        or pad.attrs.pad_mode != "constant"
        or (scalar(pad.args[1]) if len(pad.args) > 1 else float(pad.attrs.pad_value)) != 0.0
    ):
        return call
    widths = [int(w) for w in pad.attrs.pad_width]
    if any(widths[:4]) or min(widths) < 0:
        return call
    top, left, bottom, right = (int(p) for p in call.attrs.padding)
    kept = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    return _tvm.tvm.relax.op.nn.conv2d(
        pad.args[0],
        call.args[1],
        padding=[top + widths[4], left + widths[6], bottom + widths[5], right + widths[7]],
        out_dtype=call.attrs.out_dtype or None,
        **{name: getattr(call.attrs, name) for name in kept},
    )


def _drop_pad(call: Any, _bound: Lookup) -> Any:
    return call if any(int(w) for w in call.attrs.pad_width) else call.args[0]


def _clip(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    inner = bound(call.args[0])
    high = scalar(call.args[1])
    if high is None or not call_of(inner, _MAXIMUM):
        return call
    low = scalar(inner.args[1])
    if low is None:
        return call
    return _tvm.tvm.relax.op.clip(inner.args[0], low, high)


def _fold_permute(call: Any, _bound: Lookup) -> Any:
    from foretune import _tvm

    if not is_constant(call.args[0]):
        return call
    axes = None if call.attrs.axes is None else [int(a) for a in call.attrs.axes]
    values = np.transpose(call.args[0].value.numpy(), axes)
    return _tvm.tvm.relax.const(np.ascontiguousarray(values), call.args[0].ty.dtype)


def _fold_reshape(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    inner = bound(call.args[0])
    source = inner.args[0] if call_of(inner, _RESHAPE) else call.args[0]
    if _same_shape(source, call):
        return source
    if source is not call.args[0]:
        return _tvm.tvm.relax.op.reshape(source, call.ty.shape)
    if not is_constant(call.args[0]):
        return call
    shape = [int(extent) for extent in call.ty.shape]
    return _tvm.tvm.relax.const(call.args[0].value.numpy().reshape(shape), call.args[0].ty.dtype)


def _drop_broadcast(call: Any, _bound: Lookup) -> Any:
    return call.args[0] if _same_shape(call.args[0], call) else call


def _drop_zero(call: Any, _bound: Lookup) -> Any:
    for place, operand in enumerate(call.args):
        other = call.args[1 - place]
        # A bias of zeros stays: it is zero in networks with random weights only, and their
        # latency is to be that of trained ones.
        mask = is_constant(operand) and sum(extent != 1 for extent in extents(operand)) > 1
        if mask and _same_shape(other, call) and not operand.value.numpy().any():
            return other
    return call


def _same_shape(one: Any, other: Any) -> bool:
    return str(one.ty.dtype) == str(other.ty.dtype) and extents(one) == extents(other)


def extents(expression: Any) -> list[int]:
    """The static shape of a tensor expression."""
    return [int(extent) for extent in getattr(expression.ty, "shape", None) or []]


_RULES: dict[str, Callable[[Any, Lookup], Any]] = {
    "relax.nn.conv2d": _fold_pad,
    "relax.nn.pad": _drop_pad,
    "relax.add": _drop_zero,
    "relax.broadcast_to": _drop_broadcast,
    "relax.minimum": _clip,
    "relax.permute_dims": _fold_permute,
    "relax.reshape": _fold_reshape,
}
