"""Sums of half-precision values in float32, as PyTorch and ONNX Runtime compute them.

Before → after, for a product of float16 operands::

    matmul(a, b)  →  astype(matmul(a, b, out_dtype="float32"), "float16")

A sum of a thousand float16 products that is rounded after each of them keeps one or two digits.
Operators that sum and cannot be told the type of their sums compute in float32 altogether, and
so do those that TVM lowers for bfloat16 to nothing or to something else. Norms of float64, which
TVM does not have, are written as means and products. Integers that TVM's runtime cannot sort are
sorted as wider ones in the same order; fills of infinity and NaN are spread constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph.passes.rewrites import cleaned
from foretune.operators.normalization import NORMALIZATIONS

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
# Element-wise functions: LLVM has some of them for no half precision, and each step of the others
# would be rounded. In float32 they fuse as they are.
_FUNCTIONS = frozenset(
    {
        *(f"relax.{hyper}{name}" for name in ("sin", "cos", "tan") for hyper in ("", "a")),
        *(f"relax.{hyper}{name}h" for name in ("sin", "cos", "tan") for hyper in ("", "a")),
        *("relax.exp", "relax.log", "relax.sqrt", "relax.rsqrt", "relax.sigmoid", "relax.erf"),
        *("relax.power", "relax.atan2", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu"),
        *("relax.nn.softplus", "relax.nn.selu"),
    }
)
_ORDERS = frozenset({"relax.sort", "relax.argsort", "relax.topk"})
# Order: TVM compares bfloat16 by its bits.
_BFLOAT16 = _ORDERS | {"relax.argmax", "relax.argmin"}
_SORTED_AS = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
}
_TOP_BIT = -(2**63)


def legal_types(module: IRModule) -> IRModule:
    """``main`` with half-precision sums in float32, and no element type that TVM cannot lower."""
    return cleaned(module, _mutator().visit_expr(module["main"]))


def _mutator() -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Widener(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = str(getattr(call.op, "name", ""))
            kinds = {_dtype(operand) for operand in call.args}
            if name == "relax.full":
                return _filled(call)
            if "float64" in kinds and name in NORMALIZATIONS:
                return NORMALIZATIONS[name](call)
            if name in _ORDERS and _dtype(call.args[0]) in _SORTED_AS:
                return self._sorted(call)
            # What is computed from whole numbers only has no half-precision sum.
            half = next((kind for kind in _HALF if kind in kinds), None)
            if half is None:
                return call
            if (
                name == "relax.subtract"
                and half == "bfloat16"
                and call.args[0].same_as(call.args[1])
            ):
                return _zeros_or_nan(call.args[0])
            if name in _PRODUCTS:
                wide = _product(call, name)
            elif name in _SUMS | _FUNCTIONS or (half == "bfloat16" and name in _BFLOAT16):
                operands = [self._wide(operand) for operand in call.args]
                wide = relax.Call(call.op, operands, _wide_attributes(call))
            else:
                return call
            return self._narrow(self.builder_.emit(wide), call.ty)

        def _sorted(self, call: Any) -> Any:
            """The same order of wider integers; those of 64 bits with the top bit turned."""
            given = _dtype(call.args[0])
            key = relax.op.astype(call.args[0], _SORTED_AS[given])
            if given == "uint64":
                key = relax.op.bitwise_xor(key, relax.const(_TOP_BIT, "int64"))
            operands = [self.builder_.emit(key), *call.args[1:]]
            result = self.builder_.emit(relax.Call(call.op, operands, call.attrs))

            def back(value: Any, wanted: Any) -> Any:
                if isinstance(wanted, relax.TupleType):
                    parts = [relax.TupleGetItem(value, at) for at in range(len(wanted.fields))]
                    fields = zip(map(self.builder_.emit, parts), wanted.fields, strict=True)
                    return relax.Tuple([back(part, field) for part, field in fields])
                if str(wanted.dtype) != given:
                    return value
                if given == "uint64":
                    turned = relax.op.bitwise_xor(value, relax.const(_TOP_BIT, "int64"))
                    value = self.builder_.emit(turned)
                return self.builder_.emit(relax.op.astype(value, given))

            return back(result, call.ty)

        def _narrow(self, wide: Any, wanted: Any) -> Any:
            """``wide`` in the element types there were: of each part, where it is a tuple."""
            if isinstance(wanted, relax.TupleType):
                parts = [
                    self._narrow(self.builder_.emit(relax.TupleGetItem(wide, i)), part)
                    for i, part in enumerate(wanted.fields)
                ]
                return relax.Tuple(parts)
            dtype = str(wanted.dtype)
            return wide if _dtype(wide) == dtype else relax.op.astype(wide, dtype)

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


def _filled(call: Any) -> Any:
    """A fill; TVM has no number for infinity and NaN where it lowers one, but for the constant."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    value = getattr(call.args[1], "value", None)
    if not isinstance(value, _tvm.tvm.runtime.Tensor) or not str(value.dtype).startswith("float"):
        return call
    number = value.numpy()
    if np.isfinite(number):
        return call
    dtype = str(call.ty.dtype)
    return relax.op.broadcast_to(relax.const(number.astype(dtype), dtype), call.args[0])


def _zeros_or_nan(value: Any) -> Any:
    """``x - x``. TVM folds it to a constant, and stores no vector of constants of bfloat16."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    size = relax.op.abs(relax.op.astype(value, "float32"))
    is_finite = relax.op.less(size, relax.const(np.inf, "float32"))
    zero, nan = (relax.const(number, "float32") for number in (0.0, np.nan))
    return relax.op.astype(relax.op.where(is_finite, zero, nan), str(value.ty.dtype))


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
