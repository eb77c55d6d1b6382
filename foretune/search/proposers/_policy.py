"""A small policy: how much faster does an edit make a program?

Idea: boosted trees learn the change of log2 speed between measured programs of one workload that
differ in one to three decisions, from what the decisions of the first say about the machine's
registers, caches and threads, and from how the edit changes that. No program is made, and the trees
are few, so that hundreds of edits cost a millisecond or two.

Symbols: the *gain* of an edit is log2(seconds before / seconds after), clipped to +-2.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Float32Array, FloatArray, IndexArray
from foretune._model_file import check, read_model, write_model
from foretune.errors import BadInputError, RecordError
from foretune.features import ACTION_FEATURE_VERSION
from foretune.search.proposers._ranked import features_of

if TYPE_CHECKING:
    import xgboost

    from foretune.dataset import Group

SCHEMA = "foretune.policy/1"
_CLIP = 2.0
_FARTHEST = 3
"""Decisions in which programs of a pair differ at most."""
_ROUNDS = 250
_PARAMETERS = {
    "max_depth": 6,
    "learning_rate": 0.15,
    "min_child_weight": 20,
    "subsample": 0.7,
    "colsample_bytree": 0.7,
    "nthread": 1,
    "base_score": 0.0,
}


@dataclass(frozen=True)
class Pairs:
    """Measured programs of one sketch that differ in few decisions.

    Attributes:
        first, second: Indices of programs of a group, shape (n,) each; both directions are there.
        apart: Decisions in which they differ, shape (n,).
        gain: log2(seconds of the first / seconds of the second), shape (n,).
    """

    first: IndexArray
    second: IndexArray
    apart: IndexArray
    gain: FloatArray


def pairs_of(group: Group, farthest: int = _FARTHEST) -> Pairs:
    """All pairs of measured programs of a group that differ in at most ``farthest`` decisions."""
    sketches: dict[str, list[int]] = {}
    for i in np.flatnonzero(group.valid).tolist():
        candidate = group.programs[i].candidate
        if candidate is not None:
            sketches.setdefault(candidate.sketch.key, []).append(i)
    groups = [_pairs(group, members, farthest) for members in sketches.values()]
    first, second, apart = (
        np.concatenate([each[part] for each in groups] or [np.zeros(0, np.intp)])
        for part in range(3)
    )
    gain = np.log2(group.seconds[first] / group.seconds[second])
    return Pairs(first, second, apart, gain)


def _pairs(group: Group, members: Sequence[int], farthest: int) -> tuple[Any, Any, Any]:
    candidates: list[Any] = [group.programs[i].candidate for i in members]
    apart = np.zeros((len(members), len(members)), dtype=np.intp)
    for column in zip(*(c.decisions for c in candidates), strict=True):
        codes = {value: code for code, value in enumerate(dict.fromkeys(column))}
        code = np.array([codes[value] for value in column])
        apart += code[:, None] != code[None, :]
    first, second = np.nonzero((apart > 0) & (apart <= farthest))
    place = np.array(members, dtype=np.intp)
    return place[first], place[second], apart[first, second]


class Policy:
    """Predicts the gain of edits.

    Args:
        booster: The trees.
    """

    def __init__(self, booster: xgboost.Booster) -> None:
        self._booster = booster

    def gains(self, parents: Float32Array, edits: Float32Array) -> FloatArray:
        """Expected gain of each edit, shape (n,).

        Args:
            parents: Action features of the program before each edit, shape (n, columns).
            edits: Those of the program after it, shape (n, columns).
        """
        rows = _rows(parents, edits)
        margin = np.zeros(len(rows))
        return np.asarray(self._booster.inplace_predict(rows, base_margin=margin), np.float64)

    @classmethod
    def train(
        cls, groups: Sequence[Group], *, per_group: int = 1500, seed: int = 0
    ) -> tuple[Policy, int]:
        """Learns from measured programs.

        Args:
            groups: Measurements of our own programs.
            per_group: Pairs of one group at most, drawn uniformly.
            seed: Of the draws and the trees.

        Returns:
            The policy and the number of pairs.

        Raises:
            BadInputError: No two programs of a group differ in few decisions.
        """
        import xgboost

        rng = np.random.default_rng(seed)
        rows, gains = [], []
        for group in groups:
            pairs = pairs_of(group)
            if not len(pairs.gain):
                continue
            kept = rng.permutation(len(pairs.gain))[:per_group]
            used, where = np.unique(
                np.concatenate([pairs.first[kept], pairs.second[kept]]), return_inverse=True
            )
            candidates: list[Any] = [group.programs[i].candidate for i in used.tolist()]
            features = features_of(candidates)
            first, second = where.reshape(2, -1)
            rows.append(_rows(features[first], features[second]))
            gains.append(np.clip(pairs.gain[kept], -_CLIP, _CLIP))
        if not rows:
            raise BadInputError(
                f"a policy learns from programs that differ in at most {_FARTHEST} decisions, but "
                f"{len(groups)} groups have none: give a data set of `foretune collect`"
            )
        label = np.concatenate(gains)
        data = xgboost.QuantileDMatrix(np.concatenate(rows), label, nthread=1)
        data.set_base_margin(np.zeros(len(label)))
        return cls(xgboost.train({**_PARAMETERS, "seed": seed}, data, _ROUNDS)), len(label)

    def save(self, path: Path) -> None:
        """Writes trees and feature version to one file.

        Raises:
            RecordError: The file cannot be written.
        """
        meta = {"schema": SCHEMA, "actions": ACTION_FEATURE_VERSION}
        trees = np.frombuffer(self._booster.save_raw("ubj"), dtype=np.uint8)
        write_model(path, meta, {"trees": trees})

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Reads what ``save`` wrote.

        Raises:
            RecordError: The file is no policy.
            VersionMismatchError: Written under another schema or feature version.
        """
        import xgboost

        meta, arrays = read_model(path, "a policy")
        made_by = "python -m benchmarks.proposers --train"
        check(path, meta, made_by, schema=SCHEMA, actions=ACTION_FEATURE_VERSION)
        if "trees" not in arrays:
            raise RecordError(f"{path} is not a policy: it holds no trees")
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(arrays["trees"].tobytes()))
        return cls(booster)


def _rows(parents: Float32Array, edits: Float32Array) -> Float32Array:
    return np.concatenate([parents, edits - parents], axis=1)


def weights(kind: str) -> Any:
    """Where the policy for a kind of target comes with the package, whether it does or not."""
    return importlib.resources.files("foretune.search.proposers") / "weights" / f"{kind}.npz"
