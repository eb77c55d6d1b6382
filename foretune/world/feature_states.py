"""States from numbers that describe a program: another target for the transition model.

Idea: a state has to tell fast programs from slow ones. The per-store features of a program do
(``docs/results/earlier.md``), the encoded text hardly. So the state of a program is a point
made of its features: those directions in which the programs of a workload differ most, on the
sphere that transitions walk on.

Symbols: x the standardised features of a program, V of them, at most 6 deviations from the mean; P
the first d - 1 right singular vectors of the training programs' x, each without the mean of its
workload; s the mean length of x P. The state is the unit vector along [x P / s; 1/2], whose last
number keeps the length of x P readable.

No paper; the compiler world model (arXiv 2606.09312) encodes the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune._arrays import Array, Float32Array
from foretune._model_file import Arrays, check
from foretune.errors import BadInputError, RecordError
from foretune.world._part import Part

SCHEMA = "foretune.feature_states/1"
"""Of what ``FeatureStates.dump`` gives. Another number when arrays change meaning."""

_CLIP = 6.0
"""Standard deviations at most that a feature is from the mean."""
_CONSTANT = 1e-6
_LAST = 0.5
"""The last number before the state is brought to length 1; those before have length 1 in the
mean."""


class FeatureStates(Part):
    """Features of programs to states.

    Args:
        shift: Means of the features, shape (V,).
        factor: 1 / their standard deviations, 0 for what does not vary, shape (V,).
        directions: P / s, shape (V, d - 1).
    """

    def __init__(self, shift: Float32Array, factor: Float32Array, directions: Float32Array) -> None:
        self._shift, self._factor, self._directions = shift, factor, directions

    @property
    def features(self) -> int:
        """V."""
        return len(self._shift)

    @property
    def dimension(self) -> int:
        """d, the numbers of a state."""
        return int(self._directions.shape[1]) + 1

    @classmethod
    def fit(cls, vectors: Float32Array, owner: Sequence[str], dimension: int) -> FeatureStates:
        """Directions in which the programs of workloads differ.

        Args:
            vectors: Features of training programs, shape (n, V).
            owner: Workload of each.
            dimension: d, at least 2; fewer where programs do not differ in as many directions.

        Raises:
            BadInputError: ``dimension`` is less than 2, or there is no program.
        """
        if dimension < 2:
            raise BadInputError(
                f"feature states: dimension >= 2 must hold, but got {dimension}: one number says "
                "how far, the others where"
            )
        if not len(vectors):
            raise BadInputError("feature states: at least 1 program must be there, but got 0")
        wide = vectors.astype(np.float64)
        shift, deviation = wide.mean(axis=0), wide.std(axis=0)
        varies = deviation > _CONSTANT
        factor = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        scaled = np.clip((wide - shift) * factor, -_CLIP, _CLIP)
        apart = scaled.copy()
        number = np.unique(list(owner), return_inverse=True)[1]
        for workload in range(number.max() + 1):
            apart[number == workload] -= apart[number == workload].mean(axis=0)
        # Of a symmetric matrix: as many numbers as features, however many programs there are.
        strength, found = np.linalg.eigh(apart.T @ apart)
        order = np.argsort(-strength)[: dimension - 1]
        kept = order[strength[order] > _CONSTANT * max(float(strength.max()), _CONSTANT)]
        directions = found[:, kept if len(kept) else order[:1]]
        # Singular vectors have no sign of their own.
        largest = np.abs(directions).argmax(axis=0)
        directions = directions * np.sign(directions[largest, np.arange(directions.shape[1])])
        length = float(np.linalg.norm(scaled @ directions, axis=1).mean())
        return cls(
            shift.astype(np.float32),
            factor.astype(np.float32),
            (directions / max(length, _CONSTANT)).astype(np.float32),
        )

    def of(self, vectors: Float32Array) -> Float32Array:
        """States, float32 of shape (n, d) and length 1, of features of shape (n, V).

        Raises:
            BadInputError: There are other features than in training.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.features:
            raise BadInputError(
                f"feature states: features must have shape (n, {self.features}), as in training, "
                f"but have {vectors.shape}"
            )
        # What sums differ by, with how arrays lie in memory, is lost when they are rounded.
        wide = vectors.astype(np.float64)
        scaled = np.clip((wide - self._shift) * self._factor, -_CLIP, _CLIP)
        moved = scaled @ self._directions.astype(np.float64)
        points = np.concatenate([moved, np.full((len(moved), 1), _LAST)], axis=1)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return points.astype(np.float32)

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """Everything, as a JSON object and arrays."""
        arrays = {"shift": self._shift, "factor": self._factor, "directions": self._directions}
        return {"schema": SCHEMA}, arrays

    @classmethod
    def restore(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> FeatureStates:
        """What ``dump`` gave becomes a part that answers alike.

        Raises:
            VersionMismatchError: Written under another schema.
            RecordError: Something is missing or does not fit.
        """
        del device, threads
        check("the feature states", meta, schema=SCHEMA)
        try:
            shift, factor, directions = (
                arrays[name].astype(np.float32) for name in ("shift", "factor", "directions")
            )
        except KeyError as error:
            raise RecordError(
                f"stored feature states are damaged ({error} is missing): train them again"
            ) from error
        if directions.ndim != 2 or not shift.shape == factor.shape == directions.shape[:1]:
            raise RecordError(
                "stored feature states are damaged (shapes do not fit): train them again"
            )
        return cls(shift, factor, directions)
