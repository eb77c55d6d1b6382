"""The collector: goes through the groups of a plan and measures their programs.

A part of a group's programs, half by default, is drawn uniformly, so that a model sees the whole
space; the rest evolve from what was measured, as they would in a search, because a model that has
only seen random programs cannot tell the good ones apart. Some may be what the default search
proposes, because a model has to be right about what it is asked. Every record is on disk before the
next visit; a collector that is started again goes on where it was stopped.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretune import cost, search
from foretune._files import write_bytes, write_json
from foretune.cluster import Cluster, require_processor
from foretune.collect.plan import EVOLVED, PREDICTED, SCRATCH, UNIFORM, Plan
from foretune.dataset import AUDIT, Dataset, StoredWorkload, is_valid
from foretune.errors import BadInputError, RecordError
from foretune.hardware import Hardware
from foretune.measure import LabelPolicy, LocalMeasurer, MeasurePolicy, Measurer
from foretune.records import Journal, Record, Trial, with_candidates
from foretune.space import Candidate, Sketch, Space
from foretune.tuning.task import Task
from foretune.workload import Workload

COLLECT_POLICY = LabelPolicy()

_STRATEGY = "evolutionary"
JOURNAL = "collect.jsonl"
_SPACES = "spaces"
_KINDS = "kinds.json"
_MODEL = "cost_model.json"

MeasurerFactory = Callable[[Hardware, MeasurePolicy], Measurer]


class Store:
    """The work directory of a collection: journal, spaces, operator kinds.

    Args:
        path: The directory, made if missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.journal = Journal(self.path / JOURNAL)
        (self.path / _SPACES).mkdir(exist_ok=True)

    def close(self) -> None:
        """Closes the journal. May be called twice."""
        self.journal.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def records(self, workload: str | None = None, hardware: str | None = None) -> list[Record]:
        """What was collected, of a program that was read again the record with all readings.

        Args:
            workload, hardware: Keys of those wanted; all if None.
        """
        records = self.journal.records(workload, hardware)
        kept = {(r.workload, r.hardware, r.candidate_key, r.origin == AUDIT): r for r in records}
        return list(kept.values())

    def candidates(self, machine: Hardware, records: Iterable[Record]) -> list[Candidate]:
        """The programs of some records of one machine, in their order."""
        spaces: dict[str, Space] = {}
        candidates = []
        for record in records:
            workload = self.journal.workloads()[record.workload]
            if workload.key not in spaces:
                spaces[workload.key] = self.space(workload, machine)
            candidates.append(spaces[workload.key].candidate(record.decisions))
        return candidates

    def best(self, machine: Hardware) -> dict[str, float]:
        """Lowest seconds by workload: readings depend on it, as they did when it was collected."""
        best: dict[str, float] = {}
        for record in self.records(hardware=machine.key):
            seconds = record.measurement.best_s
            if record.origin != AUDIT and is_valid(record.measurement) and seconds is not None:
                best[record.workload] = min(best.get(record.workload, seconds), seconds)
        return best

    def space(self, workload: Workload, hardware: Hardware) -> Space:
        """The space of a group: as it was kept, or made now and kept.

        A group keeps the space it was begun with, so that all its records refer to one.
        """
        file = self.file(workload.key, hardware.key)
        if not file.is_file():
            space = Space.generate(workload, hardware)
            text = json.dumps([sketch.to_json() for sketch in space.sketches])
            write_bytes(file, gzip.compress(text.encode(), 6))
            return space
        return Space(workload, hardware, self.sketches(workload, hardware))

    def sketches(self, workload: Workload, hardware: Hardware) -> tuple[Sketch, ...]:
        """The sketches kept for a group, none where it was never begun.

        Raises:
            RecordError: The file is damaged.
        """
        file = self.file(workload.key, hardware.key)
        if not file.is_file():
            return ()
        try:
            return tuple(map(Sketch.from_json, json.loads(gzip.decompress(file.read_bytes()))))
        except (OSError, EOFError, zlib.error, ValueError, TypeError, BadInputError) as error:
            raise RecordError(
                f"{file} is damaged ({error}): delete it, and the space is generated again"
            ) from error

    def kinds(self) -> dict[str, str]:
        """Operator kind of each workload by key."""
        file = self.path / _KINDS
        try:
            return dict(json.loads(file.read_text())) if file.is_file() else {}
        except (OSError, ValueError, TypeError) as error:
            raise RecordError(
                f"{file} is damaged ({error}): delete it, and kinds are judged again"
            ) from error

    def add(self, workloads: Iterable[StoredWorkload], hardware: Iterable[Hardware]) -> None:
        """Keeps what records will refer to."""
        kinds = self.kinds()
        for stored in workloads:
            self.journal.add_workload(stored.workload)
            kinds[stored.workload.key] = stored.kind
        for each in hardware:
            if each.key not in self.journal.hardware():
                self.journal.add_hardware(each)
        write_json(self.path / _KINDS, kinds)

    def expect(self, cost_model: str) -> None:
        """Has all that evolves here evolve with one cost model.

        Raises:
            BadInputError: It evolved with another one so far.
        """
        file = self.path / _MODEL
        known = SCRATCH if self.journal.records() else cost_model
        if file.is_file():
            known = str(json.loads(file.read_text()))
        if known != cost_model:
            raise BadInputError(
                f"a collection evolves with one cost model, and that in {self.path} does with "
                f"{known}, but got {cost_model}: give that one, or choose another --work-dir"
            )
        write_json(file, cost_model)

    def file(self, workload: str, hardware: str) -> Path:
        """Where the space of a group is kept."""
        return self.path / _SPACES / f"{workload}-{hardware}.json.gz"


