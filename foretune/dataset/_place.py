"""Where a data set is, also when its replacement was killed half-way.

A directory is not exchanged for another in one step, so that for a moment none has the name::

    .NAME.TOKEN.part           the new one, while it is written
    NAME -> .NAME.TOKEN.old    the old one steps aside,
    .NAME.TOKEN.part -> NAME   and the new one takes its place

Whoever is killed between the last two leaves both hidden. Readers then read the old one where it
is; the next writer puts it back.
"""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

_NEW, _OLD = ".part", ".old"


def staging_of(path: Path) -> Path:
    """A hidden directory beside ``path``, not made yet, for what is to replace it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{_NEW}")


def place_of(path: Path) -> Path:
    """Where to read a data set: ``path``, or where a replacement that was killed left it.

    An old one without its successor beside it was about to be deleted, and is no data set any more.
    """
    if path.exists():
        return path
    left = (old for old in _set_aside(path.resolve()) if old.with_suffix(_NEW).exists())
    return next(left, path)


def put_back(path: Path) -> None:
    """Ends a replacement that was killed between its renames, or while it deleted the old one.

    What a writer left that was killed before stays: it may be one that is still at work.

    Args:
        path: Absolute, without links.

    Raises:
        OSError: It cannot be renamed.
    """
    for old in _set_aside(path):
        new = old.with_suffix(_NEW)
        if new.exists() and not path.exists():
            old.rename(path)
        for left in (old, new):
            shutil.rmtree(left, ignore_errors=True)


def swap(staging: Path, path: Path) -> None:
    """Puts the new directory in the place of the old one, which is deleted last.

    Raises:
        OSError: It cannot be renamed; the old one is in its place.
    """
    old = staging.with_suffix(_OLD)
    try:
        if path.exists():
            path.rename(old)
        staging.rename(path)
    except BaseException:  # An interrupt, too, must not leave the place empty.
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _set_aside(path: Path) -> list[Path]:
    """Old directories of exactly this name: ``.data.new.0123abcd.old`` is not of ``data``."""
    if not path.parent.is_dir():
        return []
    own = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(_OLD)}")
    return sorted(each for each in path.parent.iterdir() if own.fullmatch(each.name))
