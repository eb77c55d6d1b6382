"""Control groups: where the limits stand that the system sets to what a process may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""Where they are mounted."""
OWN = Path("/proc/self/cgroup")
"""The file that names this process's groups."""


def enclosing(controller: str, root: Path = ROOT, own: Path = OWN) -> Iterator[Path]:
    """Directories of all groups around this process in which a controller may keep its limits.

    Version 2 has all controllers in one hierarchy, version 1 one hierarchy for each; their files
    have different names. A container may see its own group as the root, so that some of the
    directories are not there. Where nothing says which groups this process is in, it is the roots.

    Args:
        controller: ``"cpu"`` or ``"memory"``.
        root: Where control groups are mounted.
        own: The file that names this process's groups.
    """
    for top, group in _groups(controller, root, own) or [(root / controller, ""), (root, "")]:
        here = top / group.lstrip("/")
        for directory in (here, *here.parents):
            yield directory
            if directory == top:
                break


def _groups(controller: str, root: Path, own: Path) -> list[tuple[Path, str]]:
    """Root of each hierarchy and this process's group in it."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            groups.append((root, group))
        elif controller in controllers.split(","):
            groups.append((root / controller, group))
    return groups
