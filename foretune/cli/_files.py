"""What a command writes must not be what it reads, nor twice the same file.

Checked by every command before anything runs: a result that overwrote its own model, or a manifest
that is replaced by the result of the same run, is found out when it is too late.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from foretune.errors import BadInputError

_Files = Mapping[str, "Path | Iterable[Path] | None"]


def check_files(written: _Files, read: _Files | None = None, kept: _Files | None = None) -> None:
    """Refuses outputs that cannot be written, that are one file, or that are an input.

    Links, ``..`` and, where the file system does not tell them apart, capitals are seen through. A
    file of another output's folder is another file, but a folder of another output's file cannot be
    a file.

    Args:
        written: Name of an output, as messages give it, to its path or paths; None for one that
            was not asked for.
        read: Likewise of inputs. Those that are no files, catalog names for example, are ignored.
        kept: Likewise of outputs in a folder that the run makes, and finds wanting, by itself.

    Raises:
        BadInputError: See above.
    """
    taken: dict[str, tuple[str, Path]] = {}
    for name, path in _pairs(read or {}):
        if os.path.isfile(path):
            taken.setdefault(_place(path), (name, path))
    outputs = [*_pairs(written), *_pairs(kept or {})]
    for name, path in outputs:
        if _place(path) in taken:
            other, there = taken[_place(path)]
            raise BadInputError(
                f"{name} {path} would overwrite {there} ({other}): choose another name"
            )
    for name, path in outputs:
        other, there = taken.setdefault(_place(path), (name, path))
        if other != name:
            seen = "" if there == path else f" ({there})"
            raise BadInputError(
                f"{name} would be written to {path}, which is {other}{seen} as well: choose "
                "another place for one of them"
            )
    for name, path in outputs:
        for folder in Path(_place(path)).parents:
            if str(folder) in taken:
                other, there = taken[str(folder)]
                raise BadInputError(
                    f"{name} would be written to {path}, but {there} is to be a file "
                    f"({other}) and no folder: choose another place for one of them"
                )
    for _, path in _pairs(written):
        check_writable(path)


def files_named(*texts: str | None) -> list[Path]:
    """The files that texts of the command line name: whole, or as values of options in them.

    Before → after: ``net.py:make`` → ``net.py``; ``gradient:weights=w.npz@4`` → ``w.npz``, each
    where there is such a file.
    """
    files = []
    for text in filter(None, texts):
        parts = [text, *re.split(r"[:=,+@]", text)]
        parts += [text[at + 1 :] for at, letter in enumerate(text) if letter in ":=,+@"]
        parts += [text[:at] for at, letter in enumerate(text) if letter in ":=,+@"]
        files += [Path(part) for part in dict.fromkeys(parts) if os.path.isfile(part)]
    return files


def same_place(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, there already or not."""
    return _place(first) == _place(second)


def check_writable(path: Path | None) -> None:
    """Finds out before hours of tuning, not after, that a result cannot be written."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.lstat()
        if path.is_dir():
            raise BadInputError(f"{path} cannot be written, it is a folder: name a file")
        if path.exists() and not os.access(path, os.W_OK):
            raise BadInputError(f"{path} cannot be written: choose another place")
        # Results are written beside their place and renamed, so that this is the way to find out.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:
        # A name may also be too long, or hold a zero byte.
        raise BadInputError(
            f"{str(path)!r} cannot be written ({getattr(error, 'strerror', None) or error}): "
            "choose another place"
        ) from error


def _pairs(files: _Files) -> Iterable[tuple[str, Path]]:
    for name, given in files.items():
        for path in [given] if isinstance(given, Path) else given or ():
            yield name, path


def _place(path: Path) -> str:
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)
    return real.casefold() if _ignores_capitals(real) else real


def _ignores_capitals(path: str) -> bool:
    """Whether the file system that holds a path, or will, takes ``a`` and ``A`` for one name."""
    here = Path(path)
    for place in (here, *here.parents):
        other = place.with_name(place.name.swapcase()) if place.name else place
        if other != place and os.path.exists(place):
            try:
                return os.path.samefile(place, other)
            except OSError:
                return False
    return False
