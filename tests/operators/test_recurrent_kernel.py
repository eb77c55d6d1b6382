"""Panels of recurrent weights: every weight once, where the kernel reads it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretune.operators.recurrent_kernel import columns_of, panels


@given(st.integers(1, 200), st.sampled_from([1, 3, 4]), st.integers(1, 9), st.sampled_from([4, 16]))
def test_tiles_make_up_all_units(total, gates, batch, lanes):
    columns = columns_of(total, gates, batch, lanes)
    assert [each.begin for each in columns] == list(
        np.cumsum([0, *(each.count * each.width for each in columns)])[:-1]
    )
    assert sum(each.count * each.width for each in columns) == total
    assert all(each.lanes <= lanes for each in columns)


@given(st.integers(1, 70), st.integers(1, 5), st.permutations(range(4)), st.integers(1, 2))
def test_a_panel_holds_what_a_tile_reads_of_all_gates(hidden, depth, places, batch):
    weight = np.arange(4 * hidden * depth).reshape(4 * hidden, depth)
    columns = columns_of(hidden, 4, batch, 8)
    flat, begin = panels(weight, tuple(places), columns), 0
    for each in columns:
        for tile in range(each.count):
            for k in range(depth):
                for place in places:
                    first = place * hidden + each.begin + tile * each.width
                    read = flat[begin : begin + each.width]
                    np.testing.assert_array_equal(read, weight[first : first + each.width, k])
                    begin += each.width
    assert begin == flat.size
