"""What a run tells about itself while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from foretune.tuning.budget import Budget
    from foretune.tuning.network import Network
    from foretune.tuning.task import Task


class Progress(Protocol):
    """Where the loop reports what happens; ``foretune.report.TuneProgress`` shows it."""

    def proved(self, network: Network) -> None:
        """Called before ``start`` when a network works with default schedules.

        Called again where another plan of it is tuned, and was proven, too.
        """

    def start(self, tasks: Sequence[Task], budget: Budget) -> None:
        """Called once, before anything is measured."""

    def update(self, task: Task, spent: int, elapsed_s: float) -> None:
        """Called after every measurement of ``task``; ``spent`` counts trials of all tasks."""

    def resumed(self, spent: int, elapsed_s: float) -> None:
        """Called when earlier runs' trials and seconds were counted."""

    def stopped(self, reason: str) -> None:
        """Called when the run ends before its budget is spent, or leaves something undone."""

    def phase(self, text: str) -> None:
        """Called when the loop turns to something else, for example confirming the bests."""

    def finish(self) -> None:
        """Called once, also after an interrupt."""


class Silent:
    """Progress that shows nothing."""

    def proved(self, network: Network) -> None:
        """Shows nothing."""

    def start(self, tasks: Sequence[Task], budget: Budget) -> None:
        """Shows nothing."""

    def update(self, task: Task, spent: int, elapsed_s: float) -> None:
        """Shows nothing."""

    def resumed(self, spent: int, elapsed_s: float) -> None:
        """Shows nothing."""

    def stopped(self, reason: str) -> None:
        """Shows nothing."""

    def phase(self, text: str) -> None:
        """Shows nothing."""

    def finish(self) -> None:
        """Shows nothing."""
