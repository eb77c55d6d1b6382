"""Where the records of a run go, and where those of others come from: its journal, and a store.

A record is on disk before it is used. Tuners that share a journal learn from each other after every
round. A store of many runs gets what ran and was checked, and may be away.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretune.records import ALLOWED, Journal, Record
from foretune.tuning.budget import Spending
from foretune.tuning.reuse import Reuse
from foretune.tuning.task import Task


class Keeping:
    """Writes records down, and has tasks take those that others wrote.

    Args:
        tasks: Of the run.
        spending: Of the run.
        journal: None keeps records in memory only.
        reuse: What a store of records knows, and takes; none if None.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        spending: Spending,
        journal: Journal | None = None,
        reuse: Reuse | None = None,
    ) -> None:
        self.journal = journal
        self.reuse = reuse
        self._tasks = tasks
        self._spending = spending
        self._seen = 0

    def restore(self) -> None:
        """Has the tasks take what earlier runs left in the journal, and counts their seconds."""
        if self.journal is None:
            return
        with self._spending.clock.on("setup_s"):
            for task in self._tasks:
                self.journal.add_workload(task.workload)
            self._absorb()
            # Of all records: measuring baselines and confirming bests take their time as well.
            self._spending.earlier_s = max(
                (
                    float(record.environment.get("elapsed_s", 0.0))
                    for task in self._tasks
                    for record in self.records_of(task)
                ),
                default=0.0,
            )

    def recall(self, environment: Mapping[str, Any]) -> None:
        """Has the tasks told what the store knows."""
        if self.reuse is None:
            return
        with self._spending.clock.on("setup_s"):
            own = [record for task in self._tasks for record in self.records_of(task)]
            self.reuse.inform(self._tasks, environment, self._spending.share, own)

    def look_beside(self) -> None:
        """Counts and learns from the trials of other tuners that write to this journal."""
        if self.journal is None:
            return
        with self._spending.clock.on("journal_s"):
            self.journal.refresh()
            if len(self.journal) > self._seen:
                self._absorb()

    def write(self, records: Sequence[Record]) -> None:
        """Writes records down: all of them, or none."""
        if self.journal is not None:
            with self._spending.clock.on("journal_s"):
                self.journal.extend(records)
                self._seen += len(records)
        if self.reuse is not None:
            self.reuse.keep(records)

    def flush(self, last: bool = False) -> None:
        """Writes what was measured into the store; see ``Reuse.flush``."""
        if self.reuse is not None:
            with self._spending.clock.on("journal_s"):
                self.reuse.flush(last)

    def suffices(self, task: Task) -> bool:
        """Whether the store knows enough of a task."""
        return self.reuse is not None and self.reuse.suffices(task)

    def allowance(self, task: Task, ended: bool) -> dict[str, float]:
        """What a record tells later runs: how much was allowed before it, if anything was.

        Args:
            task: Of the record.
            ended: Whether the run has come to its end with this task.
        """
        allowed = 0.0 if self.reuse is None else self.reuse.of(task).allowed
        if ended and not self.suffices(task):
            allowed = max(allowed, self._spending.share)
        return {ALLOWED: allowed} if allowed else {}

    def note_ends(self) -> None:
        """Tells the store of tasks that came to their end without a comparison.

        Nothing came near the default schedule there, so that there was nothing to compare.
        """
        for task in self._tasks:
            record = task.best_record
            if self.reuse is None or record is None or self.suffices(task):
                continue
            if float(record.environment.get(ALLOWED, 0.0)) < self._spending.share:
                environment = {**record.environment, **self.allowance(task, ended=True)}
                self.reuse.keep([replace(record, time=time.time(), environment=environment)])

    def records_of(self, task: Task) -> list[Record]:
        """What the journal holds of a task."""
        if self.journal is None:
            return []
        return self.journal.records(workload=task.workload.key, hardware=task.hardware.key)

    def _absorb(self) -> None:
        """Tells the tasks what the journal holds and they have not seen."""
        assert self.journal is not None
        self._seen = len(self.journal)
        for task in self._tasks:
            task.take(self.records_of(task))
            task.learn()
