"""Which code ran, in a few digits: for what is written down beside results."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path

_GIT_S = 10.0


@functools.cache
def code_fingerprint() -> str:
    """Changes with any Python file of the package: 16 hex digits."""
    digest = hashlib.blake2b(digest_size=8)
    package = _package()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


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
