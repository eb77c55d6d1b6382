"""Gradient search: it climbs, scores what it rounds, repeats nothing, says what it cannot do."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from foretune import cost, search
from foretune.cost import Abilities, pretrained, shipped
from foretune.errors import BadInputError
from foretune.features.stores.formulas import extract_batch
from foretune.search import gradient
from foretune.search._descent import Descent, descend
from foretune.search._guide import Caution, MlpGuide
from foretune.search._relaxed import Relaxed
from foretune.search.gradient import Gradient
from foretune.space import Space
from foretune.testing import SyntheticMeasurer, SyntheticSpace, strategies, synthetic_trial
from foretune.workload import Workload
from foretune_research.climbs import Logarithms
from tests.search.gradient_support import SyntheticGuide, SyntheticLandscape, guided
from tests.space.programs import CPU, gpu, matmul, space

LOGGER = "foretune.search.gradient"


def how(steps, rate=0.3):
    return Descent(steps, rate, refresh=5)


def told(candidates):
    return [synthetic_trial(c, m) for c, m in SyntheticMeasurer().measure(candidates)]


def proposals(strategy, rounds):
    """Keys of six candidates a round, each measured."""
    keys = []
    for _ in range(rounds):
        asked = strategy.ask(6)
        keys += [c.key for c in asked]
        strategy.tell(told(asked))
    return keys


class Limited(SyntheticGuide):
    """With a limit: points to how far they are beyond it."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def landscape(self, candidate):
        made = super().landscape(candidate)
        made.excess = self.limit
        return made


@pytest.fixture(scope="module")
def perceptron():
    ranker = shipped.shipped("mlp", "llvm")
    assert ranker is not None
    return ranker


def climbed(ranker, steps, name="matmul", n=12, **options):
    """Candidates of one structure before and after a climb, and the guide's scores of both."""
    guide = MlpGuide(ranker, **options)
    drawn = space(name).sample(np.random.default_rng(1), 8 * n)
    group = guide.group(drawn[0])
    starts = [c for c in drawn if guide.group(c) == group][:n]
    landscape = guide.landscape(starts[0])
    x = landscape.relaxed.of([c.decisions for c in starts])
    visited = descend(landscape, x, how(steps))
    ends = [
        space(name).edit(starts[0], changes, np.random.default_rng(0))
        for changes in landscape.relaxed.nearest(visited[-1])
    ]
    return guide.scores(starts), guide.scores(ends)


class TestDescent:
    @pytest.mark.parametrize("coordinates", [Relaxed, Logarithms])
    def test_points_climb_to_the_optimum(self, coordinates):
        sketch = SyntheticSpace(seed=3).sketches[0]
        landscape = SyntheticLandscape(sketch, coordinates)
        relaxed = landscape.relaxed
        rows = [tuple(each.values()) for each in relaxed.sample(np.random.default_rng(0), 16)]
        visited = descend(landscape, relaxed.of(rows), how(60))
        best = [
            min(sketch.seconds(tuple(d.values())) for d in relaxed.nearest(points))
            for points in visited
        ]
        assert best[-1] < 0.5 * (best[0] + sketch.fastest_s)
        assert best[-1] < 1.2 * sketch.fastest_s

    def test_no_steps_lead_nowhere(self):
        landscape = SyntheticLandscape(SyntheticSpace(seed=3).sketches[0])
        starts = np.zeros((3, landscape.relaxed.size))
        visited = descend(landscape, starts, how(0))
        np.testing.assert_array_equal(visited, starts[None])


