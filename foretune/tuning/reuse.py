"""What a store of records knows of the tasks of a run, and what a run leaves in it.

The idea: what was measured of a program, here or by somebody else, need not be measured again. How
far an entry can be trusted decides what it is good for.

1. It *fits* where code generation, hardware and the way of measuring are those of this run
   (``misfit``). Its best schedules cost no trial: they are timed beside the default schedule before
   the first trial, so that an entry that is stale or wrong makes nothing slower. All of them teach
   the cost model and the strategy.
2. Where the hardware is another one of the same kind, or something else does not fit, its best
   schedules are suggestions: they are tried first, each for a trial.
3. Everything else is a miss. A miss is never an error; the log says why.

When the store knows *enough* of a task, the run spends no trial on it: when a run that came to its
end allowed at least a quarter (``FURTHER``) of the trials per task that this one allows, or when
there are as many trials of it. Who asks for more than four times as much wants to look further. The
allowance counts and not the trials of the one task, because a run gives its trials to the tasks
that gain most, and few to the others. A task whose stored best was clearly faster than its default
schedule (``_CLEARLY``), and is not any more, is tuned after all.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foretune.errors import RecordError
from foretune.hardware import Hardware
from foretune.records import (
    ALLOWED,
    KNOWLEDGE,
    Entry,
    Record,
    Standings,
    Store,
    spent_trials,
    top,
)
from foretune.tuning.task import Task

logger = logging.getLogger(__name__)

FURTHER = 4.0
"""A run that allows more than so many times the trials of an earlier one looks further."""
_CLEARLY = 1.05
"""A gain over the default schedule below which either may win the next comparison."""
_TAUGHT = 256
"""Schedules of a task, the best ones, that teach a run."""
_SUGGESTED = 8
"""Schedules of each other hardware that are suggested."""
_AGAIN_S = 600.0
"""Until a store that could not be written is tried again."""
_OF_NO_MATTER = {"python", "elapsed_s", "fixed_addresses", "devices", ALLOWED}
"""Of an environment: what a schedule's worth does not depend on, as it is timed again anyway."""
_OF_NO_MATTER_IN_POLICY = {
    "workers", "window", "build_timeout_s", "build_factor", "build_least_s", "run_timeout_s",
    "reference_timeout_s", "start_timeout_s", "max_start_failures", "memory_bytes",
    "recycle_builds", "workspace_bytes",
}  # fmt: skip
"""Of a policy: what limits costs, and where a network's other kernels put their results."""


