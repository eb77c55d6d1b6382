"""The regressor of behaviour with LLMTuner's own parts, and with what studies change.

Source: LLMTuner, section 3.3 (three layers of 512, 256 and 128; ranking and squares; ten bins).
"""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune._options import Bounds, Count, NotNegative, OneOf, Positive, Share
from foretune.cost.behaviour.columns import NAMES, PROGRAM_NAMES
from foretune.cost.behaviour.line import Line
from foretune.cost.behaviour.regressor import (
    Lesson,
    Material,
    Member,
    Regressor,
    RegressorConfig,
)
from foretune.cost.behaviour.targets import TARGETS

_Part = Annotated[float, Bounds(gt=0, le=1)]
_OPPONENTS = 16
"""Pairs drawn per program."""

Gradients = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class RegressorVariantsConfig(RegressorConfig):
    """How behaviour becomes time, with a switch for each part.

    Attributes:
        form: ``"trees"`` or ``"perceptron"``.
        target: One of ``targets.TARGETS``.
        rank_share: Share of the ranking in the loss, from 0 to 1 (LLMTuner's lambda).
        ranking: ``"list"``, or ``"pairs"`` of programs.
        temperature: Difference of times at which one program is clearly before another.
        binning: Whether programs of rare bins are seen more often.
        bins: Of equal width over the target.
        repetition: How often a program is seen at most.
        factor_columns: Whether the device's factors are columns, as in LLMTuner. Scores know the
            device anyway, and trees learn devices by heart from them.
        believed: Share of what members correct that is believed: less carries over better to
            programs of other tools.
        line: Whether a line begins; if not, corrections start from nothing, as in LLMTuner.
        monotone: Whether trees may only say what the columns mean: the better a score, the faster,
            the longer a limit or another device, the slower.
        fold: What members leave out: ``"workload"``, ``"device"``, or ``"auto"``: devices where
            there are three or more of them.
        patience: Of them without improvement, after which training ends.
        depth: Of a tree.
        learning_rate: Of trees; None: 0.08, and 1e-3 of the perceptron.
        subsample: Share of programs that each tree sees.
        columns: Share of columns that each tree sees.
        min_child_weight: Of XGBoost: programs in a leaf at least, about.
        l2: Penalty on leaves.
    """

    form: Annotated[str, OneOf(("trees", "perceptron"))] = "trees"
    target: Annotated[str, OneOf(TARGETS)] = "octaves"
    rank_share: Share = 0.5
    ranking: Annotated[str, OneOf(("list", "pairs"))] = "list"
    temperature: Positive = 0.1
    binning: bool = True
    bins: Count = 10
    repetition: Count = 10
    factor_columns: bool = False
    line: bool = True
    monotone: bool = True
    believed: _Part = 0.5
    fold: Annotated[str, OneOf(("auto", "workload", "device"))] = "auto"
    patience: Count = 30
    depth: Count = 6
    learning_rate: Positive | None = None
    subsample: _Part = 0.7
    columns: _Part = 0.5
    min_child_weight: NotNegative = 20.0
    l2: NotNegative = 1.0


class RegressorVariants(Regressor):
    """Behaviour to normalised time, by trees or by LLMTuner's perceptron.

    Args:
        seed: Of what members see.
        options: Fields of ``RegressorVariantsConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    config_type: ClassVar[type[RegressorConfig]] = RegressorVariantsConfig
    config: RegressorVariantsConfig

    def _grow(self, seed: int, material: Material, judges: Sequence[Lesson], line: Line) -> Member:
        judging = self._material(judges, line) if judges else None
        if self.config.form == "perceptron":
            from foretune_research.behaviour.perceptron import train

            return train(self.config, seed, material, judging)
        if self.config.ranking == "list":
            return super()._grow(seed, material, judges, line)
        from foretune.cost.behaviour.trees import grow

        rng = np.random.default_rng(seed)

        def ranks(_config: RegressorConfig, some: Material, weights: FloatArray) -> Any:
            return pairs(self.config, some, weights, rng)

        return grow(self.config, seed, material, judging, self._signs(), ranks)

    def _read_member(self, arrays: Mapping[str, Any]) -> Member:
        if self.config.form == "trees":
            return super()._read_member(arrays)
        from foretune_research.behaviour.perceptron import PerceptronMember

        return PerceptronMember.of_arrays(arrays, self.config.threads)

    def _useful(self, lessons: Sequence[Lesson]) -> IndexArray:
        """The device's columns, too, where they are asked for and differ between devices."""
        useful = super()._useful(lessons)
        if not self.config.factor_columns:
            return useful
        factors = np.nan_to_num(
            np.stack([each.columns[0, len(PROGRAM_NAMES) :] for each in lessons]), nan=-99.0
        )
        differ = np.zeros(len(NAMES), dtype=bool)
        differ[len(PROGRAM_NAMES) :] = factors.std(axis=0) > 1e-9
        differ[useful] = True
        return np.flatnonzero(differ)


def pairs(
    config: RegressorVariantsConfig,
    material: Material,
    weights: FloatArray,
    rng: np.random.Generator,
) -> Callable[[FloatArray], Gradients]:
    """Pairs of programs of one group; the odds of each are to be those of the target."""
    t, n = config.temperature, len(material.times)
    sizes = material.sizes[material.group]
    starts = (np.cumsum(material.sizes) - material.sizes)[material.group]
    i = np.repeat(np.arange(n), _OPPONENTS // 2)
    j = starts[i] + rng.integers(0, sizes[i])
    i, j = i[i != j], j[i != j]
    w = np.sqrt(weights[i] * weights[j]) / (_OPPONENTS // 2)
    target = 1.0 / (1.0 + np.exp(np.clip((material.times[i] - material.times[j]) / t, -30, 30)))

    def ranking(s: FloatArray) -> Gradients:
        odds = 1.0 / (1.0 + np.exp(np.clip((s[j] - s[i]) / t, -30, 30)))
        force, curvature = 4.0 * t * w * (odds - target), 4.0 * w * odds * (1.0 - odds)
        gradient: FloatArray = np.subtract(
            np.bincount(i, force, n), np.bincount(j, force, n), dtype=np.float64
        )
        hessian: FloatArray = np.add(
            np.bincount(i, curvature, n), np.bincount(j, curvature, n), dtype=np.float64
        )
        return gradient, hessian

    return ranking
