"""Packed configurations: nothing is lost, equal ones are found, large ones lie in a file."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from foretune.errors import BadInputError
from foretune.tgraph import configurations as room
from foretune.tgraph.configurations import distinct, pack, packed, unpack


def test_every_list_of_six_axes_comes_back():
    every = np.array(list(itertools.product(range(-1, 6), repeat=6)), dtype=np.int8)
    codes = pack(np.tile(every, 3))
    assert codes.shape == (7**6, 3)
    assert len(np.unique(codes[:, 0])) == 7**6
    assert codes.min() == 0
    assert codes.max() == 7**6 - 1
    np.testing.assert_array_equal(unpack(codes), np.tile(every, 3))


def test_the_example_of_the_docstring():
    features = np.array([1, 0, -1, -1, -1, -1] * 3)
    assert pack(features).tolist() == [9, 9, 9]


FEATURES = arrays.arrays(
    np.int8,
    st.tuples(st.integers(1, 12), st.integers(1, 3), st.just(18)),
    elements=st.integers(-1, 5),
    fill=st.integers(-1, 5),
)


@settings(max_examples=50, deadline=None)
@given(FEATURES, st.integers(1, 5))
def test_blocks_of_any_size_give_the_same(features, block):
    count, nodes = features.shape[:2]
    blocks = [features[at : at + block] for at in range(0, count, block)]
    found = packed(blocks, count, nodes)
    np.testing.assert_array_equal(found.features(np.arange(count)), features)
    whole = packed([features.astype(np.float32)], count, nodes)
    np.testing.assert_array_equal(found.codes, whole.codes)
    np.testing.assert_array_equal(found.keys, whole.keys)


@settings(max_examples=50, deadline=None)
@given(FEATURES)
def test_digests_are_equal_where_configurations_are(features):
    keys = packed([features], *features.shape[:2]).keys
    for i, j in itertools.combinations(range(len(features)), 2):
        assert (keys[i] == keys[j]) == (features[i] == features[j]).all()


def test_large_ones_lie_in_a_file(monkeypatch):
    features = np.random.default_rng(0).integers(-1, 6, size=(50, 4, 18))
    inside = packed([features], 50, 4)
    monkeypatch.setattr(room, "_IN_MEMORY", 100)
    outside = packed([features[:20], features[20:]], 50, 4)
    assert isinstance(outside.codes, np.memmap)
    np.testing.assert_array_equal(outside.codes, inside.codes)
    rows = np.array([3, 40, 3])
    np.testing.assert_array_equal(outside.features(rows), features[rows])


def test_a_full_disk_is_said(monkeypatch):
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "_IN_MEMORY", 100)
    monkeypatch.setattr(room.os, "posix_fallocate", full)
    with pytest.raises(BadInputError, match="No space left"):
        packed([np.zeros((50, 4, 18))], 50, 4)


@pytest.mark.parametrize("value", [-2, 6, 0.5, 300])
def test_what_is_no_axis_is_refused(value):
    features = np.zeros((2, 18))
    features[1, 4] = value
    with pytest.raises(BadInputError, match="whole numbers from -1 to 5"):
        pack(features)


def keys(text: str) -> np.ndarray:
    return np.array([np.void(letter.encode().ljust(16)) for letter in text], dtype="V16")


def test_of_equal_configurations_the_fastest_stays():
    runtime = np.array([5, 7, 4, 9, 6])
    assert distinct(keys("abaab"), runtime).tolist() == [2, 4]
    assert distinct(keys("abaab"), runtime, "first").tolist() == [0, 1]
    assert distinct(keys("abaab"), runtime, "none").tolist() == [0, 1, 2, 3, 4]
    assert distinct(keys("abaab"), None).tolist() == [0, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=30))
def test_distinct_keeps_the_minimum_of_each_in_order(rows):
    text = "".join(letter for letter, _ in rows)
    runtime = np.array([value for _, value in rows])
    kept = distinct(keys(text), runtime)
    assert [text[at] for at in kept] == list(dict.fromkeys(text))
    for at in kept:
        assert runtime[at] == min(value for letter, value in rows if letter == text[at])
