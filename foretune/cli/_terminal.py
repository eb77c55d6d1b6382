"""What reaches a user's terminal: our own words, not the log of the libraries underneath.

TVM writes its log from C++ to the process's standard error, where no setting of Python reaches
it; PyTorch and the front ends warn through ``warnings`` and ``logging``. None of it tells a user
what to do. With ``--verbose`` everything is shown as it comes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

_TVM_LOG = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+:\d+: (?:Debug|Info|Warning|Error): ")
"""Begins a line of TVM's log: ``[18:18:21] /src/runtime/vm/executable.cc:276: Warning: ...``."""
_OURS = "foretune"
_PACKAGE = Path(__file__).parents[1]
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def only_our_words(verbose: bool) -> Iterator[None]:
    """Keeps the libraries' warnings from standard error while a command runs.

    Python's go nowhere, but for our own, which become a line of the log. What is written to the
    file descriptor itself is kept in a file, and what of it is no line of TVM's log is shown at the
    end: it may tell of something else. Should the process die of a signal meanwhile, Python says so
    and where.
    """
    if verbose:
        yield
        return
    with warnings.catch_warnings(), _kept_from_the_terminal():
        warnings.simplefilter("default")
        warnings.showwarning = _tell_our_own
        yield


def _tell_our_own(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    if Path(filename).is_relative_to(_PACKAGE):
        _log.warning("%s", message)


def is_shown(record: logging.LogRecord, verbose: bool) -> bool:
    """Whether a line of Python's logging is for the user."""
    return verbose or record.name.partition(".")[0] == _OURS


@contextlib.contextmanager
def _kept_from_the_terminal() -> Iterator[None]:
    stream = sys.stderr
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        number = -1
    if number != 2:
        # Somebody has put something else in its place: what is written to it is theirs.
        yield
        return
    stream.flush()
    with contextlib.ExitStack() as stack:
        try:
            kept = stack.enter_context(tempfile.TemporaryFile())
        except OSError:
            # A full disk is no reason to refuse commands that need none.
            yield
            return
        own = stack.enter_context(
            open(os.dup(2), "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
        )
        os.dup2(kept.fileno(), 2)
        sys.stderr = own
        faulthandler.enable(own)
        try:
            yield
        finally:
            faulthandler.disable()
            own.flush()
            sys.stderr = stream
            os.dup2(own.fileno(), 2)
            kept.seek(0)
            for line in kept:
                if not _TVM_LOG.match(line):
                    os.write(2, line)
