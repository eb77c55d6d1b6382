"""Whether what is outside the tolerance is as exact as the original all the same.

A network may amplify its own rounding: then the original is as far from what it should compute as
the artifact, and the difference of the two says little. Both are set beside the original's program
in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from foretune.graph._compare import OutputDifference
from foretune.workload.model import Array, is_float

# Two roundings of the same program may be that far apart in their largest errors.
FACTOR = 4.0
# Rounding units of the output's own type that are always allowed.
_UNITS = 8.0


def still_wrong(
    wrong: Sequence[tuple[int, OutputDifference]],
    expected: Sequence[Array],
    actual: Sequence[Array],
    exact: Sequence[Array],
    own: Sequence[Array],
    steps: Sequence[float] = (),
) -> list[tuple[int, OutputDifference]]:
    """Of the outputs that differ by more than the tolerance, those that are wrong.

    Args:
        wrong: Position and difference of each.
        expected: What the original gives.
        actual: What the artifact gives.
        exact: What the original's program gives in float64.
        own: What it gives in its own types, each operator's result rounded: more than the
            original's runtime rounds, where that keeps half-precision numbers in float32.
        steps: Per output, what is allowed on top, in its own units; nothing by default.
    """
    steps = steps or [0.0] * len(expected)
    return [
        (at, difference)
        for at, difference in wrong
        if not _is_right(difference, expected[at], actual[at], exact[at], own[at], steps[at])
    ]


def _is_right(
    difference: OutputDifference,
    expected: Array,
    actual: Array,
    exact: Array,
    own: Array,
    step: float,
) -> bool:
    if exact.shape != expected.shape or expected.shape != actual.shape:
        return False
    if expected.dtype != actual.dtype:
        return False
    if not is_float(expected.dtype) and step:
        truth = exact.astype("float64")
        allowed = step + FACTOR * float(np.abs(expected - truth).max(initial=0.0))
        return float(np.abs(actual - truth).max(initial=0.0)) <= allowed
    if not is_float(expected.dtype):
        # Where rounding alone decides, as between two equal maxima, the original decides by chance.
        return bool(((actual == expected) | (expected != exact)).all())
    if difference.mismatch:
        return False
    truth = exact.astype("float64")
    known = np.isfinite(truth) & np.isfinite(expected.astype("float64"))
    if not known.any():
        return False
    errors = [float(np.abs(a.astype("float64") - truth)[known].max()) for a in (expected, own)]
    epsilon = float(ml_dtypes.finfo(expected.dtype).eps)  # type: ignore[no-untyped-call]
    allowed = step + FACTOR * max(errors) + _UNITS * epsilon * float(np.abs(truth[known]).max())
    return float(np.abs(actual.astype("float64") - truth)[known].max()) <= allowed
