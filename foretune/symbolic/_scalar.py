"""Numbers that depend on decisions, as shared expressions.

Idea. Sizes in a tiled program are products of tile factors and sums of such products, so a scalar
is a polynomial with integer powers (negative ones where a division is exact). Equal scalars have
equal terms, whatever way they were computed: ``1 + (b - 1) + b * (a - 1)`` is ``a * b``. All that
is no polynomial (a minimum, a comparison, a choice between two values) is a symbol of its own,
interned with its arguments, so common subexpressions exist once. Conditions are scalars of value 0
or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Union

Monomial = tuple[tuple[int, int], ...]
Number = Union[int, Fraction]  # noqa: UP007 - evaluated at run time on Python 3.10
Value = Union["Scalar", int]


class Symbol:
    """What a polynomial is made of: a variable, or an operation on scalars.

    Attributes:
        index: Its place in the algebra; arguments have smaller ones.
        kind: ``"variable"`` or the operation's name.
        args: The operation's arguments.
        name: A variable's name.
        truth: Whether its value is 0 or 1.
    """

    __slots__ = ("args", "index", "kind", "name", "truth")

    def __init__(self, index: int, kind: str, args: tuple[Scalar, ...], name: str = "") -> None:
        self.index, self.kind, self.args, self.name = index, kind, args, name
        self.truth = kind in _TRUTHS


_TRUTHS = frozenset({"less", "at_most", "equal", "and", "or", "not"})


class Algebra:
    """Owns the symbols of one symbolic program."""

    def __init__(self) -> None:
        self.symbols: list[Symbol] = []
        self._interned: dict[tuple[object, ...], Scalar] = {}
        self._groups: list[tuple[tuple[int, ...], int]] = []
        self._group_of: dict[int, int] = {}
        self._most: dict[int, int] = {}
        # The same few sizes meet again and again: what was found of a pair is kept.
        self._products: dict[tuple[Monomial, Monomial], tuple[Monomial, Number]] = {}
        self._inverses: dict[Monomial, tuple[Monomial, Number]] = {}
        self._ratios: dict[tuple[object, object], tuple[float, float]] = {}

    def number(self, value: Number) -> Scalar:
        """A constant."""
        return Scalar(self, {(): value} if value else {})

    def of(self, value: Value) -> Scalar:
        """A scalar from itself or a number."""
        return value if isinstance(value, Scalar) else self.number(value)

    def variable(self, name: str, most: int = 0) -> Scalar:
        """A new variable of values from 1 to ``most`` (0: of any)."""
        scalar = self._new("variable", (), name)
        if most:
            self._most[self.symbols[-1].index] = most
        return scalar

    def tile(self, names: Sequence[str], extent: int) -> list[Scalar]:
        """Factors, outermost first, whose product is ``extent``."""
        factors = [self.variable(name, extent) for name in names]
        members = tuple(f.symbol.index for f in factors)
        self._groups.append((members, extent))
        self._group_of.update(dict.fromkeys(members, len(self._groups) - 1))
        return factors

    def make(self, kind: str, *args: Scalar) -> Scalar:
        """The symbol of an operation, shared with earlier equal ones."""
        key = (kind, *(a.key for a in args))
        known = self._interned.get(key)
        if known is None:
            known = self._interned[key] = self._new(kind, args)
        return known

    def _new(self, kind: str, args: tuple[Scalar, ...], name: str = "") -> Scalar:
        symbol = Symbol(len(self.symbols), kind, args, name)
        self.symbols.append(symbol)
        return Scalar(self, {((symbol.index, 1),): 1})

    def times(self, left: Monomial, right: Monomial) -> tuple[Monomial, Number]:
        """The product of two monomials in normal form, and its constant factor."""
        known = self._products.get((left, right))
        if known is None:
            powers = dict(left)
            for symbol, power in right:
                powers[symbol] = powers.get(symbol, 0) + power
                if self.symbols[symbol].truth and powers[symbol] > 1:
                    powers[symbol] = 1
            known = self._products[left, right] = self.reduce(powers)
        return known

    def inverse(self, monomial: Monomial) -> tuple[Monomial, Number]:
        """One over a monomial, in normal form, and its constant factor."""
        known = self._inverses.get(monomial)
        if known is None:
            known = self._inverses[monomial] = self.reduce({s: -p for s, p in monomial})
        return known

    def ratio(self, a: Scalar, b: Scalar) -> tuple[float, float]:
        """Between what ``a / b`` stays for all decisions."""
        pair = a.key, b.key
        known = self._ratios.get(pair)
        if known is None:
            known = self._ratios[pair] = a._ratio(b)
        return known

    def reduce(self, powers: Mapping[int, int]) -> tuple[Monomial, Number]:
        """A monomial in normal form, and its constant factor: a tile's product is its extent."""
        powers = {s: p for s, p in powers.items() if p}
        constant: Number = 1
        for group in {self._group_of[s] for s in powers if s in self._group_of}:
            members, extent = self._groups[group]
            least = min(powers.get(m, 0) for m in members)
            if least:
                # Also for divisors: a quotient of tile factors is a product of the others.
                constant = constant * Fraction(extent) ** least
                for m in members:
                    powers[m] = powers.get(m, 0) - least
        return tuple(sorted((s, p) for s, p in powers.items() if p)), constant

    def bounds(self, monomial: Monomial) -> tuple[float, float]:
        """Between what a monomial stays: variables are at least 1, parts of a tile divide it."""
        low = high = 1.0
        parts: dict[tuple[int, bool], int] = {}
        for symbol, power in monomial:
            kind = self.symbols[symbol].kind
            group = self._group_of.get(symbol)
            if kind != "variable":
                return 0.0, math.inf
            most = float(self._most.get(symbol, math.inf))
            if group is not None:
                key = (group, power > 0)
                parts[key] = max(parts.get(key, 0), abs(power))
            elif power > 0:
                high *= most**power
            else:
                low *= most**power
        for (group, positive), power in parts.items():
            extent = float(self._groups[group][1]) ** power
            low, high = (low, high * extent) if positive else (low / extent, high)
        return low, high

    def chained(self, a: Scalar, b: Scalar) -> bool:
        """Whether one of two sizes is known to divide the other for all decisions."""
        if b.constant == 1 or _is_whole(a / b) or _is_whole(b / a):
            return True
        number = b.constant
        if number is None or len(a.terms) != 1:
            return False
        ((monomial, coefficient),) = a.terms.items()
        group = self._group_of.get(monomial[0][0]) if len(monomial) == 1 else None
        if group is None or monomial[0][1] != 1 or coefficient != 1:
            return False
        extent = self._groups[group][1]
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        return all(number % d == 0 or d % number == 0 for d in divisors)

    def all_of(self, conditions: Iterable[Scalar]) -> Scalar:
        """Whether all hold."""
        kept: dict[object, Scalar] = {}
        for condition in conditions:
            constant = condition.constant
            if constant == 0:
                return self.number(0)
            if constant is None:
                kept[condition.key] = condition
        if not kept:
            return self.number(1)
        terms = [kept[k] for k in sorted(kept, key=repr)]
        return terms[0] if len(terms) == 1 else self.make("and", *terms)

    def any_of(self, conditions: Iterable[Scalar]) -> Scalar:
        """Whether at least one holds."""
        kept: dict[object, Scalar] = {}
        for condition in conditions:
            constant = condition.constant
            if constant is not None and constant != 0:
                return self.number(1)
            if constant is None:
                kept[condition.key] = condition
        if not kept:
            return self.number(0)
        terms = [kept[k] for k in sorted(kept, key=repr)]
        return terms[0] if len(terms) == 1 else self.make("or", *terms)

    def product(self, factors: Iterable[Value]) -> Scalar:
        """A product that is not multiplied out: sums in it become symbols."""
        result = self.number(1)
        for factor in factors:
            scalar = self.of(factor)
            result = result * (scalar if len(scalar.terms) <= 1 else scalar.closed())
        return result


