"""Comparing arrays: number by number, and in their own type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from foretune._arrays import Array
from foretune.workload.element_types import is_float

_LOWEST_SCALE = 1e-6
# Of a normal distribution the first gives a third of the standard deviation: the product is between
# the root of the mean square and the largest of a few hundred numbers.
_QUANTILE, _FACTOR = 0.25, 8.0
_SAMPLE = 1 << 16


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is from what it should be.

    Attributes:
        name: Of the output.
        absolute: Largest absolute difference; NaN where there is no number for it: another type or
            shape, or something not finite in only one of two elements.
        relative: Largest of the differences that are each divided by ``scale_of`` the output plus
            the magnitude of the number that should stand there.
        mismatch: What no tolerance can excuse: another type or shape, NaN or infinities elsewhere,
            other integers. Empty if there is none.
        at: Where ``relative`` is found.
        expected: What should stand there, as text.
        actual: What stands there.
    """

    name: str
    absolute: float = 0.0
    relative: float = 0.0
    mismatch: str = ""
    at: tuple[int, ...] = ()
    expected: str = ""
    actual: str = ""

    def within(self, tolerance: float) -> bool:
        """Whether nothing differs but by rounding: ``relative`` is no more than ``tolerance``."""
        return not self.mismatch and self.relative <= tolerance

    def describe(self, tolerance: float) -> str:
        """What differs and how far, in one line."""
        return self.mismatch or (
            f"output {self.name!r} differs by {self.absolute:.3g}: at {list(self.at)} it is "
            f"{self.actual} where the original gives {self.expected}, which is "
            f"{self.relative:.2g} of the magnitude there; rounding explains {tolerance:.2g}"
        )


def compare_outputs(
    expected: Sequence[Array],
    actual: Sequence[Array],
    names: Sequence[str] = (),
    steps: Sequence[float] = (),
) -> list[OutputDifference]:
    """Compares outputs one by one: type, shape and values.

    Floating-point numbers are subtracted in float64 (complex numbers part by part), integers and
    booleans exactly. NaN and infinities must stand where the original has them.

    Args:
        expected: What the original gives.
        actual: What is compared with it.
        names: Of the outputs; their numbers by default.
        steps: Per output, by how much it may differ without being another result, in its own
            units: the step of a quantised output, for example 1 for integers. None may by default.

    Raises:
        ValueError: Another number of outputs, which is no question of values.
    """
    if len(expected) != len(actual):
        raise ValueError(f"{len(actual)} outputs cannot be compared with {len(expected)}")
    names = names or [str(number) for number in range(len(expected))]
    steps = steps or [0.0] * len(expected)
    return [
        _compare(name, np.asarray(wanted), np.asarray(got), step)
        for name, wanted, got, step in zip(names, expected, actual, steps, strict=True)
    ]


def scale_of(magnitudes: Array) -> float:
    """What numbers of an output are typically as large as, however large a few of them are.

    Eight times the lower quartile of the magnitudes, zero and repetitions left out, and at most the
    largest: masked elements of -1e9, or of the lowest number that there is, say nothing about the
    errors of the others. Sums that cancel out have no magnitude of their own; they are measured by
    this one.

    Args:
        magnitudes: Finite numbers of the output, in float64, none below 0.
    """
    nonzero = magnitudes[magnitudes > 0]
    if nonzero.size > _SAMPLE:
        nonzero = nonzero[np.random.default_rng(0).integers(0, nonzero.size, _SAMPLE)]
    if not nonzero.size:
        return _LOWEST_SCALE
    distinct = np.unique(nonzero)
    # Of a few numbers not the smallest, which may be what a sum left by chance.
    place = max(int(_QUANTILE * (distinct.size - 1)), int(distinct.size > 2))
    typical = _FACTOR * float(distinct[place])
    return max(min(typical, float(magnitudes.max())), _LOWEST_SCALE)


