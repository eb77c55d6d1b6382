"""The one loop over plans of a network: ask, measure, keep, tell.

Every record is on disk before the next plan, so that a run that is stopped goes on where it was. A
collection (``collector``) and a search for the plan that ships (``choose``) differ in what is asked
for, and when it ends.

A folder holds ``plans.jsonl``, a journal as of ``foretune tune`` whose workloads are networks, and
a place for each network: ``space.json`` (its choices), ``graph.npz`` (its nodes and edges),
``made.json`` (what its plans are measured with), and built kernels. Records of what was measured
with something else do not count.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from foretune import search
from foretune._files import write_json
from foretune.errors import BadInputError, RecordError
from foretune.measure import Measurement
from foretune.plans.measurer import OutOfTime
from foretune.plans.provenance import Provenance, require_same, write_provenance
from foretune.plans.space import PlanCandidate, PlanSpace
from foretune.plans.standings import DEFAULT, EVOLVED, PROCESS, RANDOM, TVM, seconds_of
from foretune.records import CONFIRM, Record, Trial
from foretune.search.evolutionary import Evolutionary, EvolutionConfig

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.hardware import Hardware
    from foretune.plans.model import LinearPlans
    from foretune.records import Journal

JOURNAL = "plans.jsonl"
SPACE = "space.json"
PARTS = "+"
"""Between a network's name and the digest of what another part of its plans was measured with."""
MADE = "made"
"""Key of a record's environment: the digest of what it was measured with."""


@dataclass(frozen=True)
class _PlanBreedingConfig(EvolutionConfig):
    """How plans are bred: a child differs in four decisions of dozens, and is scored in no time."""

    prior: ClassVar[bool] = False
    further_mutation: ClassVar[float] = 0.75
    scored_per_ask: ClassVar[float] = 32.0
    informed_per_ask: ClassVar[float] = 32.0
    generations: ClassVar[int] = 3


class _PlanBreeding(Evolutionary[PlanCandidate]):
    """Evolutionary search of plans."""

    config_type = _PlanBreedingConfig


class Measures(Protocol):
    """What trials need of a measurer; ``PlanMeasurer`` says what these are."""

    space: PlanSpace
    last: dict[str, Any]
    deadline: float
    chosen: dict[str, Plan]

    def compare(self, candidates: Sequence[PlanCandidate]) -> list[Measurement]:
        """A measurement of each plan."""

    def close(self) -> None:
        """Ends what it started."""