class TestPerceptron:
    @pytest.mark.slow
    def test_a_climb_improves_the_exact_score_of_real_programs(self, perceptron):
        before, after = climbed(perceptron, 12)
        assert after.mean() > before.mean() + 0.1
        assert (after > before).mean() > 0.7

    def test_no_steps_improve_nothing(self, perceptron):
        before, after = climbed(perceptron, 0)
        np.testing.assert_allclose(after, before, atol=1e-6)

    @pytest.mark.parametrize("name", ["matmul", "depthwise"])
    def test_the_smooth_score_tends_to_the_exact_one(self, perceptron, name):
        guide = MlpGuide(perceptron)
        drawn = space(name).sample(np.random.default_rng(4), 24)
        landscape = guide.landscape(drawn[0])
        same = [c for c in drawn if guide.group(c) == guide.group(drawn[0])]
        x = landscape.relaxed.of([c.decisions for c in same])
        exact = guide.scores(same)
        with torch.no_grad():
            smooth = landscape.scores(torch.from_numpy(x), 1e-7, landscape.anchor(x)).numpy()
        np.testing.assert_allclose(smooth, exact, atol=2e-2)

    def test_gradients_are_those_of_finite_differences(self, perceptron):
        guide = MlpGuide(perceptron)
        start = space("matmul").sample(np.random.default_rng(5), 1)[0]
        landscape = guide.landscape(start)
        # In double precision, of which the differences need more than the perceptron has.
        guide.ranker._networks = [n.double() for n in _copies(guide.ranker._networks)]
        smooth_scores = _in_double(guide.ranker)
        guide.ranker.smooth_scores = smooth_scores
        rng = np.random.default_rng(0)
        x = landscape.relaxed.of([start.decisions]) + rng.uniform(0.1, 0.3, landscape.relaxed.size)
        anchor = landscape.anchor(x)

        def score(values):
            return landscape.scores(values, 0.5, anchor).sum()

        moving = torch.tensor(x, requires_grad=True)
        (found,) = torch.autograd.grad(score(moving), moving)
        for at in range(landscape.relaxed.size):
            step = torch.zeros_like(moving)
            step[0, at] = 1e-6
            with torch.no_grad():
                slope = (score(moving + step) - score(moving - step)) / 2e-6
            assert float(found[0, at]) == pytest.approx(float(slope), rel=1e-3, abs=1e-4)

    def test_members_that_differ_lower_the_score(self, perceptron):
        class Divided:
            scale, source, config = 1.0, "programs", perceptron.config

            def member_scores(self, programs, machine, hardware):
                said = np.arange(2.0 * len(programs)).reshape(2, -1) ** 2
                said[1, 0] = np.nan
                return said

        # Members: 0 1 4 9 and NaN 25 36 49, from their means over what is legal: -3.67 -0.67 4.33
        # and -11.67 -0.67 12.33.
        candidates = space("matmul").sample(np.random.default_rng(0), 4)
        plain = MlpGuide(Divided(), caution=0.0).scores(candidates)
        np.testing.assert_allclose(plain, [np.nan, 13.0, 20.0, 29.0])
        found = MlpGuide(Divided(), caution=1.5).scores(candidates)
        np.testing.assert_allclose(found, plain - 1.5 * np.array([np.nan, 4.0, 0.0, 4.0]))

    def test_the_level_of_a_member_says_nothing(self):
        drawn = np.random.default_rng(0).normal(size=(3, 5))
        levels = np.array([[5.0], [-3.0], [0.0]])
        plain, moved = Caution(1.0), Caution(1.0)
        first, again = drawn[:, :4], drawn[:, 4:]
        for members in (first, again):
            np.testing.assert_allclose(
                plain.lowered(members) - members.mean(0),
                moved.lowered(members + levels) - (members + levels).mean(0),
            )
        points = torch.from_numpy(again + levels).requires_grad_()
        found = moved.smooth(points)
        np.testing.assert_allclose(found.detach(), moved.lowered(again + levels), atol=1e-6)
        (slope,) = torch.autograd.grad(found.sum(), points)
        assert torch.isfinite(slope).all() and (slope != 0).any()

    @pytest.mark.slow
    def test_what_a_gpu_does_not_allow_costs_score(self):
        class Flat:
            scale, source = 1.0, "programs"

            def context(self, programs, machine):
                return np.zeros((len(programs), 1), np.float32)

            def smooth_scores(self, rows, context):
                return rows.sum((1, 2))[None] * 0.0

        here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
        drawn = here.sample(np.random.default_rng(0), 40)
        guide = MlpGuide(Flat(), penalty=3.0)
        landscape = guide.landscape(drawn[0])
        same = [c for c in drawn if guide.group(c) == guide.group(drawn[0])]
        x = landscape.relaxed.of([c.decisions for c in same])
        with torch.no_grad():
            found = landscape.scores(torch.from_numpy(x), 0.0, landscape.anchor(x)).numpy()
        assert (landscape.excess(x) > 0).any()
        np.testing.assert_allclose(found, -3.0 * landscape.excess(x), atol=1e-9)

    def test_the_model_goes_on_reading_programs(self, perceptron):
        assert MlpGuide(perceptron).ranker.store_source == "formulas_only"
        assert perceptron.store_source == "programs"


