"""Child processes: how they start, what limits them, their last words, their end."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1

OWN_PATHS = "import sys; sys.path[:] = [path for path in sys.path if path]; "
"""Before the code of ``python -c``: else a file of the current directory would stand in for a
module of the same name, which it does not in the process that starts it."""

STEADY = {
    # TVM's threads poll that often for more work before they sleep, by default for 0.1 to 0.3 s: in
    # that time the kernels of another process take two to three times as long.
    "TVM_THREAD_POOL_SPIN_COUNT": "2000",
    # The order of allocations decides where small ones lie.
    "PYTHONHASHSEED": "0",
}
"""Variables of children that time kernels."""


def environment(threads: int, **variables: str) -> dict[str, str]:
    """The environment of a child process that imports this very package, installed or not.

    Args:
        threads: Size of TVM's thread pool in the child. The pool's size is read from the
            environment before any of the child's own code could set it; left alone, TVM takes
            half of the processors on x86.
        variables: Further variables, and others in place of these.
    """
    root = str(Path(__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root,
        "TVM_NUM_THREADS": str(threads),
        **variables,
    }


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the one that started it ends, even while stopped.

    Args:
        parent: Its process number, as it was when it started this one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def leave_no_core() -> None:
    """Has this process die without writing its memory to a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(more_bytes: int) -> None:
    """Has an allocation without end fail in this process, before it takes the machine with it.

    Args:
        more_bytes: Of addresses, beyond those that it has in use now.
    """
    limit = memory_in_use()[0] + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def memory_in_use(process: int | None = None) -> tuple[int, int]:
    """Bytes of addresses and of memory of a process, this one if None; zeros once it is gone."""
    try:
        text = Path(f"/proc/{process or 'self'}/statm").read_text()
        addresses, resident = (int(pages) for pages in text.split()[:2])
    except (OSError, ValueError):
        return 0, 0
    page = resource.getpagesize()
    return addresses * page, resident * page


def start(
    command: Sequence[str],
    variables: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    text: bool = False,
) -> subprocess.Popen[Any]:
    """Starts a command in a session of its own, so that what it starts can be ended with it.

    Args:
        command: The program and its arguments.
        variables: Its environment.
        stdin, stdout, stderr, pass_fds, text: As for ``subprocess.Popen``.
    """
    return subprocess.Popen(
        list(command),
        env=variables,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        text=text,
        start_new_session=True,
    )


def start_piped(
    code: str, variables: Mapping[str, str], errors: int | IO[bytes]
) -> tuple[subprocess.Popen[bytes], int, int]:
    """``start`` of code, with a pipe to it and one from it.

    Args:
        code: For ``python -c``; its arguments are the numbers of its ends of the pipes.
        variables: Its environment.
        errors: Takes its standard error, as for ``subprocess.Popen``.

    Returns:
        The process, where it is written to, and where it is read from.
    """
    requests_there, requests = os.pipe()
    replies, replies_there = os.pipe()
    try:
        child = start(
            [sys.executable, "-c", OWN_PATHS + code, str(requests_there), str(replies_there)],
            variables,
            stderr=errors,
            pass_fds=(requests_there, replies_there),
        )
    except OSError:
        os.close(requests)
        os.close(replies)
        raise
    finally:
        os.close(requests_there)
        os.close(replies_there)
    return child, requests, replies


def run(
    command: Sequence[str],
    threads: int,
    output: Path,
    timeout_s: float | None = None,
    look: Callable[[], None] | None = None,
    every_s: float = 1.0,
) -> int | None:
    """Runs a command to its end, and then kills whatever it has started.

    Args:
        command: The program and its arguments.
        threads: As for ``environment``.
        output: File that takes what it prints.
        timeout_s: It is killed after this.
        look: Called now and then while it runs, and once after its end.
        every_s: Seconds from one look to the next, about.

    Returns:
        The exit status; None if its time ran out.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with output.open("wb") as file:
        child = start(command, environment(threads), stdout=file, stderr=subprocess.STDOUT)
        try:
            while child.poll() is None:
                left = math.inf if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    break
                pause = min(left, math.inf if look is None else every_s)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(None if math.isinf(pause) else pause)
                if look is not None and child.poll() is None:
                    look()
            ended = child.poll()
            if look is not None:
                look()
            return ended
        finally:
            kill_group(child)


def kill_group(child: subprocess.Popen[Any]) -> None:
    """Kills a child started in a session of its own, with all its descendants, and reaps it."""
    signal_group(child, signal.SIGKILL)
    child.wait()


def signal_group(child: subprocess.Popen[Any], number: int) -> None:
    """Sends a signal to a child started in a session of its own, and to all its descendants."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def last_lines(output: Path, count: int = 3) -> str:
    """The end of what a child wrote into a file, where it says what went wrong, as one line."""
    text = output.read_text(encoding="utf-8", errors="replace")
    return " | ".join(text.strip().splitlines()[-count:])[-800:]


def how_it_ended(code: int) -> str:
    """The end of a process in words, from its ``returncode`` as ``subprocess`` gives it.

    Before → after: 3 → ``"exit status 3"``; -9 → ``"killed by SIGKILL"``; -37 → ``"killed by
    SIGRTMIN+3"``, which ``signal.Signals`` has no name for.
    """
    return f"exit status {code}" if code >= 0 else f"killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """The name of a signal; those without one by their distance to the first real-time signal."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    first = getattr(signal, "SIGRTMIN", None)
    last = getattr(signal, "SIGRTMAX", None)
    if first is not None and last is not None and first < number < last:
        return f"SIGRTMIN+{number - first}"
    return f"signal {number}"


_NO_MEMORY = ("bad_alloc", "out of memory", "cannot allocate memory")


def tells_of_no_memory(text: str) -> bool:
    """Whether the message of an error, or the last words of a process, mean that memory ran out.

    C++'s allocator, CUDA and the operating system say it in words only: by the time they reach us
    through TVM there is no type left that would tell.
    """
    told = text.lower()
    return any(sign in told for sign in _NO_MEMORY)
