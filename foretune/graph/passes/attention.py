"""Attention as one kernel in place of two products, a softmax and the transposes around them.

Before → after, where each ``V`` is a chain of reshapes, transposes, splits and repetitions::

    s = matmul(V(q), transpose(V(k)))
    s = s * scale, s + mask, where(mask, s, -inf), ... in any order
    p = softmax(s, axis=-1); p = where(all(s == -inf), 0, p)   what PyTorch's export adds
    y = V(matmul(p, V(v)))                             →  y = attention(q, k, v, masks)

Factors on ``q`` and ``k`` join the scale. A constant mask that hides what comes later becomes a
bound of a loop: hidden blocks are not computed. Scores or probabilities that something else reads,
other axes and other types than float32 stay as they are, and so does a row of scores that would not
fit into the second cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretune.graph.passes._kernels import MOST_ELEMENTS, Kernels, float_lanes
from foretune.graph.passes._operands import Bindings, Operand, multiple_of
from foretune.graph.passes.rewrites import (
    PERMUTE,
    RESHAPE,
    axes_of,
    call_of,
    cleaned,
    extents,
    is_constant,
)
from foretune.operators.attention import attention_kernel
from foretune.operators.attention_form import Attention, Machine, Step
from foretune.operators.views import View

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_PRODUCT = frozenset({"relax.matmul"})
_SOFTMAX = frozenset({"relax.nn.softmax"})
_WHERE = frozenset({"relax.where"})
_ADD = frozenset({"relax.add"})
_EQUAL = frozenset({"relax.equal"})
_BETWEEN = frozenset(
    {"relax.logical_not", "relax.astype", "relax.max", "relax.not_equal", "relax.any"}
)
_HIDDEN = -1e30
_LANES = 8
_L2_BYTES = 512 * 1024


class Found(NamedTuple):
    """An attention in a network.

    Attributes:
        attention: What the kernel computes.
        sources: Its operands: query, key, value, masks.
        shape: Of the call in whose place it stands.
    """

    attention: Attention
    sources: tuple[Any, ...]
    shape: tuple[int, ...]


class _Scores(NamedTuple):
    """A product of ``q`` and ``k`` with what is done to it.

    Attributes:
        product: The call.
        steps: In order, but for a causal mask.
        masks: What steps read.
        hidden: What a causal mask makes of a score that it hides; None where there is none.
    """

    product: Any
    steps: tuple[Step, ...] = ()
    masks: tuple[Any, ...] = ()
    hidden: float | None = None

    def then(self, step: Step, *masks: Any) -> _Scores | None:
        """With a step behind all others; None where that cannot come before a causal mask, which
        the kernel applies last."""
        if self.hidden is not None and not self._commutes(step):
            return None
        return self._replace(steps=(*self.steps, step), masks=(*self.masks, *masks))

    def _commutes(self, step: Step) -> bool:
        if step.kind == "scale":
            return step.value > 0
        # Numbers that are merely very small count in a row that has no others.
        return self.hidden == -math.inf and (step.kind == "add" or step.value == -math.inf)

    def hiding(self, hidden: float) -> _Scores | None:
        """With a causal mask; None where other masks could leave a row nothing but ``hidden``."""
        if self.hidden is not None or (self.masks and hidden != -math.inf):
            return None
        return self._replace(hidden=hidden)


def fuse_attention(module: IRModule, hardware: Hardware) -> IRModule:
    """``main`` with each attention as one kernel."""
    machine = machine_of(hardware)
    matches = find(module, machine)
    if not matches:
        return module
    mutator = _mutator(matches, machine)
    return cleaned(module, mutator.visit_expr(module["main"]), mutator)


def machine_of(hardware: Hardware) -> Machine:
    """What kernels are shaped for; a usual CPU where the hardware does not say."""
    lanes = float_lanes(hardware)
    return Machine(lanes, 32 if lanes > _LANES else 16, hardware.l2_bytes or _L2_BYTES)


def find(module: IRModule, machine: Machine) -> dict[Any, Found]:
    """The attentions of ``main``, by the call that each replaces."""
    bindings = Bindings(module)
    matcher = _Matcher(bindings)
    matches = {}
    for variable, call in bindings.calls():
        if not call_of(call, _PRODUCT) or not _is_float(call):
            continue
        match = matcher.match(variable, call)
        if match is not None and _fits(match[1].attention, machine):
            matches[match[0]] = match[1]
    return matches


def _is_float(call: Any) -> bool:
    return all(str(e.ty.dtype) == "float32" for e in (call, *call.args)) and 0 not in extents(call)


def _fits(a: Attention, machine: Machine) -> bool:
    sizes = [view.size for view in (a.query, a.key, a.value, a.result)]
    scores = 4 * machine.lanes * a.columns
    return scores <= machine.l2_bytes and max(sizes) < MOST_ELEMENTS


class _Matcher:
    """Finds attentions in a program.

    Args:
        bindings: Of the program.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._causal = True

    def match(self, variable: Any, product: Any) -> tuple[Any, Found] | None:
        """What a product with values ends, if that is an attention."""
        for self._causal in (True, False):
            # A causal mask that cannot come last is a mask like others.
            matched = self._match(variable, product)
            if matched is not None:
                return matched
        return None

    def _match(self, variable: Any, product: Any) -> tuple[Any, Found] | None:
        softmax, safe = self._probabilities(product.args[0])
        if softmax is None:
            return None
        scores = self._scores(softmax.args[0], 2 if safe else 1)
        if scores is None:
            return None
        operands = self._operands(product, scores)
        if operands is None:
            return None
        query, key, value, factor = operands
        heads, rows, columns = _rows(extents(softmax))
        last, result, shape = self._result(variable, product, (heads, rows, extents(product)[-1]))
        attention = Attention(
            heads, rows, columns, query.view.shape[2], value.view.shape[2], query.view, key.view,
            value.view, result, factor, scores.steps, scores.hidden is not None, safe,
        )  # fmt: skip
        sources = (query.source, key.source, value.source, *scores.masks)
        return last, Found(attention, sources, shape)

    def _probabilities(self, expression: Any) -> tuple[Any, bool]:
        """The softmax behind an operand, and whether its rows of ``-inf`` become zeros."""
        value = self._reshaped(expression)
        safe = False
        if call_of(value, _WHERE):
            condition, zeros, kept = value.args
            softmax = self._reshaped(kept)
            if not _is_all(zeros, 0.0) or not call_of(softmax, _SOFTMAX):
                return None, False
            if extents(value) != extents(softmax) or not self._is_hidden(condition, softmax):
                return None, False
            value, safe = softmax, True
        if not call_of(value, _SOFTMAX):
            return None, False
        axis = int(value.attrs.axis) % len(extents(value))
        return (value, safe) if axis == len(extents(value)) - 1 else (None, False)

    def _reshaped(self, expression: Any) -> Any:
        """The value of a variable with one use, below reshapes that keep rows and columns."""
        while self._bindings.user(expression) is not None:
            value = self._bindings.value(expression)
            if not call_of(value, RESHAPE) or not _keeps_rows(value):
                return value
            expression = value.args[0]
        return None

    def _is_hidden(self, condition: Any, softmax: Any) -> bool:
        """Whether a condition is ``not any(not s == -inf)`` along rows, of the softmax's ``s``."""
        operators: list[str] = []
        value = self._bindings.value(condition)
        while call_of(value, _BETWEEN):
            name = str(value.op.name).removeprefix("relax.")
            if name in ("max", "any"):
                axes = value.attrs.axis
                rank = len(extents(value.args[0]))
                if axes is None or [int(a) % rank for a in axes] != [rank - 1]:
                    return False
                name = "any"
            if name == "not_equal" and not _is_all(value.args[1], 0.0):
                return False
            if name not in ("astype", "not_equal"):
                operators.append(name)
            value = self._bindings.value(value.args[0])
        if not call_of(value, _EQUAL) or not _is_all(value.args[1], -math.inf):
            return False
        same = value.args[0].same_as(softmax.args[0])
        return same and operators == ["logical_not", "any", "logical_not"]

    def _scores(self, expression: Any, uses: int = 1) -> _Scores | None:
        """The product that scores are made of, and the steps from it to them."""
        if self._bindings.uses(expression) != uses:
            return None
        value = self._bindings.value(expression)
        if call_of(value, _PRODUCT):
            return _Scores(value) if _is_float(value) else None
        if call_of(value, RESHAPE):
            return self._scores(value.args[0]) if _keeps_rows(value) else None
        multiple = multiple_of(value)
        if multiple is not None:
            inner = self._scores(multiple[0])
            return None if inner is None else inner.then(Step("scale", multiple[1]))
        if call_of(value, _ADD):
            for scores, mask in (value.args, reversed(value.args)):
                if extents(scores) == extents(value):
                    inner = self._scores(scores)
                    if inner is not None:
                        return self._added(inner, mask, value)
        return self._chosen(value) if call_of(value, _WHERE) else None

    def _added(self, inner: _Scores, mask: Any, scores: Any) -> _Scores | None:
        if self._causal and is_constant(mask):
            values = mask.value.numpy()
            if _is_causal(values, extents(scores)):
                return inner.hiding(float(values.max(initial=-math.inf, where=values < 0)))
        if str(mask.ty.dtype) != "float32":
            return None
        return self._masked(inner, mask, Step("add"), scores)

    def _chosen(self, value: Any) -> _Scores | None:
        condition, one, other = value.args
        for kind, scores, lost in (("keep", one, other), ("drop", other, one)):
            number = _constant_of(lost)
            if number is None or extents(scores) != extents(value):
                continue
            inner = self._scores(scores)
            if inner is None:
                continue
            if self._causal and is_constant(condition) and number <= _HIDDEN:
                kept = condition.value.numpy() == (kind == "keep")
                if _is_causal(np.where(kept, 0.0, -np.inf), extents(value)):
                    return inner.hiding(number)
            step = Step(kind, number, dtype=str(condition.ty.dtype))
            return self._masked(inner, condition, step, value)
        return None

    def _masked(self, inner: _Scores, mask: Any, step: Step, scores: Any) -> _Scores | None:
        shape = extents(scores)

        def accepted(view: View) -> View | None:
            spread = view.broadcast(shape)
            return None if spread is None else spread.reshaped(_rows(shape))

        operand = self._bindings.operand(mask, accepted)
        if operand is None:
            return None
        return inner.then(replace(step, view=operand.view), operand.source)

    def _operands(
        self, product: Any, scores: _Scores
    ) -> tuple[Operand, Operand, Operand, float] | None:
        first, last = scores.product, product
        batch = extents(first)[:-2]
        if math.prod(batch) != math.prod(extents(last)[:-2]):
            return None
        query = self._operand(first.args[0], batch, scaled=True)
        key = self._operand(first.args[1], batch, scaled=True, swapped=True)
        value = self._operand(last.args[1], extents(last)[:-2], contiguous=True)
        if query is None or key is None or value is None:
            return None
        return query, key, value, query.factor * key.factor

    def _operand(
        self,
        expression: Any,
        batch: Sequence[int],
        scaled: bool = False,
        swapped: bool = False,
        contiguous: bool = False,
    ) -> Operand | None:
        """An operand of a product as a view over ``[heads, rows, width]``."""

        def accepted(view: View) -> View | None:
            inner = view.shape[-2:]
            spread = view.broadcast((*batch, *inner))
            found = None if spread is None else spread.reshaped((math.prod(batch), *inner))
            if found is not None and swapped:
                found = found.permuted((0, 2, 1))
            if found is not None and contiguous and not found.is_contiguous(2):
                return None
            return found

        if len(extents(expression)) < 2:
            return None
        return self._bindings.operand(expression, accepted, scaled)

    def _result(
        self, variable: Any, product: Any, shape: tuple[int, int, int]
    ) -> tuple[Any, View, tuple[int, ...]]:
        """The last of the calls that only order the result anew, and where that puts it."""
        view: View | None = View.of(extents(product))
        call = product
        best = call, View.of(shape), tuple(extents(call))
        while (user := self._bindings.user(variable)) is not None:
            call, variable = self._bindings.value(user), user
            if call_of(call, RESHAPE):
                view = view and view.reshaped(extents(call))
            elif call_of(call, PERMUTE):
                view = view and view.permuted(axes_of(call))
            else:
                break
            target = None if view is None else inverse(view).reshaped(shape)
            if target is not None and target.is_contiguous(2):
                best = call, target, tuple(extents(call))
        return best


