"""Views: whatever is done to them, they say where NumPy finds the same elements."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.operators.views import View

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def elements(view, memory):
    """The tensor that a view describes, by its index expressions."""
    found = np.empty(view.shape, memory.dtype)
    for at in np.ndindex(*view.shape):
        found[at] = memory[eval(view.index(*map(str, at)))]
    return found


@st.composite
def changed(draw):
    """A view after some steps, and NumPy's array after the same steps."""
    shape = draw(shapes)
    array = np.arange(math.prod(shape)).reshape(shape)
    view = View.of(shape)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["permute", "reshape", "broadcast", "narrow", "repeat"]))
        rank = array.ndim
        axis = draw(st.integers(0, rank - 1))
        if kind == "permute":
            order = draw(st.permutations(range(rank)))
            step, after = view.permuted(order), array.transpose(order)
        elif kind == "reshape":
            split = draw(st.sampled_from([d for d in range(1, 7) if array.shape[axis] % d == 0]))
            parts = (split, array.shape[axis] // split)
            target = [*array.shape[:axis], *parts, *array.shape[axis + 1 :]]
            if draw(st.booleans()):
                target = [array.size]
            step, after = view.reshaped(target), array.reshape(target)
        elif kind == "broadcast":
            target = [e if e > 1 else draw(st.integers(1, 3)) for e in array.shape]
            target = [*draw(st.lists(st.integers(1, 2), max_size=1)), *target]
            step, after = view.broadcast(target), np.broadcast_to(array, target)
        elif kind == "narrow":
            begin = draw(st.integers(0, array.shape[axis] - 1))
            extent = draw(st.integers(1, array.shape[axis] - begin))
            step = view.narrowed(axis, begin, extent)
            after = array.take(range(begin, begin + extent), axis)
        else:
            times = draw(st.integers(1, 3))
            step, after = view.repeated(axis, times), array.repeat(times, axis)
        if step is not None and array.size * 3 < 5000:
            view, array = step, after
    return math.prod(shape), view, array


@settings(max_examples=150, deadline=None)
@given(changed())
def test_steps_are_those_of_numpy(case):
    size, view, array = case
    assert (view.size, view.shape) == (size, array.shape)
    np.testing.assert_array_equal(elements(view, np.arange(size)), array)


@settings(max_examples=50, deadline=None)
@given(changed(), st.integers(1, 4))
def test_repeats_in_the_first_axis_are_found_and_taken_away(case, times):
    _, view, array = case
    repeated = view.repeated(0, times)
    assert repeated.shared() % times == 0 or array.shape[0] == 1
    single = repeated.ungrouped(times)
    assert single is not None
    np.testing.assert_array_equal(elements(single, np.arange(view.size)), array)


def test_what_is_no_view_is_said():
    transposed = View.of((2, 3)).permuted((1, 0))
    assert transposed.reshaped((6,)) == View(6, (((3, 1), (2, 3)),))
    assert transposed.reshaped((2, 3)) is None, "rows would be cut in the middle of columns"
    assert View.of((2, 3)).reshaped((7,)) is None
    assert View.of((2, 3)).broadcast((2, 4)) is None
    assert View.of((3,)).broadcast(()) is None
    assert transposed.reshaped((6,)).narrowed(0, 1, 2) is None


def test_neighbours_in_memory():
    assert View.of((4, 8)).is_contiguous(1)
    assert not View.of((4, 8)).is_contiguous(0)
    assert not View.of((4, 1)).broadcast((4, 8)).is_contiguous(1)
    assert View.of((4, 1)).is_contiguous(1), "one element has no neighbours"
