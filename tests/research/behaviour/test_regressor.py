"""Behaviour to time: what is learned holds for workloads and devices never seen."""

import functools

import numpy as np
import pytest

from foretune.cost.behaviour import trees
from foretune.cost.behaviour.columns import NAMES, PROGRAM_NAMES, SIGNS, predicted
from foretune.cost.behaviour.memory import Memory
from foretune.cost.behaviour.regressor import Lesson, Material, Regressor
from foretune.cost.behaviour.targets import normalised
from foretune.errors import BadInputError, VersionMismatchError
from foretune_research.behaviour.regressor import (
    RegressorVariants,
    RegressorVariantsConfig,
)
from foretune_research.behaviour.regressor import (
    pairs as of_pairs,
)
from tests.cost.behaviour.behaviour_support import (
    DEVICES,
    UNSEEN,
    behaviours,
    lesson,
    nests,
    pairs,
    programs,
    seconds,
    top,
)

FORMS = {
    "trees": {"form": "trees", "rounds": 60, "min_child_weight": 5.0, "believed": 1.0},
    "perceptron": {"form": "perceptron", "rounds": 8, "believed": 1.0},
}
LESSONS = [lesson(w, device) for w in range(8) for device in DEVICES]


@pytest.fixture(scope="module", params=FORMS)
def fitted(request):
    made = RegressorVariants(**FORMS[request.param])
    made.fit(LESSONS)
    return made


def test_an_unseen_workload_on_an_unseen_device_is_ordered_better_than_by_prediction(fitted):
    found, known = [], []
    for workload in range(20, 26):
        truth = seconds(workload, UNSEEN)
        found.append(pairs(fitted.times(lesson(workload, UNSEEN).columns), truth))
        known.append(pairs(behaviours(workload, UNSEEN).seconds, truth))
    assert np.mean(found) > np.mean(known) + 0.02


def test_times_are_those_of_the_target(fitted):
    unseen = lesson(30, UNSEEN)
    wanted = normalised(unseen.seconds)
    found = fitted.times(unseen.columns)
    # Up to a constant of the group.
    assert np.abs(found - found.mean() - wanted + wanted.mean()).mean() < 0.12


def test_what_was_left_out_is_kept_for_judging(fitted):
    # Four devices: each member leaves one out, with its eight workloads.
    assert len(fitted.left_out) == 3 * 8
    assert np.mean([pairs(-scores, truth) for scores, truth in fitted.left_out]) > 0.8


def test_arrays_restore_it(fitted):
    again = RegressorVariants.restored(fitted.meta(), fitted.arrays())
    table = lesson(21, UNSEEN).columns
    np.testing.assert_allclose(again.times(table), fitted.times(table), atol=1e-6)


def test_an_untrained_one_has_no_opinion():
    made = RegressorVariants()
    assert not made.trained and (made.times(lesson(0, UNSEEN).columns) == 0).all()
    again = RegressorVariants.restored(made.meta(), made.arrays())
    assert not again.trained


def test_a_programs_time_does_not_depend_on_the_others(fitted):
    table = lesson(22, UNSEEN).columns
    np.testing.assert_allclose(fitted.times(table[7:9]), fitted.times(table)[7:9], atol=1e-6)


def test_the_same_seed_gives_the_same():
    tables = lesson(23, UNSEEN).columns
    one, other, third = (RegressorVariants(seed=seed, **FORMS["trees"]) for seed in (1, 1, 2))
    for made in (one, other, third):
        made.fit(LESSONS[:12])
    assert (one.times(tables) == other.times(tables)).all()
    assert (one.times(tables) != third.times(tables)).any()


