"""Readings of a whole network, with the canary beside them.

As ``foretune.measure`` reads kernels: a few calls make a reading, a canary before and after it says
whether the machine was quiet. A network takes its time from one place of memory to the next, so
there is nothing to prepare between calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from foretune.measure import MeasurePolicy
from foretune.measure.timing import QuietFloor, Reading, Stopwatch
from foretune.measure.waiting import CoreWatch

if TYPE_CHECKING:
    from foretune.hardware import Hardware

Call = Callable[[], Any]
"""Runs a network once."""

_READING_S = 0.02
_QUIET, _MOST = 5, 12
"""Quiet readings that suffice, and readings of a network that has them not."""
_BUDGET_S = 2.0
"""Seconds after which ``_LEAST`` readings suffice."""
_LEAST = 3


class NetworkWatch:
    """Times networks on one machine.

    Args:
        hardware: Its threads.
    """

    def __init__(self, hardware: Hardware) -> None:
        policy = MeasurePolicy()
        self._threads = hardware.threads
        self._watch = Stopwatch(hardware, policy)
        self._floor = QuietFloor(policy.quiet_tolerance)

    def readings(
        self, calls: Sequence[Call], first_s: Sequence[float]
    ) -> list[tuple[tuple[float, ...], tuple[bool, ...]]]:
        """Of each network the seconds per call of each reading, and whether it was quiet.

        Networks take turns, so that what the machine does meanwhile does to all of them: each has
        as many readings, and those of one place are of one round.

        Args:
            calls: Each was called before.
            first_s: Seconds of a call of each, about.
        """
        from foretune._tvm import calling_from_a_free_core

        counts = [max(1, math.ceil(_READING_S / max(seconds, 1e-6))) for seconds in first_s]
        taken: list[list[Reading]] = [[] for _ in calls]
        began = time.perf_counter()
        with calling_from_a_free_core():
            before = self._canary()
            while not self._all_enough(taken, time.perf_counter() - began):
                for call, count, own in zip(calls, counts, taken, strict=True):
                    if len(calls) > 1:
                        # As where a network is alone: its first call would find others' data.
                        call()
                    seconds, crowded = self._read(call, count)
                    after = self._canary()
                    own.append(Reading(seconds, before, after, crowded))
                    before = after
        return [
            (
                tuple(reading.seconds for reading in own),
                tuple(self._floor.is_quiet(reading) for reading in own),
            )
            for own in taken
        ]

    def _all_enough(self, taken: list[list[Reading]], spent_s: float) -> bool:
        return all(self._enough(own, spent_s / len(taken)) for own in taken)

    def _enough(self, taken: list[Reading], spent_s: float) -> bool:
        if spent_s > _BUDGET_S and len(taken) >= _LEAST:
            return True
        quiet = sum(map(self._floor.is_quiet, taken))
        return quiet >= _QUIET or len(taken) >= _MOST

    def _canary(self) -> float:
        seconds = self._watch.canary()
        self._floor.add([seconds])
        return seconds

    def _read(self, call: Call, calls: int) -> tuple[float, bool]:
        watch = CoreWatch(self._threads)
        began = time.perf_counter()
        for _ in range(calls):
            call()
        lasted = time.perf_counter() - began
        return lasted / calls, watch.crowded()
