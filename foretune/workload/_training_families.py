"""The training workloads by operator kind: how sizes become a program and a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.workload import _training_operators as extra
from foretune.workload._training_sizes import SIZES, Sizes
from foretune.workload.catalog import _operators as op

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc


@dataclass(frozen=True)
class Family:
    """The workloads of one kind.

    Attributes:
        build: Makes the program from sizes.
        name: Makes the end of the name from the same sizes.
        sizes: One entry per workload.
    """

    build: Callable[..., PrimFunc]
    name: Callable[..., str]
    sizes: Sequence[Sizes]


def _conv2d(height: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str) -> PrimFunc:
    x, w = op.tensor("x", 1, height, height, cin), op.tensor("w", kernel, kernel, cin, cout)
    return extra.with_epilogue(epilogue, [x, w], op.conv2d(x, w, stride, kernel // 2))


def _conv2d_name(h: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str) -> str:
    return f"1x{h}x{h}x{cin}_{kernel}x{kernel}s{stride}_{cout}_{epilogue}"


def _depthwise(height: int, channels: int, kernel: int, stride: int, epilogue: str) -> PrimFunc:
    x, w = op.tensor("x", 1, height, height, channels), op.tensor("w", kernel, kernel, channels, 1)
    return extra.with_epilogue(epilogue, [x, w], op.depthwise(x, w, stride, kernel // 2))


def _depthwise_name(h: int, channels: int, kernel: int, stride: int, epilogue: str) -> str:
    return f"1x{h}x{h}x{channels}_{kernel}x{kernel}s{stride}_{epilogue}"


def _dense(rows: int, cin: int, cout: int, epilogue: str) -> PrimFunc:
    x, w = op.tensor("x", rows, cin), op.tensor("w", cin, cout)
    return extra.with_epilogue(epilogue, [x, w], op.matmul(x, w))


def _dense_name(rows: int, cin: int, cout: int, epilogue: str) -> str:
    return f"{rows}x{cin}_{cout}_{epilogue}"


def _batch_matmul(batch: int, rows: int, columns: int, depth: int, form: str) -> PrimFunc:
    """``form``: "" for x @ y, "t" for x @ transposed y, "t_scale" for that times a constant."""
    transposed = form.startswith("t")
    right = (columns, depth) if transposed else (depth, columns)
    x, y = op.tensor("x", batch, rows, depth), op.tensor("y", batch, *right)
    result = op.batch_matmul(x, y, transposed)
    return op.program(x, y, op.scale(result, depth**-0.5) if "scale" in form else result)


def _batch_matmul_name(batch: int, rows: int, columns: int, depth: int, form: str) -> str:
    return f"{batch}x{rows}x{columns}x{depth}_{form}"


def _group_conv2d(
    height: int, cin: int, cout: int, kernel: int, stride: int, groups: int, epilogue: str
) -> PrimFunc:
    x = op.tensor("x", 1, height, height, cin)
    w = op.tensor("w", kernel, kernel, cin // groups, cout)
    result = extra.general_conv2d(x, w, stride, kernel // 2, 1, groups)
    return extra.with_epilogue(epilogue, [x, w], result)


def _group_conv2d_name(
    h: int, cin: int, cout: int, kernel: int, stride: int, groups: int, epilogue: str
) -> str:
    return f"1x{h}x{h}x{cin}_{kernel}x{kernel}s{stride}g{groups}_{cout}_{epilogue}"


def _dilated_conv2d(
    height: int, cin: int, cout: int, kernel: int, dilation: int, epilogue: str
) -> PrimFunc:
    x, w = op.tensor("x", 1, height, height, cin), op.tensor("w", kernel, kernel, cin, cout)
    result = extra.general_conv2d(x, w, 1, dilation * (kernel // 2), dilation, 1)
    return extra.with_epilogue(epilogue, [x, w], result)


def _dilated_conv2d_name(
    h: int, cin: int, cout: int, kernel: int, dilation: int, epilogue: str
) -> str:
    return f"1x{h}x{h}x{cin}_{kernel}x{kernel}d{dilation}_{cout}_{epilogue}"


def _conv1d(length: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str) -> PrimFunc:
    x, w = op.tensor("x", 1, length, cin), op.tensor("w", kernel, cin, cout)
    return extra.with_epilogue(epilogue, [x, w], extra.conv1d(x, w, stride, kernel // 2))


def _conv1d_name(length: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str) -> str:
    return f"1x{length}x{cin}_{kernel}s{stride}_{cout}_{epilogue}"


def _conv3d(
    depth: int, height: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str
) -> PrimFunc:
    x = op.tensor("x", 1, depth, height, height, cin)
    w = op.tensor("w", kernel, kernel, kernel, cin, cout)
    return extra.with_epilogue(epilogue, [x, w], op.conv3d(x, w, stride, kernel // 2))


def _conv3d_name(
    d: int, h: int, cin: int, cout: int, kernel: int, stride: int, epilogue: str
) -> str:
    return f"1x{d}x{h}x{h}x{cin}_{kernel}x{kernel}x{kernel}s{stride}_{cout}_{epilogue}"


def _conv2d_transpose(
    height: int, cin: int, cout: int, kernel: int, stride: int, padding: int
) -> PrimFunc:
    x, w = op.tensor("x", 1, cin, height, height), op.tensor("w", cin, cout, kernel, kernel)
    return op.program(x, w, extra.conv2d_transpose(x, w, stride, padding))


def _conv2d_transpose_name(
    h: int, cin: int, cout: int, kernel: int, stride: int, padding: int
) -> str:
    return f"1x{cin}x{h}x{h}_{kernel}x{kernel}s{stride}p{padding}_{cout}"


def _pool(form: str, height: int, channels: int, kernel: int, stride: int) -> PrimFunc:
    """``form``: "max", "avg", or "global", whose kernel is the whole image."""
    x = op.tensor("x", 1, height, height, channels)
    if form == "global":
        return op.program(x, extra.global_average(x))
    return op.program(x, op.pool2d(x, form, kernel, stride, (kernel - 1) // 2))


def _pool_name(form: str, h: int, channels: int, kernel: int, stride: int) -> str:
    window = "" if form == "global" else f"_{kernel}x{kernel}s{stride}"
    return f"{form}_1x{h}x{h}x{channels}{window}"


def _softmax(*shape: int) -> PrimFunc:
    x = op.tensor("x", *shape)
    return op.program(x, op.softmax(x))


def _norm(form: str, rows: int, width: int) -> PrimFunc:
    """``form``: "layer", or "rms", which takes no mean off."""
    x, gain = op.tensor("x", rows, width), op.tensor("gain", width)
    if form == "rms":
        return op.program(x, gain, extra.normalise(x, op.mean(extra.square(x)), gain))
    centre, shift = op.mean(x), op.tensor("shift", width)
    variance = op.mean(op.squared_deviation(x, centre))
    result = op.add_bias(extra.normalise(x, variance, gain, centre), shift)
    return op.program(x, gain, shift, result)


def _reduction(form: str, rows: int, width: int) -> PrimFunc:
    """``form``: "mean", "variance" (of rows), "sum" (of columns) or "max" (of rows)."""
    x = op.tensor("x", rows, width)
    if form == "mean":
        return op.program(x, op.mean(x))
    if form == "variance":
        centre = op.tensor("mean", rows, 1)
        return op.program(x, centre, op.mean(op.squared_deviation(x, centre)))
    columns = form == "sum"
    return op.program(x, extra.reduce_axis(x, 0 if columns else 1, maximum=not columns))


def _form_name(form: str, *shape: int) -> str:
    return f"{form}_{_shape_name(*shape)}"


def _shape_name(*shape: int) -> str:
    return "x".join(str(extent) for extent in shape)


def _attention(heads: int, tokens: int, width: int) -> PrimFunc:
    q, k, v = (op.tensor(name, heads, tokens, width) for name in "qkv")
    scores = op.scale(op.batch_matmul(q, k, transposed=True), width**-0.5)
    return op.program(q, k, v, op.batch_matmul(op.softmax(scores), v))


def _gated_mlp(rows: int, width: int, hidden: int) -> PrimFunc:
    """``silu(x @ w) * (x @ u)``."""
    x, w, u = (
        op.tensor("x", rows, width), op.tensor("w", width, hidden), op.tensor("u", width, hidden)
    )  # fmt: skip
    gated = extra.gate(extra.silu(op.matmul(x, w)), op.matmul(x, u))
    return op.program(x, w, u, gated)


def _gated_mlp_name(rows: int, width: int, hidden: int) -> str:
    return f"{rows}x{width}_{hidden}"


def _squeeze_excite(height: int, channels: int, squeezed: int) -> PrimFunc:
    x = op.tensor("x", 1, height, height, channels)
    w, u = op.tensor("w", channels, squeezed), op.tensor("u", squeezed, channels)
    gate = op.matmul(op.relu(op.matmul(extra.global_average(x), w)), u)
    return op.program(x, w, u, extra.excite(x, gate))


def _squeeze_excite_name(h: int, channels: int, squeezed: int) -> str:
    return f"1x{h}x{h}x{channels}_{squeezed}"


FAMILIES: dict[str, Family] = {
    "conv2d": Family(_conv2d, _conv2d_name, SIZES["conv2d"]),
    "dense": Family(_dense, _dense_name, SIZES["dense"]),
    "depthwise": Family(_depthwise, _depthwise_name, SIZES["depthwise"]),
    "batch_matmul": Family(_batch_matmul, _batch_matmul_name, SIZES["batch_matmul"]),
    "group_conv2d": Family(_group_conv2d, _group_conv2d_name, SIZES["group_conv2d"]),
    "dilated_conv2d": Family(_dilated_conv2d, _dilated_conv2d_name, SIZES["dilated_conv2d"]),
    "conv1d": Family(_conv1d, _conv1d_name, SIZES["conv1d"]),
    "conv3d": Family(_conv3d, _conv3d_name, SIZES["conv3d"]),
    "conv2d_transpose": Family(
        _conv2d_transpose, _conv2d_transpose_name, SIZES["conv2d_transpose"]
    ),
    "pool": Family(_pool, _pool_name, SIZES["pool"]),
    "softmax": Family(_softmax, _shape_name, SIZES["softmax"]),
    "norm": Family(_norm, _form_name, SIZES["norm"]),
    "attention": Family(_attention, _shape_name, SIZES["attention"]),
    "gated_mlp": Family(_gated_mlp, _gated_mlp_name, SIZES["gated_mlp"]),
    "squeeze_excite": Family(_squeeze_excite, _squeeze_excite_name, SIZES["squeeze_excite"]),
    "reduction": Family(_reduction, _form_name, SIZES["reduction"]),
}
"""By kind."""
