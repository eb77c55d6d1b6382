"""Gradient-boosted trees trained on the measurements of many workloads.

Idea: the same trees as in ``foretune.cost.gbdt``, grown once on a data set instead of anew in every
run. A program is its aggregated per-store features, the features of its decisions, or both, and the
factors of its hardware; trees learn to order the programs of one workload by speed.

``objective`` says how:

- ``"list"`` (the default): the softmax of a workload's scores is to be where its fastest programs
  are (``foretune.cost._listwise``). What a search measures are the few candidates that the model
  puts on top; only this loss looks at which these are.
- ``"lambda"``: pairs of programs of one workload pull their scores apart, the more the larger their
  difference in log2 seconds is, and the more the closer the faster one is to the best of its
  workload (``foretune.cost._lambdarank``).
- ``"ndcg"``: XGBoost's own LambdaMART, which looks at ranks instead of seconds. Ranks become
  levels of relevance, finer towards the top, at most 31 (XGBoost's exponential gain allows no
  more).
- ``"regression"``: squared error of best / seconds, as in TenSet.

Members are cross-fitted: each leaves out a fifth of the training workloads and stops growing when
it gets worse on these; scores of a workload by the members that left it out tell what scores are
worth on workloads never seen. What could only name a workload is not looked at
(``foretune.cost._tables``).

Sources: RankNet and LambdaMART (Burges, 2010), ListNet (Cao et al., 2007).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import xgboost

from foretune import features
from foretune._model_file import check
from foretune._options import configured, refuse_unknown
from foretune.cost._base import FloatArray
from foretune.cost._boosters import GbdtRankerConfig, Member, grow
from foretune.cost._ranker import Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost._tables import Integers, Rows, Table, folds, informative
from foretune.cost.gbdt import program_vector
from foretune.dataset import judgeable
from foretune.errors import BadInputError, unknown_name
from foretune.features import require_source
from foretune.hardware import FEATURE_COLUMNS
from foretune.hardware import FEATURE_VERSION as HARDWARE_VERSION

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.features import Extractor
    from foretune.hardware import Hardware

_FORMAT = 2
"""Raised whenever the options or the arrays of a file change."""
_FEATURES = ("both", "store")
_FOLDS = 5
_ALWAYS = ("machine.threads", "machine.simd_bits")
"""Columns that say what others mean, whether they differ within a workload or not."""


class GbdtRanker(Ranker):
    """Trees over per-store and action features of programs that can be rebuilt.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"both"``, or ``"store"``: per-store features and hardware factors only.
        extract: Candidates to rows per candidate, None for an illegal one; TVM's per-store
            features unless given.
        feature_version: Version of what ``extract`` gives; a saved model with another is refused.
        cache: Folder in which per-store features are kept; None: in memory only.
        source: Where they are read, one of ``foretune.features.SOURCES``.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    reads_programs: bool = True
    run_parts: ClassVar[Mapping[str, Any]] = {"threads": 1}
    name: ClassVar[str] = "gbdt"

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
        if features not in self._known_features():
            raise unknown_name(f"features of {self.name}", features, self._known_features())
        self.config, rest = configured(GbdtRankerConfig, self.name, options)
        refuse_unknown(
            self.name, rest, ("features", "cache", *GbdtRankerConfig.__dataclass_fields__)
        )
        self.seed = seed
        self.features = features
        self._extract = extract
        self._version = feature_version
        self._cache = None if cache is None else Path(cache)
        require_source(self.name, source)
        self.source = source
        self._members: list[Member] = []

    @classmethod
    def _known_features(cls) -> tuple[str, ...]:
        return _FEATURES

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the features that are read: a model with others is refused."""
        return self._versions(self._version)

    @classmethod
    def _versions(cls, feature_version: int | str | None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "file": _FORMAT,
            "actions": features.ACTION_FEATURE_VERSION,
            "hardware": HARDWARE_VERSION,
        }
        if cls.reads_programs:
            known = feature_version is not None
            found["per_store"] = feature_version if known else features.FEATURE_VERSION
        return found

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
        left_out = [self._left_out(member, fold) for member in range(self.config.boosters)]
        seeds = rng.integers(2**31, size=len(left_out)).tolist()
        for seed, out in zip(seeds, left_out, strict=True):
            kept = [table for table, gone in zip(tables, out, strict=True) if not gone]
            judges = [table for table, gone in zip(tables, out, strict=True) if gone]
            self._members.append(grow(self.config, seed, kept, [*judges, *held], columns))
        self._weigh(tables, np.array(left_out), held)

    @staticmethod
    def _left_out(member: int, fold: Integers) -> npt.NDArray[np.bool_]:
        """Which tables a member is not trained on: a fold of the workloads, where there are two."""
        count = int(fold.max()) + 1
        gone: npt.NDArray[np.bool_] = fold == member % count
        return gone if count > 1 else np.zeros_like(gone)

    def _weigh(
        self, tables: Sequence[Table], left_out: npt.NDArray[np.bool_], held: Sequence[Table]
    ) -> None:
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
        found = []
        for group in groups:
            if not judgeable(group.seconds):
                continue
            matrix, legal = self._matrix(group.programs, group.machine)
            if judgeable(group.seconds[legal]):
                table = Table(group.workload, matrix, group.seconds[legal], group.quiet[legal])
                found.append(table)
        return found

    def _always(self, width: int) -> list[int]:
        """Places of ``_ALWAYS`` among ``width`` columns."""
        names = [f"machine.{name}" for name, _unit in FEATURE_COLUMNS]
        if self.features != "store":
            names = [column.name for column in features.action_columns()]
        first = width - len(names)
        return [first + at for at, name in enumerate(names) if name in _ALWAYS]

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

    def _raw(self, matrix: Rows, members: Sequence[Member] = ()) -> FloatArray:
        """The mean over members, all of them unless given."""
        each = [member.scores(matrix) for member in members or self._members]
        mean: FloatArray = np.mean(each, axis=0)
        return mean

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Features of the legal programs, and which of all, shape (n,), these are."""
        rows = self._store_rows(programs)
        legal = np.array([each is not None for each in rows], dtype=bool)
        kept = [programs[i] for i in np.flatnonzero(legal).tolist()]
        if not kept:
            return np.zeros((0, 0), np.float32), legal
        made = [np.asarray(each, np.float32) for each in rows if each is not None]
        store = np.stack([program_vector(each) for each in made])
        return np.concatenate([store, self._beside(kept, machine)], axis=1), legal

    def _store_rows(self, programs: Sequence[Program]) -> Sequence[npt.NDArray[Any] | None]:
        if self._extract is None:
            return features.program_rows(programs, self._cache, self.source)
        missing = sum(program.candidate is None for program in programs)
        if missing:
            raise BadInputError(
                f"{self.name} needs programs that can be rebuilt, but {missing} of "
                f"{len(programs)} have actions only: choose a ranker that reads actions, for "
                "example 'gbdt_actions' or 'tlp'"
            )
        return self._extract([program.candidate for program in programs])

    def _beside(self, programs: Sequence[Program], machine: Hardware | None) -> Rows:
        """What joins the per-store features."""
        if self.features == "both":
            return features.action_features(programs, machine)
        if machine is None and programs[0].candidate is not None:
            machine = programs[0].candidate.hardware
        factors = features.machine_features(machine).astype(np.float32)
        return np.tile(factors, (len(programs), 1))

    def save(self, path: Path) -> None:
        """Writes the trees, the configuration and the versions of the features to one file."""
        meta = {
            "features": self.features,
            "versions": self.versions,
            "config": asdict(self.config),
            "seed": self.seed,
            "scale": self.scale,
            "strength": self.strength,
            "boosters": len(self._members),
        }
        arrays: dict[str, npt.NDArray[Any]] = {}
        for i, member in enumerate(self._members):
            arrays[f"booster{i}"] = member.to_bytes()
            arrays[f"columns{i}"] = member.columns
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> GbdtRanker:
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
        ranker = cls(seed=meta["seed"], features=meta["features"], **{**meta["config"], **parts})
        ranker.scale, ranker.strength = float(meta["scale"]), float(meta["strength"])
        for i in range(int(meta["boosters"])):
            booster = xgboost.Booster({"nthread": ranker.config.threads})
            booster.load_model(bytearray(arrays[f"booster{i}"].tobytes()))
            ranker._members.append(Member(booster, arrays[f"columns{i}"].astype(np.intp)))
        return ranker


class GbdtActionRanker(GbdtRanker):
    """Trees over action features: no program is made, and programs of others can be scored.

    Args:
        seed: Of the trees and of what is left out where there is too much data.
        features: ``"actions"``, nothing else.
        options: Fields of ``GbdtRankerConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    reads_programs: bool = False
    name: ClassVar[str] = "gbdt_actions"

    def __init__(self, *, seed: int = 0, features: str = "actions", **options: Any) -> None:
        super().__init__(seed=seed, features=features, **options)

    @classmethod
    def _known_features(cls) -> tuple[str, ...]:
        return ("actions",)

    def _matrix(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Rows, npt.NDArray[np.bool_]]:
        return features.action_features(programs, machine), np.ones(len(programs), dtype=bool)
