"""One workload being tuned: its space, its strategy, and everything measured so far.

``Task`` is the ask/tell interface for people who own the loop, and what the tuner's loop drives::

    task = foretune.Task(workload, hardware, strategy="evolutionary", cost_model="gbdt", seed=0)
    while task.spent < 64:
        candidates = task.ask(8)
        task.tell([(c, my_own_measurement(c)) for c in candidates])
    print(task.best_s, task.best)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from foretune import cost, search
from foretune.cost import CostModel
from foretune.errors import BadInputError, unknown_name
from foretune.hardware import Hardware
from foretune.measure import Measurement
from foretune.records import (
    KNOWLEDGE,
    CountedTrial,
    History,
    Record,
    Standings,
    Trial,
    settings_of,
    with_candidates,
)
from foretune.search.portfolio import Portfolio
from foretune.search.portfolio import shipped as shipped_portfolio
from foretune.space import Candidate, Space
from foretune.tuning.baselines import Baselines
from foretune.workload import Workload

DEFAULT_STRATEGY = "evolutionary"

_SUGGESTED = 32
"""Schedules of other programs that a strategy is told of at a time."""
_PROVEN = 3
"""Schedules of a store that are timed beside the default schedule."""


def resolve_names(
    strategy: str, cost_model: str, options: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Replaces ``"default"`` by the best known combination, and checks what belongs to it.

    Before → after: ``("default", "default")`` → ``("evolutionary", "joined")``.

    Args:
        strategy, cost_model: Names.
        options: Of the strategy, beside those in its name; None where they are checked elsewhere.

    Raises:
        BadInputError: A name is unknown; the message lists the known ones. Or the strategy refuses
            an option.
    """
    strategy = DEFAULT_STRATEGY if strategy == "default" else strategy
    cost_model = cost.DEFAULT_MODEL if cost_model == "default" else cost_model
    if search.split_name(strategy)[0] not in search.names():
        raise unknown_name("strategy", strategy, [*search.names(), "default"])
    cost.check_name(cost_model)
    if options is None:
        search.proposers.check_name(
            search.split_name(strategy)[1].get("proposer", search.proposers.DEFAULT)
        )
    else:
        search.check(strategy, options)
    return strategy, cost_model


