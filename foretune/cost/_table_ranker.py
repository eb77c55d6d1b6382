"""What rankers over tables have in common: a row for each program, members that are cross-fitted.

Idea: a program is a row of columns, whatever they tell of it. Members (boosters, perceptrons) learn
to order the rows of one workload; each leaves out a fifth of the training workloads. Scores of a
workload by the members that left it out tell what scores are worth on workloads never seen. What
could only name a workload is not looked at (``foretune.cost._tables``).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from foretune import features
from foretune._arrays import Array, BoolArray, Float32Array, FloatArray, IndexArray
from foretune._model_file import check
from foretune._options import (
    configured,
    constants,
    option_names,
    refuse_unknown,
    stored_options,
)
from foretune.cost._ranker import Needs, Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost._tables import Table, folds, informative
from foretune.dataset import judgeable
from foretune.errors import BadInputError, unknown_name
from foretune.hardware import FEATURE_VERSION as HARDWARE_VERSION

if TYPE_CHECKING:
    from typing_extensions import Self

    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware

_FORMAT = 3
"""Raised whenever the options or the arrays of a file change."""
_FOLDS = 5
ALWAYS = ("machine.threads", "machine.simd_bits")
"""Columns that say what others mean, whether they differ within a workload or not."""


class TableMember(Protocol):
    """One of several models of the same table."""

    def scores(self, matrix: Float32Array) -> FloatArray:
        """Scores of rows, shape (n, columns) -> (n,); of columns it reads its own."""

    def arrays(self) -> dict[str, Array]:
        """All that ``Learner.read`` needs; names end in a letter."""


class Learner(Protocol):
    """What makes members."""

    config: type[Any]

    @staticmethod
    def count(config: Any) -> int:
        """How many members there are."""

    @staticmethod
    def grow(
        config: Any,
        seed: int,
        tables: Sequence[Table],
        judges: Sequence[Table],
        columns: IndexArray,
    ) -> TableMember:
        """Makes one that learned from tables and may stop by others."""

    @staticmethod
    def read(config: Any, arrays: Mapping[str, Array]) -> TableMember:
        """What ``TableMember.arrays`` gave."""


class TableRanker(Ranker):
    """Cross-fitted members over rows of columns.

    Subclasses say what makes members (``learner``), which columns there are (``_matrix``) and what
    a file depends on (``_versions``).

    Args:
        seed: Of the members and of what is left out where there is too much data.
        features: Which columns, one of ``known_features``.
        options: Fields of the learner's configuration.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = Needs(options={"features": str}, in_run={"threads": 1})
    learner: ClassVar[type[Learner]]
    name: ClassVar[str]
    known_features: ClassVar[tuple[str, ...]]

    def __init__(self, *, seed: int, features: str, **options: Any) -> None:
        if features not in self.known_features:
            raise unknown_name(f"features of {self.name}", features, self.known_features)
        config = self.learner.config
        self.config, rest = configured(config, self.name, options)
        known = (*self.needs.in_text, *option_names(config))
        refuse_unknown(self.name, rest, known, constants(config))
        self.seed = seed
        self.features = features
        self._members: list[TableMember] = []

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the features that are read: a model with others is refused."""
        return self._versions(None)

    @classmethod
    def _versions(cls, feature_version: int | str | None) -> dict[str, Any]:
        """The same of a file whose per-store features have this version; None: today's."""
        del feature_version
        return {
            "file": _FORMAT,
            "actions": features.ACTION_FEATURE_VERSION,
            "hardware": HARDWARE_VERSION,
        }

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Members leave out training workloads to stop early and to be judged by, so that validation
        groups are not needed; where given, they are added to what is left out.
        """
        self._members = []
        self.scale, self.strength = Ranker.scale, Ranker.strength
        tables = self._tables(groups)
        if not tables:
            raise BadInputError(
                f"{self.name}: a group to learn from needs two programs with different seconds "
                f"that can be applied, but none of {len(groups)} has: collect more measurements"
            )
        held = self._tables(validation)
        rng = np.random.default_rng(self.seed)
        share = min(1.0, self.config.max_rows / sum(len(table.seconds) for table in tables))
        thinned = [table.thinned(share, rng) for table in tables]
        tables = [table for table in thinned if judgeable(table.seconds)]
        columns = informative(tables, self._always(tables[0].matrix.shape[1]))
        fold = folds(tables, _FOLDS, rng)
        count = self.learner.count(self.config)
        left_out = [self._left_out(member, fold) for member in range(count)]
        seeds = rng.integers(2**31, size=len(left_out)).tolist()
        for seed, out in zip(seeds, left_out, strict=True):
            kept = [table for table, gone in zip(tables, out, strict=True) if not gone]
            judges = [table for table, gone in zip(tables, out, strict=True) if gone]
            member = self.learner.grow(self.config, seed, kept, [*judges, *held], columns)
            self._members.append(member)
        self._weigh(tables, np.array(left_out), held)

    @staticmethod
    def _left_out(member: int, fold: IndexArray) -> BoolArray:
        """Which tables a member is not trained on: a fold of the workloads, where there are two."""
        count = int(fold.max()) + 1
        gone: BoolArray = fold == member % count
        return gone if count > 1 else np.zeros_like(gone)

    def _weigh(self, tables: Sequence[Table], left_out: BoolArray, held: Sequence[Table]) -> None:
        """Fits ``scale`` and ``strength``.

        Args:
            tables: What was trained on.
            left_out: Of shape (members, tables): but for these.
            held: Validation groups.
        """
        judged = [(self._raw(table.matrix), table.seconds) for table in held]
        for table, out in zip(tables, left_out.T, strict=True):
            if out.any():
                unaware = [m for m, gone in zip(self._members, out, strict=True) if gone]
                judged.append((self._raw(table.matrix, unaware), table.seconds))
        if not judged:
            # One workload: scores explain more of it than they will of others.
            judged = [(self._raw(table.matrix), table.seconds) for table in tables]
        self.scale = fitted_scale(judged)
        self.strength = fitted_strength(judged, self.scale)

    def _tables(self, groups: Sequence[Group]) -> list[Table]:
        tables = []
        for group in groups:
            if not judgeable(group.seconds):
                continue
            matrix, legal = self._matrix(group.programs, group.machine)
            if judgeable(group.seconds[legal]):
                table = Table(group.workload, matrix, group.seconds[legal], group.quiet[legal])
                tables.append(table)
        return tables

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of programs, shape (n,); NaN for one that cannot be applied."""
        scores = np.zeros(len(programs))
        if not self._members or not programs:
            return scores
        matrix, legal = self._matrix(programs, machine)
        scores[~legal] = np.nan
        if legal.any():
            scores[legal] = self._raw(matrix)
        return scores

    def _raw(self, matrix: Float32Array, members: Sequence[TableMember] = ()) -> FloatArray:
        """The mean over members, all of them unless given."""
        each = [member.scores(matrix) for member in members or self._members]
        mean: FloatArray = np.mean(each, axis=0)
        return mean

    @abc.abstractmethod
    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Float32Array, BoolArray]:
        """Features of the legal programs, and which of all, shape (n,), these are."""

    def _always(self, width: int) -> list[int]:
        """Places of ``ALWAYS`` among ``width`` columns, of which those of actions are the last."""
        names = [column.name for column in features.action_columns()]
        first = width - len(names)
        return [first + at for at, name in enumerate(names) if name in ALWAYS]

    def save(self, path: Path) -> None:
        """Writes the members, the configuration and the versions of the features to one file."""
        meta = {
            "features": self.features,
            "versions": self.versions,
            "config": asdict(self.config),
            "seed": self.seed,
            "scale": self.scale,
            "strength": self.strength,
            "members": len(self._members),
        }
        arrays: dict[str, Array] = {}
        for i, member in enumerate(self._members):
            arrays |= {f"{name}{i}": values for name, values in member.arrays().items()}
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> Self:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds, ``cache``, ``extract``..., or
                that are to differ from the file's: ``threads``.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
        """
        meta, arrays = read_model(path, cls.name)
        # First of all: a file of another version may have options that are not known here.
        check(path, meta, versions=cls._versions(parts.get("feature_version")))
        config = stored_options(constants(cls.learner.config), path, meta["config"])
        ranker = cls(seed=meta["seed"], features=meta["features"], **{**config, **parts})
        ranker.scale, ranker.strength = float(meta["scale"]), float(meta["strength"])
        for i in range(int(meta["members"])):
            own = {
                name.removesuffix(str(i)): values
                for name, values in arrays.items()
                if name.rstrip("0123456789") + str(i) == name
            }
            ranker._members.append(cls.learner.read(ranker.config, own))
        return ranker


class ActionTableRanker(TableRanker):
    """Over action features: no program is made, and programs of others can be scored."""

    known_features: ClassVar[tuple[str, ...]] = ("actions",)

    def __init__(self, *, seed: int = 0, features: str = "actions", **options: Any) -> None:
        super().__init__(seed=seed, features=features, **options)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Float32Array, BoolArray]:
        return features.action_features(programs, machine), np.ones(len(programs), dtype=bool)