class PlanLoop:
    """Plans of one network, measured into a journal.

    Args:
        measurer: Who measures, and knows the network's plans; the caller closes it.
        journal: Where records go.
        hardware: This machine.
        made: What plans are measured with.
    """

    def __init__(
        self, measurer: Measures, journal: Journal, hardware: Hardware, made: Provenance
    ) -> None:
        self.measurer = measurer
        self.space = measurer.space
        self._journal = journal
        self._hardware = hardware
        self._made = made.digest
        journal.add_workload(self.space.workload)
        journal.add_hardware(hardware)

    @property
    def measured(self) -> list[Trial[PlanCandidate]]:
        """All of this network that count, those of earlier runs first."""
        records = counting(self._journal, self.space.workload.key, self._made)
        return [Trial.again(r, self.space.candidate(r.decisions)) for r in records]

    def run(
        self,
        proposals: Proposals,
        in_time: Callable[[], bool],
        told: Callable[[Sequence[Trial[PlanCandidate]]], None],
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
            records: list[Trial[PlanCandidate]] = []
            for plan in plans:
                if not in_time():
                    return False
                try:
                    records += self.measure([plan], origin)
                except OutOfTime:
                    return False
            proposals.tell(records)
            told(records)

    def measure(self, plans: Sequence[PlanCandidate], origin: str) -> list[Trial[PlanCandidate]]:
        """Measures plans side by side, and keeps the records.

        Raises:
            BadInputError: The default plan is measured alone, and does not run.
            OutOfTime: The measurer's deadline came.
        """
        measurements = self.measurer.compare(plans)
        told = dict(self.measurer.last) if len(plans) == 1 else {}
        told[MADE] = self._made
        pairs = zip(plans, measurements, strict=True)
        records = [Trial.of(plan, measurement, origin, told) for plan, measurement in pairs]
        self._journal.extend(records)
        for record in records:
            if record.origin == DEFAULT and not record.measurement.ok:
                raise BadInputError(
                    f"its default plan must run, but ended with {record.measurement.status.value}: "
                    f"{record.measurement.message}"
                )
        return records


class Proposals:
    """What to measure next of one network: the default plan, TVM's, random ones, bred ones.

    Args:
        space: Its plans.
        model: Learns from what is measured, and says which children are worth it.
        wanted: Plans to measure, the default plan and those that fail included.
        random: How many of them are drawn uniformly.
        batch: Plans that are proposed from the same measurements, at most.
        seed: Seeds everything random.
        tvm: Whether TVM's own plan is measured, too.
        again: Plans after which the default plan is measured again, so that a machine that becomes
            slower is seen; 0 for never.
        options: Of the strategy that breeds, beside those that suit plans.

    Attributes:
        measured: Keys of what was measured, in order.
        best_s, default_s: Seconds of the fastest plan, and of the default plan when it ran last;
            None if unknown.
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
        tvm: bool = False,
        again: int = 0,
        **options: Any,
    ) -> None:
        self._space = space
        self._tvm = tvm
        self._again = again
        self._since = 0
        self._process = ""
        self._model = model
        self._wanted = min(wanted, space.size)
        self._random_ones = random
        self._batch = batch
        self._rng = np.random.default_rng([seed, int(space.workload.key, 16)])
        self._random = search.create("random", space, model, self._rng)
        self._evolved = _PlanBreeding(space, model, self._rng, **options)
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
        due = self._again and self._since >= self._again
        if due or self._space.default.key not in self.measured:
            return DEFAULT, [self._space.default]
        if self._tvm and self._space.tvm_default.key not in self.measured:
            return TVM, [self._space.tvm_default]
        random = min(missing, self._random_ones - self._of[RANDOM])
        if random > 0:
            return RANDOM, self._random.ask(min(random, self._batch))
        return EVOLVED, self._evolved.ask(min(missing, self._batch))

    def tell(self, records: Sequence[Trial[PlanCandidate]]) -> None:
        """Takes in what was measured; a default plan that did not run is to be measured again."""
        known = [record for record in records if self._is_known(record)]
        new = {record.candidate_key: record for record in known}
        fresh = [record for key, record in new.items() if key not in self.measured]
        self._of.update(record.origin for record in fresh)
        self._model.update(fresh)
        self._random.tell(fresh)
        self._evolved.tell(fresh)
        for record in records:
            self._note_process(record)
        for record in known:
            is_default = record.candidate_key == self._space.default.key
            is_new = record.candidate_key not in self.measured
            self._since = 0 if is_default else self._since + is_new
            self.measured[record.candidate_key] = None
            seconds = seconds_of(record.measurement)
            if seconds is None:
                continue
            self.best_s = min(self.best_s or seconds, seconds)
            if is_default:
                self.default_s = seconds

    def _note_process(self, record: Record) -> None:
        """Another process may be slower as a whole: the default plan comes first there."""
        process = str(record.environment.get(PROCESS, ""))
        if process != self._process:
            self._process, self._since = process, self._again

    def _is_known(self, record: Record) -> bool:
        """Whether a record tells what a plan is; the default plan has to run."""
        return record.measurement.ok or record.candidate_key != self._space.default.key

    def restore(self, records: Sequence[Trial[PlanCandidate]]) -> None:
        """Takes in what an earlier run measured, in its order."""
        if records:
            self.tell([record for record in records if record.origin != CONFIRM])
            # This process is not the one that measured them.
            self._since = self._again
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
    made: Provenance,
) -> Iterator[PlanLoop]:
    """The loop over a network's plans, until the block ends.

    Args:
        start: Makes its measurer, given the network's plans if an earlier run found them.
        place: The network's place in the folder.
        journal: Where records go.
        hardware: This machine.
        made: What plans are measured with.

    Raises:
        BadInputError: Earlier runs measured them with something else.
        RecordError: The network's plans are there, but damaged.
    """
    known = read_space(place)
    require_same(place, made)
    measurer = start(None if known is None else known.to_json())
    try:
        write_json(place / SPACE, measurer.space.to_json())
        write_provenance(place, made)
        yield PlanLoop(measurer, journal, hardware, made)
    finally:
        measurer.close()


def counting(journal: Journal, network: str, made: str) -> list[Record]:
    """Records of a network's plans in the order of measurement.

    Args:
        journal: Holds them.
        network: Key of its workload.
        made: Digest of what they have to be measured with.
    """
    records = journal.records(network)
    return [record for record in records if record.environment.get(MADE) == made]


def beside_default(
    loop: PlanLoop, plans: Sequence[PlanCandidate]
) -> tuple[Measurement, list[tuple[PlanCandidate, Measurement]]]:
    """Measures plans beside the default plan, readings taking turns.

    Returns:
        The default plan's measurement, and each plan with its own.

    Raises:
        OutOfTime: The measurer's deadline came.
    """
    records = loop.measure([loop.space.default, *plans], CONFIRM)
    first, *others = [record.measurement for record in records]
    return first, list(zip(plans, others, strict=True))


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
