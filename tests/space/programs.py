"""Small programs of the operator kinds whose spaces differ in structure."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from foretune import _tvm
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import Workload

te = _tvm.tvm.te

CPU = Hardware("cpu", json.dumps({"kind": "llvm", "mcpu": "znver4", "num-cores": 2}), threads=2)


def gpu() -> Hardware:
    return Hardware("gpu", str(_tvm.Target("nvidia/geforce-rtx-3090")), threads=1)


def _input(name: str, *shape: int) -> Any:
    return te.placeholder(shape, name=name)


def matmul() -> Any:
    a, b = _input("A", 64, 96), _input("B", 96, 128)
    k = te.reduce_axis((0, 96), name="k")
    c = te.compute((64, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def conv2d_nhwc() -> Any:
    from tvm import topi

    a, w = _input("A", 1, 28, 28, 16), _input("W", 3, 3, 16, 32)
    return te.create_prim_func([a, w, topi.nn.relu(topi.nn.conv2d_nhwc(a, w, 1, 1, 1))])


def depthwise() -> Any:
    from tvm import topi

    a, w = _input("A", 1, 16, 28, 28), _input("W", 16, 1, 3, 3)
    out = topi.nn.relu(topi.nn.depthwise_conv2d_nchw(a, w, 2, 1, 1))
    return te.create_prim_func([a, w, out])


def batch_matmul() -> Any:
    from tvm import topi

    a, b = _input("A", 12, 32, 64), _input("B", 12, 48, 64)
    return te.create_prim_func([a, b, topi.nn.batch_matmul(a, b)])


def flipped() -> Any:
    """A convolution whose kernel is read from its end, as that of a transposed one is."""
    data, kernel = _input("D", 20, 20, 32), _input("K", 6, 6, 32, 48)
    ry, rx = te.reduce_axis((0, 6), name="ry"), te.reduce_axis((0, 6), name="rx")
    rc = te.reduce_axis((0, 32), name="rc")
    out = te.compute(
        (15, 15, 48),
        lambda i, j, o: te.sum(
            data[i + ry, j + rx, rc] * kernel[5 - ry, 5 - rx, rc, o], axis=[ry, rx, rc]
        ),
        name="F",
    )
    return te.create_prim_func([data, kernel, out])


def pooling() -> Any:
    from tvm import topi

    a = _input("A", 1, 16, 28, 28)
    out = topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")
    return te.create_prim_func([a, out])


def average_pooling() -> Any:
    """Each sum is divided by the number of places in the image: a product of two extents."""
    from tvm import topi

    a = _input("A", 1, 14, 14, 16)
    padding = (1, 1, 1, 1)
    return te.create_prim_func(
        [a, topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), padding, "avg", False, "NHWC", False)]
    )


def global_pooling() -> Any:
    from tvm import topi

    a = _input("A", 1, 32, 7, 7)
    return te.create_prim_func([a, topi.nn.adaptive_pool(a, (1, 1), "avg")])


def softmax() -> Any:
    from tvm import topi

    a = _input("A", 16, 128)
    return te.create_prim_func([a, topi.nn.softmax(a)])


def layer_norm() -> Any:
    from tvm import topi

    a, g, b = _input("A", 16, 96), _input("G", 96), _input("B", 96)
    return te.create_prim_func([a, g, b, topi.nn.layer_norm(a, g, b, [1])])


def attention() -> Any:
    from tvm import topi

    q, k, v = _input("Q", 4, 32, 16), _input("K", 4, 32, 16), _input("V", 4, 16, 32)
    scores = topi.nn.softmax(topi.nn.batch_matmul(q, k))
    return te.create_prim_func([q, k, v, topi.nn.batch_matmul(scores, v)])


def two_matmuls() -> Any:
    a, b, c = (_input(name, 128, 128) for name in "ABC")
    k, m = te.reduce_axis((0, 128), name="k"), te.reduce_axis((0, 128), name="m")
    first = te.compute((128, 128), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="first")
    second = te.compute(
        (128, 128), lambda i, j: te.sum(first[i, m] * c[m, j], axis=m), name="second"
    )
    return te.create_prim_func([a, b, c, second])


PROGRAMS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (
        matmul,
        conv2d_nhwc,
        depthwise,
        batch_matmul,
        flipped,
        pooling,
        global_pooling,
        softmax,
        layer_norm,
        attention,
    )
}

TYPICAL = [
    pytest.param(
        name, marks=() if name in ("matmul", "conv2d_nhwc", "softmax") else pytest.mark.slow
    )
    for name in PROGRAMS
]
"""All programs of the spaces; of those, a product, a convolution and a reduction on every day."""


@functools.lru_cache(maxsize=32)
def space(name: str) -> Space:
    """The CPU space of a program, made once per test run."""
    return Space.generate(Workload.from_module(PROGRAMS[name](), name), CPU)
