"""Whether what is outside the tolerance is as exact as the original all the same.

A network may amplify its own rounding: then the original is as far from what it should compute as
the artifact, and the difference of the two says little. Both are set beside the original's program
in float64, number by number. What the original itself got wrong at one place excuses nothing at
another, and where it is far from its own program, that program is no judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from foretune._arrays import Array
from foretune.graph._compare import OutputDifference, integer_distance, scale_of, smallest_normal
from foretune.workload.element_types import is_float

# Two roundings of the same program may be that far apart in their errors.
_FACTOR = 4.0
# Rounding units of the output's own type that are always allowed.
_UNITS = 8.0
_CAP = 0.05
"""Error of the original, in parts of the magnitude, from which on it is gross: a choice that
rounding made otherwise, as between two maxima, and no rounding of the number itself."""
_CAP_STEPS = 8.0
"""The same in steps of a quantised output."""
_NOISE = 1e-4
"""No error is gross below this: of sums that cancel out nothing but rounding is left."""
_SHARE = 0.25
"""Share of gross errors from which on there is no verdict."""
_TYPICAL = 0.95
"""Quantile of the original's errors that stands for its errors elsewhere: not its largest, which
may be a single choice."""
_ENOUGH = 8
"""So many numbers have a quantile that is not the largest of them."""
_SATURATED = 1 / 16
"""Rounding units of an error, below which a number is as good as exact."""


@dataclass(frozen=True)
class Evidence:
    """One output, computed in several ways.

    Attributes:
        expected: What the original gives.
        exact: What the original's program gives in float64.
        own: What it gives in its own types, each operator's result rounded: more than the
            original's runtime rounds, where that keeps half-precision numbers in float32. None
            where the runtime does just that.
        step: What is allowed on top, in the output's own units.
        spread: How far each number of ``exact`` moves by rounding alone, where that is known.
    """

    expected: Array
    exact: Array
    own: Array | None = None
    step: float = 0.0
    spread: Array | None = None

    @property
    def is_chaos(self) -> bool:
        """Whether rounding alone moves so many of the numbers so far that none can be judged."""
        if self.spread is None or not self.exact.size or not is_float(self.expected.dtype):
            return False
        finite = np.isfinite(self.exact)
        magnitude = np.abs(np.where(finite, self.exact, 0.0))
        most = _gross_from(magnitude + scale_of(magnitude), self.step)
        return bool((self.spread > most).mean() > _SHARE)


def still_wrong(
    wrong: Sequence[tuple[int, OutputDifference]],
    actual: Sequence[Array],
    evidence: Sequence[Evidence],
    tolerance: Sequence[float],
) -> list[tuple[int, OutputDifference]]:
    """Of the outputs that differ by more than the tolerance, those that are wrong.

    Args:
        wrong: Position and difference of each.
        actual: What the artifact gives: all outputs.
        evidence: How each output is judged.
        tolerance: Per output: what differs by less is right whatever the judge says.
    """
    return [
        (at, difference)
        for at, difference in wrong
        if not _is_right(actual[at], evidence[at], tolerance[at])
    ]


def _is_right(actual: Array, known: Evidence, tolerance: float) -> bool:
    expected = known.expected
    if (known.exact.shape, actual.shape) != (expected.shape, expected.shape):
        return False
    if expected.dtype != actual.dtype or not expected.size:
        return False
    if expected.dtype.kind == "c":
        return False
    return (_floats_are_right if is_float(expected.dtype) else _integers_are_right)(
        actual, known, tolerance
    )


def _integers_are_right(actual: Array, known: Evidence, _tolerance: float) -> bool:
    """Each is the original's, or the exact one, or lies between two that are not far apart."""
    expected = known.expected
    if known.exact.dtype != expected.dtype:
        return False
    apart = integer_distance(expected, known.exact)
    magnitude = integer_distance(known.exact, np.zeros_like(known.exact))
    steps = np.uint64(known.step)
    most = np.maximum(_CAP * magnitude.astype("float64"), max(1.0, _CAP_STEPS * known.step))
    gross = apart > most
    if gross.mean() > _SHARE:
        return False
    from_original = integer_distance(expected, actual)
    from_exact = integer_distance(known.exact, actual)
    right = (from_original <= steps) | (from_exact <= steps)
    right |= ~gross & (from_original <= apart) & (from_exact <= apart)
    if known.step:
        counted = np.where(gross, 0.0, apart.astype("float64"))
        right |= from_exact <= known.step + _FACTOR * np.maximum(counted, _usual(counted))
    return bool(right.all())


