"""Sums of half-precision values in float32, as PyTorch and ONNX Runtime compute them.

Before → after, for a product of float16 operands::

    matmul(a, b)  →  astype(matmul(a, b, out_dtype="float32"), "float16")

A sum of a thousand float16 products that is rounded after each of them keeps one or two digits.
Operators that sum and cannot be told the type of their sums compute in float32 altogether.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.graph._rewrite import cleaned

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_HALF = ("float16", "bfloat16")
_PRODUCTS = frozenset(
    {
        *(f"relax.nn.conv{n}d" for n in (1, 2, 3)),
        *(f"relax.nn.conv{n}d_transpose" for n in (1, 2, 3)),
        "relax.matmul",
    }
)
_SUMS = frozenset(
    {
        *("relax.sum", "relax.mean", "relax.prod", "relax.std", "relax.variance"),
        *("relax.cumsum", "relax.cumprod", "relax.einsum", "relax.nn.softmax"),
        *("relax.nn.log_softmax", "relax.nn.layer_norm", "relax.nn.group_norm"),
        *("relax.nn.instance_norm", "relax.nn.rms_norm", "relax.nn.attention"),
        *(f"relax.nn.avg_pool{n}d" for n in (1, 2, 3)),
        *(f"relax.nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)),
    }
)


def sum_in_float32(module: IRModule) -> IRModule:
    """``main`` with every sum of float16 or bfloat16 values accumulated in float32."""
    return cleaned(module, _mutator().visit_expr(module["main"]))


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Widener(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name, dtype = str(getattr(call.op, "name", "")), _dtype(call)
            if dtype not in _HALF or name not in _PRODUCTS | _SUMS:
                return call
            # What is computed from whole numbers only has no half-precision sum.
            if all(_dtype(operand) not in _HALF for operand in call.args):
                return call
            if name in _PRODUCTS:
                wide = _product(call, name)
            else:
                operands = [self._wide(operand) for operand in call.args]
                wide = relax.Call(call.op, operands, _wide_attributes(call))
            return relax.op.astype(self.builder_.emit(wide), dtype)

        def _wide(self, operand: Any) -> Any:
            if isinstance(operand, relax.Tuple):
                return relax.Tuple([self._wide(field) for field in operand.fields])
            if _dtype(operand) not in _HALF:
                return operand
            return self.builder_.emit(relax.op.astype(operand, "float32"))

    return Widener()


def _dtype(expression: Any) -> str:
    fields = getattr(expression.ty, "fields", None)
    first = expression.ty if not fields else fields[0]
    return str(getattr(first, "dtype", ""))


def _product(call: Any, name: str) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    if name == "relax.matmul":
        return relax.op.matmul(*call.args, out_dtype="float32")
    kept = {key: getattr(call.attrs, key) for key in _keys(call) if key != "out_dtype"}
    make = getattr(relax.op.nn, name.removeprefix("relax.nn."))
    return make(*call.args, **kept, out_dtype="float32")


def _keys(call: Any) -> list[str]:
    keys = ["strides", "padding", "dilation", "groups"]
    keys += ["data_layout", "kernel_layout", "out_layout", "output_padding"]
    return [key for key in keys if hasattr(call.attrs, key)]


def _wide_attributes(call: Any) -> Any:
    """Attributes without the half-precision type that scans may name for their result."""
    from foretune import _tvm

    if str(getattr(call.attrs, "dtype", "")) not in _HALF:
        return call.attrs
    relax = _tvm.tvm.relax
    make = getattr(relax.op, str(call.op.name).removeprefix("relax."))
    return make(call.args[0], axis=call.attrs.axis, dtype="float32").attrs
