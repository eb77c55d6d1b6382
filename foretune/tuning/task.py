"""One workload being tuned: its space, its strategy, and everything measured so far.

``Task`` is the ask/tell interface for people who own the loop, and what the tuner's loop drives::

    task = foretune.Task(workload, hardware, strategy="evolutionary", cost_model="gbdt", seed=0)
    while task.spent < 64:
        candidates = task.ask(8)
        task.tell([(c, my_own_measurement(c)) for c in candidates])
    print(task.best_s, task.best)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from foretune import cost, search
from foretune.cost import CostModel
from foretune.errors import BadInputError, unknown_name
from foretune.hardware import Hardware
from foretune.measure import Measurement
from foretune.records import (
    ALLOWED,
    CONFIRM,
    DEFAULT,
    KNOWLEDGE,
    UNTUNED,
    Record,
    Standings,
    is_trial,
    with_candidates,
)
from foretune.search.portfolio import Portfolio
from foretune.search.portfolio import shipped as shipped_portfolio
from foretune.space import Candidate, Space
from foretune.workload import Workload

DEFAULT_STRATEGY = "evolutionary"

_SUGGESTED = 32
"""Schedules of other programs that a strategy is told of at a time."""
_LONG_S = 1.0
_NO_RIVAL = 10.0
"""A program that takes longer than a second and than ten times the best is not timed again."""
_DOUBTFUL = 0.9
"""A comparison that a baseline wins is in doubt where a contender takes less than this share."""
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


@dataclass(frozen=True)
class Trial:
    """One counted measurement, as the command line's JSON reports it.

    Attributes:
        index: 0 for the first trial of the task.
        elapsed_s: Seconds since the run began, time of resumed runs included.
        status: ``Status`` value.
        seconds: Readings in seconds per call, or None on failure.
        best_s: Lowest seconds per call of the task after this trial, or None.
        origin: The strategy that proposed it.
    """

    index: int
    elapsed_s: float
    status: str
    seconds: tuple[float, ...] | None
    best_s: float | None
    origin: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the fields of the contract."""
        return {
            "index": self.index,
            "elapsed_s": self.elapsed_s,
            "status": self.status,
            "seconds": None if self.seconds is None else list(self.seconds),
            "best_s": self.best_s,
            "origin": self.origin,
        }


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

    Attributes:
        environment: What records of this run carry. Baselines and comparisons that carry another
            one are measured again, because their seconds do not compare. None: all of them count.

    Raises:
        BadInputError: Unknown strategy or cost model, or the strategy refuses an option.
    """

    def __init__(
        self,
        workload: Workload,
        hardware: Hardware,
        *,
        strategy: str = "default",
        cost_model: str | CostModel = "default",
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
        self._asked_portfolio: int | None = None
        self.trials: list[Trial] = []
        self.exhausted = False
        self.environment: Mapping[str, Any] | None = None
        self._standings = Standings(comparable=self._comparable)
        self._suggested = Standings()
        self._tried_since = False
        self._tried: set[str] = set()
        self._baselines: dict[str, bool] = {}
        self._known: set[tuple[object, ...]] = set()
        self._unproven: list[Candidate] = []
        self._from_store: set[str] = set()
        self._without_untuned = False

    @property
    def spent(self) -> int:
        """Trials counted so far, those of resumed runs included."""
        return len(self.trials)

    @property
    def status(self) -> str:
        """A few words of the strategy for the progress of a run; empty where it has none."""
        return self.strategy.status

    @property
    def best(self) -> Candidate | None:
        """The fastest correct candidate so far; the untuned program if nothing beats it."""
        best = self._standings.leader
        return None if best is None else best.candidate

    @property
    def best_record(self) -> Record | None:
        """The record that stands for ``best``."""
        return self._standings.leader

    @property
    def best_s(self) -> float | None:
        """Seconds per call of ``best``: the confirmed value where it was re-measured."""
        best = self._standings.leader
        return None if best is None else best.measurement.best_s

    @property
    def default_s(self) -> float | None:
        """Seconds per call with the default schedule; None where they are unknown.

        Where there is no default schedule, the untuned program is what is compiled.
        """
        default = self.space.default
        return self.untuned_s if default is None else self._standings.seconds(default.key)

    @property
    def untuned_s(self) -> float | None:
        """Seconds per call of the untuned program, None while they are unknown."""
        return self._standings.seconds(self.space.untuned.key)

    @property
    def tuned(self) -> bool:
        """Whether ``best`` is neither the untuned program nor the default schedule."""
        best = self._standings.leader
        return best is not None and best.candidate_key not in self._baselines

    @property
    def confirmed(self) -> bool:
        """Whether ``best`` was timed side by side with the runners-up and the untuned program.

        Without the latter where that takes many times as long.
        """
        best = self._standings.leader
        return best is not None and self._standings.was_compared(best.candidate_key)

    @property
    def has_unproven(self) -> bool:
        """Whether a store knows schedules that were not timed beside the default schedule yet."""
        return bool(self._unproven)

    @property
    def best_is_known(self) -> bool:
        """Whether ``best`` is a schedule that a store knew and no trial of this task found."""
        best = self._standings.leader
        if best is None or best.candidate_key in self._tried:
            return False
        return best.candidate_key in self._from_store

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
        self.exhausted = not candidates
        return candidates

    def tell(
        self, measured: Iterable[tuple[Candidate, Measurement]], *, elapsed_s: float = 0.0
    ) -> list[Record]:
        """Counts measurements as trials, teaches the model and informs the strategy.

        Args:
            measured: Candidates with their measurements, failures included.
            elapsed_s: Seconds since the run began, kept with each trial.

        Returns:
            The records made, in the order given.
        """
        records = [self.record(c, m, elapsed_s=elapsed_s) for c, m in measured]
        self.learn(records)
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
    ) -> Record:
        """Makes the record of one measurement, to be written down before it is used.

        ``ended`` is in seconds since the epoch, now if None; all records of a comparison share it.
        """
        return Record(
            workload=self.workload.key,
            hardware=self.hardware.key,
            candidate_key=candidate.key,
            decisions=candidate.to_json(),
            measurement=measurement,
            origin=self.strategy_name if origin is None else origin,
            time=time.time() if ended is None else ended,
            environment={**(environment or {}), "elapsed_s": elapsed_s},
            candidate=candidate,
        )

    def learn(self, records: Sequence[Record]) -> None:
        """Takes in records of this workload that are on disk already."""
        if not records:
            return
        self.take(records)
        self.teach([r for r in records if is_trial(r)])

    def teach(self, trials: Sequence[Record]) -> None:
        """Updates the model and then tells the strategy, which may ask the model at once."""
        if trials:
            self.model.update(trials)
            self.strategy.tell(trials)
            self._remember(trials)

    def restore(self, records: Iterable[Record]) -> list[Record]:
        """Takes in records read from a journal and not yet seen here, and teaches the model.

        In the order of their time: that of the lines means nothing in a journal that others were
        merged into.

        Returns:
            The trials among them, with their candidates. A record whose decisions this TVM no
            longer generates is left out: an invalid entry is a miss.
        """
        told, others = [], []
        ordered = sorted(records, key=lambda r: r.time)
        # Records of one identity are copies of one line.
        fresh = {r.identity: r for r in ordered if r.identity not in self._known}
        for whole in with_candidates(fresh.values(), self.space):
            key = whole.candidate_key
            if whole.origin in KNOWLEDGE:
                if self._suggested.record(key) is None:
                    others.append(whole)
                self._known.add(whole.identity)
                self._suggested.add(whole)
                continue
            # Tuners that share a journal may both have tried what a third one suggested.
            counts = is_trial(whole) and key not in self._tried
            if counts:
                told.append(whole)
            self._take(whole, counts)
        if told or others:
            self.model.update([*others, *told])
        if told:
            self.strategy.tell(told)
            self._remember(told)
        return told

    def know(self, schedules: Sequence[Record], suggested: Sequence[Record] = ()) -> None:
        """Takes in what a store of records knows of this task; none of it is a trial.

        Args:
            schedules: One record per candidate, the best first, measured where seconds mean what
                they mean here. They teach model and strategy, and the first few are compared with
                the baselines (``to_confirm``); until then none of them can be best.
            suggested: Records of candidates that are worth a trial each.
        """
        known = [
            record
            for record in with_candidates(schedules, self.space)
            if record.candidate_key not in self._tried
            and not self.is_baseline(record.candidate_key)
        ]
        self._from_store = {record.candidate_key for record in known}
        self._unproven = [
            record.candidate
            for record in known[:_PROVEN]
            if record.candidate is not None
            and self._standings.seconds(record.candidate_key) is None
        ]
        if known:
            self.model.update(known)
            self.strategy.tell(known)
            self._remember(known)
        for record in with_candidates(suggested, self.space):
            key = record.candidate_key
            if key not in self._from_store and not self.is_baseline(key):
                self._suggested.add(record)

    def is_baseline(self, key: str) -> bool:
        """Whether a candidate is the untuned program or the default schedule."""
        default = self.space.default
        return key == self.space.untuned.key or (default is not None and key == default.key)

    def _remember(self, trials: Iterable[Record]) -> None:
        """Keeps fast schedules where tasks of other programs find them."""
        for record in trials:
            if record.candidate is not None and record.measurement.ok:
                self.portfolio.add(record.candidate, _seconds(record))

    def take(self, records: Sequence[Record]) -> None:
        """Book-keeping of records: trials, baselines, comparisons, the best."""
        for record in records:
            self._take(record, counts=is_trial(record))

    def _take(self, record: Record, counts: bool) -> None:
        key, compared_at = record.candidate_key, self._standings.compared_at
        self._known.add(record.identity)
        self._standings.add(record)
        if record.origin in (UNTUNED, DEFAULT) or (
            record.origin == CONFIRM and self._is_fixed(key)
        ):
            self._baselines[key] = self._baselines.get(key, False) or self._comparable(record)
        if self._standings.compared_at != compared_at:
            self._tried_since = False
        if record.origin == CONFIRM:
            self._unproven = [c for c in self._unproven if c.key != key]
        if counts:
            self._count(record)

    def _count(self, record: Record) -> None:
        self._tried.add(record.candidate_key)
        self._tried_since = True
        self.trials.append(
            Trial(
                index=len(self.trials),
                elapsed_s=float(record.environment.get("elapsed_s", 0.0)),
                status=record.measurement.status.value,
                seconds=record.measurement.seconds or None,
                best_s=self.best_s,
                origin=record.origin,
            )
        )

    def baselines(self) -> list[tuple[Candidate, str]]:
        """What tuning has to beat and was not measured yet, with the origin of its record."""
        return [(c, origin) for c, origin in self._fixed() if not self._baselines.get(c.key)]

    @property
    def default_known(self) -> bool:
        """Whether the default schedule was measured in this environment, and computes the same."""
        key = None if self.space.default is None else self.space.default.key
        if key is None or self._standings.record(key) is None:
            return False
        return self._baselines.get(key, False)

    def leave_untuned(self) -> None:
        """Has the untuned program never measured: its default schedule is what has to be beaten.

        Raises:
            BadInputError: There is no default schedule, or it is the untuned program.
        """
        if self.space.default in (None, self.space.untuned):
            raise BadInputError(
                f"a task without its untuned program must have a default schedule, but "
                f"{self.workload.name!r} has none: measure the untuned program"
            )
        self._without_untuned = True

    def _is_fixed(self, key: str) -> bool:
        return any(key == candidate.key for candidate, _ in self._fixed())

    def _fixed(self) -> list[tuple[Candidate, str]]:
        """The candidates that need no search, with the origins of their records."""
        known = [] if self._without_untuned else [(self.space.untuned, UNTUNED)]
        default = self.space.default
        if default is not None and default != self.space.untuned:
            known.append((default, DEFAULT))
        return known

    def contenders(self, limit: int = 3, within: float = 1.05) -> list[Candidate]:
        """The candidates worth confirming: the best and those within a factor of it.

        Readings of another environment are ranked apart, and only until a first comparison.
        """
        ranked = sorted(
            (r for r in self._standings.ranked() if r.candidate_key != self.space.untuned.key),
            key=_seconds,
        )
        here = [r for r in ranked if self._comparable(r)]
        elsewhere = [r for r in ranked if not self._comparable(r)]
        if self._standings.last_comparison():
            elsewhere = []
        return [
            r.candidate
            for group in (here, elsewhere)
            for r in group[:limit]
            if _seconds(r) <= within * _seconds(group[0]) and r.candidate is not None
        ]

    def to_confirm(self) -> list[Candidate]:
        """What to time side by side to settle which is best; empty where that is settled.

        With the contenders come the best of the last comparison, because seconds of different
        comparisons are not compared, what a store knows, and the baselines. It is not settled where
        a baseline was the best of the last comparison, because contenders failed or were disturbed
        in it, and others were much faster on their own.
        """
        found = self.contenders()
        champion = next(iter(self._standings.last_comparison()), None)
        news = any(not self._standings.was_compared(c.key) for c in found) and (
            self._tried_since or self._is_doubtful(champion, found)
        )
        news = news or self.has_unproven
        found += self._unproven
        if not found or (self.confirmed and not news):
            return []
        if champion is not None and champion.candidate is not None:
            found.append(champion.candidate)
        found += [candidate for candidate, _ in self.baselines()]
        if not self._without_untuned and not self._untuned_is_no_rival():
            found.append(self.space.untuned)
        distinct = {candidate.key: candidate for candidate in found}
        # A baseline with nothing beside it needs no comparison.
        return [] if len(distinct) == 1 and not self.tuned else list(distinct.values())

    def _untuned_is_no_rival(self) -> bool:
        """Whether it takes long and is beyond doubt the slower one, also if it was cut short."""
        seconds, best_s = self.untuned_s, self.best_s
        if seconds is None or best_s is None:
            return False
        return seconds > _LONG_S and seconds > _NO_RIVAL * best_s

    def _is_doubtful(self, champion: Record | None, contenders: Sequence[Candidate]) -> bool:
        """Whether a baseline was the best of a comparison and a contender is much faster."""
        if champion is None or champion.candidate_key not in self._baselines:
            return False
        known = [self._standings.record(candidate.key) for candidate in contenders]
        fastest = min(_seconds(record) for record in known if record is not None)
        return fastest < _DOUBTFUL * _seconds(champion)

    def _best_of_others(self, n: int) -> list[Candidate]:
        """The fastest candidates that others measured and this task has not: a warm start.

        Nobody here checked what they compute, so they are measured like any other candidate.
        """
        ranked = (r for r in self._suggested.ranked() if r.candidate_key not in self._tried)
        return [r.candidate for r in islice(ranked, n) if r.candidate is not None]

    def _comparable(self, record: Record) -> bool:
        """Whether a record was measured in the environment of this run."""
        if self.environment is None:
            return True
        return _settings(record.environment) == _settings(self.environment)


def _seconds(record: Record) -> float:
    best = record.measurement.best_s
    assert best is not None, "an ok measurement has at least one reading"
    return best


def _settings(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What must agree between environments for seconds to be comparable."""
    return {k: v for k, v in environment.items() if k not in ("elapsed_s", "devices", ALLOWED)}