def _floats_are_right(actual: Array, known: Evidence, tolerance: float) -> bool:
    wanted, got, truth = (a.astype("float64") for a in (known.expected, actual, known.exact))
    finite = np.isfinite(wanted)
    same = np.where(finite, np.isfinite(got), (wanted == got) | (np.isnan(wanted) & np.isnan(got)))
    if not same.all():
        return False
    judged = finite & np.isfinite(truth)
    # Elsewhere float64 says nothing, and the tolerance is the last word.
    truth = np.where(judged, truth, np.where(finite, wanted, 0.0))
    wanted, got = np.where(finite, wanted, 0.0), np.where(finite, got, 0.0)
    lowest = smallest_normal(known.expected.dtype)
    magnitude = max(scale_of(np.abs(truth)), lowest) + np.abs(truth)
    error = np.abs(wanted - truth)
    most = _gross_from(magnitude, known.step)
    if (error > most).mean() > _SHARE:
        return False
    within = tolerance + _UNITS * _epsilon(known.expected)
    right = np.abs(got - wanted) <= known.step + _around(wanted, tolerance, lowest)
    if known.own is not None and known.own.shape == truth.shape:
        own = np.where(judged, known.own.astype("float64"), wanted)
        own = np.where(np.isfinite(own), own, wanted)
        # The same program, rounded as it says: who comes to the same as that is right, too.
        right |= np.abs(got - own) <= known.step + _around(own, within, lowest)
        error = np.maximum(error, np.abs(own - truth))
    if known.spread is not None:
        error = np.maximum(error, np.where(judged, known.spread, 0.0))
    counted = np.where(error > most, 0.0, error)
    unit = _epsilon(known.expected)
    relative = counted / magnitude
    usual = np.maximum(_usual(relative), _unsaturated(relative, unit))
    allowed = _UNITS * unit * magnitude + known.step
    allowed += _FACTOR * np.maximum(counted, usual * magnitude)
    return bool((right | (judged & (np.abs(got - truth) <= allowed))).all())


def _gross_from(magnitude: Array, step: float) -> Array:
    """From where on an error is another choice, and no rounding of the number itself."""
    border: Array = np.maximum(_CAP * magnitude, max(_NOISE, _CAP_STEPS * step))
    return border


def _epsilon(array: Array) -> float:
    return float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]


def _around(values: Array, tolerance: float, lowest: float) -> Array:
    """How far a tolerance reaches from each number."""
    magnitude = np.abs(values)
    reach: Array = tolerance * (max(scale_of(magnitude), lowest) + magnitude)
    return reach


def _usual(errors: Array) -> Array:
    """For each number what the errors beside it are like: all, or those of its row or channel.

    What one row amplifies, the others need not. Each of them is a quantile, so that no single
    number speaks for others.
    """
    usual = np.full(errors.shape, _quantile(errors, None))
    for axis in range(errors.ndim if errors.ndim > 1 else 0):
        others = tuple(at for at in range(errors.ndim) if at != axis)
        usual = np.maximum(usual, _quantile(errors, others))
    return usual


def _unsaturated(errors: Array, unit: float) -> float:
    """What errors are like among the numbers that have any.

    Where most are saturated, as behind a ``tanh`` of large numbers, or zero, as behind a ``relu``,
    these are exact, and say nothing of those that are not.
    """
    some = errors[errors > _SATURATED * unit]
    return float(_quantile(some, None)) if some.size >= _ENOUGH else 0.0


def _quantile(errors: Array, axes: tuple[int, ...] | None) -> Array:
    quantile: Array = np.quantile(
        errors, _TYPICAL, axis=axes, method="lower", keepdims=axes is not None
    )
    return quantile
