"""A guide of synthetic spaces: what gradient search climbs, with a known optimum."""

from __future__ import annotations

import math

import numpy as np
import torch

from foretune.search._descent import Landscape
from foretune.search._guide import Guide
from foretune.search._relaxed import Relaxed
from foretune.search.gradient import Gradient
from foretune.space import Choice, PerfectTile
from foretune.symbolic import UnsupportedTraceError
from tests.search.opened import opened

OpenGradient = opened(Gradient)


def variables(sketch):
    """The decisions of a synthetic sketch as variables of a real one."""
    tiles = [PerfectTile(f"t{i}", extent, parts) for i, (extent, parts) in enumerate(sketch.tiles)]
    choices = [
        Choice(f"c{i}", tuple(range(count)), (1 / count,) * count)
        for i, count in enumerate(sketch.choices)
    ]
    return dict(enumerate([*tiles, *choices]))


def columns(open_to):
    return [
        (index, part)
        for index, variable in open_to.items()
        for part in range(variable.parts if isinstance(variable, PerfectTile) else 1)
    ]


class SyntheticLandscape(Landscape):
    """Minus the distance to the optimum in logarithms, rounded off by the temperature."""

    def __init__(self, sketch, coordinates=Relaxed):
        open_to = variables(sketch)
        self.relaxed = coordinates(open_to, columns(open_to))
        self._goal = self.relaxed.logs(torch.from_numpy(self.relaxed.of([sketch.best])))
        self.temperatures = []

    def anchor(self, x):
        return self.relaxed.nearest(x)

    def scores(self, x, temperature, anchor):
        assert len(anchor) == len(x)
        self.temperatures.append(temperature)
        distance = self.relaxed.logs(x) - self._goal
        # The root has no derivative at 0, where a start may well be in one of the coordinates.
        return -(distance**2 + temperature**2 + 1e-12).sqrt().sum(1)


class SyntheticGuide(Guide):
    """Scores are minus the logarithm of the latency, plus noise-free smooth landscapes.

    Args:
        refused: Keys of sketches that cannot be climbed.
        infeasible: Whether every start is beyond a limit.
    """

    def __init__(self, refused=(), infeasible=False):
        self.refused, self.infeasible = refused, infeasible
        self.asked = []

    def group(self, candidate):
        return candidate.sketch.key

    def landscape(self, candidate):
        if candidate.sketch.key in self.refused:
            raise UnsupportedTraceError("instruction Frobnicate", "is not known")
        made = SyntheticLandscape(candidate.sketch, self.coordinates)
        if self.infeasible:
            made.excess = lambda x: np.ones(len(x))
        return made

    def scores(self, candidates):
        self.asked += [candidate.key for candidate in candidates]
        return np.array([-math.log(c.seconds) if c.legal else np.nan for c in candidates])


def guided(space, model, rng, make=OpenGradient, **options):
    """Gradient search on a synthetic guide, small; its constants are options."""
    options = {"seeds": 8, "steps": 6, "pool": 4, "opening": False, **options}
    guide = options.pop("guide", None) or SyntheticGuide()
    return make(space, model, rng, guide=guide, **options)