def test_other_factors_change_what_is_said_and_the_same_do_not():
    """The device's effect here is one that only its factors tell: scores are the same on both."""
    lessons = []
    for workload in range(8):
        for device in DEVICES:
            table = lesson(workload, device).columns.copy()
            table[:, : len(PROGRAM_NAMES)] = lesson(workload, DEVICES[0]).columns[
                :, : len(PROGRAM_NAMES)
            ]
            lessons.append(Lesson(f"w{workload}", device.key, table, seconds(workload, device)))
    with_factors = RegressorVariants(**FORMS["trees"], fold="workload", factor_columns=True)
    without = RegressorVariants(**FORMS["trees"], fold="workload")
    for made in (with_factors, without):
        made.fit(lessons)
    one, other = lessons[0].columns, lessons[3].columns
    assert np.abs(with_factors.times(one) - with_factors.times(other)).max() > 0.02
    assert (without.times(one) == without.times(other)).all()


def test_a_memory_never_loses_to_the_floor():
    """The floor: the program with the least mean log slow-down on the other devices."""
    memory = Memory()
    keys = [str(i) for i in range(64)]
    for workload in range(8):
        for device in DEVICES:
            memory.add(device, f"w{workload}", keys, seconds(workload, device))

    def told(workload, device):
        others = memory.others(device, f"w{workload}")
        return memory.columns(
            device,
            f"w{workload}",
            keys,
            predicted(behaviours(workload, device), nests(workload)),
            {d.key: predicted(behaviours(workload, d), nests(workload)) for d in others},
        )

    made = RegressorVariants(**FORMS["trees"])
    made.fit([lesson(w, d, memory=told(w, d)) for w in range(8) for d in DEVICES])
    floor, found = [], []
    for workload in range(8):
        known = told(workload, UNSEEN)
        truth = seconds(workload, UNSEEN)
        floor.append(pairs(known[:, 0], truth))
        found.append(pairs(made.times(lesson(workload, UNSEEN, memory=known).columns), truth))
    assert np.mean(found) > np.mean(floor)


def test_what_other_devices_took_is_hardly_touched_where_nothing_else_is_known():
    """Times that other devices tell but for chance leave nothing to correct."""
    rng = np.random.default_rng(0)
    lessons = []
    for workload in range(6):
        each = lesson(workload, DEVICES[0])
        slow = rng.uniform(0, 3, 64)
        table = np.full_like(each.columns, np.nan)
        table[:, 0] = rng.random(64)
        table[:, PROGRAM_NAMES.index("memory.mean")] = slow
        table[:, PROGRAM_NAMES.index("memory.expected")] = slow
        times = 1e-3 * 2 ** (slow + rng.normal(0, 0.3, 64))
        lessons.append(Lesson(each.workload, each.device, table, times))
    made = RegressorVariants(**FORMS["trees"])
    made.fit(lessons)
    slow = lessons[0].columns[:, PROGRAM_NAMES.index("memory.mean")]
    assert pairs(made.times(lessons[0].columns), slow) > 0.97


def test_trees_that_do_not_help_are_left_out():
    """What is left out is already right before the first tree."""
    config = RegressorVariantsConfig(rounds=20, min_child_weight=1.0)
    rng = np.random.default_rng(5)
    times, matrix = rng.random(40), rng.random((40, 3)).astype(np.float32)
    sizes = np.array([20, 20])
    right = Material(matrix, times, -times, sizes)
    wrong = Material(matrix, times, np.zeros(40), sizes)
    assert trees.grow(config, 0, wrong, right).booster is None
    assert trees.grow(config, 0, wrong, wrong).booster is not None


@pytest.mark.parametrize("ranking", ["list", "pairs"])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_gradient_vanishes_at_the_target_and_points_there(ranking, share):
    config = RegressorVariantsConfig(ranking=ranking, rank_share=share)
    rng = np.random.default_rng(3)
    sizes = np.array([5, 9])
    times = rng.random(14)
    material = Material(np.zeros((14, 1), np.float32), times, np.zeros(14), sizes)
    ranks = {"list": None, "pairs": functools.partial(of_pairs, rng=rng)}[ranking]
    gradients = trees.objective(config, material, ranks)
    assert np.abs(gradients(-times, None)[0]).max() < 1e-12
    wrong = -times.copy()
    wrong[2] += 0.2
    gradient, hessian = gradients(wrong, None)
    assert gradient[2] > 0 and gradient[2] == gradient.max()
    assert (hessian > 0).all()
    assert trees.loss_of(config, material)(wrong) > trees.loss_of(config, material)(-times)


