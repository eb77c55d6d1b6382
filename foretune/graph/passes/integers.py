"""Quantised networks: convolutions and products of bytes are computed in integers.

A quantised network holds ``dequantize(q, s, z) = (q - z) * s`` before each float operator and
``quantize`` behind it. Before → after, with ``w`` constant bytes and ``s_w`` one scale or one for
each output channel::

    conv2d(dequantize(x, s_x, z_x), dequantize(w, s_w, z_w))
    → float(conv2d(x - z_x, w - z_w) in int32) * (s_x * s_w)

Likewise ``matmul``, and products that are integers in the graph (``MatMulInteger``), whose zero
point may be computed while the network runs. What follows (bias, activation, residual, quantize)
stays element-wise floats, which fuse with the kernel. The integer form is exact where the float
form rounds its sums.

*Carriers.* The instruction of the target (``hardware.integer_product``) says in which type the data
goes. ``quantize`` writes that type directly: 16-bit integers without their zero point, or unsigned
bytes, signed ones being moved by 128. A zero point that is left comes out of the sums again as a
constant for each channel, ``z * sum(w)``, borders included: they are filled with ``z``.

Groups, computed weights, weights that do not fit, and sums that could leave 32 bits stay floats.
What is left of ``quantize`` and ``dequantize`` becomes element-wise operators, which transposes
and reshapes sink below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretune.graph.passes.rewrites import (
    PERMUTE,
    RESHAPE,
    axes_of,
    call_of,
    cleaned,
    constant,
    extents,
    is_constant,
    scalar,
)
from foretune.hardware import IntegerProduct, integer_product
from foretune.operators.products import (
    integer_convolution,
    integer_matmul,
    packed_kernel,
    packed_matrix,
)

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_QUANTIZE = frozenset({"relax.quantize"})
_DEQUANTIZE = frozenset({"relax.dequantize"})
_EITHER = _QUANTIZE | _DEQUANTIZE
_CAST = frozenset({"relax.astype"})
_MULTIPLY = frozenset({"relax.multiply"})
_SUBTRACT = frozenset({"relax.subtract"})
_POOL = frozenset({"relax.nn.max_pool2d"})
_BYTES = ("int8", "uint8")


class Real(NamedTuple):
    """A float tensor as ``(data - zero) * scale``."""

    data: Any
    zero: int
    scale: float


class Weight(NamedTuple):
    """Constant weights as ``values * scale``; ``scale`` has one number or one per output."""

    values: Array
    scale: Array


def integer_products(module: IRModule, hardware: Hardware) -> IRModule:
    """``main`` with quantised convolutions and products in integers, where the target has any."""
    from foretune import _tvm

    quantised: list[Any] = []
    _tvm.tvm.relax.analysis.post_order_visit(
        module["main"], lambda node: quantised.append(node) if _concerns(node) else None
    )
    if not quantised:
        return module
    product = integer_product(hardware)
    if product is not None:
        mutator = _mutator(product)
        main = mutator.visit_expr(module["main"])
        module = cleaned(module, main, mutator)
    return cleaned(module, _elementary().visit_expr(module["main"]))


class Step(NamedTuple):
    """How a tensor is quantised."""

    scale: float
    zero: int


def _concerns(node: Any) -> bool:
    whole = call_of(node, frozenset({"relax.matmul"})) and str(node.ty.dtype) == "int32"
    return whole or call_of(node, _EITHER)


def step_of(call: Any) -> Step | None:
    """Scale and zero point of ``quantize`` or ``dequantize``; None where they are several."""
    scale, zero = scalar(call.args[1]), scalar(call.args[2])
    return None if scale is None or zero is None else Step(float(np.float32(scale)), int(zero))


def _relax() -> Any:
    from foretune import _tvm

    return _tvm.tvm.relax


def _number(value: float) -> Any:
    """A number as a tensor of one element, which is an argument of a kernel and no part of it.

    Layers that differ in their scales alone then are one workload.
    """
    return constant(np.array([value], "float32"))


def _rounded(builder: Any, data: Any, step: Step, kind: str) -> Any:
    """``data`` quantised to the integers of a byte type, in floats."""
    op, info = _relax().op, np.iinfo(kind)
    value = builder.emit(op.round(builder.emit(op.divide(data, _number(step.scale)))))
    if step.zero:
        value = builder.emit(op.add(value, _number(step.zero)))
    return builder.emit(op.clip(value, float(info.min), float(info.max)))


def _moved(builder: Any, data: Any, step: Step, kind: str, shift: int) -> Any:
    """``_rounded`` with ``shift`` added."""
    op, info = _relax().op, np.iinfo(kind)
    if step.zero == info.min and shift == -step.zero:
        # Behind a rectifier, where all zero points are alike: nothing is added or taken off.
        value = builder.emit(op.round(builder.emit(op.divide(data, _number(step.scale)))))
        return builder.emit(op.clip(value, 0.0, float(info.max) - info.min))
    if shift and shift != -step.zero:
        # The one shift between signed and unsigned bytes: both ends move with it.
        unsigned = Step(step.scale, step.zero + shift)
        return _rounded(builder, data, unsigned, "uint8")
    value = _rounded(builder, data, step, kind)
    return builder.emit(op.add(value, _number(shift))) if shift else value


def _spread(builder: Any, real: Real) -> Any:
    """A quantised tensor in floats, in element-wise operators; ``Integers.real`` reads this."""
    op = _relax().op
    value = builder.emit(op.astype(real.data, "float32"))
    if real.zero:
        value = builder.emit(op.subtract(value, _number(real.zero)))
    return op.multiply(value, _number(real.scale))


def _elementary() -> Any:
    """What is left of ``quantize`` and ``dequantize`` of one scale becomes element-wise."""
    relax = _relax()

    @relax.expr_functor.mutator
    class Elementary(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if call_of(call, _MULTIPLY) and not extents(call):
                return self._scale(call)
            step = step_of(call) if call_of(call, _EITHER) else None
            if step is None or is_constant(call.args[0]):
                return call
            kind = str(call.ty.dtype)
            if call_of(call, _QUANTIZE) and kind in _BYTES:
                return relax.op.astype(_rounded(self.builder_, call.args[0], step, kind), kind)
            if str(call.args[0].ty.dtype) in _BYTES and kind == "float32":
                return _spread(self.builder_, Real(call.args[0], step.zero, step.scale))
            return call

        def _scale(self, call: Any) -> Any:
            """The scale of data times that of weights, which is to be no part of a kernel."""
            values = [scalar(operand) for operand in call.args]
            if str(call.ty.dtype) != "float32" or sum(value is None for value in values) != 1:
                return call
            operands = [
                operand if value is None else _number(float(value))
                for operand, value in zip(call.args, values, strict=True)
            ]
            longer = self.builder_.emit(relax.op.multiply(*operands))
            return relax.op.reshape(longer, [])

    return Elementary()


def _mutator(product: IntegerProduct) -> Any:
    relax = _relax()
    op = relax.op

    @relax.expr_functor.mutator
    class Integers(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = str(getattr(call.op, "name", ""))
            rule = _RULES.get(name)
            result = None if rule is None else rule(self, call)
            return call if result is None else result

        def bound(self, expression: Any) -> Any:
            """What a variable is bound to; other expressions themselves."""
            if isinstance(expression, relax.Var):
                return self.lookup_binding(expression)
            return expression

        def emit(self, expression: Any) -> Any:
            return self.builder_.emit(expression)

        def dequantize(self, call: Any) -> Any | None:
            step, kind = step_of(call), str(call.args[0].ty.dtype)
            known = kind in _BYTES and str(call.ty.dtype) == "float32"
            if step is None or not known or is_constant(call.args[0]):
                return None
            shift = _shift(product, kind, step.zero)
            carrier = self._carrier(call.args[0], step, shift)
            return _spread(self.builder_, Real(carrier, step.zero + shift, step.scale))

        def _carrier(self, data: Any, step: Step, shift: int) -> Any:
            """Bytes in the instruction's type, ``shift`` added."""
            kind, made = str(data.ty.dtype), self.bound(data)
            if call_of(made, _QUANTIZE) and step_of(made) == step:
                pooled = self._pooled(made.args[0], step.scale, step.zero + shift)
                if pooled is not None:
                    return pooled
                value = _moved(self.builder_, made.args[0], step, kind, shift)
                return self.emit(op.astype(value, product.data))
            if kind == product.data:
                return data
            wide = self.emit(op.astype(data, "int16"))
            moved = self.emit(op.add(wide, constant(np.array([shift], "int16"))))
            return self.emit(op.astype(moved, product.data))

        def _pooled(self, expression: Any, scale: float, zero: int) -> Any | None:
            """A maximum over quantised numbers that are quantised alike is one of these."""
            pool = self.bound(expression)
            real = self.real(pool.args[0]) if call_of(pool, _POOL) else None
            if real is None or (real.scale, real.zero) != (scale, zero):
                return None
            return self.emit(relax.Call(pool.op, [real.data], pool.attrs))

        def real(self, expression: Any) -> Real | None:
            """A float tensor that is a carrier times its scale."""
            value = self.bound(expression)
            scale = _operand(value, "relax.multiply")
            if scale is None:
                return None
            inner, zero = self.bound(value.args[0]), 0.0
            if call_of(inner, _SUBTRACT):
                left = _operand(inner, "relax.subtract")
                if left is None:
                    return None
                inner, zero = self.bound(inner.args[0]), left
            if not call_of(inner, _CAST) or str(inner.ty.dtype) != "float32":
                return None
            if str(inner.args[0].ty.dtype) != product.data:
                return None
            return Real(inner.args[0], int(zero), scale)

        def weight(self, expression: Any) -> Weight | None:
            """Constant weights; transposes of them are computed here."""
            call = self.bound(expression)
            if call_of(call, PERMUTE):
                inner = self.weight(call.args[0])
                if inner is None:
                    return None
                axes = axes_of(call)
                return Weight(inner.values.transpose(axes), inner.scale.transpose(axes))
            if not call_of(call, _DEQUANTIZE) or not all(map(is_constant, call.args)):
                return None
            values, scale, zero = (part.value.numpy() for part in call.args)
            if str(values.dtype) not in _BYTES or str(call.ty.dtype) != "float32":
                return None
            along = [1] * values.ndim
            if scale.size > 1 or zero.size > 1:
                along[int(call.attrs.axis)] = -1
            centred = values.astype("int32") - zero.astype("int32").reshape(along)
            return Weight(centred, scale.astype("float64").reshape(along))

        def conv2d(self, call: Any) -> Any | None:
            real, weight, attrs = self.real(call.args[0]), self.weight(call.args[1]), call.attrs
            layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
            plain = layouts == ("NCHW", "OIHW", "NCHW") and int(attrs.groups) == 1
            if real is None or weight is None or not plain or not _fits(weight, 0, product):
                return None
            packed = packed_kernel(weight.values, product)
            image = self.emit(op.permute_dims(real.data, [0, 2, 3, 1]))
            kernel = integer_convolution(
                extents(image),
                packed.shape,
                product,
                [int(v) for v in attrs.strides],
                [int(v) for v in attrs.padding],
                [int(v) for v in attrs.dilation],
                real.zero,
            )
            total = self._call(kernel, "integer_conv2d", image, packed, len(weight.values))
            result = self._scaled(total, real, weight, weight.values.sum(axis=(1, 2, 3)))
            return op.permute_dims(result, [0, 3, 1, 2])

        def matmul(self, call: Any) -> Any | None:
            if str(call.ty.dtype) == "int32":
                return self._whole_numbers(call)
            real, weight = self.real(call.args[0]), self.weight(call.args[1])
            if real is None or weight is None or not _is_product(call, weight, product):
                return None
            total = self._product(real.data, weight, real.zero)
            result = self._scaled(total, real, weight, weight.values.sum(axis=0))
            return op.reshape(result, extents(call))

        def _whole_numbers(self, call: Any) -> Any | None:
            """``(x - z) * w`` in int32, as ``MatMulInteger`` is: ``z`` may be computed."""
            left, values = self.bound(call.args[0]), self.known(call.args[1])
            zero = left.args[1] if call_of(left, _SUBTRACT) else None
            cast = left if zero is None else self.bound(left.args[0])
            if values is None or not call_of(cast, _CAST):
                return None
            kind, weight = str(cast.args[0].ty.dtype), Weight(values, np.ones(values.ndim * (1,)))
            whole = zero is None or int(np.prod(extents(zero))) == 1
            if kind not in _BYTES or not whole or not _is_product(call, weight, product):
                return None
            if product.data == "int16":
                # Both are bytes, so that nine bits hold the difference.
                total = self._product(self.emit(op.astype(call.args[0], "int16")), weight, 0)
                return op.reshape(total, extents(call))
            shift = _shift(product, kind, 0)
            data = self._carrier(cast.args[0], Step(0.0, 0), shift)
            total = self._product(data, weight, 0)
            moved = constant(np.array([shift], "int32"))
            if zero is not None:
                moved = self.emit(op.add(self.emit(op.reshape(zero, [1])), moved))
            sums = constant(values.sum(axis=0).astype("int32"))
            extra = self.emit(op.multiply(moved, sums))
            return op.reshape(self.emit(op.subtract(total, extra)), extents(call))

        def known(self, expression: Any) -> Array | None:
            """A constant tensor of int32: bytes, or bytes without their zero points."""
            value = self.bound(expression)
            if is_constant(value):
                return value.value.numpy()  # type: ignore[no-any-return]
            if call_of(value, _SUBTRACT):
                one, other = self.known(value.args[0]), self.known(value.args[1])
                return None if one is None or other is None else one - other
            if call_of(value, RESHAPE):
                inner = self.known(value.args[0])
                return None if inner is None else inner.reshape(extents(value))
            if call_of(value, _CAST) and str(value.ty.dtype) == "int32":
                inner = self.known(value.args[0])
                return None if inner is None else inner.astype("int32")
            return None

        def _product(self, data: Any, weight: Weight, zero: int) -> Any:
            packed, shape = packed_matrix(weight.values, product), extents(data)
            flat = self.emit(op.reshape(data, [int(np.prod(shape[:-1])), shape[-1]]))
            kernel = integer_matmul(extents(flat), packed.shape, product, zero)
            return self._call(kernel, "integer_matmul", flat, packed, weight.values.shape[1])

        def _call(self, kernel: Any, name: str, data: Any, packed: Array, outputs: int) -> Any:
            """The sums ``[..., O]``, without the lanes that were filled up."""
            function = self.builder_.add_func(kernel, name)
            shape = [int(extent) for extent in kernel.params[-1].shape]
            kind = relax.TensorType(shape, "int32")
            total = self.emit(relax.call_tir(function, [data, constant(packed)], kind))
            if shape[-1] == outputs:
                return total
            return self.emit(op.strided_slice(total, [-1], [0], [outputs]))

        def _scaled(self, total: Any, real: Real, weight: Weight, sums: Array) -> Any:
            """Sums ``[..., O]`` without what the zero point added, in floats."""
            if real.zero:
                left = constant((-real.zero * sums).astype("int32"))
                total = self.emit(op.add(total, left))
            factor = (real.scale * weight.scale.reshape(-1)).astype("float32")
            factor = np.broadcast_to(factor, len(sums))
            wide = self.emit(op.astype(total, "float32"))
            return self.emit(op.multiply(wide, constant(factor)))

    return Integers()


