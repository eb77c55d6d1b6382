"""Edits that a small policy, trained on measured programs, expects to be improvements."""

from __future__ import annotations

import functools
import importlib.resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import BadInputError
from foretune.search.proposers._policy import Policy, weights
from foretune.search.proposers._ranked import FloatArray, Matrix, RankedProposer

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import Space


def has_weights(hardware: Hardware) -> bool:
    """Whether a policy for this kind of hardware comes with the package."""
    return bool(weights(hardware.kind).is_file())


@functools.lru_cache(maxsize=4)
def _shipped(kind: str) -> Policy:
    with importlib.resources.as_file(weights(kind)) as path:
        return Policy.load(path)


class LearnedProposer(RankedProposer):
    """Prefers edits like those that made measured programs of other workloads faster.

    Args:
        space: Where programs come from.
        rng: The only source of randomness.
        policy: A policy or a file of one; what comes with the package if None.

    Raises:
        BadInputError: None comes with the package for this kind of hardware.
    """

    noise = 0.15

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        policy: Policy | Path | str | None = None,
    ) -> None:
        super().__init__(space, rng)
        if policy is None and not has_weights(space.hardware):
            raise BadInputError(
                f"no trained policy for targets of kind {space.hardware.kind!r} comes with this "
                "installation: choose the proposer 'heuristic'"
            )
        if policy is None:
            policy = _shipped(space.hardware.kind)
        self.policy = policy if isinstance(policy, Policy) else Policy.load(Path(policy))

    def worth(self, parents: Matrix, edits: Matrix, hardware: Any) -> FloatArray:
        """Expected log2 speed-up, shape (n,)."""
        return self.policy.gains(parents, edits)
