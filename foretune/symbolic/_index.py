"""Integer expressions of loops: sums of digits, and what cannot be written so.

A loop variable is a number; a *digit* of it is ``(loop % high) // low`` with a value range of
``high / low``. Splitting and fusing loops turns digits into digits: a fused loop has the old loops
as its digits, and a split takes a digit apart where the new loops meet inside it. So every index of
a tiled program is a sum of digits times coefficients, however often its loops were split and fused.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from foretune.symbolic._scalar import Algebra, Scalar

_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "minimum": min,
    "maximum": max,
    "product": operator.mul,
}


@dataclass(frozen=True)
class Iterator_:
    """A block's iterator, by a number that is unique in the program."""

    index: int


@dataclass(frozen=True)
class Digit:
    """``(loop % high) // low``.

    Attributes:
        loop: The loop's number.
        high: ``low`` times the number of values.
        low: 1 for the innermost digit.
        leading: Whether it is the outermost digit, so that the remainder need not be taken.
        coupled: Condition that the remainder is taken of a sum in which it is one term; None for
            never.
    """

    loop: int
    high: Scalar
    low: Scalar
    leading: bool
    coupled: Scalar | None = None

    @property
    def size(self) -> Scalar:
        """Number of values."""
        return self.high / self.low


@dataclass(frozen=True)
class Opaque:
    """An integer operation on indices that is not linear: ``//``, ``%``, min, max, a product.

    Attributes:
        kind: ``"floordiv"``, ``"floormod"``, ``"minimum"``, ``"maximum"`` or ``"product"``.
        args: The operands.
    """

    kind: str
    args: tuple[Index, ...]


Atom = Union[Iterator_, Digit, Opaque]  # noqa: UP007 - evaluated at run time on Python 3.10
Range = tuple[Scalar, Scalar]
_SEPARABLE = 2
"""Terms of a sum up to which TVM's rules take its remainder apart."""


@dataclass(frozen=True)
class Index:
    """``constant`` plus a sum of coefficients times atoms, in the order of the program."""

    constant: Scalar
    terms: tuple[tuple[Scalar, Atom], ...] = ()

    @property
    def algebra(self) -> Algebra:
        """Who owns the coefficients."""
        return self.constant.algebra

    def __add__(self, other: Index) -> Index:
        if not other.terms:
            return Index(self.constant + other.constant, self.terms)
        terms = list(self.terms)
        for coefficient, atom in other.terms:
            for at, (mine, same) in enumerate(terms):
                if same == atom:
                    terms[at] = (mine + coefficient, atom)
                    break
            else:
                terms.append((coefficient, atom))
        kept = tuple(t for t in terms if t[0].constant != 0)
        return Index(self.constant + other.constant, kept)

    def scaled(self, factor: Scalar) -> Index:
        """Every part times a factor."""
        known = factor.constant
        if known == 1 or known == 0:
            return self if known else Index(factor)
        return Index(self.constant * factor, tuple((c * factor, a) for c, a in self.terms))

    def replace(self, of: Callable[[Atom], Index | None]) -> Index:
        """Puts indices in the place of atoms; atoms for which ``of`` gives None stay."""
        result, none = Index(self.constant), self.algebra.number(0)
        for coefficient, atom in self.terms:
            new = of(atom)
            if new is None and isinstance(atom, Opaque):
                new = opaque(atom.kind, *(a.replace(of) for a in atom.args))
            if new is None:
                result = result + Index(none, ((coefficient, atom),))
            else:
                result = result + new.scaled(coefficient)
        return result

    def atoms(self) -> list[Atom]:
        """All atoms, those inside opaque ones included."""
        distinct: list[Atom] = []
        for _, atom in self.terms:
            distinct.append(atom)
            if isinstance(atom, Opaque):
                distinct += [a for arg in atom.args for a in arg.atoms()]
        return distinct

    def range(self, of: Callable[[Digit], Range | None]) -> Range:
        """Smallest and largest value by interval arithmetic.

        Args:
            of: The range of a digit; None for the whole.
        """
        low = high = self.constant
        for coefficient, atom in self.terms:
            a, b = _atom_range(atom, of)
            if coefficient.negative:
                a, b = b, a
            low, high = low + a * coefficient, high + b * coefficient
        return low, high


