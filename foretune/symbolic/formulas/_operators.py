"""Operators on sizes and conditions, exact or smooth.

Smooth evaluation replaces every operator that jumps or bends by its convolution with the kernel
``(1 + t^2)^(-3/2) / 2``, which has mass 1 (the one printed in the Felix paper has none), in the
logarithm of the operands. With ``x`` in units of the temperature:

- a step becomes ``1/2 + x / (2 sqrt(1 + x^2))``,
- ``max(x, 0)`` becomes ``(x + sqrt(1 + x^2)) / 2``, and a maximum or minimum what follows from it,
- equality becomes ``1 / sqrt(1 + x^2)``, not a convolution: that of a single point is zero.

Comparisons of whole numbers have their threshold between two of them: an iterating loop is
``extent > 1.5``, one comparison of logarithms. So at whole numbers everything tends to its exact
value as the temperature goes to zero, but for integer parts: a quotient that is not whole stays the
real number, because its integer part has no derivative. So it is where the loops of a copy that
threads share are split into parts that do not divide them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SMALLEST = 1e-3
"""Logarithms are taken of at least this."""


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
        return x.clamp(min=SMALLEST).log()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Whether ``x`` (a difference of logarithms) is above 0."""
        if self.exact:
            return (x > 0).to(x.dtype)
        x = x / self.temperature
        return 0.5 + 0.5 * x * (1 + x * x).rsqrt()

    def extreme(self, a: torch.Tensor, b: torch.Tensor, sign: float | torch.Tensor) -> torch.Tensor:
        """The larger (1) or smaller (-1) of sizes, smoothed in their logarithms."""
        import torch

        if self.exact:
            return torch.maximum(a * sign, b * sign) * sign
        log_b = self.log(b)
        x = (self.log(a) - log_b) / self.temperature
        return (log_b + self.temperature / 2 * (x + (1 + x * x).sqrt() * sign)).exp()

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
