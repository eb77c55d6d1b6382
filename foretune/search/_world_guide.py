"""The world model as what gradient search follows: scores of predicted ends and of actions.

Idea: with compute locations fixed, all candidates of a sketch take the same scheduling actions, and
differ in the numbers of these. Factors of tiles and values of choices enter them as logarithms, so
that where the world model has a program end is a function of the search's coordinates. The head
that is learned beside the ranker's trees scores that end and, where it reads them, the features of
the actions, which are those of the nearest candidate and a line from there
(``foretune.search._anchored``). No formula of a program is needed: sketches whose trace is not
understood can be climbed, too.

A whole number gives what the ranker's own rollout gives, so that there is nothing to anneal. What a
GPU does not allow comes from formulas.

Sources: Felix (Zhao et al., ASPLOS 2024) for the search; Pan et al., Toward Compiler World Models,
2026, for the rollout. To join them is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, FloatArray
from foretune.cost.world import WorldRanker
from foretune.dataset import Program
from foretune.search._anchored import Anchored
from foretune.search._descent import Landscape
from foretune.search._guide import Caution, Guide, left_open
from foretune.space import Candidate, Choice, PerfectTile, Sketch, structure_of
from foretune.symbolic import UnsupportedTraceError
from foretune.symbolic.formulas import Formulas, formulas

if TYPE_CHECKING:
    import torch


class WorldGuide(Guide):
    """The world model's head.

    Args:
        ranker: Trained, with a head.
        caution: Deviations between members by which the score is lowered.
        penalty: Score lost per unit of ``Formulas.excess``.

    Raises:
        BadInputError: The ranker has no head.
    """

    def __init__(self, ranker: WorldRanker, caution: float = 1.0, penalty: float = 4.0) -> None:
        ranker.require_head("gradient: guide='world'")
        self.ranker = ranker
        self.caution, self.penalty = Caution(caution), penalty

    def landscape(self, candidate: Candidate) -> Landscape:
        """The actions of a group, a linear fit, and on GPUs the formulas of its limits."""
        if not isinstance(candidate.sketch, Sketch):
            raise UnsupportedTraceError(f"sketch {candidate.sketch.key}", "has no trace")
        return _WorldLandscape(self, candidate)

    def described(self, candidates: Sequence[Candidate]) -> Array:
        """Features of the actions of candidates of one hardware, shape (n, columns)."""
        programs = [Program(candidate=candidate) for candidate in candidates]
        return self.ranker.described(programs, candidates[0].hardware)

    def scores(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The score that is climbed, by the ranker's own rollout."""
        if not candidates:
            return np.zeros(0)
        members = self.ranker.member_scores(candidates, candidates[0].hardware)
        return self.caution.lowered(members)


class _WorldLandscape(Landscape):
    def __init__(self, guide: WorldGuide, base: Candidate) -> None:
        sketch = base.sketch
        self._guide, self._hardware = guide, sketch.hardware
        self._route = guide.ranker.route(base)
        structure = structure_of(sketch, base.decisions)
        variables = {
            index: variable
            for index in sorted({slot.variable for _, _, slot in self._route.slots})
            if isinstance(variable := sketch.variables[index], (PerfectTile, Choice))
        }
        allowed = left_open(variables, structure)
        columns = [
            (index, part) for index, variable in variables.items() for part in _parts(variable)
        ]
        self.relaxed = guide.coordinates(variables, columns, allowed)
        self._column = {column: at for at, column in enumerate(columns)}
        steps, places, slots = zip(*self._route.slots, strict=True) if columns else ((), (), ())
        self._filled = list(steps), list(places)
        self._filling = [self._column[slot.variable, slot.part] for slot in slots]
        self._described: Anchored | None = None
        if guide.ranker.head_reads != "states":
            self._described = Anchored(self.relaxed, base, guide.described)
        self._limits: Formulas | None = None
        # On a processor every candidate is legal.
        if not self._hardware.has_cores:
            self._limits = formulas(sketch, structure)
            self._base_point = self._limits.points([base.decisions])

    def anchor(self, x: FloatArray) -> Any:
        """Features of the nearest decisions; of what the actions' numbers say nothing is needed."""
        return None if self._described is None else self._described.anchor(x)

    def scores(self, x: torch.Tensor, temperature: float, anchor: Any) -> torch.Tensor:
        """The head where the relaxed actions end."""
        points = self.relaxed.points(x)
        described = points[:, :0] if self._described is None else self._described.near(x, anchor)
        members = self._guide.ranker.smooth_scores(
            self._route, self._numbers(points), described, self._hardware
        )
        score = self._guide.caution.smooth(members.cpu())
        if self._limits is None:
            return score
        beyond = self._limits.excess(self._limited(points), temperature)
        return score - self._guide.penalty * beyond

    def excess(self, x: FloatArray) -> FloatArray:
        """What the target does not allow."""
        import torch

        if self._limits is None:
            return super().excess(x)
        with torch.no_grad():
            points = self._limited(self.relaxed.points(torch.from_numpy(x)))
            return np.asarray(self._limits.excess(points), dtype=np.float64)

    def _numbers(self, points: torch.Tensor) -> torch.Tensor:
        """Of the actions that decisions enter, shape (n, V, 8); none of a decision is negative."""
        base = points.new_tensor(self._route.steps.numbers[self._route.at])
        numbers = base.expand(len(points), -1, -1).clone()
        numbers[:, self._filled[0], self._filled[1]] = (1 + points[:, self._filling]).log2()
        return numbers

    def _limited(self, points: torch.Tensor) -> torch.Tensor:
        """The columns of the formulas; what no action says is as in the first candidate."""
        assert self._limits is not None
        columns = self._limits.program.columns
        own = [at for at, column in enumerate(columns) if column in self._column]
        whole = self._base_point.expand(len(points), -1).clone()
        whole[:, own] = points[:, [self._column[columns[at]] for at in own]]
        return whole


def _parts(variable: PerfectTile | Choice) -> range:
    return range(variable.parts if isinstance(variable, PerfectTile) else 1)
