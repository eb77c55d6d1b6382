"""Scores that say nothing: the control in every comparison of rankers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._options import refuse_unknown
from foretune.cost._ranker import Ranker
from foretune.cost._ranker_file import read_model, write_model

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware


class RandomRanker(Ranker):
    """Uniform scores in [0, 1), fixed by the seed and the programs. Learns nothing.

    Args:
        seed: Another seed gives another order.
        options: None.

    Raises:
        BadInputError: An option was given.
    """

    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        refuse_unknown("random", options, ())
        self.seed = seed

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Ignores the groups."""

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """One number per program."""
        if not programs:
            return np.zeros(0)
        # Programs of one group differ, groups differ in their first program: one hash is enough.
        digest = hashlib.blake2b(programs[0].key.encode(), digest_size=8).digest()
        rng = np.random.default_rng([self.seed, len(programs), int.from_bytes(digest, "big")])
        return rng.random(len(programs))

    def save(self, path: Path) -> None:
        """Writes the seed."""
        write_model(path, "random", {"seed": self.seed}, {})

    @classmethod
    def load(cls, path: Path, **parts: Any) -> RandomRanker:
        """Reads what ``save`` wrote; there are no parts."""
        meta, _ = read_model(path)
        return cls(seed=int(meta["seed"]), **parts)