_RULES: dict[str, Any] = {
    "relax.dequantize": lambda mutator, call: mutator.dequantize(call),
    "relax.nn.conv2d": lambda mutator, call: mutator.conv2d(call),
    "relax.matmul": lambda mutator, call: mutator.matmul(call),
}


def _operand(call: Any, name: str) -> float | None:
    """The constant number that an operator of that name has as its second operand."""
    if not call_of(call, frozenset({name})):
        return None
    value = scalar(call.args[1])
    return None if value is None else float(value)


def _shift(product: IntegerProduct, kind: str, zero: int) -> int:
    """What is added to bytes to make them a carrier."""
    if product.data == "int16":
        return -zero
    return 128 if kind == "int8" else 0


def _is_product(call: Any, weight: Weight, product: IntegerProduct) -> bool:
    """Whether rows are multiplied with one matrix that fits."""
    ranks = len(extents(call.args[0])) >= 2, weight.values.ndim == 2
    return all(ranks) and _fits(weight, 1, product)


def _fits(weight: Weight, axis: int, product: IntegerProduct) -> bool:
    """Whether weights are of the instruction's type, scaled by output only, and sums in 32 bits."""
    info = np.iinfo(product.weight)
    values, scale = weight
    if any(extent != 1 for at, extent in enumerate(scale.shape) if at != axis):
        return False
    if not values.size or values.min() < info.min or values.max() > info.max:
        return False
    others = tuple(at for at in range(values.ndim) if at != axis)
    largest = np.abs(values.astype("int64")).sum(axis=others).max() * 255
    return bool(largest <= np.iinfo("int32").max)
