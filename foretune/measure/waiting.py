"""Whether other processes took cores away from this one while something ran.

A reading of milliseconds is shorter than the time slices of a scheduler. Whoever shares a core with
a competitor waits for a slice or two within one call and for none within the next: readings are
true, or longer by whole slices. The longer ones agree with each other as well as the true ones do,
and a canary of microseconds slips between two slices. The system knows: it counts how long each
thread was ready to run and did not (``/proc/PID/task/TID/schedstat``, nanoseconds and slices), and
how often it was put aside (``ru_nivcsw``).

To look takes 3 microseconds a thread, before a reading and after it. That is not part of its time,
but of a candidate's: with 128 threads a sixth of a reading of 5 ms, with 16 a fiftieth.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping

_TASKS = "/proc/self/task"
_LONGEST = 96
"""Bytes of a file of three numbers, at most."""
# The system interrupts each thread of a quiet machine this often; a competitor for its core does it
# more.
_SWITCHES_PER_THREAD_S = 20.0
# A thread that is woken waits for its core to wake up, too.
_WAKING_S = 50e-6
_WAITED_SHARE = 0.02

Waits = Mapping[int, tuple[int, int]]
"""Thread -> nanoseconds that it waited for a core, and slices that it ran."""


class CoreWatch:
    """Watches from now on.

    Args:
        threads: Threads that work.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waits = waits()
        self._switches = _switches()
        self._began = time.perf_counter()

    def crowded(self) -> bool:
        """Whether other processes took the cores away since."""
        lasted = time.perf_counter() - self._began
        switches = _switches() - self._switches
        waited = longest_wait(self._waits, waits())
        return is_crowded(switches, waited, lasted, self._threads)


def is_crowded(switches: int, waited_s: float, seconds: float, threads: int) -> bool:
    """Whether a process was put aside more often or longer than happens on a quiet machine.

    Args:
        switches: How often one of its threads had to give up a core.
        waited_s: How long the thread that waited longest was ready to run and did not.
        seconds: In what time.
        threads: Threads that worked.
    """
    often = switches > 1 + seconds * threads * _SWITCHES_PER_THREAD_S
    return often or waited_s > _WAKING_S + _WAITED_SHARE * seconds


def waits(tasks: str | os.PathLike[str] = _TASKS) -> Waits:
    """What the threads of a process have waited so far; nothing where the system does not say."""
    try:
        names = os.listdir(tasks)
    except OSError:
        return {}
    by_thread = {}
    for name in names:
        try:
            _, waited, slices = _read(f"{tasks}/{name}/schedstat").split()
            by_thread[int(name)] = int(waited), int(slices)
        except (OSError, ValueError):
            # The kernel was built without, or this thread ended meanwhile.
            continue
    return by_thread


def _read(path: str) -> bytes:
    """Of a small file, without Python's buffers, which take five times as long as the rest."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _LONGEST)
    finally:
        os.close(file)


def longest_wait(before: Waits, after: Waits) -> float:
    """Seconds that one thread waited at most, without what each slice takes to begin."""
    longest = 0.0
    for thread, (waited, slices) in after.items():
        if thread in before:
            spent, begun = before[thread]
            longest = max(longest, (waited - spent) * 1e-9 - (slices - begun) * _WAKING_S)
    return longest


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
