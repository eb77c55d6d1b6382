"""The store of records that a command is given, or the user's own."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from foretune._files import cache_directory
from foretune.errors import RecordError

if TYPE_CHECKING:
    from foretune.records import Store

_log = logging.getLogger(__name__)

NONE = "none"
"""Says that there is no store."""
VARIABLE = "FORETUNE_STORE"
"""Environment variable with the store of commands that are given none."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """The store; ``open_asked_for`` opens it."""
    parser.add_argument(
        "--store",
        metavar="URL|FILE.jsonl|none",
        help="what was measured of the same programs is reused from there and kept there (default: "
        f"${VARIABLE}, else a file in the user's cache directory)",
    )


def open_asked_for(given: str | None, environment: Mapping[str, str]) -> Store | None:
    """The store that was named, or the user's own; None where there is none.

    The user's own store is a convenience: where it cannot be opened, the run goes on without.

    Args:
        given: What ``--store`` says, if it was given.
        environment: Environment variables.

    Raises:
        BadInputError: The URL cannot be read.
        MissingDependencyError: What a server needs is not installed.
        RecordError: The store that was named cannot be opened.
    """
    from foretune.records import BoundedStore, open_store

    named = given if given is not None else environment.get(VARIABLE) or None
    if named == NONE:
        return None
    if named is not None:
        return open_store(named)
    path = own_path(environment)
    if path is None:
        return None
    try:
        return BoundedStore(path)
    except RecordError as error:
        _log.warning("nothing is reused from earlier runs: %s", error)
        return None


def own_path(environment: Mapping[str, str]) -> Path | None:
    """The user's own store; None for a user without a home."""
    folder = cache_directory(environment)
    return None if folder is None else folder / "store.jsonl"
