"""Evaluating scalars of symbolic programs over batches of points, exactly or smoothly.

Scalars are compiled once into a list of steps over columns, in which equal parts occur once. Smooth
evaluation replaces every operator that jumps or bends by its convolution with the kernel
``(1 + t^2)^(-3/2) / 2``, which has mass 1 (the one printed in the Felix paper has none), in the
logarithm of the operands. With ``x`` in units of the temperature:

- a step becomes ``1/2 + x / (2 sqrt(1 + x^2))``,
- ``max(x, 0)`` becomes ``(x + sqrt(1 + x^2)) / 2``, and a maximum or minimum what follows from it,
- equality becomes ``1 / sqrt(1 + x^2)``, not a convolution: that of a single point is zero.

Comparisons of whole numbers have their threshold between two of them: an iterating loop is
``extent > 1.5``, one comparison of logarithms. So at whole numbers everything tends to its exact
value as the temperature goes to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from foretune.space.symbolic import Algebra, Scalar, Symbol

if TYPE_CHECKING:
    import torch

_SMALLEST = 1e-3
"""Logarithms are taken of at least this."""
_TOLERANCE = 1e-6
"""Whole numbers that were divided and multiplied again are compared up to this."""


class Operators:
    """The operators on tensors of any shape.

    Args:
        temperature: Width of the smooth operators in units of a natural logarithm; 0 for exact
            ones.
    """

    def __init__(self, temperature: float = 0.0) -> None:
        self.temperature = temperature

    @property
    def exact(self) -> bool:
        """Whether nothing is smoothed."""
        return self.temperature == 0

    def log(self, x: torch.Tensor) -> torch.Tensor:
        """Natural logarithm of sizes."""
        return x.clamp(min=_SMALLEST).log()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Whether ``x`` (a difference of logarithms) is above 0."""
        if self.exact:
            return (x > 0).to(x.dtype)
        x = x / self.temperature
        return 0.5 + x / (2 * (1 + x * x).sqrt())

    def less(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Of whole numbers."""
        if self.exact:
            return (a < b - _TOLERANCE).to(a.dtype)
        # Half way between the largest smaller number and b: 1 < x is 1.5 < x.
        return self.step(self.log(b - 0.5) - self.log(a))

    def at_most(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Of whole numbers."""
        if self.exact:
            return (a <= b + _TOLERANCE).to(a.dtype)
        return self.step(self.log(b + 0.5) - self.log(a))

    def equal(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Whether two sizes are equal."""
        if self.exact:
            return ((a - b).abs() < _TOLERANCE).to(a.dtype)
        x = (self.log(a) - self.log(b)) / self.temperature
        return (1 + x * x).rsqrt()

    def maximum(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Of sizes, smoothed in their logarithms."""
        import torch

        if self.exact:
            return torch.maximum(a, b)
        log_b = self.log(b)
        x = (self.log(a) - log_b) / self.temperature
        return (log_b + self.temperature * (x + (1 + x * x).sqrt()) / 2).exp()

    def minimum(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Of sizes, smoothed in their logarithms."""
        import torch

        if self.exact:
            return torch.minimum(a, b)
        log_b = self.log(b)
        x = (self.log(a) - log_b) / self.temperature
        return (log_b + self.temperature * (x - (1 + x * x).sqrt()) / 2).exp()

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """Where weighted means are taken: sizes differ by orders of magnitude, so of logarithms.

        The inverse hyperbolic sine is one of 2 |x|, with the sign of x, and x itself near 0.
        """
        return x if self.exact else x.asinh()

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """Reverses ``enter``."""
        return x if self.exact else x.sinh()

    def blend(
        self, weight: torch.Tensor, then: torch.Tensor, otherwise: torch.Tensor
    ) -> torch.Tensor:
        """``then`` as far as ``weight`` goes, ``otherwise`` for the rest."""
        import torch

        if self.exact:
            return torch.where(weight > 0, then, otherwise)
        rest = self.enter(otherwise)
        return self.leave(rest + weight * (self.enter(then) - rest))

    def floor(self, x: torch.Tensor) -> torch.Tensor:
        """Rounding down; smooth: the real number, whose integer part the exact one is."""
        return (x + 1e-9).floor() if self.exact else x


class Tape:
    """Scalars compiled into steps.

    Args:
        algebra: Who owns them.
        variables: Columns of a batch.
        outputs: What is computed.
    """

    def __init__(
        self, algebra: Algebra, variables: Sequence[Scalar], outputs: Sequence[Scalar]
    ) -> None:
        self.outputs = list(outputs)
        self._columns = {v.symbol.index: i for i, v in enumerate(variables)}
        self._steps: list[Symbol] = []
        self._algebra = algebra
        needed: set[int] = set()
        waiting = [s for output in outputs for s in _symbols(output)]
        while waiting:
            index = waiting.pop()
            if index not in needed:
                needed.add(index)
                for argument in algebra.symbols[index].args:
                    waiting += _symbols(argument)
        self._steps = [algebra.symbols[i] for i in sorted(needed)]

    def __len__(self) -> int:
        return len(self._steps)

    def __call__(self, points: torch.Tensor, operators: Operators) -> list[torch.Tensor]:
        """Values of the outputs, each of shape (n,) or () where it is constant.

        Args:
            points: Numbers of the variables, shape (n, variables), float64.
            operators: Exact or smooth.
        """
        return _Run(self._algebra, self._columns, points, operators).of(self._steps, self.outputs)


class _Run:
    def __init__(
        self,
        algebra: Algebra,
        columns: dict[int, int],
        points: torch.Tensor,
        operators: Operators,
    ) -> None:
        self._columns, self._operators = columns, operators
        self._points = points.T.contiguous().unbind(0)
        self._values: dict[int, torch.Tensor] = {}
        self._scalars: dict[object, torch.Tensor] = {}
        self._products: dict[object, torch.Tensor] = {}
        self._dtype = points.dtype

    def of(self, steps: Sequence[Symbol], outputs: Sequence[Scalar]) -> list[torch.Tensor]:
        for symbol in steps:
            self._values[symbol.index] = self._symbol(symbol)
        return [self._scalar(output) for output in outputs]

    def _symbol(self, symbol: Symbol) -> torch.Tensor:
        if symbol.kind == "variable":
            return self._points[self._columns[symbol.index]]
        args = [self._scalar(arg) for arg in symbol.args]
        if symbol.kind == "sum":
            return args[0]
        if symbol.kind == "and":
            return _product(args)
        if symbol.kind == "or":
            return 1 - _product([1 - a for a in args])
        if symbol.kind == "not":
            return 1 - args[0]
        if symbol.kind == "choose":
            condition, then, otherwise = args
            return self._operators.blend(condition, then, otherwise)
        found: torch.Tensor = getattr(self._operators, symbol.kind)(*args)
        return found

    def _number(self, value: float | Fraction) -> torch.Tensor:
        import torch

        return torch.tensor(float(value), dtype=self._dtype)

    def _scalar(self, scalar: Scalar) -> torch.Tensor:
        found = self._scalars.get(scalar.key)
        if found is None:
            total: torch.Tensor | None = None
            for monomial, coefficient in scalar.key:
                term = self._monomial(monomial)
                if term is None:
                    term = self._number(coefficient)
                elif coefficient != 1:
                    term = term * float(coefficient)
                total = term if total is None else total + term
            found = self._number(0) if total is None else total
            self._scalars[scalar.key] = found
        return found

    def _monomial(self, monomial: tuple[tuple[int, int], ...]) -> torch.Tensor | None:
        if not monomial:
            return None
        found = self._products.get(monomial)
        if found is None:
            symbol, power = monomial[-1]
            value = self._values[symbol]
            rest = self._monomial(monomial[:-1])
            if power < 0:
                divisor = value if power == -1 else value**-power
                found = (1 if rest is None else rest) / divisor
            else:
                factor = value if power == 1 else value**power
                found = factor if rest is None else rest * factor
            self._products[monomial] = found
        return found


def _symbols(scalar: Scalar) -> list[int]:
    return [symbol for monomial in scalar.terms for symbol, _ in monomial]


def _product(values: Sequence[torch.Tensor]) -> torch.Tensor:
    result = values[0]
    for value in values[1:]:
        result = result * value
    return result
