"""How much memory this process may use: the machine's, or what its control groups leave of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from foretune._control_groups import OWN, ROOT, enclosing

SPARE_BYTES = 1 << 30
"""Address space of a child beyond what candidates may take."""


def usable_memory(root: Path = ROOT, own: Path = OWN) -> int:
    """Bytes of the machine's memory, or of the lowest limit of an enclosing control group.

    Version 2 keeps ``memory.max`` ("max" for none), version 1 ``memory.limit_in_bytes`` (huge for
    none).

    Args:
        root: Where control groups are mounted.
        own: The file that names this process's groups.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for directory in enclosing("memory", root, own):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((directory / name).read_text()))
    return min(limits)


def default_memory(workers: int) -> int:
    """Bytes that a candidate may take, in each of so many children."""
    return min(4 << 30, usable_memory() // (2 * workers))
