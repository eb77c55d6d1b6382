"""The operations of a tape on many rows at once, each with its derivative.

A kernel takes the operands of ``m`` operations of one kind as a tensor of shape (operands, m, n)
for n points and gives their results, shape (m, n). Derivatives are written out: a tape of a few
hundred operations is a few dozen calls then, forwards and backwards, where automatic
differentiation needs a graph of all of them.

Symbols: ``x`` operands, ``y`` results, ``g`` the gradient of the results.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.symbolic.formulas._operators import SMALLEST, Operators

if TYPE_CHECKING:
    import torch

_TOLERANCE = 1e-6
"""Whole numbers that were divided and multiplied again are compared up to this."""


@dataclass(frozen=True)
class Node:
    """An operation of a tape.

    Attributes:
        kind: One of ``KERNELS``, or ``"variable"`` or ``"constant"``.
        operands: The nodes that it needs.
        numbers: One per operand: its coefficient in a sum; 1 in a product if it is negated, ``1 -
            x`` taking the place of ``x``.
        variant: The value of a constant; 1 if the result of a product is negated; of a comparison
            0 for less, 1 for at most and 2 for equal; 1 for a maximum, -1 for a minimum.
    """

    kind: str
    operands: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    variant: float = 0.0


class Kernel(abc.ABC):
    """Operations of one kind.

    Args:
        nodes: The operations.
        width: Operands of each; those that some lack change nothing.

    Attributes:
        padding: The constant that takes the place of an operand that is not there.
    """

    padding: float = 0.0

    def __init__(self, nodes: Sequence[Node], width: int) -> None:
        del nodes, width

    @abc.abstractmethod
    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """The results, shape (m, n)."""

    @abc.abstractmethod
    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of the operands, shape (operands, m, n)."""


class Linear(Kernel):
    """A sum of operands times coefficients."""

    def __init__(self, nodes: Sequence[Node], width: int) -> None:
        self._coefficients = _numbers(nodes, width)

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return (x * self._coefficients).sum(0)

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """The coefficients."""
        return g * self._coefficients


class Product(Kernel):
    """Of sizes and conditions: whether all hold and, negated twice, whether any does."""

    padding = 1.0

    def __init__(self, nodes: Sequence[Node], width: int) -> None:
        self._operand = _Negation(_numbers(nodes, width))
        self._result = _Negation(_variants(nodes))

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        y, *others = self._operand(x).unbind(0)
        for other in others:
            y = y * other
        return self._result(y)

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """For each operand the product of the others; none is divided by: some are zero."""
        import torch

        factors = self._operand(x).unbind(0)
        after = self._result.turned(g)
        if len(factors) == 1:
            slopes = after.unsqueeze(0)
        elif len(factors) == 2:
            slopes = torch.stack([after * factors[1], after * factors[0]])
        else:
            before = [after]
            for factor in factors[:-1]:
                before.append(before[-1] * factor)
            for at in range(len(factors) - 2, -1, -1):
                after = factors[at + 1] if at == len(factors) - 2 else after * factors[at + 1]
                before[at] = before[at] * after
            slopes = torch.stack(before)
        return self._operand.turned(slopes)


class _Negation:
    """``1 - x`` in place of ``x`` where asked.

    Args:
        where: 1 there, else 0.
    """

    def __init__(self, where: torch.Tensor) -> None:
        self._any = bool(where.any())
        self._offset, self._sign = where, 1 - 2 * where

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._offset.addcmul(self._sign, x) if self._any else x

    def turned(self, g: torch.Tensor) -> torch.Tensor:
        """The gradient of ``x`` from that of what is in its place."""
        return g * self._sign if self._any else g


class Quotient(Kernel):
    """The first operand by the second."""

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """The real quotient."""
        return x[0] / x[1]

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """The first part is also a factor of the second."""
        import torch

        first = g / x[1]
        return torch.stack([first, -first * y])


class Floor(Kernel):
    """Rounding down; smooth: nothing."""

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """The whole number."""
        return operators.floor(x[0])

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """An exact one has no slope."""
        return g.new_zeros(x.shape) if operators.exact else g.unsqueeze(0).clone()


