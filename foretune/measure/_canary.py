"""The canary: a fixed kernel whose time tells whether the machine was quiet.

On a processor it has two halves. First each thread does a multiply-add over arrays of its own: a
neighbour on the same physical core slows that. Then threads read what their neighbour just wrote,
back and forth between two arrays: that shows a virtual machine's processors being moved to other
core complexes. Rows are so long that everything a thread touches fits half of its second-level
cache; where they are short, both halves repeat more often, so that the work is the same everywhere.

Symbols: ``a`` and ``b`` are read, ``c`` holds the sums, ``d`` is the other side of the exchange.
On a GPU and on one thread there is no exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array

if TYPE_CHECKING:
    from foretune.hardware import Hardware

_LANES = 16
_SHORTEST_ROW = 4096
_LONGEST_ROW = 32768
# A thread touches its own rows of a, c and d, and its neighbour's of c and d.
_ROWS_TOUCHED = 5
_UNKNOWN_CACHE_BYTES = 512 << 10
# Of each thread: multiply-adds, and elements taken from the neighbour.
_MULTIPLY_ADDS = 128 * _LONGEST_ROW
_EXCHANGED = 4 * _LONGEST_ROW
# Some tens of microseconds on a large GPU: several times what a launch takes.
_GPU_SHAPE = (1, 1 << 20)
_GPU_DEPTH = 512
DEVICE_CALLS = 5
"""Calls of the canary in a row on a device: its clock is too coarse for one."""


def build_canary(hardware: Hardware) -> tuple[Any, list[Array]]:
    """Compiles the canary; returns TVM's executable with the values of its arguments."""
    from foretune import _tvm

    if not hardware.has_cores:
        shapes: list[tuple[int, ...]] = [_GPU_SHAPE, (_GPU_DEPTH,), _GPU_SHAPE]
        module = _gpu_module()
    else:
        threads, columns = hardware.threads, row_length(hardware)
        row = (threads, columns // _LANES, _LANES)
        shapes = [row, (_MULTIPLY_ADDS // columns,), *[row] * (1 if threads == 1 else 2)]
        module = _tvm.IRModule({"main": _tvm.tvm.script.from_source(_source(threads, columns))})
    compiled = _tvm.tvm.compile(module, hardware.tvm_target())
    return compiled, [np.full(shape, 0.5, np.float32) for shape in shapes]


def canary_result(hardware: Hardware) -> float:
    """What every element of the sums holds after a call; exact in float32."""
    if not hardware.has_cores:
        return 0.25 * _GPU_DEPTH
    columns = row_length(hardware)
    exchanges = 0 if hardware.threads == 1 else _EXCHANGED // columns // 2
    return float(0.25 * (_MULTIPLY_ADDS // columns) * 0.25**exchanges)


def row_length(hardware: Hardware) -> int:
    """Elements per thread of each array: a power of two."""
    room = (hardware.l2_bytes or _UNKNOWN_CACHE_BYTES) // 2
    elements = max(1, room // (4 * _ROWS_TOUCHED))
    return min(max(1 << (elements.bit_length() - 1), _SHORTEST_ROW), _LONGEST_ROW)


def _source(threads: int, columns: int) -> str:
    blocks, depth = columns // _LANES, _MULTIPLY_ADDS // columns
    row = f'T.Buffer(({threads}, {blocks}, {_LANES}), "float32")'
    other = "" if threads == 1 else f", d: {row}"
    text = f"""
@T.prim_func
def main(a: {row}, b: T.Buffer(({depth},), "float32"), c: {row}{other}):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    for i in T.parallel({threads}):
        for j in range({blocks}):
            for v in T.vectorized({_LANES}):
                c[i, j, v] = T.float32(0)
        for k in range({depth}):
            for j in range({blocks}):
                for v in T.vectorized({_LANES}):
                    c[i, j, v] = c[i, j, v] + a[i, j, v] * b[k]
"""
    if threads == 1:
        return text
    return f"""{text}
    for turn in range({_EXCHANGED // columns // 2}):
        for i in T.parallel({threads}):
            for j in range({blocks}):
                for v in T.vectorized({_LANES}):
                    d[i, j, v] = c[(i + 1) % {threads}, j, v] * T.float32(0.5)
        for i in T.parallel({threads}):
            for j in range({blocks}):
                for v in T.vectorized({_LANES}):
                    c[i, j, v] = d[(i + 1) % {threads}, j, v] * T.float32(0.5)
"""


def _gpu_module() -> Any:
    from foretune import _tvm

    te = _tvm.tvm.te
    a = te.placeholder(_GPU_SHAPE, name="a")
    b = te.placeholder((_GPU_DEPTH,), name="b")
    axis = te.reduce_axis((0, _GPU_DEPTH), name="k")
    c = te.compute(_GPU_SHAPE, lambda i, j: te.sum(a[i, j] * b[axis], axis=axis), name="c")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    schedule = _tvm.Schedule(_tvm.IRModule({"main": function}))
    i, j, _ = schedule.get_loops(schedule.get_sblock("c"))
    blocks, threads = schedule.split(schedule.fuse(i, j), [None, 256])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    return schedule.mod
