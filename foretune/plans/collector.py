"""Collecting plans: some at random, some bred from the fastest, of one network after the other.

Half of a network's plans are drawn uniformly, the others bred. The default plan is measured again
every so often, and in the end the best ones beside it: what was best of many was lucky, too. A
collection that is started again goes on where it was stopped; ``trials`` says what its work folder
holds. Built kernels are there while a network is not complete.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.errors import BadInputError, ForetuneError, RecordError
from foretune.plans.kernels import KERNELS
from foretune.plans.measurer import PlanMeasurer
from foretune.plans.model import LinearPlans
from foretune.plans.provenance import provenance
from foretune.plans.trials import (
    JOURNAL,
    Measures,
    Proposals,
    Trials,
    beside_default,
    best_plans,
    counting,
    opened,
    read_space,
)
from foretune.records import CONFIRM, Journal, Record

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.plans.space import PlanSpace

_SPEC = "spec.json"
_BATCH = 10
"""Plans that are bred from the same measurements."""
_AGAIN = 20
"""Plans after which the default plan is measured again."""
_COMPARED = (5, 1)
"""The best so many are measured beside the default plan in the end; fewer where that fails."""

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
        self._made = provenance(hardware)
        self._deadline = float("inf")
        self.left_out: list[str] = []

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
        place = self.folder / folder_of(spec)
        known = read_space(place)
        if known is not None and self._is_complete(known):
            return True
        start = partial(self._measurer, spec, self.hardware, place)
        with opened(start, place, self._journal, self.hardware, self._made) as trials:
            write_json(place / _SPEC, {"spec": spec})
            if trials.space.size == 1:
                self._say(f"{spec} has one plan only: there is nothing to collect")
                return True
            complete = self._plans(trials)
            if complete:
                self._compare(trials)
        if complete:
            # Other networks have few of these kernels, and all together take gigabytes.
            shutil.rmtree(place / KERNELS, ignore_errors=True)
        return complete

    def _plans(self, trials: Trials) -> bool:
        """Measures plans until there are enough; False if time runs out before."""
        proposals = self.collection.proposals(trials.space)
        proposals.restore(trials.records)

        def tell(records: Sequence[Record]) -> None:
            self._say(
                f"{trials.space.workload.name}: {proposals.count} of {self.collection.plans} "
                f"plans, {proposals.describe(records)}"
            )

        return trials.run(proposals, lambda: time.monotonic() < self._deadline, tell)

    def _compare(self, trials: Trials) -> None:
        """Measures the best plans once more, beside the default plan."""
        for count in _COMPARED:
            best = best_plans(trials.records, trials.space.default.key, count)
            if not best:
                return
            self._say(f"{trials.space.workload.name}: the best {len(best)} beside the default plan")
            first, _ = beside_default(trials, best)
            if first.ok:
                return

    def _is_complete(self, space: PlanSpace) -> bool:
        if space.size == 1:
            return True
        records = counting(self._journal, space.workload.key, self._made.digest)
        compared = any(record.origin == CONFIRM for record in records)
        count = len({record.candidate_key for record in records})
        return compared and count >= min(self.collection.plans, space.size)
