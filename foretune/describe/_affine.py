"""Index expressions as sums of digits of loops.

A digit of a loop is ``loop // low % (high / low)``; sums of digits times coefficients are what
tiled programs index with, however often their loops were split and fused. Quotients and remainders
of sums are sums again where the divisor meets the boundaries of digits. Where it does not, each
digit is divided by itself, and the sum says that it is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Digit = tuple[int, int, int]
"""Number of the loop, low, high; of the outermost digit ``high`` is the loop's extent."""


@dataclass(frozen=True)
class Sum:
    """``constant`` plus coefficients times digits.

    Attributes:
        constant: The whole number.
        digits: Digit -> coefficient, never 0.
        exact: Whether it is the expression that it was made of.
    """

    constant: float = 0
    digits: Mapping[Digit, float] = field(default_factory=dict)
    exact: bool = True

    def plus(self, other: Sum, factor: float = 1) -> Sum:
        """The sum with another, times a factor."""
        digits = dict(self.digits)
        for digit, coefficient in other.digits.items():
            digits[digit] = digits.get(digit, 0) + coefficient * factor
        return Sum(
            self.constant + other.constant * factor,
            {digit: c for digit, c in digits.items() if c},
            self.exact and other.exact,
        )

    def times(self, factor: float) -> Sum:
        """Every part times a factor."""
        return Sum(exact=self.exact).plus(self, factor)

    def loosely(self) -> Sum:
        """The same, known to be inexact."""
        return Sum(self.constant, self.digits, False)

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value, as if digits were independent."""
        low = high = self.constant
        for digit, coefficient in self.digits.items():
            reach = coefficient * (values(digit) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


def values(digit: Digit) -> int:
    """How many values a digit takes."""
    _, low, high = digit
    return -(-high // low)


def of_loop(loop: int, extent: int) -> Sum:
    """A loop's iteration."""
    return Sum(0, {(loop, 1, extent): 1} if extent > 1 else {})


def canonical(given: Sum, extents: Mapping[int, int]) -> Sum:
    """Digits of one loop put together or cancelled where they can be.

    Before → after: with 8 iterations of ``x``, ``4 * (x // 4) + x % 4`` → ``x``, and
    ``x // 2 - 2 * (x // 4)`` → ``x // 2 % 2``.

    Args:
        given: The sum.
        extents: Iterations of loops.
    """
    by_loop: dict[int, dict[Digit, float]] = {}
    for digit, coefficient in given.digits.items():
        by_loop.setdefault(digit[0], {})[digit] = coefficient
    digits: dict[Digit, float] = {}
    for loop, own in by_loop.items():
        digits.update(_joined(_elementary(loop, own, extents[loop])) if len(own) > 1 else own)
    return Sum(given.constant, digits, given.exact)


def _elementary(loop: int, own: dict[Digit, float], extent: int) -> dict[Digit, float]:
    """The same without overlap of digits, if their boundaries divide each other."""
    borders = sorted({border for _, low, high in own for border in (low, high)})
    if any(b % a and b != extent for a, b in pairwise(borders)):
        return own
    digits: dict[Digit, float] = {}
    for (_, low, high), coefficient in own.items():
        for a, b in pairwise(borders):
            if low <= a and b <= high:
                digits[loop, a, b] = digits.get((loop, a, b), 0) + coefficient * (a // low)
    return {digit: c for digit, c in digits.items() if c}


def _joined(own: dict[Digit, float]) -> dict[Digit, float]:
    digits: list[tuple[Digit, float]] = []
    for digit in sorted(own, key=lambda each: each[1]):
        loop, low, high = digit
        if digits:
            (_, below, end), coefficient = digits[-1]
            if end == low and low % below == 0 and own[digit] == coefficient * (low // below):
                digits[-1] = (loop, below, high), coefficient
                continue
        digits.append((digit, own[digit]))
    return dict(digits)


def divided(given: Sum, divisor: int, extents: Mapping[int, int]) -> tuple[Sum, Sum]:
    """The quotient, rounded down, and the remainder.

    Args:
        given: What is divided.
        divisor: At least 1.
        extents: Iterations of loops.
    """
    whole, rest = _parted(canonical(given, extents), divisor, extents)
    low, high = rest.bounds
    if low >= 0 and high < divisor:
        return whole, rest
    return _each_divided(whole, rest, divisor)


def _parted(given: Sum, divisor: int, extents: Mapping[int, int]) -> tuple[Sum, Sum]:
    """What is a multiple of the divisor, divided by it, and the rest."""
    quotient, constant = divmod(given.constant, divisor)
    whole: dict[Digit, float] = {}
    rest: dict[Digit, float] = {}
    for digit, coefficient in given.digits.items():
        loop, low, high = digit
        if coefficient % divisor == 0:
            whole[digit] = coefficient // divisor
            continue
        if coefficient > 0 and divisor % coefficient == 0:
            border = low * int(divisor // coefficient)
            if border < high and (high == extents[loop] or high % border == 0):
                whole[loop, border, high] = 1
                rest[loop, low, border] = coefficient
                continue
        rest[digit] = coefficient
    return Sum(quotient, whole, given.exact), Sum(constant, rest, given.exact)


def _each_divided(whole: Sum, rest: Sum, divisor: int) -> tuple[Sum, Sum]:
    """Quotient and remainder digit by digit: close to what they are of the sum."""
    quotients: dict[Digit, float] = {}
    remainders: dict[Digit, float] = {}
    for digit, coefficient in rest.digits.items():
        loop, low, high = digit
        size = abs(coefficient)
        if size >= divisor:
            quotients[digit] = coefficient / divisor
            step = math.gcd(int(size), divisor)
            remainders[loop, low, min(high, low * (divisor // step))] = step
            continue
        border = low * int(-(-divisor // size))
        remainders[loop, low, min(high, border)] = size
        if border < high:
            quotients[loop, border, high] = 1 if coefficient > 0 else -1
    quotient = whole.plus(Sum(0, quotients)).loosely()
    return quotient, Sum(0, remainders, False)
