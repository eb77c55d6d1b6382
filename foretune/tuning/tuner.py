"""The one loop that joins strategies, cost models and measurers, over one or many tasks.

Order of things in every round: allocate → ask → measure → write to the journal → learn. A record
is on disk before it is used; a killed run resumes with what it spent counted as spent.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Protocol

from foretune.errors import BadInputError, NothingMeasuredError
from foretune.measure import Measurement, Measurer
from foretune.records import ALLOWED, CONFIRM, UNTUNED, Journal, Record
from foretune.space import Candidate
from foretune.tuning.allocate import next_task, untouched
from foretune.tuning.confirm import to_confirm
from foretune.tuning.network import Network
from foretune.tuning.reuse import FURTHER, Reuse
from foretune.tuning.task import Task

logger = logging.getLogger(__name__)

_COMPARISONS = 3
"""Comparisons of a task at most: the contenders of the first may fail or be disturbed in it."""
_COMPARED_TOGETHER = 4
"""Tasks of one comparison: their programs are built in parallel, and all held until its end."""
_LONG_FLOPS = 1e9
_UNTUNED_FLOPS = 1e8
_UNTUNED_SHARE = 0.15
"""In a run of limited time, untuned programs with more than so many operations are measured while
that is expected to take no more than this share of it. Before one was measured, so many of its
operations are expected for each second that measuring it takes, in which it runs several times."""
RESERVE_SHARE = 0.2
"""Share of a budget of seconds, at most, that is left for concluding a network."""
_TRIALS_PER_S = 3.0
"""What a budget of seconds is taken to allow for; measured rates are three to six."""
_PATIENCE_WITHOUT_ANY = 32
"""Trials after which a task of which nothing could be measured, tuned or untuned, is given up."""


@dataclass(frozen=True)
class Budget:
    """How much may be spent, over all tasks and over all resumed runs of one work directory.

    Attributes:
        trials: Measured candidates; None for no limit.
        seconds: Wall seconds of tuning, confirmation included; None for no limit.
        patience: A task stops early after this many trials without an improvement of 1 %.
    """

    trials: int | None = None
    seconds: float | None = None
    patience: int = 256

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise BadInputError("a budget needs trials or seconds: pass --trials N or --time S")
        if self.trials is not None and self.trials < 1:
            raise BadInputError(
                f"`trials >= 1` must hold, but got trials={self.trials}: ask for at least one"
            )
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise BadInputError(
                f"`seconds > 0` must hold, and be finite, but got seconds={self.seconds}: "
                "allow some time, or limit the trials instead"
            )
        if self.patience < 1:
            raise BadInputError(f"`patience >= 1` must hold, but got patience={self.patience}")


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


def check_batch(batch: int | None) -> None:
    """Refuses a number of candidates per round that is no number of candidates."""
    if batch is not None and batch < 1:
        raise BadInputError(
            f"`batch >= 1` must hold, but got batch={batch}: leave it out for one that fits the "
            "budget"
        )


class Tuner:
    """Tunes tasks under one budget.

    Args:
        tasks: What to tune, perhaps nothing; tasks may share one cost model.
        measurer: Who measures; the caller closes it.
        budget: Trials or seconds.
        journal: Where records go. None keeps them in memory only.
        batch: Candidates per round, at least 1; the default fits the batch to the budget.
        peak_gflops: Measured peak, for the allocation between tasks.
        progress: Who is told.
        began: ``time.perf_counter`` when the run began, if that was before the tuner was made.
        proof_s: Seconds since then that went into proving the network.
        plans_s: Seconds since then that went into the search for its plan.
        reserve_s: Seconds of the budget that are left for what follows the tuner, about.
        proven: Whether there is something to ship, even where time suffices for no trial.
        reuse: What a store of records knows, and takes; none if None.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        measurer: Measurer,
        budget: Budget,
        *,
        journal: Journal | None = None,
        batch: int | None = None,
        peak_gflops: float = 0.0,
        progress: Progress | None = None,
        began: float | None = None,
        proof_s: float = 0.0,
        plans_s: float = 0.0,
        reserve_s: float = 0.0,
        proven: bool = False,
        reuse: Reuse | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self.reuse = reuse
        self.measurer = measurer
        self.budget = budget
        self.journal = journal
        check_batch(batch)
        self.batch = batch or fitting_batch(budget, max(1, len(tasks)))
        self.peak_gflops = peak_gflops
        self.progress = progress or Silent()
        self.clock = Clock()
        self.interrupted = False
        self.environment = measurer.environment()
        for task in self.tasks:
            task.environment = self.environment
        self.after_restore: Callable[[], None] = _nothing
        self.after_round: Callable[[], None] = _nothing
        now = time.perf_counter()
        self._began = now if began is None else began
        self.clock.setup_s = now - self._began - proof_s - plans_s
        self.clock.proof_s = proof_s
        self.clock.plans_s = plans_s
        most_s = RESERVE_SHARE * (budget.seconds or 0.0)
        self._reserve_s = min(reserve_s, most_s)
        self._proven = proven
        self._earlier_s = 0.0
        self._stopped: set[str] = set()
        self._seen = 0

    @property
    def spent(self) -> int:
        """Trials counted over all tasks."""
        return sum(task.spent for task in self.tasks)

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the run began, those of resumed runs included."""
        return self._earlier_s + time.perf_counter() - self._began

    @property
    def left_s(self) -> float | None:
        """Wall seconds of the budget that are not spent yet, at least 0; None without a limit."""
        seconds = self.budget.seconds
        return None if seconds is None else max(0.0, seconds - self.elapsed_s)

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
        try:
            self._restore()
            self._recall()
            self.after_restore()
            if self._proven:
                # The network is compared as a whole: nobody would deploy its naive programs.
                self._leave_untuned()
            self._measure_untuned()
            self._prove_known()
            self._first_look()
            while True:
                self._look_beside()
                if not self._within_budget():
                    break
                task = self._next()
                if task is None:
                    self.progress.stopped(self._why_stopped())
                    break
                self._round([self._batch_of(task)])
                self._ended_round()
            self._confirm()
            self._note_ends()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            # Who has interrupted a run does not wait for a store that is away.
            self._flush(last=not self.interrupted)
            self.progress.finish()
        if all(task.best_s is None for task in self.tasks):
            self._nothing_measured()

    def _restore(self) -> None:
        """Takes in what earlier runs left in the journal."""
        if self.journal is None:
            return
        with self.clock.on("setup_s"):
            for task in self.tasks:
                self.journal.add_workload(task.workload)
            self._absorb()
            # Of all records: measuring baselines and confirming bests take their time as well.
            self._earlier_s = max(
                (
                    float(record.environment.get("elapsed_s", 0.0))
                    for task in self.tasks
                    for record in self._records_of(task)
                ),
                default=0.0,
            )
        if self.spent:
            self.progress.resumed(self.spent, self.elapsed_s)

    def _recall(self) -> None:
        """Has the tasks told what the store knows."""
        if self.reuse is None:
            return
        with self.clock.on("setup_s"):
            own = [
                record
                for task in self.tasks
                for record in (self._records_of(task) if self.journal is not None else ())
            ]
            self.reuse.inform(self.tasks, self.environment, self._share, own)

    @property
    def _share(self) -> float:
        """Trials per task that the budget allows for, about."""
        return allowed_trials(self.budget) / len(self.tasks)

    def _suffices(self, task: Task) -> bool:
        """Whether the store knows enough of a task."""
        return self.reuse is not None and self.reuse.suffices(task)

    def _prove_known(self) -> None:
        """Compares what the store knows with the baselines, before a trial is spent."""
        waiting = [task for task in self.tasks if task.unproven]
        if waiting and self._in_time():
            self._confirm_once(waiting, "comparing what the store knows with the defaults")

    def _note_ends(self) -> None:
        """Tells the store of tasks that came to their end without a comparison.

        Nothing came near the default schedule there, so that there was nothing to compare.
        """
        for task in self.tasks:
            record = task.best_record
            if self.reuse is None or record is None or self._suffices(task):
                continue
            if float(record.environment.get(ALLOWED, 0.0)) < self._share:
                environment = {**record.environment, **self._allowance(task, ended=True)}
                self.reuse.keep([replace(record, time=time.time(), environment=environment)])

    def _ended_round(self) -> None:
        self._flush()
        self.after_round()

    def _flush(self, last: bool = False) -> None:
        """Writes what was measured into the store."""
        if self.reuse is not None:
            with self.clock.on("journal_s"):
                self.reuse.flush(last)

    def _why_stopped(self) -> str:
        """Why there is no task left that trials could be given to."""
        known = sum(map(self._suffices, self.tasks))
        if known and known == len(self.tasks):
            assert self.reuse is not None
            return (
                f"the store {self.reuse.store.name} knows what a run of this budget would find: "
                f"allow more than {FURTHER:g} times as much to look further, or pass --store none"
            )
        told = f"no improvement of 1 % in {self.budget.patience} trials, or nothing left to try"
        return f"every task stopped: {told}" + (f"; {known} are known" if known else "")

    def _look_beside(self) -> None:
        """Counts and learns from the trials of other tuners that write to this journal."""
        if self.journal is None:
            return
        with self.clock.on("journal_s"):
            self.journal.refresh()
            if len(self.journal) > self._seen:
                self._absorb()

    def _absorb(self) -> None:
        """Tells the tasks what the journal holds and they have not seen."""
        assert self.journal is not None
        self._seen = len(self.journal)
        for task in self.tasks:
            task.take(self._records_of(task))
            task.learn()

    def _records_of(self, task: Task) -> list[Record]:
        assert self.journal is not None
        return self.journal.records(workload=task.workload.key, hardware=task.hardware.key)

    def _measure_untuned(self) -> None:
        """Measures what tuning has to beat: the untuned programs and the default schedules.

        A task that time does not suffice for can be tuned all the same: what it lacks is compared
        with its best at the end. Where there is a limit of time, untuned programs that take long
        come last, and those that would take too much of it are left out, also where a run goes on
        whose time is spent.
        """
        waiting = {
            candidate.key: (task, candidate, origin)
            for task in self.tasks
            for candidate, origin in task.baselines.missing()
        }
        long = {} if self.budget.seconds is None else self._long_untuned(waiting)
        for key in long:
            waiting.pop(key)
        if self._within_budget():
            if waiting or long:
                self.progress.phase("measuring what tuning has to beat")
            self._measure_baselines(waiting)
        self._measure_long(long)

    def _measure_baselines(self, waiting: dict[str, tuple[Task, Candidate, str]]) -> None:
        """Measures baselines as long as time is left."""
        candidates = [candidate for _, candidate, _ in waiting.values()]
        for candidate, measurement in self._measured(candidates, {}):
            task, _, origin = waiting.pop(candidate.key)
            self._keep(task, candidate, measurement, origin=origin)
            if origin == UNTUNED and measurement.best_s is None:
                logger.warning(
                    "the untuned program of %s could not be measured: %s %s",
                    candidate.workload.name,
                    measurement.status.value,
                    measurement.message,
                )
            if waiting and not self._in_time():
                self.progress.stopped(
                    f"the time was spent before {len(waiting)} of the programs that tuning has to "
                    "beat were measured: allow more with --time"
                )
                return

    def _long_untuned(
        self, waiting: Mapping[str, tuple[Task, Candidate, str]]
    ) -> dict[str, tuple[Task, Candidate, str]]:
        """Untuned programs with much to compute and a default schedule, the smallest first."""
        found = {
            key: entry
            for key, entry in waiting.items()
            if entry[2] == UNTUNED
            and entry[0].space.default not in (None, entry[1])
            and entry[0].workload.flops > _LONG_FLOPS
        }
        return dict(sorted(found.items(), key=lambda item: item[1][0].workload.flops))

    def _measure_long(self, long: Mapping[str, tuple[Task, Candidate, str]]) -> None:
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
            allowed = self._within_budget()
            if task.baselines.default_known and not (
                allowed and self._is_small(spent_s + expected_s)
            ):
                task.baselines.leave_untuned()
                left += 1
            elif allowed:
                began = self.elapsed_s
                self._measure_baselines({key: (task, candidate, origin)})
                took_s = self.elapsed_s - began
                # What fails at once does not show that the next one is fast.
                if task.untuned_s is not None or took_s > expected_s:
                    known.append((task.workload.flops, max(took_s, 1e-9)))
        if left:
            self.progress.stopped(
                f"{left} of the untuned programs were not measured, because that was expected to "
                f"take more than {_UNTUNED_SHARE:.0%} of the time, or more than was left: tuning "
                "has to beat default schedules alone"
            )

    def _long_before(self) -> list[tuple[float, float]]:
        """Operations of long untuned programs measured in earlier runs, and the seconds of that."""
        if self.journal is None:
            return []
        return [
            (task.workload.flops, record.measurement.build_s + record.measurement.run_s)
            for task in self.tasks
            if task.workload.flops > _LONG_FLOPS
            for record in self._records_of(task)
            if record.origin == UNTUNED and record.measurement.run_s > 0
        ]

    def _is_small(self, seconds: float) -> bool:
        """Whether untuned programs may take so long altogether."""
        return self.budget.seconds is None or seconds <= _UNTUNED_SHARE * self.budget.seconds

    def _within_budget(self) -> bool:
        if self.budget.trials is not None and self.spent >= self.budget.trials:
            return False
        return self._in_time()

    def _in_time(self) -> bool:
        if self.budget.seconds is None:
            return True
        return self.elapsed_s < self._tuning_s() - self._confirmation_s()

    def _tuning_s(self) -> float:
        """Seconds of the budget that are the tuner's own."""
        assert self.budget.seconds is not None
        return self.budget.seconds - self._reserve_s

    def _confirmation_s(self) -> float:
        """Seconds set aside for confirming the bests: 0.7 a task, 15 % of the budget at most."""
        assert self.budget.seconds is not None
        return min(0.7 * len(self.tasks), 0.15 * self.budget.seconds)

    def _next(self) -> Task | None:
        for task in self.tasks:
            patience = self.budget.patience
            if task.best_s is None:
                patience = min(patience, _PATIENCE_WITHOUT_ANY)
            if _without_improvement(task) >= patience:
                self._stopped.add(task.workload.key)
        open_tasks = [
            task
            for task in self.tasks
            if not task.exhausted
            and task.workload.key not in self._stopped
            and not self._suffices(task)
        ]
        return next_task(open_tasks, self.peak_gflops) if open_tasks else None

    def _first_look(self) -> None:
        """Trials of all tasks in one round, where whole batches would not get to each of them."""
        self._look_beside()
        fresh = [
            task
            for task in untouched(self.tasks)
            if not task.exhausted and not self._suffices(task)
        ]
        if len(fresh) < 2 or not self._within_budget():
            return
        each = max(1, int(self._trials_left() / (2 * len(fresh))))
        if each >= self.batch:
            return
        seen = fresh if self.budget.trials is None else fresh[: self.budget.trials - self.spent]
        self._round([(task, each) for task in seen])
        self._ended_round()

    def _leave_untuned(self) -> None:
        """Has default schedules alone to be beaten, where there are any."""
        for task in self.tasks:
            if task.baselines.have_default:
                task.baselines.leave_untuned()

    def _trials_left(self) -> float:
        """Trials that the budget allows for, about."""
        left = math.inf if self.budget.trials is None else float(self.budget.trials - self.spent)
        if self.budget.seconds is None:
            return left
        seconds = self._tuning_s() - self._confirmation_s() - self.elapsed_s
        return min(left, _TRIALS_PER_S * seconds)

    def _batch_of(self, task: Task) -> tuple[Task, int]:
        if self.budget.trials is None:
            return task, self.batch
        return task, min(self.batch, self.budget.trials - self.spent)

    def _round(self, wanted: Sequence[tuple[Task, int]]) -> None:
        """Asks tasks for so many candidates, measures them in turns, and teaches the tasks."""
        asked: list[list[tuple[Candidate, Task]]] = []
        for task, n in wanted:
            if asked and not self._in_time():
                break
            with self.clock.on("search_s"):
                asked.append([(candidate, task) for candidate in task.ask(n)])
        # The first of each task, then the second of each: the time may not suffice for all.
        turns = zip_longest(*asked)
        owners = dict(pair for turn in turns for pair in turn if pair is not None)
        best = {task.workload.key: task.best_s for task, _ in wanted if task.best_s is not None}
        for candidate, measurement in self._measured(list(owners), best):
            task = owners[candidate]
            self._keep(task, candidate, measurement)
            self.progress.update(task, self.spent, self.elapsed_s)
            if not self._in_time():
                break
        with self.clock.on("search_s"):
            for task, _ in wanted:
                task.learn()

    def _measured(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float]
    ) -> Iterator[tuple[Candidate, Measurement]]:
        measured = self.measurer.measure(candidates, best_s)
        while True:
            with self.clock.on("measuring_s"):
                pair = next(measured, None)
            if pair is None:
                return
            yield pair

    def _keep(
        self, task: Task, candidate: Candidate, measurement: Measurement, origin: str | None = None
    ) -> None:
        record = task.record(
            candidate,
            measurement,
            origin=origin,
            elapsed_s=self.elapsed_s,
            environment=self.environment,
        )
        self._write([record])
        task.take([record])

    def _write(self, records: Sequence[Record]) -> None:
        if self.journal is not None:
            with self.clock.on("journal_s"):
                self.journal.extend(records)
                self._seen += len(records)
        if self.reuse is not None:
            self.reuse.keep(records)

    def _confirm(self) -> None:
        """Compares each task's contenders and its baselines until no result is in doubt."""
        for done in range(_COMPARISONS):
            if done and self.budget.seconds is not None and self.elapsed_s >= self._tuning_s():
                return
            if not self._confirm_once(self.tasks, "confirming the best candidates", ended=True):
                return

    def _confirm_once(self, tasks: Sequence[Task], phase: str, ended: bool = False) -> bool:
        """One comparison of every task that needs one, the heaviest first; whether any did.

        ``ended`` says that the run has come to its end with these tasks.
        """
        heaviest = sorted(
            tasks, key=lambda task: task.workload.weight * (task.best_s or 0.0), reverse=True
        )
        waiting = [(task, found) for task in heaviest if (found := to_confirm(task))]
        if not waiting:
            return False
        self.progress.phase(phase)
        for done in range(0, len(waiting), _COMPARED_TOGETHER):
            if done and self.budget.seconds is not None and self.elapsed_s >= self._tuning_s():
                self.progress.stopped(
                    f"the time was spent before the bests of {len(waiting) - done} tasks were "
                    "confirmed: allow more with --time"
                )
                return False
            self._compare(waiting[done : done + _COMPARED_TOGETHER], ended)
        return True

    def _compare(self, group: Sequence[tuple[Task, Sequence[Candidate]]], ended: bool) -> None:
        """Times candidates side by side, those of all tasks in one comparison.

        Its records are written at once: half of a comparison must not decide what is best.
        """
        pairs = [(task, candidate) for task, found in group for candidate in found]
        with self.clock.on("measuring_s"):
            measurements = self.measurer.compare([candidate for _, candidate in pairs])
        now, elapsed_s = time.time(), self.elapsed_s
        records = [
            task.record(
                candidate,
                measurement,
                origin=CONFIRM,
                elapsed_s=elapsed_s,
                environment={**self.environment, **self._allowance(task, ended)},
                ended=now,
            )
            for (task, candidate), measurement in zip(pairs, measurements, strict=True)
        ]
        self._write(records)
        for (task, _), record in zip(pairs, records, strict=True):
            task.take([record])

    def _allowance(self, task: Task, ended: bool) -> dict[str, float]:
        """What a comparison tells later runs: how much was allowed before it, if anything was."""
        allowed = 0.0 if self.reuse is None else self.reuse.of(task).allowed
        if ended and not self._suffices(task):
            allowed = max(allowed, self._share)
        return {ALLOWED: allowed} if allowed else {}

    def _nothing_measured(self) -> None:
        if self.interrupted:
            return
        reasons: dict[str, int] = {}
        for task in self.tasks:
            for trial in task.trials:
                reasons[trial.status] = reasons.get(trial.status, 0) + 1
        seconds = self.budget.seconds
        if seconds is not None and not reasons and not self._in_time():
            told = (
                f"the budget of {seconds:g} s was spent before anything could be measured "
                f"(set-up took {self.clock.setup_s:.1f} s, the proof {self.clock.proof_s:.1f} s)"
            )
            if not self._proven:
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


def fitting_batch(budget: Budget, tasks: int) -> int:
    """Candidates per round: at least four rounds for every task that the budget allows for."""
    return max(4, min(16, allowed_trials(budget) // (4 * tasks)))


def allowed_trials(budget: Budget) -> int:
    """Trials that a budget allows for, about where it is one of seconds."""
    if budget.trials is not None:
        return budget.trials
    return int(_TRIALS_PER_S * (budget.seconds or 0.0))


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
