"""Where the memory of a measurement process lies: as much alike in every process as can be had.

A load whose address equals that of a recent store in its low twelve bits waits for the store as if
it depended on it, so that the same machine code may be slower in one process than in another for
no other reason than where its buffers lie (docs/measuring.md has the experiment). Of memory that
starts at a page those bits are always the same; elsewhere they follow from the order of
allocations, and on the stack from where it begins. So a child that times candidates runs without
address-space randomisation and with a fixed hash seed, takes large allocations from fresh pages
and places arguments itself. What stays free: small allocations, and which physical pages there are.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune._pages import large_pages

# <sys/personality.h> and <malloc.h>.
_ADDR_NO_RANDOMIZE = 0x0040000
_CURRENT = 0xFFFFFFFF
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Workspaces from this size on get pages of their own. It is half of the allocator's own default:
# what is larger outgrows the first-level cache and is streamed through, and a compiler seldom asks
# for so much at once. Up to twice as much may still come out of the reserve at the heap's end.
_OWN_PAGES_FROM_BYTES = 64 << 10
# What the allocator may keep of freed memory: as far as it would raise this by itself.
_KEPT_BYTES = 64 << 20
# From the start of a page, as the GNU allocator places an aligned allocation of its own pages.
_OFFSET_BYTES = 64


@contextlib.contextmanager
def fixed_addresses() -> Iterator[bool]:
    """Processes started in this block run without address-space randomisation, where allowed.

    A container's system-call filter may forbid it; measurements then scatter more.

    Yields:
        Whether it is allowed.
    """
    if not sys.platform.startswith("linux"):
        yield False
        return
    libc = ctypes.CDLL(None)
    before = libc.personality(_CURRENT)
    changed = before >= 0 and libc.personality(before | _ADDR_NO_RANDOMIZE) >= 0
    try:
        yield changed
    finally:
        if changed:
            libc.personality(before)


def addresses_are_fixed() -> bool:
    """Whether this process runs without address-space randomisation."""
    if not sys.platform.startswith("linux"):
        return False
    now = ctypes.CDLL(None).personality(_CURRENT)
    return bool(now >= 0 and now & _ADDR_NO_RANDOMIZE)


def give_large_allocations_own_pages() -> None:
    """From now on large allocations of this process start at the same place of a page.

    Left alone, the GNU allocator raises the limit from which it does so as memory is freed. Fixing
    the limit also keeps it from raising how much freed memory it holds back, so that is raised
    here: a compiler in this process would return pages and fetch them again all the time. Memory
    that is held back is used before the limit is looked at: ``give_back_freed_memory`` goes before
    whatever is timed.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_FROM_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Returns freed memory to the system, so that large allocations find none and get own pages.

    Holes in the middle of the heap stay: one that is large enough is still used.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def host_tensor(array: Array) -> Any:
    """A TVM tensor on the host with the values of an array, on pages of its own."""
    return host_tensors([array])[0]


def host_tensors(arrays: Sequence[Array]) -> list[Any]:
    """TVM tensors on the host with the values of arrays, each at the same place of a page.

    They lie in one piece of memory in large pages, as those of a compiled network do.
    """
    from foretune._tvm import tvm

    starts, end = [], 0
    for array in arrays:
        starts.append(end + _OFFSET_BYTES)
        end = -(-(starts[-1] + array.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = large_pages(end)
    tensors = []
    for array, start in zip(arrays, starts, strict=True):
        if not array.nbytes:
            tensors.append(tvm.runtime.tensor(np.ascontiguousarray(array)))
            continue
        placed = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        placed[...] = array
        tensors.append(tvm.runtime.from_dlpack(placed))
    return tensors
