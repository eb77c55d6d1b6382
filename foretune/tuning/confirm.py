"""Which candidate is best is settled by timing the contenders side by side.

Single readings of a run flatter some candidates. So the best of them are timed again, in turns with
one another, with the best of the last comparison and with what tuning has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretune.records import Record
from foretune.records.history import seconds_of
from foretune.space import Candidate
from foretune.tuning.task import Task
from foretune.tuning.workbench import Workbench

_COMPARISONS = 3
"""Comparisons of a task at most: the contenders of the first may fail or be disturbed in it."""
_COMPARED_TOGETHER = 4
"""Tasks of one comparison: their programs are built in parallel, and all held until its end."""
_LONG_S = 1.0
_NO_RIVAL = 10.0
"""A program that takes longer than a second and than ten times the best is not timed again."""
_DOUBTFUL = 0.9
"""A comparison that a baseline wins is in doubt where a contender takes less than this share."""


class Confirmation:
    """Compares contenders of tasks with one another and with what has to be beaten.

    Args:
        bench: Of the run.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._spending = bench.spending

    def prove_known(self) -> None:
        """Compares what the store knows with the baselines, before a trial is spent."""
        waiting = [task for task in self._bench.tasks if task.unproven]
        if waiting and self._spending.in_time:
            self._once(waiting, "comparing what the store knows with the defaults")

    def conclude(self) -> None:
        """Compares each task's contenders and its baselines until no result is in doubt."""
        for done in range(_COMPARISONS):
            if done and self._spending.is_over:
                return
            if not self._once(self._bench.tasks, "confirming the best candidates", ended=True):
                return

    def _once(self, tasks: Sequence[Task], phase: str, ended: bool = False) -> bool:
        """One comparison of every task that needs one, the heaviest first; whether any did.

        ``ended`` says that the run has come to its end with these tasks.
        """
        heaviest = sorted(
            tasks, key=lambda task: task.workload.weight * (task.best_s or 0.0), reverse=True
        )
        waiting = [(task, candidates) for task in heaviest if (candidates := to_confirm(task))]
        if not waiting:
            return False
        self._bench.progress.phase(phase)
        for done in range(0, len(waiting), _COMPARED_TOGETHER):
            if done and self._spending.is_over:
                self._bench.progress.stopped(
                    f"the time was spent before the bests of {len(waiting) - done} tasks were "
                    "confirmed: allow more with --time"
                )
                return False
            self._bench.compare(waiting[done : done + _COMPARED_TOGETHER], ended)
        return True


def to_confirm(task: Task) -> list[Candidate]:
    """What to time side by side to settle which is best; empty where that is settled.

    With the contenders come the best of the last comparison, because seconds of different
    comparisons are not compared, what a store knows, and the baselines. It is not settled where a
    baseline was the best of the last comparison, because contenders failed or were disturbed in it,
    and others were much faster on their own.
    """
    standings, unproven = task.history.standings, task.unproven
    contenders = task.contenders()
    champion = next(iter(standings.last_comparison()), None)
    news = any(not standings.was_compared(c.key) for c in contenders) and (
        task.history.tried_since_comparison or _is_doubtful(task, champion, contenders)
    )
    contenders += unproven
    if not contenders or (task.confirmed and not news and not unproven):
        return []
    if champion is not None:
        contenders.append(champion.candidate)
    contenders += [candidate for candidate, _ in task.baselines.missing()]
    if not task.baselines.without_untuned and not _untuned_is_no_rival(task):
        contenders.append(task.space.untuned)
    distinct = {candidate.key: candidate for candidate in contenders}
    # A baseline with nothing beside it needs no comparison.
    return [] if len(distinct) == 1 and not task.tuned else list(distinct.values())


def _untuned_is_no_rival(task: Task) -> bool:
    """Whether it takes long and is beyond doubt the slower one, also if it was cut short."""
    seconds, best_s = task.untuned_s, task.best_s
    if seconds is None or best_s is None:
        return False
    return seconds > _LONG_S and seconds > _NO_RIVAL * best_s


def _is_doubtful(task: Task, champion: Record | None, contenders: Sequence[Candidate]) -> bool:
    """Whether a baseline was the best of a comparison and a contender is much faster."""
    if champion is None or not task.baselines.include(champion.candidate_key):
        return False
    known = [task.history.standings.record(candidate.key) for candidate in contenders]
    fastest = min(seconds_of(record) for record in known if record is not None)
    return fastest < _DOUBTFUL * seconds_of(champion)
