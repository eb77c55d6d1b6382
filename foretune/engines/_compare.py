"""The comparison: rounds over engines, medians and intervals."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._files import no_temporary_files
from foretune._interval import interval
from foretune.engines._names import ARTIFACT, ENGINES, SPINNING_S
from foretune.engines._process import Child, Workspace
from foretune.errors import BadInputError, ForetuneError, unknown_name

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.engines._process import AnArtifact
    from foretune.graph import Examination, InputSet
    from foretune.workload import Model


@dataclass(frozen=True)
class EngineResult:
    """What one engine gave.

    Attributes:
        median, low, high: Latency in seconds and its 95 % bootstrap interval; None on failure.
        max_abs_error: Largest absolute difference to the reference outputs; None on failure, NaN
            if the engine returned NaN where the reference did not.
        max_relative_error: Each divided by the magnitude there, as ``OutputDifference.relative``.
        within_tolerance: Whether that is no more than rounding explains, and integers are equal;
            None on failure, and where rounding alone makes another result of the original: then
            nothing can be said.
        difference: What is outside the tolerance, or why nothing can be said, in one line; else
            empty.
        error: Why it failed, in one line; empty when it did not.
        readings: Seconds of each round.
    """

    median: float | None = None
    low: float | None = None
    high: float | None = None
    max_abs_error: float | None = None
    max_relative_error: float | None = None
    within_tolerance: bool | None = None
    difference: str = ""
    error: str = ""
    readings: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; NaN and infinities, which JSON has not, become null."""
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "max_abs_error": _finite(self.max_abs_error),
            "max_relative_error": _finite(self.max_relative_error),
            "within_tolerance": self.within_tolerance,
            "difference": self.difference or None,
            "error": self.error or None,
            "readings": list(self.readings),
        }


def compare(
    model: Model,
    artifact: AnArtifact | Mapping[str, AnArtifact] | None,
    engines: Sequence[str] = ENGINES,
    *,
    threads: int,
    rounds: int = 20,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, EngineResult]:
    """Times engines and an artifact on the same model, interleaved, each in its own process.

    Args:
        model: The network; its ``source`` is what the other engines run.
        artifact: A compiled artifact, or the path of a saved one; appears as ``"foretune"``.
            Several of them by name, to compare artifacts with each other, appear by their names.
        engines: Names out of ``ENGINES``.
        threads: Threads every engine is given, and every artifact, whatever it was compiled for.
        rounds: Readings per engine; each is the median of at least three calls.
        seed: For the inputs and the bootstrap.
        progress: Called with a line of text when a step begins.

    Returns:
        One result per engine; an engine that cannot run has an ``error`` in place of numbers.

    Raises:
        BadInputError: An unknown engine, an artifact with the name of one, fewer than one round,
            or no room for temporary files.
    """
    artifacts = _by_name(artifact)
    for name in engines:
        if name not in ENGINES:
            raise unknown_name("engine", name, ENGINES)
    if rounds < 1:
        raise BadInputError(f"rounds must be at least 1, but got {rounds}")
    from foretune.graph import InputSet, default_tolerance

    say = progress or (lambda _line: None)
    inputs = model.draw_inputs(seed)
    given = InputSet("random inputs", inputs, model, must=True)
    tolerance = default_tolerance(model)
    results: dict[str, EngineResult] = {}
    with contextlib.ExitStack() as stack:
        workspace = _workspace(stack, model, artifacts, inputs)
        children: dict[str, Child] = {}
        seen: dict[str, Examination] = {}
        for name in (*artifacts, *dict.fromkeys(engines)):
            say(f"starting {name}")
            try:
                child = stack.enter_context(Child.start(name, workspace, threads))
                seen[name] = _examine(given, child.outputs(), tolerance)
                children[name] = child
            except ForetuneError as error:
                results[name] = EngineResult(error=str(error))
        say(f"timing {rounds} rounds")
        readings = _interleave(children, rounds, results)
    for name, seconds in readings.items():
        results[name] = _summarise(seconds, seen[name], tolerance, seed)
    return results


def _by_name(
    artifact: AnArtifact | Mapping[str, AnArtifact] | None,
) -> dict[str, AnArtifact]:
    if artifact is None:
        return {}
    if not isinstance(artifact, Mapping):
        return {ARTIFACT: artifact}
    for name in artifact:
        if name in ENGINES:
            raise BadInputError(
                f"an artifact must not have the name of an engine, but one is called {name!r}: "
                "call it something else"
            )
    return dict(artifact)


def _workspace(
    stack: contextlib.ExitStack,
    model: Model,
    artifacts: Mapping[str, AnArtifact],
    inputs: Sequence[Array],
) -> Workspace:
    """A temporary folder for the children's files, there until the stack is left."""
    try:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="foretune-compare-"))
        return Workspace(Path(folder), model, artifacts, inputs)
    except OSError as error:
        raise no_temporary_files(error) from error


def _interleave(
    children: Mapping[str, Child], rounds: int, results: dict[str, EngineResult]
) -> dict[str, list[float]]:
    readings: dict[str, list[float]] = {name: [] for name in children}
    time.sleep(SPINNING_S)
    for _ in range(rounds):
        for name in list(readings):
            try:
                readings[name].append(children[name].time())
            except ForetuneError as error:
                del readings[name]
                results[name] = EngineResult(error=str(error))
    return readings


def _summarise(
    seconds: Sequence[float],
    seen: Examination,
    tolerance: float,
    seed: int,
) -> EngineResult:
    from foretune.graph import CHAOS, largest_difference

    absolute, relative = largest_difference(seen.differences)
    low, high = bootstrap_median(seconds, seed)
    difference = seen.wrong[0].describe(tolerance) if seen.wrong else ""
    return EngineResult(
        median=float(np.median(seconds)),
        low=low,
        high=high,
        max_abs_error=absolute,
        max_relative_error=relative,
        within_tolerance=None if seen.is_chaos else not seen.wrong,
        difference=CHAOS if seen.is_chaos else difference,
        readings=tuple(seconds),
    )


def bootstrap_median(
    seconds: Sequence[float], seed: int = 0, draws: int = 2000
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the median of ``seconds``."""
    rng = np.random.default_rng(seed)
    values = np.asarray(seconds, dtype=np.float64)
    medians = np.median(rng.choice(values, (draws, len(values))), axis=1)
    return interval(medians)


def _examine(given: InputSet, actual: Sequence[Array], tolerance: float) -> Examination:
    """How far each output is from the reference; another number or shape of them is an error."""
    from foretune.graph import examine

    expected = given.expected() or []
    if len(expected) != len(actual):
        raise BadInputError(
            f"returned {len(actual)} outputs where the reference returned {len(expected)}"
        )
    for number, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        if wanted.shape != got.shape:
            raise BadInputError(
                f"returned output {number} of shape {got.shape} where the reference returned "
                f"{wanted.shape}"
            )
    return examine(given, expected, actual, tolerance)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
