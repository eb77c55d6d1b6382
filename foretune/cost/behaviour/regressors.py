"""Regressors by where scores are from: what is known of one source says nothing of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, FloatArray
from foretune.cost.behaviour.composition import coarse
from foretune.cost.behaviour.scores import AnalyticScores
from foretune.cost.behaviour.targets import OCTAVES
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost.behaviour.regressor import Lesson, Regressor

COARSE = "coarse"
"""Name of the regressor for scores of models that none was trained on."""


class Regressors:
    """One for each source of scores, and a coarse one for those that none was trained on.

    Args:
        make: Makes one that has learned nothing.
        scores: Name of a source, for which there is such a one.
    """

    def __init__(self, make: Callable[[], Regressor], scores: str) -> None:
        self._make = make
        self._of = {scores: make()}

    @property
    def sources(self) -> Sequence[str]:
        """Names of the sources, and ``COARSE``."""
        return list(self._of)

    def forget(self, scores: str) -> None:
        """As if made anew."""
        self._of = {scores: self._make()}

    def fit(
        self, scores: str, lessons: Sequence[Lesson], validation: Sequence[Lesson], seed: int
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Forgets everything and learns from scores of one source; of formulas also roughly.

        Args:
            scores: Name of the source.
            lessons: What is learned from.
            validation: Of other workloads, to stop by.
            seed: Of how scores are made rough.

        Returns:
            Scores and seconds of each lesson, by members that left it out where there are any.
        """
        self.forget(scores)
        regressor = self._of[scores]
        regressor.fit(lessons, validation)
        judged = [(OCTAVES * said, seconds) for said, seconds in regressor.left_out]
        if not judged:
            judged = [(-OCTAVES * regressor.times(each.columns), each.seconds) for each in lessons]
        if scores == AnalyticScores.name:
            rng = np.random.default_rng(seed)
            imitated = self._of[COARSE] = self._make()
            imitated.fit([replace(each, columns=coarse(each.columns, rng)) for each in lessons])
        return judged

    def get(self, scores: str) -> Regressor | None:
        """The one for a source of scores; None where there is none."""
        return self._of.get(scores, self._of.get(COARSE))

    def require(self, scores: str, what: object) -> Regressor:
        """The same.

        Args:
            scores: Name of the source.
            what: Whose regressors they are, for the message.

        Raises:
            BadInputError: There is none.
        """
        found = self.get(scores)
        if found is None:
            known = " and ".join(repr(name) for name in self._of)
            raise BadInputError(
                f"{what} was trained on scores of {known}, and says nothing of those of "
                f"{scores!r}: train it with scores={scores}"
            )
        return found

    def meta(self) -> dict[str, Any]:
        """What JSON holds of them."""
        return {name: each.meta() for name, each in self._of.items()}

    def arrays(self) -> dict[str, Array]:
        """What a file holds of them besides."""
        return {
            f"{name}/{key}": array
            for name, each in self._of.items()
            for key, array in each.arrays().items()
        }

    def restore(
        self,
        kind: type[Regressor],
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        **options: Any,
    ) -> None:
        """Reads what ``meta`` and ``arrays`` gave.

        Args:
            kind: What they are.
            meta: Of all.
            arrays: Of all, perhaps among others.
            options: That are to differ from the file's.
        """
        self._of = {
            name: kind.restored(each, under(arrays, name), **options) for name, each in meta.items()
        }


def under(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Arrays whose names begin with ``prefix/``, without it."""
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
