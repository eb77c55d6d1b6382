"""Edits drawn at random of which the most promising are kept."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array, FloatArray
from foretune.dataset import Program
from foretune.features import action_columns, action_features
from foretune.search.proposers.random import RandomProposer
from foretune.space import Candidate
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.search.proposers._base import Situation
    from foretune.space import SearchCandidate, SearchSpace


POOL = 4
"""Edits drawn for each one that is kept."""


def features_of(candidates: Sequence[Candidate]) -> Float32Array:
    """Action features, shape (n, len(action_columns()))."""
    return action_features([Program(candidate=candidate) for candidate in candidates])


def _scheduled(candidates: Sequence[SearchCandidate]) -> list[Candidate]:
    """Those that are schedules of a program, which alone have features: all, or none of a space."""
    return [candidate for candidate in candidates if isinstance(candidate, Candidate)]


def places(names: Sequence[str]) -> list[int]:
    """Indices of named columns among ``action_columns()``."""
    index = {column.name: at for at, column in enumerate(action_columns())}
    return [index[name] for name in names]


class RankedProposer(RandomProposer[C]):
    """Draws ``POOL`` times as many random edits as asked for and keeps those of most worth.

    Noise on the worth lets a misjudged edit through. Where candidates have no features (spaces
    without a compiler) edits stay in the order drawn.

    Args:
        space: Where programs come from.
        rng: The only source of randomness.
    """

    noise: float
    """Scale of the Gumbel noise added to the worth, in its unit."""

    def __init__(self, space: SearchSpace[C], rng: np.random.Generator) -> None:
        super().__init__(space, rng)

    @abc.abstractmethod
    def worth(self, parents: Float32Array, edits: Float32Array, hardware: Any) -> FloatArray:
        """How much each edit promises over its parent, shape (n,), higher is better.

        Args:
            parents: Action features of the parent of each edit, shape (n, columns).
            edits: Those of the edits, shape (n, columns).
            hardware: What all of them run on.
        """

    def propose(self, situations: Sequence[Situation[C]]) -> list[list[C]]:
        """Distinct edits, the most promising first."""
        pools = [self.draw(each.program.candidate, POOL * each.wanted) for each in situations]
        edits = _scheduled([edit for pool in pools for edit in pool])
        if not edits:
            return [pool[: each.wanted] for pool, each in zip(pools, situations, strict=True)]
        parents = _scheduled([each.program.candidate for each in situations])
        worth = self._worth_of(parents, [len(pool) for pool in pools], edits)
        worth = worth + self.rng.gumbel(size=len(edits), scale=self.noise)
        kept, first = [], 0
        for pool, situation in zip(pools, situations, strict=True):
            order = np.argsort(-worth[first : first + len(pool)], kind="stable")
            kept.append([pool[i] for i in order[: situation.wanted].tolist()])
            first += len(pool)
        return kept

    def _worth_of(
        self, parents: Sequence[Candidate], counts: Sequence[int], edits: Sequence[Candidate]
    ) -> FloatArray:
        """What the edits are worth, of which each parent has a count."""
        features = features_of([*parents, *edits])
        parent_of = np.repeat(np.arange(len(parents)), counts)
        return self.worth(features[parent_of], features[len(parents) :], self.space.hardware)
