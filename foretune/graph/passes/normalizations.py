"""Layer norm, RMS norm and softmax: found in elementary operators, and lowered to a kernel each.

The first turn finds what exporters took apart; the second one, last of all passes over operators,
puts kernels of ``operators.rows`` in the place of all three. Before → after, over the last axes::

    z = x - mean(x); z * rsqrt(mean(z * z) + e) * g + b   →  layer_norm(x, g, b)
    x * rsqrt(mean(x * x) + e) * g                        →  rms_norm(x, g)
    e = exp(x - max(x)); e / sum(e)                       →  softmax(x)

Also with ``power(z, 2)``, ``sqrt`` and a division, and ``variance``. Where the root is used a
second time, or the axes are not the last, operators stay as they are. Other types than float32 and
rows of a few numbers keep TVM's lowering.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretune.graph.passes._kernels import MOST_ELEMENTS, Kernels, float_lanes
from foretune.graph.passes._operands import DIVIDE, MULTIPLY, Bindings
from foretune.graph.passes.rewrites import call_of, cleaned, constant, extents, is_constant, scalar
from foretune.operators.rows import LAYER_NORM, RMS_NORM, SOFTMAX, Rows, rows_kernel

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_ADD = frozenset({"relax.add"})
_SUBTRACT = frozenset({"relax.subtract"})
_POWER = frozenset({"relax.power"})
_SQRT = frozenset({"relax.sqrt"})
_RSQRT = frozenset({"relax.rsqrt"})
_EXP = frozenset({"relax.exp"})
_MEAN = frozenset({"relax.mean"})
_VARIANCE = frozenset({"relax.variance"})
_SUM = frozenset({"relax.sum"})
_MAX = frozenset({"relax.max"})
_KINDS = {
    "relax.nn.layer_norm": LAYER_NORM,
    "relax.nn.rms_norm": RMS_NORM,
    "relax.nn.softmax": SOFTMAX,
}
_LEAST_COLUMNS = 16


class Norm(NamedTuple):
    """A normalisation in elementary operators.

    Attributes:
        kind: ``layer_norm``, ``rms_norm`` or ``softmax``.
        data: What is normalised.
        axes: How many of the last axes are normalised over.
        epsilon: As in ``Rows``.
        weight: Of the extents of these axes, or None.
        bias: Likewise.
    """

    kind: str
    data: Any
    axes: int
    epsilon: float = 0.0
    weight: Any = None
    bias: Any = None


def find_normalizations(module: IRModule) -> IRModule:
    """``main`` with normalisations that were taken apart as one operator each."""
    bindings = Bindings(module)
    finder = _Finder(bindings)
    norms: dict[Any, Norm] = {}
    for variable, call in bindings.calls():
        match = finder.match(variable, call)
        if match is not None:
            norms[match[0]] = match[1]
    if not norms:
        return module
    mutator = _restorer(norms)
    return cleaned(module, mutator.visit_expr(module["main"]), mutator)


def lower_normalizations(module: IRModule, hardware: Hardware) -> IRModule:
    """``main`` with a kernel in place of each normalisation of contiguous rows."""
    mutator = _lowerer(float_lanes(hardware))
    return cleaned(module, mutator.visit_expr(module["main"]), mutator)


class _Finder:
    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings

    def match(self, variable: Any, call: Any) -> tuple[Any, Norm] | None:
        """The last call of a normalisation whose quotient is ``call``, and what it is."""
        if str(getattr(call.ty, "dtype", "")) != "float32":
            return None
        softmax = self._softmax(call) if call_of(call, DIVIDE) else None
        if softmax is not None:
            return call, softmax
        norm = self._quotient(call)
        # TVM has no lowering for an RMS norm over all axes.
        if norm is None or (norm.kind == RMS_NORM and norm.axes == len(extents(call))):
            return None
        return self._affine(variable, call, norm)

    def _softmax(self, call: Any) -> Norm | None:
        one, total = call.args
        e, s = self._bindings.value(one), self._bindings.value(total)
        if not call_of(e, _EXP) or not call_of(s, _SUM) or not s.args[0].same_as(one):
            return None
        if self._bindings.uses(one) != 2 or self._bindings.uses(total) != 1:
            return None
        difference = self._bindings.value(e.args[0])
        if not call_of(difference, _SUBTRACT):
            return None
        top = self._bindings.value(difference.args[1])
        if not call_of(top, _MAX) or not top.args[0].same_as(difference.args[0]):
            return None
        if extents(difference.args[0]) != extents(call):
            return None
        axes = {_last_axes(s), _last_axes(top)}
        return Norm(SOFTMAX, top.args[0], 1) if axes == {1} else None

    def _quotient(self, call: Any) -> Norm | None:
        """``z / sqrt(mean(z * z) + e)`` in one of its forms."""
        if call_of(call, MULTIPLY):
            pairs = [(call.args[0], call.args[1]), (call.args[1], call.args[0])]
            inner = [(z, self._below_root(r, inverse=True)) for z, r in pairs]
        elif call_of(call, DIVIDE):
            inner = [(call.args[0], self._below_root(call.args[1], inverse=False))]
        else:
            return None
        for z, moment in inner:
            if moment is not None and extents(z) == extents(call):
                return self._centred(z, *moment)
        return None

    def _below_root(self, variable: Any, inverse: bool) -> tuple[Any, float] | None:
        """A moment and the number that is added to it, below a root that is used once."""
        if self._bindings.uses(variable) != 1:
            return None
        value = self._bindings.value(variable)
        if inverse and call_of(value, DIVIDE) and scalar(value.args[0]) == 1:
            return self._below_root(value.args[1], inverse=False)
        exponent = scalar(value.args[1]) if call_of(value, _POWER) else None
        if not (
            call_of(value, _RSQRT if inverse else _SQRT) or exponent == (-0.5 if inverse else 0.5)
        ):
            return None
        total = self._bindings.value(value.args[0])
        if not call_of(total, _ADD):
            return None
        for moment, number in (total.args, reversed(total.args)):
            epsilon = scalar(number) if is_constant(number) else None
            if epsilon is not None:
                return self._bindings.value(moment), float(epsilon)
        return None

    def _centred(self, z: Any, moment: Any, epsilon: float) -> Norm | None:
        axes = _last_axes(moment)
        difference = self._bindings.value(z)
        mean: Any = None
        if call_of(difference, _SUBTRACT):
            mean = self._bindings.value(difference.args[1])
        is_centred = (
            call_of(mean, _MEAN)
            and mean.args[0].same_as(difference.args[0])
            and _last_axes(mean) == axes
        )
        if not axes:
            return None
        if call_of(moment, _VARIANCE):
            same = is_centred and moment.args[0].same_as(mean.args[0])
            return Norm(LAYER_NORM, mean.args[0], axes, epsilon) if same else None
        if not call_of(moment, _MEAN) or not self._is_square(moment.args[0], z):
            return None
        if is_centred:
            return Norm(LAYER_NORM, mean.args[0], axes, epsilon)
        return Norm(RMS_NORM, z, axes, epsilon)

    def _is_square(self, expression: Any, z: Any) -> bool:
        value = self._bindings.value(expression)
        if call_of(value, MULTIPLY):
            return self._same(value.args[0], z) and self._same(value.args[1], z)
        return (
            call_of(value, _POWER) and scalar(value.args[1]) == 2 and self._same(value.args[0], z)
        )

    def _same(self, one: Any, other: Any) -> bool:
        """Whether two variables are one, or differences of the same variables."""
        if one.same_as(other):
            return True
        first, second = self._bindings.value(one), self._bindings.value(other)
        if not call_of(first, _SUBTRACT) or not call_of(second, _SUBTRACT):
            return False
        return all(a.same_as(b) for a, b in zip(first.args, second.args, strict=True))

    def _affine(self, variable: Any, call: Any, norm: Norm) -> tuple[Any, Norm]:
        """The normalisation with the weights and the bias that follow it."""
        wanted = extents(call)[len(extents(call)) - norm.axes :]
        following = self._following(variable, MULTIPLY, wanted)
        if following is not None:
            variable, call, weight = following
            norm = norm._replace(weight=weight)
        following = self._following(variable, _ADD, wanted)
        if following is not None and norm.kind == LAYER_NORM:
            _, call, bias = following
            norm = norm._replace(bias=bias)
        return call, norm

    def _following(
        self, variable: Any, names: frozenset[str], wanted: list[int]
    ) -> tuple[Any, Any, Any] | None:
        """The one user of a variable, if it multiplies or adds constants along the last axes."""
        user = self._bindings.user(variable)
        call = None if user is None else self._bindings.value(user)
        if call is None or not call_of(call, names) or extents(call) != extents(variable):
            return None
        other = call.args[1] if call.args[0].same_as(variable) else call.args[0]
        shape = extents(other)
        # Only constants: a computed weight may be bound behind the data that it stands beside.
        if not is_constant(other) or str(other.ty.dtype) != "float32":
            return None
        plain = shape[len(shape) - len(wanted) :]
        if plain != wanted or math.prod(shape) != math.prod(wanted):
            return None
        return user, call, constant(other.value.numpy().reshape(wanted))


def _last_axes(call: Any) -> int:
    """Over how many of the last axes a reduction goes that keeps its axes; 0 if over others."""
    attrs = getattr(call, "attrs", None)
    if attrs is None or not getattr(attrs, "keepdims", False) or attrs.axis is None:
        return 0
    rank = len(extents(call))
    axes = sorted(int(axis) % rank for axis in attrs.axis)
    return len(axes) if axes == list(range(rank - len(axes), rank)) else 0


def _restorer(norms: dict[Any, Norm]) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Restorer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            norm = norms.get(call)
            if norm is None:
                return self.visit_expr_post_order(call)
            data = self.visit_expr(norm.data)
            if norm.kind == SOFTMAX:
                return relax.op.nn.softmax(data, -1)
            rank = len(extents(data))
            axes = list(range(rank - norm.axes, rank))
            shape = extents(data)[rank - norm.axes :]
            weight = norm.weight or constant(np.ones(shape, "float32"))
            if norm.kind == RMS_NORM:
                return relax.op.nn.rms_norm(data, weight, axes, norm.epsilon)
            bias = norm.bias or constant(np.zeros(shape, "float32"))
            return relax.op.nn.layer_norm(data, weight, bias, axes, norm.epsilon)

    return Restorer()


def _lowerer(lanes: int) -> Any:
    from foretune import _tvm

    relax, kernels = _tvm.tvm.relax, Kernels()

    @relax.expr_functor.mutator
    class Lowerer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            rows = rows_of(call)
            if rows is None:
                return call
            return kernels.call(
                self,
                rows.kind,
                rows,
                lambda: rows_kernel(rows, lanes),
                call.args,
                extents(call),
            )

    return Lowerer()


def rows_of(call: Any) -> Rows | None:
    """What a call computes of each row; None where that is no function of contiguous rows."""
    kind = _KINDS.get(str(getattr(call.op, "name", "")))
    if kind is None or any(str(a.ty.dtype) != "float32" for a in (call, *call.args)):
        return None
    shape = extents(call)
    rank = len(shape)
    given = [call.attrs.axis] if kind == SOFTMAX else call.attrs.axes
    axes = sorted(int(axis) % rank for axis in given)
    columns = math.prod(shape[rank - len(axes) :])
    if axes != list(range(rank - len(axes), rank)) or columns < _LEAST_COLUMNS:
        return None
    total = math.prod(shape)
    if not 0 < total < MOST_ELEMENTS:
        return None
    if kind == LAYER_NORM and not (call.attrs.scale and call.attrs.center):
        return None
    epsilon = 0.0 if kind == SOFTMAX else float(call.attrs.epsilon)
    return Rows(kind, total // columns, columns, epsilon, kind != SOFTMAX, kind == LAYER_NORM)
