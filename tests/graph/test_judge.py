"""The judge: each number is excused by its own error or by usual ones, none by a single other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretune.graph import judge_outputs
from foretune.graph._exact import Exact


def _seen(expected, exact, actual, step=0.0, own=None, tolerance=1e-4, spread=None):
    expected, actual = np.asarray(expected), np.asarray(actual)
    known = Exact([np.asarray(exact)], None if own is None else [np.asarray(own)], "a test")
    wide = None if spread is None else replace(known, spread=[np.asarray(spread)])
    asked = [lambda: known, lambda: wide]
    return judge_outputs([expected], [actual], ["y"], [tolerance], [step], *asked)


def _right(*args, **options):
    return not _seen(*args, **options).wrong


def _floats(*numbers):
    return np.array(numbers, "float32")


@pytest.mark.parametrize("flipped", [1.0, 1e3, 1e30])
@pytest.mark.parametrize("count", [4, 5, 20, 1000])
def test_what_the_original_got_wrong_at_one_place_excuses_no_other(count, flipped):
    rng = np.random.default_rng(0)
    exact = rng.standard_normal(count)
    expected = exact.astype("float32")
    expected[-1] += np.float32(flipped)
    actual = exact.astype("float32")
    assert _right(expected, exact, actual), "the exact one is right"
    assert _right(expected, exact, expected), "the original is right"
    for at in range(count - 1):
        wrong = actual.copy()
        wrong[at] += np.float32(0.3)
        assert not _right(expected, exact, wrong)
        if at > 5:
            break


def test_a_flip_is_one_or_the_other_and_nothing_else():
    expected, exact = _floats(1, 2, 3, 0), np.array([1.0, 2, 3, 1])
    assert not _right(expected, exact, _floats(-2, 5, 0, 3))
    assert not _right(expected, exact, _floats(1, 2, 3, 3))
    assert not _right(expected, exact, _floats(1, 2, 3, -1))
    assert not _right(expected, exact, _floats(1, 2, 3, 0.5))
    assert _right(expected, exact, _floats(1, 2, 3, 1))


def test_an_original_that_is_far_from_its_own_program_has_no_judge():
    rng = np.random.default_rng(0)
    exact = rng.standard_normal(1000)
    noisy = (exact + rng.standard_normal(1000)).astype("float32")
    assert not _right(noisy, exact, exact.astype("float32"))
    other = (exact + rng.standard_normal(1000)).astype("float32")
    assert not _right(noisy, exact, other)
    assert not _right(np.zeros(9, "float32"), np.ones(9), np.ones(9, "float32"))
    assert not _right(np.float32(0), np.float64(1), np.float32(1))


@pytest.mark.parametrize("noise", [1e-3, 1e-2])
def test_rounding_like_the_original_s_is_right_and_more_is_not(noise):
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((50, 40))
    expected, actual, worse = (
        (exact + factor * noise * rng.standard_normal(exact.shape)).astype("float32")
        for factor in (1, 1, 20)
    )
    assert _right(expected, exact, actual)
    assert not _right(expected, exact, worse)
    one = actual.copy()
    one[7, 7] += np.float32(20 * noise)
    assert not _right(expected, exact, one)


def test_a_row_that_amplifies_rounding_is_measured_by_itself():
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((100, 64))
    amplified = np.where(np.arange(100) == 17, 1e-2, 1e-7)[:, None]
    expected, actual = (
        (exact + amplified * rng.standard_normal(exact.shape)).astype("float32") for _ in range(2)
    )
    assert _right(expected, exact, actual)
    other = actual.copy()
    other[18] = exact[18] + 1e-2 * rng.standard_normal(64)
    assert not _right(expected, exact, other)


@pytest.mark.parametrize("open_", [0, 2, 20])
def test_saturated_numbers_say_nothing_of_those_that_are_not(open_):
    """As behind a ``tanh`` of large numbers: most are one, a few hold what rounding has left."""
    rng = np.random.default_rng(0)
    exact = np.sign(rng.standard_normal(10_000))
    at = rng.permutation(10_000)[:open_]
    exact[at] = rng.uniform(-0.9, 0.9, open_)
    expected, actual = exact.astype("float32"), exact.astype("float32")
    expected[at] += (rng.standard_normal(open_) * 1e-3).astype("float32")
    expected[at[:1]] = exact[at[:1]]
    actual[at] += (rng.standard_normal(open_) * 1e-3).astype("float32")
    assert _right(expected, exact, actual, tolerance=1e-5) == (open_ != 2)
    for place in (*at[:3], 0 if 0 not in at else 1):
        wrong = actual.copy()
        wrong[place] += np.float32(0.02)
        assert not _right(expected, exact, wrong, tolerance=1e-5)


def test_rounding_alone_is_no_gross_error():
    rng = np.random.default_rng(0)
    exact = np.zeros(100)
    expected, actual = (1e-6 * rng.standard_normal((2, 100))).astype("float32")
    assert _right(expected, exact, actual, tolerance=1e-9)
    assert not _right(expected, exact, actual + np.float32(1e-3), tolerance=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_excused_by_nothing(value):
    whole, broken = _floats(1, 2, 3, 4), _floats(1, value, 3, 4)
    exact = np.array([1.0, 2, 3, 4])
    assert not _right(whole, exact, broken)
    assert not _right(broken, exact, whole)
    # Where float64 has no number, the tolerance is the last word.
    assert _right(_floats(1, 2, 3, 4), np.array([1.001, value, 3, 4]), _floats(1.001, 2, 3, 4))
    assert not _right(_floats(1, 2, 3, 4), np.array([1.001, value, 3, 4]), _floats(1.001, 3, 3, 4))
    assert _right(broken, np.array([1.001, value, 3, 4]), _floats(1.001, value, 3, 4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_an_integer_is_the_original_s_or_the_exact_one_or_between(dtype):
    def ints(*numbers):
        return np.array(numbers, dtype)

    expected, exact = ints(5, 100, 7, 9, 1), ints(5, 103, 7, 9, 1)
    for between in (100, 101, 102, 103):
        assert _right(expected, exact, ints(5, between, 7, 9, 1))
    for other in (99, 104, 0, 127):
        assert not _right(expected, exact, ints(5, other, 7, 9, 1))
    assert not _right(expected, exact, ints(6, 103, 7, 9, 1))
    # An index: what lies between two of them is a third.
    expected, exact = ints(5, 2, 7, 9, 1), ints(5, 90, 7, 9, 1)
    assert _right(expected, exact, ints(5, 90, 7, 9, 1))
    assert not _right(expected, exact, ints(5, 30, 7, 9, 1))


def test_booleans_are_one_or_the_other():
    expected, exact = np.array([True, False]), np.array([True, True])
    assert _right(expected, exact, np.array([True, True]))
    assert not _right(expected, exact, np.array([False, True]))


def test_integers_far_from_the_exact_ones_have_no_judge():
    expected, exact = np.zeros(10, "int64"), np.full(10, 1000)
    assert not _right(expected, exact, np.full(10, 1000))
    top = np.iinfo("int64").max
    assert not _right(np.array([top, 1, 1, 1, 1]), np.array([-top, 1, 1, 1, 1]), np.arange(5))


def test_bytes_may_move_by_what_the_original_moves_by():
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 200, 200).astype("uint8")
    expected = (exact + rng.integers(0, 3, 200)).astype("uint8")
    actual = (exact + rng.integers(0, 5, 200)).astype("uint8")
    assert _right(expected, exact, actual, step=1)
    assert not _right(expected, exact, (exact + 30).astype("uint8"), step=1)
    one = exact.copy()
    one[3] += 20
    assert not _right(expected, exact, one, step=1)


def test_another_type_or_shape_or_a_complex_number_is_not_judged():
    ones = np.ones((2, 1), "float32")
    assert not _right(ones, ones.astype("float64"), ones.T)
    assert not _right(ones, ones.astype("float64"), ones.astype("float64"))
    assert not _right(np.array([1 + 1j]), np.array([2 + 1j]), np.array([9 + 9j]))


def test_an_error_that_is_small_by_luck_is_no_measure():
    exact, expected = np.array([[0.007]]), np.array([[0.007]], "float32")
    off = expected + np.float32(5e-6)
    assert not _right(expected, exact, off)
    assert _right(expected, exact, off, spread=[[2e-6]])
    assert not _right(expected, exact, off + np.float32(1e-5), spread=[[2e-6]])
    assert not _right(expected, exact, -off, spread=[[2e-6]])


def test_a_spread_excuses_nothing_at_other_places():
    rng = np.random.default_rng(0)
    exact = rng.standard_normal(100)
    expected = exact.astype("float32")
    spread = np.where(np.arange(100) == 3, 1e-3, 1e-8)
    for at, right in ((3, True), (4, False)):
        actual = expected.copy()
        actual[at] += np.float32(2e-3)
        assert _right(expected, exact, actual, spread=spread) == right


def test_where_rounding_alone_makes_another_result_nothing_is_judged():
    exact = np.linspace(1, 2, 8)
    expected, other = exact.astype("float32"), exact[::-1].astype("float32")
    seen = _seen(expected, exact, other, spread=np.full(8, 0.5))
    assert seen.wrong and seen.is_chaos
    few = np.where(np.arange(8) < 2, 0.5, 0.0)
    assert not _seen(expected, exact, other, spread=few).is_chaos
    assert not _seen(expected, exact, other[:4], spread=np.full(8, 0.5)).is_chaos
    assert not _seen(expected, exact, other.astype("float64"), spread=np.full(8, 0.5)).is_chaos
    broken = np.where(np.arange(8) == 5, np.nan, other)
    assert not _seen(expected, exact, broken, spread=np.full(8, 0.5)).is_chaos
