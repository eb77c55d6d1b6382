"""Edits that a small policy, trained on measured programs, expects to be improvements."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array, FloatArray
from foretune.errors import BadInputError
from foretune.search.proposers._policy import Policy, weights
from foretune.search.proposers._ranked import RankedProposer
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.space import SearchSpace


def has_weights(hardware: Hardware) -> bool:
    """Whether a policy for this kind of hardware comes with the package."""
    return bool(weights(hardware.kind).is_file())


@functools.lru_cache(maxsize=4)
def _shipped(kind: str) -> Policy:
    with importlib.resources.as_file(weights(kind)) as path:
        return Policy.load(path)


def _given(policy: object) -> Policy | None:
    if policy is None or isinstance(policy, Policy):
        return policy
    if isinstance(policy, (Path, str)):
        return Policy.load(Path(policy))
    raise BadInputError(
        f"learned: policy must be a file, but got {policy!r}: give what `python -m "
        "benchmarks.proposers --train` wrote"
    )


class LearnedProposer(RankedProposer[C]):
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
        space: SearchSpace[C],
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
        self.policy = _given(policy) or _shipped(space.hardware.kind)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses a policy that is neither one nor a file of one."""
        _given(options.get("policy"))

    def worth(self, parents: Float32Array, edits: Float32Array, hardware: Any) -> FloatArray:
        """Expected log2 speed-up, shape (n,)."""
        return self.policy.gains(parents, edits)
