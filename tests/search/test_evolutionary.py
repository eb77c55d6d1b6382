"""Evolutionary search: better than chance, frugal with the model, steered by what was measured."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from foretune import search
from foretune.cost import Abilities, Prediction
from foretune.cost import create as create_model
from foretune.cost.gbdt import GradientBoosting
from foretune.errors import BadInputError
from foretune.features import machine_fit
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.search.evolutionary import Evolutionary, EvolutionConfig
from foretune.space import Candidate, Choice, PerfectTile, Sketch, Space
from foretune.testing import (
    SyntheticMeasurer,
    SyntheticSpace,
    strategies,
    synthetic_features,
    synthetic_trial,
)
from foretune.testing.strategies import OracleModel, UnreadyModel
from foretune.workload import Workload
from tests.search.opened import opened

Opened = opened(Evolutionary)

SEEDS = range(24)


def gbdt(seed):
    return GradientBoosting(rng=np.random.default_rng(seed), extract=synthetic_features)


def slowdown(make, seed, trials=64, noise=0.05):
    """Best found over the optimum, after ``trials`` measurements in batches of 16."""
    space = SyntheticSpace(seed=seed, illegal=0.1, failing=0.05)
    strategy = make(space, np.random.default_rng(seed))
    history = strategies.run(strategy, trials, 16, SyntheticMeasurer(noise, seed))
    return min(c.seconds for c, s in history if math.isfinite(s)) / space.optimum.seconds


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


@functools.cache
def average(name, model):
    def make(space, rng):
        made = gbdt(0) if model == "gbdt" else create_model("random", rng=0)
        return search.create(name, space, made, rng)

    return geometric_mean([slowdown(make, seed) for seed in SEEDS])


@pytest.mark.slow
def test_beats_random_search_with_a_learned_model():
    assert average("evolutionary", "gbdt") < 0.85 * average("random", "random")


def test_breeding_alone_beats_random_search():
    assert average("evolutionary", "random") < 0.95 * average("random", "random")


@pytest.mark.slow
def test_the_learned_model_is_worth_its_trees():
    assert average("evolutionary", "gbdt") < average("evolutionary", "random")


@functools.cache
def with_an_oracle():
    found = [slowdown(lambda s, r: Evolutionary(s, OracleModel(), r), seed) for seed in SEEDS]
    return geometric_mean(found)


@pytest.mark.slow
def test_a_better_model_gives_a_better_search():
    assert with_an_oracle() < 0.95 * average("evolutionary", "gbdt")


def test_a_model_that_knows_gives_a_better_search_than_one_that_guesses():
    assert with_an_oracle() < 0.8 * average("evolutionary", "random")


class CountingModel(OracleModel):
    def __init__(self):
        self.scored = 0

    def predict(self, candidates):
        self.scored += len(candidates)
        return super().predict(candidates)


@pytest.mark.parametrize("per_ask", [2.0, 6.0])
def test_the_model_scores_a_fixed_number_of_candidates(per_ask):
    model = CountingModel()
    strategy = Opened(SyntheticSpace(), model, np.random.default_rng(0), scored_per_ask=per_ask)
    strategies.run(strategy, 16, 16)
    assert model.scored == 0
    strategies.run(strategy, 32, 16)
    assert per_ask * 32 * 0.9 <= model.scored <= per_ask * 32 + 2


def test_the_model_is_not_asked_before_warm_up_or_readiness():
    counting = CountingModel()
    strategies.run(
        Evolutionary(SyntheticSpace(), counting, np.random.default_rng(0), warmup=64), 64
    )
    assert counting.scored == 0
    # NaN scores would have kept everything from being proposed.
    unready = Evolutionary(SyntheticSpace(), UnreadyModel(), np.random.default_rng(0))
    assert len(strategies.run(unready, 64)) == 64


def test_records_of_an_earlier_run_are_bred_from():
    space = SyntheticSpace(seed=3)
    strategy = Evolutionary(space, OracleModel(), np.random.default_rng(0))
    near = sorted(space.sample(np.random.default_rng(1), 4000), key=lambda c: c.seconds)[:16]
    strategy.tell([synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(near)])
    first = strategy.ask(16)
    fresh = space.sample(np.random.default_rng(2), 200)
    assert np.median([c.seconds for c in first]) < np.quantile([c.seconds for c in fresh], 0.05)


def test_failures_and_wrong_outputs_are_no_parents():
    space = SyntheticSpace(seed=3)
    strategy = Evolutionary(space, OracleModel(), np.random.default_rng(0))
    wrong = Measurement(Status.WRONG_OUTPUT, (1e-9,), (True,), message="max error 3")
    strategy.tell([synthetic_trial(space.optimum, wrong)])
    assert not strategy.measured
    cut = Measurement(Status.CUT_SHORT, (1.0,), (True,))
    strategy.tell([synthetic_trial(space.optimum, cut)])
    assert list(strategy.measured) == [space.optimum.key]


def test_first_batch_visits_every_sketch():
    space = SyntheticSpace(sketches=6)
    first = Evolutionary(space, UnreadyModel(), np.random.default_rng(0)).ask(16)
    assert {c.sketch.key for c in first} == {s.key for s in space.sketches}


def test_unknown_and_impossible_options_are_refused():
    def make(**options):
        return Evolutionary(SyntheticSpace(), OracleModel(), np.random.default_rng(0), **options)

    with pytest.raises(BadInputError, match=r"no option 'epsilom'.*epsilon"):
        make(epsilom=0.1)
    with pytest.raises(BadInputError, match=r"`0 <= epsilon <= 1` must hold, but got epsilon=2"):
        make(epsilon=2)
    with pytest.raises(BadInputError, match=r"`warmup >= 1` must hold, but got warmup=0"):
        make(warmup=0)
    with pytest.raises(BadInputError, match=r"no option 'generations'"):
        make(generations=3)


class TestPrior:
    """On a tiled loop nest, where the prior has something to say."""

    @pytest.fixture
    def space(self):
        hardware = Hardware("machine", '{"kind": "llvm"}', 2, simd_bits=512)
        workload = Workload("mm", "0" * 16, "", 1.0)
        variables = (
            PerfectTile("C.i", 512, 4),
            PerfectTile("C.j", 512, 4),
            PerfectTile("C.k", 512, 2),
            Choice("unroll_explicit", (0, 16, 64), (1 / 3,) * 3),
        )
        sketch = Sketch(workload, hardware, "[[],[]]", variables, ())
        return Space(workload, hardware, (sketch,))

    def first_batch(self, space, monkeypatch, prior):
        # Applying would ask TVM; every candidate of this sketch counts as legal.
        monkeypatch.setattr(Candidate, "apply", lambda self: None)
        monkeypatch.setattr(EvolutionConfig, "prior", prior)
        monkeypatch.setattr(EvolutionConfig, "starts", 0.0)
        strategy = Evolutionary(space, UnreadyModel(), np.random.default_rng(0))
        return machine_fit(strategy.ask(16))

    def test_first_batch_suits_the_machine(self, space, monkeypatch):
        with_prior = self.first_batch(space, monkeypatch, True)
        without = self.first_batch(space, monkeypatch, False)
        assert np.median(with_prior) > np.median(without) + 1

    def test_a_part_of_it_stays_uniform(self, space, monkeypatch):
        fits = self.first_batch(space, monkeypatch, True)
        assert fits.min() < np.median(fits) - 1

    def test_without_it_the_batch_is_as_sampled(self, space, monkeypatch):
        without = self.first_batch(space, monkeypatch, False)
        sampled = machine_fit(space.sample(np.random.default_rng(1), 400))
        assert abs(np.mean(without) - sampled.mean()) < sampled.std()


class InformedModel(OracleModel):
    """Learned elsewhere: right about everything but for a factor, and cheap about most of it."""

    abilities = Abilities(informed=True, informed_draft=True)

    def __init__(self, noise=0.0):
        self.noise = noise
        self.scored = self.drafted = 0

    def draft(self, candidates):
        self.drafted += len(candidates)
        seconds = np.array([c.seconds for c in candidates], dtype=np.float64)
        return -np.log2(seconds) + self.noise * np.sin(1e6 * seconds)

    def predict(self, candidates):
        self.scored += len(candidates)
        return super().predict(candidates)


def informed(space, model, rng):
    """Evolutionary search with an informed model in place of whatever it is given."""
    return Opened(space, InformedModel(), rng, informed_pool=2, informed_litter=2)


@pytest.mark.slow
class TestInformed:
    @pytest.mark.parametrize("check", strategies.CHECKS, ids=lambda check: check.__name__)
    def test_contract(self, check):
        check(informed)

    def first(self, model, n=8, seed=0, **options):
        space = SyntheticSpace(seed=21)
        strategy = Opened(space, model, np.random.default_rng(seed), **options)
        return space, strategy.ask(n)

    def test_the_first_batch_follows_the_model(self):
        space, first = self.first(InformedModel())
        _, blind = self.first(OracleModel())
        fresh = space.sample(np.random.default_rng(5), 2000)
        best = np.quantile([c.seconds for c in fresh], 0.005)
        assert min(c.seconds for c in first) < best
        assert np.median([c.seconds for c in first]) < min(c.seconds for c in blind)

    def test_a_part_of_it_is_random(self):
        seconds = [c.seconds for seed in range(8) for c in self.first(InformedModel(), 16, seed)[1]]
        fresh = SyntheticSpace(seed=21).sample(np.random.default_rng(5), 500)
        assert max(seconds) > np.median([c.seconds for c in fresh])

    def test_it_is_not_one_schedule_eight_times(self):
        apart = [
            sum(x != y for x, y in zip(a.decisions, b.decisions, strict=True))
            for seed in range(6)
            for a, b in itertools.combinations(
                self.first(InformedModel(), 8, seed, epsilon=0)[1], 2
            )
            if a.sketch.key == b.sketch.key
        ]
        assert np.mean(apart) >= 3

    def test_drafts_are_many_and_scores_are_few(self):
        model = InformedModel()
        self.first(model, 8)
        assert model.drafted > 1000
        assert 8 * 8 * 0.9 <= model.scored <= 8 * 8 + 3

    def test_fewer_are_drafted_and_scored_where_fewer_are_wanted(self):
        model = InformedModel()
        options = {"informed_per_ask": 2.0, "informed_generations": 1, "informed_pool": 1}
        self.first(model, 8, **options)
        assert model.scored == 16 and model.drafted == 512

    def test_a_draft_that_learned_nothing_is_not_followed_far(self):
        class Drafting(InformedModel):
            abilities = Abilities(informed=True)

        model = Drafting()
        self.first(model, 8)
        # A first generation of 22, then two bred from it.
        assert model.drafted <= 22 * 16 + 2 * 22 * 3
        assert model.scored >= 8 * 8 * 0.9

    def test_a_batch_of_one_is_random_now_and_then(self):
        fresh = SyntheticSpace(seed=21).sample(np.random.default_rng(5), 2000)
        best = np.quantile([c.seconds for c in fresh], 0.05)

        def guided(epsilon):
            asked = [self.first(InformedModel(), 1, seed, epsilon=epsilon)[1] for seed in range(16)]
            return sum(batch[0].seconds < best for batch in asked)

        assert guided(0.0) == 16
        assert guided(1.0) <= 6
        assert guided(1.0) < guided(0.5) < 16

    def test_a_model_looks_closer_at_what_was_suggested_to_say_which_is_tried(self):
        class Closer(InformedModel):
            abilities = replace(InformedModel.abilities, closer=8)

            def predict(self, candidates):
                found = super().predict(candidates)
                return Prediction(-found.score, found.spread)  # the slowest first

            def look(self, candidates):
                self.looked = [*getattr(self, "looked", []), *candidates]
                return InformedModel.predict(self, candidates).score

        space, model = SyntheticSpace(seed=21), Closer()
        legal = [c for c in space.sample(np.random.default_rng(3), 64) if c.legal]
        told = sorted(legal, key=lambda c: c.seconds)[:10]
        strategy = Evolutionary(space, model, np.random.default_rng(0))
        strategy.suggest(told)
        proposed = {c.key for c in strategy.ask(8)} & {c.key for c in told}
        # Two are wanted: of the four that it says are best, it looks for the best two.
        slowest = [c.key for c in told[6:]]
        assert proposed == set(slowest[:2])
        assert [c.key for c in model.looked[:4]] == slowest[::-1]

    def test_nothing_is_made_of_what_was_suggested_if_none_is_wanted(self):
        space = SyntheticSpace(seed=21)
        told = sorted(space.sample(np.random.default_rng(3), 64), key=lambda c: c.seconds)[:10]

        def asked(suggested):
            strategy = Evolutionary(space, InformedModel(), np.random.default_rng(0), suggested=0.0)
            strategy.suggest(suggested)
            return [c.key for c in strategy.ask(8)]

        assert asked(told) == asked([])

    @pytest.mark.parametrize("name", ["evolutionary", "mcts"])
    def test_a_large_batch_is_no_more_random_than_a_small_one(self, name):
        class Closer(InformedModel):
            abilities = replace(InformedModel.abilities, closer=4)

            def look(self, candidates):
                return self.predict(candidates).score

        space = SyntheticSpace(seed=21)
        fresh = space.sample(np.random.default_rng(5), 500)
        usual = np.median([c.seconds for c in fresh])
        strategy = search.create(name, space, Closer(), 0, epsilon=0.0)
        assert np.quantile([c.seconds for c in strategy.ask(24)], 0.8) < usual

    def test_without_the_draft_it_is_not_asked(self, monkeypatch):
        monkeypatch.setattr(EvolutionConfig, "prior", False)
        model = InformedModel()
        self.first(model, 8)
        assert model.drafted == 0 and model.scored > 0

    def test_measurements_are_bred_from_later(self):
        space = SyntheticSpace(seed=21)
        strategy = Evolutionary(space, InformedModel(noise=1.0), np.random.default_rng(0))
        history = strategies.run(strategy, 32, 8)
        assert min(s for _, s in history[16:]) <= min(s for _, s in history[:8])

    def test_a_model_without_training_is_not_asked_before_warm_up(self):
        model = InformedModel()
        model.abilities = Abilities()
        self.first(model, 8)
        assert model.scored == 0 and model.drafted == 8 * 16
