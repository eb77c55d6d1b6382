"""How the ranker ``world`` turns programs into states: by their features, or as a plug-in does.

A reader looks at training programs and learns from them. Then the world asks it for z0 of a
workload, for the states that a lesson needs, and for what transitions read of an action's text.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from foretune._arrays import Array, Float32Array, IntArray
from foretune._model_file import check
from foretune._registry import Registry
from foretune.cost.gbdt import VECTOR_VERSION, program_vector
from foretune.cost.world.programs import Measured, measure, vectors_of
from foretune.features import FEATURE_VERSION, extract_untransformed
from foretune.world.feature_states import FeatureStates

if TYPE_CHECKING:
    from foretune.cost.world.learning import WorldConfig
    from foretune.dataset import Group
    from foretune.space import Candidate
    from foretune.workload import Workload

_WORD_COLUMNS = 64
"""Columns that the words of an action fall into."""
_WORD_VERSION = 1
"""Number of how they fall. Raised whenever a word gets another column or sign."""


class Seen(Protocol):
    """Training programs that a reader has looked at."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """They."""

    @property
    def owner(self) -> Sequence[str]:
        """Key of the workload of each."""

    @property
    def workloads(self) -> Sequence[str]:
        """Keys of the workloads, sorted."""


class Reader(Protocol):
    """Turns programs into states, vectors of length 1.

    Life cycle: the class looks at programs (``observed``) and learns from them (``learned``), or
    restores what was stored; what is made so is frozen.
    """

    target: ClassVar[str]
    part_type: ClassVar[type[Any]]

    @classmethod
    def observed(
        cls, groups: Sequence[Group], config: WorldConfig, seed: int, cache: Path | None
    ) -> Seen:
        """Some programs of training groups; there may be none that can be made."""

    @classmethod
    def learned(
        cls,
        seen: Any,
        config: WorldConfig,
        seed: int,
        *,
        held: Callable[[], Any],
        threads: int | None,
        device: str | None,
    ) -> Reader:
        """One that learned from programs; ``held`` looks at those of other workloads."""

    def states_of(self, seen: Any) -> tuple[Float32Array, list[IntArray]]:
        """All states, shape (S, d), and of each program the first it goes through to the last."""

    @property
    def part(self) -> Any:
        """What was trained: it can be saved."""

    @property
    def dimension(self) -> int:
        """d, the numbers of a state."""

    def actions(self, texts: Sequence[str]) -> Float32Array:
        """What transitions read of the texts of n actions, shape (n, e)."""

    def initial(self, workload: Workload) -> Float32Array:
        """z0, the state of the untransformed program, shape (d,)."""

    def finals(
        self, candidates: Sequence[Candidate], cache: Path | None
    ) -> list[Float32Array | None]:
        """States of the programs that candidates end in, shape (d,); None where TVM refuses."""

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What ``restore`` of the class takes."""


class FeatureReader:
    """States are made of per-store features; the words of an action are hashed into columns.

    Args:
        states: Fitted.
    """

    target: ClassVar[str] = "features"
    part_type: ClassVar[type[FeatureStates]] = FeatureStates

    def __init__(self, states: FeatureStates) -> None:
        self.states = states

    @classmethod
    def observed(
        cls, groups: Sequence[Group], config: WorldConfig, seed: int, cache: Path | None
    ) -> Measured:
        """Programs that are made and described."""
        return measure(groups, config.trajectories, seed, cache)

    @classmethod
    def learned(
        cls, seen: Measured, config: WorldConfig, seed: int, **others: Any
    ) -> FeatureReader:
        """Fitted to programs that were described."""
        del seed, others
        return cls(FeatureStates.fit(seen.vectors, seen.owner, config.dimension))

    def states_of(self, seen: Measured) -> tuple[Float32Array, list[IntArray]]:
        """Initial and terminal states; of each program the first and the last.

        What is between is not known.
        """
        first: dict[str, int] = {}
        initial = []
        for candidate in seen.candidates:
            if candidate.workload.key not in first:
                first[candidate.workload.key] = len(first)
                initial.append(self.initial(candidate.workload))
        states = np.concatenate([np.stack(initial), self.states.of(seen.vectors)])
        ends = enumerate(seen.owner, len(initial))
        return states, [np.array([first[key], at]) for at, key in ends]

    @property
    def part(self) -> FeatureStates:
        """The fitted states."""
        return self.states

    @property
    def dimension(self) -> int:
        """Numbers of a state."""
        return self.states.dimension

    def actions(self, texts: Sequence[str]) -> Float32Array:
        """Counts of words by hash: of each, and of each with the first, which names the action."""
        counts = np.zeros((len(texts), _WORD_COLUMNS), dtype=np.float32)
        for row, text in zip(counts, texts, strict=True):
            for at, sign in _places(text):
                row[at] += sign
        return counts

    def initial(self, workload: Workload) -> Float32Array:
        """From the features of the untransformed program, as a compiler for CPUs reads it."""
        vector = program_vector(extract_untransformed(workload))
        state: Float32Array = self.states.of(vector[None])[0]
        return state

    def finals(
        self, candidates: Sequence[Candidate], cache: Path | None
    ) -> list[Float32Array | None]:
        """From the features of the programs, which are made."""
        vectors = vectors_of(candidates, cache)
        made = [vector for vector in vectors if vector is not None]
        states = iter(self.states.of(np.stack(made)) if made else ())
        return [None if vector is None else next(states) for vector in vectors]

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The states', and the versions of what they are made of."""
        meta, arrays = self.states.dump()
        return {**meta, **_VERSIONS}, arrays

    @classmethod
    def restore(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, Array], **given: Any
    ) -> FeatureReader:
        """Reverses ``dump``."""
        check("the feature states", meta, **_VERSIONS)
        return cls(FeatureStates.restore(meta, arrays, **given))


_VERSIONS = {"per_store": FEATURE_VERSION, "vector": VECTOR_VERSION, "words": _WORD_VERSION}

READERS: Registry[Any] = Registry(
    "target of world",
    "foretune.world_readers",
    {FeatureReader.target: "foretune.cost.world.readers:FeatureReader"},
    studied=["text"],
)
"""By the name of what states are made of."""


@functools.lru_cache(maxsize=65536)
def _places(text: str) -> tuple[tuple[int, float], ...]:
    """Columns and signs of the words of an action; numbers are known without them."""
    kind, *words = text.split()
    named = [word for word in words if not word.lstrip("-").isdigit()]
    places = []
    for word in (kind, *named, *(f"{kind} {word}" for word in named)):
        hashed = zlib.crc32(word.encode())
        places.append((hashed % _WORD_COLUMNS, 1.0 if hashed & 0x80000000 else -1.0))
    return tuple(places)
