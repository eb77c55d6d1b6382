"""What the parts of a tuner share: its tasks, who measures, what is written down, who is told."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretune.measure import Measurement, Measurer
from foretune.records import CONFIRM
from foretune.space import Candidate
from foretune.tuning.budget import Spending
from foretune.tuning.events import Progress
from foretune.tuning.keeping import Keeping
from foretune.tuning.task import Task


@dataclass(frozen=True)
class Workbench:
    """Measures candidates of tasks, writes their records down, and then has the tasks take them.

    Attributes:
        tasks: What is tuned.
        measurer: Who measures.
        environment: In which one.
        spending: What was spent of the budget.
        keeping: Where records go.
        progress: Who is told.
    """

    tasks: Sequence[Task]
    measurer: Measurer
    environment: Mapping[str, Any]
    spending: Spending
    keeping: Keeping
    progress: Progress

    def measured(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float]
    ) -> Iterator[tuple[Candidate, Measurement]]:
        """Measures candidates, each alone; see ``Measurer.measure``."""
        measured = self.measurer.measure(candidates, best_s)
        while True:
            with self.spending.clock.on("measuring_s"):
                pair = next(measured, None)
            if pair is None:
                return
            yield pair

    def keep(
        self, task: Task, candidate: Candidate, measurement: Measurement, origin: str | None = None
    ) -> None:
        """Writes a measurement down, and has its task take it."""
        record = task.record(
            candidate,
            measurement,
            origin=origin,
            elapsed_s=self.spending.elapsed_s,
            environment=self.environment,
        )
        self.keeping.write([record])
        task.take([record])

    def compare(self, group: Sequence[tuple[Task, Sequence[Candidate]]], ended: bool) -> None:
        """Times candidates side by side, those of all tasks in one comparison.

        Its records are written at once: half of a comparison must not decide what is best.

        Args:
            group: Tasks with their candidates.
            ended: Whether the run has come to its end with these tasks.
        """
        pairs = [(task, candidate) for task, candidates in group for candidate in candidates]
        with self.spending.clock.on("measuring_s"):
            measurements = self.measurer.compare([candidate for _, candidate in pairs])
        now, elapsed_s = time.time(), self.spending.elapsed_s
        records = [
            task.record(
                candidate,
                measurement,
                origin=CONFIRM,
                elapsed_s=elapsed_s,
                environment={**self.environment, **self.keeping.allowance(task, ended)},
                ended=now,
            )
            for (task, candidate), measurement in zip(pairs, measurements, strict=True)
        ]
        self.keeping.write(records)
        left = iter(records)
        for task, candidates in group:
            task.take(list(itertools.islice(left, len(candidates))))
