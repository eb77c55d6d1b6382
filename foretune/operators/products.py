"""Convolutions and products of small integers as tensor programs, laid out for one instruction.

Symbols: the instruction multiplies ``G`` neighbouring operands for each of ``L`` lanes. Channels
of the input are summed in groups of ``G``; channels of the output are its lanes. Weights are packed
at compile time in panels (``panels``) so that each instruction reads one contiguous vector::

    convolution  [O, I, KH, KW]  ->  [O / L, KH, KW, I / G, L, G]
    product      [K, N]          ->  [N / L, K / G, L, G]

Data stays as it is, channels last; where it has to be filled up (borders of the image, channels to
a multiple of ``G``), a stage of its own does that, because an instruction reads memory and no
expression. Sums are 32 bits wide and exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.hardware import FILLED, PRODUCT, IntegerProduct
from foretune.operators.panels import grouped_panels, places

if TYPE_CHECKING:
    from foretune._arrays import Array

_FUSABLE = 4
"""TVM's number for: element-wise operators behind it become part of the kernel."""


def packed_kernel(weight: Array, product: IntegerProduct) -> Array:
    """Weights ``[O, I, KH, KW]`` in the order of the instruction, filled up with zeros."""
    columns_last = weight.transpose(2, 3, 1, 0)
    return grouped_panels(columns_last, product.lanes, product.group).astype(product.weight)


def packed_matrix(weight: Array, product: IntegerProduct) -> Array:
    """The same for a matrix ``[K, N]``."""
    return grouped_panels(weight, product.lanes, product.group).astype(product.weight)


def integer_convolution(
    data: Sequence[int],
    weight: Sequence[int],
    product: IntegerProduct,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    zero: int,
) -> Any:
    """A PrimFunc of data ``[N, H, W, I]`` and packed weights, to ``[N, OH, OW, O]`` in int32.

    Args:
        data: Extents of the data.
        weight: Extents of the packed weights.
        product: The instruction.
        strides: Of two axes.
        padding: Top, left, bottom, right.
        dilation: Of two axes.
        zero: What the image is filled up with.
    """
    te, group, lanes = _tvm.tvm.te, product.group, product.lanes
    batch, height, width, _channels = data
    top, left, bottom, right = padding
    kernel = weight[1:3]
    x = te.placeholder(tuple(data), product.data, name="data")
    w = te.placeholder(tuple(weight), product.weight, name="weight")
    high, wide, deep = height + top + bottom, width + left + right, weight[3] * group
    filled = _filled(x, (batch, high, wide, deep), (0, top, left, 0), zero)
    rows = places(high, kernel[0], strides[0], dilation[0])
    columns = places(wide, kernel[1], strides[1], dilation[1])
    kh, kw = te.reduce_axis((0, kernel[0]), "kh"), te.reduce_axis((0, kernel[1]), "kw")
    k, g = te.reduce_axis((0, weight[3]), "k"), te.reduce_axis((0, group), "g")
    total = te.compute(
        (batch, rows, columns, weight[0] * lanes),
        lambda n, i, j, o: te.sum(
            filled[
                n,
                i * strides[0] + kh * dilation[0],
                j * strides[1] + kw * dilation[1],
                k * group + g,
            ].astype("int32")
            * w[o // lanes, kh, kw, k, o % lanes, g].astype("int32"),
            axis=[kh, kw, k, g],
        ),
        name="integer_conv2d",
        attrs={PRODUCT: product.name},
    )
    return _fusable(te.create_prim_func([x, w, total], "int64"))


def integer_matmul(
    data: Sequence[int], weight: Sequence[int], product: IntegerProduct, zero: int
) -> Any:
    """A PrimFunc of data ``[M, K]`` and packed weights, to ``[M, N]`` in int32."""
    te, group, lanes = _tvm.tvm.te, product.group, product.lanes
    x = te.placeholder(tuple(data), product.data, name="data")
    w = te.placeholder(tuple(weight), product.weight, name="weight")
    filled = _filled(x, (data[0], weight[1] * group), (0, 0), zero)
    k, g = te.reduce_axis((0, weight[1]), "k"), te.reduce_axis((0, group), "g")
    total = te.compute(
        (data[0], weight[0] * lanes),
        lambda i, j: te.sum(
            filled[i, k * group + g].astype("int32")
            * w[j // lanes, k, j % lanes, g].astype("int32"),
            axis=[k, g],
        ),
        name="integer_matmul",
        attrs={PRODUCT: product.name},
    )
    return _fusable(te.create_prim_func([x, w, total], "int64"))


def _filled(x: Any, shape: Sequence[int], offsets: Sequence[int], zero: int) -> Any:
    """``x`` in the middle of a tensor of ``zero``; ``x`` itself where it fills that."""
    extents = [int(extent) for extent in x.shape]
    if list(shape) == extents:
        return x
    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te

    def element(*at: Any) -> Any:
        inner = [index - offset for index, offset in zip(at, offsets, strict=True)]
        inside = [
            condition
            for index, offset, own, extent in zip(inner, offsets, extents, shape, strict=True)
            for condition in (
                ([index >= 0] if offset else []) + ([index < own] if own + offset < extent else [])
            )
        ]
        value = tirx.const(zero, str(x.dtype))
        return tirx.if_then_else(tirx.all(*inside), x[tuple(inner)], value)

    return te.compute(tuple(shape), element, name=FILLED)


def _fusable(function: Any) -> Any:
    """A private function that TVM fuses with what follows it."""
    return function.without_attr("global_symbol").with_attr("op_pattern", _FUSABLE)
