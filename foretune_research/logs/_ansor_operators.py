"""Computations behind the workload keys of Ansor's logs: an operator's name and its sizes.

A key like ``["conv2d_layer", 128, 64, 56, 56, 64, 3, 3, 1, 1]`` was a call of a function that built
tensors with TVM's tensor expressions. Here is what it built, as ``Operation``s in the order in
which Ansor numbers its stages. Keys that hold a hash in place of a name say their shapes only, and
nothing is said of them here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import FloatArray

Number = float | FloatArray
"""One for all programs of a batch, or float64 of shape (n,)."""


class NotDescribedError(Exception):
    """A key or a program that nothing is said of. The message is the reason, for counting."""


@dataclass(frozen=True)
class Digit:
    """``coefficient * (axis // every % values)``, a part of an index.

    Attributes:
        axis: Number of an axis of the operation, those of the reduction after those of its output.
        coefficient: Elements.
        every: Steps of the axis from one value to the next.
        values: How many values it takes before it starts again.
    """

    axis: int
    coefficient: Number = 1.0
    every: Number = 1.0
    values: Number = np.inf

    @property
    def whole(self) -> bool:
        """Whether it is the axis itself, up to its coefficient."""
        return bool(np.all(np.asarray(self.every) == 1.0) and np.all(np.isinf(self.values)))


Index = tuple[Digit, ...]
"""The sum of its digits, up to a constant."""


@dataclass(frozen=True)
class Read:
    """An element that an operation reads.

    Attributes:
        source: Name of the operation that makes it.
        indices: One per dimension.
    """

    source: str
    indices: tuple[Index, ...]


@dataclass(frozen=True)
class Operation:
    """A tensor and how an element of it is computed.

    Attributes:
        name: Unique among those of a computation.
        shape: Extents of its axes.
        reduction: Extents of the axes that it sums over; its sum starts at a constant.
        reads: What it reads; nothing for an input.
        operations: Additions and multiplications per element, or per term of the sum.
        calls: Divisions per element or term.
        selects: Comparisons and selections per element or term.
        input: Whether it is given.
    """

    name: str
    shape: tuple[Number, ...]
    reduction: tuple[Number, ...] = ()
    reads: tuple[Read, ...] = ()
    operations: float = 0.0
    calls: float = 0.0
    selects: float = 0.0
    input: bool = False


def computation(workload: str) -> tuple[Operation, ...]:
    """The operations of a workload, in the order of Ansor's stages.

    Args:
        workload: The key, as readers of logs give it.

    Raises:
        NotDescribedError: The operator is not known, or its sizes are not those of a call.
    """
    try:
        name, *sizes = json.loads(workload)
        build = OPERATORS[name]
    except (ValueError, TypeError, KeyError, RecursionError) as failure:
        raise NotDescribedError("operator not known") from failure
    try:
        operations = build(*sizes)
        extents = [e for o in operations for e in (*o.shape, *o.reduction)]
        if not all(isinstance(e, int) and 1 <= e < 2**31 for e in extents):
            raise NotDescribedError("sizes of the operator")
    except (TypeError, ValueError, ZeroDivisionError, IndexError) as failure:
        raise NotDescribedError("sizes of the operator") from failure
    return operations


def knows(workload: str) -> bool:
    """Whether ``computation`` may describe a key: it is that of an operator known here."""
    try:
        parsed = json.loads(workload)
    except (ValueError, RecursionError):
        return False
    known = isinstance(parsed, list) and bool(parsed) and isinstance(parsed[0], str)
    return known and parsed[0] in OPERATORS


def _axes(*numbers: int) -> tuple[Index, ...]:
    return tuple((Digit(number),) for number in numbers)


def _input(name: str, shape: Sequence[int]) -> Operation:
    return Operation(name, tuple(shape), input=True)


def _padded(source: Operation, before: Sequence[int], after: Sequence[int]) -> Operation:
    # Comparisons are of numbers of iterations; what is left is the choice of element or zero.
    grown = any((*before, *after))
    return Operation(
        "padded",
        tuple(int(e) + b + a for e, b, a in zip(source.shape, before, after, strict=True)),  # type: ignore[arg-type]
        reads=(Read(source.name, _axes(*range(len(source.shape)))),),
        selects=float(grown),
    )


def _ends(padding: int | str, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Elements added before and after each axis; ``"SAME"`` adds the kernel less one in all."""
    if padding == "VALID":
        totals = [0 for _ in kernel]
    elif padding == "SAME":
        totals = [k - 1 for k in kernel]
    else:
        totals = [2 * int(padding) for _ in kernel]
    before = [(total + 1) // 2 for total in totals]
    return before, [total - b for total, b in zip(totals, before, strict=True)]


def _window(padded: Operation, first: int, kernel: Sequence[int], stride: int) -> list[int]:
    """Extents of the output of a window that slides over the axes from ``first`` on."""
    extents = padded.shape[first : first + len(kernel)]
    return [(int(e) - k) // stride + 1 for e, k in zip(extents, kernel, strict=True)]  # type: ignore[arg-type]


def _slid(axes: Sequence[int], window: Sequence[int], stride: int) -> tuple[Index, ...]:
    return tuple((Digit(a, float(stride)), Digit(k)) for a, k in zip(axes, window, strict=True))


def _convolution(
    data_shape: Sequence[int], weight_shape: Sequence[int], stride: int, padding: int | str
) -> tuple[Operation, ...]:
    data, weight = _input("data", data_shape), _input("weight", weight_shape)
    outputs, channels, *kernel = weight_shape
    if channels != data_shape[1]:
        raise NotDescribedError("sizes of the operator")
    before, after = _ends(padding, kernel)
    padded = _padded(data, [0, 0, *before], [0, 0, *after])
    rank = len(kernel)
    space = range(2, 2 + rank)
    channel, window = 2 + rank, range(3 + rank, 3 + 2 * rank)
    result = Operation(
        "convolution",
        (data_shape[0], outputs, *_window(padded, 2, kernel, stride)),
        (channels, *kernel),
        (
            Read("padded", (*_axes(0, channel), *_slid(space, window, stride))),
            Read("weight", _axes(1, channel, *window)),
        ),
        operations=2.0,
    )
    return data, padded, weight, result


def _conv2d_layer(*sizes: Any) -> tuple[Operation, ...]:
    """Roller's; TVM's tutorial has a function of that name, with pairs for stride and padding."""
    if isinstance(sizes[-1], list):
        return _biased_convolution(*sizes)
    batch, channels, height, width, outputs, rows, columns, stride, padding = sizes
    return _convolution(
        (batch, channels, height, width), (outputs, channels, rows, columns), stride, padding
    )


def _biased_convolution(
    batch: int, height: int, width: int, outputs: int, channels: int,
    rows: int, columns: int, strides: list[int], paddings: list[int],
) -> tuple[Operation, ...]:  # fmt: skip
    """A convolution with bias and ReLU, of TVM's tutorial."""
    (stride, other), (padding, another) = strides, paddings
    if stride != other or padding != another:
        raise NotDescribedError("sizes of the operator")
    made = _convolution(
        (batch, channels, height, width), (outputs, channels, rows, columns), stride, padding
    )
    shape, all_ = made[-1].shape, _axes(0, 1, 2, 3)
    bias = _input("bias", (1, outputs, 1, 1))
    reads = (Read("convolution", all_), Read("bias", ((), (Digit(1),), (), ())))
    biased = Operation("biased", shape, reads=reads, operations=1.0)
    return (*made, bias, biased, _relu_of(biased))


def _same_convolution(data: Sequence[int], weight: Sequence[int]) -> tuple[Operation, ...]:
    return _convolution(data, weight, 1, 1)


def _depthwise_layer(
    batch: int, channels: int, height: int, width: int,
    rows: int, columns: int, stride: int, padding: int | str,
) -> tuple[Operation, ...]:  # fmt: skip
    data = _input("data", (batch, channels, height, width))
    weight = _input("weight", (channels, 1, rows, columns))
    before, after = _ends(padding, (rows, columns))
    padded = _padded(data, [0, 0, *before], [0, 0, *after])
    result = Operation(
        "convolution",
        (batch, channels, *_window(padded, 2, (rows, columns), stride)),
        (rows, columns),
        (
            Read("padded", (*_axes(0, 1), *_slid((2, 3), (4, 5), stride))),
            Read("weight", ((Digit(1),), (), *_axes(4, 5))),
        ),
        operations=2.0,
    )
    return data, padded, weight, result


def _depthwise_channels_last(
    data_shape: Sequence[int], weight_shape: Sequence[int], _dtype: str = "float32"
) -> tuple[Operation, ...]:
    # The function reads shapes as NHWC and HWCM whatever they were meant as; its padding and
    # stride are 1.
    data, weight = _input("data", data_shape), _input("weight", weight_shape)
    padded = _padded(data, [0, 1, 1, 0], [0, 1, 1, 0])
    batch, _, _, channels = data_shape
    rows, columns, _, each = weight_shape
    channel: Index = (Digit(3, every=float(each)),)
    result = Operation(
        "convolution",
        (batch, *_window(padded, 1, (rows, columns), 1), channels * each),
        (rows, columns),
        (
            Read("padded", (*_axes(0), *_slid((1, 2), (4, 5), 1), channel)),
            Read("weight", (*_axes(4, 5), channel, (Digit(3, values=float(each)),))),
        ),
        operations=2.0,
    )
    return data, padded, weight, result


def _product(rows: int, inner: int, columns: int, _dtype: str = "float32") -> tuple[Operation, ...]:
    result = Operation(
        "product",
        (rows, columns),
        (inner,),
        (Read("left", _axes(0, 2)), Read("right", _axes(2, 1))),
        operations=2.0,
    )
    return _input("left", (rows, inner)), _input("right", (inner, columns)), result


def _pool_layer(
    kind: str, batch: int, channels: int, height: int, width: int,
    rows: int, columns: int, stride: int, padding: int | str,
) -> tuple[Operation, ...]:  # fmt: skip
    data = _input("data", (batch, channels, height, width))
    before, after = _ends(padding, (rows, columns))
    made = [data]
    if any((*before, *after)):
        made.append(_padded(data, [0, 0, *before], [0, 0, *after]))
    shape = (batch, channels, *_window(made[-1], 2, (rows, columns), stride))
    reads = (Read(made[-1].name, (*_axes(0, 1), *_slid((2, 3), (4, 5), stride))),)
    if kind == "max":
        return (*made, Operation("largest", shape, (rows, columns), reads, selects=1.0))
    if kind != "avg":
        raise NotDescribedError("sizes of the operator")
    total = Operation("total", shape, (rows, columns), reads, operations=1.0)
    mean = Operation("mean", shape, reads=(Read("total", _axes(0, 1, 2, 3)),), calls=1.0)
    return (*made, total, mean)


def _pool_of_ones(shape: Sequence[int], _dtype: str = "float32") -> tuple[Operation, ...]:
    batch, channels, height, width = shape
    return _pool_layer("avg", batch, channels, height, width, 1, 1, 2, "VALID")


def _reduction_layer(
    shape: Sequence[int], axis: int | Sequence[int], keep: bool
) -> tuple[Operation, ...]:
    rank = len(shape)
    summed = sorted(a % rank for a in ([axis] if isinstance(axis, int) else axis))
    kept = [a for a in range(rank) if a not in summed]
    places = list(range(rank)) if keep else kept
    result = [1 if a in summed else shape[a] for a in places] or [1]
    digits = {a: i for i, a in enumerate(places)}
    digits.update({a: len(result) + i for i, a in enumerate(summed)})
    total = Operation(
        "total",
        tuple(result),
        tuple(shape[a] for a in summed),
        (Read("data", _axes(*(digits[a] for a in range(rank)))),),
        operations=1.0,
    )
    return _input("data", shape), total


def _relu_layer(*shape: Any) -> tuple[Operation, ...]:
    data = _input("data", [e for e in shape if not isinstance(e, str)])
    return data, _relu_of(data)


def _relu_of(source: Operation) -> Operation:
    read = Read(source.name, _axes(*range(len(source.shape))))
    return Operation("relu", source.shape, reads=(read,), selects=1.0)


def _product_and_sum(
    rows: int, inner: int, columns: int, dtype: str = "float32"
) -> tuple[Operation, ...]:
    """A product and a matrix added to it, of TVM's tutorial."""
    made = _product(rows, inner, columns, dtype)
    added, all_ = _input("added", (rows, columns)), _axes(0, 1)
    reads = (Read("product", all_), Read("added", all_))
    return (*made, added, Operation("sum", (rows, columns), reads=reads, operations=1.0))


OPERATORS: dict[str, Callable[..., tuple[Operation, ...]]] = {
    "conv2d_layer": _conv2d_layer,
    "depthwise_conv2d_layer": _depthwise_layer,
    "matmul_layer": _product,
    "pool_layer": _pool_layer,
    "reduction_layer": _reduction_layer,
    "relu_layer": _relu_layer,
    "conv2d_ansor": _same_convolution,
    "conv3d_ansor": _same_convolution,
    "ansor_mm": _product,
    "matmul": _product,
    "matmul_add": _product_and_sum,
    "ansor_depthwise": _depthwise_channels_last,
    "ansor_pool2d": _pool_of_ones,
    "ansor_relu": _relu_layer,
}
"""Operators by the name in the key: those of Roller's artifact (``*_layer``), of Bennu and of
TVM's tutorials."""
