"""Batches of different structures joined: the programs are the same, and are judged as if alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.describe import (
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
    behaviours,
    joined,
    nests_of,
)
from foretune.describe._joining import alike
from foretune.hardware import device
from tests.space.programs import space

ONE = np.ones(1)
ZERO = np.zeros(1)


def bare(nests):
    """One program without its loops of one iteration, loops numbered as they are met."""
    order = []
    for statement in nests.statements:
        for loop in statement.path:
            if nests.extents[0, loop] > 1 and loop not in order:
                order.append(loop)
    number = {loop: at for at, loop in enumerate(order)}
    statements = []
    for statement in nests.statements:
        places = [p for p, loop in enumerate(statement.path) if loop in number]
        at = {place: new for new, place in enumerate(places)}
        accesses = []
        for access in statement.accesses:
            moving = [t for t in access.terms if t.place in at and t.coefficient[0] != 0]
            terms = [replace(t, place=at[t.place]) for t in moving if t.values[0] > 1]
            terms.sort(key=lambda t: (t.dimension, t.place, t.every[0]))
            accesses.append(replace(access, terms=tuple(terms)))
        path = tuple(number[statement.path[place]] for place in places)
        statements.append(replace(statement, path=path, accesses=tuple(accesses)))
    return Nests(
        nests.kinds[:, order],
        nests.extents[:, order],
        tuple(nests.axes[loop] for loop in order),
        tuple(nests.reduction[loop] for loop in order),
        nests.buffers,
        tuple(statements),
        nests.gpu,
        nests.approximate,
    )


def assert_same(one, other):
    one, other = bare(one), bare(other)
    assert one.structure == other.structure
    np.testing.assert_array_equal(one.kinds, other.kinds)
    np.testing.assert_array_equal(one.extents, other.extents)
    for first, second in zip(one.statements, other.statements, strict=True):
        for name in ("operations", "calls", "selects", "unroll", "executed"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        for a, b in zip(first.accesses, second.accesses, strict=True):
            for t, u in zip(a.terms, b.terms, strict=True):
                assert (t.coefficient, t.values, t.every) == (u.coefficient, u.values, u.every)


def alone(batches):
    return {
        int(row): nests.take(np.array([at]))
        for rows, nests in batches
        for at, row in enumerate(rows)
    }


def program(shared, first, second):
    """``shared: (first: A; second: B)``, loops as (extent, reduction)."""
    loops = [*shared, *first, *second]
    extents = np.array([[float(extent) for extent, _ in loops]])
    common = tuple(range(len(shared)))
    paths = (
        (*common, *range(len(shared), len(shared) + len(first))),
        (*common, *range(len(shared) + len(first), len(loops))),
    )
    statements = []
    for number, path in enumerate(paths):
        terms = []
        step = ONE
        for place in reversed(range(len(path))):
            terms.append(Term(0, place, step, extents[:, path[place]], ONE))
            step = step * extents[:, path[place]]
        accesses = (Access(0, False, tuple(terms)), Access(1 + number, True, tuple(terms)))
        statements.append(Statement(path, accesses, ONE, ZERO, ZERO, ZERO, False, ONE))
    return Nests(
        kinds=np.zeros((1, len(loops)), np.int8),
        extents=extents,
        axes=("",) * len(loops),
        reduction=tuple(reduction for _, reduction in loops),
        buffers=tuple(Buffer(name, "global", 4, np.full((1, 1), 4096.0)) for name in "ABC"),
        statements=tuple(statements),
        gpu=False,
        approximate=np.zeros(1, bool),
    )


def test_structures_that_share_alike_become_one():
    batches = [
        (np.array([4]), program([(8, False)], [(2, False)], [(3, False), (5, True)])),
        (np.array([1]), program([(2, False), (2, False)], [(7, True)], [])),
    ]
    found = joined(batches)
    assert len(found) == 1 and found[0][0].tolist() == [4, 1]
    # Two shared, one of each flag of the first, two of the second.
    assert found[0][1].extents.shape == (2, 6)
    for row, nests in alone(found).items():
        assert_same(nests, alone(batches)[row])


def test_programs_that_share_nothing_stay_apart_from_those_that_share():
    sharing = program([(8, False)], [(2, False)], [(3, False)])
    nothing = program([(1, False)], [(2, False)], [(3, False)])
    own = program([], [(4, False)], [(3, False)])
    found = joined([(np.array([at]), n) for at, n in enumerate((sharing, nothing, own))])
    assert sorted(rows.tolist() for rows, _ in found) == [[0], [1, 2]]


LOOPS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4)


@given(st.lists(st.tuples(LOOPS, LOOPS, LOOPS), min_size=1, max_size=6))
def test_every_program_is_still_there_and_the_same(parts):
    batches = [(np.array([row]), program(*each)) for row, each in enumerate(parts)]
    found = alone(joined(batches))
    assert sorted(found) == list(range(len(parts)))
    for row, nests in alone(batches).items():
        assert_same(found[row], nests)


def test_other_statements_or_arrays_do_not_join():
    one = program([], [(4, False)], [(4, False)])
    wide = replace(one, buffers=tuple(replace(b, bytes=8) for b in one.buffers))
    bound = replace(one, gpu=True)
    found = joined([(np.array([at]), n) for at, n in enumerate((one, wide, bound))])
    assert len(found) == 3
    assert joined([]) == []


@pytest.mark.parametrize("name", [pytest.param("softmax", marks=pytest.mark.slow), "matmul"])
def test_real_programs_are_judged_as_if_alone(name):
    drawn = space(name).sample(np.random.default_rng(0), 48)
    batches = nests_of(drawn)
    found = joined(batches)
    assert len(found) < len(batches)
    cpu = device("ryzen-3700x")
    own = alone(batches)
    for rows, nests in found:
        together = behaviours(nests, cpu)
        for at, row in enumerate(rows.tolist()):
            assert_same(nests.take(np.array([at])), own[row])
            single = behaviours(own[row], cpu)
            np.testing.assert_allclose(together.seconds[at], single.seconds[0], rtol=1e-9)
            np.testing.assert_allclose(together.scores[at], single.scores[0], atol=1e-9)


def test_a_program_is_judged_alike_whatever_else_is_in_its_batch():
    """Statements of one structure share loops of one iteration in some of its programs."""
    cpu = device("ryzen-3700x")
    several = 0
    for _, nests in nests_of(space("matmul").sample(np.random.default_rng(1), 96)):
        together = behaviours(nests, cpu)
        several += len(alike(nests)) > 1
        for at in range(len(nests)):
            single = behaviours(nests.take(np.array([at])), cpu)
            np.testing.assert_allclose(together.seconds[at], single.seconds[0], rtol=1e-12)
            for limit, seconds in together.limits_s.items():
                np.testing.assert_allclose(seconds[at], single.limits_s[limit][0], rtol=1e-12)
    assert several, "no batch holds programs that share different loops"
