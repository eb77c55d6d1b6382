"""Child processes: the environment they start with, their last words, their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any


def environment(threads: int, **variables: str) -> dict[str, str]:
    """The environment of a child process that imports this very package, installed or not.

    Args:
        threads: Size of TVM's thread pool in the child. The pool's size is read from the
            environment before any of the child's own code could set it; left alone, TVM takes
            half of the processors on x86.
        variables: Further variables.
    """
    root = str(Path(__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root,
        "TVM_NUM_THREADS": str(threads),
        **variables,
    }


def kill_group(child: subprocess.Popen[Any]) -> None:
    """Kills a child started in a session of its own, with all its descendants, and reaps it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_lines(output: Path, count: int = 3) -> str:
    """The end of what a child wrote into a file, where it says what went wrong, as one line."""
    text = output.read_text(encoding="utf-8", errors="replace")
    return " | ".join(text.strip().splitlines()[-count:])[-800:]