def test_the_gradient_of_lists_is_that_of_the_loss():
    """By central differences; without bins every program counts once."""
    config = RegressorVariantsConfig(rank_share=1.0, binning=False)
    rng = np.random.default_rng(4)
    times, scores = rng.random(6), rng.random(6)
    material = Material(np.zeros((6, 1), np.float32), times, np.zeros(6), np.array([6]))
    loss = trees.loss_of(config, material)
    step = 1e-6 * np.eye(6)
    slopes = np.array([(loss(scores + d) - loss(scores - d)) / 2e-6 for d in step])
    gradient = trees.objective(config, material)(scores, None)[0]
    # The gradient counts a group by its programs and is scaled by the temperature.
    np.testing.assert_allclose(
        gradient, slopes * 6 * config.temperature / config.temperature, atol=1e-6
    )


def test_trees_say_nothing_against_what_columns_mean():
    """A better score is never slower, a longer time elsewhere never faster, whatever data say."""
    rng = np.random.default_rng(8)
    table = np.full((200, len(NAMES)), np.nan)
    table[:, 0], table[:, 1] = rng.random(200), rng.random(200)
    limit = NAMES.index("memory.mean")
    table[:, limit] = rng.random(200)
    # The data say the opposite of the first score, and the limit is right.
    seconds = 1e-3 * 2.0 ** (2 * table[:, 0] + table[:, limit] + table[:, 1] % 0.1)
    made = RegressorVariants(**FORMS["trees"], members=1, fold="workload", line=False)
    made.fit([Lesson("w", "d", table, seconds)])
    base = np.repeat(table[:1], 50, axis=0)
    for column in (0, 1, limit):
        swept = base.copy()
        swept[:, column] = np.linspace(0, 1, 50)
        steps = np.diff(made.times(swept))
        assert (SIGNS[column] * steps <= 1e-9).all()
    assert np.ptp(made.times(swept)) > 0.1


def test_groups_without_an_order_are_refused():
    same = lesson(0, DEVICES[0])
    same = Lesson(same.workload, same.device, same.columns, np.full(64, 1e-3))
    made = RegressorVariants()
    with pytest.raises(BadInputError, match="two programs with different seconds"):
        made.fit([same])
    assert not made.trained


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"form": "forest"}, "'forest'"),
        ({"rank_share": 1.5}, "0 <= rank_share <= 1"),
        ({"bins": 0}, "bins >= 1"),
        ({"rounds": "many"}, "rounds must be int"),
        ({"deep": 3}, "'deep'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    with pytest.raises(BadInputError, match=told):
        RegressorVariants(**options)


def test_programs_differ_in_what_predictions_do_not_know():
    """The data of these tests: without spills there would be nothing to learn."""
    assert programs(0)[2].any()
    assert top(behaviours(0, UNSEEN).seconds, seconds(0, UNSEEN)) <= 1.0


def test_the_products_own_is_what_the_variants_begin_with():
    own, variants = Regressor(rounds=20), RegressorVariants(rounds=20)
    for made in (own, variants):
        made.fit(LESSONS[:12])
    table = lesson(24, UNSEEN).columns
    np.testing.assert_array_equal(own.times(table), variants.times(table))
    # Files of either are read by the product, which knows the other options by their values.
    again = Regressor.restored(variants.meta(), variants.arrays())
    np.testing.assert_array_equal(again.times(table), own.times(table))
    with pytest.raises(BadInputError, match="'form': it is one of the package foretune_research"):
        Regressor(form="perceptron")
    with pytest.raises(VersionMismatchError, match="foretune_research"):
        Regressor.restored(RegressorVariants(line=False).meta(), {})
