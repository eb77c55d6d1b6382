"""Operators as AutoTVM's workloads write them: ``["conv2d_nchw.cuda", [["TENSOR", ...], ...]]``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class NoShapeError(Exception):
    """The arguments are not those of the operator, so nothing can be said of its programs."""


@dataclass(frozen=True)
class Conv:
    """A convolution of images, NCHW and OIHW.

    Attributes:
        n, ci, h, w: Of the input.
        co, kh, kw: Of the weights.
        stride, dilation: Of height and width.
        pad: Top, left, bottom, right.
        bytes: Of an element.
    """

    n: int
    ci: int
    h: int
    w: int
    co: int
    kh: int
    kw: int
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    bytes: int

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with padding."""
        top, left, bottom, right = self.pad
        return self.h + top + bottom, self.w + left + right

    @property
    def oh(self) -> int:
        """Height of the output."""
        return (self.padded[0] - (self.kh - 1) * self.dilation[0] - 1) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Width of the output."""
        return (self.padded[1] - (self.kw - 1) * self.dilation[1] - 1) // self.stride[1] + 1

    @property
    def pad_selects(self) -> float:
        """Selections per element where it is padded: of the element or zero. Comparisons are of
        numbers of iterations, which no statement counts."""
        return float(any(self.pad))


@dataclass(frozen=True)
class MatMul:
    """A product of matrices: (batch, m, k) with (batch, n, k), or (batch, k, n).

    Attributes:
        batch, m, n, k: Its sizes.
        transposed: Whether the second is (batch, n, k).
        bytes: Of an element.
    """

    batch: int
    m: int
    n: int
    k: int
    transposed: bool
    bytes: int


def conv_of(args: Sequence[Any], depthwise: bool) -> Conv:
    """A convolution from data, weights, strides, padding and dilation.

    Raises:
        NoShapeError: It is another operator.
    """
    try:
        (n, ci, h, w), size = _tensor(args[0])
        (co, cw, kh, kw), _ = _tensor(args[1])
        stride, dilation = _pair(args[2]), _pair(args[4])
        conv = Conv(n, ci, h, w, co, kh, kw, stride, _pads(args[3]), dilation, size)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise NoShapeError from error
    if (cw, co) != ((1, ci) if depthwise else (ci, co)) or min(conv.oh, conv.ow) < 1:
        raise NoShapeError
    return conv


def dense_of(args: Sequence[Any]) -> MatMul:
    """A dense layer from data (m, k) and weights (n, k).

    Raises:
        NoShapeError: It is another operator, or has a bias.
    """
    try:
        (m, k), size = _tensor(args[0])
        (n, same), _ = _tensor(args[1])
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise NoShapeError from error
    if same != k or (len(args) > 2 and args[2] is not None):
        raise NoShapeError
    return MatMul(1, m, n, k, True, size)


def batch_matmul_of(args: Sequence[Any]) -> MatMul:
    """A product of batches from both, the shape, the type, and which are transposed.

    Raises:
        NoShapeError: It is another operator, or the first is transposed.
    """
    try:
        (batch, m, k), size = _tensor(args[0])
        (others, a, b), _ = _tensor(args[1])
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise NoShapeError from error
    first, second = (bool(args[at]) if len(args) > at else at == 5 for at in (4, 5))
    n, same = (a, b) if second else (b, a)
    if first or others != batch or same != k:
        raise NoShapeError
    return MatMul(batch, m, n, k, second, size)


def _tensor(argument: Any) -> tuple[list[int], int]:
    word, shape, dtype = argument
    if word != "TENSOR" or not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(argument)
    return shape, np.dtype(dtype).itemsize


def _pair(value: Any) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    if not (math.isfinite(first) and min(first, second) >= 1):
        raise ValueError(value)
    return int(first), int(second)


def _pads(value: Any) -> tuple[int, int, int, int]:
    sides = [value, value] if isinstance(value, int) else list(value)
    top, left, bottom, right = sides if len(sides) == 4 else (*sides, *sides)
    if min(top, left, bottom, right) < 0:
        raise ValueError(value)
    return int(top), int(left), int(bottom), int(right)
