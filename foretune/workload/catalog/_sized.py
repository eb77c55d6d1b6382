"""Kernels whose name carries their sizes, for example ``matmul:512x512x512``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from foretune.errors import BadInputError, unknown_name
from foretune.workload.catalog import _operators as op

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc

PATTERNS = {
    "matmul": "matmul:MxNxK",
    "batch_matmul": "batch_matmul:BxMxNxK",
    "conv2d": "conv2d:NxHxWxCINxCOUTxKERNELxSTRIDE",
    "depthwise": "depthwise:NxHxWxCxKERNELxSTRIDE",
}
"""Sized names: M rows, N columns, K the reduced extent; padding keeps the size at stride 1."""


def build_sized(name: str) -> PrimFunc:
    """Builds the kernel of a sized name.

    Raises:
        BadInputError: No such kernel, wrong number of sizes, or a size that is not positive.
    """
    kind, _, text = name.partition(":")
    if kind not in PATTERNS:
        raise unknown_name("sized kernel", kind, PATTERNS.values())
    count = PATTERNS[kind].count("x", len(kind)) + 1
    parts = text.split("x")
    if len(parts) != count or not all(re.fullmatch(r"[1-9]\d{0,5}", part) for part in parts):
        raise BadInputError(
            f"workload {name!r} must be written {PATTERNS[kind]} with {count} positive numbers"
        )
    return _BUILDERS[kind](*(int(part) for part in parts))


def _matmul(m: int, n: int, k: int) -> PrimFunc:
    x, w = op.tensor("x", m, k), op.tensor("w", k, n)
    return op.program(x, w, op.matmul(x, w))


def _batch_matmul(b: int, m: int, n: int, k: int) -> PrimFunc:
    x, y = op.tensor("x", b, m, k), op.tensor("y", b, k, n)
    return op.program(x, y, op.batch_matmul(x, y))


def _conv2d(n: int, h: int, w: int, cin: int, cout: int, kernel: int, stride: int) -> PrimFunc:
    x, weight = op.tensor("x", n, h, w, cin), op.tensor("w", kernel, kernel, cin, cout)
    return op.program(x, weight, op.conv2d(x, weight, stride, kernel // 2))


def _depthwise(n: int, h: int, w: int, channels: int, kernel: int, stride: int) -> PrimFunc:
    x, weight = op.tensor("x", n, h, w, channels), op.tensor("w", kernel, kernel, channels, 1)
    return op.program(x, weight, op.depthwise(x, weight, stride, kernel // 2))


_BUILDERS: dict[str, Callable[..., PrimFunc]] = {
    "matmul": _matmul,
    "batch_matmul": _batch_matmul,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
}
