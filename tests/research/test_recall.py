"""What the first K programs hold, by hand and beside drawing at random."""

from __future__ import annotations

import numpy as np
import pytest

from foretune_research.recall import recalls

NAN = float("nan")
SECONDS = np.array([4.0, 1.0, 1.01, 2.0, NAN])


def of(scores, kept, seconds=SECONDS):
    return recalls(np.array(scores), seconds, kept, np.random.default_rng(0))


def test_the_fastest_and_one_hardly_slower():
    one, two, three = of([5.0, 1.0, 4.0, 3.0, 2.0], (1, 2, 5))
    assert (one.best, one.near, one.ratio) == (0, 0, 0.25)
    assert (two.best, two.near) == (0, 1) and two.ratio == pytest.approx(1 / 1.01)
    assert (three.best, three.near, three.ratio) == (1, 1, 1)


def test_failures_and_programs_without_a_score():
    (first,) = of([1.0, NAN, NAN, NAN, 2.0], (1,))
    assert (first.best, first.near, first.ratio) == (0, 0, 0)
    assert of([1.0, NAN, NAN, NAN, 2.0], (2,))[0].ratio == 0.25


def test_more_than_there_are_is_everything():
    (everything,) = of([0.0] * 5, (64,))
    assert everything.best == everything.random_best == 1


def test_equal_scores_do_not_follow_the_order_of_the_file():
    seconds = np.arange(1.0, 41.0)
    hits = [
        recalls(np.zeros(40), seconds, (10,), np.random.default_rng(seed))[0].best
        for seed in range(400)
    ]
    assert np.mean(hits) == pytest.approx(0.25, abs=0.08)


def test_the_floor_is_what_drawing_at_random_has():
    rng = np.random.default_rng(0)
    (recall,) = of(np.zeros(5), (2,))
    draws = [rng.permutation(5)[:2] for _ in range(4000)]
    assert recall.random_best == pytest.approx(np.mean([1 in d for d in draws]), abs=0.03)
    near = np.mean([1 in d or 2 in d for d in draws])
    assert recall.random_near == pytest.approx(near, abs=0.03)
