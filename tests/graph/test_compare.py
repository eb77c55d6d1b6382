"""Comparing outputs: type, shape and value, each in its own arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.graph import compare_outputs, integer_distance, largest_difference

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn"]


def _one(expected, actual, step=0.0):
    return compare_outputs([np.asarray(expected)], [np.asarray(actual)], ["y"], [step])[0]


@given(st.data())
def test_the_distance_of_integers_is_that_of_python(data):
    dtype = np.dtype(data.draw(st.sampled_from(INTEGERS[1:])))
    info = np.iinfo(dtype)
    values = st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=5)
    left = data.draw(values)
    right = data.draw(st.permutations(left) | st.just([int(info.min)] * len(left)))
    found = integer_distance(np.array(left, dtype), np.array(right, dtype))
    assert [int(d) for d in found] == [abs(a - b) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_floats_cannot_tell_apart_are_different(dtype):
    top = 1 if dtype == "bool" else int(np.iinfo(dtype).max)
    expected, actual = np.array([0, top], dtype), np.array([0, top - 1], dtype)
    difference = _one(expected, actual)
    assert "'y'" in difference.mismatch and "[1]" in difference.mismatch
    assert str(expected[1]) in difference.mismatch and str(actual[1]) in difference.mismatch
    assert difference.absolute == 1.0
    assert not difference.within(1.0)
    assert _one(expected, expected.copy()).within(0.0)


def test_one_step_is_allowed_only_where_the_caller_says_so():
    expected, actual = np.array([3, 250], "uint8"), np.array([4, 249], "uint8")
    assert _one(expected, actual).mismatch
    assert not _one(expected, actual, step=1).mismatch
    assert _one(expected, np.array([5, 250], "uint8"), step=1).mismatch
    half = np.array([0.5, 1.0], "float32")
    assert _one(half, half + np.float32(0.5), step=0.5).within(0.0)
    assert not _one(half, half + np.float32(1.0), step=0.5).within(0.1)


def test_another_type_or_shape_is_another_result_even_if_the_values_are_equal():
    ones = np.ones((2, 1))
    assert "float64" in _one(ones.astype("float32"), ones).mismatch
    assert "float32" in _one(ones.astype("float32"), ones).mismatch
    assert "(1, 2)" in _one(ones, ones.T).mismatch
    assert "()" in _one(np.ones(1), np.ones(())).mismatch
    assert "bfloat16" in _one(ones.astype("float16"), ones.astype("bfloat16")).mismatch
    assert np.isnan(_one(ones, ones.T).absolute)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_float_is_as_far_off_as_its_last_place(dtype):
    epsilon = float(ml_dtypes.finfo(dtype).eps)
    expected = np.array([-4.0, 1.0]).astype(dtype)
    actual = np.array([-4.0, 1.0 + epsilon]).astype(dtype)
    difference = _one(expected, actual)
    assert difference.absolute == epsilon
    assert difference.relative == epsilon / 5
    assert difference.at == (1,)
    assert difference.within(epsilon / 5) and not difference.within(epsilon / 6)
    assert "'y'" in difference.describe(0.0) and "[1]" in difference.describe(0.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stands_where_the_original_has_it(dtype, value):
    whole = np.array([1.0, 2.0, 3.0]).astype(dtype)
    broken = np.array([1.0, value, 3.0]).astype(dtype)
    for difference in (_one(whole, broken), _one(broken, whole)):
        assert "[1]" in difference.mismatch
        assert not difference.within(np.inf)
    assert _one(broken, broken.copy()).within(0.0)
    moved = np.array([value, 2.0, 3.0]).astype(dtype)
    assert "2 such" in _one(broken, moved).mismatch
    if np.isinf(value):
        assert "1 such" in _one(broken, np.where(np.isinf(broken), -broken, broken)).mismatch


def _masked(rng, dtype, value, share):
    numbers = rng.standard_normal((8, 64))
    return np.where(rng.random(numbers.shape) < share, value, numbers).astype(dtype)


@pytest.mark.parametrize("share", [0.002, 0.1, 0.5, 0.7, 0.98])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dtype, value)
        for dtype in ("float16", "float32", "float64", "bfloat16")
        for value in ("lowest", "highest", -1e4, -1e9)
        if (dtype, value) != ("float16", -1e9)
    ],
)
def test_masked_elements_excuse_no_other(dtype, value, share):
    info = ml_dtypes.finfo(dtype)
    number = {"lowest": float(info.min), "highest": float(info.max)}.get(value, value)
    rng = np.random.default_rng(0)
    expected = _masked(rng, dtype, number, share)
    at = np.argwhere(np.abs(expected.astype("float64")) < 10)[0]
    actual = expected.copy()
    # As large as the other numbers are.
    actual[tuple(at)] = np.array(float(actual[tuple(at)]) + 1.0).astype(dtype)
    difference = _one(expected, actual)
    assert difference.relative > 0.1 and difference.at == tuple(at)
    masked = np.argwhere(expected == np.array(number).astype(dtype))[0]
    close = expected.copy()
    close[tuple(masked)] = np.array(number * (1 - 2 * float(info.eps))).astype(dtype)
    assert _one(expected, close).within(4 * float(info.eps))


def test_masks_that_are_added_to_numbers_excuse_no_other():
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((16, 64)).astype("float32")
    expected[:, 32:] -= 1e4  # half of them, each another number
    actual = expected.copy()
    actual[3, 3] += 1
    assert not _one(expected, actual).within(0.05)


@given(st.integers(0, 1 << 30), st.sampled_from([3, 16, 1000, 100_000]))
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
def test_sums_that_cancel_out_are_measured_by_the_others(seed, count):
    rng = np.random.default_rng(seed)
    terms = rng.standard_normal((count, 64)).astype("float32")
    forth = np.add.reduce(terms, axis=1, dtype="float32")
    back = np.zeros(count, "float32")
    for column in terms.T[::-1]:
        back += column
    assert _one(forth, back).within(1e-4)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_largest_numbers_of_a_type_are_compared(dtype):
    largest = np.finfo(dtype).max
    numbers = np.array([largest, -largest, largest], dtype)
    assert _one(numbers, numbers.copy()).within(0.0)
    assert not _one(numbers, numbers / 2).within(0.1)
    assert not _one(numbers, -numbers).within(0.1)


@pytest.mark.parametrize("numbers", [[1e-7, 1, 2], [1e-7, 1, 2, 3, -1e9], [2, 1e-7, -3, 1, 0]])
def test_one_of_a_few_numbers_that_cancels_out_is_measured_by_the_others(numbers):
    expected = np.array(numbers, "float32")
    actual = np.where(expected == np.float32(1e-7), np.float32(1e-6), expected)
    assert _one(expected, actual).within(1e-5)


def test_zeros_are_measured_by_what_is_not_zero():
    expected = np.zeros(100, "float32")
    expected[:3] = [1.0, 2.0, 3.0]
    assert _one(expected, expected + np.float32(1e-6)).within(1e-4)
    assert not _one(expected, expected + np.float32(1e-2)).within(1e-4)
    assert not _one(np.zeros(3, "float32"), np.full(3, 1e-3, "float32")).within(0.1)


def test_empty_outputs_and_single_numbers_are_compared():
    assert _one(np.zeros((0, 3)), np.zeros((0, 3))).within(0.0)
    assert _one(np.zeros((0, 3)), np.zeros((3, 0))).mismatch
    assert _one(np.float32(2), np.float32(2.5)).relative == 0.125
    assert _one(np.bool_(True), np.bool_(False)).mismatch


def test_complex_numbers_are_compared_part_by_part():
    assert _one(np.array([1 + 2j]), np.array([1 + 3j])).absolute == 1.0
    assert _one(np.array([1 + 2j]), np.array([1 + 2j])).within(0.0)


def test_the_largest_difference_is_nan_wherever_one_is():
    good, bad = _one([1.0], [1.5]), _one([1.0], [np.nan])
    for differences in ([good, bad], [bad, good]):
        assert np.isnan(largest_difference(differences)).all()
    assert largest_difference([good]) == (0.5, 0.25)
    assert largest_difference([]) == (0.0, 0.0)


def test_another_number_of_outputs_cannot_be_compared():
    with pytest.raises(ValueError, match="1 outputs"):
        compare_outputs([np.ones(1), np.ones(1)], [np.ones(1)])
