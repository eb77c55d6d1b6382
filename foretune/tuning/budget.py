"""What a run may spend, what it has spent, and what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated

from foretune._options import Bounds, Count, require_options
from foretune.errors import BadInputError
from foretune.tuning.task import Task

RESERVE_SHARE = 0.2
"""Share of a budget of seconds, at most, that is left for concluding a network."""
_TRIALS_PER_S = 3.0
"""What a budget of seconds is taken to allow for; measured rates are three to six."""


@dataclass(frozen=True)
class Budget:
    """How much may be spent, over all tasks and over all resumed runs of one work directory.

    Attributes:
        trials: Measured candidates; None for no limit.
        seconds: Wall seconds of tuning, confirmation included; None for no limit.
        patience: A task stops early after this many trials without an improvement of 1 %.
    """

    trials: Count | None = None
    seconds: Annotated[float | None, Bounds(gt=0, finite=True)] = None
    patience: Count = 256

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise BadInputError("a budget needs trials or seconds: pass --trials N or --time S")
        require_options("budget", self)

    @property
    def reserve_s(self) -> float:
        """Seconds that concluding a network may take."""
        return math.inf if self.seconds is None else RESERVE_SHARE * self.seconds

    @property
    def allowed_trials(self) -> int:
        """Trials that it allows for, about where it is one of seconds."""
        if self.trials is not None:
            return self.trials
        return int(_TRIALS_PER_S * (self.seconds or 0.0))


@dataclass(frozen=True)
class Outside:
    """What of a run lies before its tuner, and after it.

    Attributes:
        began: ``time.perf_counter`` when the run began; when the tuner is made if None.
        proof_s: Seconds since then that went into proving the network.
        plans_s: Seconds since then that went into the search for its plan.
        reserve_s: Seconds of the budget that are left for what follows the tuner, about.
        proven: Whether there is something to ship, even where time suffices for no trial.
    """

    began: float | None = None
    proof_s: float = 0.0
    plans_s: float = 0.0
    reserve_s: float = 0.0
    proven: bool = False


@dataclass
class Clock:
    """Wall seconds of one run by what they went into; they add up to ``elapsed_s``."""

    search_s: float = 0.0
    journal_s: float = 0.0
    setup_s: float = 0.0
    proof_s: float = 0.0
    plans_s: float = 0.0
    measuring_s: float = 0.0

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Adds the seconds spent inside to the field ``name``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - began)

    def to_json(self) -> dict[str, float]:
        """Seconds by purpose."""
        return asdict(self)


class Spending:
    """What tasks have spent of a budget.

    Args:
        budget: Over all tasks, and over all resumed runs.
        tasks: That spend it.
        outside: What else does.

    Attributes:
        clock: Where this run's seconds went.
        earlier_s: Seconds of earlier runs.
    """

    def __init__(self, budget: Budget, tasks: Sequence[Task], outside: Outside) -> None:
        self.budget = budget
        self.earlier_s = 0.0
        self._tasks = tasks
        now = time.perf_counter()
        self._began = now if outside.began is None else outside.began
        before_s = now - self._began - outside.proof_s - outside.plans_s
        self.clock = Clock(setup_s=before_s, proof_s=outside.proof_s, plans_s=outside.plans_s)
        self._reserve_s = min(outside.reserve_s, RESERVE_SHARE * (budget.seconds or 0.0))

    @property
    def trials(self) -> int:
        """Trials counted over all tasks."""
        return sum(task.spent for task in self._tasks)

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began, those of resumed runs included."""
        return self.earlier_s + time.perf_counter() - self._began

    @property
    def left_s(self) -> float | None:
        """Wall seconds of the budget that are not spent yet, at least 0; None without a limit."""
        seconds = self.budget.seconds
        return None if seconds is None else max(0.0, seconds - self.elapsed_s)

    @property
    def share(self) -> float:
        """Trials per task that the budget allows for, about."""
        return self.budget.allowed_trials / len(self._tasks)

    @property
    def trials_left(self) -> float:
        """Trials that the budget allows for from now on, about."""
        trials = self.budget.trials
        left = math.inf if trials is None else float(trials - self.trials)
        if self.budget.seconds is None:
            return left
        return min(left, _TRIALS_PER_S * (self.searching_s - self.elapsed_s))

    @property
    def tuning_s(self) -> float:
        """Seconds of the budget that are the tuner's own; infinity without a limit."""
        seconds = self.budget.seconds
        return math.inf if seconds is None else seconds - self._reserve_s

    @property
    def searching_s(self) -> float:
        """Seconds of these until the bests are confirmed: that takes 0.7 a task, 15 % at most."""
        seconds = self.budget.seconds
        if seconds is None:
            return math.inf
        return self.tuning_s - min(0.7 * len(self._tasks), 0.15 * seconds)

    @property
    def is_over(self) -> bool:
        """Whether the tuner's time is spent, that for confirming the bests included."""
        return self.elapsed_s >= self.tuning_s

    @property
    def in_time(self) -> bool:
        """Whether there is time for more than confirming the bests."""
        return self.elapsed_s < self.searching_s

    @property
    def allows_more(self) -> bool:
        """Whether neither the trials nor the time are spent."""
        trials = self.budget.trials
        return (trials is None or self.trials < trials) and self.in_time

    def is_within(self, seconds: float, share: float) -> bool:
        """Whether seconds are no more than a share of the time that there is."""
        return self.budget.seconds is None or seconds <= share * self.budget.seconds


def check_batch(batch: int | None) -> None:
    """Refuses a number of candidates per round that is no number of candidates."""
    if batch is not None and batch < 1:
        raise BadInputError(
            f"`batch >= 1` must hold, but got batch={batch}: leave it out for one that fits the "
            "budget"
        )


def fitting_batch(budget: Budget, tasks: int) -> int:
    """Candidates per round: at least four rounds for every task that the budget allows for."""
    return max(4, min(16, budget.allowed_trials // (4 * tasks)))
