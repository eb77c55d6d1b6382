"""The work directory of a run: its journal, its result, and its place among other tuners."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from foretune.errors import RecordError
from foretune.hardware import Hardware
from foretune.records import Journal
from foretune.tuning.result import TuneResult

if TYPE_CHECKING:
    from foretune.llm import Session

JOURNAL = "journal.jsonl"
RESULT = "tune.json"
TRANSCRIPT = "llm.jsonl"
PLANS_FOLDER = "plans"
"""What a search for the plan of a network keeps: ``foretune.plans``."""
PLANS_JOURNAL = f"{PLANS_FOLDER}/plans.jsonl"
_SAVE_EVERY_S = 10.0
_LONGEST_NAME = 200
"""Characters of the name that a work directory is given; file systems take 255 bytes."""


def enter_work_dir(
    stack: ExitStack,
    work_dir: str | Path | None,
    fresh: bool,
    llm: Session | None,
) -> tuple[Journal | None, int]:
    """The journal, open until the stack closes, and this tuner's place in the directory.

    A language model's answers are kept there from then on, too.
    """
    if work_dir is None:
        return None, 0
    # What a replay reads, or a session writes already, may be the file in this very directory.
    aside = [JOURNAL, PLANS_JOURNAL, *([TRANSCRIPT] if llm is None or llm.unrecorded else [])]
    journal = stack.enter_context(open_journal(Path(work_dir), aside if fresh else ()))
    if llm is not None:
        llm.record_in(Path(work_dir) / TRANSCRIPT)
    return journal, stack.enter_context(_place_among_tuners(Path(work_dir)))


class Saver:
    """Keeps the result file fresh during the run, so that a killed run has a report too."""

    def __init__(self, result: Callable[[], TuneResult], path: Path) -> None:
        self._result = result
        self._path = path
        self._saved = time.monotonic()

    def __call__(self) -> None:
        """Saves the result if the last time was a while ago."""
        if time.monotonic() - self._saved > _SAVE_EVERY_S:
            self._result().save(self._path)
            self._saved = time.monotonic()


@contextmanager
def _place_among_tuners(work_dir: Path) -> Iterator[int]:
    """How many tuners work in this directory already: 0 for the first.

    Tuners that share a directory share its trials; with one seed they would all propose the same
    ones, so each seeds its strategies by its place. A lone tuner's place is always 0.
    """
    place = 0
    while True:
        lock = FileLock(work_dir / f"tuner.{place}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            place += 1
            continue
        try:
            yield place
        finally:
            lock.release()
        return


def open_journal(work_dir: Path, aside: Sequence[str] = ()) -> Journal:
    """Opens the journal of a work directory, made if need be.

    Args:
        work_dir: The directory.
        aside: Files in it that are renamed before, where they are there: ``journal.jsonl`` →
            ``journal.1.jsonl``, all with the first number that none of them has yet.

    Raises:
        RecordError: The directory cannot be made or written.
    """
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        places = [work_dir / name for name in aside]
        numbers = itertools.count(1)
        number = next(n for n in numbers if not any(_numbered(p, n).exists() for p in places))
        for path in places:
            if path.exists():
                os.replace(path, _numbered(path, number))
    except OSError as error:
        raise RecordError(
            f"the work directory {work_dir} cannot be written ({error.strerror}): "
            "pass another one with --work-dir"
        ) from error
    return Journal(work_dir / JOURNAL)


def _numbered(path: Path, number: int) -> Path:
    """``journal.jsonl`` → ``journal.1.jsonl``."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def default_work_dir(what: str, hardware: Hardware, *settings: str | int) -> Path:
    """Where ``foretune tune INPUT`` keeps its journal when nothing is said.

    One directory per input, hardware and settings (strategy, cost model, seed): runs that differ in
    one of them must not resume each other.
    """
    name = what
    if "/" in what:
        # Files of one name in several folders are several inputs.
        digest = hashlib.blake2b(os.path.abspath(what).encode(), digest_size=3).hexdigest()
        name = f"{Path(what).name}-{digest}"
    whole = "-".join([name, hardware.key[:6], *map(str, settings)])
    legal = re.sub(r"[^A-Za-z0-9_.:=-]+", "_", whole)
    if len(legal) > _LONGEST_NAME:
        digest = hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()
        legal = f"{legal[: _LONGEST_NAME - len(digest) - 1]}-{digest}"
    return Path("foretune-work") / legal