class Task:
    """Asks a strategy for candidates of one workload and keeps what was measured.

    Args:
        workload: What to tune.
        hardware: What to tune it for.
        strategy: A name ``foretune.search.names()`` lists, or ``"default"``.
        cost_model: A name ``foretune.cost.names()`` lists, ``"default"``, or a model (shared with
            other tasks, for example).
        seed: Seeds the strategy and a model made here.
        space: The space, when the caller has generated it already.
        options: Of the strategy, as ``foretune.search.create`` takes them.
        portfolio: Fast schedules of other programs, which the strategy is told of and to which this
            task adds its own: tasks that share one learn from each other. What comes with the
            package if None; ``Portfolio()`` knows nothing.

    Life cycle: construct, then ``ask`` and ``tell`` in turns. Who writes records down before they
    are used makes them with ``record``, and has the task ``take`` them, one by one if he likes, and
    ``learn`` from them; so does who goes on from a journal.

    Attributes:
        history: What was measured, and what follows from it.
        baselines: What tuning has to beat.

    Raises:
        BadInputError: Unknown strategy or cost model, or the strategy refuses an option.
    """

    def __init__(
        self,
        workload: Workload,
        hardware: Hardware,
        *,
        strategy: str = "default",
        cost_model: str | CostModel[Candidate] = "default",
        seed: int = 0,
        space: Space | None = None,
        options: Mapping[str, Any] | None = None,
        portfolio: Portfolio | None = None,
    ) -> None:
        if seed < 0:
            raise BadInputError(f"`seed >= 0` must hold, but got seed={seed}: pass another one")
        model_name = cost_model if isinstance(cost_model, str) else "default"
        self.strategy_name, model_name = resolve_names(strategy, model_name, options or {})
        self.workload = workload
        self.hardware = hardware
        self.space = space if space is not None else Space.generate(workload, hardware)
        self.model = (
            cost.create(model_name, rng=seed, hardware=hardware)
            if isinstance(cost_model, str)
            else cost_model
        )
        rng = np.random.default_rng([seed, int(workload.key, 16)])
        self.strategy = search.create(
            self.strategy_name, self.space, self.model, rng, **(options or {})
        )
        self.portfolio = (
            Portfolio(shipped_portfolio(hardware.kind)) if portfolio is None else portfolio
        )
        self.exhausted = False
        self.history: History[Trial[Candidate]] = History(comparable=self._comparable)
        self.baselines = Baselines(self.space, self.history)
        self._environment: Mapping[str, Any] | None = None
        self._asked_portfolio: int | None = None
        self._suggested: Standings[Trial[Candidate]] = Standings()
        self._from_store: dict[str, Candidate] = {}
        self._asked: dict[str, int] = {}
        self._queued: set[str] = set()
        self._untaught: list[Trial[Candidate]] = []
        self._untaught_of_others: list[Trial[Candidate]] = []

    @property
    def environment(self) -> Mapping[str, Any] | None:
        """What records of this run carry.

        Baselines and comparisons that carry another one are measured again, because their seconds
        do not compare. None: all of them count.
        """
        return self._environment

    @environment.setter
    def environment(self, environment: Mapping[str, Any] | None) -> None:
        self._environment = environment
        self.history.recount()

    @property
    def trials(self) -> list[CountedTrial]:
        """What was counted so far, those of resumed runs included."""
        return self.history.trials

    @property
    def spent(self) -> int:
        """Trials counted so far, those of resumed runs included."""
        return len(self.history.trials)

    @property
    def status(self) -> str:
        """A few words of the strategy for the progress of a run; empty where it has none."""
        return self.strategy.status

    @property
    def best(self) -> Candidate | None:
        """The fastest correct candidate so far; the untuned program if nothing beats it."""
        best = self.best_record
        return None if best is None else best.candidate

    @property
    def best_record(self) -> Trial[Candidate] | None:
        """The record that stands for ``best``."""
        return self.history.standings.leader

    @property
    def best_s(self) -> float | None:
        """Seconds per call of ``best``: the confirmed value where it was re-measured."""
        best = self.best_record
        return None if best is None else best.measurement.best_s

    @property
    def default_s(self) -> float | None:
        """Seconds per call with the default schedule; None where they are unknown.

        Where there is no default schedule, the untuned program is what is compiled.
        """
        default = self.space.default or self.space.untuned
        return self.history.standings.seconds(default.key)

    @property
    def untuned_s(self) -> float | None:
        """Seconds per call of the untuned program, None while they are unknown."""
        return self.history.standings.seconds(self.space.untuned.key)

    @property
    def tuned(self) -> bool:
        """Whether ``best`` is nothing that had to be beaten.

        That is the default schedule, and the untuned program where it is measured. Where it is
        left out, as in networks, a trial may find it faster than the default.
        """
        best = self.best_record
        return best is not None and not self.baselines.must_be_beaten(best.candidate_key)

    @property
    def confirmed(self) -> bool:
        """Whether ``best`` was timed side by side with the runners-up and the untuned program.

        Without the latter where that takes many times as long.
        """
        best = self.best_record
        return best is not None and self.history.standings.was_compared(best.candidate_key)

    @property
    def unproven(self) -> list[Candidate]:
        """What a store knows to be fast and was not timed beside the default schedule yet."""
        first = list(self._from_store.values())[:_PROVEN]
        return [c for c in first if not self.history.was_measured_here(c.key)]

    @property
    def best_is_known(self) -> bool:
        """Whether ``best`` is a schedule that a store knew and no trial of this task found."""
        best = self.best_record
        if best is None or self.history.was_tried(best.candidate_key):
            return False
        return best.candidate_key in self._from_store

    def contenders(self, limit: int = 3, within: float = 1.05) -> list[Candidate]:
        """The candidates that may be the best: the fastest, and those within a factor of it.

        See ``History.nearest``; the untuned program is none of them where it has to be beaten.
        """
        untuned = self.space.untuned.key
        without = untuned if self.baselines.must_be_beaten(untuned) else ""
        nearest = self.history.nearest(limit, within, without)
        return [trial.candidate for trial in nearest]

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` candidates worth measuring next; empty when the space is exhausted."""
        if n < 1:
            raise BadInputError(f"`n >= 1` must hold, but got n={n}: ask for at least one")
        if self._asked_portfolio != self.portfolio.version:
            self._asked_portfolio = self.portfolio.version
            self.strategy.suggest(self.portfolio.suggest(self.space, _SUGGESTED))
        suggested = self._best_of_others(max(1, n // 2))
        known = {candidate.key for candidate in suggested}
        asked = self.strategy.ask(n - len(suggested)) if n > len(suggested) else []
        candidates = suggested + [c for c in asked if c.key not in known]
        for candidate in candidates:
            self._asked.setdefault(candidate.key, len(self._asked))
        self.exhausted = not candidates
        return candidates

    def tell(
        self, measured: Iterable[tuple[Candidate, Measurement]], *, elapsed_s: float = 0.0
    ) -> list[Trial[Candidate]]:
        """Counts measurements as trials, teaches the model and informs the strategy.

        Args:
            measured: Candidates with their measurements, failures included. A candidate counts, and
                teaches, once: later measurements only say what it takes, or that it is wrong.
            elapsed_s: Seconds since the run began, kept with each trial.

        Returns:
            The records made, in the order given.
        """
        records = [self.record(c, m, elapsed_s=elapsed_s) for c, m in measured]
        self.take(records)
        self.learn()
        return records

    def record(
        self,
        candidate: Candidate,
        measurement: Measurement,
        *,
        origin: str | None = None,
        elapsed_s: float = 0.0,
        environment: Mapping[str, Any] | None = None,
        ended: float | None = None,
    ) -> Trial[Candidate]:
        """Makes the record of one measurement, to be written down before it is used.

        ``ended`` is in seconds since the epoch, now if None; all records of a comparison share it.
        """
        return Trial.of(
            candidate,
            measurement,
            self.strategy_name if origin is None else origin,
            {**(environment or {}), "elapsed_s": elapsed_s},
            ended,
        )

    def take(self, records: Iterable[Record]) -> None:
        """Takes in records of this workload, made here or read from a journal, in any order.

        Those that are known already change nothing. A record whose decisions this TVM no longer
        generates is left out: an invalid entry is a miss.
        """
        for record in self.history.add(self._with_candidates(self.history.unknown(records))):
            key = record.candidate_key
            if record.origin in KNOWLEDGE:
                if self._suggested.record(key) is None:
                    self._untaught_of_others.append(record)
                self._suggested.add(record)
            elif record.is_counted and key not in self._queued:
                self._queued.add(key)
                self._untaught.append(record)

    def learn(self) -> None:
        """Updates the model by what was taken in since the last time, and tells the strategy.

        In the order in which the candidates were asked for: what a strategy does next must not
        depend on which of them was measured first.
        """
        trials, others = self._untaught, self._untaught_of_others
        self._untaught, self._untaught_of_others = [], []
        trials.sort(key=lambda record: self._asked.get(record.candidate_key, len(self._asked)))
        self._teach(trials, others)

    def know(self, schedules: Sequence[Record], suggested: Sequence[Record] = ()) -> None:
        """Takes in what a store of records knows of this task; none of it is a trial.

        Args:
            schedules: One record per candidate, the best first, measured where seconds mean what
                they mean here. They teach model and strategy, and the first few are compared with
                the baselines (``unproven``); until then none of them can be best.
            suggested: Records of candidates that are worth a trial each.
        """
        known = [
            record
            for record in with_candidates(schedules, self.space)
            if not self.history.was_tried(record.candidate_key)
            and not self.baselines.include(record.candidate_key)
        ]
        self._from_store = {record.candidate_key: record.candidate for record in known}
        self._teach(known)
        for record in with_candidates(suggested, self.space):
            key = record.candidate_key
            if key not in self._from_store and not self.baselines.include(key):
                self._suggested.add(record)

    def _teach(
        self, records: Sequence[Trial[Candidate]], of_others: Sequence[Trial[Candidate]] = ()
    ) -> None:
        """First the model and then the strategy, which may ask the model at once."""
        if records or of_others:
            self.model.update([*of_others, *records])
        if records:
            self.strategy.tell(records)
        for record in records:
            seconds = record.measurement.best_s
            if record.measurement.ok and seconds is not None:
                # Where tasks of other programs find it.
                self.portfolio.add(record.candidate, seconds)

    def _with_candidates(self, records: Iterable[Record]) -> list[Trial[Candidate]]:
        """Records made here as they are, and those that were read with their candidates."""
        trials: list[Trial[Candidate]] = []
        for record in records:
            if isinstance(record, Trial):
                trials.append(record)
            else:
                trials += with_candidates([record], self.space)
        return trials

    def _best_of_others(self, n: int) -> list[Candidate]:
        """The fastest candidates that others measured and this task did not ask for: a warm start.

        Nobody here checked what they compute, so they are measured like any other candidate.
        """
        was_tried = self.history.was_tried
        ranked = (
            record
            for record in self._suggested.ranked()
            if record.candidate_key not in self._asked and not was_tried(record.candidate_key)
        )
        return [trial.candidate for trial in islice(ranked, n)]

    def _comparable(self, record: Record) -> bool:
        """Whether a record was measured in the environment of this run."""
        if self.environment is None:
            return True
        return settings_of(record.environment) == settings_of(self.environment)
