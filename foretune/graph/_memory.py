"""Memory of an artifact on a CPU: parameters and intermediate results in large pages.

A network reads each of its weights once in a call. TVM's allocator does not ask for such pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from foretune import _tvm
from foretune._arrays import Array
from foretune._pages import large_pages

_ALIGNMENT = 128


def workspace(size: int) -> Any:
    """A TVM tensor of ``size`` bytes on the CPU in large pages, where the system has them."""
    return _tensor(large_pages(size))


def together(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of CPU tensors, all in one piece of memory in large pages."""
    starts, end = {}, 0
    for name, tensor in tensors.items():
        starts[name] = end
        end += -(-size_of(tensor) // _ALIGNMENT) * _ALIGNMENT
    memory = large_pages(end)
    copies = {}
    for name, tensor in tensors.items():
        piece = _tensor(memory[starts[name] : starts[name] + size_of(tensor)])
        # Not with the offset as an argument: kernels refuse tensors that have one.
        copies[name] = piece._create_view(tensor.shape, str(tensor.dtype))
        tensor.copyto(copies[name])
    return copies


def _tensor(memory: Array) -> Any:
    return _tvm.tvm.runtime.from_dlpack(memory)


def size_of(tensor: Any) -> int:
    """Bytes of the numbers in a TVM tensor."""
    elements = math.prod(int(extent) for extent in tensor.shape)
    dtype = _tvm.tvm.DataType(str(tensor.dtype))
    return -(-elements * int(dtype.bits) * int(dtype.lanes) // 8)
