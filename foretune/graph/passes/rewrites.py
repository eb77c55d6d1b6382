"""Rewrites of single operators that make a network cheaper at inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from foretune._tvm import IRModule


Lookup = Callable[[Any], Any]
Rule = Callable[[Any, Lookup], Any]


def rewrite_operators(module: IRModule) -> IRModule:
    """Applies every rewrite to ``main``, in one walk from inputs to outputs.

    ====================================  =========================================
    before                                after
    ====================================  =========================================
    ``conv2d(pad(x, p, 0), W)``           ``conv2d(x, W, padding=p)``, of one and three axes, too
    ``pad(x, 0)``                         ``x``, likewise broadcasts and reshapes to the shape
                                          there is
    ``minimum(maximum(x, a), b)``         ``clip(x, a, b)``
    ``permute_dims(constant)``            constant, likewise ``reshape``
    ``reshape(reshape(x))``               ``reshape(x)``
    ====================================  =========================================
    """
    return cleaned(module, _mutator(_RULES).visit_expr(module["main"]))


def drop_masks(module: IRModule) -> IRModule:
    """Leaves out sums with a mask of zeros: ``x + 0`` is ``x``.

    A bias of zeros stays: it is zero in networks with random weights only, and their latency is to
    be that of trained ones. Hence before weights are packed, which gives a bias a second axis.
    """
    return cleaned(module, _mutator({"relax.add": _drop_zero}).visit_expr(module["main"]))


def cleaned(module: IRModule, main: Any, mutator: Any = None) -> IRModule:
    """``module`` with another ``main``, without the bindings that nothing uses any more.

    Args:
        module: Is left as it is.
        main: Its new function of that name.
        mutator: Whose tensor programs are added, where it made some.
    """
    from foretune import _tvm

    made = {} if mutator is None else dict(mutator.builder_.get().functions.items())
    result = _tvm.IRModule({**dict(module.functions.items()), **made})
    result.update_func(module.get_global_var("main"), main)
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


def scalar(expression: Any) -> float | int | None:
    """The exact value of a constant with one element, else None."""
    if is_constant(expression):
        values = expression.value.numpy()
        if values.size != 1:
            return None
        whole = values.dtype.kind in "iub"
        return int(values.reshape(())) if whole else float(values.reshape(()))
    value = getattr(expression, "value", None)
    inner = getattr(value, "value", value)
    return inner if isinstance(inner, (int, float)) else None


def constant(values: Any) -> Any:
    """A constant tensor of the element type and the rank of ``values``, rank 0 included."""
    from foretune import _tvm

    return _tvm.tvm.relax.const(np.array(values, order="C"), str(values.dtype))


_SPATIAL = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}
_PAD = frozenset({"relax.nn.pad"})
RESHAPE = frozenset({"relax.reshape"})
PERMUTE = frozenset({"relax.permute_dims"})
_MAXIMUM = frozenset({"relax.maximum"})


def _mutator(rules: Mapping[str, Rule]) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Rewriter(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            rule = rules.get(getattr(call.op, "name", ""))
            return call if rule is None else rule(call, self._bound)

        def _bound(self, expression: Any) -> Any:
            if isinstance(expression, relax.Var):
                return self.lookup_binding(expression)
            return expression

    return Rewriter()


def _fold_pad(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    pad, layout = bound(call.args[0]), str(call.attrs.data_layout)
    axes = _SPATIAL[str(call.op.name)]
    if (
        not call_of(pad, _PAD)
        or sorted(layout) != sorted("NC" + axes)
        or pad.attrs.pad_mode != "constant"
        or (scalar(pad.args[1]) if len(pad.args) > 1 else float(pad.attrs.pad_value)) != 0.0
    ):
        return call
    given = [int(w) for w in pad.attrs.pad_width]
    widths = {letter: given[2 * at : 2 * at + 2] for at, letter in enumerate(layout)}
    if any(widths["N"] + widths["C"]) or min(given) < 0:
        return call
    own = [int(p) for p in call.attrs.padding]
    begins = [p + widths[axis][0] for p, axis in zip(own[: len(axes)], axes, strict=True)]
    ends = [p + widths[axis][1] for p, axis in zip(own[len(axes) :], axes, strict=True)]
    kept = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
    make = getattr(_tvm.tvm.relax.op.nn, f"conv{len(axes)}d")
    return make(
        pad.args[0],
        call.args[1],
        padding=[*begins, *ends],
        out_dtype=call.attrs.out_dtype or None,
        **{name: getattr(call.attrs, name) for name in kept},
    )


def _drop_pad(call: Any, _bound: Lookup) -> Any:
    return call if any(int(w) for w in call.attrs.pad_width) else call.args[0]


def _clip(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    for operand, limit in (call.args, reversed(call.args)):
        inner, high = bound(operand), scalar(limit)
        if high is None or not call_of(inner, _MAXIMUM):
            continue
        for source, bottom in (inner.args, reversed(inner.args)):
            low = scalar(bottom)
            # clip lets the lower bound win where minimum of maximum lets the upper one; NaN has
            # no place between the two, and a bound of a higher rank adds axes.
            if low is not None and low <= high and _same_shape(source, call):
                return _tvm.tvm.relax.op.clip(source, low, high)
    return call


def _fold_permute(call: Any, _bound: Lookup) -> Any:
    if not is_constant(call.args[0]):
        return call
    return constant(np.transpose(call.args[0].value.numpy(), axes_of(call)))


def axes_of(call: Any) -> list[int]:
    """The axes of a ``permute_dims``, each from 0: given from the end or left out otherwise."""
    rank = len(extents(call))
    given = call.attrs.axes
    return list(range(rank))[::-1] if given is None else [int(a) % rank for a in given]


def _fold_reshape(call: Any, bound: Lookup) -> Any:
    from foretune import _tvm

    inner = bound(call.args[0])
    nested = call_of(inner, RESHAPE)
    source = inner.args[0] if nested else call.args[0]
    if _same_shape(source, call):
        return source
    if is_constant(source):
        return constant(source.value.numpy().reshape(extents(call)))
    return _tvm.tvm.relax.op.reshape(source, call.ty.shape) if nested else call


def _drop_broadcast(call: Any, _bound: Lookup) -> Any:
    return call.args[0] if _same_shape(call.args[0], call) else call


def _drop_zero(call: Any, _bound: Lookup) -> Any:
    for place, operand in enumerate(call.args):
        other = call.args[1 - place]
        mask = is_constant(operand) and sum(extent != 1 for extent in extents(operand)) > 1
        if mask and _same_shape(other, call) and not operand.value.numpy().any():
            return other
    return call


def _same_shape(one: Any, other: Any) -> bool:
    return str(one.ty.dtype) == str(other.ty.dtype) and extents(one) == extents(other)


def extents(expression: Any) -> list[int]:
    """The static shape of a tensor expression."""
    return [int(extent) for extent in getattr(expression.ty, "shape", None) or []]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SPATIAL, _fold_pad),
    "relax.nn.pad": _drop_pad,
    "relax.broadcast_to": _drop_broadcast,
    "relax.minimum": _clip,
    "relax.permute_dims": _fold_permute,
    "relax.reshape": _fold_reshape,
}
