"""The door to search strategies: which candidate next?"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from foretune._options import refuse_unknown
from foretune.search.sampling import FreshSampler
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.cost import CostModel
    from foretune.records import Trial
    from foretune.space import SearchSpace


_GIVEN = 3
"""Arguments of a factory that are no options: space, model, rng."""


class Strategy(abc.ABC, Generic[C]):
    """Proposes candidates of one space.

    Life cycle: construct with a space, a cost model and a random generator; then alternate ``ask``
    and ``tell``. A strategy never measures and never trains the model: the tuner updates the model
    before it tells the strategy. Everything random comes from ``rng``, so that the same seed and
    the same measurements give the same candidates, in another process too.

    A program is proposed once: what ``ask`` returns goes through ``fresh.propose``, and ``tell``
    marks what somebody else proposed, an earlier run for example.

    Args:
        space: Where candidates come from.
        model: Who scores them; strategies that need no scores ignore it.
        rng: The only source of randomness.

    Attributes:
        fresh: What was proposed or told so far; draws what was not.
        suggested: What ``suggest`` was told, by key.
    """

    def __init__(
        self, space: SearchSpace[C], model: CostModel[C], rng: np.random.Generator
    ) -> None:
        self.space = space
        self.model = model
        self.rng = rng
        self.fresh = FreshSampler(space, rng)
        self.suggested: dict[str, C] = {}

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses options that would be refused for any space, before there is one.

        Of their types and values only a strategy itself knows.

        Raises:
            BadInputError: An option is unknown, of a wrong type, or makes no sense.
        """
        own = list(inspect.signature(cls).parameters.values())[_GIVEN:]
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
            refuse_unknown(cls.__name__, options, [parameter.name for parameter in own])

    @property
    def status(self) -> str:
        """A few words for the progress of a run; empty where there is nothing to say."""
        return ""

    def suggest(self, candidates: Sequence[C]) -> None:
        """Takes in candidates of this space that may be fast, the likeliest first.

        Schedules that were fast for other programs, for example: nobody has measured them here. A
        strategy may propose them or make others of them.
        """
        for candidate in candidates:
            self.suggested.setdefault(candidate.key, candidate)

    @abc.abstractmethod
    def ask(self, n: int) -> list[C]:
        """Proposes up to ``n`` distinct candidates that were never proposed or told before.

        An empty list means that the space is exhausted.
        """

    def tell(self, trials: Sequence[Trial[C]]) -> None:
        """Takes in what was measured in this space, proposed by it or not.

        They are not proposed again. A strategy that learns from them overrides this, and calls it.
        """
        self.fresh.mark(trials)
