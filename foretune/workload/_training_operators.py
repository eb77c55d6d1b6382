"""Tensor expressions of the training workloads that the catalog has no use for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretune.workload.catalog import _operators as op
from foretune.workload.catalog._operators import Tensor, _te, _topi

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc


def with_epilogue(name: str, inputs: list[Tensor], result: Tensor) -> PrimFunc:
    """The program of a product followed by what inference fuses behind it.

    Args:
        name: Parts joined by underscores, applied in this order: ``bias``, ``add`` (a residual of
            the same shape), and the activations ``relu``, ``relu6``, ``gelu``, ``silu``; empty for
            none. Every activation comes with a bias.
        inputs: The inputs of the product.
        result: The product.
    """
    parts = name.split("_") if name else []
    if parts:
        bias = op.tensor("bias", int(result.shape[-1]))
        inputs, result = [*inputs, bias], op.add_bias(result, bias)
    for part in parts:
        if part == "add":
            residual = op.tensor("residual", *(int(extent) for extent in result.shape))
            inputs, result = [*inputs, residual], op.add(result, residual)
        elif part != "bias":
            result = _ACTIVATIONS[part](result)
    return op.program(*inputs, result)


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``."""
    return _te().compute(x.shape, lambda *i: x[i] * _te().sigmoid(x[i]), name="silu")


_ACTIVATIONS = {"relu": op.relu, "relu6": op.relu6, "gelu": op.gelu, "silu": silu}


def general_conv2d(
    x: Tensor, weight: Tensor, stride: int, padding: int, dilation: int, groups: int
) -> Tensor:
    """2-D convolution with dilation and groups, NHWC by HWIO; weight (k, k, cin / groups, cout)."""
    layout = ("NHWC", "HWIO", "float32")
    return _topi().nn.conv(x, weight, stride, padding, dilation, groups, *layout)


def conv1d(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """1-D convolution, NWC by WIO."""
    return _topi().nn.conv(x, weight, stride, padding, 1, 1, "NWC", "WIO", "float32")


def conv2d_transpose(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """Transposed 2-D convolution, NCHW by IOHW: the only layout TOPI has it in."""
    pads = (padding,) * 4
    return _topi().nn.conv2d_transpose_nchw(x, weight, (stride, stride), pads, "float32", (0, 0))


def global_average(x: Tensor) -> Tensor:
    """Mean over height and width of NHWC, as a matrix (batch, channels)."""
    te = _te()
    batch, height, width, channels = x.shape
    row, column = te.reduce_axis((0, height), name="row"), te.reduce_axis((0, width), name="column")
    total = te.compute(
        (batch, channels),
        lambda n, c: te.sum(x[n, row, column, c], axis=[row, column]),
        name="global_pool_sum",
    )
    inverse = te.const(1.0 / (int(height) * int(width)), "float32")
    return te.compute(total.shape, lambda n, c: total[n, c] * inverse, name="global_pool")


def excite(x: Tensor, gate: Tensor) -> Tensor:
    """``x[n, h, w, c] * sigmoid(gate[n, c])``: the end of a squeeze-and-excitation block."""
    te = _te()
    return te.compute(
        x.shape, lambda n, h, w, c: x[n, h, w, c] * te.sigmoid(gate[n, c]), name="excite"
    )


def gate(x: Tensor, y: Tensor) -> Tensor:
    """Elementwise product of equal shapes."""
    return _te().compute(x.shape, lambda *i: x[i] * y[i], name="gate")


def square(x: Tensor) -> Tensor:
    """``x^2``."""
    return _te().compute(x.shape, lambda *i: x[i] * x[i], name="square")


def normalise(x: Tensor, variance: Tensor, gain: Tensor, centre: Tensor | None = None) -> Tensor:
    """``(x - centre) / sqrt(variance + 1e-5) * gain[c]``, with statistics of extent 1 at the end.

    Without ``centre`` it is the end of a root-mean-square norm.
    """
    te = _te()

    def cell(*i: Any) -> Any:
        row = (*i[:-1], 0)
        centred = x[i] if centre is None else x[i] - centre[row]
        return centred * te.rsqrt(variance[row] + te.const(1e-5, "float32")) * gain[i[-1]]

    return te.compute(x.shape, cell, name="normalise")


def reduce_axis(x: Tensor, axis: int, maximum: bool = False) -> Tensor:
    """Sum or maximum of a matrix over one of its axes."""
    te = _te()
    k = te.reduce_axis((0, x.shape[axis]), name="k")
    combine = te.max if maximum else te.sum

    def cell(i: Any) -> Any:
        return combine(x[k, i] if axis == 0 else x[i, k], axis=k)

    return te.compute((x.shape[1 - axis],), cell, name="reduce")
