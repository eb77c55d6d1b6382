"""Random search without replacement: the control in every comparison of strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._options import refuse_unknown
from foretune.search._base import Strategy
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.space import SearchSpace


class RandomSearch(Strategy[C]):
    """Proposes legal candidates drawn independently from the space, none of them twice."""

    def __init__(
        self, space: SearchSpace[C], model: CostModel[C], rng: np.random.Generator, **options: Any
    ) -> None:
        super().__init__(space, model, rng)
        self.check_options(options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses all."""
        refuse_unknown("random", options, ())

    def ask(self, n: int) -> list[C]:
        """Up to ``n`` candidates; fewer when the space (or its legal part) is exhausted."""
        return self.fresh.propose((), n)
