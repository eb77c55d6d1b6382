"""Which code ran, in a few digits: for what is written down beside results."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_GIT_S = 10.0


@functools.cache
def code_fingerprint(*modules: str) -> str:
    """Changes with any Python file of the package, and of packages that parts of it come from.

    Args:
        modules: Where such parts are, ``foretune_research.neural`` for example: all of its package
            counts. Modules of this package count anyway.

    Returns:
        16 hex digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    package = _package()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    own = __name__.partition(".")[0]
    for other in sorted({module.partition(".")[0] for module in modules} - {own}):
        for file in _files(other):
            digest.update(f"{other}:{file.name}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _files(package: str) -> Iterator[Path]:
    """Python files of another package, or the one of a module that belongs to none."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is not None:
        path = Path(file)
        yield from sorted(path.parent.rglob("*.py")) if path.stem == "__init__" else (path,)


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that the package runs in, with ``-dirty`` behind if it differs.

    Returns:
        None where the package was installed, or where git cannot tell.
    """
    root = _package().parent
    if not (root / ".git").exists():
        return None
    # No tag is looked for, so that all it can say is the commit.
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            describe, cwd=root, check=True, capture_output=True, text=True, timeout=_GIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _package() -> Path:
    return Path(__file__).resolve().parent