def misfit(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why what was measured in an environment does not fit another one; empty where it does.

    Before → after: ``{"tvm": "0.26"}, {"tvm": "0.27"}`` → ``"tvm is 0.26 there and 0.27 here"``.
    """
    theirs, ours = _that_matters(there), _that_matters(here)
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            return f"{name} is {theirs.get(name)} there and {ours.get(name)} here"
    return ""


def _that_matters(environment: Mapping[str, Any]) -> dict[str, Any]:
    settings = {k: v for k, v in environment.items() if k not in _OF_NO_MATTER and k != "policy"}
    for name, value in (environment.get("policy") or {}).items():
        if name not in _OF_NO_MATTER_IN_POLICY:
            settings[f"policy.{name}"] = list(value) if isinstance(value, tuple) else value
    return settings


@dataclass(frozen=True)
class Known:
    """What a store knows of one task.

    Attributes:
        fitting: Records that fit, failures included.
        schedules: Their candidates but the baselines, the best first, one record each.
        others: The best records that do not fit but may be worth a trial.
        missed: Reason to number of the records that do not fit.
        allowed: Most trials per task that a run allowed which came to its end with this one.
        enough: Whether this run need not spend a trial.
        promises: Whether the best of them is clearly faster than the default schedule.
    """

    fitting: Sequence[Record] = ()
    schedules: Sequence[Record] = ()
    others: Sequence[Record] = ()
    missed: Mapping[str, int] = field(default_factory=dict)
    allowed: float = 0.0
    enough: bool = False
    promises: bool = False


class Reuse:
    """A store beside a run: told to the tasks at the start, written to after every round.

    Args:
        store: Where; the caller closes it. What goes wrong with it is a warning: a run that has
            begun does not end because a store is away, and its journal has all records.
        work_dir: Of the run, for the remedy in messages.
    """

    def __init__(self, store: Store, work_dir: str = "") -> None:
        self.store = store
        self._work_dir = work_dir
        self._known: dict[str, Known] = {}
        self._waiting: list[Record] = []
        self._again_at = 0.0
        self._tasks: dict[str, Task] = {}
        self._warned = False

    def inform(
        self,
        tasks: Sequence[Task],
        environment: Mapping[str, Any],
        share: float,
        own: Iterable[Record] = (),
    ) -> None:
        """Tells tasks what the store knows of them.

        Args:
            tasks: Of the run.
            environment: Of the run.
            share: Trials per task that the run allows.
            own: Records of the run's journal, which the tasks know. Those that the store lacks,
                because a run was killed before they were written, are written with the next.
        """
        self._tasks = {task.workload.key: task for task in tasks}
        ours = {record.identity: record for record in own}
        there: set[tuple[object, ...]] = set()
        try:
            kinds = {key: machine.kind for key, machine in self.store.hardware().items()}
            for task in tasks:
                stored = self.store.records(workload=task.workload.key)
                there |= {record.identity for record in stored} & set(ours)
                foreign = [record for record in stored if record.identity not in ours]
                self._known[task.workload.key] = _known(task, foreign, kinds, environment, share)
        except RecordError as error:
            self._warn(f"nothing is reused from the store: {error}")
        for task in tasks:
            known = self.of(task)
            task.know(known.schedules[:_TAUGHT], known.others)
            _log(task, known)
        self.keep(record for identity, record in ours.items() if identity not in there)

    def of(self, task: Task) -> Known:
        """What the store knows of a task."""
        return self._known.get(task.workload.key, Known())

    def suffices(self, task: Task) -> bool:
        """Whether a task needs no trial: enough is known of it, and that has proven true."""
        known = self.of(task)
        return known.enough and (task.best_is_known or not known.promises)

    def keep(self, records: Iterable[Record]) -> None:
        """Takes records of the run that are on disk already, to be written with ``flush``.

        Only those of programs that ran and were checked, and not those of naive programs.
        """
        self._waiting += [
            record
            for record in records
            if record.measurement.ok
            and not self._is_naive(record)
            and (record.environment.get("policy") or {}).get("check_output", True)
        ]

    def flush(self, last: bool = False) -> None:
        """Writes what waits; where that fails it goes on waiting, with one warning.

        A store that is away has a run wait for it once in a while, and at its end (``last``), not
        after every round.
        """
        now = time.monotonic()
        if not self._waiting or (now < self._again_at and not last):
            return
        entries: list[Entry] = []
        for key in dict.fromkeys(record.workload for record in self._waiting):
            if key in self._tasks:
                entries += [self._tasks[key].workload, self._tasks[key].hardware]
        try:
            self.store.write([*entries, *self._waiting])
        except RecordError as error:
            self._again_at = time.monotonic() + _AGAIN_S
            self._warn(
                f"what is measured is not in the store: {error}"
                + (
                    f"; `foretune db merge STORE {self._work_dir}` adds it"
                    if self._work_dir
                    else ""
                )
            )
            return
        self._waiting = []

    def to_json(self) -> dict[str, Any]:
        """The object ``reused`` of ``foretune.tune/1``."""
        return {
            "store": self.store.name,
            "unwritten": len(self._waiting),
            "tasks": [
                {
                    "name": task.workload.name,
                    "key": key,
                    "fitting": len(self.of(task).schedules),
                    "suggested": len(self.of(task).others),
                    "missed": dict(self.of(task).missed),
                    "enough": self.suffices(task),
                    "best": task.best_is_known,
                }
                for key, task in self._tasks.items()
            ],
        }

    def _is_naive(self, record: Record) -> bool:
        task = self._tasks.get(record.workload)
        return task is not None and record.candidate_key == task.space.untuned.key

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s", message)


def _known(
    task: Task,
    stored: Sequence[Record],
    kinds: Mapping[str, str],
    environment: Mapping[str, Any],
    share: float,
) -> Known:
    """Sorts what a store holds of a task by what it is good for.

    Args:
        task: The task.
        stored: All records of its workload.
        kinds: Hardware key to its kind of target.
        environment, share: See ``Reuse.inform``.
    """
    fitting: list[Record] = []
    elsewhere: dict[str, list[Record]] = {}
    missed: Counter[str] = Counter()
    for record in stored:
        reason = _why_not(record, task.hardware, kinds, environment)
        if not reason:
            fitting.append(record)
            continue
        missed[reason] += 1
        if kinds.get(record.hardware, task.hardware.kind) == task.hardware.kind:
            elsewhere.setdefault(record.hardware, []).append(record)
    standings = Standings(fitting)
    ranked = standings.ranked()
    default = task.space.default or task.space.untuned
    promised = _gain(ranked[0], standings.seconds(default.key)) if ranked else 1.0
    allowed = max((float(r.environment.get(ALLOWED, 0.0)) for r in fitting), default=0.0)
    enough = FURTHER * allowed >= share or spent_trials(fitting) >= share
    return Known(
        fitting=fitting,
        schedules=[r for r in ranked if not task.baselines.include(r.candidate_key)],
        others=[record for group in elsewhere.values() for record in top(group, _SUGGESTED)],
        missed=dict(missed),
        allowed=allowed,
        enough=bool(ranked) and enough,
        promises=promised > _CLEARLY,
    )


def _gain(best: Record, default_s: float | None) -> float:
    """How many times as fast as the default schedule a record is; infinity if that is unknown."""
    best_s = best.measurement.best_s
    return math.inf if default_s is None or not best_s else default_s / best_s


def _why_not(
    record: Record,
    hardware: Hardware,
    kinds: Mapping[str, str],
    environment: Mapping[str, Any],
) -> str:
    """Why a record does not fit; empty where it does."""
    if record.origin in KNOWLEDGE:
        return "others measured it, and nobody checked its output"
    kind = kinds.get(record.hardware, hardware.kind)
    if kind != hardware.kind:
        return f"measured on {kind} and not on {hardware.kind}"
    reason = misfit(record.environment, environment)
    if not reason and record.hardware != hardware.key:
        return "measured for another target, processor or number of threads"
    return reason


def _log(task: Task, known: Known) -> None:
    """What was found, for ``--verbose``."""
    name = task.workload.name
    if not known.fitting and not known.missed:
        logger.info("%s: the store has no record of it", name)
        return
    logger.info(
        "%s: the store knows %d schedules that fit%s, and suggests %d",
        name,
        len(known.schedules),
        ", which is enough" if known.enough else "",
        len(known.others),
    )
    for reason, count in known.missed.items():
        logger.info("%s: %d records of the store do not fit: %s", name, count, reason)
