"""Opens the store that somebody names."""

from __future__ import annotations

import os
from pathlib import Path

from foretune.records.journal import Journal
from foretune.records.store import Store


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a store is on a server."""
    return "://" in os.fspath(place)


def open_store(place: str | os.PathLike[str], *, read_only: bool = False) -> Store:
    """A store by its place: the path of a journal file, or a URL ``postgresql://...``.

    Args:
        place: Made where it is not there, unless ``read_only``.
        read_only: Only to be queried.

    Raises:
        BadInputError: The URL cannot be read.
        MissingDependencyError: What a server needs is not installed.
        RecordError: It cannot be opened, or holds something else.
        VersionMismatchError: It was written by a newer version.
    """
    if is_url(place):
        from foretune.records.postgres import PostgresStore

        return PostgresStore(os.fspath(place), read_only=read_only)
    return Journal(Path(place), read_only=read_only)
