"""A batch of scored candidates: the best of them, apart from one another, and a few random ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from foretune.cost import Abilities
from foretune.errors import BadInputError
from foretune.search import BatchPolicy, FreshSampler, pick
from foretune.search._choosing import drawn, spread
from foretune.testing import SyntheticSpace
from foretune.testing.strategies import OracleModel

GREEDY = BatchPolicy(epsilon=0.0, apart=0)


def sampler(seed=0, **options):
    return FreshSampler(SyntheticSpace(**options), np.random.default_rng(seed))


def known(space, n=40):
    """Candidates, the fastest first, each with its score."""
    found = {c.key: c for c in space.sample(np.random.default_rng(1), n)}.values()
    return [(c, -np.log(c.seconds)) for c in sorted(found, key=lambda c: c.seconds)]


def keys(candidates):
    return [candidate.key for candidate in candidates]


def test_the_highest_scores_are_chosen_in_the_order_given_where_they_are_equal():
    fresh = sampler()
    scored = known(fresh.space)
    shuffled = [scored[i] for i in np.random.default_rng(2).permutation(len(scored))]
    assert keys(pick(shuffled, 5, GREEDY, fresh)) == keys(c for c, _ in scored[:5])
    alike = [(c, 1.0) for c, _ in shuffled]
    assert keys(pick(alike, 5, GREEDY, fresh)) == keys(c for c, _ in shuffled[:5])
    assert not fresh.seen, "who asks says what is proposed"


def test_what_is_illegal_or_was_proposed_is_left_out():
    fresh = sampler(illegal=0.3)
    scored = known(fresh.space)
    first = fresh.propose(pick(scored, 4, GREEDY, fresh))
    again = pick(scored, 4, GREEDY, fresh)
    legal = [c for c, _ in scored if c.legal]
    assert keys([*first, *again]) == keys(legal[:8])


def test_a_score_that_is_none_means_illegal():
    fresh = sampler()
    scored = known(fresh.space)
    nameless = [(c, np.nan if i < 3 else score) for i, (c, score) in enumerate(scored)]
    assert keys(pick(nameless, 2, GREEDY, fresh)) == keys(c for c, _ in scored[3:5])
    assert fresh.illegal == set(keys(c for c, _ in scored[:3]))


@pytest.mark.parametrize("epsilon, random", [(0.0, 0), (0.5, 8), (1.0, 16)])
def test_a_share_is_random(epsilon, random):
    fresh = sampler()
    scored = known(fresh.space)
    chosen = pick(scored, 16, BatchPolicy(epsilon), fresh)
    assert len({c.key for c in chosen}) == 16
    assert sum(c.key not in {k.key for k, _ in scored} for c in chosen) == random


def test_a_batch_of_one_is_random_as_often_as_its_share_says():
    fresh = sampler()
    scored = known(fresh.space)
    best = [pick(scored, 1, BatchPolicy(0.25), fresh)[0] == scored[0][0] for _ in range(400)]
    assert stats.binomtest(sum(best), len(best), 0.75).pvalue > 1e-3


class Closer(OracleModel):
    """Looks at the best two a second time, and finds the order to be the other one."""

    abilities = Abilities(closer=2)
    asks = True

    def look(self, candidates):
        self.looked = keys(candidates)
        if not self.asks:
            self.abilities = Abilities()
        return np.arange(len(candidates), dtype=float)


def test_a_closer_look_decides_among_the_best():
    fresh, model = sampler(), Closer()
    scored = known(fresh.space)
    first = [c for c, _ in scored[:4]]
    assert keys(pick(scored, 2, GREEDY, fresh, model)) == keys([first[3], first[2]])
    assert model.looked == keys(first), "two for each one that is wanted"
    model.abilities = Abilities(closer=3)
    pick(scored, 1, GREEDY, fresh, model)
    assert model.looked == keys(first[:3])


def test_what_cannot_be_looked_at_any_more_stays_as_it_was():
    fresh, model = sampler(), Closer()
    model.asks = False
    scored = known(fresh.space)
    assert keys(pick(scored, 2, GREEDY, fresh, model)) == keys(c for c, _ in scored[:2])


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(BadInputError, match="epsilon <= 1` must hold"):
        BatchPolicy(epsilon=1.5)


def test_near_duplicates_come_last():
    space = SyntheticSpace(sketches=1)
    best = space.optimum
    choice = dict(sketch=best.sketch, workload=space.workload, hardware=space.hardware)
    near = type(best)(decisions=(*best.decisions[:-1], (best.decisions[-1] + 1) % 3), **choice)
    far = space.sample(np.random.default_rng(0), 1)[0]
    assert list(spread([best, near, far])) == [best, far, near]


def scored(n):
    found = SyntheticSpace().sample(np.random.default_rng(1), n)
    assert len({c.key for c in found}) == n
    return found, np.array([float(i // 2) for i in range(n)])


@settings(max_examples=20, deadline=None)
@given(temperature=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_a_draw_has_everything_once(temperature, seed):
    found, scores = scored(8)
    order = drawn(found, scores, temperature, np.random.default_rng(seed))
    assert sorted(c.key for c in order) == sorted(c.key for c in found)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_who_comes_first_follows_the_softmax_of_scores(temperature):
    found, scores = scored(6)
    rng, draws = np.random.default_rng(0), 4000
    firsts = Counter(drawn(found, scores, temperature, rng)[0].key for _ in range(draws))
    weights = np.exp(scores / temperature)
    expected = draws * weights / weights.sum()
    seen = np.array([firsts[c.key] for c in found])
    assert stats.chisquare(seen, expected).pvalue > 1e-3
