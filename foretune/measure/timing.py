"""Readings of one kernel, and the canary that tells whether the machine was quiet beside them.

A neighbour on a shared machine slows a kernel by a third to a half for seconds at a time, and no
accounting of the processor's time shows it. Another kernel timed right beside it does: the canary,
on as many threads as the candidates use. Its lowest times are the quiet floor.
"""

from __future__ import annotations

import bisect
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.measure._canary import DEVICE_CALLS, build_canary
from foretune.measure._layout import host_tensor
from foretune.measure._turns import InTurn
from foretune.measure.waiting import CoreWatch

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.measure.policy import MeasurePolicy

# Above this the two microseconds of a call from Python are noise; below it TVM's own loop counts.
_PYTHON_LOOP_FROM_S = 1e-3
_WARM_UP_S = 1e-3
COLD_START_S = 5e-3
"""What cold caches and pages add to a first call on this machine, at most."""


@dataclass(frozen=True)
class Reading:
    """One reading and what was seen beside it.

    Attributes:
        seconds: Seconds per call.
        before, after: Seconds the canary took before and after.
        crowded: Whether other processes of this machine took the cores away meanwhile. The canary
            is short enough to slip between two of their time slices; readings are not.
    """

    seconds: float
    before: float
    after: float
    crowded: bool = False


