"""Sequences of like length in one batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from foretune.world._training import alike


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 100), st.integers(0, 3))
def test_every_sequence_is_in_one_batch_that_fits(lengths, budget, seed):
    lengths = np.array(lengths, dtype=np.int64)
    batches = alike(lengths, budget, np.random.default_rng(seed))
    assert sorted(np.concatenate([np.zeros(0, int), *batches]).tolist()) == list(
        range(len(lengths))
    )
    for rows in batches:
        longest = int(lengths[rows].max())
        assert longest * len(rows) <= budget or len(rows) == 1


def test_little_is_filled_up():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 31, 2000)
    batches = alike(lengths, 1024, rng)
    padded = sum(int(lengths[rows].max()) * len(rows) for rows in batches)
    assert padded < 1.1 * lengths.sum()
    again = alike(lengths, 1024, rng)
    assert not all(np.array_equal(a, b) for a, b in zip(batches, again, strict=False))
