"""Breeding: better programs have more children, and what a program was made of is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from foretune.search._breeding import Breeding, Lineage, child, in_turns, pairs
from foretune.search._choosing import difference
from foretune.search.proposers import Variant
from foretune.testing import SyntheticSpace

SPACE = SyntheticSpace(seed=1, sketches=1)


def drawn(n, seed=0):
    return SPACE.sample(np.random.default_rng(seed), n)


def test_the_first_of_the_ranked_are_the_likeliest_parents():
    found = pairs(4, 3000, np.random.default_rng(0))
    assert {len(pair) for pair in found} == {2}
    counts = Counter(place for pair in found for place in pair)
    weights = 1 / np.arange(1, 5)
    expected = 6000 * weights / weights.sum()
    assert stats.chisquare([counts[place] for place in range(4)], expected).pvalue > 1e-3


def changed(how, seeds=range(400)):
    """In how many decisions children differ from the first of two parents that share none."""
    parent, other = next(
        (a, b)
        for a, b in zip(drawn(400, 1), drawn(400, 2), strict=True)
        if difference(a, b) == len(a.decisions)
    )
    made = [child(SPACE, parent, other, how, np.random.default_rng(seed)) for seed in seeds]
    from_other = [
        sum(x == y for x, y in zip(c.decisions, other.decisions, strict=True)) for c in made
    ]
    return [difference(parent, c) for c in made], from_other


def test_a_mutation_changes_one_decision_and_a_crossover_takes_those_of_both():
    apart, _ = changed(Breeding(crossover=0.0))
    assert set(apart) <= {0, 1} and np.mean(apart) > 0.5
    apart, theirs = changed(Breeding(crossover=1.0))
    assert apart == theirs
    assert np.mean(apart) == pytest.approx(len(SPACE.optimum.decisions) / 2, abs=0.3)


def test_a_mutation_may_be_followed_by_more():
    apart, _ = changed(Breeding(crossover=0.0, further=0.75))
    assert max(apart) > 2 and np.mean(apart) > 1.5


def test_turns_are_taken_until_nobody_has_any_left():
    a, b, c, d = drawn(4)
    assert in_turns([a, b, c], [d]) == [a, d, b, c]
    assert in_turns([], [a]) == [a] and in_turns() == []


class TestLineage:
    def test_a_program_is_known_by_its_first_parents(self):
        first, second, third, other = drawn(4)
        line = Lineage()
        line.add(Variant(first, 1.0), [second])
        line.add(Variant(second, 2.0), [third])
        line.add(Variant(other, 9.0), [third])
        found = line.of(third, 3)
        assert [each.candidate for each in found] == [second, first]
        assert [each.score for each in found] == [2.0, 1.0]
        assert [each.candidate for each in line.of(third, 1)] == [second]
        assert line.of(first, 3) == []

    def test_a_program_is_no_ancestor_of_its_own(self):
        first, second = drawn(2)
        line = Lineage()
        line.add(Variant(first), [second])
        line.add(Variant(second), [first])
        assert [each.candidate for each in line.of(first, 9)] == [second]

    def test_only_the_lines_of_what_is_kept_are_known(self):
        first, second, third, other = drawn(4)
        line = Lineage()
        line.add(Variant(first), [second, other])
        line.add(Variant(second), [third])
        line.keep([third])
        assert len(line) == 2 and len(line.of(third, 9)) == 2
        assert line.of(other, 9) == []