def smallest_normal(dtype: np.dtype[Any]) -> float:
    """From where on the numbers of a type are no closer to each other: half precision at 6e-5."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]


def largest_difference(differences: Sequence[OutputDifference]) -> tuple[float, float]:
    """Largest absolute and relative difference of several outputs; NaN if one has no number."""
    # max() of Python drops NaN depending on its place; NumPy's keeps it.
    absolute = np.max([d.absolute for d in differences], initial=0.0)
    relative = np.max([d.relative for d in differences], initial=0.0)
    return float(absolute), float(relative)


def integer_distance(left: Array, right: Array) -> Array:
    """Absolute difference of two arrays of integers or booleans of one type, exact, as uint64."""
    wide = np.uint64 if left.dtype.kind in "ub" else np.int64
    one, other = left.astype(wide), right.astype(wide)
    # Modulo 2^64 the difference of the larger and the smaller is right in every case.
    swapped = one < other
    one, other = one.view(np.uint64), other.view(np.uint64)
    distance: Array = np.where(swapped, other - one, one - other)
    return distance


def _compare(name: str, expected: Array, actual: Array, step: float) -> OutputDifference:
    for what, wanted, got in (
        ("of type", expected.dtype.name, actual.dtype.name),
        ("of shape", expected.shape, actual.shape),
    ):
        if wanted != got:
            message = f"output {name!r} is {what} {got}, and the original's {what} {wanted}"
            return OutputDifference(name, np.nan, np.nan, message)
    if not expected.size:
        return OutputDifference(name)
    if expected.dtype.kind == "c":
        expected, actual = _parts(expected), _parts(actual)
    if is_float(expected.dtype):
        return _compare_floats(name, expected, actual, step)
    return _compare_integers(name, expected, actual, step)


def _parts(array: Array) -> Array:
    """Complex numbers as a last dimension of two."""
    return np.stack([array.real, array.imag], axis=-1)


def _compare_floats(name: str, expected: Array, actual: Array, step: float) -> OutputDifference:
    wanted, got = expected.astype("float64"), actual.astype("float64")
    finite = np.isfinite(wanted)
    # Equal infinities are equal; NaN stands where NaN stands.
    placed = np.where(
        finite, np.isfinite(got), (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    )
    if not placed.all():
        at = _position(int(placed.argmin()), placed)
        message = (
            f"output {name!r} is {actual[at]} at {list(at)} where the original gives "
            f"{expected[at]} ({int(np.count_nonzero(~placed))} such of {placed.size} elements)"
        )
        return OutputDifference(name, np.nan, np.nan, message, at)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(finite, np.abs(wanted - got), 0.0)
    error[error <= step] = 0.0
    magnitude = np.abs(np.where(finite, wanted, 0.0))
    scale = max(scale_of(magnitude[finite]), smallest_normal(expected.dtype))
    # Halves: the sum of two of the largest numbers of float64 is not finite.
    relative = (error / 2) / (scale / 2 + magnitude / 2)
    at = _position(int(relative.argmax()), relative)
    return OutputDifference(
        name,
        float(error.max()),
        float(relative[at]),
        "",
        at,
        _digits(expected[at]),
        _digits(actual[at]),
    )


def _compare_integers(name: str, expected: Array, actual: Array, step: float) -> OutputDifference:
    distance = integer_distance(expected, actual)
    wrong = distance > np.uint64(step)
    if not wrong.any():
        return OutputDifference(name)
    worst = int(distance.max())
    at = _position(int(distance.argmax()), distance)
    magnitude = integer_distance(expected, np.zeros_like(expected))
    message = (
        f"output {name!r} is {actual[at]} at {list(at)} where the original gives {expected[at]} "
        f"({int(np.count_nonzero(wrong))} of {wrong.size} elements differ)"
    )
    return OutputDifference(name, float(worst), worst / max(int(magnitude.max()), 1), message, at)


def _position(number: int, array: Array) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(number, array.shape))


def _digits(value: object) -> str:
    return f"{float(value):.6g}"  # type: ignore[arg-type]
