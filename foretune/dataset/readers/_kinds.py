"""Operator kinds of programs that others measured, from what is left of them: names and shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

UNKNOWN = "unknown"
"""Kind of a program whose operator nothing tells."""

Shape = Sequence[int]

_PATTERNS = (
    ("depthwise", r"depthwise"),
    ("conv2d_transpose", r"conv2d_?transpose|transposed?_?conv"),
    ("group_conv2d", r"group(ed)?_conv2d"),
    ("conv1d", r"conv1d"),
    ("conv3d", r"conv3d"),
    ("conv2d", r"conv2d|convolution|winograd|bgemm"),
    ("batch_matmul", r"batch_?matmul|bmm"),
    ("dense", r"dense|matmul|gemm|(^|_)mm(_|$)"),
    ("softmax", r"softmax"),
    ("pool", r"pool"),
    ("norm", r"(layer|batch|rms|group|instance)_?norm"),
    ("reduction", r"reduc|_red$|(^|_)(sum|mean|argmax|argmin)(_|$)"),
    ("elementwise", r"relu|elemwise|(^|_)add|multiply|subtract|sigmoid|tanh|gelu|clip|broadcast"),
)
"""Kind and what names of its blocks, tasks or kernels contain. The first that any name matches is
the program's: the operator that costs most comes before what is fused to it."""


def kind_of_names(names: Iterable[str]) -> str:
    """Operator kind of a program whose blocks, task or kernel have these names."""
    lower = [name.lower() for name in names]
    for kind, pattern in _PATTERNS:
        if any(re.search(pattern, name) for name in lower):
            return kind
    return UNKNOWN


def family_of_shapes(kind: str, shapes: Sequence[object]) -> str:
    """What programs share that differ only in what is fused behind; empty where nothing tells.

    An epilogue adds operands behind data and weights, so these and the output decide. That may
    join what differs otherwise, in a stride for example: rather that than the same on two sides.

    Args:
        kind: Operator kind.
        shapes: Of the inputs, data first, then of the output, in whatever form.
    """
    least = 3
    if len(shapes) < least:
        return ""
    return json.dumps([kind, *shapes[:2], shapes[-1]], separators=(",", ":"))


def kind_of_shapes(shapes: Sequence[Shape]) -> str:
    """A guess at the operator kind from the shapes of a program's inputs and output.

    Ansor and TenSet name a program by a hash. What the shapes of data, weights and output do not
    make plain is ``UNKNOWN``: pooling, element-wise and grouped operators among them. Layouts are
    those of TenSet (data NHWC, weights HWIO) and of packed x86 convolutions (NCHWc, OIHWio).

    Args:
        shapes: Of the inputs, data first, then of the output.
    """
    # Three alike are an element-wise operator more often than a square product.
    if len(shapes) < 3 or shapes[0] == shapes[1] == shapes[-1]:
        return UNKNOWN
    data, weights, output = shapes[0], shapes[1], shapes[-1]
    ranks = (len(data), len(weights), len(output))
    if ranks == (5, 6, 5):
        return "depthwise" if weights[1] == weights[4] == 1 else "conv2d"
    if ranks == (4, 4, 4):
        return _channels_last(data, weights, "conv2d")
    if ranks == (5, 5, 5):
        return _channels_last(data, weights, "conv3d")
    if ranks == (2, 2, 2) and list(output) == [data[0], weights[0]] and data[1] == weights[1]:
        return "dense"
    if ranks == (3, 3, 3) and data[0] == weights[0] == output[0] and data[2] in weights[1:]:
        return "batch_matmul"
    return UNKNOWN


def _channels_last(data: Shape, weights: Shape, kind: str) -> str:
    if weights[-2] != data[-1]:
        return UNKNOWN
    return "depthwise" if weights[-1] == 1 and data[-1] > 1 and kind == "conv2d" else kind
