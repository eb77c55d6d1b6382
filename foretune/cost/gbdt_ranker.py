"""Gradient-boosted trees trained on the measurements of many workloads.

Idea: the same trees as in ``foretune.cost.gbdt``, grown once on a data set instead of anew in every
run. A program is its aggregated per-store features, the features of its decisions, or both, and the
factors of its hardware; trees learn to order the programs of one workload by speed.

The softmax of a workload's scores is to be where its fastest programs are
(``foretune.cost._listwise``): what a search measures are the few candidates that the model puts on
top, and only this loss looks at which these are. Other objectives: ``foretune_research.trees``.

Members are cross-fitted (``foretune.cost._table_ranker``): each leaves out a fifth of the training
workloads and stops growing when it gets worse on these.

Source: ListNet (Cao et al., 2007).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune import features
from foretune._arrays import Array, BoolArray, Float32Array
from foretune.cost._boosters import Boosters
from foretune.cost._ranker import TEXT, Needs
from foretune.cost._table_ranker import ActionTableRanker, Learner, TableRanker
from foretune.cost.gbdt import program_vector
from foretune.errors import BadInputError
from foretune.features import require_source

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.features import Extractor
    from foretune.hardware import Hardware


class GbdtRanker(TableRanker):
    """Trees over per-store and action features of programs that can be rebuilt.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"both"``, nothing else.
        extract: Candidates to rows per candidate, None for an illegal one; TVM's per-store
            features unless given.
        feature_version: Version of what ``extract`` gives; a saved model with another is refused.
        cache: Folder in which per-store features are kept; None: in memory only.
        source: Where they are read, one of ``foretune.features.SOURCES``.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = replace(
        TableRanker.needs,
        programs=True,
        options={
            "features": str,
            "cache": TEXT,
            "source": str,
            "feature_version": None,
            "extract": None,
        },
    )
    learner: ClassVar[type[Learner]] = Boosters
    name: ClassVar[str] = "gbdt"
    known_features: ClassVar[tuple[str, ...]] = ("both",)

    def __init__(
        self,
        *,
        seed: int = 0,
        features: str = "both",
        extract: Extractor | None = None,
        feature_version: int | str | None = None,
        cache: Path | str | None = None,
        source: str = "programs",
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, features=features, **options)
        self._extract = extract
        self._version = feature_version
        self._cache = None if cache is None else Path(cache)
        require_source(self.name, source)
        self.store_source = source

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the features that are read: a model with others is refused."""
        return self._versions(self._version)

    @classmethod
    def _versions(cls, feature_version: int | str | None) -> dict[str, Any]:
        known = feature_version is not None
        per_store = feature_version if known else features.FEATURE_VERSION
        return {**super()._versions(feature_version), "per_store": per_store}

    def prepare(self, groups: Iterable[Group]) -> None:
        """Reads the per-store features of all programs."""
        for group in groups:
            self._store_rows(group.programs)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Float32Array, BoolArray]:
        """Features of the legal programs, and which of all, shape (n,), these are."""
        rows = self._store_rows(programs)
        legal = np.array([each is not None for each in rows], dtype=bool)
        kept = [programs[i] for i in np.flatnonzero(legal).tolist()]
        if not kept:
            return np.zeros((0, 0), np.float32), legal
        made = [np.asarray(each, np.float32) for each in rows if each is not None]
        store = np.stack([program_vector(each) for each in made])
        return np.concatenate([store, self._beside(kept, machine)], axis=1), legal

    def _store_rows(self, programs: Sequence[Program]) -> Sequence[Array | None]:
        if self._extract is None:
            return features.program_rows(programs, self._cache, self.store_source)
        missing = sum(program.candidate is None for program in programs)
        if missing:
            raise BadInputError(
                f"{self.name} needs programs that can be rebuilt, but {missing} of "
                f"{len(programs)} have actions only: choose a ranker that reads actions, for "
                "example 'gbdt_actions' or 'tlp'"
            )
        return self._extract([program.candidate for program in programs])

    def _beside(self, programs: Sequence[Program], machine: Hardware | None) -> Float32Array:
        """What joins the per-store features."""
        return features.action_features(programs, machine)


class GbdtActionRanker(ActionTableRanker):
    """Trees over action features: no program is made, and programs of others can be scored.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"actions"``, nothing else.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    learner: ClassVar[type[Learner]] = Boosters
    name: ClassVar[str] = "gbdt_actions"
