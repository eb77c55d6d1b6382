"""Layout assignment: convolutions in NHWC, with transposes around each of them.

Before → after, with ``P`` from NCHW to NHWC, ``Q`` back and ``K`` from OIHW to HWIO::

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

_DATA, _KERNEL = "NHWC", "HWIO"


def assign_layouts(module: IRModule) -> IRModule:
    """Every two-dimensional convolution of ``main`` in NHWC with HWIO weights."""
    return cleaned(module, _mutator().visit_expr(module["main"]))


def order(letters: str, wanted: str) -> list[int] | None:
    """The axes that bring a layout into the wanted one; None where they name other axes.

    ``order("NCHW", "NHWC")`` is ``[0, 2, 3, 1]``.
    """
    if sorted(letters) != sorted(wanted):
        return None
    return [letters.index(letter) for letter in wanted]


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Assigner(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if getattr(call.op, "name", "") != "relax.nn.conv2d":
                return call
            attrs = call.attrs
            layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
            data_order, kernel_order = order(layout, _DATA), order(kernel, _KERNEL)
            if data_order is None or kernel_order is None or str(attrs.out_layout) != layout:
                return call
            if layout == _DATA and kernel == _KERNEL:
                return call
            result = self.builder_.emit(
                relax.op.nn.conv2d(
                    self._permuted(call.args[0], data_order),
                    self._permuted(call.args[1], kernel_order),
                    strides=attrs.strides,
                    padding=attrs.padding,
                    dilation=attrs.dilation,
                    groups=attrs.groups,
                    data_layout=_DATA,
                    kernel_layout=_KERNEL,
                    out_dtype=attrs.out_dtype or None,
                )
            )
            return self._permuted(result, [_DATA.index(letter) for letter in layout])

        def _permuted(self, operand: Any, axes: list[int]) -> Any:
            if axes == sorted(axes):
                return operand
            return self.builder_.emit(relax.op.permute_dims(operand, axes))

    return Assigner()