def inverse(view: View) -> View:
    """Where each element of a permuted tensor's source lies in that tensor, in one axis."""
    factors = [factor for axis in view.axes for factor in axis]
    place = math.prod(extent for extent, _ in factors)
    moved = []
    for extent, stride in factors:
        place //= extent
        moved.append((stride, extent, place))
    ordered = tuple((extent, place) for _, extent, place in sorted(moved, reverse=True))
    return View(view.size, (ordered,))


def _rows(shape: Sequence[int]) -> tuple[int, int, int]:
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def _keeps_rows(reshape: Any) -> bool:
    before, after = extents(reshape.args[0]), extents(reshape)
    return len(before) > 1 and len(after) > 1 and before[-2:] == after[-2:]


def _constant_of(expression: Any) -> float | None:
    """The number that all elements of a constant are."""
    if not is_constant(expression):
        return None
    values = expression.value.numpy()
    first = values.reshape(-1)[:1]
    return float(first[0]) if first.size and (values == first[0]).all() else None


def _is_all(expression: Any, number: float) -> bool:
    return _constant_of(expression) == number


def _is_causal(mask: Array, shape: Sequence[int]) -> bool:
    """Whether a mask hides just what comes later than the last of ``L_kv - L_q + i + 1``."""
    rows, columns = shape[-2:]
    if mask.ndim < 2 or mask.shape[-2:] != (rows, columns) or columns < rows:
        return False
    kept = np.tril(np.ones((rows, columns), bool), columns - rows)
    values = mask.reshape(-1, rows, columns)
    return bool(((values == 0) == kept).all() and (values <= _HIDDEN)[:, ~kept].all())


def _mutator(matches: dict[Any, Found], machine: Machine) -> Any:
    from foretune import _tvm

    relax, kernels = _tvm.tvm.relax, Kernels()

    @relax.expr_functor.mutator
    class Fuser(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Puts kernels in the place of the calls that were found."""

        def visit_call_(self, call: Any) -> Any:
            match = matches.get(call)
            if match is None:
                return self.visit_expr_post_order(call)
            attention = match.attention
            operands = [self.visit_expr(source) for source in match.sources]
            return kernels.call(
                self,
                "attention",
                attention,
                lambda: attention_kernel(attention, machine),
                operands,
                match.shape,
            )

    return Fuser()
