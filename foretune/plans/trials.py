"""Trials of plans: what is proposed for one network, measured and kept.

The one loop over plans: ask, measure, keep, tell. Every record is on disk before the next plan, so
that a run that is stopped goes on where it was. A collection (``collector``) and a search for the
plan that ships (``choose``) differ in what is asked for, and when it ends.

A folder holds ``plans.jsonl``, a journal as of ``foretune tune`` whose workloads are networks, and
a place for each network: ``space.json`` (its choices), ``graph.npz`` (its nodes and edges), and
built kernels.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from foretune import search
from foretune._files import write_json
from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement
from foretune.plans.measurer import OutOfTime
from foretune.plans.space import PlanSpace
from foretune.records import Record

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.hardware import Hardware
    from foretune.plans.model import LinearPlans
    from foretune.plans.space import PlanCandidate
    from foretune.records import Journal

JOURNAL = "plans.jsonl"
SPACE = "space.json"
KERNELS = "kernels"
DEFAULT, RANDOM, EVOLVED = "default", "random", "evolved"
"""Origins of records: what the passes choose, drawn uniformly, bred from the fastest."""
_BREEDING: dict[str, Any] = {
    "prior": False,
    "further_mutation": 0.75,
    "scored_per_ask": 32,
    "informed_per_ask": 32,
    "generations": 3,
}
"""A child differs in four decisions of dozens, on average, and is scored in no time."""
_FEWEST_QUIET = 3


class Measures(Protocol):
    """What trials need of a measurer; ``PlanMeasurer`` says what these are."""

    space: PlanSpace
    last: dict[str, Any]
    deadline: float
    chosen: dict[str, Plan]

    def compare(self, candidates: Sequence[Any]) -> list[Measurement]:
        """A measurement of each plan."""

    def close(self) -> None:
        """Ends what it started."""


class Trials:
    """Plans of one network, measured into a journal.

    Args:
        measurer: Who measures, and knows the network's plans; the caller closes it.
        journal: Where records go.
        hardware: This machine.
    """

    def __init__(self, measurer: Measures, journal: Journal, hardware: Hardware) -> None:
        self.measurer = measurer
        self.space = measurer.space
        self._journal = journal
        self._hardware = hardware
        journal.add_workload(self.space.workload)
        journal.add_hardware(hardware)

    @property
    def records(self) -> list[Record]:
        """All of this network on this hardware, those of earlier runs first, with their plans."""
        found = self._journal.records(self.space.workload.key, self._hardware.key)
        plans: list[Any] = [self.space.candidate(record.decisions) for record in found]
        return [replace(r, candidate=p) for r, p in zip(found, plans, strict=True)]

    def run(
        self,
        proposals: Proposals,
        in_time: Callable[[], bool],
        told: Callable[[Sequence[Record]], None],
    ) -> bool:
        """Measures what is proposed until there is no more.

        Args:
            proposals: Says what; is told the records of each batch.
            in_time: Whether another plan may be measured.
            told: Called with the records of a batch, once the proposals know them.

        Returns:
            Whether it ended by itself, and not for want of time.

        Raises:
            BadInputError: The default plan does not run.
        """
        while True:
            origin, plans = proposals.ask()
            if not plans:
                return True
            records: list[Record] = []
            for plan in plans:
                if not in_time():
                    return False
                try:
                    records += self.measure([plan], origin)
                except OutOfTime:
                    return False
            proposals.tell(records)
            told(records)

    def measure(self, plans: Sequence[PlanCandidate], origin: str) -> list[Record]:
        """Measures plans side by side, and keeps the records.

        Raises:
            BadInputError: The default plan is among them, and does not run.
            OutOfTime: The measurer's deadline came.
        """
        measurements = self.measurer.compare(plans)
        told = dict(self.measurer.last) if len(plans) == 1 else {}
        records = []
        for plan, measurement in zip(plans, measurements, strict=True):
            found: Any = plan
            records.append(Record.of(found, measurement, origin, told))
        self._journal.extend(records)
        for record in records:
            if record.origin == DEFAULT and not record.measurement.ok:
                raise BadInputError(
                    f"its default plan must run, but ended with {record.measurement.status.value}: "
                    f"{record.measurement.message}"
                )
        return records


class Proposals:
    """What to measure next of one network: the default plan, random ones, bred ones.

    Args:
        space: Its plans.
        model: Learns from what is measured, and says which children are worth it.
        wanted: Plans to measure, the default plan and those that fail included.
        random: How many of them are drawn uniformly.
        batch: Plans that are proposed from the same measurements, at most.
        seed: Seeds everything random.
        options: Of the strategy that breeds, beside those that suit plans.

    Attributes:
        measured: Keys of what was measured, in order.
        best_s, default_s: Seconds of the fastest plan and of the default plan; None if unknown.
    """

    def __init__(
        self,
        space: PlanSpace,
        model: LinearPlans,
        *,
        wanted: int,
        random: int,
        batch: int,
        seed: int,
        **options: Any,
    ) -> None:
        self._space = space
        self._model = model
        self._wanted = min(wanted, space.size)
        self._random_ones = random
        self._batch = batch
        self._rng = np.random.default_rng([seed, int(space.workload.key, 16)])
        self._random = search.create("random", space, model, self._rng)
        breeding = {**_BREEDING, **options}
        self._evolved = search.create("evolutionary", space, model, self._rng, **breeding)
        self._of: Counter[str] = Counter()
        self.measured: dict[str, None] = {}
        self.best_s: float | None = None
        self.default_s: float | None = None

    @property
    def count(self) -> int:
        """Plans measured so far."""
        return len(self.measured)

    def ask(self) -> tuple[str, list[PlanCandidate]]:
        """Origin and plans of the next batch; no plans when there are enough, or no more."""
        missing = self._wanted - self.count
        if missing <= 0:
            return "", []
        if self._space.default.key not in self.measured:
            return DEFAULT, [self._space.default]
        random = min(missing, self._random_ones - self._of[RANDOM])
        if random > 0:
            return RANDOM, cast("list[Any]", self._random.ask(min(random, self._batch)))
        return EVOLVED, cast("list[Any]", self._evolved.ask(min(missing, self._batch)))

    def tell(self, records: Sequence[Record]) -> None:
        """Takes in what was measured."""
        self._of.update(record.origin for record in records)
        self.measured.update((record.candidate_key, None) for record in records)
        self._model.update(records)
        self._random.tell(records)
        self._evolved.tell(records)
        for record in records:
            seconds = seconds_of(record.measurement)
            if seconds is None:
                continue
            self.best_s = min(self.best_s or seconds, seconds)
            if record.candidate_key == self._space.default.key:
                self.default_s = seconds

    def restore(self, records: Sequence[Record]) -> None:
        """Takes in what an earlier run measured; the records have their plans."""
        if records:
            self.tell(records)
            # Another stream than the one that drew those.
            self._rng.bit_generator.advance(1 << 40)  # type: ignore[attr-defined]

    def describe(self, records: Sequence[Record]) -> str:
        """What a batch took, and how far it has come, for people."""
        spent = sum(r.measurement.build_s + r.measurement.run_s for r in records) / len(records)
        gain = ""
        if self.default_s and self.best_s:
            gain = f", best {self.default_s / self.best_s:.3f} times as fast as default"
        return f"{spent:.1f} s each{gain}"


@contextlib.contextmanager
def opened(
    start: Callable[[Mapping[str, Any] | None], Measures],
    place: Path,
    journal: Journal,
    hardware: Hardware,
) -> Iterator[Trials]:
    """Trials of a network, until the block ends.

    Args:
        start: Makes its measurer, given the network's plans if an earlier run found them.
        place: The network's place in the folder.
        journal: Where records go.
        hardware: This machine.

    Raises:
        RecordError: The network's plans are there, but damaged.
    """
    known = read_space(place)
    measurer = start(None if known is None else known.to_json())
    try:
        write_json(place / SPACE, measurer.space.to_json())
        yield Trials(measurer, journal, hardware)
    finally:
        measurer.close()


def seconds_of(measurement: Measurement) -> float | None:
    """Seconds of a plan: the median of its quiet readings, of all where fewer than 3 were quiet."""
    if not measurement.ok or not measurement.seconds:
        return None
    pairs = zip(measurement.seconds, measurement.quiet, strict=True)
    quiet = [seconds for seconds, is_quiet in pairs if is_quiet]
    return float(np.median(quiet if len(quiet) >= _FEWEST_QUIET else measurement.seconds))


def read_space(place: Path) -> PlanSpace | None:
    """The plans of a network as its place has them; None where it has none.

    Raises:
        RecordError: The file is damaged.
    """
    file = place / SPACE
    if not file.is_file():
        return None
    try:
        return PlanSpace.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, BadInputError) as error:
        raise RecordError(
            f"{file} must hold the plans of a network, but does not ({error}): delete the folder "
            f"{place.name}, and its choices are looked for again"
        ) from error
