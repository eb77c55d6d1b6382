"""A measurer whose seconds follow from the decisions, so that collecting needs no quiet machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foretune.hardware import Hardware
from foretune.measure import Measurement, MeasurePolicy, Measurer, Status
from foretune.space import Candidate
from tests.dataset.measured import seconds_of


class FormulaMeasurer(Measurer):
    """Measures by formula.

    Attributes:
        measured: Keys of everything measured by any instance, in order.
        closed: How many instances were closed.
        stop_after: Raises KeyboardInterrupt once so many were measured; None: never.
        drift: Factor on all seconds.
        disturbed: Which candidates something disturbs: they take twice as long.
        best: The best seconds by workload that the last call of any instance was told.
    """

    measured: list[str] = []  # noqa: RUF012 - reset by the fixture
    closed = 0
    stop_after: int | None = None
    drift = 1.0
    disturbed: Callable[[Candidate], bool] = staticmethod(lambda _candidate: False)
    best: Mapping[str, float] = {}

    def __init__(self, hardware: Hardware, policy: MeasurePolicy) -> None:
        self.hardware = hardware

    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        FormulaMeasurer.best = dict(best_s or {})
        for candidate in candidates:
            if type(self).stop_after == len(self.measured):
                raise KeyboardInterrupt
            assert candidate.hardware.key == self.hardware.key
            self.measured.append(candidate.key)
            seconds = seconds_of(candidate) * self.drift
            quiet = not type(self).disturbed(candidate)
            seconds *= 1 if quiet else 2
            yield candidate, Measurement(Status.OK, (seconds, seconds), (quiet, quiet))

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        raise AssertionError("collecting compares nothing")

    def close(self) -> None:
        type(self).closed += 1

    def environment(self) -> dict[str, Any]:
        return {"tvm": "0.27"}