def _atom_range(atom: Atom, of: Callable[[Digit], Range | None]) -> Range:
    if isinstance(atom, Digit):
        one = atom.low.algebra.number(1)
        return of(atom) or (one - one, atom.size - 1)
    if isinstance(atom, Iterator_):
        raise TypeError("an iterator's range is that of the loops it is bound to")
    (low, high), (other_low, other_high) = (a.range(of) for a in atom.args)
    if atom.kind == "minimum":
        return low.minimum(other_low), high.minimum(other_high)
    if atom.kind == "maximum":
        return low.maximum(other_low), high.maximum(other_high)
    if atom.kind == "product":
        corners = [a * b for a in (low, high) for b in (other_low, other_high)]
        return functools.reduce(Scalar.minimum, corners), functools.reduce(Scalar.maximum, corners)
    if atom.kind == "floordiv":
        return low.floor_divided(other_low), high.floor_divided(other_low)
    whole = high.less(other_low)
    zero = low.algebra.number(0)
    fits = low.algebra.all_of([whole, zero.at_most(low)])
    return fits.choose(low, zero), fits.choose(high, other_low - 1)


def number(algebra: Algebra, value: int) -> Index:
    """A constant index."""
    return Index(algebra.number(value))


def single(algebra: Algebra, atom: Atom) -> Index:
    """One atom."""
    return Index(algebra.number(0), ((algebra.number(1), atom),))


def opaque(kind: str, left: Index, right: Index) -> Index:
    """A non-linear operation, computed where both operands are constant."""
    a, b = left.constant.constant, right.constant.constant
    if not left.terms and not right.terms and a is not None and b is not None:
        return Index(left.algebra.number(_INTEGERS[kind](int(a), int(b))))
    if kind == "floordiv" and b == 1:
        return left
    if kind == "floormod" and b == 1:
        return number(left.algebra, 0)
    return single(left.algebra, Opaque(kind, (left, right)))


def meets(
    digit: Digit, extent: Scalar, parts: Sequence[tuple[int, Scalar]], guarded: bool = False
) -> Scalar:
    """Whether ``split_digit`` is exact: the new loops and the digit have boundaries in common.

    Args:
        digit: A digit of the loop that is no more.
        extent: Iterations of that loop.
        parts: (number, iterations) of the new loops, outermost first.
        guarded: Whether it is also exact where the inner loops have at least all iterations, so
            that what is beyond the digit is never executed.
    """
    algebra = digit.low.algebra
    borders = [digit.low] if digit.leading else [digit.low, digit.high]
    weight = algebra.number(1)
    conditions = []
    for _, iterations in reversed(parts[1:]):
        weight = weight * iterations
        for border in borders:
            if not algebra.chained(weight, border):
                divided = [weight.divides(border), border.divides(weight), border.equal(extent)]
                if guarded:
                    divided.append(extent.at_most(weight))
                conditions.append(algebra.any_of(divided))
    return algebra.all_of(conditions)


def split_digit(
    digit: Digit, extent: Scalar, parts: Sequence[tuple[int, Scalar]], mapped: bool = True
) -> Index:
    """A digit of a loop that was split, as digits of the new loops.

    Exact where the boundaries of the new loops and those of the digit divide each other.

    Args:
        digit: A digit of the loop that is no more.
        extent: Iterations of that loop; those of the new ones are at least as many.
        parts: (number, iterations) of the new loops, outermost first.
        mapped: Whether TVM simplifies the result as a map of iterators. Otherwise it takes
            remainders apart in sums of two terms only.
    """
    algebra = digit.low.algebra
    one = algebra.number(1)
    terms: list[tuple[Scalar, Atom]] = []
    weights = [one]
    for _, size in reversed(parts[1:]):
        weights.append(weights[-1] * size)
    padded = weights[-1] * parts[0][1]
    limit = digit.high
    if not padded.same(extent):
        # Nothing bounds the outermost digit but the guard around the block.
        outermost = algebra.all_of([limit.equal(extent), digit.size.above_one()])
        limit = outermost.choose(padded, limit)
    for at, ((loop, iterations), weight) in enumerate(zip(parts, reversed(weights), strict=True)):
        leading = digit.leading and at == 0
        top = weight * iterations
        high = limit.minimum(top).maximum(weight)
        low = digit.low.maximum(weight).minimum(high)
        size = high / low
        if size.constant == 1:
            continue
        new = Digit(loop, high / weight, low / weight, leading)
        terms.append((low / digit.low, new))
    if not mapped and not digit.leading and len(terms) == len(parts) > _SEPARABLE:
        outer = terms[0][1]
        assert isinstance(outer, Digit)
        several = [atom.size.above_one() for _, atom in terms if isinstance(atom, Digit)]
        coupled = algebra.all_of([*several, outer.high.less(parts[0][1])])
        terms = [(c, replace(a, coupled=coupled)) for c, a in terms if isinstance(a, Digit)]
    return Index(algebra.number(0), tuple(terms))