def _copies(networks):
    import copy

    return [copy.deepcopy(network) for network in networks]


def _in_double(ranker):
    def scores(rows, context):
        trained = ranker._trained
        n, stores = rows.shape[:2]

        def scaled(values, scaling):
            shift, factor = values.new_tensor(scaling.shift), values.new_tensor(scaling.factor)
            return ((values - shift) * factor).clamp(-scaling.limit, scaling.limit)

        flat = scaled(rows.reshape(n * stores, -1), trained.rows)
        counts = torch.full((n,), stores)
        beside = scaled(context, trained.context)
        return torch.stack([net(flat, counts, beside)[:, 0] for net in ranker._networks])

    return scores


class TestSearch:
    def test_what_breaks_a_limit_is_not_among_what_is_found(self):
        guide = Limited(lambda x: np.maximum(x[:, 0] - 1.0, 0.0))
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0), guide=guide
        )
        strategy.explore()
        found = strategy._ranked()
        by_group = strategy._by_group(found)
        assert len(by_group) == 2 and len(found) > 16
        for group, members in by_group.items():
            x = strategy._landscapes[group].relaxed.of([c.decisions for c in members])
            assert (x[:, 0] <= 1.0).all()

    def test_where_no_random_candidate_keeps_the_limits_single_steps_lead_to_one(self):
        where = SyntheticSpace(tiles=((1024, 4), (1024, 4)), choices=(4,), sketches=1, seed=3)
        # One part of each tile has to have all of its extent.
        guide = Limited(
            lambda x: np.sort(x[:, :4])[:, :3].sum(1) + np.sort(x[:, 4:8])[:, :3].sum(1)
        )
        strategy = guided(
            where, strategies.OracleModel(), np.random.default_rng(0), guide=guide, seeds=4,
            structures=1,
        )  # fmt: skip
        drawn = strategy.fresh.unseen(64)
        landscape = strategy._landscape(guide.group(drawn[0]), drawn[0])
        assert not strategy._allowed(landscape, drawn)
        assert strategy.explore()
        found = strategy._ranked()
        assert found
        x = landscape.relaxed.of([c.decisions for c in found])
        np.testing.assert_allclose(guide.limit(x), 0.0, atol=1e-9)

    def test_a_group_given_up_is_climbed_from_what_keeps_its_limits(self, caplog):
        where = SyntheticSpace(sketches=1, seed=1)
        good = where.sample(np.random.default_rng(9), 1)[0]
        guide = SyntheticGuide()
        x = guide.landscape(good).relaxed.of([good.decisions])
        guide = Limited(lambda points: (np.abs(points - x).max(axis=1) > 0).astype(float))
        strategy = guided(
            where, strategies.OracleModel(), np.random.default_rng(0), guide=guide, seeds=2
        )
        drawn = [c for c in strategy.fresh.unseen(8) if c.key != good.key]
        with caplog.at_level(logging.WARNING, LOGGER):
            assert strategy._chosen_groups(drawn) == []
        assert "no feasible start" in caplog.text
        ((_, starts),) = strategy._chosen_groups([good])
        assert [c.key for c in starts] == [good.key]

    def test_where_nothing_is_open_the_starts_are_what_is_found(self):
        where = SyntheticSpace(tiles=((1, 2),), choices=(), sketches=2, seed=0)
        strategy = guided(where, strategies.OracleModel(), np.random.default_rng(0))
        assert strategy.explore()
        assert len(strategy._ranked()) == where.size

    def test_polishing_goes_on_in_another_structure(self):
        class ByChoice(SyntheticGuide):
            """Structures are the values of the last choice."""

            def group(self, candidate):
                return candidate.sketch.key, candidate.decisions[-1]

            def landscape(self, candidate):
                return Open(candidate.sketch)

        class Open(SyntheticLandscape):
            def __init__(self, sketch):
                super().__init__(sketch)
                last = len(sketch.variables) - 1
                self.relaxed._variables.pop(last)
                self.relaxed._choices = [c for c in self.relaxed._choices if c[0] != last]

        where = SyntheticSpace(sketches=1, choices=(3, 6), seed=5)
        guide = ByChoice()
        strategy = guided(
            where, strategies.OracleModel(), np.random.default_rng(1), guide=guide, polishing=32
        )
        start = where.sample(np.random.default_rng(2), 1)[0]
        strategy._take([start])
        strategy._polish()
        best = strategy._ranked()[0]
        assert best.decisions[-1] != start.decisions[-1]
        relaxed = strategy._landscapes[guide.group(best)].relaxed
        near = strategy._edited(best, relaxed.neighbours(best.decisions))
        assert near and max(guide.scores(near)) <= strategy.best_score

    def test_starts_keep_limits_and_are_not_alike(self):
        limit = 1.0
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0),
            guide=Limited(lambda x: np.maximum(x[:, 0] - limit, 0.0)),
            seeds=64, structures=1, pool=1, elites=0,
        )  # fmt: skip
        drawn = strategy.fresh.unseen(8)
        ((landscape, starts),) = strategy._chosen_groups(drawn)
        assert len(starts) == 64
        x = landscape.relaxed.of([candidate.decisions for candidate in starts])
        assert (x[:, 0] <= limit).all()
        varied = x[:, x.std(axis=0) > 0]
        assert varied.shape[1] >= x.shape[1] - 1
        rows = (varied - varied.mean(axis=0)) / varied.std(axis=0)
        alike = np.corrcoef(rows)
        assert (alike.sum() - 64) / (64 * 63) < 0.2

    def test_every_point_on_the_way_is_rounded(self):
        guide = SyntheticGuide()
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0),
            guide=guide, steps=12, structures=1,
        )  # fmt: skip
        drawn = strategy.fresh.unseen(8)
        ((landscape, starts),) = strategy._chosen_groups(drawn)
        x = landscape.relaxed.of([candidate.decisions for candidate in starts])
        visited = descend(landscape, x, strategy.config.descent)
        rounded = landscape.relaxed.rounded(visited.reshape(-1, landscape.relaxed.size))
        on_the_way = {c.key for c in strategy._edited(starts[0], rounded)}
        last = landscape.relaxed.rounded(visited[-1])
        assert len(rounded) > 2 * len(last)
        strategy._climb(landscape, starts)
        assert set(guide.asked) == on_the_way | {c.key for c in starts}

    def test_nothing_is_scored_or_proposed_twice(self):
        guide = SyntheticGuide()
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0), guide=guide
        )
        proposed = proposals(strategy, 4)
        assert len(set(proposed)) == len(proposed) == 24
        assert len(set(guide.asked)) == len(guide.asked)

    def test_scores_stay_with_their_candidates_where_some_are_illegal(self):
        where = SyntheticSpace(seed=2, illegal=0.5)
        model = Listening()
        strategy = guided(where, model, np.random.default_rng(0))
        asked = strategy.ask(8)
        assert all(c.legal for c in asked)
        waiting = [*strategy._waiting.values(), *model.asked[-1]]
        assert len(waiting) > 50
        for candidate in waiting:
            assert strategy._scored[candidate.key] == pytest.approx(-np.log(candidate.seconds))
        # What the model was shown are the best of all that was scored.
        shown = [strategy._scored[c.key] for c in model.asked[-1]]
        assert max(shown) == pytest.approx(strategy.best_score)

    def test_evolution_makes_the_first_batch_and_climbs_start_from_it(self, monkeypatch):
        starts = []

        def recorded(landscape, x, options):
            starts.append((landscape, x))
            return descend(landscape, x, options)

        monkeypatch.setattr(gradient, "descend", recorded)
        guide = SyntheticGuide()
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0),
            guide=guide, opening=True,
        )  # fmt: skip
        first = strategy.ask(4)
        assert len(first) == 4
        assert guide.asked == []
        strategy.tell(told(first))
        second = strategy.ask(4)
        assert not {c.key for c in first} & {c.key for c in second}
        met = {
            tuple(each.values()) for landscape, x in starts for each in landscape.relaxed.nearest(x)
        }
        assert min(first, key=lambda c: c.seconds).decisions in met

    def test_what_is_refused_or_repeated_is_no_longer_improved(self):
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0), polished=0
        )
        strategy.explore()
        best, second = strategy._ranked()[:2]
        assert strategy._elites()[0].key == best.key
        strategy.fresh.repeated.add(best.key)
        assert strategy._elites()[0].key == second.key
        strategy.explore()
        assert best.key not in strategy._waiting

    def test_a_large_batch_is_no_more_random_than_a_small_one(self):
        class Closer(strategies.OracleModel):
            abilities = Abilities(informed=True, informed_draft=True, closer=2)

        guide = SyntheticGuide()
        strategy = guided(
            SyntheticSpace(seed=1), Closer(), np.random.default_rng(0), guide=guide, epsilon=0.0
        )
        asked = strategy.ask(12)
        assert len(asked) == 12 and {c.key for c in asked} <= set(guide.asked)

    def test_what_scores_alike_comes_last(self):
        guide = SyntheticGuide()
        guide.scores = lambda candidates: np.array([round(-np.log(c.seconds)) for c in candidates])
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0), guide=guide
        )
        strategy.explore()
        scores = [strategy._scored[c.key] for c in strategy._ranked()]
        distinct = len(set(scores))
        assert 1 < distinct < len(scores)
        assert scores[:distinct] == sorted(set(scores), reverse=True)
        assert scores[distinct:] == sorted(scores[distinct:], reverse=True)

    def test_a_local_optimum_is_polished_once(self, monkeypatch):
        strategy = guided(
            SyntheticSpace(seed=5), strategies.OracleModel(), np.random.default_rng(0),
            polished=2, polishing=50,
        )  # fmt: skip
        strategy.explore()
        settled = set(strategy._settled)
        assert strategy._ranked()[0].key in settled
        moved, steps = [], strategy._steps
        monkeypatch.setattr(strategy, "_steps", lambda c: moved.append(c.key) or steps(c))
        strategy._polish()
        assert moved and not settled & set(moved)

    def test_landscapes_of_long_ago_are_forgotten(self, monkeypatch):
        monkeypatch.setattr(gradient, "_LANDSCAPES", 1)
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0)
        )
        for _ in range(3):
            strategy.explore()
            assert len(strategy._landscapes) == 1

    def test_what_was_measured_is_a_start_again(self, monkeypatch):
        starts = []

        def recorded(landscape, x, options):
            starts.append((landscape, x))
            return descend(landscape, x, options)

        monkeypatch.setattr(gradient, "descend", recorded)
        where = SyntheticSpace(seed=4)
        for elites, expected in ((4, True), (0, False)):
            starts.clear()
            strategy = guided(
                where, strategies.OracleModel(), np.random.default_rng(0), elites=elites
            )
            strategy.tell(told([where.optimum]))
            strategy.explore()
            met = [
                tuple(each.values()) == where.optimum.decisions
                for landscape, x in starts
                for each in landscape.relaxed.nearest(x)
            ]
            assert any(met) == expected

    def test_single_steps_improve_what_was_rounded(self):
        best = {}
        for polished in (8, 0):
            strategy = guided(
                SyntheticSpace(seed=5), strategies.OracleModel(), np.random.default_rng(0),
                polished=polished, steps=1,
            )  # fmt: skip
            strategy.explore()
            best[polished] = strategy.best_score
        assert best[8] > best[0]

    def test_real_programs_are_searched_alike_with_the_same_seed(self, perceptron):
        asked = []
        for _ in range(2):
            model = cost.create("random", rng=0)
            strategy = search.create(
                "gradient", space("softmax"), model, 3, seeds=8, structures=1, steps=2,
                opening=False,
            )  # fmt: skip
            asked.append([c.key for c in strategy.ask(4)])
            assert strategy.predictions > 8
        assert asked[0] == asked[1] and len(asked[0]) == 4


