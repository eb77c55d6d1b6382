"""Small tensor programs as workloads."""

from __future__ import annotations

from typing import Any

from tvm import topi
from tvm.script import tirx as T

from foretune import _tvm
from foretune.workload import Workload

te = _tvm.tvm.te


def matmul(size: int, dtype: str = "float32") -> Workload:
    a = te.placeholder((size, size), dtype, name="a")
    b = te.placeholder((size, size), dtype, name="b")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return Workload.from_module(te.create_prim_func([a, b, c]), f"matmul{size}_{dtype}")


def _workload(name: str, *tensors: Any) -> Workload:
    return Workload.from_module(te.create_prim_func(list(tensors)), name)


def conv2d() -> Workload:
    x = te.placeholder((1, 10, 10, 8), name="x")
    w = te.placeholder((3, 3, 8, 16), name="w")
    return _workload("conv2d", x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1)))


def softmax() -> Workload:
    x = te.placeholder((16, 64), name="x")
    return _workload("softmax", x, topi.nn.softmax(x))


def layer_norm() -> Workload:
    x = te.placeholder((8, 256), name="x")
    gamma = te.placeholder((256,), name="gamma")
    beta = te.placeholder((256,), name="beta")
    return _workload("layer_norm", x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1]))


def gelu() -> Workload:
    x = te.placeholder((64, 64), name="x")
    y = te.compute(
        (64, 64), lambda i, j: x[i, j] * 0.5 * (1.0 + _tvm.tvm.tirx.erf(x[i, j] * 0.7071)), name="y"
    )
    return _workload("gelu", x, y)


def logarithm() -> Workload:
    x = te.placeholder((64,), name="x")
    return _workload("logarithm", x, topi.log(x))


def take() -> Workload:
    table = te.placeholder((10, 8), name="table")
    indices = te.placeholder((40,), "int32", name="indices")
    y = te.compute((40, 8), lambda i, j: table[indices[i], j], name="y")
    return _workload("take", table, indices, y)


def embedding() -> Workload:
    """PyTorch's embedding as TVM imports it: indices are cast and reshaped before they are used."""
    indices = te.placeholder((4, 10), "int64", name="indices")
    table = te.placeholder((10, 8), name="table")
    flat = topi.reshape(topi.cast(indices, "int32"), (40,))
    y = topi.reshape(topi.take(table, flat, axis=0), (4, 10, 8))
    return _workload("embedding", indices, table, y)


def wrapped() -> Workload:
    """Negative indices count from the end; the stage that computes this is kept."""
    indices = te.placeholder((40,), "int32", name="indices")
    table = te.placeholder((10, 8), name="table")

    def from_the_start(i: Any) -> Any:
        return te.if_then_else(indices[i] < 0, indices[i] + 10, indices[i])

    at = te.compute((40,), from_the_start, name="at")
    return _workload("wrapped", indices, table, topi.take(table, at, axis=0))


def scatter() -> Workload:
    """Writes where its indices say."""

    @T.prim_func(s_tir=True)
    def main(
        indices: T.Buffer((40,), "int32"),  # type: ignore[valid-type]
        x: T.Buffer((40,), "float32"),  # type: ignore[valid-type]
        y: T.Buffer((10,), "float32"),  # type: ignore[valid-type]
    ) -> None:
        for i in range(40):
            with T.sblock("y"):
                at = T.axis.spatial(40, i)
                y[indices[at]] = x[at]

    return Workload.from_module(main, "scatter")


def in_order() -> Workload:
    """The indices come out of a packed function, into which nobody can look."""
    keys = te.placeholder((40,), "int32", name="keys")
    table = te.placeholder((40, 8), name="table")
    rows = topi.take(table, topi.argsort(keys, axis=0, dtype="int32"), axis=0)
    module = _tvm.IRModule({"main": te.create_prim_func([keys, table, rows])})
    # Made by hand, because the operations of a packed function cannot be counted.
    return Workload("in_order", f"{0:016x}", _tvm.save_json(module), flops=0.0)


def greater() -> Workload:
    x = te.placeholder((64,), name="x")
    y = te.placeholder((64,), name="y")
    return _workload("greater", x, y, topi.greater(x, y))


def negate(dtype: str) -> Workload:
    x = te.placeholder((8, 8), dtype, name="x")
    return _workload(f"negate_{dtype}", x, te.compute((8, 8), lambda i, j: -x[i, j], name="y"))


def increment() -> Workload:
    """Changes its only argument."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((32,), "float32")) -> None:  # type: ignore[valid-type]
        for i in range(32):
            with T.sblock("x"):
                at = T.axis.spatial(32, i)
                x[at] = x[at] + T.float32(1)

    return Workload.from_module(main, "increment")


def two_outputs() -> Workload:
    """The first output is read again to compute the second; both have the same name."""
    x = te.placeholder((16, 16), name="x")
    first = te.compute((16, 16), lambda i, j: x[i, j] + 1.0, name="y")
    second = te.compute((16, 16), lambda i, j: first[i, j] * 2.0, name="y")
    return _workload("two_outputs", x, first, second)


ALL = {
    workload.name: workload
    for workload in (
        matmul(48),
        matmul(48, "float16"),
        matmul(48, "int32"),
        conv2d(),
        softmax(),
        layer_norm(),
        gelu(),
        logarithm(),
        take(),
        embedding(),
        greater(),
        negate("int8"),
        negate("int64"),
        negate("float64"),
        increment(),
        two_outputs(),
    )
}
