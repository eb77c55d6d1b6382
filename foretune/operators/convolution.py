"""Transposed convolutions of any padding, dilation and output padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretune import _tvm

_LAYOUTS = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW"), 3: ("NCDHW", "IODHW")}


def transposed_convolution(
    builder: Any,
    data: Any,
    weight: Any,
    strides: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: str | None = None,
) -> Any:
    """The gradient of a convolution with respect to its input; all sequences per spatial axis.

    TVM's operator takes what is cut from either end up to the reach of the kernel, and output
    padding below the stride. Here what goes beyond is sliced off or filled with zeros, which is
    what the longer result holds there.

    Args:
        builder: Relax block builder.
        data: Batch, channels and one to three spatial axes.
        weight: Input channels, output channels of a group, and the kernel.
        strides: Between the places of two inputs in the result.
        before: What is cut from the front of the full result.
        after: What is cut from its end: the padding less the output padding, so that it may be
            negative.
        dilation: Between the elements of the kernel.
        groups: Into which the channels are divided.
        out_dtype: Of sums and result; that of ``data`` if not given.
    """
    op = _tvm.tvm.relax.op
    rank = len(strides)
    kernel = [int(extent) for extent in weight.ty.shape][2:]
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    front = [min(cut, most) for cut, most in zip(before, reach, strict=True)]
    back = [max(0, min(cut, most)) for cut, most in zip(after, reach, strict=True)]
    layout, kernel_layout = _LAYOUTS[rank]
    result = builder.emit(
        getattr(op.nn, f"conv{rank}d_transpose")(
            data,
            weight,
            strides=list(strides),
            padding=[*front, *back],
            output_padding=[0] * rank,
            dilation=list(dilation),
            groups=groups,
            data_layout=layout,
            kernel_layout=kernel_layout,
            out_dtype=out_dtype,
        )
    )
    widths = [max(0, -cut) for cut in after]
    if any(widths):
        behind = [width for extent in widths for width in (0, extent)]
        result = builder.emit(op.nn.pad(result, [0, 0, 0, 0, *behind], "constant", 0.0))
    begin = [cut - native for cut, native in zip(before, front, strict=True)]
    cut_off = [max(0, cut) - native for cut, native in zip(after, back, strict=True)]
    if not any([*begin, *cut_off]):
        return result
    extents = [int(extent) for extent in result.ty.shape][2:]
    end = [extent - cut for extent, cut in zip(extents, cut_off, strict=True)]
    return builder.emit(op.strided_slice(result, list(range(2, rank + 2)), begin, end))
