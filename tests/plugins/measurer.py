"""A measurer of somebody else's: what may have failed by chance is measured once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretune.measure import Measurement, Measurer, Status
from foretune.space import Candidate

BY_CHANCE = (Status.CRASH, Status.RUN_ERROR, Status.TIMEOUT)


class Patient(Measurer):
    """Has another measurer measure, for example on a board that others use, too."""

    def __init__(self, other: Measurer) -> None:
        self.other = other

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        failed = []
        for candidate, measurement in self.other.measure(candidates, best_s):
            if measurement.status in BY_CHANCE:
                failed.append(candidate)
            else:
                yield candidate, measurement
        yield from self.other.measure(failed, best_s)

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        return self.other.compare(candidates)

    def environment(self) -> dict[str, Any]:
        return {**self.other.environment(), "patient": True}

    def close(self) -> None:
        self.other.close()
