"""Features of decisions between candidates: exact where candidates are, straight between them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from foretune.search._anchored import Anchored  # noqa: E402
from foretune.search._relaxed import Relaxed  # noqa: E402
from foretune.space import PerfectTile  # noqa: E402
from foretune_research.climbs import KINDS, Logarithms  # noqa: E402
from tests.search.gradient_support import columns  # noqa: E402
from tests.space.programs import space  # noqa: E402


def group(coordinates=Relaxed):
    """Tiles of a sketch as coordinates, and a candidate that says what the rest is."""
    (base,) = space("matmul").sample(np.random.default_rng(0), 1)
    open_to = {
        i: variable
        for i, variable in enumerate(base.sketch.variables)
        if isinstance(variable, PerfectTile)
    }
    return base, coordinates(open_to, columns(open_to))


def drawn_alike(base, relaxed, seed, n):
    """Candidates with other tiles than a candidate's."""
    return [
        space("matmul").edit(base, changes, np.random.default_rng(0))
        for changes in relaxed.sample(np.random.default_rng(seed), n)
    ]


def logs(candidates):
    """A sum of logarithms of factors, and a difference of them."""
    tiles = [
        np.log([f for d in c.decisions if isinstance(d, tuple) for f in d]) for c in candidates
    ]
    return np.array([[t[0] + 2 * t[-1], t[1] - t[2]] for t in tiles])


def jumps(candidates):
    return np.array([[c.decisions[0][-1] % 3, len(c.decisions)] for c in candidates])


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS.values())),
    read=st.sampled_from([logs, jumps]),
    seed=st.integers(0, 999),
)
def test_at_candidates_they_are_what_is_read(kind, read, seed):
    base, relaxed = group(kind)
    features = Anchored(relaxed, base, read)
    same = drawn_alike(base, relaxed, seed, 4)
    x = relaxed.of([c.decisions for c in same])
    found = features.near(torch.from_numpy(x), features.anchor(x)).numpy()
    np.testing.assert_allclose(found, read(same), atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from([Relaxed, Logarithms]), seed=st.integers(0, 999))
def test_what_is_straight_in_logarithms_is_known_everywhere(kind, seed):
    base, relaxed = group(kind)
    features = Anchored(relaxed, base, logs)
    one, other = relaxed.of([c.decisions for c in drawn_alike(base, relaxed, seed, 2)])
    there = features.near(torch.from_numpy(other[None]), features.anchor(one[None])).numpy()
    exact = features.near(torch.from_numpy(other[None]), features.anchor(other[None])).numpy()
    np.testing.assert_allclose(there, exact, atol=0.1)


def test_what_no_decision_changes_has_no_derivative():
    base, relaxed = group()
    features = Anchored(relaxed, base, lambda some: np.full((len(some), 1), 7.0))
    x = relaxed.of([base.decisions])
    moving = torch.tensor(x + 0.2, requires_grad=True)
    found = features.near(moving, features.anchor(x))
    (slope,) = torch.autograd.grad(found.sum(), moving)
    assert float(found.detach()) == 7.0 and not slope.any()


def test_a_group_without_open_decisions_is_read_as_it_is():
    base, _ = group()
    features = Anchored(Relaxed({}, []), base, logs)
    x = np.zeros((2, 0))
    found = features.near(torch.from_numpy(x), features.anchor(x)).numpy()
    np.testing.assert_array_equal(found, logs([base, base]))
