"""Executed as a script: what starting a process and importing modules take of a short tuning run.

Arguments: the seconds since the epoch at which the process was started, a workload, threads. Prints
the seconds from there to the first line of this file and in outermost imports, those that happen
within the run included. Processes that measure import beside the run and are not counted.
"""

from __future__ import annotations

import time

_FIRST_LINE = time.time()

import importlib._bootstrap  # type: ignore[import-not-found]  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from typing import Any  # noqa: E402

bootstrap: Any = importlib._bootstrap


class _Timer:
    """Stands in for the function that every import statement calls; only the main thread counts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._load = bootstrap._find_and_load

    def __call__(self, *arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return self._load(*arguments)
        began = time.perf_counter()
        self._depth += 1
        try:
            return self._load(*arguments)
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.perf_counter() - began


def _main(started: str, workload: str, threads: str) -> None:
    timer = _Timer()
    bootstrap._find_and_load = timer
    from foretune.hardware import probe
    from foretune.tuning import tune

    tune(workload, target=probe(threads=int(threads)), trials=1, work_dir=None)
    print(_FIRST_LINE - float(started) + timer.seconds)


if __name__ == "__main__":
    _main(*sys.argv[1:])