class Collector:
    """Measures the groups of a plan into a work directory.

    Life cycle: construct, ``run`` once, ``close`` (or use ``with``).

    Args:
        plan: What to collect.
        store: Where to.
        known: What another data set has already. Its groups are gone on with; one that it has
            complete on another processor, with as many threads and vectors as wide, is left out.
        policy: How to measure.
        measurer: Makes the measurer of a hardware; closed with the collector.
        say: Takes lines of progress.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        known: Dataset | None = None,
        policy: MeasurePolicy = COLLECT_POLICY,
        measurer: MeasurerFactory = LocalMeasurer,
        say: Callable[[str], None] = print,
    ) -> None:
        self.plan = plan
        self.store = store
        self._known: dict[tuple[str, str], list[Record]] = {}
        for record in () if known is None else known.records:
            if record.origin != AUDIT:
                self._known.setdefault((record.workload, record.hardware), []).append(record)
        self._machines = {} if known is None else known.hardware
        self._finished: set[tuple[str, str]] = set()
        self._policy = policy
        self._make = measurer
        self._measurers: dict[str, Measurer] = {}
        self._say = say
        self._began = time.monotonic()
        self._measured = 0

    def run(self, seconds: float | None = None, cluster: Cluster | None = None) -> bool:
        """Visits every group that is not complete.

        Args:
            seconds: Stop after the visit in which so much time has passed.
            cluster: Whose nodes measure, each a visit at a time; they must have this machine's
                processor. None measures here.

        Returns:
            Whether the plan is complete.
        """
        if seconds is not None and seconds <= 0:
            raise BadInputError(f"`seconds > 0` must hold, but got seconds={seconds}")
        self.store.expect(self.plan.cost_model)
        self.store.add(self.plan.workloads, self.plan.hardware)
        self._began = time.monotonic()
        visits = ((hardware, self._due(hardware, each)) for hardware, each in self.plan.visits())
        if cluster is not None:
            return self._run_on(cluster, [visit for visit in visits if visit[1]], seconds)
        for hardware, due in visits:
            if self._is_over(seconds):
                return False
            if due:
                self._visit(hardware, due)
        return True

    def _run_on(
        self,
        cluster: Cluster,
        visits: Sequence[tuple[Hardware, list[StoredWorkload]]],
        seconds: float | None,
    ) -> bool:
        asked = [
            (Visit(self.plan, hardware, tuple(due), *self._kept(hardware, due)), self._policy)
            for hardware, due in visits
        ]
        left = len(asked)
        for index, (records, spaces) in cluster.map_alone(visit, asked):
            hardware, due = visits[index]
            for name, data in spaces.items():
                write_bytes(self.store.path / _SPACES / name, data)
            for record in records:
                self.store.journal.append(record)
            self._measured += len(records)
            self._finished.update((stored.workload.key, hardware.key) for stored in due)
            self._report(hardware, due)
            left -= 1
            if left and self._is_over(seconds):
                return False
        return True

    def _kept(
        self, hardware: Hardware, due: Sequence[StoredWorkload]
    ) -> tuple[tuple[Record, ...], dict[str, bytes]]:
        """Records and spaces of groups that were begun."""
        files = [self.store.file(stored.workload.key, hardware.key) for stored in due]
        spaces = {file.name: file.read_bytes() for file in files if file.is_file()}
        records = [r for stored in due for r in self._records(stored.workload, hardware)]
        return tuple(records), spaces

    def _due(self, hardware: Hardware, workloads: Sequence[StoredWorkload]) -> list[StoredWorkload]:
        return [stored for stored in workloads if self._is_due(stored.workload, hardware)]

    def _is_over(self, seconds: float | None) -> bool:
        return seconds is not None and time.monotonic() - self._began >= seconds

    def close(self) -> None:
        """Ends every measuring process. May be called twice."""
        for measurer in self._measurers.values():
            measurer.close()
        self._measurers.clear()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_due(self, workload: Workload, hardware: Hardware) -> bool:
        if (workload.key, hardware.key) in self._finished:
            return False
        if len(self._records(workload, hardware)) >= self.plan.programs:
            return False
        alike = (m for m in self._machines.values() if _are_alike(m, hardware))
        elsewhere = (len(self._known.get((workload.key, machine.key), ())) for machine in alike)
        return max(elsewhere, default=0) < self.plan.programs

    def _records(self, workload: Workload, hardware: Hardware) -> list[Record]:
        """What was collected of a group, here and in the known data set."""
        records = self.store.records(workload.key, hardware.key)
        mine = [record for record in records if record.origin != AUDIT]
        seen = {record.candidate_key for record in mine}
        known = self._known.get((workload.key, hardware.key), ())
        return [record for record in known if record.candidate_key not in seen] + mine

    def _visit(self, hardware: Hardware, workloads: Sequence[StoredWorkload]) -> None:
        """Completes the groups of some workloads on one hardware, side by side."""
        groups = [
            _Group(self.plan, self.store.space(stored.workload, hardware)) for stored in workloads
        ]
        for group in groups:
            group.restore(self._records(group.space.workload, hardware))
        while True:
            asked = [(group, *group.ask()) for group in groups]
            if not any(candidates for _, _, candidates in asked):
                break
            self._measure(hardware, asked)
        # A small space ends a group before it has its programs.
        self._finished.update((stored.workload.key, hardware.key) for stored in workloads)
        self._report(hardware, workloads)

    def _measure(
        self, hardware: Hardware, asked: Sequence[tuple[_Group, str, list[Candidate]]]
    ) -> None:
        origin = {c.key: (group, origin) for group, origin, cs in asked for c in cs}
        best = {g.space.workload.key: g.best_s for g, _, _ in asked if g.best_s is not None}
        measurer = self._measurer(hardware)
        environment = measurer.environment()
        queues = [list(candidates) for _, _, candidates in asked]
        told: dict[int, list[Trial[Candidate]]] = {}
        for candidate, measurement in measurer.measure(_interleaved(queues), best):
            group, name = origin[candidate.key]
            record = Trial.of(candidate, measurement, name, environment)
            self.store.journal.append(record)
            told.setdefault(id(group), []).append(record)
            self._measured += 1
        for group, _, _ in asked:
            group.tell(told.get(id(group), []))

    def _measurer(self, hardware: Hardware) -> Measurer:
        if hardware.key not in self._measurers:
            self._measurers[hardware.key] = self._make(hardware, self._policy)
        return self._measurers[hardware.key]

    def _report(self, hardware: Hardware, workloads: Sequence[StoredWorkload]) -> None:
        planned = self.plan.groups * self.plan.programs
        due = [
            self.plan.programs - len(self._records(stored.workload, each))
            for stored in self.plan.workloads
            for each in self.plan.hardware
            if self._is_due(stored.workload, each)
        ]
        rate = self._measured / max(time.monotonic() - self._began, 1e-9)
        left = sum(due) / rate if rate else float("inf")
        self._say(
            f"{planned - sum(due):,} of {planned:,} programs, {rate:.1f}/s, "
            f"about {_duration(left)} left; now {workloads[0].workload.name} and "
            f"{len(workloads) - 1} more on {describe(hardware)}"
        )


@dataclass(frozen=True)
class Visit:
    """Groups that a node of a cluster is to complete.

    Attributes:
        plan: Of the whole collection.
        hardware: Of the groups.
        workloads: The groups.
        records: What was measured of them.
        spaces: The files of their spaces, where they were begun, by name.
    """

    plan: Plan
    hardware: Hardware
    workloads: tuple[StoredWorkload, ...]
    records: tuple[Record, ...]
    spaces: Mapping[str, bytes]


def visit(
    asked: Visit, policy: MeasurePolicy, measurer: MeasurerFactory = LocalMeasurer
) -> tuple[list[Record], dict[str, bytes]]:
    """Completes groups on this machine, a node of a cluster, in a directory of its own.

    Returns:
        What was measured beyond what was known, and the files of the spaces by name.

    Raises:
        BadInputError: The machine has another processor than the hardware.
    """
    require_processor(asked.hardware)
    plan = replace(asked.plan, workloads=asked.workloads, hardware=(asked.hardware,))
    with tempfile.TemporaryDirectory(prefix="foretune-") as folder, Store(folder) as store:
        store.expect(plan.cost_model)
        store.add(asked.workloads, [asked.hardware])
        for name, data in asked.spaces.items():
            write_bytes(store.path / _SPACES / name, data)
        for record in asked.records:
            store.journal.append(record)
        with Collector(plan, store, policy=policy, measurer=measurer, say=_silent) as collector:
            collector.run()
        known = {(record.workload, record.candidate_key) for record in asked.records}
        new = [r for r in store.records() if (r.workload, r.candidate_key) not in known]
        spaces = {file.name: file.read_bytes() for file in (store.path / _SPACES).iterdir()}
    return new, spaces


def _silent(line: str) -> None:
    del line


class _Group:
    """One workload on one hardware being collected: what to measure next.

    Args:
        plan: How many programs.
        space: Where they come from.
    """

    def __init__(self, plan: Plan, space: Space) -> None:
        self.space = space
        self._plan = plan
        self._rng = plan.rng(space.workload, space.hardware)
        self._model = cost.create(plan.cost_model, rng=plan.seed, hardware=space.hardware)
        self._strategy = search.create(_STRATEGY, space, self._model, self._rng)
        self._uniform = search.create("random", space, self._model, self._rng)
        self._default: Task | None = None
        if plan.predicted:
            seed = int(self._rng.integers(1 << 31))
            self._default = Task(space.workload, space.hardware, space=space, seed=seed)
        self._count = 0
        self._of: Counter[str] = Counter()
        self._exhausted = False
        self.best_s: float | None = None

    def restore(self, records: Sequence[Record]) -> None:
        """Takes in what an earlier run measured."""
        kept = with_candidates(records, self.space)
        self._count += len(records) - len(kept)
        self.tell(kept)
        if kept:
            # Another stream than the one that drew those.
            self._rng.bit_generator.advance(1 << 40)  # type: ignore[attr-defined]

    def ask(self) -> tuple[str, list[Candidate]]:
        """Origin and candidates of the next batch; no candidates when the group is complete."""
        missing = self._plan.programs - self._count
        if missing <= 0 or self._exhausted:
            return "", []
        plan = self._plan
        uniform = min(missing, plan.uniform - self._of[UNIFORM])
        predicted = min(missing, plan.predicted - self._of[PREDICTED])
        if uniform > 0:
            origin, candidates = UNIFORM, self._uniform.ask(uniform)
        elif predicted > 0 and self._default is not None:
            wanted = min(predicted, -(-plan.predicted // plan.rounds))
            origin, candidates = PREDICTED, self._default.strategy.ask(wanted)
        else:
            wanted = min(missing, -(-plan.evolved // plan.rounds))
            origin, candidates = EVOLVED, self._strategy.ask(max(1, wanted))
        self._exhausted = not candidates
        return origin, candidates

    def tell(self, records: Sequence[Trial[Candidate]]) -> None:
        """Takes in measurements."""
        if not records:
            return
        self._count += len(records)
        self._of.update(record.origin for record in records)
        self._model.update(records)
        self._strategy.tell(records)
        self._uniform.tell(records)
        if self._default is not None:
            self._default.model.update(records)
            self._default.strategy.tell(records)
        for record in records:
            if record.measurement.ok and record.measurement.best_s is not None:
                self.best_s = min(self.best_s or float("inf"), record.measurement.best_s)


def _are_alike(one: Hardware, other: Hardware) -> bool:
    """Whether they differ in the processor only, not in threads and width of vectors."""
    same = (one.kind, one.threads, one.simd_bits) == (other.kind, other.threads, other.simd_bits)
    return same and one.key != other.key


def _interleaved(queues: Sequence[list[Candidate]]) -> list[Candidate]:
    """One of each in turn, so that a slow build of one workload has others beside it."""
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def describe(hardware: Hardware) -> str:
    """The variant in a few words: ``x86-64-v2, 1 thread``."""
    target = json.loads(hardware.target)
    plural = "s" if hardware.threads > 1 else ""
    return f"{target.get('mcpu', hardware.name)}, {hardware.threads} thread{plural}"
