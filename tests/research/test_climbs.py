"""Gradient search with the paper's switches, and evolution and random draws on its frozen model."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("torch")

from foretune import cost, search
from foretune.errors import BadInputError
from foretune.search._descent import descend
from foretune.testing import SyntheticSpace, strategies
from foretune_research.climbs import KINDS, GradientStudy, StudyConfig, study_guide
from tests.search.gradient_support import SyntheticGuide, SyntheticLandscape, guided
from tests.search.opened import opened
from tests.space.programs import CPU, space

studied = functools.partial(guided, make=opened(GradientStudy))


def landscape_start(landscape):
    (start,) = landscape.relaxed.sample(np.random.default_rng(0), 1)
    return tuple(start.values())


def test_the_temperature_falls_only_where_it_is_annealed():
    landscape = SyntheticLandscape(SyntheticSpace(seed=3).sketches[0])
    x = landscape.relaxed.of([landscape_start(landscape)])
    for options, expected in (
        ({"smoothing": True}, (0.5, 0.02)),
        ({"smoothing": True, "annealing": False}, (0.5, 0.5)),
        ({}, (0.0, 0.0)),
    ):
        landscape.temperatures = []
        descend(landscape, x, StudyConfig(**options).descent)
        assert landscape.temperatures[0] == pytest.approx(expected[0])
        assert landscape.temperatures[-1] == pytest.approx(expected[1])
        assert landscape.temperatures == sorted(landscape.temperatures, reverse=True)


def test_it_finds_the_optimum_of_a_smooth_space_sooner_than_random_candidates():
    reached = {}
    for objective in ("gradient", "random"):
        best = []
        for seed in range(4):
            where = SyntheticSpace(seed=seed)
            strategy = studied(
                where, strategies.OracleModel(), np.random.default_rng(seed),
                objective=objective, steps=20,
            )  # fmt: skip
            strategy.explore()
            best.append(strategy.best_score + np.log(where.optimum.seconds))
        reached[objective] = np.mean(best)
    assert reached["gradient"] > reached["random"] + 0.05


def test_it_needs_fewer_predictions_than_evolution_with_the_same_model():
    class Noting(SyntheticGuide):
        """Remembers after how many predictions a candidate came within 5 % of the optimum."""

        reached = None

        def scores(self, candidates):
            found = super().scores(candidates)
            if self.reached is None and np.nanmax(found) >= self.goal:
                self.reached = self.strategy.predictions
            return found

    needed = {"gradient": [], "evolution": []}
    for objective, counts in needed.items():
        for seed in range(5):
            where, guide = SyntheticSpace(seed=seed), Noting()
            guide.goal = np.log(0.95) - np.log(where.optimum.seconds)
            guide.strategy = studied(
                where, strategies.OracleModel(), np.random.default_rng(seed), guide=guide,
                objective=objective, steps=10,
            )  # fmt: skip
            for _ in range(20):
                if guide.reached is None:
                    guide.strategy.explore()
            counts.append(guide.reached or guide.strategy.predictions)
    assert np.mean(np.log(needed["gradient"])) < np.mean(np.log(needed["evolution"]))


@pytest.mark.parametrize("objective", ["evolution", "random"])
def test_who_does_not_climb_needs_no_landscape(objective):
    where = SyntheticSpace(seed=1)
    strategy = studied(
        where, strategies.OracleModel(), np.random.default_rng(0), objective=objective,
        guide=SyntheticGuide(refused=[sketch.key for sketch in where.sketches]),
    )  # fmt: skip
    assert strategy.explore()
    assert strategy.predictions > 8


@pytest.mark.parametrize("objective", ["gradient", "evolution", "random"])
def test_every_objective_proposes(objective):
    strategy = studied(
        SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0),
        objective=objective,
    )  # fmt: skip
    assert len(strategies.run(strategy, 24)) == 24
    assert strategy.predictions > 0


def test_an_exhausted_space_without_elites_gives_nothing():
    where = SyntheticSpace(tiles=((4, 2),), choices=(2,), sketches=1, seed=5)
    for options in ({"objective": "evolution"}, {"objective": "gradient"}):
        strategy = studied(
            where, strategies.OracleModel(), np.random.default_rng(0), elites=0, **options
        )
        assert len(strategies.run(strategy, 2 * where.size)) == where.size
        assert strategy.ask(4) == []


def evolving(space, model, rng):
    return GradientStudy(
        space, model, rng, guide=SyntheticGuide(), objective="evolution", seeds=8, steps=6
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(evolving)


@pytest.mark.parametrize("variables", KINDS)
def test_real_programs_are_searched_in_any_coordinates(variables):
    options = {"seeds": 8, "structures": 1, "steps": 2, "opening": False, "variables": variables}
    strategy = search.create(
        "gradient-study", space("matmul"), cost.create("random", rng=0), 3, **options
    )
    assert strategy._guide.coordinates is KINDS[variables]
    assert len({c.key for c in strategy.ask(4)}) == 4
    assert strategy.predictions > 8


def test_other_coordinates_are_those_of_one_guide_alone():
    model = cost.create("random", rng=0)
    assert study_guide(model, CPU, StudyConfig(variables="logs")).coordinates is KINDS["logs"]
    assert study_guide(model, CPU, StudyConfig()).coordinates is KINDS["exponents"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": float("inf")}, "temperature > 0, and finite"),
        ({"coldest": 2.0}, "coldest <= temperature"),
        ({"objective": "annealing"}, "evolution"),
        ({"variables": "roots"}, "exponents"),
        ({"seeds": 0}, "seeds >= 1"),
        ({"stepps": 3}, "no option 'stepps'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        search.create("gradient-study", SyntheticSpace(), cost.create("random"), 0, **options)
