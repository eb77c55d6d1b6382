"""Finished parts of a benchmark, kept on a disk, so that a run goes on where it ended.

A cell is what one part gives, as JSON. It is found again by a hash of all that it depends on:
settings, data, and the code that made it (``benchmarks.sources``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import read_json, say
from foretune._files import write_json

_TOLD_EVERY_S = 20.0


def digest(settings: Any, size: int = 6) -> str:
    """A hash of a JSON value, of so many bytes, in hex."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def kept(file: Path, make: Callable[[], Any], what: str = "") -> Any:
    """What ``make`` gives as it was written to ``file``, made only if it is not there.

    Args:
        file: JSON; its folder is made.
        make: Gives a JSON value.
        what: Is said before and after, with the seconds; nothing is if empty.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        if what:
            say(f"{what} ...")
        began = time.perf_counter()
        write_json(file, make())
        if what:
            say(f"{what}: {time.perf_counter() - began:.0f} s")
    return read_json(file)


class Cells:
    """Cells that have their settings in common.

    Args:
        folder: Below which they are kept, a folder for each value of the settings.
        settings: What every cell depends on; a JSON value.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder = folder / digest(settings)

    def get(self, name: str, make: Callable[[], Any], what: str) -> Any:
        """The cell of a name, made now if it is not there."""
        file = self.folder / f"{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}.json"
        return kept(file, lambda: {"cell": name, "result": make()}, what)["result"]


class _Teller(logging.Handler):
    """Says what the package tells of its progress, a line in so many seconds, and all warnings."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._last = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if record.levelno >= logging.WARNING or now - self._last >= _TOLD_EVERY_S:
            self._last = now
            say(record.getMessage())


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Trainings take minutes: within, they are heard of now and then."""
    log, teller = logging.getLogger("foretune"), _Teller()
    before = log.level
    log.addHandler(teller)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(teller)
