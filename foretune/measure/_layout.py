"""Where the memory of a measurement process lies: at the same addresses in every process.

A load whose address equals that of a recent store in its low twelve bits waits for the store as if
it depended on it. On the processors this was found on, the same machine code ran up to 2.2 times
slower in one process than in another, for no other reason than where the allocator had put its
buffers (docs/measuring.md has the experiment). So a child that times candidates runs without
address-space randomisation, takes large allocations from fresh pages and places arguments itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from foretune.measure.gate import Array

# <sys/personality.h> and <malloc.h>.
_ADDR_NO_RANDOMIZE = 0x0040000
_CURRENT = 0xFFFFFFFF
_M_MMAP_THRESHOLD = -3
# Workspaces from this size on get pages of their own; smaller ones are seldom streamed through.
_OWN_PAGES_FROM_BYTES = 64 << 10
# From the start of a page, as the GNU allocator places an aligned allocation of its own pages.
_OFFSET_BYTES = 64


@contextlib.contextmanager
def fixed_addresses() -> Iterator[None]:
    """Processes started in this block run without address-space randomisation, where allowed.

    A container's system-call filter may forbid it; measurements then scatter more.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    libc = ctypes.CDLL(None)
    before = libc.personality(_CURRENT)
    changed = before >= 0 and libc.personality(before | _ADDR_NO_RANDOMIZE) >= 0
    try:
        yield
    finally:
        if changed:
            libc.personality(before)


def give_large_allocations_own_pages() -> None:
    """From now on large allocations of this process start at the same place of a page.

    Left alone, the GNU allocator raises the limit from which it does so as memory is freed.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_FROM_BYTES)


def host_tensor(array: Array) -> Any:
    """A TVM tensor on the host with the values of an array, on pages of its own."""
    from foretune._tvm import tvm

    if not array.nbytes:
        return tvm.runtime.tensor(np.ascontiguousarray(array))
    pages = np.frombuffer(mmap.mmap(-1, array.nbytes + _OFFSET_BYTES), np.uint8)
    placed = pages[_OFFSET_BYTES:].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return tvm.runtime.from_dlpack(placed)
