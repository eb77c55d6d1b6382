"""Comparing an artifact's outputs with the original model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from foretune.graph._compare import OutputDifference, compare_outputs, largest_difference
from foretune.graph._exact import Exact
from foretune.graph._input_sets import InputSet, verification_inputs
from foretune.graph._judge import Evidence, still_wrong
from foretune.graph._sample import Sample
from foretune.graph._steps import output_steps
from foretune.graph._tolerance import arithmetic_of, default_tolerance

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.workload import Model

TOLERANCE = "tolerance"
"""What judged where nothing else was needed."""

CHAOS = "rounding alone makes another result of the original"
"""Why inputs judge nothing, although outputs for them differ."""


@dataclass(frozen=True)
class Verification:
    """How far an artifact's outputs are from the original's.

    Attributes:
        ok: Whether every output has the original's type and shape, the same integers, and floats
            within the tolerance that are finite where the original's are.
        max_abs_error: Largest absolute difference over all outputs and inputs; NaN where there is
            no number for it.
        max_relative_error: Largest ``OutputDifference.relative``, likewise.
        tolerance: Bound on ``max_relative_error`` that was applied.
        inputs: Names of the sets of inputs that were compared.
        message: What differs first, and how far, in one line; empty if ``ok``.
        left_out: Names of the sets that could not be compared, and why.
        judged_by: ``"tolerance"`` if everything was within it, or no more was to be had; else what
            computed the float64 that something outside of it was judged by; for a network that
            rounds to bytes, the original's runtime without its rewrites.
    """

    ok: bool
    max_abs_error: float
    max_relative_error: float
    tolerance: float
    inputs: tuple[str, ...]
    message: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    judged_by: str = TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """A JSON object for the manifest of what was verified."""
        return {
            "inputs": list(self.inputs),
            "left_out": dict(self.left_out),
            "tolerance": self.tolerance,
            "judged_by": self.judged_by,
        }


def merged(checks: Sequence[Verification]) -> Verification:
    """What several comparisons of one artifact say together: on disjoint sets of inputs."""
    differences = [OutputDifference("", c.max_abs_error, c.max_relative_error) for c in checks]
    absolute, relative = largest_difference(differences)
    return Verification(
        all(check.ok for check in checks),
        absolute,
        relative,
        max(check.tolerance for check in checks),
        tuple(name for check in checks for name in check.inputs),
        next((check.message for check in checks if check.message), ""),
        {name: why for check in checks for name, why in check.left_out.items()},
        next((c.judged_by for c in checks if c.judged_by != TOLERANCE), TOLERANCE),
    )


@dataclass(frozen=True)
class Examination:
    """Outputs, compared with the original's.

    Attributes:
        differences: Of each output.
        wrong: Those that nothing excuses.
        judged_by: As in ``Verification``.
        is_chaos: Whether rounding alone makes other outputs of those that are wrong.
    """

    differences: list[OutputDifference]
    wrong: list[OutputDifference]
    judged_by: str
    is_chaos: bool = False


def judge_outputs(
    expected: Sequence[Array],
    actual: Sequence[Array],
    names: Sequence[str],
    tolerances: Sequence[float],
    steps: Sequence[float],
    exact: Callable[[], Exact | None],
    spread: Callable[[], Exact | None] | None = None,
) -> Examination:
    """Compares outputs, and has what differs by more than its tolerance judged.

    Args:
        expected: What the original gives.
        actual: What is compared with it, as many outputs.
        names: Of the outputs.
        tolerances: Per output, as ``OutputDifference.relative`` counts.
        steps: As in ``verify``.
        exact: What the original's program gives in float64; asked only where it is needed.
        spread: The same with its spread, which takes longer; asked where the former excuses too
            little.
    """
    differences = compare_outputs(expected, actual, names, steps)
    wrong = [(n, d) for n, d in enumerate(differences) if not d.within(tolerances[n])]
    judged_by, chaos = TOLERANCE, False
    for ask in (exact, spread):
        known = ask() if wrong and ask is not None else None
        if known is None or len(known.outputs) != len(expected):
            break
        judged_by = known.by
        evidence = _evidence(expected, known, steps)
        wrong = still_wrong(wrong, actual, evidence, tolerances)
        chaos = bool(wrong) and all(evidence[at].is_chaos and not d.mismatch for at, d in wrong)
    return Examination(differences, [difference for _, difference in wrong], judged_by, chaos)


def _evidence(expected: Sequence[Array], known: Exact, steps: Sequence[float]) -> list[Evidence]:
    none: list[Array | None] = [None] * len(expected)
    parts = (expected, known.outputs, known.own or none, steps, known.spread or none)
    return [Evidence(*one) for one in zip(*parts, strict=True)]


def examine(
    given: InputSet,
    expected: Sequence[Array],
    actual: Sequence[Array],
    tolerance: float,
    steps: Sequence[float] = (),
    strict: bool = False,
) -> Examination:
    """Compares what a model's outputs are with what they should be for some inputs.

    Args:
        given: The inputs.
        expected: What the original gives for them.
        actual: What is compared with it, as many outputs.
        tolerance: Of each output.
        steps: As in ``verify``.
        strict: Whether the tolerance is the last word.
    """
    names = [spec.name for spec in given.model.outputs]
    return judge_outputs(
        expected,
        actual,
        names,
        [tolerance] * len(expected),
        list(steps) or output_steps(given.model),
        (lambda: None) if strict else given.exact,
        None if strict else given.exact_with_spread,
    )


def take_sample(given: InputSet, tolerance: float) -> Sample:
    """What goes with an artifact that was compared on these inputs, so that others can do the same.

    What the comparison was judged by goes with it; for a network that rounds to bytes always, as
    its outputs are not the same on every processor.
    """
    expected = tuple(given.expected() or ())
    quantised = arithmetic_of(given.model).rounds_to_bytes
    exact = given.exact() if quantised or given.was_judged else None
    if exact is not None and len(exact.outputs) != len(expected):
        exact = None
    return Sample(given.arrays, expected, tolerance, tuple(output_steps(given.model)), exact)


class Runnable(Protocol):
    """An artifact, or whatever else computes outputs from inputs."""

    @property
    def run(self) -> Callable[[Sequence[Array]], list[Array]]:
        """Outputs for one array per input."""


def verify(
    artifact: Runnable,
    model: Model,
    seeds: Sequence[int] = (0, 1, 2),
    tolerance: float | None = None,
    *,
    inputs: Sequence[InputSet] | None = None,
    steps: Sequence[float] = (),
) -> Verification:
    """Compares an artifact with the original: on the examples, random inputs and border cases.

    Args:
        artifact: The compiled model.
        model: What it was compiled from.
        seeds: One set of random inputs is drawn per seed.
        tolerance: Overrides ``default_tolerance``, and is the last word. Otherwise what differs by
            more is judged by the original's program in float64, where that can be had: right is
            what is about as exact as the original.
        inputs: Some of what ``verification_inputs`` returned, in place of all of it: so that a
            network can be proven on the first two and verified on the others later. They keep the
            original's outputs.
        steps: Per output, the step it is quantised with, in its own units: it may differ by one.
            By default what the graph says.
    """
    strict = tolerance is not None
    if tolerance is None:
        tolerance = default_tolerance(model)
    differences: list[OutputDifference] = []
    compared: list[str] = []
    left_out: dict[str, str] = {}
    message, judged_by = "", TOLERANCE
    for given in verification_inputs(model, seeds) if inputs is None else inputs:
        expected = given.expected()
        if expected is None:
            left_out[given.name] = given.refusal
            continue
        compared.append(given.name)
        actual = artifact.run(given.arrays)
        if len(expected) != len(actual):
            message = f"{len(actual)} outputs where the original has {len(expected)}"
            return Verification(False, np.nan, np.nan, tolerance, tuple(compared), message)
        seen = examine(given, expected, actual, tolerance, steps, strict)
        if seen.is_chaos and not given.must:
            compared.pop()
            left_out[given.name] = CHAOS
            continue
        differences += seen.differences
        judged_by = seen.judged_by if judged_by == TOLERANCE else judged_by
        if seen.wrong and not message:
            message = f"{seen.wrong[0].describe(tolerance)} (inputs: {given.name})"
    absolute, relative = largest_difference(differences)
    return Verification(
        not message,
        absolute,
        relative,
        tolerance,
        tuple(compared),
        message,
        left_out,
        judged_by,
    )
