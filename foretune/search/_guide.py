"""What gradient search follows: a model that scores candidates exactly and points smoothly.

Idea: the perceptron reads per-store features and, beside them, features of the decisions. The first
are formulas, smooth where asked; the second are those of the nearest candidate and a line from
there (``foretune.search._anchored``). A candidate's own score has neither of these errors: it is
computed from exact columns.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, FloatArray
from foretune.cost.mlp import MlpRanker
from foretune.search._anchored import Anchored
from foretune.search._descent import Landscape
from foretune.search._relaxed import Relaxed
from foretune.space import Candidate, Choice, PerfectTile, Sketch, Structure, structure_of
from foretune.symbolic import UnsupportedTraceError
from foretune.symbolic.formulas import Formulas, formulas

if TYPE_CHECKING:
    import torch


_LEAST_VARIANCE = 1e-12


class Guide(abc.ABC):
    """A frozen model of one space that can be climbed on.

    Life cycle: made once per strategy; ``landscape`` is asked once per group.

    Attributes:
        coordinates: What landscapes of programs are functions of.
    """

    coordinates: type[Relaxed] = Relaxed

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
    def scores(self, candidates: Sequence[Any]) -> FloatArray:
        """Scores of candidates, shape (n,), higher is better; NaN for one that is illegal."""


class Caution:
    """Scores of members as one: their mean less so many deviations between them.

    Members learn to order lists of one workload each, so that the level at which one of them scores
    another workload means nothing. It is taken off, as each one's mean over the first candidates
    scored, before members are compared.

    Args:
        deviations: By how many the mean is lowered.
    """

    def __init__(self, deviations: float) -> None:
        self._deviations = deviations
        self._levels: FloatArray | None = None

    def lowered(self, members: FloatArray) -> FloatArray:
        """Of candidates, shape (members, n) -> (n,); NaN where a member says NaN."""
        known = members[:, ~np.isnan(members).any(axis=0)]
        if self._levels is None and known.size:
            self._levels = known.mean(axis=1, keepdims=True)
        apart = members if self._levels is None else members - self._levels
        scores: FloatArray = members.mean(axis=0) - self._deviations * apart.std(axis=0)
        return scores

    def smooth(self, members: torch.Tensor) -> torch.Tensor:
        """The same of points, with gradients."""
        if len(members) == 1:
            return members[0]
        apart = members if self._levels is None else members - members.new_tensor(self._levels)
        # Without a little variance there is no gradient where members agree.
        deviation = (apart.var(0, correction=0) + _LEAST_VARIANCE).sqrt()
        return members.mean(0) - self._deviations * deviation


class MlpGuide(Guide):
    """The perceptron on formulas of its features.

    Formulas also where they are only close: of some workloads they are nowhere certain, and a
    search asks for thousands of scores. The cost model that picks from the best reads what it
    reads.

    Args:
        ranker: Trained.
        caution: Deviations between members by which the score is lowered.
        penalty: Score lost per unit of ``Formulas.excess``.
    """

    def __init__(self, ranker: MlpRanker, caution: float = 1.0, penalty: float = 4.0) -> None:
        # The caller's ranker goes on reading programs if it did.
        self.ranker = copy.copy(ranker)
        self.ranker.store_source = "formulas_only"
        self._caution = Caution(caution)
        self._penalty = penalty

    def landscape(self, candidate: Candidate) -> Landscape:
        """Compiled formulas and a linear fit, some 0.1 s."""
        sketch = candidate.sketch
        if not isinstance(sketch, Sketch):
            raise UnsupportedTraceError(f"sketch {sketch.key}", "has no trace")
        structure = structure_of(sketch, candidate.decisions)
        return _MlpLandscape(self, formulas(sketch, structure), structure, candidate)

    def scores(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The score that is climbed, from the columns of exact mode."""
        from foretune.dataset import Program

        if not candidates:
            return np.zeros(0)
        hardware = candidates[0].hardware
        programs = [Program(candidate=candidate) for candidate in candidates]
        members = self.ranker.member_scores(programs, hardware, hardware.key)
        return self.ranker.scale * self._caution.lowered(members)

    def decided(self, candidates: Sequence[Candidate]) -> Array:
        """Features of the decisions of candidates of one hardware, shape (n, columns)."""
        from foretune.dataset import Program

        programs = [Program(candidate=candidate) for candidate in candidates]
        return self.ranker.context(programs, candidates[0].hardware)

    def smooth(
        self, rows: torch.Tensor, context: torch.Tensor, excess: torch.Tensor
    ) -> torch.Tensor:
        """The score of features, less what the limits cost, shape (n,)."""
        score = self._caution.smooth(self.ranker.smooth_scores(rows, context))
        return self.ranker.scale * score - self._penalty * excess


class _MlpLandscape(Landscape):
    def __init__(
        self,
        guide: MlpGuide,
        compiled: Formulas,
        structure: Structure,
        base: Candidate,
    ) -> None:
        program = compiled.program
        self._guide, self._formulas = guide, compiled
        variables = {
            index: variable
            for index in dict.fromkeys(index for index, _ in program.columns)
            if isinstance(variable := base.sketch.variables[index], (PerfectTile, Choice))
        }
        allowed = left_open(variables, structure)
        self.relaxed = guide.coordinates(variables, program.columns, allowed)
        self._decided = Anchored(self.relaxed, base, guide.decided)

    def anchor(self, x: FloatArray) -> Any:
        """Features of the nearest decisions."""
        return self._decided.anchor(x)

    def scores(self, x: torch.Tensor, temperature: float, anchor: Any) -> torch.Tensor:
        """The perceptron on smooth columns."""
        points = self.relaxed.points(x)
        context = self._decided.near(x, anchor)
        excess = self._formulas.excess(points, temperature)
        return self._guide.smooth(self._formulas(points, temperature), context, excess)

    def excess(self, x: FloatArray) -> FloatArray:
        """What the target does not allow."""
        import torch

        with torch.no_grad():
            points = self.relaxed.points(torch.from_numpy(x))
            return np.asarray(self._formulas.excess(points), dtype=np.float64)


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
