"""The threads that artifacts run on: how many, on which cores, and what a fork leaves of them.

TVM keeps one pool of workers per calling thread, started by the first kernel that the thread runs.
Left alone, it sizes the pool by environment variables and binds workers and caller to cores without
looking at the process's CPU mask, which widens it. Here a pool gets its size by call and touches no
mask: workers inherit that of the thread that starts them.

A forked child inherits the pool's memory but not its workers: its first kernel, or its exit, would
wait for them for ever. Two hooks around ``os.fork`` replace the workers. Why before it as well: a
worker that sleeps on a condition variable can never be told apart, in the child, from one that is
still going to wake; workers that have just been started do not sleep yet.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import ClassVar

from foretune import _tvm
from foretune.errors import BadInputError

_BIND = "TVM_BIND_THREADS"


class _Here(threading.local):
    """What is known of the pool of the current thread.

    Attributes:
        started: Whether it has one, as far as artifacts started it.
        used: Threads that kernels run on; 0 when that has to be set again.
    """

    started = False
    used = 0


class ForkedLock:
    """A lock that is free in a forked child, whoever held it in the parent."""

    _all: ClassVar[weakref.WeakSet[ForkedLock]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    @classmethod
    def free_all(cls) -> None:
        """Frees every lock; for a child that has one thread yet."""
        for lock in list(cls._all):
            lock._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_here = _Here()
_environment_lock = ForkedLock()


def choose_threads(compiled_for: int, asked: int | None) -> int:
    """Threads to run with: what was asked for, or what the code was compiled for.

    Args:
        compiled_for: The manifest's number; the mask limits it.
        asked: The caller's, or None.

    Raises:
        BadInputError: Less than one, or more than there are cores in the process's CPU mask.
    """
    cores = len(os.sched_getaffinity(0))
    if asked is None:
        return min(compiled_for, cores)
    if not 1 <= asked <= cores:
        raise BadInputError(
            f"`1 <= threads <= {cores}` must hold, the cores this process may use, "
            f"but got threads={asked}"
        )
    return asked


def use_threads(threads: int) -> None:
    """Makes kernels of the calling thread run on this many threads, itself included.

    A pool keeps the size that its first artifact wanted: later ones may use less of it. One that
    wants more runs on what there is, and a warning says so.
    """
    if _here.used == threads:
        return
    with _unbound():
        # The number of cores named is the limit of the calling thread; -3 lets workers share them.
        cores = [str(core) for core in range(threads)]
        _tvm.tvm.get_global_func("runtime.config_threadpool")(-3, threads, cores)
    _here.started, _here.used = True, threads
    running = int(_tvm.tvm.get_global_func("runtime.NumThreads")())
    if running < threads:
        warnings.warn(
            f"TVM already runs with {running} threads in this thread of Python, and the artifact "
            f"wants {threads}: run the one that wants the most first, or in a thread of its own",
            stacklevel=4,
        )


@contextlib.contextmanager
def _unbound() -> Iterator[None]:
    """Keeps TVM from binding threads to cores: while a pool is made it reads the environment."""
    with _environment_lock:
        before = os.environ.get(_BIND)
        os.environ[_BIND] = "0"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_BIND]
            else:
                os.environ[_BIND] = before


def _renew() -> None:
    """Replaces the workers of the calling thread's pool, if it has one."""
    if _here.started:
        with _unbound():
            _tvm.reset_thread_pool()
        _here.used = 0


# In a child in the order of registration: what renews takes a lock.
os.register_at_fork(after_in_child=ForkedLock.free_all)
os.register_at_fork(before=_renew, after_in_child=_renew)
