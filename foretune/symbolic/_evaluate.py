"""Exact values of scalars for batches of points, with NumPy alone.

``formulas`` compiles scalars for PyTorch, also smoothed and with derivatives. Here whole
numbers are all there is: equal parts are computed once, each in one operation on all points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.symbolic._scalar import Algebra, Monomial, Scalar

_TOLERANCE = 1e-6
"""Whole numbers that were divided and multiplied again are compared up to this."""

_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "sum": lambda x: x,
    "less": lambda a, b: (b - a > _TOLERANCE) * 1.0,
    "at_most": lambda a, b: (b - a > -_TOLERANCE) * 1.0,
    "equal": lambda a, b: (abs(a - b) < _TOLERANCE) * 1.0,
    "and": lambda *x: _product(x),
    "or": lambda *x: 1.0 - _product([1.0 - each for each in x]),
    "not": lambda x: 1.0 - x,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "choose": lambda condition, a, b: np.where(condition > 0, a, b),
    "floor": lambda x: np.floor(x + _TOLERANCE),
}


def _product(factors: Sequence[Any]) -> Any:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


class Evaluator:
    """Scalars as a function of points.

    Args:
        algebra: Who owns the scalars.
        variables: The columns of a batch.
        outputs: What is computed.
    """

    def __init__(
        self, algebra: Algebra, variables: Sequence[Scalar], outputs: Sequence[Scalar]
    ) -> None:
        self._algebra = algebra
        self._symbols = {v.symbol.index: column for column, v in enumerate(variables)}
        self._scalars: dict[object, int] = {}
        self._monomials: dict[Monomial, int] = {}
        self._slots = len(variables)
        self._plan: list[tuple[Callable[..., Any], int, tuple[int, ...]]] = []
        self._ends = [self._scalar(output) for output in outputs]
        # What was needed to find equal parts is not kept.
        del self._algebra
        self._symbols, self._scalars, self._monomials = {}, {}, {}

    def __call__(self, points: FloatArray) -> FloatArray:
        """Values of the outputs, float64 of shape (outputs, n).

        Args:
            points: Numbers of the variables, float64 of shape (n, variables).
        """
        values: list[Any] = [*points.T, *[None] * (self._slots - points.shape[1])]
        for operation, slot, operands in self._plan:
            values[slot] = operation(*[values[operand] for operand in operands])
        ends = np.empty((len(self._ends), len(points)))
        for row, end in enumerate(self._ends):
            ends[row] = values[end]
        whole = np.rint(ends)
        return np.where(np.abs(ends - whole) < _TOLERANCE, whole, ends)

    def _add(self, operation: Callable[..., Any], operands: Sequence[int]) -> int:
        self._plan.append((operation, self._slots, tuple(operands)))
        self._slots += 1
        return self._slots - 1

    def _scalar(self, scalar: Scalar) -> int:
        slot = self._scalars.get(scalar.key)
        if slot is None:
            # Symbols are numbered after those that they need: no recursion gets deep.
            for index in sorted(self._missing(scalar)):
                symbol = self._algebra.symbols[index]
                operands = [self._polynomial(argument) for argument in symbol.args]
                self._symbols[index] = self._add(_OPERATIONS[symbol.kind], operands)
            slot = self._polynomial(scalar)
        return slot

    def _missing(self, scalar: Scalar) -> set[int]:
        missing: set[int] = set()
        waiting = [symbol for monomial in scalar.terms for symbol, _ in monomial]
        while waiting:
            index = waiting.pop()
            if index not in missing and index not in self._symbols:
                missing.add(index)
                for argument in self._algebra.symbols[index].args:
                    waiting += [symbol for monomial in argument.terms for symbol, _ in monomial]
        return missing

    def _polynomial(self, scalar: Scalar) -> int:
        slot = self._scalars.get(scalar.key)
        if slot is None:
            slot = self._scalars[scalar.key] = self._summed(scalar)
        return slot

    def _summed(self, scalar: Scalar) -> int:
        constant = float(scalar.terms.get((), 0))
        terms = [(m, float(c)) for m, c in scalar.terms.items() if m]
        if len(terms) == 1 and constant == 0 and terms[0][1] == 1:
            return self._monomial(terms[0][0])
        coefficients = [coefficient for _, coefficient in terms]

        def add(*values: Any) -> Any:
            total: Any = constant
            for coefficient, value in zip(coefficients, values, strict=True):
                total = total + coefficient * value
            return total

        return self._add(add, [self._monomial(monomial) for monomial, _ in terms])

    def _monomial(self, monomial: Monomial) -> int:
        slot = self._monomials.get(monomial)
        if slot is None:
            slot = self._monomials[monomial] = self._multiplied(monomial)
        return slot

    def _multiplied(self, monomial: Monomial) -> int:
        if len(monomial) == 1 and monomial[0][1] == 1:
            return self._symbols[monomial[0][0]]
        powers = [power for _, power in monomial]

        def multiply(*values: Any) -> Any:
            total: Any = 1.0
            for power, value in zip(powers, values, strict=True):
                total = total * value**power if power > 0 else total / value**-power
            return total

        return self._add(multiply, [self._symbols[symbol] for symbol, _ in monomial])