class Comparison(Kernel):
    """Of two whole numbers: whether the first is less, at most, or equal.

    Smooth ones have their threshold between two whole numbers: ``1 < x`` is ``1.5 < x``, and one
    of logarithms.
    """

    def __init__(self, nodes: Sequence[Node], width: int) -> None:
        import torch

        variants = _variants(nodes)
        self._equal = variants == 2
        self._some_equal = bool(self._equal.any())
        half = torch.where(self._equal, 0.0, variants - 0.5)
        self._threshold = torch.stack([torch.zeros_like(half), half])

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """1 where it holds, 0 where not, anything between in smooth mode."""
        import torch

        if operators.exact:
            apart = x[1] - x[0]
            greater = apart > -2 * _TOLERANCE * self._threshold[1]
            if self._some_equal:
                greater = torch.where(self._equal, apart.abs() < _TOLERANCE, greater)
            return greater.to(x.dtype)
        distance, width = self._distance(operators, x + self._threshold)
        smooth = torch.addcmul(distance.new_tensor(0.5), distance, width, value=0.5)
        return torch.where(self._equal, width, smooth) if self._some_equal else smooth

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """Exact ones have no slope."""
        import torch

        if operators.exact:
            return torch.zeros_like(x)
        sizes = x + self._threshold
        distance, width = self._distance(operators, sizes)
        slope = width * width * width * g * (0.5 / operators.temperature)
        if self._some_equal:
            slope = torch.where(self._equal, -2 * distance * slope, slope)
        return _from_logs(sizes, torch.stack([-slope, slope]))

    def _distance(
        self, operators: Operators, sizes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = operators.log(sizes).unbind(0)
        distance = (second - first) / operators.temperature
        return distance, (1 + distance * distance).rsqrt_()


class Extreme(Kernel):
    """The larger or smaller of two sizes."""

    def __init__(self, nodes: Sequence[Node], width: int) -> None:
        self._sign = _variants(nodes)

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """Smoothed in logarithms."""
        return operators.extreme(x[0], x[1], self._sign)

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """That of the one that counts; half each where both are the same."""
        import torch

        a, b = x.unbind(0)
        if operators.exact:
            first = (self._sign * (a - b).sign() + 1) / 2 * g
            return torch.stack([first, g - first])
        first, second = operators.log(x).unbind(0)
        distance = (first - second) / operators.temperature
        tilt = (1 + self._sign * distance * (1 + distance * distance).rsqrt_()) / 2
        slope = g * y
        mine = slope * tilt
        return _from_logs(x, torch.stack([mine, slope - mine]))


def _from_logs(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of ``x`` from that of ``Operators.log(x)``."""
    return g.div_(x).masked_fill_(x < SMALLEST, 0.0)


class Choose(Kernel):
    """The second operand where the first, a condition, holds; else the third."""

    def forward(self, operators: Operators, x: torch.Tensor) -> torch.Tensor:
        """A mean of both in smooth mode."""
        return operators.blend(x[0], x[1], x[2])

    def backward(
        self, operators: Operators, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """The condition has no slope in exact mode."""
        import torch

        weight = x[0]
        if operators.exact:
            first = g * (weight > 0)
            return torch.stack([torch.zeros_like(g), first, g - first])
        # The derivative of asinh is 1 / sqrt(1 + x^2), and that of sinh its inverse.
        then, otherwise = operators.enter(x[1:]).unbind(0)
        first, second = (1 + x[1:] * x[1:]).rsqrt_().unbind(0)
        slope = g * (1 + y * y).sqrt_()
        mine = slope * weight
        return torch.stack([slope * (then - otherwise), mine * first, (slope - mine) * second])


def _numbers(nodes: Sequence[Node], width: int) -> torch.Tensor:
    """Shape (operands, m, 1); 0 for operands that are not there."""
    import torch

    rows = [[*node.numbers, *[0.0] * (width - len(node.numbers))] for node in nodes]
    return torch.tensor(rows, dtype=torch.float64).T.contiguous().unsqueeze(-1)


def _variants(nodes: Sequence[Node]) -> torch.Tensor:
    """Shape (m, 1)."""
    import torch

    return torch.tensor([[node.variant] for node in nodes], dtype=torch.float64)


KERNELS: Mapping[str, type[Kernel]] = {
    "linear": Linear,
    "product": Product,
    "quotient": Quotient,
    "floor": Floor,
    "comparison": Comparison,
    "extreme": Extreme,
    "choose": Choose,
}
"""By kind. Sums and products take any number of operands."""
