"""Loops that are split and fused move their axes as they did before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import Nests
from foretune_research.logs._building import Building, Loop, Of


def indices(nests: Nests) -> tuple[np.ndarray, np.ndarray]:
    """Each iteration's index into the array that the only statement stores, and its loops."""
    (statement,) = nests.statements
    access = statement.accesses[-1]
    extents = nests.extents[0, list(statement.path)].astype(int)
    cells = np.indices(extents).reshape(len(extents), -1)
    index = np.zeros((nests.buffers[access.buffer].shape.shape[1], cells.shape[1]))
    for term in access.terms:
        step = cells[term.place] // term.every[0] % term.values[0]
        index[term.dimension] += term.coefficient[0] * step
    return index, cells


def divisors(extent: int) -> list[int]:
    return [f for f in range(1, extent + 1) if extent % f == 0]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_fused_loop_split_again_moves_its_axes_through_all_elements_in_order(data):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    b = Building(1)
    axes = [f"axis{at}" for at in range(len(shape))]
    fused = b.fuse(*(b.loop(axis, size) for axis, size in zip(axes, shape, strict=True)))
    total = int(np.prod(shape))
    factors = []
    for _ in range(data.draw(st.integers(0, 3))):
        factors.append(data.draw(st.sampled_from(divisors(total // int(np.prod(factors))))))
    loops = b.split(fused, *factors)
    b.statement(loops, [], (b.buffer("out", shape), axes))
    nests = b.nests()
    index, _ = indices(nests)
    right = np.indices(shape).reshape(len(shape), -1)
    if nests.approximate[0]:
        # Nowhere are there more iterations than elements, whatever the index is.
        assert index.shape == right.shape
    else:
        assert (index == right).all()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_digit_of_an_axis_is_that_of_its_index(data):
    extent = data.draw(st.sampled_from([6, 8, 12, 24]))
    inner = data.draw(st.sampled_from(divisors(extent)))
    block = data.draw(st.sampled_from(divisors(extent)))
    b = Building(1)
    loops = b.split(b.loop("c", extent), inner)
    packed = b.buffer("packed", [extent / block, block])
    b.statement(loops, [], (packed, [Of("c", every=block), Of("c", modulo=block)]))
    nests = b.nests()
    index, _ = indices(nests)
    exact = inner % block == 0 or block % inner == 0
    assert nests.approximate[0] == (not exact)
    if exact:
        c = np.arange(extent)
        assert (index == [c // block, c % block]).all()


def test_what_is_split_unevenly_is_executed_as_often_as_before():
    b = Building(2)
    loops = b.split(b.loop("i", 10), np.array([4.0, 5.0]))
    b.statement(loops, [], (b.buffer("out", [10]), ["i"]))
    nests = b.nests()
    assert nests.extents.tolist() == [[3, 4], [2, 5]]
    assert nests.statements[0].executed.tolist() == [10 / 12, 1]
    assert not nests.approximate.any()


def test_threads_that_copy_less_than_they_are_have_the_share_that_works():
    b = Building(1, gpu=True)
    thread = b.loop("thread", 32)
    outer, inner = b.split(b.loop("copied", 48), 32)
    share = b.bind(inner, thread)
    assert share == 48 / 64
    assert thread.parts.keys() == {"thread", "copied"}
    few = b.loop("few", 8)
    assert b.bind(few, thread) == 8 / 32
    b.statement([thread, outer], [], (b.buffer("tile", [48]), ["copied"]), executed=share)
    nests = b.nests()
    index, _ = indices(nests)
    # Beyond 48 is what the share leaves out.
    assert sorted(index[0]) == list(range(64))


def test_local_arrays_are_moved_by_the_loops_given_only():
    b = Building(1)
    outer, inner = b.split(b.loop("i", 12), 4)
    b.statement([outer, inner], [], (b.buffer("tile", [4]), [Of("i", loops=(inner,))]))
    index, _ = indices(b.nests())
    assert (index[0] == np.tile(np.arange(4), 3)).all()


def test_a_copy_of_a_loop_changes_on_its_own():
    b = Building(1)
    first = b.loop("i", 4)
    second = b.again(first)
    b.mark(second, 2)
    b.bind(b.loop("other", 4), second)
    assert first.kind.tolist() == [0]
    assert isinstance(second, Loop) and "other" not in first.parts