class QuietFloor:
    """What the canary takes when nobody disturbs: the lowest decile of the session.

    The decile, not the minimum: one lucky reading must not make the rest of the session noisy.
    """

    def __init__(self, tolerance: float, keep: int = 2000) -> None:
        self._tolerance = tolerance
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._keep = keep

    def add(self, seconds: Iterable[float]) -> None:
        """Takes in canary times."""
        for value in seconds:
            self._recent.append(value)
            bisect.insort(self._sorted, value)
            if len(self._recent) > self._keep:
                oldest = self._recent.popleft()
                del self._sorted[bisect.bisect_left(self._sorted, oldest)]

    @property
    def seconds(self) -> float:
        """The floor; infinite before the first canary."""
        return self._sorted[len(self._sorted) // 10] if self._sorted else math.inf

    @property
    def limit(self) -> float:
        """The longest a quiet canary may take."""
        return self.seconds * (1 + self._tolerance)

    def is_quiet(self, reading: Reading) -> bool:
        """Whether nobody took the cores and both canaries beside the reading were at the floor."""
        return not reading.crowded and max(reading.before, reading.after) <= self.limit


class Stopwatch:
    """Times kernels on one device.

    Args:
        hardware: Device kind and threads.
        policy: Length and number of readings.

    Attributes:
        device: Where arguments of kernels live.
        canary_s: Seconds that the canary took so far.
        cold_start_s: What a first call takes longer than others, at most.
    """

    def __init__(self, hardware: Hardware, policy: MeasurePolicy) -> None:
        from foretune._tvm import tvm

        self.hardware = hardware
        self.canary_s = 0.0
        self.cold_start_s = COLD_START_S
        self._host = hardware.has_cores
        self._policy = policy
        self.device: Any = tvm.runtime.device(hardware.runtime_device, 0)
        compiled, arrays = build_canary(hardware)
        self._canary: Any = compiled.jit()
        self._canary_tensors = [
            host_tensor(array) if self._host else tvm.runtime.tensor(array, self.device)
            for array in arrays
        ]

    def canary(self) -> float:
        """Seconds the canary takes now: the lower of two calls, which drops single interrupts."""
        began = time.perf_counter()
        seconds = min(self._canary_call() for _ in range(2))
        self.canary_s += time.perf_counter() - began
        return seconds

    def _canary_call(self) -> float:
        """Seconds of the canary; on a device by its own clock, without the way there and back."""
        if self._host:
            return self.call(self._canary["main"], self._canary_tensors)
        timer = self._canary.time_evaluator("main", self.device, number=DEVICE_CALLS, repeat=1)
        return float(timer(*self._canary_tensors).results[0])

    def call(self, program: Callable[..., Any], tensors: Sequence[Any]) -> float:
        """Seconds of one call."""
        began = time.perf_counter()
        program(*tensors)
        if not self._host:
            self.device.sync()
        return time.perf_counter() - began

    def first_call(self, program: Any, tensors: Sequence[Any]) -> tuple[float, Reading | None]:
        """Seconds of a program's first call, and a reading where it is as good as one.

        It is where so much time passed that a cold start is within the spread of readings: to call
        a program of seconds once more only to time it warm would teach nothing. Not on a GPU, where
        a first call loads the program.
        """
        before = self.canary()
        function = entry(program)
        seconds, crowded = self._watched(lambda: self.call(function, tensors))
        if not self._host or seconds * self._policy.spread < self.cold_start_s:
            return seconds, None
        return seconds, Reading(seconds, before, self.canary(), crowded)

    def calls_per_reading(self, seconds: float) -> int:
        """How often to call a kernel that takes ``seconds`` for one reading."""
        return max(1, math.ceil(self._policy.reading_s / max(seconds, 1e-7)))

    def read(
        self,
        program: Any,
        arguments: InTurn,
        calls: int,
        prepare: Callable[[], None] | None = None,
    ) -> float:
        """Seconds per call over ``calls`` calls in a row.

        Args:
            program: A TVM module with ``main``, or any callable.
            arguments: What it is called with.
            calls: Calls per reading.
            prepare: Restores buffers that a call changes and then depends on.
        """
        function = entry(program)
        if prepare is not None:
            prepare()
        quick = calls * _PYTHON_LOOP_FROM_S > self._policy.reading_s or not self._host
        if quick and arguments.alike and hasattr(program, "time_evaluator"):
            timer = program.time_evaluator("main", self.device, number=calls, repeat=1)
            return float(timer(*arguments.first).results[0])
        taken = arguments.take(calls)
        began = time.perf_counter()
        for tensors in taken:
            function(*tensors)
        if not self._host:
            self.device.sync()
        return (time.perf_counter() - began) / calls

    def warm(
        self,
        program: Any,
        arguments: InTurn,
        seconds: float,
        prepare: Callable[[], None] | None = None,
    ) -> float:
        """Seconds per call, roughly, after a first call that took ``seconds``.

        A first call finds cold caches and pages and may take ten times as long as the next ones.
        """
        calls = math.ceil(_WARM_UP_S / max(seconds, 1e-7))
        return self.read(program, arguments, calls, prepare)

    def readings(
        self,
        program: Any,
        arguments: InTurn,
        seconds: float,
        prepare: Callable[[], None] | None = None,
        count: int | None = None,
        best_s: float | None = None,
        first: Reading | None = None,
    ) -> list[Reading]:
        """Reads until the two lowest agree or the candidate's budget is spent.

        Only readings agree during which nobody took the cores away: others are longer by time
        slices, which are all of one length.

        Args:
            program: A TVM module with ``main``, or any callable.
            arguments: What it is called with.
            seconds: What one call took when it was checked.
            prepare: As in ``read``.
            count: Exactly this many readings, whatever they say.
            best_s: The best so far; well beyond it two readings need not agree so closely.
            first: A reading that there is already; it counts like the others.
        """
        policy = self._policy
        rough_from_s = math.inf if best_s is None else policy.rough_factor * best_s
        readings = [] if first is None else [first]
        spent = 0.0 if first is None else first.seconds
        if self._enough(readings, [], spent, count, rough_from_s):
            return readings
        if seconds < policy.reading_s:
            seconds = self.warm(program, arguments, seconds, prepare)
        calls = self.calls_per_reading(seconds)
        before = self.canary()
        while True:
            group: list[tuple[float, bool]] = []
            began = time.perf_counter()
            while not self._enough(
                readings, group, spent + time.perf_counter() - began, count, rough_from_s
            ):
                group.append(self._watched(lambda: self.read(program, arguments, calls, prepare)))
                # Long readings get a canary each: an episode may start between any two.
                if time.perf_counter() - began > policy.budget_s / 2:
                    break
            spent += time.perf_counter() - began
            after = self.canary()
            readings += [Reading(value, before, after, crowded) for value, crowded in group]
            before = after
            if self._enough(readings, [], spent, count, rough_from_s):
                return readings

    def _enough(
        self,
        readings: Sequence[Reading],
        group: Sequence[tuple[float, bool]],
        spent: float,
        count: int | None,
        rough_from_s: float,
    ) -> bool:
        policy = self._policy
        timed = [(reading.seconds, reading.crowded) for reading in readings] + list(group)
        if count is not None or not timed:
            return count is not None and len(timed) >= count
        enough = len(timed) >= policy.min_readings
        if spent >= policy.budget_s * (1 if enough else 2):
            return True
        values = sorted(seconds for seconds, crowded in timed if not crowded)
        if len(values) < 2:
            return False
        spread = policy.rough_spread if values[0] > rough_from_s else policy.spread
        return enough and values[1] <= values[0] * (1 + spread)

    def _watched(self, read: Callable[[], float]) -> tuple[float, bool]:
        """A reading, and whether other processes took the cores away meanwhile."""
        if not self._host:
            # The device works on while its host waits.
            return read(), False
        watch = CoreWatch(self.hardware.threads)
        seconds = read()
        return seconds, watch.crowded()


def entry(program: Any) -> Callable[..., Any]:
    """The function to call: ``main`` of a TVM module, or the callable itself."""
    function: Callable[..., Any] = (
        program["main"] if hasattr(program, "time_evaluator") else program
    )
    return function
