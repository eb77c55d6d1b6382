"""Collecting plans: some at random, some bred from the fastest, of one network after the other.

Every record is on disk before the next plan; a collection that is started again goes on where it
was stopped. The work folder has ``plans.jsonl``, a journal as of ``foretune tune`` whose workloads
are networks, and a folder for each network: ``space.json`` (its choices), ``graph.npz`` (its nodes
and edges), and built kernels while it is not complete.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from foretune import search
from foretune._files import write_json
from foretune.errors import BadInputError, ForetuneError, RecordError
from foretune.measure import Measurement
from foretune.plans.measurer import PlanMeasurer
from foretune.plans.model import LinearPlans
from foretune.plans.space import PlanSpace
from foretune.records import Journal, Record

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.plans.space import PlanCandidate

JOURNAL = "plans.jsonl"
SPACE = "space.json"
KERNELS = "kernels"
_SPEC = "spec.json"
DEFAULT, RANDOM, EVOLVED = "default", "random", "evolved"
"""Origins of records: what the passes choose, drawn uniformly, bred from the fastest."""
_BATCH = 10
"""Plans that are bred from the same measurements."""
_BREEDING: dict[str, Any] = {
    "prior": False,
    "further_mutation": 0.75,
    "scored_per_ask": 32,
    "generations": 3,
}
"""A child differs in four decisions of dozens, on average, and is scored in no time."""


class Measures(Protocol):
    """What a collection needs of a measurer."""

    space: PlanSpace
    last: dict[str, Any]

    def compare(self, candidates: Sequence[Any]) -> list[Measurement]:
        """A measurement of each plan."""

    def close(self) -> None:
        """Ends what it started."""


MeasurerFactory = Callable[[str, "Hardware", Path, "Mapping[str, Any] | None"], Measures]


@dataclass(frozen=True)
class Collection:
    """What is to be collected.

    Attributes:
        networks: INPUTs.
        plans: Of each network, the default plan and those that fail included.
        seed: Seeds everything random.
    """

    networks: tuple[str, ...]
    plans: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.plans < 4:
            raise BadInputError(f"`plans >= 4` must hold, but got plans={self.plans}")
        folders: dict[str, str] = {}
        for spec in self.networks:
            other = folders.setdefault(folder_of(spec), spec)
            if other != spec:
                raise BadInputError(
                    f"networks must have names of their own, but {other} and {spec} are both "
                    f"{folder_of(spec)!r}: rename a function"
                )


def folder_of(spec: str) -> str:
    """Name of a network's folder and files: the function's, the file's or the catalog's."""
    path, _, function = spec.rpartition(":")
    name = function if path.endswith(".py") else Path(spec).stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name) or "network"


class PlanCollector:
    """Measures plans of networks into a work folder.

    Args:
        collection: What is to be collected.
        hardware: This machine.
        folder: The work folder, made if missing.
        measurer: Makes the measurer of a network.
        say: Takes lines of progress.
    """

    def __init__(
        self,
        collection: Collection,
        hardware: Hardware,
        folder: Path,
        measurer: MeasurerFactory = PlanMeasurer,
        say: Callable[[str], None] = print,
    ) -> None:
        self.collection = collection
        self.hardware = hardware
        self.folder = folder
        self._measurer = measurer
        self._say = say
        self._journal = Journal(folder / JOURNAL)
        self._deadline = float("inf")

    def close(self) -> None:
        """Closes the journal. May be called twice."""
        self._journal.close()

    def __enter__(self) -> PlanCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, seconds: float | None = None) -> bool:
        """Goes through the networks that are not complete.

        Args:
            seconds: Stop after the plan at which so much time has passed.

        Returns:
            Whether all are complete. A network that cannot be loaded is said, and is not.
        """
        if seconds is not None:
            self._deadline = time.monotonic() + seconds
        complete = True
        for spec in dict.fromkeys(self.collection.networks):
            if time.monotonic() >= self._deadline:
                return False
            try:
                complete &= self._network(spec)
            except RecordError:
                raise
            except ForetuneError as error:
                complete = False
                self._say(f"{spec} is left out: {error}")
        return complete

    def _network(self, spec: str) -> bool:
        place = self.folder / folder_of(spec)
        known = read_space(place)
        if known is not None and self._is_complete(known):
            return True
        measurer = self._measurer(
            spec, self.hardware, place, None if known is None else known.to_json()
        )
        try:
            space = measurer.space
            write_json(place / SPACE, space.to_json())
            write_json(place / _SPEC, {"spec": spec})
            if space.size == 1:
                self._say(f"{spec} has one plan only: there is nothing to collect")
                return True
            self._journal.add_workload(space.workload)
            self._journal.add_hardware(self.hardware)
            complete = self._plans(space, measurer)
        finally:
            measurer.close()
        if complete:
            # Other networks have few of these kernels, and all together take gigabytes.
            shutil.rmtree(place / KERNELS, ignore_errors=True)
        return complete

    def _plans(self, space: PlanSpace, measurer: Measures) -> bool:
        """Measures plans until there are enough; False if time runs out before."""
        proposals = _Proposals(space, self.collection, self._records(space))
        while True:
            origin, plans = proposals.ask()
            if not plans:
                return True
            records = []
            for plan in plans:
                if time.monotonic() >= self._deadline:
                    return False
                (measurement,) = measurer.compare([plan])
                records.append(self._keep(plan, measurement, origin, measurer.last))
            proposals.tell(records)
            self._report(space, proposals, records)

    def _keep(
        self, plan: PlanCandidate, measurement: Measurement, origin: str, told: Mapping[str, Any]
    ) -> Record:
        found: Any = plan
        record = Record.of(found, measurement, origin, dict(told))
        self._journal.append(record)
        if origin == DEFAULT and not measurement.ok:
            raise BadInputError(
                f"its default plan must run, but ended with {measurement.status.value}: "
                f"{measurement.message}"
            )
        return record

    def _records(self, space: PlanSpace) -> list[Record]:
        return self._journal.records(space.workload.key, self.hardware.key)

    def _is_complete(self, space: PlanSpace) -> bool:
        count = len({record.candidate_key for record in self._records(space)})
        return space.size == 1 or count >= min(self.collection.plans, space.size)

    def _report(self, space: PlanSpace, proposals: _Proposals, records: Sequence[Record]) -> None:
        spent = sum(r.measurement.build_s + r.measurement.run_s for r in records) / len(records)
        best, default = proposals.best_s, proposals.default_s
        gain = f", best {default / best:.3f} times as fast as default" if default and best else ""
        self._say(
            f"{space.workload.name}: {proposals.count} of {self.collection.plans} plans, "
            f"{spent:.1f} s each{gain}"
        )


class _Proposals:
    """What to measure next of one network.

    Args:
        space: Its plans.
        collection: How many.
        records: What was measured before.
    """

    def __init__(self, space: PlanSpace, collection: Collection, records: Sequence[Record]) -> None:
        self._space = space
        self._wanted = min(collection.plans, space.size)
        seed = [collection.seed, int(space.workload.key, 16)]
        self._rng = np.random.default_rng(seed)
        self._model = LinearPlans()
        self._random = search.create("random", space, self._model, self._rng)
        self._evolved = search.create("evolutionary", space, self._model, self._rng, **_BREEDING)
        self._of: Counter[str] = Counter()
        self._measured: set[str] = set()
        self.best_s: float | None = None
        self.default_s: float | None = None
        self._restore(records)

    @property
    def count(self) -> int:
        """Plans measured so far."""
        return len(self._measured)

    def ask(self) -> tuple[str, list[PlanCandidate]]:
        """Origin and plans of the next batch; no plans when there are enough, or no more."""
        missing = self._wanted - self.count
        if missing <= 0:
            return "", []
        if self._space.default.key not in self._measured:
            return DEFAULT, [self._space.default]
        random = min(missing, self._wanted // 2 - self._of[RANDOM])
        if random > 0:
            return RANDOM, cast("list[Any]", self._random.ask(min(random, _BATCH)))
        return EVOLVED, cast("list[Any]", self._evolved.ask(min(missing, _BATCH)))

    def tell(self, records: Sequence[Record]) -> None:
        """Takes in what was measured."""
        self._of.update(record.origin for record in records)
        self._measured.update(record.candidate_key for record in records)
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

    def _restore(self, records: Sequence[Record]) -> None:
        kept = []
        for record in records:
            plan: Any = self._space.candidate(record.decisions)
            kept.append(replace(record, candidate=plan))
        if kept:
            self.tell(kept)
            # Another stream than the one that drew those.
            self._rng.bit_generator.advance(1 << 40)  # type: ignore[attr-defined]


def seconds_of(measurement: Measurement) -> float | None:
    """Seconds of a plan: the median of its quiet readings, of all where fewer than 3 were quiet."""
    if not measurement.ok or not measurement.seconds:
        return None
    pairs = zip(measurement.seconds, measurement.quiet, strict=True)
    quiet = [seconds for seconds, is_quiet in pairs if is_quiet]
    return float(np.median(quiet if len(quiet) >= _FEWEST_QUIET else measurement.seconds))


_FEWEST_QUIET = 3


def read_space(place: Path) -> PlanSpace | None:
    """The plans of a network as its folder has them; None where it has none, or of another version.

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
