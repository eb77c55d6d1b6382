"""Every registered ranker that needs no PyTorch keeps the contract."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from foretune.cost import Needs, Ranker, fitted_scale, fitted_strength, rankers, score_group
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker
from foretune.cost.random_ranker import RandomRanker
from foretune.testing import rankers as suite
from foretune.testing.rankers import Subject
from foretune_research.trees import GbdtVariants

SMALL = {
    "rounds": 100,
    "patience": 20,
    "min_child_weight": 0.5,
    "learning_rate": 0.15,
    "columns": 0.4,
    "boosters": 3,
}
"""For hundreds of programs."""
NEST = {"extract": suite.nest_features, "feature_version": "nest"}
LEARNED = {
    "gbdt": Subject(
        functools.partial(GbdtRanker, **NEST, **SMALL), functools.partial(GbdtRanker.load, **NEST)
    ),
    "gbdt store": Subject(
        functools.partial(GbdtVariants, features="store", **NEST, **SMALL),
        functools.partial(GbdtVariants.load, **NEST),
    ),
    "gbdt_actions": Subject(functools.partial(GbdtActionRanker, **SMALL)),
}


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.slow
def test_learned_ranker(name, check):
    check(LEARNED[name])


def test_control():
    suite.check_ranker(RandomRanker, learns=False)


def test_every_registered_ranker_is_checked():
    """Those of behaviour and the neural ones have tests of their own."""
    others = ("behaviour", "classifier", "joined", "mlp", "tgraph", "tlp", "mtl_tlp", "world")
    neural = {name for name in rankers.names() if name.startswith(others)}
    behaviour = {"gbdt_behaviour"}
    studies = {name for name in rankers.names() if name.endswith(":variants")}
    rest = set(rankers.names()) - neural - behaviour - studies
    assert rest == {"gbdt", "gbdt_actions", "random"}


class TestScale:
    def test_it_turns_scores_into_log2_slow_downs(self):
        seconds = 2.0 ** -np.arange(8.0)
        assert fitted_scale([(np.arange(8.0) / 4, seconds)]) == pytest.approx(4)
        assert fitted_scale([(np.arange(8.0) / 4 + 7, 3 * seconds)]) == pytest.approx(4)

    def test_groups_count_alike_and_what_failed_not_at_all(self):
        seconds = 2.0 ** -np.arange(8.0)
        broken = np.where(np.arange(8) % 2, np.nan, seconds)
        score = np.where(np.arange(8) == 4, np.nan, np.arange(8.0))
        assert fitted_scale([(score, broken)]) == pytest.approx(1)
        small, large = (np.arange(8.0), seconds), (np.arange(8.0), seconds**3)
        assert fitted_scale([small, large]) == pytest.approx(2)
        twice = np.tile(np.arange(8.0), 9), np.tile(seconds, 9)
        assert fitted_scale([twice, large]) == pytest.approx(2)

    @pytest.mark.parametrize(
        "judged",
        [
            [],
            [(np.zeros(5), np.arange(1.0, 6.0))],
            [(np.ones(1), np.ones(1))],
            [(np.full(3, np.nan), np.ones(3))],
        ],
    )
    def test_scores_that_say_nothing_have_scale_one(self, judged):
        assert fitted_scale(judged) == 1.0

    def test_scores_that_say_the_opposite_are_worth_nothing(self):
        assert fitted_scale([(np.arange(5.0), np.arange(1.0, 6.0))]) == 0.0


class TestStrength:
    """Workloads whose slopes and rests are drawn."""

    def judged(self, slopes, rest, groups=400, n=60):
        rng = np.random.default_rng(0)
        found = []
        for _ in range(groups):
            score = rng.normal(size=n)
            level = rng.normal(1, slopes) * score + rng.normal(0, rest, size=n)
            found.append((score / 2, 2.0**-level))
        return found

    @pytest.mark.parametrize(("slopes", "rest"), [(0.5, 1.0), (0.25, 1.0), (0.5, 2.0)])
    def test_it_is_the_ratio_of_the_variances(self, slopes, rest):
        judged = self.judged(slopes, rest)
        assert fitted_strength(judged, 2.0) == pytest.approx((rest / slopes) ** 2, rel=0.35)

    def test_it_stays_between_1_and_64(self):
        assert fitted_strength(self.judged(3.0, 0.1), 2.0) == 1
        assert fitted_strength(self.judged(0.0, 1.0), 2.0) > 32
        assert fitted_strength(self.judged(0.0, 0.0, n=8), 2.0) == 64

    @pytest.mark.parametrize("scale", [1.0, 0.0])
    def test_it_is_16_where_few_groups_can_be_judged(self, scale):
        flat = [(np.zeros(9), np.arange(1.0, 10)), (np.arange(2.0), np.ones(2))]
        assert fitted_strength([*self.judged(0.5, 1, groups=3), *flat], scale) == 16
        assert fitted_strength([], scale) == 16

    def test_nothing_is_known_of_scores_worth_nothing(self):
        assert fitted_strength(self.judged(0.5, 1), 0.0) == 16


def test_the_suite_finds_a_ranker_that_learned_nothing():
    with pytest.raises(AssertionError, match="ordered right"):
        suite.check_learns(Subject(RandomRanker))


class Biased(RandomRanker):
    """Scores depend on the batch."""

    def score(self, programs, machine, hardware=""):
        return np.arange(len(programs), dtype=np.float64)


class Opinionated(Biased):
    """Reads programs, as it says, but scores illegal ones, and those that cannot be rebuilt."""

    needs = Needs(programs=True)


@pytest.mark.parametrize(
    ("check", "ranker", "complaint"),
    [
        (suite.check_untrained, Biased, "has an opinion"),
        (suite.check_batch_independence, Biased, "depend on the batch"),
        (suite.check_nothing_to_learn, Biased, "were taken"),
        (suite.check_illegal, Opinionated, "an illegal program was scored"),
        (suite.check_foreign, Opinionated, "not refused with BadInputError"),
    ],
)
def test_the_suite_finds_broken_promises(check, ranker, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check(Subject(ranker))


class OfGroups(RandomRanker):
    """Needs to know what the workload is called."""

    def score_group(self, group):
        return np.full(len(group), float(len(group.workload)))


def test_a_ranker_of_groups_is_asked_with_the_whole_group():
    group = suite.nest_group((64, 128, 96), 5)
    assert score_group(OfGroups(), group).tolist() == [len(group.workload)] * 5
    plain = RandomRanker(seed=1)
    assert (score_group(plain, group) == plain.score(group.programs, group.machine)).all()


def test_nests_are_candidates_like_any_other():
    group = suite.nest_group((64, 128, 96), 32)
    assert len({program.key for program in group.programs}) == 32
    assert 0 < group.valid.mean() <= 1
    candidate = group.programs[0].candidate
    assert candidate.sketch.candidate(candidate.decisions) == candidate
    kinds = {action.kind for action in group.programs[0].actions}
    assert {"split", "reorder", "annotate"} <= kinds
    assert isinstance(GbdtActionRanker(), Ranker)