class Scalar:
    """A polynomial over the symbols of an algebra; immutable.

    Attributes:
        algebra: Who owns its symbols.
        terms: Monomial -> coefficient.
    """

    __slots__ = ("_key", "algebra", "terms")

    def __init__(self, algebra: Algebra, terms: dict[Monomial, Number]) -> None:
        self.algebra, self.terms = algebra, terms
        self._key: tuple[tuple[Monomial, Number], ...] | None = None

    @property
    def key(self) -> tuple[tuple[Monomial, Number], ...]:
        """Equal for equal polynomials."""
        if self._key is None:
            self._key = tuple(sorted(self.terms.items()))
        return self._key

    @property
    def constant(self) -> Number | None:
        """Its value if it depends on nothing."""
        terms = self.terms
        if len(terms) > 1:
            return None
        return terms.get(()) if terms else 0

    @property
    def negative(self) -> bool:
        """Whether it is below zero whatever positive numbers its symbols are."""
        return bool(self.terms) and all(coefficient < 0 for coefficient in self.terms.values())

    @property
    def symbol(self) -> Symbol:
        """The one symbol that it is."""
        ((monomial, _),) = self.terms.items()
        return self.algebra.symbols[monomial[0][0]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def same(self, other: Value) -> bool:
        """Whether both are the same polynomial."""
        return self.key == self.algebra.of(other).key

    def closed(self) -> Scalar:
        """The same value as one symbol, so that products with it stay products."""
        return self.algebra.make("sum", self)

    def __add__(self, other: Value) -> Scalar:
        scalar = self.algebra.of(other)
        if not scalar.terms or not self.terms:
            return self if self.terms else scalar
        terms = dict(self.terms)
        for monomial, coefficient in scalar.terms.items():
            total = terms.get(monomial, 0) + coefficient
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Scalar(self.algebra, terms)

    def __sub__(self, other: Value) -> Scalar:
        return self + self.algebra.of(other) * -1

    def __mul__(self, other: Value) -> Scalar:
        scalar = self.algebra.of(other)
        if len(self.terms) > 1 and len(scalar.terms) > 1:
            return self.closed() * scalar.closed()
        for value, factor in ((self, scalar.constant), (scalar, self.constant)):
            if factor is not None:
                return value._times(factor)
        result: dict[Monomial, Number] = {}
        for left, a in self.terms.items():
            for right, b in scalar.terms.items():
                monomial, constant = self.algebra.times(left, right)
                total = result.get(monomial, 0) + _whole(a * b * constant)
                if total:
                    result[monomial] = total
                else:
                    result.pop(monomial, None)
        return Scalar(self.algebra, result)

    def _times(self, factor: Number) -> Scalar:
        if factor == 1:
            return self
        scaled = {m: _whole(c * factor) for m, c in self.terms.items()} if factor else {}
        return Scalar(self.algebra, scaled)

    def __truediv__(self, other: Value) -> Scalar:
        """The quotient as a real number."""
        scalar = self.algebra.of(other)
        if len(scalar.terms) != 1:
            scalar = scalar.closed()
        ((monomial, coefficient),) = scalar.terms.items()
        inverse = 1 if coefficient == 1 else Fraction(1) / coefficient
        if not monomial:
            return self._times(inverse)
        normal, factor = self.algebra.inverse(monomial)
        return self * Scalar(self.algebra, {normal: _whole(inverse * factor)})

    def minimum(self, other: Value) -> Scalar:
        """The smaller of both."""
        return self._extreme(self.algebra.of(other), "minimum")

    def maximum(self, other: Value) -> Scalar:
        """The larger of both."""
        return self._extreme(self.algebra.of(other), "maximum")

    def _extreme(self, other: Scalar, kind: str) -> Scalar:
        low, high = self.ratio(other)
        if low >= 1 or high <= 1:
            return self if (low >= 1) == (kind == "maximum") else other
        return self.algebra.make(kind, *sorted((self, other), key=lambda s: repr(s.key)))

    def ratio(self, other: Scalar) -> tuple[float, float]:
        """Between what its ratio to another scalar stays for all decisions."""
        return self.algebra.ratio(self, other)

    def _ratio(self, other: Scalar) -> tuple[float, float]:
        if self.same(other):
            return 1.0, 1.0
        a, b = self.constant, other.constant
        if a is not None and b is not None:
            return (0.0, 0.5) if a < b else (2.0, math.inf)
        if len(self.terms) == 1 and len(other.terms) == 1:
            ((monomial, coefficient),) = (self / other if b != 1 else self).terms.items()
            if coefficient > 0:
                low, high = self.algebra.bounds(monomial)
                return round(float(coefficient) * low, 9), round(float(coefficient) * high, 9)
        return 0.0, math.inf

    def less(self, other: Value) -> Scalar:
        """Whether it is smaller."""
        scalar = self.algebra.of(other)
        low, high = self.ratio(scalar)
        if high < 1 or low >= 1:
            return self.algebra.number(int(high < 1))
        return self.algebra.make("less", self, scalar)

    def at_most(self, other: Value) -> Scalar:
        """Whether it is no larger."""
        scalar = self.algebra.of(other)
        low, high = self.ratio(scalar)
        if high <= 1 or low > 1:
            return self.algebra.number(int(high <= 1))
        return self.algebra.make("at_most", self, scalar)

    def above_one(self) -> Scalar:
        """Whether it is larger than 1: the test for a loop that iterates."""
        return self.algebra.number(1).less(self)

    def equal(self, other: Value) -> Scalar:
        """Whether both have the same value."""
        scalar = self.algebra.of(other)
        low, high = self.ratio(scalar)
        if low > 1 or high < 1 or low == high:
            return self.algebra.number(int(low == high == 1))
        if self.algebra.number(1).same(scalar):
            return self.above_one().negated()
        return self.algebra.make("equal", *sorted((self, scalar), key=lambda s: repr(s.key)))

    def negated(self) -> Scalar:
        """Of a condition: whether it does not hold."""
        constant = self.constant
        if constant is not None:
            return self.algebra.number(int(not constant))
        if self.symbol.kind == "not":
            return self.symbol.args[0]
        return self.algebra.make("not", self)

    def choose(self, then: Value, otherwise: Value) -> Scalar:
        """Of a condition: ``then`` where it holds, ``otherwise`` where not."""
        a, b = self.algebra.of(then), self.algebra.of(otherwise)
        constant = self.constant
        if constant is not None:
            return a if constant else b
        return a if a.same(b) else self.algebra.make("choose", self, a, b)

    def divides(self, other: Scalar) -> Scalar:
        """Whether another whole number is a multiple of it."""
        return (other.floor_divided(self) * self).equal(other)

    def floor_divided(self, other: Value) -> Scalar:
        """The quotient rounded down."""
        quotient = self / other
        constant = quotient.constant
        if constant is not None:
            return self.algebra.number(math.floor(constant))
        return quotient if _is_whole(quotient) else self.algebra.make("floor", quotient)

    def ceil_divided(self, other: Value) -> Scalar:
        """The quotient rounded up."""
        return (self * -1).floor_divided(other) * -1


def _whole(number: Number) -> Number:
    return int(number) if isinstance(number, Fraction) and number.denominator == 1 else number


def _is_whole(scalar: Scalar) -> bool:
    return all(
        isinstance(coefficient, int) and all(power > 0 for _, power in monomial)
        for monomial, coefficient in scalar.terms.items()
    )
