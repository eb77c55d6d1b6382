"""The one loop that joins strategies, cost models and measurers, over one or many tasks.

Order of things in every round: allocate → ask → measure → write to the journal → learn. A record
is on disk before it is used; a killed run resumes with what it spent counted as spent.

Reading order: ``budget`` (what may be spent), ``workbench`` (what the parts share), then the parts
as the loop takes them: ``keeping`` (journal and store), ``beaten`` (what tuning has to beat),
``allocate`` (who gets trials), ``rounds``, ``confirm``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from foretune.errors import NothingMeasuredError
from foretune.measure import Measurer
from foretune.records import Journal
from foretune.tuning.allocate import Allocation
from foretune.tuning.beaten import Beaten
from foretune.tuning.budget import Budget, Outside, Spending, check_batch, fitting_batch
from foretune.tuning.confirm import Confirmation
from foretune.tuning.events import Progress, Silent
from foretune.tuning.keeping import Keeping
from foretune.tuning.reuse import Reuse
from foretune.tuning.rounds import Round
from foretune.tuning.task import Task
from foretune.tuning.workbench import Workbench

logger = logging.getLogger(__name__)


class Tuner:
    """Tunes tasks under one budget.

    Args:
        tasks: What to tune, perhaps nothing; tasks may share one cost model.
        measurer: Who measures; the caller closes it.
        budget: Trials or seconds.
        journal: Where records go. None keeps them in memory only.
        reuse: What a store of records knows, and takes; none if None.
        batch: Candidates per round, at least 1; the default fits the batch to the budget.
        peak_gflops: Measured peak, for the allocation between tasks.
        progress: Who is told.
        outside: What of the run lies before the tuner, and after it; nothing if None.
        ahead: Whether the next round is asked for while one is measured: for devices that would
            wait for the search. The same seed leads to other candidates than without.

    Attributes:
        spending: What was spent of the budget.
        environment: That of the measurer.
        interrupted: Whether Ctrl-C has ended the run.
        after_restore: Called when the records of earlier runs were taken in.
        after_round: Called when a round has ended.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        measurer: Measurer,
        budget: Budget,
        *,
        journal: Journal | None = None,
        reuse: Reuse | None = None,
        batch: int | None = None,
        peak_gflops: float = 0.0,
        progress: Progress | None = None,
        outside: Outside | None = None,
        ahead: bool = False,
    ) -> None:
        check_batch(batch)
        self.tasks = list(tasks)
        self.budget = budget
        self.batch = batch or fitting_batch(budget, max(1, len(tasks)))
        self.progress = progress or Silent()
        self.reuse = reuse
        self.interrupted = False
        self.environment = measurer.environment()
        for task in self.tasks:
            task.environment = self.environment
        self.after_restore: Callable[[], None] = _nothing
        self.after_round: Callable[[], None] = _nothing
        self._outside = outside or Outside()
        self._ahead = ahead
        self.spending = Spending(budget, self.tasks, self._outside)
        self._keeping = Keeping(self.tasks, self.spending, journal, reuse)
        self._allocation = Allocation(
            self.tasks, self.spending, self._keeping, self.batch, peak_gflops
        )
        self._bench = Workbench(
            self.tasks, measurer, self.environment, self.spending, self._keeping, self.progress
        )

    def run(self) -> None:
        """Tunes until the budget is spent, every task has stopped, or Ctrl-C.

        Raises:
            NothingMeasuredError: Not one program, tuned or untuned, could be measured; but not
                where the time is spent and there is a proven network to ship.
            RecordError: A record could not be written; nothing after it was used.
        """
        self.progress.start(self.tasks, self.budget)
        if not self.tasks:
            self.progress.stopped("there is nothing to tune: the model has no tunable operator")
            self.progress.finish()
            return
        confirmation = Confirmation(self._bench)
        try:
            self._begin()
            confirmation.prove_known()
            self._tune()
            confirmation.conclude()
            self._keeping.note_ends()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            # Who has interrupted a run does not wait for a store that is away.
            self._keeping.flush(last=not self.interrupted)
            self.progress.finish()
        if all(task.best_s is None for task in self.tasks):
            self._nothing_measured()

    def _begin(self) -> None:
        """Takes in what is known, and measures what has to be beaten."""
        self._keeping.restore()
        if self.spending.trials:
            self.progress.resumed(self.spending.trials, self.spending.elapsed_s)
        self._keeping.recall(self.environment)
        self.after_restore()
        beaten = Beaten(self._bench)
        if self._outside.proven:
            # The network is compared as a whole: nobody would deploy its naive programs.
            beaten.leave_untuned()
        beaten.measure()

    def _tune(self) -> None:
        """Rounds, until there is nothing left to spend, or nobody to spend it on."""
        self._keeping.look_beside()
        first = self._allocation.first_look()
        following = self._measure(Round.asked(self._bench, first)) if first else None
        while True:
            self._keeping.look_beside()
            if not self.spending.allows_more:
                return
            if following is None:
                wanted = self._allocation.next()
                if not wanted:
                    self.progress.stopped(self._allocation.why_stopped())
                    return
                following = Round.asked(self._bench, wanted)
            following = self._measure(following)

    def _measure(self, present: Round) -> Round | None:
        """Measures a round; the next one, where that was asked for meanwhile."""
        rounds: list[Round] = []

        def ask() -> None:
            wanted = self._allocation.next(in_flight=list(present.owners.values()))
            rounds.append(Round.asked(self._bench, wanted))

        present.run(self._bench, meanwhile=ask if self._ahead else None)
        self._keeping.flush()
        self.after_round()
        return next((each for each in rounds if each.owners), None)

    def _nothing_measured(self) -> None:
        if self.interrupted:
            return
        reasons: dict[str, int] = {}
        for task in self.tasks:
            for trial in task.trials:
                reasons[trial.status] = reasons.get(trial.status, 0) + 1
        seconds, clock = self.budget.seconds, self.spending.clock
        if seconds is not None and not reasons and not self.spending.in_time:
            told = (
                f"the budget of {seconds:g} s was spent before anything could be measured "
                f"(set-up took {clock.setup_s:.1f} s, the proof {clock.proof_s:.1f} s)"
            )
            if not self._outside.proven:
                raise NothingMeasuredError(f"{told}: allow more with --time")
            logger.warning(
                "%s, so the network stays as it is by default: allow more with --time", told
            )
            return
        told = ", ".join(f"{count} {status}" for status, count in sorted(reasons.items()))
        raise NothingMeasuredError(
            f"no program of {len(self.tasks)} tasks could be measured ({told or 'no trial ran'}): "
            "see the messages in the journal, `foretune db info WORK_DIR`"
        )


def _nothing() -> None:
    """What is done after a round or a restoration unless somebody wants something."""
