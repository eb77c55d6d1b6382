"""Measures what tuning has to beat, before anything else is measured.

Naive programs of large operators take minutes. In a run of limited time they come last, the
smallest first, while that is expected to be a small share of the time; a network, which is compared
as a whole, has none.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

from foretune.records import UNTUNED
from foretune.space import Candidate
from foretune.tuning.task import Task
from foretune.tuning.workbench import Workbench

logger = logging.getLogger(__name__)

_LONG_FLOPS = 1e9
_UNTUNED_FLOPS = 1e8
_UNTUNED_SHARE = 0.15
"""In a run of limited time, untuned programs with more than so many operations are measured while
that is expected to take no more than this share of it. Before one was measured, so many of its
operations are expected for each second that measuring it takes, in which it runs several times."""

_Waiting: TypeAlias = dict[str, tuple[Task, Candidate, str]]
"""Candidate key to task, candidate, and origin of its record."""


class Beaten:
    """Measures baselines of all tasks.

    Args:
        bench: Of the run.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._spending = bench.spending

    def leave_untuned(self) -> None:
        """Has default schedules alone to be beaten, where there are any."""
        for task in self._bench.tasks:
            if task.baselines.have_default:
                task.baselines.leave_untuned()

    def measure(self) -> None:
        """Measures what tuning has to beat: the untuned programs and the default schedules.

        A task that time does not suffice for can be tuned all the same: what it lacks is compared
        with its best at the end. Where there is a limit of time, untuned programs that take long
        come last, and those that would take too much of it are left out, also where a run goes on
        whose time is spent.
        """
        waiting = {
            candidate.key: (task, candidate, origin)
            for task in self._bench.tasks
            for candidate, origin in task.baselines.missing()
        }
        long = {} if self._spending.budget.seconds is None else self._long_untuned(waiting)
        for key in long:
            waiting.pop(key)
        if self._spending.allows_more:
            if waiting or long:
                self._bench.progress.phase("measuring what tuning has to beat")
            self._measure(waiting)
        self._measure_long(long)

    def _measure(self, waiting: _Waiting) -> None:
        """Measures baselines as long as time is left."""
        candidates = [candidate for _, candidate, _ in waiting.values()]
        for candidate, measurement in self._bench.measured(candidates, {}):
            task, _, origin = waiting.pop(candidate.key)
            self._bench.keep(task, candidate, measurement, origin=origin)
            if origin == UNTUNED and measurement.best_s is None:
                logger.warning(
                    "the untuned program of %s could not be measured: %s %s",
                    candidate.workload.name,
                    measurement.status.value,
                    measurement.message,
                )
            if waiting and not self._spending.in_time:
                self._bench.progress.stopped(
                    f"the time was spent before {len(waiting)} of the programs that tuning has to "
                    "beat were measured: allow more with --time"
                )
                return

    def _long_untuned(self, waiting: _Waiting) -> _Waiting:
        """Untuned programs with much to compute and a default schedule, the smallest first."""
        long = {
            key: entry
            for key, entry in waiting.items()
            if entry[2] == UNTUNED
            and entry[0].baselines.have_default
            and entry[0].workload.flops > _LONG_FLOPS
        }
        return dict(sorted(long.items(), key=lambda item: item[1][0].workload.flops))

    def _measure_long(self, long: _Waiting) -> None:
        """Measures untuned programs that take long while that is a small share of the time.

        How long one takes is judged by the slowest before it, in earlier runs as well. One whose
        default schedule could not be measured is needed, whatever it takes.
        """
        if not long:
            return
        known = self._long_before()
        left = 0
        for key, (task, candidate, origin) in long.items():
            expected_s = task.workload.flops / min(
                (flops / took_s for flops, took_s in known), default=_UNTUNED_FLOPS
            )
            spent_s = sum(took_s for _, took_s in known)
            allowed = self._spending.allows_more
            if task.baselines.default_known and not (
                allowed and self._spending.is_within(spent_s + expected_s, _UNTUNED_SHARE)
            ):
                task.baselines.leave_untuned()
                left += 1
            elif allowed:
                began = self._spending.elapsed_s
                self._measure({key: (task, candidate, origin)})
                took_s = self._spending.elapsed_s - began
                # What fails at once does not show that the next one is fast.
                if task.untuned_s is not None or took_s > expected_s:
                    known.append((task.workload.flops, max(took_s, 1e-9)))
        if left:
            self._bench.progress.stopped(
                f"{left} of the untuned programs were not measured, because that was expected to "
                f"take more than {_UNTUNED_SHARE:.0%} of the time, or more than was left: tuning "
                "has to beat default schedules alone"
            )

    def _long_before(self) -> list[tuple[float, float]]:
        """Operations of long untuned programs measured in earlier runs, and the seconds of that."""
        return [
            (task.workload.flops, record.measurement.build_s + record.measurement.run_s)
            for task in self._bench.tasks
            if task.workload.flops > _LONG_FLOPS
            for record in self._bench.keeping.records_of(task)
            if record.origin == UNTUNED and record.measurement.run_s > 0
        ]
