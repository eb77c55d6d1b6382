"""What gradient search follows: a model that scores candidates exactly and points smoothly.

Idea: the perceptron reads per-store features and, beside them, features of the decisions. The first
are formulas, smooth where asked. The second come from NumPy, and nearly all of them are sums of
logarithms of factors; so between candidates they are what they are at the nearest candidate, plus
what a linear fit over the sketch says about the way from there. A candidate's own score has neither
of these errors: it is computed from exact columns.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.cost.mlp import MlpRanker
from foretune.features.formulas import Formulas, formulas
from foretune.search._descent import Landscape
from foretune.search._relaxed import Relaxed
from foretune.space import Candidate, Choice, PerfectTile, Sketch
from foretune.space.symbolic import Structure, UnsupportedTraceError, structure_of

if TYPE_CHECKING:
    import torch

    from foretune.space import Decision

Floats = npt.NDArray[np.float64]

_SAMPLES = 256
"""Candidates that the linear fit of a structure looks at."""
_RIDGE = 1e-3


class Guide(abc.ABC):
    """A frozen model of one space that can be climbed on.

    Life cycle: made once per strategy; ``landscape`` is asked once per group.
    """

    def group(self, candidate: Any) -> Hashable:
        """The sketch and what decides its loops.

        Candidates of one group differ in numbers only, and share a landscape.
        """
        sketch = candidate.sketch
        if not isinstance(sketch, Sketch):
            return str(sketch.key)
        return sketch.key, structure_of(sketch, candidate.decisions)

    @abc.abstractmethod
    def landscape(self, candidate: Any) -> Landscape:
        """The landscape of a candidate's group.

        Raises:
            UnsupportedTraceError: There is none.
        """

    @abc.abstractmethod
    def scores(self, candidates: Sequence[Any]) -> Floats:
        """Scores of candidates, shape (n,), higher is better; NaN for one that is illegal."""


def cautious(members: torch.Tensor, caution: float) -> torch.Tensor:
    """The mean over members less their deviations, shape (members, n) -> (n,)."""
    if len(members) == 1:
        # The deviation of one member has no gradient.
        return members[0]
    return members.mean(0) - caution * members.std(0, correction=0)


class MlpGuide(Guide):
    """The perceptron on formulas of its features.

    Args:
        ranker: Trained.
        kind: Of the coordinates, one of ``foretune.search._relaxed.KINDS``.
        caution: Deviations between members by which the score is lowered.
        penalty: Score lost per unit of ``Formulas.excess``.
    """

    def __init__(
        self, ranker: MlpRanker, kind: str = "exponents", caution: float = 1.0, penalty: float = 4.0
    ) -> None:
        # The caller's ranker goes on reading programs if it did.
        self.ranker = copy.copy(ranker)
        self.ranker.source = "formulas"
        self._kind, self._caution, self._penalty = kind, caution, penalty

    def landscape(self, candidate: Candidate) -> Landscape:
        """Compiled formulas and a linear fit, some 0.1 s."""
        sketch = candidate.sketch
        if not isinstance(sketch, Sketch):
            raise UnsupportedTraceError(f"sketch {sketch.key}", "has no trace")
        structure = structure_of(sketch, candidate.decisions)
        return _MlpLandscape(self, formulas(sketch, structure), structure, candidate, self._kind)

    def scores(self, candidates: Sequence[Candidate]) -> Floats:
        """The score that is climbed, from exact columns."""
        from foretune.dataset import Program

        if not candidates:
            return np.zeros(0)
        hardware = candidates[0].hardware
        programs = [Program(candidate=candidate) for candidate in candidates]
        members = self.ranker.member_scores(programs, hardware, hardware.key)
        found: Floats = members.mean(axis=0) - self._caution * members.std(axis=0)
        return self.ranker.scale * found

    def smooth(
        self, rows: torch.Tensor, context: torch.Tensor, excess: torch.Tensor
    ) -> torch.Tensor:
        """The score of features, less what the limits cost, shape (n,)."""
        score = cautious(self.ranker.smooth_scores(rows, context), self._caution)
        return self.ranker.scale * score - self._penalty * excess


class _MlpLandscape(Landscape):
    def __init__(
        self,
        guide: MlpGuide,
        compiled: Formulas,
        structure: Structure,
        base: Candidate,
        kind: str,
    ) -> None:
        program = compiled.program
        self._guide, self._formulas, self._base = guide, compiled, base
        variables = {
            index: variable
            for index in dict.fromkeys(index for index, _ in program.columns)
            if isinstance(variable := base.sketch.variables[index], (PerfectTile, Choice))
        }
        allowed = left_open(variables, structure)
        self.relaxed = Relaxed(variables, program.columns, allowed, kind)
        self._slopes = self._fitted()

    def anchor(self, x: Floats) -> Any:
        """Features of the nearest decisions, and the logarithms of their columns."""
        return self._features(self.relaxed.nearest(x))

    def scores(self, x: torch.Tensor, temperature: float, anchor: Any) -> torch.Tensor:
        """The perceptron on smooth columns."""
        import torch

        points = self.relaxed.points(x)
        features, logs = (torch.from_numpy(each) for each in anchor)
        context = features + (self.relaxed.logs(x) - logs) @ torch.from_numpy(self._slopes)
        excess = self._formulas.excess(points, temperature)
        return self._guide.smooth(self._formulas(points, temperature), context, excess)

    def excess(self, x: Floats) -> Floats:
        """What the target does not allow."""
        import torch

        with torch.no_grad():
            points = self.relaxed.points(torch.from_numpy(x))
            return np.asarray(self._formulas.excess(points), dtype=np.float64)

    def _features(self, decisions: Sequence[Mapping[int, Any]]) -> tuple[Floats, Floats]:
        import torch

        from foretune.dataset import Program

        rows: list[tuple[Decision, ...]] = []
        for changes in decisions:
            row = list(self._base.decisions)
            for index, decision in changes.items():
                row[index] = decision
            rows.append(tuple(row))
        sketch = self._base.sketch
        programs = [Program(candidate=Candidate.trusted(sketch, row)) for row in rows]
        found = self._guide.ranker.context(programs, sketch.hardware).astype(np.float64)
        logs = self.relaxed.logs(torch.from_numpy(self.relaxed.of(rows)))
        return found, np.asarray(logs)

    def _fitted(self) -> Floats:
        """Change of each feature of decisions per logarithm of each column, by ridge regression."""
        features, logs = self._features(
            self.relaxed.sample(np.random.default_rng(0), _SAMPLES if self.relaxed.size else 1)
        )
        x, y = logs - logs.mean(axis=0), np.nan_to_num(features - features.mean(axis=0))
        slopes: Floats = np.linalg.solve(x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
        return slopes


def left_open(
    variables: Mapping[int, PerfectTile | Choice], structure: Structure
) -> dict[int, list[int]]:
    """The decisions of choices with which the structure stays."""
    on = {"parallel": structure.parallel, "vectorize": structure.vectorize}
    return {
        index: [
            place
            for place, value in enumerate(variable.values)
            if on.get(variable.name, value != 0) == (value != 0)
        ]
        for index, variable in variables.items()
        if isinstance(variable, Choice)
    }
