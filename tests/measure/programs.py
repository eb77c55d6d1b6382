"""Small tensor programs as workloads."""

from __future__ import annotations

from foretune import _tvm
from foretune.workload import Workload

te = _tvm.tvm.te


def matmul(size: int, dtype: str = "float32") -> Workload:
    a = te.placeholder((size, size), dtype, name="a")
    b = te.placeholder((size, size), dtype, name="b")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return Workload.from_module(te.create_prim_func([a, b, c]), f"matmul{size}_{dtype}")
