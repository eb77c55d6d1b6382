"""What other devices took, by hand."""

import numpy as np

from foretune.cost.behaviour.columns import MEMORY_NAMES, factor_columns
from foretune.cost.behaviour.memory import MOST, Memory
from tests.cost.behaviour.behaviour_support import DEVICES, UNSEEN, cpu

KEYS = ["a", "b", "c"]


def memory():
    found = Memory()
    found.add(DEVICES[0], "w", KEYS, np.array([1.0, 2.0, 4.0]))
    found.add(DEVICES[1], "w", KEYS, np.array([3.0, 1.0, np.nan]))
    found.add(DEVICES[1], "other", KEYS, np.array([1.0, 1.0, 1.0]))
    return found


def read(found, device, workload="w", keys=KEYS, **more):
    return dict(zip(MEMORY_NAMES, found.columns(device, workload, keys, **more).T, strict=True))


def test_mean_least_and_most_of_other_devices():
    table = read(memory(), UNSEEN)
    slow = np.array([[0, 1, 2], [np.log2(3), 0, MOST]])
    np.testing.assert_allclose(table["memory.mean"], slow.mean(axis=0))
    np.testing.assert_allclose(table["memory.least"], slow.min(axis=0))
    np.testing.assert_allclose(table["memory.most"], slow.max(axis=0))


def test_a_devices_own_times_are_never_told():
    table = read(memory(), DEVICES[0])
    np.testing.assert_allclose(table["memory.mean"], [np.log2(3), 0, MOST])
    assert np.isnan(memory().columns(DEVICES[1], "other", KEYS)).all()


def test_what_nobody_measured_is_unknown():
    table = read(memory(), UNSEEN, keys=["a", "z"])
    assert np.isfinite(table["memory.mean"][0]) and np.isnan(table["memory.mean"][1])
    assert np.isnan(memory().columns(UNSEEN, "nowhere", KEYS)).all()


def test_the_likest_device_counts_most():
    twin = cpu("twin", 8, 3600.0, 48.0)
    table = read(memory(), twin)
    np.testing.assert_allclose(table["memory.nearest"], [np.log2(3), 0, MOST])
    assert abs(table["memory.near"][0] - np.log2(3)) < abs(table["memory.mean"][0] - np.log2(3))


def test_the_shift_is_what_predictions_say_of_the_difference():
    own = np.array([5.0, 5.0, 5.0])
    theirs = {DEVICES[0].key: np.array([1.0, 2.0, 3.0]), DEVICES[1].key: np.array([3.0, 2.0, 1.0])}
    table = read(memory(), UNSEEN, own=own, theirs=theirs)
    np.testing.assert_allclose(table["memory.shift"], [3, 3, 3])


def test_what_is_expected_by_hand():
    """Of one other device: w m + (1 - w) (a(u) + 0.3 (m - a(d))), w = l / (l + 0.4)."""
    found = Memory()
    found.add(DEVICES[0], "w", KEYS, np.array([1.0, 2.0, 4.0]))
    own, theirs = np.array([1.0, 3.0, 2.0]), np.array([0.5, 1.5, 2.5])
    for device in (UNSEEN, cpu("twin", 4, 3000.0, 25.0)):
        table = read(found, device, own=own, theirs={DEVICES[0].key: theirs})
        gap = np.abs(factor_columns(device) - factor_columns(DEVICES[0]))
        likeness = np.exp(-np.nanmean(gap))
        weight = likeness / (likeness + 0.4)
        slow = np.array([0.0, 1.0, 2.0])
        wanted = weight * slow + (1 - weight) * (own + 0.3 * (slow - theirs))
        np.testing.assert_allclose(table["memory.expected"], wanted)
    # The same device under another name is as alike as can be.
    assert likeness == 1.0


def test_without_predictions_what_is_expected_is_what_others_took():
    table = read(memory(), UNSEEN)
    np.testing.assert_array_equal(table["memory.expected"], table["memory.near"])


def test_arrays_hold_everything():
    found = memory()
    again = Memory.of_arrays(found.devices, found.arrays())
    assert len(again) == len(found) == 9
    for device in (UNSEEN, *DEVICES[:2]):
        np.testing.assert_allclose(
            again.columns(device, "w", KEYS), found.columns(device, "w", KEYS), rtol=1e-6
        )
