"""The training workloads by operator kind: how sizes become a program and a name, and the sizes.

Channel counts and image sizes are those of EfficientNet, DenseNet, ShuffleNet, Inception, Whisper,
DeiT, TinyBERT and their like, partly moved away from powers of two, which tile too well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.workload import _training_operators as extra
from foretune.workload.catalog import _operators as op

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc

Sizes = tuple[Any, ...]


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
    "conv2d": Family(
        _conv2d,
        _conv2d_name,
        (
            (28, 96, 64, 3, 1, "relu"),
            (56, 24, 72, 1, 1, "relu6"),
            (14, 240, 80, 1, 1, "bias"),
            (35, 48, 64, 5, 1, "relu"),
            (28, 200, 200, 1, 1, "add_relu"),
            (192, 3, 40, 7, 2, "relu"),
            (14, 192, 192, 3, 1, "add_relu"),
            (17, 160, 192, 3, 1, "relu"),
            (19, 320, 112, 1, 1, "bias"),
            (112, 3, 40, 3, 2, "relu6"),
            (56, 64, 120, 3, 2, "relu"),
            (35, 192, 64, 1, 1, "relu"),
            (28, 160, 200, 1, 2, "bias"),
            (75, 32, 48, 3, 1, "relu"),
            (7, 320, 448, 1, 1, "gelu"),
            (10, 512, 200, 3, 1, "relu"),
            (38, 256, 96, 1, 1, "add_relu"),
            (56, 48, 48, 3, 1, "add_relu"),
            (14, 112, 672, 1, 1, "relu6"),
            (7, 160, 160, 5, 1, ""),
            (13, 384, 256, 3, 1, "relu"),
            (28, 40, 240, 1, 1, ""),
        ),
    ),
    "dense": Family(
        _dense,
        _dense_name,
        (
            (128, 312, 1200, "gelu"),
            (1, 1024, 1000, "bias"),
            (197, 384, 384, "add"),
            (16, 1024, 1024, ""),
            (256, 512, 512, "bias"),
            (49, 384, 1152, "bias"),
            (1, 4096, 1024, "relu"),
            (77, 512, 512, "add"),
            (197, 192, 768, "gelu"),
            (8, 1536, 512, "bias"),
            (64, 320, 1280, "gelu"),
            (2, 800, 500, "relu"),
            (512, 240, 720, "bias"),
            (100, 256, 1024, "relu"),
            (32, 512, 2048, "gelu"),
            (4, 960, 400, "gelu"),
        ),
    ),
    "depthwise": Family(
        _depthwise,
        _depthwise_name,
        (
            (28, 240, 3, 1, "relu6"),
            (28, 120, 5, 1, "relu"),
            (56, 72, 3, 2, "relu6"),
            (38, 112, 7, 1, "bias"),
            (112, 40, 3, 1, "relu6"),
            (56, 72, 5, 2, "relu"),
            (14, 200, 3, 1, ""),
            (75, 48, 3, 1, "relu6"),
            (14, 672, 5, 1, "relu"),
            (35, 320, 3, 2, "bias"),
            (7, 1152, 5, 1, "relu6"),
        ),
    ),
    "batch_matmul": Family(
        _batch_matmul,
        _batch_matmul_name,
        (
            (6, 197, 197, 64, "t_scale"),
            (16, 77, 40, 77, ""),
            (12, 64, 64, 64, "t"),
            (3, 320, 96, 160, ""),
            (8, 100, 100, 32, "t_scale"),
            (6, 197, 64, 197, ""),
            (16, 77, 77, 40, "t"),
            (10, 48, 200, 112, ""),
            (4, 256, 256, 48, "t_scale"),
        ),
    ),
    "group_conv2d": Family(
        _group_conv2d,
        _group_conv2d_name,
        (
            (28, 96, 96, 3, 1, 4, "relu"),
            (56, 48, 96, 3, 2, 8, "relu"),
            (14, 240, 240, 3, 1, 10, "relu"),
            (28, 200, 80, 1, 1, 4, "bias"),
        ),
    ),
    "dilated_conv2d": Family(
        _dilated_conv2d,
        _dilated_conv2d_name,
        (
            (28, 80, 80, 3, 2, "relu"),
            (38, 48, 64, 3, 4, "relu"),
            (19, 160, 96, 3, 6, "bias"),
        ),
    ),
    "conv1d": Family(
        _conv1d,
        _conv1d_name,
        (
            (400, 80, 384, 3, 1, "gelu"),
            (600, 96, 192, 3, 2, "gelu"),
            (256, 120, 120, 5, 1, "relu"),
            (1000, 24, 48, 7, 1, "bias"),
        ),
    ),
    "conv3d": Family(
        _conv3d,
        _conv3d_name,
        (
            (8, 20, 24, 40, 3, 1, "relu"),
            (8, 19, 48, 96, 1, 1, "relu"),
            (8, 56, 3, 32, 3, 2, "relu"),
            (4, 10, 80, 96, 3, 1, "add_relu"),
        ),
    ),
    "conv2d_transpose": Family(
        _conv2d_transpose,
        _conv2d_transpose_name,
        (
            (7, 160, 80, 4, 2, 1),
            (28, 40, 24, 2, 2, 0),
            (19, 64, 32, 3, 2, 1),
            (14, 96, 48, 4, 2, 1),
        ),
    ),
    "pool": Family(
        _pool,
        _pool_name,
        (
            ("max", 75, 48, 3, 2),
            ("avg", 35, 192, 3, 1),
            ("global", 28, 480, 28, 1),
            ("max", 56, 192, 2, 2),
            ("avg", 56, 96, 2, 2),
            ("global", 14, 1152, 14, 1),
            ("max", 35, 288, 3, 1),
            ("global", 19, 1280, 19, 1),
        ),
    ),
    "softmax": Family(
        _softmax,
        _shape_name,
        ((6, 197, 197), (512, 1000), (12, 100, 100), (16, 77, 77)),
    ),
    "norm": Family(
        _norm,
        _form_name,
        (
            ("layer", 392, 384),
            ("rms", 256, 1024),
            ("layer", 512, 640),
            ("rms", 300, 1280),
            ("layer", 154, 1024),
            ("rms", 128, 2560),
        ),
    ),
    "attention": Family(
        _attention,
        _shape_name,
        ((4, 64, 32), (6, 120, 40), (3, 100, 48)),
    ),
    "gated_mlp": Family(
        _gated_mlp,
        _gated_mlp_name,
        ((16, 512, 1376), (64, 320, 640), (1, 1024, 2048)),
    ),
    "squeeze_excite": Family(
        _squeeze_excite,
        _squeeze_excite_name,
        ((28, 120, 32), (14, 480, 120), (10, 672, 168)),
    ),
    "reduction": Family(
        _reduction,
        _form_name,
        (("mean", 800, 1000), ("sum", 2000, 384), ("variance", 640, 512), ("max", 1000, 720)),
    ),
}
"""By kind. In conv2d and its like the sizes end with what is fused behind: see `with_epilogue`."""
