"""How the ranker ``world`` turns programs into states: by their text, or by their features.

The world asks a reader for z0 of a workload, for the true final states of candidates where an
ablation or a lesson needs them, and for what transitions read of an action's text.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from foretune._model_file import check
from foretune.cost.gbdt import VECTOR_VERSION, program_vector
from foretune.features import FEATURE_VERSION, candidate_rows, extract_untransformed
from foretune.world import StateStore, program_text, trajectories_of
from foretune.world.encoder import StateEncoder
from foretune.world.feature_states import FeatureStates

if TYPE_CHECKING:
    from foretune.space import Candidate
    from foretune.workload import Workload

Floats = npt.NDArray[np.float32]

_log = logging.getLogger("foretune.cost.world")

_WORD_COLUMNS = 64
"""Columns that the words of an action fall into."""
_WORD_VERSION = 1
"""Number of how they fall. Raised whenever a word gets another column or sign."""


class Reader(Protocol):
    """Turns programs into states, vectors of length 1."""

    target: ClassVar[str]
    part_type: ClassVar[type[Any]]

    @property
    def part(self) -> Any:
        """What was trained: it can be saved."""

    @property
    def dimension(self) -> int:
        """d, the numbers of a state."""

    def actions(self, texts: Sequence[str]) -> Floats:
        """What transitions read of the texts of n actions, shape (n, e)."""

    def initial(self, workload: Workload) -> Floats:
        """z0, the state of the untransformed program, shape (d,)."""

    def finals(self, candidates: Sequence[Candidate], cache: Path | None) -> list[Floats | None]:
        """States of the programs that candidates end in, shape (d,); None where TVM refuses."""

    def dump(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What ``restore`` of the class takes."""


class TextReader:
    """States are encoded texts (the paper's).

    Args:
        encoder: Trained.
    """

    target: ClassVar[str] = "text"
    part_type: ClassVar[type[StateEncoder]] = StateEncoder

    def __init__(self, encoder: StateEncoder) -> None:
        self.encoder = encoder
        self._warned = False

    @property
    def part(self) -> StateEncoder:
        """The encoder."""
        return self.encoder

    @property
    def dimension(self) -> int:
        """Numbers of a state."""
        return int(self.encoder.config.dimension)

    def actions(self, texts: Sequence[str]) -> Floats:
        """The texts as the encoder's backbone sees them."""
        return self.encoder.pooled(texts)

    def initial(self, workload: Workload) -> Floats:
        """The encoded untransformed program."""
        state: Floats = self._read([program_text(workload.module)])[0]
        return state

    def finals(self, candidates: Sequence[Candidate], cache: Path | None) -> list[Floats | None]:
        """The encoded programs before post-processors."""
        texts = final_texts(candidates, cache)
        made = [text for text in texts if text is not None]
        states = iter(self._read(made) if made else ())
        return [None if text is None else next(states) for text in texts]

    def _read(self, texts: Sequence[str]) -> Floats:
        """The states of texts, and a warning the first time one is too long."""
        most = self.encoder.longest
        longest = max(texts, key=len)
        if not self._warned and len(self.encoder.tokens([longest])[0]) > most:
            self._warned = True
            _log.warning(
                "world: a program's text is longer than the %d tokens that the encoder reads: %d "
                "windows of it, spread evenly, stand for the whole",
                most, self.encoder.config.windows,
            )  # fmt: skip
        return self.encoder.encode(texts)

    def dump(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """The encoder's."""
        return self.encoder.dump()

    @classmethod
    def restore(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], **given: Any
    ) -> TextReader:
        """Reverses ``dump``."""
        return cls(StateEncoder.restore(meta, arrays, **given))


class FeatureReader:
    """States are made of per-store features; the words of an action are hashed into columns.

    Args:
        states: Fitted.
    """

    target: ClassVar[str] = "features"
    part_type: ClassVar[type[FeatureStates]] = FeatureStates

    def __init__(self, states: FeatureStates) -> None:
        self.states = states

    @property
    def part(self) -> FeatureStates:
        """The fitted states."""
        return self.states

    @property
    def dimension(self) -> int:
        """Numbers of a state."""
        return self.states.dimension

    def actions(self, texts: Sequence[str]) -> Floats:
        """Counts of words by hash: of each, and of each with the first, which names the action."""
        found = np.zeros((len(texts), _WORD_COLUMNS), dtype=np.float32)
        for row, text in zip(found, texts, strict=True):
            for at, sign in _places(text):
                row[at] += sign
        return found

    def initial(self, workload: Workload) -> Floats:
        """From the features of the untransformed program, as a compiler for CPUs reads it."""
        vector = program_vector(extract_untransformed(workload))
        state: Floats = self.states.of(vector[None])[0]
        return state

    def finals(self, candidates: Sequence[Candidate], cache: Path | None) -> list[Floats | None]:
        """From the features of the programs, which are made."""
        vectors = vectors_of(candidates, cache)
        made = [vector for vector in vectors if vector is not None]
        states = iter(self.states.of(np.stack(made)) if made else ())
        return [None if vector is None else next(states) for vector in vectors]

    def dump(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """The states', and the versions of what they are made of."""
        meta, arrays = self.states.dump()
        return {**meta, **_VERSIONS}, arrays

    @classmethod
    def restore(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], **given: Any
    ) -> FeatureReader:
        """Reverses ``dump``."""
        check("the feature states", meta, **_VERSIONS)
        return cls(FeatureStates.restore(meta, arrays, **given))


_VERSIONS = {"per_store": FEATURE_VERSION, "vector": VECTOR_VERSION, "words": _WORD_VERSION}

READERS: Mapping[str, type[TextReader] | type[FeatureReader]] = {
    reader.target: reader for reader in (TextReader, FeatureReader)
}
"""By the name of what states are made of."""


@functools.lru_cache(maxsize=65536)
def _places(text: str) -> tuple[tuple[int, float], ...]:
    """Columns and signs of the words of an action; numbers are known without them."""
    kind, *words = text.split()
    named = [word for word in words if not word.lstrip("-").isdigit()]
    found = []
    for word in (kind, *named, *(f"{kind} {word}" for word in named)):
        hashed = zlib.crc32(word.encode())
        found.append((hashed % _WORD_COLUMNS, 1.0 if hashed & 0x80000000 else -1.0))
    return tuple(found)


def final_texts(candidates: Sequence[Candidate], cache: Path | None) -> list[str | None]:
    """The texts of the programs that candidates end in; None where TVM refuses one.

    Args:
        candidates: Which.
        cache: Folder in which states are kept; None: nowhere.
    """
    with StateStore(cache) as store:
        found = trajectories_of(candidates, store)
        texts = iter(store.texts([one.states[-1] for one in found if one is not None]))
        return [None if one is None else next(texts) for one in found]


def vectors_of(candidates: Sequence[Candidate], cache: Path | None) -> list[Floats | None]:
    """Features of the programs that candidates end in, shape (V,); None where TVM refuses one.

    Args:
        candidates: Which.
        cache: Folder in which features are kept; None: in memory.
    """
    rows = candidate_rows(candidates, cache)
    return [None if each is None else program_vector(each) for each in rows]
