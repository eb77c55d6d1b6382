"""Collecting plans: some at random, some bred from the fastest, of one network after the other.

Half of a network's plans are drawn uniformly, the others bred. The default plan is measured again
every so often, and in the end the best ones beside it: what was best of many was lucky, too. A
collection that is started again goes on where it was stopped; ``loop`` says what its work folder
holds. Built kernels are there while a network is not complete.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from foretune._files import write_json
from foretune.errors import BadInputError, ForetuneError, RecordError
from foretune.plans.kernels import KERNELS
from foretune.plans.loop import (
    JOURNAL,
    PARTS,
    Measures,
    PlanLoop,
    Proposals,
    beside_default,
    counting,
    opened,
    read_space,
)
from foretune.plans.measurer import PlanMeasurer
from foretune.plans.model import LinearPlans
from foretune.plans.provenance import Provenance, provenance, read_provenance
from foretune.plans.standings import PlanStandings
from foretune.records import CONFIRM, Journal
from foretune.records.standings import R

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.plans.space import PlanCandidate, PlanSpace
    from foretune.records import Trial

_SPEC = "spec.json"
_LOCK = "collect.lock"
_BATCH = 10
"""Plans that are bred from the same measurements."""
_AGAIN = 20
"""Plans after which the default plan is measured again."""
_COMPARED, _TOGETHER = 20, 5
"""The best so many are measured beside the default plan in the end, and so many of them at once."""
_MOST_TIMES = 2
"""Measurements of a plan that is not quiet."""

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

    def proposals(self, space: PlanSpace) -> Proposals:
        """What to measure of a network."""
        random = min(self.plans, space.size) // 2
        return Proposals(
            space,
            LinearPlans(),
            wanted=self.plans,
            random=random,
            batch=_BATCH,
            seed=self.seed,
            tvm=True,
            again=_AGAIN,
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

    Attributes:
        left_out: Networks of the last run that cannot be measured.
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
        self._lock = FileLock(folder / _LOCK)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            self._journal.close()
            raise BadInputError(
                f"one collection at a time must work in {folder}, but another one does: wait for "
                "its end, or take another --work-dir"
            ) from None
        self._deadline = float("inf")
        self.left_out: list[str] = []

    def close(self) -> None:
        """Closes the journal. May be called twice."""
        self._journal.close()
        self._lock.release()

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
        complete, self.left_out = True, []
        for spec in dict.fromkeys(self.collection.networks):
            if time.monotonic() >= self._deadline:
                return False
            try:
                complete &= self._network(spec)
            except RecordError:
                raise
            except ForetuneError as error:
                complete = False
                self.left_out.append(spec)
                self._say(f"{spec} is left out: {error}")
        return complete

    def _network(self, spec: str) -> bool:
        made = provenance(self.hardware, network=spec)
        place = self._place(folder_of(spec), made)
        if place is None:
            return True
        start = partial(self._measurer, spec, self.hardware, place)
        with opened(start, place, self._journal, self.hardware, made) as loop:
            write_json(place / _SPEC, {"spec": spec})
            if loop.space.size == 1:
                self._say(f"{spec} has one plan only: there is nothing to collect")
                return True
            complete = self._plans(loop)
            complete = complete and self._settle(loop)
        if complete:
            # Other networks have few of these kernels, and all together take gigabytes.
            shutil.rmtree(place / KERNELS, ignore_errors=True)
        return complete

    def _place(self, name: str, made: Provenance) -> Path | None:
        """Where a network is measured now; None where all of it was measured, on any machine.

        What another machine, or other code, left unfinished stays where it is.
        """
        for place in [*sorted(self.folder.glob(f"{name}{PARTS}*")), self.folder / name]:
            there, space = read_provenance(place), read_space(place)
            if there is not None and space is not None and self._is_complete(space, there):
                return None
        own = read_provenance(self.folder / name)
        if own is None or own.digest == made.digest:
            return self.folder / name
        return self.folder / f"{name}{PARTS}{made.digest[:8]}"

    def _plans(self, loop: PlanLoop) -> bool:
        """Measures plans until there are enough; False if time runs out before."""
        proposals = self.collection.proposals(loop.space)
        proposals.restore(loop.measured)

        def tell(records: Sequence[Trial[PlanCandidate]]) -> None:
            self._say(
                f"{loop.space.workload.name}: {proposals.count} of {self.collection.plans} "
                f"plans, {proposals.describe(records)}"
            )

        return loop.run(proposals, lambda: time.monotonic() < self._deadline, tell)

    def _settle(self, loop: PlanLoop) -> bool:
        """Measures again what was not quiet, and the best plans beside the default plan.

        Returns:
            Whether there was time for it.
        """
        records = loop.measured
        standings = PlanStandings.of(records)
        times = Counter(record.candidate_key for record in records)
        again = [
            standings.plans[key].record for key in standings.unquiet if times[key] < _MOST_TIMES
        ]
        name = loop.space.workload.name
        if again:
            self._say(f"{name}: {len(again)} plans are measured again, which were not quiet")
        for record in again:
            if time.monotonic() >= self._deadline:
                return False
            loop.measure([record.candidate], record.origin)
        best = [trial.candidate for trial in _uncompared(loop.measured)]
        self._say(f"{name}: the best {len(best)} beside the default plan")
        for at in range(0, len(best), _TOGETHER):
            if time.monotonic() >= self._deadline:
                return False
            beside_default(loop, best[at : at + _TOGETHER])
        return True

    def _is_complete(self, space: PlanSpace, made: Provenance) -> bool:
        """Whether all of a network was measured, and the best compared, as far as that works."""
        if space.size == 1:
            return True
        records = counting(self._journal, space.workload.key, made.digest)
        compared = not _uncompared(records)
        count = len({record.candidate_key for record in records})
        return compared and count >= min(self.collection.plans, space.size)


def _uncompared(records: Sequence[R]) -> list[R]:
    """The best plans that nobody has tried beside the default plan yet."""
    tried = {record.candidate_key for record in records if record.origin == CONFIRM}
    best = [one.record for one in PlanStandings.of(records).best(_COMPARED)]
    return [record for record in best if record.candidate_key not in tried]
