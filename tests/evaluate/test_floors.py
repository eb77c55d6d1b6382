from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.dataset import judgeable
from foretune.evaluate import GroupMetrics, judge, random_order
from foretune.evaluate.floors import best_elsewhere, best_of_draws, common_programs
from foretune.evaluate.metrics import average
from tests.evaluate.support import group

SECONDS = [1.0, 2.0, 2.0, 7.0, math.nan]


def over_all_orders(seconds: np.ndarray) -> GroupMetrics:
    rng = np.random.default_rng(0)
    orders = itertools.permutations(range(len(seconds)))
    return average([judge(np.array(order, dtype=float), seconds, rng) for order in orders])


@pytest.mark.parametrize(
    "seconds", [SECONDS, SECONDS[:2], [3.0, math.nan, math.nan, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0]]
)
def test_random_order_is_the_mean_over_all_orders(seconds: list[float]) -> None:
    array = np.array(seconds)
    exact, counted = random_order(array), over_all_orders(array)
    np.testing.assert_allclose(exact.ratio, counted.ratio)
    np.testing.assert_allclose(exact.picked_s, counted.picked_s)
    np.testing.assert_allclose(exact.running, counted.running)
    assert exact.ndcg16 == pytest.approx(counted.ndcg16)
    assert exact.pair_accuracy == pytest.approx(counted.pair_accuracy)
    assert exact.kendall_tau == pytest.approx(counted.kendall_tau, abs=1e-12)
    assert (exact.best_s, exact.programs) == (counted.best_s, counted.programs)


@settings(deadline=None)
@given(st.lists(st.sampled_from([1.0, 2.0, 8.0, math.nan]), min_size=2, max_size=90))
def test_random_order_finds_more_with_more_draws_and_everything_in_the_end(
    values: list[float],
) -> None:
    seconds = np.array(values)
    if not judgeable(seconds):
        return
    floor = random_order(seconds)
    assert (np.diff(floor.ratio) >= -1e-12).all()
    assert floor.ratio[0] == pytest.approx(np.nan_to_num(1.0 / seconds * floor.best_s).mean())
    if len(seconds) <= 64:
        assert floor.ratio[-1] == pytest.approx(1)


def test_chances_of_the_best_draw_are_those_of_counting() -> None:
    found = best_of_draws(6, 6)
    for k in range(1, 7):
        best = [min(drawn) for drawn in itertools.combinations(range(6), k)]
        counted = np.bincount(best, minlength=6) / len(best)
        np.testing.assert_allclose(found[k - 1], counted, atol=1e-12)


def test_large_groups_stay_exact() -> None:
    chances = best_of_draws(4362, 64)
    np.testing.assert_allclose(chances[0], 1 / 4362, rtol=1e-9)
    assert chances[63, 0] == pytest.approx(64 / 4362)
    np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_programs_are_common_that_ran_on_every_device_and_found_in_whatever_order() -> None:
    here = group("w", [3.0, math.nan, 1.0, 2.0], hardware="a")
    there = replace(here, hardware="b", seconds=np.array([6.0, 5.0, 9.0, math.nan]))
    there = there.subset([3, 2, 1, 0])
    alone = group("v", [1.0, 2.0], hardware="a")
    found = common_programs([here, alone, there], least=2)
    assert {key: at.tolist() for key, at in found.items()} == {"w@a": [0, 2], "w@b": [3, 1]}
    assert common_programs([here, alone, there], least=3) == {}


def test_the_best_elsewhere_has_the_least_geometric_mean_on_the_other_devices() -> None:
    first = group("w", [1.0, 2.0, 3.0], hardware="a")
    groups = [
        first,
        replace(first, hardware="b", seconds=np.array([8.0, 1.0, 2.0])),
        replace(first, hardware="c", seconds=np.array([1.0, 4.0, 1.0])),
    ]
    scores = best_elsewhere(groups, common_programs(groups, least=3))
    assert np.allclose(np.exp(-scores["w@a"]) ** 2, [8.0, 4.0, 2.0])
    assert np.allclose(np.exp(-scores["w@b"]) ** 2, [1.0, 8.0, 3.0])
