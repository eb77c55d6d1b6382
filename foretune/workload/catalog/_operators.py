"""Tensor expressions the catalog is made of, in the layouts of the CPU pipeline.

Images are NHWC with HWIO weights (videos NDHWC with DHWIO), because that is what the graph room
converts networks to. Batch norm is folded into weights and bias, as inference simplification does.
Nothing is marked as free to be laid out anew, as some of TOPI's definitions do for their second
operand: TVM would leave the cost of the new layout out of the time, and the network pays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc

Tensor = Any
"""``te.Tensor``; TVM has no types."""


def _te() -> Any:
    # Loaded on use: listing the catalog should not cost the import of TVM.
    from foretune._tvm import tvm

    return tvm.te


def _topi() -> Any:
    from foretune._tvm import tvm

    return tvm.topi


def tensor(name: str, *shape: int) -> Tensor:
    """An fp32 input."""
    return _te().placeholder(shape, name=name, dtype="float32")


def program(*tensors: Tensor) -> PrimFunc:
    """The function that computes the last tensor from the others."""
    function: PrimFunc = _te().create_prim_func(list(tensors))
    return function


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """``x[..., c] + bias[c]``: also what is left of a folded batch norm."""
    return _te().compute(x.shape, lambda *i: x[i] + bias[i[-1]], name="add_bias")


def add(x: Tensor, y: Tensor) -> Tensor:
    """Elementwise sum of equal shapes: the end of a residual block."""
    return _te().compute(x.shape, lambda *i: x[i] + y[i], name="add")


def relu(x: Tensor) -> Tensor:
    """``max(x, 0)``."""
    return _topi().nn.relu(x)


def relu6(x: Tensor) -> Tensor:
    """``min(max(x, 0), 6)``, MobileNet's activation."""
    return _topi().clip(x, 0.0, 6.0)


def gelu(x: Tensor) -> Tensor:
    """``x * (1 + erf(x / sqrt 2)) / 2``, the exact form that BERT uses."""
    return _te().compute(
        x.shape,
        lambda *i: x[i] * (_te().erf(x[i] * 0.7071067811865476) * 0.5 + 0.5),
        name="gelu",
    )


def conv2d(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """2-D convolution, NHWC by HWIO."""
    # Not conv2d_nhwc, which marks the weight as free to be laid out anew.
    return _topi().nn.conv(x, weight, stride, padding, 1, 1, "NHWC", "HWIO", "float32")


def depthwise(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
    """Depthwise 2-D convolution with one filter a channel; weight (height, width, channels, 1)."""
    return _topi().nn.depthwise_conv2d_nhwc(x, weight, stride, padding, 1, "float32")


def conv3d(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """3-D convolution, NDHWC by DHWIO."""
    return _topi().nn.conv3d_ndhwc(x, weight, stride, padding, 1, 1, "float32")


def pool2d(x: Tensor, kind: str, kernel: int, stride: int = 1, padding: int = 0) -> Tensor:
    """Pooling of ``kind`` "max" or "avg", NHWC."""
    pads = (padding,) * 4
    size = (kernel, kernel)
    return _topi().nn.pool2d(x, size, (stride, stride), (1, 1), pads, kind, False, "NHWC")


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """``x[..., m, k] @ weight[k, n]``."""
    te = _te()
    *outer, depth = x.shape
    k = te.reduce_axis((0, depth), name="k")

    def cell(*i: Any) -> Any:
        row = (*i[:-1], k)
        return te.sum(x[row] * weight[k, i[-1]], axis=k)

    return te.compute((*outer, weight.shape[1]), cell, name="matmul")


def batch_matmul(x: Tensor, y: Tensor, transposed: bool = False, group: int = 1) -> Tensor:
    """``x[b, m, k] @ y[b // group, k, n]``.

    Args:
        x: The left operand.
        y: The right operand.
        transposed: ``y`` is (b, n, k): queries by keys.
        group: How many matrices of ``x`` share one of ``y`` (grouped-query attention).
    """
    batch, rows, depth = x.shape
    columns = y.shape[1] if transposed else y.shape[2]
    k = _te().reduce_axis((0, depth), name="k")

    def cell(b: Any, i: Any, j: Any) -> Any:
        shared = b if group == 1 else _te().indexdiv(b, group)
        right = y[shared, j, k] if transposed else y[shared, k, j]
        return _te().sum(x[b, i, k] * right, axis=k)

    return _te().compute((batch, rows, columns), cell, name="batch_matmul")


def scale(x: Tensor, factor: float) -> Tensor:
    """``x * factor``."""
    return _te().compute(x.shape, lambda *i: x[i] * _te().const(factor, "float32"), name="scale")


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last axis, in the stable form that subtracts the maximum."""
    return _topi().nn.softmax(x, axis=-1)


def mean(x: Tensor) -> Tensor:
    """Mean over the last axis, which is kept with extent 1."""
    te = _te()
    *outer, length = x.shape
    k = te.reduce_axis((0, length), name="k")

    def cell(*i: Any) -> Any:
        row = (*i[:-1], k)
        return te.sum(x[row], axis=k)

    total = te.compute((*outer, 1), cell, name="sum")
    inverse = te.const(1.0 / int(length), "float32")
    return te.compute(total.shape, lambda *i: total[i] * inverse, name="mean")


def squared_deviation(x: Tensor, centre: Tensor) -> Tensor:
    """``(x - centre)^2`` where ``centre`` has extent 1 on the last axis."""

    def cell(*i: Any) -> Any:
        row = (*i[:-1], 0)
        difference = x[i] - centre[row]
        return difference * difference

    return _te().compute(x.shape, cell, name="squared_deviation")
