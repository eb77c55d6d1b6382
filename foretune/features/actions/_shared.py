"""Candidates of one sketch, and what the sections of their action features need of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import FloatArray
from foretune.features.actions._blocks import Block
from foretune.features.actions._decided import Decided, Nest

if TYPE_CHECKING:
    from foretune.hardware import Hardware


@dataclass(frozen=True)
class Shared:
    """Candidates of one sketch and what their features need.

    Attributes:
        decided: Their decisions.
        hardware: What they run on.
        blocks: The blocks of the untransformed program.
    """

    decided: Decided
    hardware: Hardware
    blocks: tuple[Block, ...]

    @property
    def n(self) -> int:
        """Number of candidates."""
        return self.decided.n

    @property
    def nest(self) -> Nest | None:
        """The tiled block with the most iterations."""
        nests = self.decided.layout.nests
        return nests[0] if nests else None

    @property
    def block(self) -> Block | None:
        """The block of ``nest``; the one with the most iterations where nothing is tiled."""
        if self.nest is None:
            return max(self.blocks, key=lambda b: b.iterations, default=None)
        return next((b for b in self.blocks if b.name == self.nest.block), None)

    def same(self, values: Sequence[float]) -> FloatArray:
        """One row for all candidates, shape (n, values)."""
        return np.tile(np.asarray(values, dtype=np.float64), (self.n, 1))
