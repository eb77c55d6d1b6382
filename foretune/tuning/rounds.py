"""A round: tasks are asked for candidates, these are measured in turns, and the tasks learn.

The next round may be asked for while one is measured, so that devices elsewhere need not wait for
the search. What it asks for is decided before any measurement of this round is taken in. So it does
not depend on how long measuring takes, and the same seed leads to the same candidates; but a
strategy then knows one round less than it could.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from foretune.space import Candidate
from foretune.tuning.task import Task
from foretune.tuning.workbench import Workbench


@dataclass(frozen=True)
class Round:
    """What is measured next.

    Attributes:
        tasks: That were asked.
        owners: What they asked for, in the order of measurement, each with its task.
    """

    tasks: Sequence[Task] = ()
    owners: Mapping[Candidate, Task] = field(default_factory=dict)

    @classmethod
    def asked(cls, bench: Workbench, wanted: Sequence[tuple[Task, int]]) -> Round:
        """What tasks ask for, so many candidates of each.

        The first of each task come before the second ones: the time may not suffice for all.
        """
        asked: list[list[tuple[Candidate, Task]]] = []
        for task, n in wanted:
            if asked and not bench.spending.in_time:
                break
            with bench.spending.clock.on("search_s"):
                asked.append([(candidate, task) for candidate in task.ask(n)])
        turns = zip_longest(*asked)
        owners = dict(pair for turn in turns for pair in turn if pair is not None)
        return cls([task for task, _ in wanted], owners)

    def run(self, bench: Workbench, meanwhile: Callable[[], None] | None = None) -> None:
        """Measures candidates and teaches their tasks; ends early where the time is spent.

        What was measured is counted at once and taught at the end, so that the order in which
        measurements come changes nothing that a strategy does (``Task.learn``).

        Args:
            bench: Of the run.
            meanwhile: Called once while candidates are measured, before one of them counts.
        """
        best = {task.workload.key: task.best_s for task in self.tasks if task.best_s is not None}
        for candidate, measurement in bench.measured(list(self.owners), best):
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            task = self.owners[candidate]
            bench.keep(task, candidate, measurement)
            bench.progress.update(task, bench.spending.trials, bench.spending.elapsed_s)
            if not bench.spending.in_time:
                break
        with bench.spending.clock.on("search_s"):
            for task in self.tasks:
                task.learn()
