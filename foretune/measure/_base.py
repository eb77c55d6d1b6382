"""Measurements and the door through which candidates are measured."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.space import Candidate


class Status(str, enum.Enum):
    """How the measurement of one candidate ended. Failure is data, never a magic number."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    RUN_ERROR = "run_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_OUTPUT = "wrong_output"
    CUT_SHORT = "cut_short"
    """Ran correctly once, so much slower than the best that it was not repeated.

    ``seconds`` holds that one reading."""


@dataclass(frozen=True)
class Measurement:
    """What measuring one candidate gave.

    Attributes:
        status: How it ended.
        seconds: Seconds per call, one entry per reading, in the order read. Empty on failure.
        quiet: For each entry of ``seconds``, whether the canary beside it was at its quiet floor.
        build_s: Wall seconds spent applying and compiling.
        run_s: Wall seconds spent checking and timing.
        message: Why it failed; empty when it did not.
        max_error: Largest absolute difference to the untuned program's output; None if unchecked.
        device: Which of several devices ran it; empty where there is one only, this machine.
    """

    status: Status
    seconds: tuple[float, ...] = ()
    quiet: tuple[bool, ...] = ()
    build_s: float = 0.0
    run_s: float = 0.0
    message: str = ""
    max_error: float | None = None
    device: str = ""

    @property
    def ok(self) -> bool:
        """Whether the candidate ran to the end, correctly, with repeated readings."""
        return self.status is Status.OK

    @property
    def ran(self) -> bool:
        """Whether the candidate ran correctly, to the end or until it was cut short."""
        return self.status in (Status.OK, Status.CUT_SHORT)

    @property
    def best_s(self) -> float | None:
        """Seconds per call: the lowest reading, or None if there is none.

        A slow episode of a shared machine only ever adds time, so the lowest reading is the best
        estimate whether it counted as quiet or not; ``quiet`` tells how far to trust it.
        ``cut_short`` has one reading too, an upper bound good enough to learn from.
        """
        return min(self.seconds, default=None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {
            "status": self.status.value,
            "seconds": list(self.seconds),
            "quiet": list(self.quiet),
            "build_s": self.build_s,
            "run_s": self.run_s,
            "message": self.message,
            "max_error": self.max_error,
            **({"device": self.device} if self.device else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Reads what ``to_json`` wrote. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            status=Status(data["status"]),
            seconds=tuple(float(s) for s in data["seconds"]),
            quiet=tuple(bool(q) for q in data["quiet"]),
            build_s=float(data["build_s"]),
            run_s=float(data["run_s"]),
            message=str(data["message"]),
            max_error=None if data["max_error"] is None else float(data["max_error"]),
            device=str(data.get("device", "")),
        )


class Measurer(abc.ABC):
    """Turns candidates into measurements.

    Life cycle: construct, ``measure`` as often as wanted, ``close`` once (or use ``with``). The
    caller owns the candidates and writes the records; a measurer never keeps either. A candidate
    that crashes, hangs or lies is a measurement with that status, never an exception.
    """

    @abc.abstractmethod
    def measure(
        self, candidates: Sequence[Candidate], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Candidate, Measurement]]:
        """Measures each candidate once and yields it with its measurement, as they finish.

        Args:
            candidates: May belong to several workloads.
            best_s: Workload key to the best seconds so far: candidates much slower than that are
                cut short after one reading.

        Yields:
            Every candidate given, exactly once, in any order.
        """

    @abc.abstractmethod
    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Re-measures candidates in quiet and interleaved: the readings of all are alternated.

        Used for candidates that would become best and for the untuned baseline.

        Returns:
            One measurement per candidate, in the order given.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends every child process and frees what the measurer holds. May be called twice."""

    def environment(self) -> dict[str, Any]:
        """What to keep beside the records: versions and the measurement policy, JSON-able."""
        return {}

    def __enter__(self) -> Measurer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
