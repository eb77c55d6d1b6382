"""How much memory this process may use: the machine's, or what its control groups leave of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def usable_memory(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of the machine's memory, or of the lowest limit of an enclosing control group.

    Args:
        root: Where control groups are mounted.
        own: The file that names this process's groups.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(root, own)])


def _limits(root: Path, own: Path) -> list[int]:
    """Limits of every enclosing group; a container may see its own group as the root.

    Version 2 keeps ``memory.max`` ("max" for none) in one hierarchy, version 1
    ``memory.limit_in_bytes`` (huge for none) in a hierarchy of the memory controller.
    """
    limits: list[int] = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return limits
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        here = top / group.lstrip("/")
        for directory in (here, *here.parents):
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((directory / name).read_text()))
            if directory == top:
                break
    return limits
