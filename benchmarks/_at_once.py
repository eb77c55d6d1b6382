"""Work that several processes do at the same time, for figures of all cores together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

WAIT_S = 600.0
"""How long a process waits for the others."""


def at_once(processes: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``work(place, together, *arguments)`` returns in each of several fresh processes.

    Args:
        processes: How many.
        work: Of a module. ``place`` counts the processes from 0; ``together`` is a barrier, at
            which they wait for one another.
        arguments: Anything that can be pickled.
    """
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(processes, timeout=WAIT_S)
    children, ends = [], []
    for place in range(processes):
        end, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=_answer, args=(theirs, work, place, together, arguments), daemon=True
        )
        child.start()
        # Or nobody would notice that the child is gone.
        theirs.close()
        children.append(child)
        ends.append(end)
    found = [end.recv() for end in ends]
    for child in children:
        child.join()
    return found


def _answer(end: Any, work: Callable[..., Any], place: int, together: Any, arguments: Any) -> None:
    end.send(work(place, together, *arguments))
