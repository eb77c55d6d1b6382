"""Memory of an artifact on a CPU: parameters and intermediate results in large pages.

A network reads each of its weights once in a call. In pages of 4 KiB the processor looks up an
address for every few rows of a matrix, in a virtual machine in two tables; in pages of 2 MiB hardly
ever. TVM's allocator does not ask for them. docs/networks.md has what that costs.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from foretune import _tvm
from foretune.workload.model import Array

_PAGE = 2 << 20
_ALIGNMENT = 128


def workspace(size: int) -> Any:
    """A TVM tensor of ``size`` bytes on the CPU in large pages, where the system has them."""
    return _tensor(_large_pages(size))


def together(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of CPU tensors, all in one piece of memory in large pages."""
    starts, end = {}, 0
    for name, tensor in tensors.items():
        starts[name] = end
        end += -(-_bytes(tensor) // _ALIGNMENT) * _ALIGNMENT
    memory = _large_pages(end)
    copies = {}
    for name, tensor in tensors.items():
        piece = _tensor(memory[starts[name] : starts[name] + _bytes(tensor)])
        # Not with the offset as an argument: kernels refuse tensors that have one.
        copies[name] = piece._create_view(tensor.shape, str(tensor.dtype))
        tensor.copyto(copies[name])
    return copies


def _large_pages(size: int) -> Array:
    """Zeros. Private memory: a forked child has a copy of it when it writes."""
    region = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel that was built without them
            region.madvise(advice)
    memory: Array = np.frombuffer(region, dtype=np.uint8)
    start = -memory.ctypes.data % _PAGE
    return memory[start : start + size]


def _tensor(memory: Array) -> Any:
    return _tvm.tvm.runtime.from_dlpack(memory)


def _bytes(tensor: Any) -> int:
    elements = math.prod(int(extent) for extent in tensor.shape)
    dtype = _tvm.tvm.DataType(str(tensor.dtype))
    return -(-elements * int(dtype.bits) * int(dtype.lanes) // 8)
