"""Memory on the host in large pages.

In pages of 4 KiB the processor looks up an address for every few rows of a matrix, in a virtual
machine in two tables; in pages of 2 MiB hardly ever. docs/networks.md has what that costs.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE_BYTES = 2 << 20


def large_pages(size: int) -> npt.NDArray[np.uint8]:
    """Zeros that start at a large page, where the system has them.

    Private memory: a forked child has a copy of it when it writes. It is given back with the last
    view of it.

    Args:
        size: Bytes.
    """
    region = mmap.mmap(-1, size + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice: Any = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel that was built without them
            region.madvise(advice)
    memory = np.frombuffer(region, dtype=np.uint8)
    start = -memory.ctypes.data % PAGE_BYTES
    return memory[start : start + size]
