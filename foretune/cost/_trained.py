"""What training leaves of a neural ranker, and how it is kept in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import Array
from foretune.cost._examples import Scaling, Weights
from foretune.cost._heads import Heads


@dataclass(frozen=True)
class Trained:
    """Scalings, outputs and weights.

    Attributes:
        rows, context: Scalings of the two kinds of columns.
        heads: The outputs.
        members: The weights of each network.
    """

    rows: Scaling
    context: Scaling
    heads: Heads
    members: tuple[Weights, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Columns of rows, columns of the context, and outputs."""
        return len(self.rows.shift), len(self.context.shift), max(1, len(self.heads))

    def arrays(self) -> Weights:
        """All but the names of the heads; ``of_arrays`` reverses it."""
        arrays: Weights = {"heads/factors": self.heads.factors}
        for name, scaling in (("rows", self.rows), ("context", self.context)):
            arrays[f"{name}/shift"] = scaling.shift
            arrays[f"{name}/factor"] = scaling.factor
            arrays[f"{name}/limit"] = np.array(scaling.limit)
        for member, weights in enumerate(self.members):
            arrays |= {f"member{member}/{name}": weight for name, weight in weights.items()}
        return arrays

    @classmethod
    def of_arrays(cls, heads: Sequence[str], arrays: Mapping[str, Array], members: int) -> Trained:
        """Reads what ``arrays`` gave.

        Args:
            heads: Hardware keys of the outputs.
            arrays: By name.
            members: How many networks there are.

        Raises:
            KeyError: An array is missing.
        """
        rows, context = (
            Scaling(
                arrays[f"{name}/shift"], arrays[f"{name}/factor"], float(arrays[f"{name}/limit"])
            )
            for name in ("rows", "context")
        )
        # Early files do not have the factors.
        known = Heads.of_keys(heads, arrays.get("heads/factors"))
        each = tuple(_under(arrays, f"member{member}/") for member in range(members))
        return cls(rows, context, known, each)


def _under(arrays: Mapping[str, Array], prefix: str) -> Weights:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
