"""Live progress of a tuning run: a table that stays in place, or plain lines in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foretune.report import _units as units
from foretune.report._network import told_network

if TYPE_CHECKING:
    from foretune.tuning import Budget, Network, Task

_FRAME = 9
"""Lines of the display that are not rows of the table, with one to spare."""


@dataclass
class _Row:
    """What is shown of one task."""

    name: str
    weight: int
    trials: int = 0
    default_s: float | None = None
    best_s: float | None = None
    gflops: float | None = None
    peak_share: float | None = None

    @property
    def weighted_s(self) -> float:
        return (self.best_s or self.default_s or 0.0) * self.weight


class TuneProgress:
    """Shows a run while it goes on; the tuner's loop calls it.

    On a terminal: per task default and best latency, GFLOP/s, share of peak and trials, the task
    at work marked, with the time left. Elsewhere: one line every ``every_s`` seconds.

    Args:
        console: Where to show; standard error if None, so that standard output stays a result.
        every_s: Seconds between two plain lines.
        clock: Seconds from an arbitrary origin.
    """

    def __init__(
        self,
        console: Console | None = None,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._every_s = every_s
        self._clock = clock
        self._tasks: dict[str, Task] = {}
        self._live: Live | None = None
        self._current = ""
        self._phase = "tuning"
        self._budget_trials: int | None = None
        self._budget_s: float | None = None
        self._spent = 0
        self._first: tuple[int, float] | None = None
        self._elapsed_s = 0.0
        self._told = 0.0
        self._began = clock()

    def proved(self, network: Network) -> None:
        """Called before ``start`` when a network works with default schedules."""
        told = told_network(network.to_json())
        after_s = self._clock() - self._began
        if not network.inputs:
            self._say(f"compiled after {after_s:.1f} s; it cannot be run on this machine")
            return
        equal = "equal to the original"
        if network.max_abs_error:
            equal += f" within {network.max_abs_error:.2g}"
        self._say(
            f"proved: {equal} on {network.inputs} inputs after {after_s:.1f} s; "
            f"default {told.default}" + (f", {told.original}" if told.original else "")
        )

    def start(self, tasks: Sequence[Task], budget: Budget) -> None:
        """Called once, before anything is measured."""
        self._tasks = {task.workload.key: task for task in tasks}
        self._budget_trials, self._budget_s = budget.trials, budget.seconds
        self._told = self._clock()
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        else:
            self._say(f"tuning {len(tasks)} tasks")

    def resumed(self, spent: int, elapsed_s: float) -> None:
        """Called after ``start`` when records of earlier runs were taken in.

        Args:
            spent: Trials of all tasks that count as spent.
            elapsed_s: Wall seconds that count as spent.
        """
        self._spent, self._elapsed_s = spent, elapsed_s
        if spent:
            self._say(f"resuming: {spent} trials spent earlier count (--fresh starts anew)")

    def stopped(self, reason: str) -> None:
        """Called when the run ends before its budget is spent; ``reason`` is shown as it is."""
        self._say(reason)

    def update(self, task: Task, spent: int, elapsed_s: float) -> None:
        """Called after every measurement of ``task``; ``spent`` counts trials of all tasks."""
        self._tasks[task.workload.key] = task
        self._current = task.workload.key
        if self._first is None:
            self._first = (spent, elapsed_s)
        self._spent, self._elapsed_s = spent, elapsed_s
        self._phase = "tuning"
        if self._live is None and self._clock() - self._told >= self._every_s:
            self._told = self._clock()
            row = _row(task)
            self._say(
                f"{self._headline()}; {row.name}: best {units.seconds(row.best_s)}, "
                f"{units.rate(row.gflops)} GFLOP/s, {units.share(row.peak_share)} of peak"
            )

    def phase(self, text: str) -> None:
        """Called when the loop turns to something else, for example confirming the bests."""
        self._phase = text
        if self._live is None:
            self._say(text)

    def finish(self) -> None:
        """Called once, also after an interrupt."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._say(f"done: {self._summary()}")

    def left_s(self) -> float | None:
        """Estimated seconds until the budget is spent; None while there is nothing to go by."""
        estimates = []
        if self._budget_s is not None:
            estimates.append(max(0.0, self._budget_s - self._elapsed_s))
        if self._budget_trials is not None and self._first is not None:
            trials, began = self._first
            # A resumed run starts with trials spent: only this run's say how fast it is.
            if self._spent > trials:
                each = (self._elapsed_s - began) / (self._spent - trials)
                estimates.append(max(0.0, each * (self._budget_trials - self._spent)))
        return min(estimates, default=None)

    def _headline(self) -> str:
        left = self.left_s()
        told = f"about {units.duration(left)} left" if left is not None else "time left not known"
        current = self._tasks.get(self._current)
        more = current.status if current is not None else ""
        return f"{self._summary()}, {told}" + (f"; {more}" if more else "")

    def _summary(self) -> str:
        limit = f" of {self._budget_trials}" if self._budget_trials is not None else ""
        return (
            f"{self._spent}{limit} trials in {units.duration(self._elapsed_s)}, "
            f"sum of kernels {units.seconds(self._total())}"
        )

    def _total(self) -> float | None:
        rows = [_row(task) for task in self._tasks.values()]
        if any(row.best_s is None and row.default_s is None for row in rows):
            return None
        return sum(row.weighted_s for row in rows)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _render(self) -> RenderableType:
        table = Table(header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), expand=True)
        table.add_column("", width=1)
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=1)
        for heading in ("weight", "default", "best", "GFLOP/s", "of peak", "trials"):
            table.add_column(heading, justify="right", no_wrap=True, min_width=7)
        rows = {key: _row(task) for key, task in self._tasks.items()}
        ranked = sorted(rows.items(), key=lambda item: item[1].weighted_s, reverse=True)
        room = max(1, self._console.size.height - _FRAME)
        # The task at work is always in view, whatever its rank.
        shown = [
            (key, row)
            for rank, (key, row) in enumerate(ranked)
            if rank < room or key == self._current
        ]
        for key, row in shown:
            table.add_row(
                "▸" if key == self._current else "",
                Text(row.name),
                str(row.weight),
                units.seconds(row.default_s),
                units.seconds(row.best_s),
                units.rate(row.gflops),
                units.share(row.peak_share),
                str(row.trials),
                style="bold" if key == self._current else "",
            )
        hidden = len(ranked) - len(shown)
        more = f" ({hidden} more tasks)" if hidden else ""
        return Group(table, Text(f"{self._phase}: {self._headline()}{more}"))


def _row(task: Task) -> _Row:
    gflops = task.workload.flops / task.best_s / 1e9 if task.best_s else None
    peak = task.hardware.peak_gflops
    return _Row(
        name=task.workload.name,
        weight=task.workload.weight,
        trials=task.spent,
        default_s=task.default_s,
        best_s=task.best_s,
        gflops=gflops,
        peak_share=gflops / peak if gflops and peak else None,
    )
