"""Layout assignment: convolutions channels last, with transposes around each of them.

Before → after, with ``P`` from NCHW to NHWC, ``Q`` back and ``K`` from OIHW to HWIO, likewise with
one spatial axis and with three::

    conv2d(x, W)  →  Q(conv2d(P(x), K(W), NHWC, HWIO))

Nothing but the convolution is touched, so that every operator keeps the layout it was written
for. The transposes between two convolutions meet and cancel when they sink (``transposes``);
where an operator in between has no rule for that, they stay, which costs time and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.graph.passes.rewrites import cleaned

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.passes._decisions import Decisions

CHANNELS_LAST = {
    "relax.nn.conv1d": ("NWC", "WIO"),
    "relax.nn.conv2d": ("NHWC", "HWIO"),
    "relax.nn.conv3d": ("NDHWC", "DHWIO"),
}
"""Convolutions with the layouts of their data and weights."""


LAST, WRITTEN = "channels last", "as written"


def assign_layouts(module: IRModule, decisions: Decisions) -> IRModule:
    """The convolutions of ``main`` channels last, where a plan does not leave them as written."""
    return cleaned(module, _mutator(decisions).visit_expr(module["main"]))


def order(letters: str, wanted: str) -> list[int] | None:
    """The axes that bring a layout into the wanted one; None where they name other axes.

    ``order("NCHW", "NHWC")`` is ``[0, 2, 3, 1]``.
    """
    if sorted(letters) != sorted(wanted):
        return None
    return [letters.index(letter) for letter in wanted]


def _mutator(decisions: Decisions) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Assigner(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = str(getattr(call.op, "name", ""))
            if name not in CHANNELS_LAST:
                return call
            attrs, wanted = call.attrs, CHANNELS_LAST[name]
            layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
            data_order, kernel_order = order(layout, wanted[0]), order(kernel, wanted[1])
            if data_order is None or kernel_order is None or str(attrs.out_layout) != layout:
                return call
            if (layout, kernel) == wanted:
                return call
            if decisions.take(call, [LAST, WRITTEN], LAST) == WRITTEN:
                return call
            make = getattr(relax.op.nn, name.removeprefix("relax.nn."))
            result = self.builder_.emit(
                make(
                    self._permuted(call.args[0], data_order),
                    self._permuted(call.args[1], kernel_order),
                    strides=attrs.strides,
                    padding=attrs.padding,
                    dilation=attrs.dilation,
                    groups=attrs.groups,
                    data_layout=wanted[0],
                    kernel_layout=wanted[1],
                    out_dtype=attrs.out_dtype or None,
                )
            )
            return self._permuted(result, [wanted[0].index(letter) for letter in layout])

        def _permuted(self, operand: Any, axes: list[int]) -> Any:
            if axes == sorted(axes):
                return operand
            return self.builder_.emit(relax.op.permute_dims(operand, axes))

    return Assigner()