class Listening(strategies.OracleModel):
    """Remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def predict(self, candidates):
        self.asked.append(list(candidates))
        return super().predict(candidates)

    abilities = Abilities(informed=True, informed_draft=True)


class TestWhatCannotBeClimbed:
    def test_a_refused_sketch_is_named_once_and_the_others_are_used(self, caplog):
        where = SyntheticSpace(seed=1)
        guide = SyntheticGuide(refused=[where.sketches[0].key])
        strategy = guided(
            where, strategies.OracleModel(), np.random.default_rng(0), guide=guide, epsilon=0.0
        )
        with caplog.at_level(logging.WARNING, LOGGER):
            asked = [c for _ in range(3) for c in strategy.ask(4)]
        assert {c.sketch.key for c in asked} == {where.sketches[1].key}
        assert [record.message.count("Frobnicate") for record in caplog.records] == [1]

    def test_where_none_is_left_evolution_proposes_and_that_is_said_once(self, caplog):
        where = SyntheticSpace(seed=1)
        guide = SyntheticGuide(refused=[sketch.key for sketch in where.sketches])
        strategy = guided(where, strategies.OracleModel(), np.random.default_rng(0), guide=guide)
        with caplog.at_level(logging.WARNING, LOGGER):
            assert len(strategies.run(strategy, 24)) == 24
        said = [r.message for r in caplog.records if "evolutionary search proposes" in r.message]
        assert len(said) == 1
        assert guide.asked == []

    def test_an_infeasible_sketch_is_reported_and_not_searched_for_ever(self, caplog):
        strategy = guided(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0),
            guide=SyntheticGuide(infeasible=True),
        )  # fmt: skip
        with caplog.at_level(logging.WARNING, LOGGER):
            assert len(strategies.run(strategy, 16)) == 16
        assert sum("no feasible start" in r.message for r in caplog.records) == 2

    def test_a_target_without_weights_is_said(self, caplog, monkeypatch):
        monkeypatch.setattr(shipped, "shipped", lambda name, kind: None)
        strategy = Gradient(
            SyntheticSpace(seed=1), strategies.OracleModel(), np.random.default_rng(0)
        )
        with caplog.at_level(logging.WARNING, LOGGER):
            assert len(strategies.run(strategy, 16)) == 16
        assert sum("no perceptron" in r.message for r in caplog.records) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"seeds": 0}, "seeds >= 1"),
        ({"steps": -1}, "steps >= 0"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"steps": "many"}, "steps must be int"),
        ({"stepps": 3}, "no option 'stepps': choose from guide, weights, seeds"),
        ({"smoothing": True}, "'smoothing': it is one of the package foretune_research"),
        ({"guide": "me"}, "unknown guide of gradient"),
        ({"weights": "tlp"}, "foretune train mlp"),
        ({"weights": "mine"}, "weights must be a file .* or the name of weights"),
        ({"weights": "none.npz"}, "weights must be a file that is there"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        search.create("gradient", space("matmul"), cost.create("random"), 0, **options)


def test_the_models_own_perceptron_is_climbed(perceptron):
    model = pretrained.PretrainedModel(
        rng=np.random.default_rng(0), hardware=CPU, ranker=perceptron, extract=extract_batch
    )
    strategy = Gradient(space("matmul"), model, np.random.default_rng(0))
    assert isinstance(strategy._guide, MlpGuide)
    assert strategy._guide.ranker._networks is perceptron._networks
