"""Which task gets the next batch: gradient-based task allocation.

Idea: a model's latency is the weighted sum of its tasks' latencies, so the next batch goes to the
task whose weighted latency is expected to fall most per trial. The expectation mixes what the last
trials brought (backward) with what could still come (forward), as Ansor's task scheduler does
(Zheng et al., OSDI 2020, section 6.1, with its alpha, beta and window).

Deviations: the forward term is the distance to a bound spread over the trials spent, one formula
in place of Ansor's minimum of two; the bound is the roofline where the machine's peak was measured.
Otherwise, or where a task exceeds that, it comes from the best throughput of all, as in Ansor.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretune.tuning.budget import Spending
from foretune.tuning.keeping import Keeping
from foretune.tuning.reuse import FURTHER
from foretune.tuning.task import Task

_PATIENCE_WITHOUT_ANY = 32
"""Trials after which a task of which nothing could be measured, tuned or untuned, is given up."""
ALPHA = 0.2
"""Weight of the backward term against the forward one."""
BETA = 2.0
"""How far above the best throughput of all tasks a task is believed to get."""
WINDOW = 48
"""Trials that the backward term looks back, at most half of those spent."""


class Allocation:
    """Gives tasks their trials, round by round.

    Args:
        tasks: Of the run.
        spending: Of the run.
        keeping: Knows of which tasks a store knows enough.
        batch: Candidates per round.
        peak_gflops: Measured peak in 1e9 operations/s; 0 if unknown.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        spending: Spending,
        keeping: Keeping,
        batch: int,
        peak_gflops: float = 0.0,
    ) -> None:
        self._tasks = tasks
        self._spending = spending
        self._keeping = keeping
        self._batch = batch
        self._peak_gflops = peak_gflops
        self._stopped: set[str] = set()

    def first_look(self) -> list[tuple[Task, int]]:
        """Trials of all tasks in one round, where whole batches would not get to each of them."""
        fresh = [
            task
            for task in untouched(self._tasks)
            if not task.exhausted and not self._keeping.suffices(task)
        ]
        if len(fresh) < 2 or not self._spending.allows_more:
            return []
        each = max(1, int(self._spending.trials_left / (2 * len(fresh))))
        if each >= self._batch:
            return []
        trials = self._spending.budget.trials
        seen = fresh if trials is None else fresh[: trials - self._spending.trials]
        return [(task, each) for task in seen]

    def next(self, in_flight: Sequence[Task] = ()) -> list[tuple[Task, int]]:
        """The task that gets the next batch, and how large that is; none where all have stopped.

        Args:
            in_flight: The task of each trial that was asked for and is not counted yet.
        """
        self._note_stopped()
        open_tasks = [
            task
            for task in self._tasks
            if not task.exhausted
            and task.workload.key not in self._stopped
            and not self._keeping.suffices(task)
        ]
        trials = self._spending.budget.trials
        left = self._batch if trials is None else trials - self._spending.trials - len(in_flight)
        if not open_tasks or left < 1:
            return []
        chosen = next_task(open_tasks, self._peak_gflops, in_flight)
        return [(chosen, min(self._batch, left))]

    def why_stopped(self) -> str:
        """Why there is no task left that trials could be given to."""
        known = sum(map(self._keeping.suffices, self._tasks))
        if known and known == len(self._tasks):
            assert self._keeping.reuse is not None
            return (
                f"the store {self._keeping.reuse.store.name} knows what a run of this budget would "
                f"find: allow more than {FURTHER:g} times as much to look further, or pass "
                "--store none"
            )
        patience = self._spending.budget.patience
        told = f"no improvement of 1 % in {patience} trials, or nothing left to try"
        return f"every task stopped: {told}" + (f"; {known} are known" if known else "")

    def _note_stopped(self) -> None:
        for task in self._tasks:
            patience = self._spending.budget.patience
            if task.best_s is None:
                patience = min(patience, _PATIENCE_WITHOUT_ANY)
            if _without_improvement(task) >= patience:
                self._stopped.add(task.workload.key)


def next_task(
    tasks: Sequence[Task], peak_gflops: float = 0.0, in_flight: Sequence[Task] = ()
) -> Task:
    """The task that should get the next batch.

    Tasks without any trial come first, in the order of ``untouched``, so that no operator stays
    untuned.

    Args:
        tasks: Unfinished tasks, at least one.
        peak_gflops: Measured peak in 1e9 operations/s; 0 if unknown.
        in_flight: Tasks whose trials are measured just now. They are none without any trial, and
            as nothing is known of what those bring, others that have some come before them.
    """
    fresh = untouched(tasks)
    begun = [task for task in tasks if task.spent]
    waiting = [task for task in fresh if task not in in_flight]
    if waiting or not begun:
        return (waiting or fresh)[0]
    fastest = max((_throughput(task) for task in begun), default=0.0)
    return max(begun, key=lambda task: expected_gain(task, peak_gflops, fastest))


def untouched(tasks: Sequence[Task]) -> list[Task]:
    """Tasks without any trial, the heaviest first: weight times the best seconds so far.

    Those are seconds of the untuned program or of the default schedule.

    Those of which nothing is known come last, in the order of what they have to compute.
    """
    fresh = [task for task in tasks if task.spent == 0]
    return sorted(fresh, key=_urgency)


def _urgency(task: Task) -> tuple[bool, float]:
    amount = task.workload.flops if task.best_s is None else task.best_s
    return task.best_s is None, -task.workload.weight * amount


def expected_gain(task: Task, peak_gflops: float, fastest: float) -> float:
    """Weighted seconds that one more trial is expected to save.

    Args:
        task: A task with at least one trial.
        peak_gflops: Measured peak in 1e9 operations/s; 0 if unknown.
        fastest: Best throughput over all tasks, in operations/s.
    """
    best = task.best_s
    if best is None:
        # Nothing could be measured, not even the untuned program: the last to be tried again.
        return 0.0
    # Half of what was spent: the first hit after the untuned program says nothing of the next one.
    window = max(1, min(WINDOW, task.spent // 2))
    before = task.trials[-window - 1].best_s if task.spent > window else None
    backward = 0.0 if before is None else max(0.0, before - best) / window
    # A peak that a task exceeds was measured while others kept the machine busy.
    if peak_gflops * 1e9 > fastest:
        floor = task.workload.flops / (peak_gflops * 1e9)
    else:
        floor = task.workload.flops / (BETA * fastest) if fastest > 0 else 0.0
    forward = max(0.0, best - floor) / task.spent
    return task.workload.weight * (ALPHA * backward + (1 - ALPHA) * forward)


def _throughput(task: Task) -> float:
    return task.workload.flops / task.best_s if task.best_s else 0.0


def _without_improvement(task: Task) -> int:
    """Trials since the best last fell by more than 1 %."""
    reference: float | None = None
    since = 0
    for trial in task.trials:
        since += 1
        if trial.best_s is not None and (reference is None or trial.best_s < 0.99 * reference):
            reference = trial.best_s
            since = 0
    return since
